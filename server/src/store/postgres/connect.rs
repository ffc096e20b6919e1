//! Connections to the database. Checks the URL of the database, and never uses plain text instead
//! of TLS without the operator's consent.

use std::future::poll_fn;
use std::io::Read;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Error, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::epochs::{self, Accepted, Epochs, NotEntered};
use super::failure::{failed, failed_to_connect, text};
use super::hosts::{self, Answer, Refused, Timeline, Timelines};
use super::writer;
use crate::awake::Awake;
use crate::config::{PostgresConfig, foreign_scheme, open_file};
use crate::store::client_tls::ClientFiles;
use crate::store::error::StoreError;
use crate::store::preflight::Problem;
use crate::store::remedies::Remedy;

/// Asks a host that is the only one if it accepts writes.
const ASK: &str = "SHOW transaction_read_only";
/// Asks one of several hosts for its cluster and timeline too. The name of a file of its log begins with the timeline.
const ASK_TIMELINE: &str = "SELECT current_setting('transaction_read_only'), c.system_identifier,
    CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END
    FROM pg_control_system() c";
/// The time between two looks for a host that was promoted.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// The time without an answer after which the other hosts are asked again, and the cause is looked for.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// The text for a host that is left, because another one was promoted after it.
pub(super) const OVERTAKEN: &str =
    "the host that accepts writes is a former primary: another one was promoted after it, and is away";

/// The text for hosts that are two databases, as if a copy had been added to the URL.
const TWO_CLUSTERS: &str = "hosts of the URL are of two clusters of databases, which both accept writes and would give the same \
    names out: name those of one cluster";
/// The text for hosts that are all standbys.
const NO_PRIMARY: &str = "no host of the URL accepts writes: is one of them about to be promoted?";

/// Opens connections to the database with checked settings. Clones share what they have seen of the hosts.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    // The settings of a connection to each host of the URL.
    hosts: Arc<[Config]>,
    seen: Arc<Timelines>,
    tls: MakeRustlsConnect,
    // The password; `None` if it is in the URL, or none is needed.
    password: Option<PasswordFile>,
    // The longest time to open a connection to a host, with TLS and authentication.
    timeout: Duration,
    // The longest time of a statement.
    patience: Duration,
    epochs: Arc<Epochs>,
    broken: Arc<BrokenConnections>,
    // True if the connections of an examination enter no epoch.
    observes: bool,
}

impl Connector {
    /// Checks the settings of the database, and returns a connector for them.
    ///
    /// # Errors
    /// The URL or a certificate can't be used, or a connection to another machine would not be
    /// encrypted although the URL does not allow that.
    pub(super) fn parse(settings: &PostgresConfig) -> Result<Self, Problem> {
        let mut config = parse(&settings.url).map_err(Problem::Settings)?;
        let mode = ssl_mode(config.get_ssl_mode(), settings.ca.is_some(), is_local(&config));
        let timeout = Duration::from_secs(settings.connect_timeout_seconds);
        config
            .ssl_mode(mode.map_err(Problem::Settings)?)
            .connect_timeout(timeout)
            .tcp_user_timeout(Duration::from_secs(settings.statement_timeout_seconds))
            .application_name("leasehold");
        let password = settings.password_file.as_deref().map(PasswordFile::open).transpose();
        let password = password.map_err(Problem::Settings)?;
        if password.is_some() && config.get_password().is_some() {
            let text = "the database's URL has a password, and `postgres.password_file` names another one: leave one of them out";
            return Err(Problem::Settings(text.into()));
        }
        let tls = MakeRustlsConnect::new(client_config(settings).map_err(Problem::Settings)?);
        let mut hosts = hosts::each(&config);
        if Remedy::AllHosts.is_out() {
            hosts.truncate(1);
        }
        let hosts = hosts.into();
        let patience = Duration::from_secs(settings.statement_timeout_seconds);
        let (seen, epochs, broken) = (Arc::new(Timelines::forgetting()), Arc::default(), Arc::default());
        Ok(Self { config, hosts, seen, tls, password, timeout, patience, epochs, broken, observes: false })
    }

    /// Returns a connector whose connections enter no epoch, because an examination changes nothing.
    pub(super) fn observing(self) -> Self {
        Self { observes: true, ..self }
    }

    /// Returns the epochs of the database, as this server has seen them.
    pub(super) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Opens a connection to the primary: the host of the URL that accepts writes, even for reads, because a standby may
    /// return old rows (B30). The current runtime drives it.
    ///
    /// # Errors
    /// The database can't be reached, or refuses the connection.
    pub(super) async fn connect(&self) -> Result<DatabaseConnection, StoreError> {
        self.open().await.map_err(|refused| match refused {
            Refused::Failed(error) => failed_to_connect(error),
            Refused::Late => StoreError::Unreachable(self.no_answer()),
            Refused::ReadOnly if self.hosts.len() > 1 => StoreError::Unreachable(NO_PRIMARY.into()),
            Refused::ReadOnly => StoreError::Unreachable("the database accepts only reads".into()),
            Refused::Overtaken => StoreError::Unreachable(OVERTAKEN.into()),
            Refused::TwoClusters => StoreError::Unreachable(TWO_CLUSTERS.into()),
        })
    }

    /// Opens a connection to the primary, and enters its epoch.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect), or the epoch can't be entered.
    pub(super) async fn connect_in_epoch(&self) -> Result<EpochConnection, StoreError> {
        Ok(self.enter(self.connect().await?).await?)
    }

    /// Enters the epoch of a connection.
    ///
    /// # Errors
    /// The host is no longer the primary, the tables are a copy, or the database can't be written in time.
    pub(super) async fn enter(&self, connection: DatabaseConnection) -> Result<EpochConnection, NotEntered> {
        let entered = async {
            match self.observes {
                true => Epochs::observe(&connection).await,
                false => self.epochs.enter(&connection).await,
            }
        };
        self.durably(&connection, entered).await.map(|accepted| EpochConnection { connection, accepted })
    }

    /// Accepts the tables of a copy. Returns false if they are none.
    ///
    /// # Errors
    /// The database can't be written in time, or the tables have seen a later timeline of this cluster.
    pub(super) async fn adopt(&self, connection: &DatabaseConnection) -> Result<bool, NotEntered> {
        self.durably(connection, epochs::adopt(connection)).await
    }

    /// Waits for durable writes on a connection, and has the database cancel them if they take too long or the caller is gone.
    /// Without that, a write that waits for a standby would keep its process of the database.
    async fn durably<T>(
        &self,
        connection: &DatabaseConnection,
        writes: impl Future<Output = Result<T, NotEntered>>,
    ) -> Result<T, NotEntered> {
        let cancel = CancelOnDrop(Some((self, connection.cancel_token())));
        let patience = self.patience + epochs::EPOCH_WAIT;
        let written = tokio::time::timeout(patience, writes).await.map_err(|_| NotEntered::NotDurable(patience))?;
        cancel.disarm();
        written
    }

    /// Opens the first connection, on which the preflight checks the database. If the URL names one host, it may be a
    /// standby, so that the preflight can report the exact problem of that host.
    ///
    /// # Errors
    /// The database can't be reached, or refuses the connection.
    pub(super) async fn connect_first(&self) -> Result<DatabaseConnection, Problem> {
        let opened = match &*self.hosts {
            [host] => self.ask(host, ASK).await.map(|answer| answer.connection),
            _ => self.open().await,
        };
        opened.map_err(|refused| match refused {
            Refused::Failed(error) => match Problem::from(error) {
                // CONNECT is the only right that a connection needs.
                Problem::PermissionDenied(cause) => self.no_connect(cause),
                trouble => trouble,
            },
            Refused::Late => Problem::Unreachable(self.no_answer()),
            Refused::ReadOnly if self.hosts.len() > 1 => Problem::NotServing(NO_PRIMARY.into()),
            Refused::ReadOnly => Problem::Standby,
            Refused::Overtaken => Problem::NotServing(OVERTAKEN.into()),
            Refused::TwoClusters => Problem::NotServing(TWO_CLUSTERS.into()),
        })
    }

    /// True if the connection is open, and this server still serves in its epoch.
    pub(super) fn is_current(&self, connection: &EpochConnection) -> bool {
        let is_present = || self.observes || Remedy::Departure.is_out() || self.epochs.is_present(&connection.accepted);
        !connection.is_closed() && is_present()
    }

    /// Looks again and again if a restart or a promotion has begun another epoch than that of a connection that
    /// does not answer. Returns when this server has left the epoch.
    pub(super) async fn look_elsewhere(&self, connection: &EpochConnection) {
        let look = async {
            loop {
                tokio::time::sleep(SILENCE).await;
                // Without an answer, there is no other host to change to.
                let _ = self.connect_in_epoch().await;
            }
        };
        tokio::select! {
            () = self.epochs.left(&connection.accepted) => {}
            () = look => {}
        }
    }

    /// Looks every few seconds if a host was promoted, while a former primary still answers. Does nothing if the URL names
    /// one host.
    pub(super) async fn look_for_promotion(&self) {
        if self.hosts.len() > 1 && !self.seen.is_known(LOOK_INTERVAL) {
            // Without an answer, the connections that are open tell what the trouble is.
            let _ = self.open().await;
        }
    }

    /// Returns a warning for each host of several that does not answer, refuses the connection, or is a former primary that
    /// nobody stopped.
    pub(super) async fn unfit_hosts(&self) -> Vec<String> {
        if self.hosts.len() < 2 {
            return Vec::new();
        }
        let asked = self.hosts.iter().map(|host| async move { (host, self.ask(host, ASK_TIMELINE).await) });
        let answers = futures_util::future::join_all(asked).await;
        let primaries =
            || answers.iter().filter_map(|(_, answer)| answer.as_ref().ok().filter(|host| host.accepts_writes));
        let is_former = |timeline| primaries().any(|other| other.timeline.is_after(timeline));
        let unfit = answers.iter().filter_map(|(host, answer)| match answer {
            Ok(answer) if answer.accepts_writes && is_former(answer.timeline) => Some(former_primary(host)),
            Ok(_) => None,
            Err(refused) => Some(self.silence(host, refused)),
        });
        unfit.collect()
    }

    /// Makes a durable write that changes no row, and returns its time.
    ///
    /// # Errors
    /// The database does not acknowledge it, warns that it may be lost, or has no room for further rows.
    pub(super) async fn time_durable_write(&self, connection: &DatabaseConnection) -> Result<Duration, NotEntered> {
        let written = async {
            writer::fill(connection).await?;
            let sent = Instant::now();
            let write = async { connection.batch_execute("SELECT write_durably()").await.map_err(failed) };
            epochs::durable(connection, write).await?;
            Ok(sent.elapsed())
        };
        self.durably(connection, written).await
    }

    fn silence(&self, host: &Config, refused: &Refused) -> String {
        let cause = match refused {
            Refused::Failed(error) => text(error),
            _ => self.no_answer(),
        };
        format!("{} can't take the place of the primary: {cause}; check the host in `postgres.url`", hosts::shown(host))
    }

    fn no_connect(&self, cause: String) -> Problem {
        let role = self.config.get_user().unwrap_or("ROLE").to_owned();
        // If a URL names no database, PostgreSQL uses the database with the name of the role.
        let name = self.config.get_dbname().unwrap_or(&role).to_owned();
        Problem::NoConnect { role, name, cause }
    }

    fn no_answer(&self) -> String {
        format!("no answer within {} s", self.timeout.as_secs())
    }

    /// Opens a connection to the primary.
    async fn open(&self) -> Result<DatabaseConnection, Refused> {
        if let [host] = &*self.hosts {
            let answer = self.ask(host, ASK).await?;
            return if answer.accepts_writes { Ok(answer.connection) } else { Err(Refused::ReadOnly) };
        }
        if Remedy::HighestTimeline.is_out() {
            return self.open_first().await;
        }
        let ask = |host, connection| self.ask_or_again(host, connection).boxed();
        let (others, limit) = (tokio::time::sleep(hosts::OTHERS), tokio::time::sleep(self.timeout / 2));
        let chosen = hosts::choose(self.hosts.len(), ask, &self.seen, others, limit);
        let chosen = tokio::time::timeout(self.timeout, chosen).await.unwrap_or(Err(Refused::Late))?;
        self.epochs.overtake(chosen.timeline);
        Ok(chosen.connection)
    }

    /// Opens a connection to the first host that accepts writes, as servers did before hosts were compared.
    async fn open_first(&self) -> Result<DatabaseConnection, Refused> {
        let mut refused = Refused::Late;
        for host in self.hosts.iter() {
            match self.ask(host, ASK).await {
                Ok(answer) if answer.accepts_writes => return Ok(answer.connection),
                Ok(_) => refused = Refused::ReadOnly,
                Err(cause) => refused = cause,
            }
        }
        Err(refused)
    }

    /// Asks a host on a new connection, or on the one of its last answer.
    async fn ask_or_again(
        &self,
        host: usize,
        connection: Option<DatabaseConnection>,
    ) -> Result<Answer<DatabaseConnection>, Refused> {
        if let Some(connection) = connection {
            return self.in_time(answered(connection, ASK_TIMELINE)).await;
        }
        // INVARIANT: hosts are counted as `hosts` has them.
        let Some(settings) = self.hosts.get(host) else { return Err(Refused::Late) };
        self.ask(settings, ASK_TIMELINE).await
    }

    /// Opens a connection to a host, and asks if it accepts writes. The timeout of tokio-postgres covers the TCP connection
    /// only, so this one limits TLS and authentication too.
    async fn ask(&self, host: &Config, question: &str) -> Result<Answer<DatabaseConnection>, Refused> {
        let opened = async { driven(&self.with_password(host).await, &self.tls, self.broken.clone()).await };
        self.in_time(async { answered(opened.await?, question).await }).await
    }

    async fn in_time<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Refused> {
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(asked) => asked.map_err(Refused::Failed),
            Err(_) => Err(Refused::Late),
        }
    }

    /// Returns these settings with the password that the file holds now.
    async fn with_password(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if let Some(file) = &self.password {
            config.password(&*file.current().await);
        }
        config
    }

    /// Asks the database to cancel a statement, in the background. The result is ignored, because
    /// the statement's caller no longer waits.
    pub(super) fn cancel(&self, statement: CancelToken) {
        let (tls, timeout) = (self.tls.clone(), self.timeout);
        // If there is no runtime, the process is about to exit, which closes its connections
        // anyway.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { tokio::time::timeout(timeout, statement.cancel_query(tls)).await });
        }
    }
}

/// Cancels the statement of a connection when it is dropped.
struct CancelOnDrop<'a>(Option<(&'a Connector, CancelToken)>);

impl CancelOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some((connector, statement)) = self.0.take() {
            connector.cancel(statement);
        }
    }
}

/// The most bytes of a password file.
const MAX_PASSWORD_BYTES: u64 = 4096;

/// A file whose only line is the password of the database's user.
#[derive(Clone)]
struct PasswordFile {
    path: PathBuf,
    /// The password that was read last.
    password: Arc<ArcSwap<String>>,
}

impl PasswordFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// The file can't be read, or holds no password.
    fn open(path: &Path) -> Result<Self, String> {
        let password = Arc::new(ArcSwap::from_pointee(read_password(path)?));
        Ok(Self { path: path.to_owned(), password })
    }

    /// Returns the password that the file holds now. If the file can't be read, returns the last
    /// password: the file may have been removed in order to replace it.
    async fn current(&self) -> Arc<String> {
        let path = self.path.clone();
        match tokio::task::spawn_blocking(move || read_password(&path)).await {
            Ok(Ok(password)) => self.password.store(Arc::new(password)),
            Ok(Err(error)) => tracing::warn!("{error}; the former password is tried"),
            // The task fails only if the runtime ends, and every connection ends with the runtime.
            Err(_) => {}
        }
        self.password.load_full()
    }
}

/// Reads a password: the content of the file without the line end.
fn read_password(path: &Path) -> Result<String, String> {
    let refused = |problem: &str| format!("`postgres.password_file`, `{}`, can't be used: {problem}", path.display());
    let mut text = String::new();
    let file = open_file(path).map_err(|error| refused(&error.to_string()))?;
    // One byte more than allowed is read, so that a file that is too long is detected.
    file.take(MAX_PASSWORD_BYTES + 1).read_to_string(&mut text).map_err(|error| refused(&error.to_string()))?;
    let line = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
    match line {
        "" => Err(refused("it is empty")),
        _ if text.len() as u64 > MAX_PASSWORD_BYTES => Err(refused("it is longer than 4096 bytes")),
        _ if line.contains('\n') => Err(refused("it has more than one line")),
        _ => Ok(line.to_owned()),
    }
}

/// A connection that closes at once when it is dropped. A dropped tokio-postgres client alone would
/// wait for outstanding answers first.
pub(super) struct DatabaseConnection {
    client: Client,
    driver: JoinHandle<()>,
    warnings: Arc<AtomicU64>,
}

impl DatabaseConnection {
    /// The number of warnings that the database has sent. The warnings of a statement are counted before its
    /// answer is returned.
    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }
}

impl Deref for DatabaseConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for DatabaseConnection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Drop for DatabaseConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn former_primary(host: &Config) -> String {
    format!(
        "{} is a former primary that still accepts writes: stop it, or have the cluster's manager make it a standby",
        hosts::shown(host)
    )
}

/// Returns the answer of a host to [`ASK`] or [`ASK_TIMELINE`].
async fn answered(connection: DatabaseConnection, question: &str) -> Result<Answer<DatabaseConnection>, Error> {
    let answer = connection.simple_query(question).await?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let word = |column| row.and_then(|row| row.try_get(column).ok().flatten()).unwrap_or_default();
    let (accepts_writes, timeline) = (word(0) == "off", Timeline::read(word(1), word(2)));
    Ok(Answer { connection, accepts_writes, timeline })
}

/// The time in which broken connections are taken for one outage.
const OUTAGE: Duration = Duration::from_secs(5);

/// Tells in the log of connections that break. An outage breaks all of them, with the same cause: one warning is enough.
#[derive(Default)]
struct BrokenConnections(Mutex<Option<Instant>>);

impl BrokenConnections {
    fn tell(&self, error: &Error) {
        let error = text(error);
        match self.is_told() {
            true => tracing::debug!(error, "a further connection to the database broke"),
            false => tracing::warn!(error, "a connection to the database broke"),
        }
    }

    /// Returns if this outage was told before. The next call in its time returns true.
    fn is_told(&self) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_told = told.is_some_and(|at| at.elapsed() < OUTAGE);
        if !is_told {
            *told = Some(Instant::now());
        }
        is_told
    }
}

/// Opens a connection and spawns the task that drives it. If the connection breaks, the task tells of it.
async fn driven(
    config: &Config,
    tls: &MakeRustlsConnect,
    broken: Arc<BrokenConnections>,
) -> Result<DatabaseConnection, Error> {
    let (client, mut connection) = config.connect(tls.clone()).await?;
    let warnings = Arc::<AtomicU64>::default();
    let count = warnings.clone();
    let driver = tokio::spawn(async move {
        // The library passes the messages of the database on in their order.
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notice(notice)) => count_warning(&notice, &count),
                Ok(_) => {}
                Err(error) => {
                    broken.tell(&error);
                    break;
                }
            }
        }
    });
    Ok(DatabaseConnection { client, driver, warnings })
}

/// The functions of PostgreSQL that warn of an exhausted supply of transaction ids, long before it ends. These warnings tell
/// nothing of a COMMIT, and come with each one.
const SUPPLY_WARNINGS: [&str; 2] = ["GetNewTransactionId", "GetNewMultiXactId"];

fn count_warning(notice: &DbError, count: &AtomicU64) {
    if notice.parsed_severity() == Some(Severity::Warning) {
        let routine = notice.routine().unwrap_or_default();
        // The text of a warning may show a row.
        tracing::warn!(code = notice.code().code(), routine, "the database has sent a warning");
        if !SUPPLY_WARNINGS.contains(&routine) && !Remedy::Warnings.is_out() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A connection to the primary, in an epoch that this server has entered.
pub(super) struct EpochConnection {
    connection: DatabaseConnection,
    accepted: Arc<Accepted>,
}

impl EpochConnection {
    /// The epoch of the connection.
    pub(super) fn accepted(&self) -> &Arc<Accepted> {
        &self.accepted
    }

    /// Proves that the host of the connection is the primary, by a durable write.
    ///
    /// # Errors
    /// The host does not acknowledge the write without a warning.
    pub(super) async fn prove(&self) -> Result<(), StoreError> {
        epochs::prove(&self.connection, &self.accepted).await
    }

    /// Waits for the answer to a COMMIT of changes. A warning makes its outcome unknown.
    ///
    /// # Errors
    /// The errors of `answer`, or the database has sent a warning.
    pub(super) async fn durable<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let (sent, warnings) = (Awake::now(), self.connection.warnings());
        let answered = epochs::durable(&self.connection, answer).await;
        if self.connection.warnings() != warnings {
            self.accepted.doubt();
        } else if answered.is_ok() {
            self.accepted.prove(sent);
        }
        answered
    }
}

impl Deref for EpochConnection {
    type Target = DatabaseConnection;

    fn deref(&self) -> &DatabaseConnection {
        &self.connection
    }
}

const EXAMPLE: &str = "postgres://USER:PASSWORD@HOST:PORT/DATABASE";

/// True if the settings name several hosts of the database.
pub(super) fn has_several_hosts(settings: &PostgresConfig) -> bool {
    parse(&settings.url).is_ok_and(|config| config.get_hosts().len().max(config.get_hostaddrs().len()) > 1)
}

/// Parses a connection string: a URL, or the form `host=… dbname=…`.
pub(super) fn parse(url: &str) -> Result<Config, String> {
    if let Some(scheme) = foreign_scheme(url) {
        return Err(format!("`{scheme}://` is not PostgreSQL: write `{EXAMPLE}`"));
    }
    // With several `@`, the parser would end the password at the first one, and take the rest of
    // the password for the host.
    if url.split_once("://").is_some_and(|(_, rest)| before_options(rest).matches('@').count() > 1) {
        return Err("there is more than one `@`: write `@` in a password as `%40`".into());
    }
    let config: Config = url.parse().map_err(|error: Error| url_error(&text(&error)))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(format!("no host is named: write `{EXAMPLE}`"));
    }
    Ok(config)
}

fn before_options(url: &str) -> &str {
    url.split_once('?').map_or(url, |(address, _)| address)
}

/// Returns an error text of the URL parser with advice. The parser names the wrong option in its
/// text only, so the text is searched.
fn url_error(error: &str) -> String {
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

/// Chooses the TLS mode: encrypted if a certificate authority is configured. Otherwise the
/// connection is plain text, which is allowed only on this machine or with `sslmode=disable`.
fn ssl_mode(asked: SslMode, has_authority: bool, is_local: bool) -> Result<SslMode, String> {
    match asked {
        SslMode::Disable if has_authority => {
            Err("`postgres.ca` asks for an encrypted connection, `sslmode=disable` for a plain one: leave one out"
                .into())
        }
        SslMode::Disable => Ok(SslMode::Disable),
        _ if has_authority => Ok(SslMode::Require),
        SslMode::Prefer if is_local => Ok(SslMode::Disable),
        _ => Err("set `postgres.ca` to the authority of the database's certificate, or add `sslmode=disable` if the \
                  network is trusted"
            .into()),
    }
}

/// True if connections stay on this machine. An address of `hostaddr` is used instead of the name of its host.
fn is_local(config: &Config) -> bool {
    let is_here = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
    };
    config.get_hosts().iter().all(is_here) && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
}

fn client_config(settings: &PostgresConfig) -> Result<rustls::ClientConfig, String> {
    let PostgresConfig { ca, certificate, key, .. } = settings;
    let [ca, certificate, key] = [ca, certificate, key].map(|path| path.as_deref());
    ClientFiles { table: "postgres", ca, certificate, key }.config()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_once() {
        let ago = |time| Instant::now().checked_sub(time).unwrap();
        let broken = BrokenConnections::default();
        assert_eq!([broken.is_told(), broken.is_told()], [false, true]);
        *broken.0.lock().unwrap() = Some(ago(OUTAGE));
        assert_eq!([broken.is_told(), broken.is_told()], [false, true]);
    }

    #[test]
    fn plain_text_leaves_the_machine_only_with_consent() {
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
    fn an_address_counts_as_the_host_does() {
        for (hosts, expected) in [
            ("host=localhost", true),
            ("host=/run/postgresql", true),
            ("host=db", false),
            ("hostaddr=127.0.0.1", true),
            // The certificate would be that of the name, so this is no connection within the machine for sure.
            ("host=db hostaddr=127.0.0.1", false),
            ("hostaddr=10.0.0.1", false),
            ("host=localhost hostaddr=10.0.0.1", false),
        ] {
            assert_eq!(is_local(&hosts.parse().unwrap()), expected, "{hosts}");
        }
    }

    #[test]
    fn a_password_file_has_one_line() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("password");
        let long = "x".repeat(4097);
        for (text, expected) in [
            ("secret", Ok("secret")),
            ("secret\n", Ok("secret")),
            (" s\\e:c@r%et \r\n", Ok(" s\\e:c@r%et ")),
            ("", Err("it is empty")),
            ("\n", Err("it is empty")),
            ("one\ntwo\n", Err("it has more than one line")),
            (&*long, Err("it is longer than 4096 bytes")),
        ] {
            std::fs::write(&path, text).unwrap();
            match (read_password(&path), expected) {
                (Ok(password), Ok(expected)) => assert_eq!(password, expected),
                (Err(error), Err(expected)) => assert!(error.ends_with(expected), "{error}"),
                (read, _) => panic!("{text:?}: {read:?}"),
            }
        }
        assert!(read_password(&directory.path().join("absent")).is_err());
    }
}
