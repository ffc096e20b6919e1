//! Errors for the fault that broke a connection, which name the command line's options.

use std::path::Path;
use std::time::Duration;

use leasehold_client::{CertificateFault, Obstacle, ServerCertificateFault};

use crate::connection::Connection;
use crate::error::CliError;

/// Looks for the fault that broke a connection, for at most the time `left`. Returns the error that
/// names the fault; `None` if no fault is found, for example because the server can't be reached.
pub(crate) async fn explain(connection: &Connection, left: Duration) -> Option<CliError> {
    let obstacle = connection.endpoint().ok()?.obstacle(left).await?;
    Some(error_of(&obstacle, connection))
}

fn error_of(obstacle: &Obstacle, connection: &Connection) -> CliError {
    let unreachable = |cause: &str, hint: &str| CliError::Unreachable {
        server: connection.url(),
        cause: cause.to_owned(),
        hint: hint.to_owned(),
    };
    match obstacle {
        Obstacle::ServerUsesTls => unreachable(
            "the server speaks TLS",
            "use https:// in --server, and name the server's certificate authority in --ca",
        ),
        Obstacle::ServerUsesNoTls => unreachable(
            "the server does not answer in TLS",
            "if it serves plaintext, use http:// in --server, and leave out --ca, --cert and --key",
        ),
        Obstacle::ServerCertificate(fault) => {
            let (cause, hint) = server_certificate(fault, connection);
            unreachable(&cause, hint)
        }
        Obstacle::ClientCertificate(fault) => client_certificate(*fault, connection.cert.as_deref()),
        other => unreachable(&other.to_string(), "check --server, --ca, --cert and --key"),
    }
}

/// Returns the cause and the hint for a server certificate that the client does not accept.
fn server_certificate(fault: &ServerCertificateFault, connection: &Connection) -> (String, &'static str) {
    let ca = connection.ca.as_deref().unwrap_or(Path::new("")).display();
    match fault {
        ServerCertificateFault::UnknownIssuer => (
            format!("the authority in `{ca}` did not sign the server's certificate"),
            "name the authority that signed the server's certificate in --ca",
        ),
        ServerCertificateFault::WrongName(error) => (
            format!("the server's certificate is for another name: {error}"),
            "use a name of the certificate in --server",
        ),
        ServerCertificateFault::NotValidNow(error) => (
            format!("the server's certificate is not valid now: {error}"),
            "give the server a new certificate, or set this machine's clock",
        ),
        other => (
            format!("the server's certificate is not accepted: {other}"),
            "check that --ca names a certificate authority",
        ),
    }
}

fn client_certificate(fault: CertificateFault, cert: Option<&Path>) -> CliError {
    let name = cert.map(|path| format!(" `{}`", path.display())).unwrap_or_default();
    let hint = match (cert, fault) {
        (None, _) => "say who you are with --cert and --key",
        (Some(_), CertificateFault::NotValidNow) => "name a new certificate in --cert, and its key in --key",
        (Some(_), _) => "name a certificate in --cert that an authority of the server's `tls.client_ca` signed",
    };
    CliError::NotAccepted { message: format!("the server does not accept the certificate{name}: {fault}"), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_without_a_certificate_is_asked_for_one() {
        let error = client_certificate(CertificateFault::Missing, None);
        assert_eq!(error.to_string(), "the server does not accept the certificate: it requires one, and none was sent");
        assert_eq!(error.exit_code(), 6);
    }

    #[test]
    fn a_refused_certificate_is_named_with_its_fault() {
        let error = client_certificate(CertificateFault::UnknownIssuer, Some(Path::new("me.pem")));
        let text = "the server does not accept the certificate `me.pem`: it is signed by an authority that the server \
                    does not know";
        assert_eq!(error.to_string(), text);
    }
}
