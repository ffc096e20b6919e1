//! The options `--server`, `--ca`, `--cert`, `--key` and `--timeout-seconds`, and the connection
//! that they describe.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_client::{Client, Endpoint, EndpointError, PemFile, Refusal, Stub, Tls};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::error::CliError;

const HEADING: &str = "Connection";
const DEFAULT_SERVER: &str = "http://127.0.0.1:7171";
const SERVER_VARIABLE: &str = "LEASEHOLD_SERVER";
const START_ONE: &str = "start one with `leasehold serve`, or name yours with --server";

/// The server to call, and the caller's identity.
#[derive(Clone, Debug, clap::Args)]
pub struct Connection {
    /// The server to call; https needs its certificate authority in --ca
    #[arg(long, help_heading = HEADING, value_name = "URL",
          env = SERVER_VARIABLE, hide_env_values = true, default_value = DEFAULT_SERVER)]
    server: String,

    /// The certificate authority to trust, as PEM
    #[arg(long, help_heading = HEADING, value_name = "FILE",
          env = "LEASEHOLD_CA", hide_env_values = true)]
    pub(crate) ca: Option<PathBuf>,

    /// The certificate that names you, as PEM
    #[arg(long, help_heading = HEADING, value_name = "FILE",
          env = "LEASEHOLD_CERT", hide_env_values = true)]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of --cert, as PEM
    #[arg(long, help_heading = HEADING, value_name = "FILE",
          env = "LEASEHOLD_KEY", hide_env_values = true)]
    pub(crate) key: Option<PathBuf>,

    /// Seconds to wait for a connection, and then for each answer
    #[arg(long, help_heading = HEADING, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout_seconds: u64,
}

impl Connection {
    /// Connects now, so that the error of a server that can't be reached differs from the error of
    /// a refused call. The calls of the returned stub carry the timeout as their deadline.
    pub(crate) async fn open(&self) -> Result<Stub<Channel>, CliError> {
        let endpoint = self.endpoint()?;
        let connected = tokio::time::timeout(self.timeout(), endpoint.connect()).await.map_err(|_| self.late())?;
        let channel = connected.map_err(|error| CliError::Unreachable {
            server: self.url(),
            cause: innermost(&error),
            hint: START_ONE.to_owned(),
        })?;
        Ok(Stub::new(channel).with_deadline(self.timeout()))
    }

    /// Returns a client that repeats calls after a broken connection, for a verb of many calls.
    pub(crate) fn client(&self) -> Result<Client, CliError> {
        Ok(Client::new(self.endpoint()?).with_timeout(self.timeout()))
    }

    /// Waits for the answer of a call, at most for the time of `--timeout-seconds`.
    pub(crate) async fn wait<T>(
        &self,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Response<T>, CliError> {
        let answer = tokio::time::timeout(self.timeout(), answer).await.map_err(|_| self.late())?;
        answer.map_err(|status| match Refusal::of(&status) {
            // The transport and the server also end a call when its deadline passes; the message is
            // then the same.
            refusal if refusal.code == Code::DeadlineExceeded => self.late(),
            refusal => refusal.into(),
        })
    }

    /// Returns the command-line options with which the next command reaches the same server.
    /// Options that equal the default or an environment variable are left out.
    pub(crate) fn options(&self) -> String {
        let variable = |name: &str| std::env::var(name).ok();
        let unless_set = variable(SERVER_VARIABLE).filter(|url| !url.is_empty());
        let server = (self.server != unless_set.as_deref().unwrap_or(DEFAULT_SERVER))
            .then(|| format!(" --server {}", self.server));
        let file = |option: &str, name: &str, path: &Option<PathBuf>| {
            let path = path.as_ref()?.display().to_string();
            (variable(name).as_ref() != Some(&path)).then(|| format!(" --{option} {path}"))
        };
        let options = [
            server,
            file("ca", "LEASEHOLD_CA", &self.ca),
            file("cert", "LEASEHOLD_CERT", &self.cert),
            file("key", "LEASEHOLD_KEY", &self.key),
        ];
        options.into_iter().flatten().collect()
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    fn late(&self) -> CliError {
        Refusal::late(self.timeout()).into()
    }

    /// Returns the server's address as it was typed, with a scheme if it had none.
    pub(crate) fn url(&self) -> String {
        match (self.server.contains("://"), &self.ca) {
            (true, _) => self.server.clone(),
            (false, Some(_)) => format!("https://{}", self.server),
            (false, None) => format!("http://{}", self.server),
        }
    }

    /// Returns the checked endpoint of the server. Plaintext to another machine is allowed: the
    /// server has a setting that forbids it.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, CliError> {
        let url = self.url();
        let tls = match (&self.ca, &self.cert, &self.key) {
            (_, Some(_), None) => return usage("a certificate needs its private key: name it in --key"),
            (_, None, Some(_)) => return usage("a private key needs its certificate: name it in --cert"),
            (None, None, None) => None,
            // The address is checked first, so that a wrong address is reported before the missing
            // certificate authority.
            (None, Some(_), Some(_)) => return Endpoint::new(&url, None).map_err(explain).and_then(|_| no_https()),
            (Some(ca), None, None) => Some(Tls::new(ca)),
            (Some(ca), Some(cert), Some(key)) => Some(Tls::new(ca).with_identity(cert, key)),
        };
        Endpoint::new(&url, tls.as_ref()).map_err(explain)
    }
}

fn usage<T>(message: &str) -> Result<T, CliError> {
    Err(CliError::Usage(message.to_owned()))
}

fn no_https<T>() -> Result<T, CliError> {
    usage("certificates need an encrypted connection: use https:// in --server")
}

/// Converts an error of the endpoint to a usage error that names the command line's options.
fn explain(error: EndpointError) -> CliError {
    CliError::Usage(match error {
        EndpointError::TlsWithoutHttps(_) => {
            "certificates need an encrypted connection: use https:// in --server".to_owned()
        }
        EndpointError::NoAuthority(_) => {
            "an https server needs a trusted certificate authority: name the PEM file of one in --ca".to_owned()
        }
        EndpointError::Unreadable { file, path, error } => {
            format!("cannot read `{}` for --{}: {error}", path.display(), option(file))
        }
        EndpointError::NotPem { file, path } => {
            format!("`{}` for --{} holds no {} in PEM", path.display(), option(file), file.content())
        }
        EndpointError::Unusable(cause) => format!("cannot use the certificates: {cause}"),
        error => error.to_string(),
    })
}

fn option(file: PemFile) -> &'static str {
    match file {
        PemFile::Ca => "ca",
        PemFile::Certificate => "cert",
        PemFile::Key => "key",
    }
}

/// Returns the text of the innermost error. The text of the outer errors is only "transport error".
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(server: &str) -> Connection {
        Connection { server: server.to_owned(), ca: None, cert: None, key: None, timeout_seconds: 10 }
    }

    fn usage(connection: &Connection) -> String {
        match connection.endpoint().unwrap_err() {
            CliError::Usage(message) => message,
            other => unreachable!("{other}"),
        }
    }

    #[test]
    fn a_bare_address_gets_the_scheme_that_fits() {
        assert_eq!(to("127.0.0.1:7171").url(), "http://127.0.0.1:7171");
        assert_eq!(Connection { ca: Some("ca.pem".into()), ..to("host:1") }.url(), "https://host:1");
    }

    #[test]
    fn an_incomplete_tls_setup_is_refused_and_never_downgraded() {
        let file = || Some(PathBuf::from("/nowhere.pem"));
        assert!(usage(&Connection { ca: file(), ..to("http://host:1") }).contains("https://"));
        assert!(usage(&Connection { cert: file(), key: file(), ..to("http://host:1") }).contains("https://"));
        assert!(usage(&to("https://host:1")).contains("--ca"));
        assert!(usage(&Connection { cert: file(), key: file(), ..to("https://host:1") }).contains("--ca"));
        assert!(usage(&Connection { ca: file(), cert: file(), ..to("https://host:1") }).contains("--key"));
        assert!(usage(&Connection { ca: file(), key: file(), ..to("https://host:1") }).contains("--cert"));
        assert!(usage(&Connection { ca: file(), ..to("https://host:1") }).contains("`/nowhere.pem`"));
    }

    #[test]
    fn a_malformed_address_says_what_to_type() {
        assert!(usage(&to("http://")).contains("http://HOST:PORT"));
        assert!(usage(&to("not a host")).contains("`http://not a host`"));
        assert!(usage(&to("http://host:1/foo")).contains("http://HOST:PORT"));
        assert!(usage(&to("HTTPS://host:1")).contains("--ca"));
    }

    #[test]
    fn the_next_command_repeats_what_is_not_the_default() {
        assert_eq!(to(DEFAULT_SERVER).options(), "");
        let connection = Connection { ca: Some("ca.pem".into()), ..to("https://host:1") };
        assert_eq!(connection.options(), " --server https://host:1 --ca ca.pem");
    }
}
