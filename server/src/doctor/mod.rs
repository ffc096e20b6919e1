//! `leasehold doctor`: checks everything that a server needs to start, and reports problems with
//! advice.
//!
//! A failed check does not stop the other checks. Only an invalid configuration does, because the
//! other checks need it.

mod certificates;

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use leasehold_core::unicode_version::{UNICODE_VERSION, UnicodeVersion};

use crate::audit::AuditSink;
use crate::config::{Config, EtcdConfig, PostgresConfig, RelayConfig};
use crate::descriptors;
use crate::serve::ServeError;
use crate::store::{
    Backend, Creation, DeepCheck, EmbeddedStore, Examined, FormCheck, FormScan, OrderedStore, OutboxDatabase,
    PostgresStore, StoreError,
};
use crate::traces::Traces;

/// The tolerated difference between two clocks.
const TOLERATED: Duration = Duration::from_secs(5);

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The check passed.
    Ok,
    /// A server works, but something should be changed.
    Warn,
    /// A server can't start, or its clients can't call it.
    Fail,
}

/// Shows the state in four characters.
impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The checked part, such as `store`.
    pub check: &'static str,
    /// The result of the check.
    pub state: CheckResult,
    /// The facts, and what to do if the check did not pass.
    pub text: String,
}

impl Finding {
    fn new(check: &'static str, state: CheckResult, text: impl Into<String>) -> Self {
        Self { check, state, text: text.into() }
    }

    /// Returns the finding of a failure, whose text has the error's advice.
    fn failed(check: &'static str, error: &ServeError) -> Self {
        let hint = error.hint().map(|hint| format!(": {hint}")).unwrap_or_default();
        Self::new(check, CheckResult::Fail, format!("{error}{hint}"))
    }
}

/// Shows the finding as a line of text.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, state, text } = self;
        write!(f, "{state:<4}  {check:<13}  {text}")
    }
}

/// Checks a server of this configuration. `shown` is the configuration file, as text for people. If
/// `is_deep`, reads every row of an embedded store, or every claim of a database.
pub async fn examine(config: Result<Config, ServeError>, shown: &str, is_deep: bool) -> Vec<Finding> {
    let config = match config.and_then(readable) {
        Ok(config) => config,
        Err(error) => return vec![Finding::failed("configuration", &error)],
    };
    let mut findings = vec![Finding::new("configuration", CheckResult::Ok, format!("{shown}: {}", cells(&config)))];
    findings.extend(certificates::findings(&config));
    findings.extend(match (&config.postgres, &config.etcd) {
        (Some(postgres), _) => database(postgres, is_deep).await,
        (None, Some(settings)) => vec![etcd(settings).await],
        (None, None) => directory(&config, is_deep).await,
    });
    for relay in &config.relays {
        findings.push(self::relay(relay).await);
    }
    findings.push(open_files(&config));
    findings
}

/// Returns the configuration if a start could read the files that it names, except those that the
/// other checks read.
fn readable(config: Config) -> Result<Config, ServeError> {
    config.traces.as_ref().map(Traces::check).transpose()?;
    AuditSink::check(&config.audit)?;
    Ok(config)
}

fn cells(config: &Config) -> String {
    let count = config.cells.len();
    format!("{count} cell{}, listens on {}", if count == 1 { "" } else { "s" }, config.listen)
}

/// Checks the data directory, and this machine's clock against the last write in it.
async fn directory(config: &Config, is_deep: bool) -> Vec<Finding> {
    let data = match config.data_dir() {
        Ok(data) => data,
        Err(error) => return vec![Finding::failed("store", &error.into())],
    };
    let mut findings = Vec::from_iter(clock_of_writes(&data));
    findings.extend(embedded(&data, is_deep).await);
    findings
}

async fn embedded(data: &Path, is_deep: bool) -> Vec<Finding> {
    let opened = async {
        let store = EmbeddedStore::open(data, Creation::Refused)?;
        let identity = store.identity();
        let forms = match identity.unicode < UNICODE_VERSION {
            true => Some(FormScan::check_all(&store).await?),
            false => None,
        };
        let deep = is_deep.then(|| store.check_deeply(|rows| eprintln!("{rows} rows read"))).transpose()?;
        // The count fails at a damaged block, which the deep check names.
        Ok((identity, Backend::contents(&store).await, forms, deep))
    };
    match opened.await {
        Ok((identity, contents, forms, deep)) => {
            let store = match contents {
                Ok(contents) => {
                    let text = format!("`{}`: {} ({contents})", data.display(), identity.id);
                    Finding::new("store", CheckResult::Ok, text)
                }
                Err(error) => Finding::failed("store", &error.into()),
            };
            let unicode = unicode(identity.unicode, forms.as_ref());
            [store, unicode].into_iter().chain(deep.as_ref().map(rows)).collect()
        }
        Err(StoreError::InUse(_)) => {
            let text = format!("`{}` is in use by a running server, whose banner has its contents", data.display());
            let unread = "no row was read, because a running server uses the store: stop it first, or check a copy";
            let rows = is_deep.then(|| Finding::new("rows", CheckResult::Warn, unread));
            [Finding::new("store", CheckResult::Ok, text)].into_iter().chain(rows).collect()
        }
        Err(error) => vec![Finding::failed("store", &error.into())],
    }
}

/// Reports a read of every row of a store.
fn rows(check: &DeepCheck) -> Finding {
    let DeepCheck { rows, faults, .. } = check;
    if faults.is_empty() {
        return Finding::new("rows", CheckResult::Ok, format!("all {rows} rows can be read"));
    }
    let text = format!(
        "{}: make a new store by `leasehold export` and `leasehold import`; if the export stops, add `--salvage`",
        faults.join(", ")
    );
    Finding::new("rows", CheckResult::Fail, text)
}

/// Compares the version of Unicode of a store's canonical forms with the program's. `forms` is the
/// check of all names if the program's version is newer.
fn unicode(found: UnicodeVersion, forms: Option<&FormCheck>) -> Finding {
    match forms {
        None if found > UNICODE_VERSION => {
            let text = format!(
                "the canonical forms are of version {found}, and this program has {UNICODE_VERSION}: use a newer version of \
                 the program"
            );
            Finding::new("unicode", CheckResult::Warn, text)
        }
        None => Finding::new("unicode", CheckResult::Ok, format!("the canonical forms are of version {found}")),
        Some(check) if check.passes() => {
            let text = format!("the canonical forms of version {found} are those of {UNICODE_VERSION}: {check}");
            Finding::new("unicode", CheckResult::Ok, text)
        }
        Some(check) => {
            let text = format!(
                "the canonical forms of version {found} are not all those of {UNICODE_VERSION}: {check}; use the former version \
                 of the program, and have the cells give these names up"
            );
            Finding::new("unicode", CheckResult::Warn, text)
        }
    }
}

/// Compares this machine's clock with the time of the last acknowledged write, if there is a store.
/// If the clock is behind that time, new leases would get times in the past.
fn clock_of_writes(data: &Path) -> Option<Finding> {
    let written = std::fs::metadata(data.join(EmbeddedStore::WRITTEN)).and_then(|file| file.modified()).ok()?;
    let ahead = written.duration_since(SystemTime::now()).ok();
    Some(match ahead.filter(|ahead| *ahead > TOLERATED) {
        Some(ahead) => {
            let seconds = ahead.as_secs();
            let text = format!(
                "this machine's clock is {seconds} s behind the last write of the store: synchronise it by NTP"
            );
            Finding::new("clock", CheckResult::Fail, text)
        }
        None => {
            Finding::new("clock", CheckResult::Ok, "this machine's clock is not behind the last write of the store")
        }
    })
}

/// Checks the database, and this machine's clock against the database's.
async fn database(settings: &PostgresConfig, is_deep: bool) -> Vec<Finding> {
    match PostgresStore::examine(settings, is_deep).await {
        Err(error) => vec![Finding::failed("store", &error.into())],
        Ok(examined) => {
            let mut findings = vec![clock_of_database(&examined), tables(settings, &examined)];
            let forms = |found| examined.forms.as_ref().filter(|_| found < UNICODE_VERSION);
            findings.extend(examined.store.map(|(identity, _)| unicode(identity.unicode, forms(identity.unicode))));
            findings.extend(is_deep.then(|| claims(examined.forms.as_ref())));
            findings.extend(examined.durable_write.map(durable_write));
            findings.extend(examined.warnings.iter().map(|text| Finding::new("database", CheckResult::Warn, text)));
            findings
        }
    }
}

/// Checks a cluster of etcd as a start does, and counts the rows of its store.
async fn etcd(settings: &EtcdConfig) -> Finding {
    let opened = async {
        let store = OrderedStore::on_etcd(settings, Creation::Refused).await?;
        Ok((store.identity(), store.contents().await?))
    };
    match opened.await {
        Ok((identity, contents)) => {
            let text = format!("`{}`: {} ({contents})", settings.shown_url(), identity.id);
            Finding::new("store", CheckResult::Ok, text)
        }
        Err(error) => Finding::failed("store", &ServeError::Store(error)),
    }
}

/// Reports a check of every claim of a database; `None` if its tables are older than this program.
fn claims(read: Option<&FormCheck>) -> Finding {
    let (state, text) = match read {
        None => {
            (CheckResult::Warn, "no row was read, because the tables are of another version: migrate them".to_owned())
        }
        Some(FormCheck { checked, damaged, .. }) if *damaged > 0 => {
            let text = format!("{damaged} claims can't be read, {checked} can: restore the database from a backup");
            (CheckResult::Fail, text)
        }
        Some(check) if !check.passes() => {
            let text = format!(
                "all {} claims can be read, but not all have a configured bucket type and its canonical form: {check}; \
                 configure the bucket types, or have the cells give these names up",
                check.checked
            );
            (CheckResult::Warn, text)
        }
        Some(FormCheck { checked, .. }) => (
            CheckResult::Ok,
            format!("all {checked} claims can be read and have the canonical form of their bucket type"),
        ),
    };
    Finding::new("rows", state, text)
}

/// Reports a durable write. A server that got none in time would not start.
fn durable_write(written: Result<Duration, StoreError>) -> Finding {
    match written {
        Ok(time) => {
            let text = format!("acknowledged after {:.1} ms", time.as_secs_f64() * 1_000.0);
            Finding::new("durable write", CheckResult::Ok, text)
        }
        Err(error) => Finding::failed("durable write", &error.into()),
    }
}

fn clock_of_database(examined: &Examined) -> Finding {
    let ahead = examined.clock_ahead_micros;
    let tenths = ahead.unsigned_abs() / 100_000;
    let seconds = format!("{}.{} s", tenths / 10, tenths % 10);
    if ahead.unsigned_abs() <= TOLERATED.as_micros() {
        return Finding::new("clock", CheckResult::Ok, format!("differs from the database's by {seconds}"));
    }
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    let text = format!("this machine's clock is {seconds} {side} the database's: synchronise both by NTP");
    Finding::new("clock", CheckResult::Warn, text)
}

fn tables(settings: &PostgresConfig, examined: &Examined) -> Finding {
    let database = settings.shown_url();
    match examined.store {
        Some((identity, contents)) => {
            Finding::new("store", CheckResult::Ok, format!("`{database}`: {} ({contents})", identity.id))
        }
        None => {
            let Examined { version, known, .. } = examined;
            let text = format!(
                "`{database}` has tables of version {version}, which the next start migrates to {known}: take a backup first"
            );
            Finding::new("store", CheckResult::Warn, text)
        }
    }
}

/// Checks that the outbox of a relay can be called, and that it has set no requests aside.
async fn relay(settings: &RelayConfig) -> Finding {
    let (name, database) = (&settings.name, settings.database().shown_url());
    let outbox = match OutboxDatabase::parse(&settings.database()) {
        Ok(outbox) => outbox,
        Err(problem) => {
            let text = format!("`{name}`: the database `{database}` {problem}");
            return Finding::new("relay", CheckResult::Fail, text);
        }
    };
    let read = async {
        let mut connection = outbox.connect().await.map_err(|error| error.to_string())?;
        connection.refusals().await.map_err(|error| error.to_string())
    };
    match read.await {
        Ok(0) => Finding::new("relay", CheckResult::Ok, format!("`{name}`: the outbox in `{database}` can be called")),
        Ok(refused) => {
            let text = format!(
                "`{name}`: the outbox in `{database}` has set {refused} refused requests aside: see its table \
                 `leasehold_outbox_refused`"
            );
            Finding::new("relay", CheckResult::Warn, text)
        }
        // A server starts without the database of a relay, and tries again.
        Err(problem) => Finding::new("relay", CheckResult::Warn, format!("`{name}`: `{database}`: {problem}")),
    }
}

/// Checks that the limit of open files allows the configured connections.
fn open_files(config: &Config) -> Finding {
    let (connections, limit) = descriptors::max_connections(config);
    match limit {
        None => Finding::new("open files", CheckResult::Ok, format!("allow the {connections} `limits.connections`")),
        Some(limit) => {
            let text = format!(
                "the limit of {limit} allows {connections} connections only: raise it (`ulimit -n`, `LimitNOFILE`), or lower \
                 `limits.connections`"
            );
            Finding::new("open files", CheckResult::Warn, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::bucket::BucketType;

    use super::*;

    #[test]
    fn a_finding_is_a_line() {
        let finding = Finding::new("store", CheckResult::Ok, "there");
        assert_eq!(finding.to_string(), "ok    store          there");
        assert_eq!(Finding { state: CheckResult::Warn, ..finding }.to_string(), "warn  store          there");
    }

    #[test]
    fn the_version_of_unicode_is_compared() {
        let (older, newer) = (UnicodeVersion { major: 17, minor: 0 }, UnicodeVersion { major: 99, minor: 0 });
        let differing = FormCheck { checked: 3, differing: [(BucketType(4), 1)].into(), damaged: 0 };
        for (found, forms, state, words) in [
            (UNICODE_VERSION, None, CheckResult::Ok, "the canonical forms are of version 18.0"),
            (newer, None, CheckResult::Warn, "are of version 99.0, and this program has 18.0"),
            (older, Some(FormCheck::default()), CheckResult::Ok, "version 17.0 are those of 18.0: 0 of 0 names differ"),
            (
                older,
                Some(differing),
                CheckResult::Warn,
                "not all those of 18.0: 1 of 3 names differ (bucket type 4: 1)",
            ),
        ] {
            let finding = unicode(found, forms.as_ref());
            assert_eq!(finding.state, state, "{finding}");
            assert!(finding.text.contains(words), "{finding}");
        }
    }

    #[test]
    fn a_deep_check_says_what_it_has_read() {
        let read = |damaged, differing: &[(BucketType, u64)]| {
            Some(FormCheck { checked: 7, damaged, differing: differing.iter().copied().collect() })
        };
        let unknown = [(BucketType(77), 1)];
        for (read, state, words) in [
            (None, CheckResult::Warn, "no row was read, because"),
            (read(0, &[]), CheckResult::Ok, "all 7 claims can be read and have the canonical form"),
            (
                read(0, &unknown),
                CheckResult::Warn,
                "all 7 claims can be read, but not all have a configured bucket type",
            ),
            (read(2, &unknown), CheckResult::Fail, "2 claims can't be read, 7 can"),
        ] {
            let finding = claims(read.as_ref());
            assert!(finding.state == state && finding.text.starts_with(words), "{finding}");
        }
    }

    #[test]
    fn a_difference_of_clocks_is_shown_in_seconds() {
        let finding = |clock_ahead_micros| {
            clock_of_database(&Examined {
                store: None,
                forms: None,
                version: 1,
                known: 1,
                clock_ahead_micros,
                durable_write: None,
                warnings: Vec::new(),
            })
        };
        assert_eq!(
            (finding(-120_000).state, &*finding(-120_000).text),
            (CheckResult::Ok, "differs from the database's by 0.1 s")
        );
        assert_eq!(finding(7_200_000_000).state, CheckResult::Warn);
        assert!(finding(7_200_000_000).text.contains("7200.0 s ahead of the database's"));
        assert!(finding(-6_000_000).text.contains("6.0 s behind the database's"));
    }
}
