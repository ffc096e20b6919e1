//! How the database is reached: the URL, and TLS that never quietly becomes plain text.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Connect;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{CancelToken, Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{failed, text};
use crate::config::{PostgresConfig, foreign_scheme};
use crate::store::{StoreError, Trouble};

/// A checked way to the database.
#[derive(Clone)]
pub(super) struct Way {
    // Only to where it can be written: what a standby shows is old.
    pub(super) config: Config,
    // To wherever the URL leads, where that is one host: what is the matter with that can be told in full.
    first: Config,
    tls: MakeRustlsConnect,
    // How long all hosts together may take.
    timeout: Duration,
}

impl Way {
    /// Reads the settings.
    ///
    /// # Errors
    /// The URL or a certificate can't be used, or plain text would leave this machine unasked.
    pub(super) fn parse(settings: &PostgresConfig) -> Result<Self, Trouble> {
        let mut config = parse(&settings.url).map_err(Trouble::Settings)?;
        let mode = ssl_mode(config.get_ssl_mode(), settings.ca.is_some(), is_local(&config));
        let timeout = Duration::from_secs(settings.connect_timeout_seconds);
        config
            .ssl_mode(mode.map_err(Trouble::Settings)?)
            .connect_timeout(timeout)
            .tcp_user_timeout(Duration::from_secs(settings.statement_timeout_seconds))
            .application_name("leasehold");
        let tls = MakeRustlsConnect::new(client_config(settings).map_err(Trouble::Settings)?);
        // The client's own timeout is that of TCP alone.
        let hosts = u32::try_from(config.get_hosts().len().max(1)).unwrap_or(u32::MAX);
        let asked = config.clone();
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let first = if hosts == 1 { asked } else { config.clone() };
        Ok(Self { config, first, tls, timeout: timeout.saturating_mul(hosts) })
    }

    /// A connection of its own, driven by the runtime at hand.
    pub(super) async fn connect(&self) -> Result<Connection, StoreError> {
        let late = || StoreError::Away(self.no_answer());
        self.open(&self.config).await.map_or_else(|| Err(late()), |connection| connection.map_err(failed))
    }

    /// The first connection.
    ///
    /// # Errors
    /// The database can't be reached, or does not let us in.
    pub(super) async fn reach(&self) -> Result<Connection, Trouble> {
        let late = || Trouble::Unreachable(self.no_answer());
        let opened = self.open(&self.first).await.ok_or_else(late)?;
        opened.map_err(|error| match Trouble::from(error) {
            // At the door it is one right alone that lacks.
            Trouble::Refused(cause) => self.no_connect(cause),
            trouble => trouble,
        })
    }

    fn no_connect(&self, cause: String) -> Trouble {
        let role = self.config.get_user().unwrap_or("ROLE").to_owned();
        // As the database does where none is named.
        let name = self.config.get_dbname().unwrap_or(&role).to_owned();
        Trouble::NoConnect { role, name, cause }
    }

    fn no_answer(&self) -> String {
        format!("no answer within {} s", self.timeout.as_secs())
    }

    /// A connection; none where nothing is heard in time.
    async fn open(&self, config: &Config) -> Option<Result<Connection, Error>> {
        let opened = tokio::time::timeout(self.timeout, driven(config, &self.tls)).await.ok()?;
        Some(opened.map(|(client, driver)| Connection { client, driver }))
    }

    /// Has the database end a statement that nobody waits for any more, in the background, as far as that can be done.
    pub(super) fn cancel(&self, statement: CancelToken) {
        let (tls, timeout) = (self.tls.clone(), self.timeout);
        // Without one the process is about to end, and its connections with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { tokio::time::timeout(timeout, statement.cancel_query(tls)).await });
        }
    }
}

/// A connection, which ends when it is dropped, whatever the database still has to answer over it.
pub(super) struct Connection {
    client: Client,
    driver: JoinHandle<()>,
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Connections for the pool.
impl Connect for Way {
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let config = config.clone();
        async move { driven(&config, &self.tls).await }.boxed()
    }
}

/// Makes a connection, and says why it ends where it was not closed by us.
async fn driven(config: &Config, tls: &MakeRustlsConnect) -> Result<(Client, JoinHandle<()>), Error> {
    let (client, connection) = config.connect(tls.clone()).await?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(error = text(&error), "a connection to the database broke");
        }
    });
    Ok((client, driver))
}

const EXAMPLE: &str = "postgres://USER:PASSWORD@HOST:PORT/DATABASE";

/// Reads the URL, or the words `host=… dbname=…`.
pub(super) fn parse(url: &str) -> Result<Config, String> {
    if let Some(scheme) = foreign_scheme(url) {
        return Err(format!("`{scheme}://` is no PostgreSQL: write `{EXAMPLE}`"));
    }
    // Taken for the end of the password, it would make a host of the rest.
    if url.split_once("://").is_some_and(|(_, rest)| before_options(rest).matches('@').count() > 1) {
        return Err("there is more than one `@`: write `@` in a password as `%40`".into());
    }
    let config: Config = url.parse().map_err(|error: Error| understood(&text(&error)))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(format!("no host is named: write `{EXAMPLE}`"));
    }
    Ok(config)
}

fn before_options(url: &str) -> &str {
    url.split_once('?').map_or(url, |(address, _)| address)
}

/// What is wrong with a URL, and what to write.
fn understood(error: &str) -> String {
    if error.contains("`sslmode`") {
        "`sslmode` is `disable`, `prefer` or `require`; with `postgres.ca` every connection is encrypted, and \
         certificate and host are checked, as `verify-full` does elsewhere: leave it out"
            .into()
    } else if ["`sslrootcert`", "`sslcert`", "`sslkey`"].iter().any(|option| error.contains(option)) {
        format!("{error}: name the files in `postgres.ca`, `postgres.certificate` and `postgres.key`")
    } else {
        format!("{error}: write `{EXAMPLE}`")
    }
}

/// Encrypted wherever an authority is named; else plain, and then on this machine or as the URL says in so many words.
fn ssl_mode(asked: SslMode, has_authority: bool, is_local: bool) -> Result<SslMode, String> {
    match asked {
        SslMode::Disable if has_authority => {
            Err("`postgres.ca` asks for an encrypted connection, `sslmode=disable` for a plain one: leave one out"
                .into())
        }
        SslMode::Disable => Ok(SslMode::Disable),
        _ if has_authority => Ok(SslMode::Require),
        SslMode::Prefer if is_local => Ok(SslMode::Disable),
        _ => Err("name the authority of its certificate in `postgres.ca`, or add `sslmode=disable` if the network \
                  is trusted"
            .into()),
    }
}

fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
    })
}

fn client_config(settings: &PostgresConfig) -> Result<rustls::ClientConfig, String> {
    let unreadable = |path: &std::path::Path, error: &dyn std::fmt::Display| format!("`{}`: {error}", path.display());
    let mut roots = RootCertStore::empty();
    if let Some(path) = &settings.ca {
        let authorities = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(path, &error))?;
        for authority in authorities {
            let authority = authority.map_err(|error| unreadable(path, &error))?;
            roots.add(authority).map_err(|error| unreadable(path, &error))?;
        }
        if roots.is_empty() {
            return Err(unreadable(path, &"it holds no certificate"));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(roots);
    let (certificate, key) = match (&settings.certificate, &settings.key) {
        (None, None) => return Ok(builder.with_no_client_auth()),
        (Some(_), Some(_)) if settings.ca.is_none() => {
            return Err(
                "`postgres.certificate` is of use on an encrypted connection only: name `postgres.ca` too".into()
            );
        }
        (Some(certificate), Some(key)) => (certificate, key),
        _ => return Err("`postgres.certificate` and `postgres.key` belong together: one of them is missing".into()),
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unreadable(certificate, &error))?;
    let private_key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
    builder.with_client_auth_cert(chain, private_key).map_err(|error| unreadable(certificate, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_leaves_the_machine_only_when_told() {
        use SslMode::{Disable, Prefer, Require};
        for (asked, has_authority, is_local, expected) in [
            (Prefer, false, true, Some(Disable)),
            (Prefer, false, false, None),
            (Prefer, true, false, Some(Require)),
            (Prefer, true, true, Some(Require)),
            (Require, false, true, None),
            (Require, true, false, Some(Require)),
            (Disable, false, false, Some(Disable)),
            (Disable, true, true, None),
        ] {
            let mode = ssl_mode(asked, has_authority, is_local).ok();
            assert_eq!(mode, expected, "{asked:?} {has_authority} {is_local}");
        }
    }

    #[test]
    fn a_certificate_needs_its_key_and_an_authority() {
        let settings = |certificate: Option<&str>, key: Option<&str>| PostgresConfig {
            certificate: certificate.map(Into::into),
            key: key.map(Into::into),
            ..PostgresConfig::at("postgres://db")
        };
        assert!(client_config(&settings(None, None)).is_ok());
        for (certificate, key) in [(Some("cert.pem"), None), (None, Some("key.pem"))] {
            let refused = client_config(&settings(certificate, key)).err();
            assert!(refused.is_some_and(|text| text.contains("belong together")));
        }
        let refused = client_config(&settings(Some("cert.pem"), Some("key.pem"))).err();
        assert!(refused.is_some_and(|text| text.contains("`postgres.ca`")));
    }
}
