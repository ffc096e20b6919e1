//! The reload of the configuration, which SIGHUP requests. If the new configuration has a problem,
//! all of it is refused, and the former configuration stays in force.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use super::ServeError;
use super::relays::{self, Relays};
use super::storage::StoreStart;
use super::supervisor::Supervisor;
use super::{checks, storage};
use crate::active_config::CurrentConfig;
use crate::audit::AuditSink;
use crate::config::{Config, ConfigChange, SettingNames};
use crate::grpc::Services;
use crate::logging;
use crate::metrics::Reload;
use crate::reloads::{RefusedConfig, ReloadOutcome};
use crate::store::{Backend, Creation, EmbeddedStore, PostgresStore};
use crate::traces::Traces;
use crate::transport::Certificates;

/// Reads the configuration again: the file, the flags and the environment, as at the start.
pub type ReadConfig = Arc<dyn Fn() -> Result<Config, ServeError> + Send + Sync>;

/// The parts of a running server that a reload reads and changes.
pub(super) struct Reloader {
    pub(super) read: ReadConfig,
    pub(super) current: Arc<CurrentConfig>,
    pub(super) store: Arc<dyn Backend>,
    pub(super) services: Arc<Services>,
    pub(super) certificates: Option<Arc<Certificates>>,
    pub(super) relays: Arc<Relays>,
    pub(super) supervisor: Supervisor,
    pub(super) start: StoreStart,
}

impl Reloader {
    /// Reloads the configuration whenever `signals` is notified, or a call asks for it. Several
    /// requests at the same time cause one reload. Never returns.
    pub(super) async fn run(self, signals: Arc<Notify>) {
        loop {
            tokio::select! { () = signals.notified() => {}, () = self.services.reloads.requested() => {} }
            let waiting = self.services.reloads.take();
            self.supervisor.reloading();
            let outcome = self.reload().await;
            self.services.metrics.reloaded(if outcome.is_ok() { Reload::Applied } else { Reload::Refused });
            self.supervisor.ready();
            // An error means that the caller is gone.
            waiting.into_iter().for_each(|caller| _ = caller.send(outcome.clone()));
        }
    }

    async fn reload(&self) -> ReloadOutcome {
        let outcome = self.try_reload().await.map_err(|error| RefusedConfig(error.to_string()));
        match &outcome {
            Ok(change) => report(change),
            Err(refused) => tracing::error!("{refused}"),
        }
        outcome
    }

    /// Checks all of the new configuration, then puts it in force.
    ///
    /// # Errors
    /// The configuration, a certificate, the log's filter or a bucket type has a problem. The
    /// server then keeps all its settings.
    async fn try_reload(&self) -> Result<ConfigChange, ServeError> {
        let (read, certificates, start) = (self.read.clone(), self.certificates.clone(), self.start);
        let current = self.current.load();
        // The files are read on a blocking thread, so that a file system that hangs delays no call.
        let checked = spawn_blocking(move || {
            let new = read()?;
            let as_read = new.clone();
            let (config, change) = current.config.reloaded(new)?;
            check_next_start(&as_read, &change.kept_until_restart, start)?;
            let filter = logging::check_filter(&config.log.filter)?;
            if change.changed.has_any_of("relays") {
                relays::check(&config.relays)?;
            }
            let files = match (&certificates, &config.tls) {
                (Some(_), Some(tls)) => Some(Certificates::read(tls)?),
                _ => None,
            };
            Ok::<_, ServeError>((config, change, filter, files))
        });
        let (config, change, filter, files) = checked.await.map_err(std::io::Error::other)??;
        // Only these two tables are checked against the store. So during an outage of the database,
        // a reload of other settings succeeds.
        if ["cells", "bucket_types"].iter().any(|table| change.changed.has_any_of(table)) {
            let warnings = checks::warnings(&config, &*self.store).await?;
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        self.services.set_limits(&config);
        self.services.committer().set_capacity(storage::capacity(&config));
        self.current.replace(config);
        // The certificates must change after the configuration. Their change makes each connection
        // check its client's certificate again.
        if let (Some(certificates), Some(files)) = (&self.certificates, files) {
            certificates.replace(files);
        }
        logging::set_filter(filter);
        self.services.audit.follow_filter();
        self.relays.follow(&self.current.load().config).await;
        Ok(change)
    }
}

/// Checks the settings that take effect with the next start, which must not fail then.
fn check_next_start(new: &Config, changed: &SettingNames, start: StoreStart) -> Result<(), ServeError> {
    if let (true, Some(tls)) = (changed.has_any_of("tls"), &new.tls) {
        Certificates::read(tls)?;
    }
    if changed.has_any_of("audit") {
        AuditSink::check(&new.audit)?;
    }
    if let (true, Some(traces)) = (changed.has_any_of("traces"), &new.traces) {
        Traces::check(traces)?;
    }
    match &new.postgres {
        Some(postgres) if changed.has_any_of("postgres") => PostgresStore::check_settings(postgres)?,
        None if changed.has_any_of("data") && start.creation == Creation::Refused => {
            EmbeddedStore::check(&new.data_dir()?)?;
        }
        _ => {}
    }
    Ok(())
}

fn report(change: &ConfigChange) {
    let ConfigChange { changed, kept_until_restart } = change;
    if changed.is_empty() {
        tracing::info!("the configuration is reloaded, no setting has changed");
    } else {
        tracing::info!("the configuration is reloaded, changed: {changed}");
    }
    if !kept_until_restart.is_empty() {
        tracing::warn!(
            "restart the server to change {kept_until_restart}: what was set before stays in force until then"
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Checks a change from a development configuration to one with this text.
    fn check(text: &str, creation: Creation) -> Result<(), String> {
        let current = Config::development();
        let new = Config { cells: current.cells.clone(), ..toml::from_str(text).unwrap() };
        let (_, change) = current.reloaded(new.clone()).unwrap();
        let start = StoreStart { creation, is_restored: false };
        check_next_start(&new, &change.kept_until_restart, start).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_of_the_next_start_are_checked() {
        let postgres = "[postgres]\nurl = \"postgres://me@127.0.0.1/a\"\n";
        let traces = "[traces]\nendpoint = \"https://127.0.0.1:1\"\nca = \"/absent/ca\"\n";
        for (text, said) in [
            ("data = \"/absent/data\"\n", "there is no store in "),
            ("[audit]\nfile = \"/absent/audit\"\n", "the audit file "),
            (traces, "`traces.ca`: "),
            (&format!("{postgres}password_file = \"/absent/password\"\n"), "`postgres.password_file`"),
            (
                "[tls]\ncertificate = \"/absent/a\"\nkey = \"/absent/b\"\nclient_ca = \"/absent/c\"\n",
                "the certificate ",
            ),
        ] {
            let error = check(text, Creation::Refused).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert_eq!(check("data = \"/absent/data\"\n", Creation::Allowed), Ok(()));
        assert_eq!(check(postgres, Creation::Refused), Ok(()));
        assert_eq!(check("metrics_listen = \"127.0.0.1:1\"\n", Creation::Refused), Ok(()));
    }
}
