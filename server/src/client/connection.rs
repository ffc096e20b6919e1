//! How the client reaches a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status, TimeoutExpired};

use super::error::{ClientError, Refusal};

const HEADING: &str = "Connection";
const DEFAULT_SERVER: &str = "http://127.0.0.1:7171";
const SERVER_VARIABLE: &str = "LEASEHOLD_SERVER";

/// Which server to talk to, and as whom.
#[derive(Clone, Debug, clap::Args)]
pub struct Connection {
    /// The server to ask; with https, name its certificate authority in --ca
    #[arg(long, help_heading = HEADING, value_name = "URL",
          env = SERVER_VARIABLE, hide_env_values = true, default_value = DEFAULT_SERVER)]
    server: String,

    /// The certificate authority to trust, as PEM
    #[arg(long, help_heading = HEADING, value_name = "FILE",
          env = "LEASEHOLD_CA", hide_env_values = true)]
    pub(super) ca: Option<PathBuf>,

    /// The certificate that says who you are, as PEM
    #[arg(long, help_heading = HEADING, value_name = "FILE",
          env = "LEASEHOLD_CERT", hide_env_values = true)]
    pub(super) cert: Option<PathBuf>,

    /// The private key of --cert, as PEM
    #[arg(long, help_heading = HEADING, value_name = "FILE",
          env = "LEASEHOLD_KEY", hide_env_values = true)]
    pub(super) key: Option<PathBuf>,

    /// How long to wait for a connection, and then for each answer
    #[arg(long, help_heading = HEADING, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout_seconds: u64,
}

impl Connection {
    /// Connects now, so that an absent server is told apart from one that refuses.
    pub(super) async fn open(&self) -> Result<Channel, ClientError> {
        let endpoint = self.endpoint()?;
        let connected = tokio::time::timeout(self.timeout(), endpoint.connect()).await.map_err(|_| self.late())?;
        connected.map_err(|error| ClientError::Unreachable {
            server: self.url(),
            cause: root_cause(&error),
            hint: "start one with `leasehold serve`, or name yours with --server".to_owned(),
        })
    }

    /// A request that tells the server how long the answer is waited for.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout());
        request
    }

    /// Waits for an answer, but not longer than was asked for.
    pub(super) async fn wait<T>(
        &self,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Response<T>, ClientError> {
        match tokio::time::timeout(self.timeout(), answer).await {
            Ok(Err(status)) if ran_out(&status) => Err(self.late()),
            Ok(answer) => answer.map_err(ClientError::from),
            Err(_) => Err(self.late()),
        }
    }

    /// The options that reach the same server again, to go into a command to type next.
    pub(super) fn options(&self) -> String {
        let variable = |name: &str| std::env::var(name).ok();
        let unless_told = variable(SERVER_VARIABLE).filter(|url| !url.is_empty());
        let server = (self.server != unless_told.as_deref().unwrap_or(DEFAULT_SERVER))
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

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    fn late(&self) -> ClientError {
        let message = format!("no answer within {} s", self.timeout_seconds);
        ClientError::from(Refusal { message, ..Refusal::new(Code::DeadlineExceeded) })
    }

    pub(super) fn url(&self) -> String {
        match (self.server.contains("://"), &self.ca) {
            (true, _) => self.server.clone(),
            (false, Some(_)) => format!("https://{}", self.server),
            (false, None) => format!("http://{}", self.server),
        }
    }

    fn endpoint(&self) -> Result<Endpoint, ClientError> {
        let url = self.url();
        let not_an_address =
            || ClientError::Usage(format!("`{url}` is no server address: use http://HOST:PORT or https://HOST:PORT"));
        let endpoint = Endpoint::from_shared(url.clone()).map_err(|_| not_an_address())?;
        if !is_server_address(endpoint.uri()) {
            return Err(not_an_address());
        }
        let tls = self.tls(endpoint.uri().scheme() == Some(&Scheme::HTTPS))?;
        let endpoint = endpoint
            .user_agent(concat!("leasehold/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| ClientError::Usage(root_cause(&error)))?;
        match tls {
            None => Ok(endpoint),
            Some(tls) => endpoint
                .tls_config(tls)
                .map_err(|error| ClientError::Usage(format!("cannot use the certificates: {}", root_cause(&error)))),
        }
    }

    fn tls(&self, https: bool) -> Result<Option<ClientTlsConfig>, ClientError> {
        let usage = |message: &str| Err(ClientError::Usage(message.to_owned()));
        match (https, &self.ca, &self.cert, &self.key) {
            (false, None, None, None) => Ok(None),
            (false, ..) => usage("certificates need an encrypted connection: use https:// in --server"),
            (true, None, ..) => {
                usage("nobody vouches for an https server: name the PEM file of its certificate authority in --ca")
            }
            (true, _, Some(_), None) => usage("a certificate needs its private key: name it in --key"),
            (true, _, None, Some(_)) => usage("a private key needs its certificate: name it in --cert"),
            (true, Some(ca), None, None) => Ok(Some(trusting(ca)?)),
            (true, Some(ca), Some(cert), Some(key)) => Ok(Some(trusting(ca)?.identity(identity(cert, key)?))),
        }
    }
}

/// A scheme that is spoken, a host, perhaps a port, and no more.
fn is_server_address(uri: &Uri) -> bool {
    let spoken = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme());
    let bare = uri.path_and_query().is_none_or(|path| path == "/");
    spoken && bare && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
}

fn trusting(ca: &Path) -> Result<ClientTlsConfig, ClientError> {
    let pem = read_certificates("ca", ca)?;
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
}

fn identity(cert: &Path, key: &Path) -> Result<Identity, ClientError> {
    let (certificate, pem) = (read_certificates("cert", cert)?, read("key", key)?);
    match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(_) => Ok(Identity::from_pem(certificate, pem)),
        Err(_) => Err(ClientError::Usage(format!("`{}` for --key holds no private key in PEM", key.display()))),
    }
}

/// Certificates that cannot be read are otherwise left out in silence, and nothing is trusted.
fn read_certificates(option: &str, path: &Path) -> Result<Vec<u8>, ClientError> {
    let pem = read(option, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let readable = RootCertStore::empty().add_parsable_certificates(certificates.unwrap_or_default()).0;
    if readable == 0 {
        return Err(ClientError::Usage(format!("`{}` for --{option} holds no certificate in PEM", path.display())));
    }
    Ok(pem)
}

fn read(option: &str, path: &Path) -> Result<Vec<u8>, ClientError> {
    let unreadable = |error| ClientError::Usage(format!("cannot read `{}` for --{option}: {error}", path.display()));
    std::fs::read(path).map_err(unreadable)
}

/// Whether the transport gave up because of the request's own timeout; a broken connection looks the same but for this.
fn ran_out(status: &Status) -> bool {
    let source = std::error::Error::source(status);
    std::iter::successors(source, |error| error.source()).any(|error| error.is::<TimeoutExpired>())
}

/// The last in a chain of errors is the one that says something.
pub(super) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
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
            ClientError::Usage(message) => message,
            other => unreachable!("{other}"),
        }
    }

    #[test]
    fn a_bare_address_gets_the_scheme_that_fits() {
        assert_eq!(to("127.0.0.1:7171").url(), "http://127.0.0.1:7171");
        assert_eq!(Connection { ca: Some("ca.pem".into()), ..to("host:1") }.url(), "https://host:1");
    }

    #[test]
    fn half_a_tls_set_up_is_refused_and_never_downgraded() {
        let file = || Some(PathBuf::from("/nowhere.pem"));
        assert!(usage(&Connection { ca: file(), ..to("http://host:1") }).contains("https://"));
        assert!(usage(&to("https://host:1")).contains("--ca"));
        assert!(usage(&Connection { ca: file(), cert: file(), ..to("https://host:1") }).contains("--key"));
        assert!(usage(&Connection { ca: file(), key: file(), ..to("https://host:1") }).contains("--cert"));
        assert!(usage(&Connection { ca: file(), ..to("https://host:1") }).contains("`/nowhere.pem`"));
    }

    #[test]
    fn nonsense_is_no_address() {
        assert!(usage(&to("http://")).contains("http://HOST:PORT"));
        assert!(usage(&to("not a host")).contains("`http://not a host`"));
        for url in ["ftp://host:1", "http://host:1/foo", "http://host:1/?a=b", "http://me@host:1", "host:1/foo", "/foo"]
        {
            assert!(usage(&to(url)).contains("http://HOST:PORT"), "{url}");
        }
        for url in ["http://host:1/", "HTTP://host:1", "host", "http://[::1]:1"] {
            assert!(to(url).endpoint().is_ok(), "{url}");
        }
        assert!(usage(&to("HTTPS://host:1")).contains("--ca"));
    }

    #[test]
    fn the_next_command_repeats_what_is_not_the_default() {
        assert_eq!(to(DEFAULT_SERVER).options(), "");
        let connection = Connection { ca: Some("ca.pem".into()), ..to("https://host:1") };
        assert_eq!(connection.options(), " --server https://host:1 --ca ca.pem");
    }
}
