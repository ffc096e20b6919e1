//! PostgreSQL clusters and pgbouncers for single tests: real processes on free ports, with data in
//! a temporary directory. Dropping the value of a test ends its process.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::guarded::Guarded;
use crate::server::binary;
use crate::suspend::suspend;

/// The longest time that the start of a cluster or pgbouncer may take before the test fails.
const DEADLINE: Duration = Duration::from_secs(60);
/// The pause between two attempts to connect to a cluster or pgbouncer that is starting.
const POLL: Duration = Duration::from_millis(20);
/// The directory in which Debian installs the programs of each PostgreSQL version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The environment variable with the directory of another PostgreSQL, which has `bin`.
const PROGRAMS_VARIABLE: &str = "LEASEHOLD_POSTGRESQL";
/// The file with the settings of `ALTER SYSTEM`.
const AUTO_CONF: &str = "postgresql.auto.conf";
/// The database whose copies have the tables of a new store.
const NEW_STORE: &str = "new_store";
/// The operating system user that runs the processes if root runs the test, because PostgreSQL
/// refuses root.
const USER: &str = "postgres";

/// Returns the words to put before a command line so that it runs as the user [`USER`]; empty
/// unless root runs the test.
fn as_user() -> Vec<String> {
    if !geteuid().is_root() {
        return Vec::new();
    }
    let words = ["setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "--"];
    words.map(str::to_owned).to_vec()
}

/// Starts a program as the user [`USER`] if root runs the test.
fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Guarded> {
    Guarded::start(&[as_user().as_slice(), &[program.display().to_string()], arguments].concat(), log)
}

/// Makes the user [`USER`] the owner of a file or directory if root runs the test.
fn give_to_user(path: &Path) -> Result<()> {
    if geteuid().is_root() {
        let user = User::from_name(USER)?.with_context(|| format!("there is no user `{USER}`"))?;
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(())
}

/// Returns the directory `bin` of the PostgreSQL that the environment names, or else of the newest installed version.
fn programs() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os(PROGRAMS_VARIABLE) {
        return Ok(PathBuf::from(directory).join("bin"));
    }
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let versions = std::fs::read_dir(VERSIONS).with_context(|| format!("PostgreSQL is not in `{VERSIONS}`"))?;
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(version);
    Ok(newest.with_context(|| format!("PostgreSQL is not in `{VERSIONS}`"))?.join("bin"))
}

/// Returns the path of the program pgbouncer. Debian installs it in `/usr/sbin`, which may not be
/// in `PATH`.
fn bouncer() -> PathBuf {
    let debian = PathBuf::from("/usr/sbin/pgbouncer");
    if debian.exists() { debian } else { "pgbouncer".into() }
}

/// Returns a port of loopback on which nobody listens.
///
/// # Errors
/// No port is free.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn directory() -> Result<TempDir> {
    let directory = TempDir::new().context("no temporary directory can be made")?;
    // PostgreSQL may run as another user, who must be able to enter this directory. The data
    // directory inside is private.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(directory)
}

/// Returns the path of a data directory that every cluster copies instead of running `initdb`. A
/// copy takes a tenth of the time of `initdb`. The first test creates the directory; later tests
/// and runs find it.
fn template() -> Result<PathBuf> {
    let programs = programs()?;
    let version = programs.parent().and_then(Path::file_name).context("PostgreSQL's directory has no version")?;
    let name = format!("leasehold-postgres-{}-{}", version.display(), geteuid());
    let template = std::env::temp_dir().join(name);
    if !template.exists() {
        let made = directory()?;
        let data = made.path().join("data");
        initialise(&programs, &data)?;
        // The rename makes the complete directory appear at once. If several processes reach this
        // line, the first rename succeeds.
        if std::fs::rename(&data, &template).is_err() {
            ensure!(template.exists(), "`{}` cannot be made", template.display());
        }
    }
    Ok(template)
}

/// Creates an empty PostgreSQL data directory with `initdb`. Its superuser is `leasehold`, without
/// a password.
fn initialise(programs: &Path, data: &Path) -> Result<()> {
    std::fs::create_dir(data)?;
    give_to_user(data)?;
    let mut words = as_user();
    words.push(programs.join("initdb").display().to_string());
    let options = ["--no-sync", "--auth=trust", "--username=leasehold", "--encoding=UTF8", "--locale=C", "-D"];
    words.extend(options.map(str::to_owned));
    words.push(data.display().to_string());
    run(&words)
}

/// Copies a data directory. The copy keeps the owner and the modes of the files.
fn copy(template: &Path, data: &Path) -> Result<()> {
    let paths = [template, data].map(|path| path.display().to_string());
    run(&[&["cp".to_owned(), "--archive".to_owned()], paths.as_slice()].concat())
}

/// Runs a command line and waits for its end. Returns an error if it fails.
fn run(words: &[String]) -> Result<()> {
    let [program, arguments @ ..] = words else { bail!("the command line is empty") };
    let output = Command::new(program).args(arguments).current_dir("/").output();
    let output = output.with_context(|| format!("`{program}` cannot be run"))?;
    ensure!(output.status.success(), "`{}` failed: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A running PostgreSQL cluster with its own data directory. Dropping it stops PostgreSQL and
/// removes the data.
#[derive(Debug)]
pub struct Cluster {
    // Fields are dropped in this order: the process must end before its directory is removed.
    process: Option<Guarded>,
    port: u16,
    settings: Vec<String>,
    databases: AtomicU32,
    // True once there is the database `NEW_STORE`.
    has_new_store: Mutex<bool>,
    directory: TempDir,
}

impl Cluster {
    /// Creates a cluster and starts it. `settings` are lines of `postgresql.conf`.
    ///
    /// # Errors
    /// PostgreSQL is not installed, or does not start; the error contains its log.
    pub fn start(settings: &[&str]) -> Result<Self> {
        Self::start_with(settings, &[])
    }

    /// Creates a cluster and starts it. `files` are further files of its data directory: name and
    /// content of each.
    ///
    /// # Errors
    /// PostgreSQL is not installed, or does not start; the error contains its log.
    pub fn start_with(settings: &[&str], files: &[(&str, &str)]) -> Result<Self> {
        let directory = directory()?;
        let data = directory.path().join("data");
        copy(&template()?, &data)?;
        for (name, text) in files {
            let path = data.join(name);
            std::fs::write(&path, text)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            give_to_user(&path)?;
        }
        let settings = settings.iter().map(|line| (*line).to_owned()).collect();
        let (databases, has_new_store) = Default::default();
        let mut cluster = Self { process: None, port: free_port()?, settings, databases, has_new_store, directory };
        cluster.run()?;
        Ok(cluster)
    }

    /// Creates a standby of this cluster and starts it. From then on each commit of this cluster waits until
    /// the standby has it.
    ///
    /// # Errors
    /// The cluster can't be copied, or the standby does not start; the error contains its log.
    pub fn standby(&self) -> Result<Self> {
        let directory = directory()?;
        let data = directory.path().join("data");
        let label = self.copy_to(&data)?;
        std::fs::remove_file(data.join("postmaster.pid"))?;
        let primary = format!("primary_conninfo = 'host=127.0.0.1 port={} user=leasehold'\n", self.port);
        let settings = std::fs::read_to_string(data.join(AUTO_CONF))? + &primary;
        for (name, text) in [("backup_label", &*label), ("standby.signal", ""), (AUTO_CONF, &settings)] {
            std::fs::write(data.join(name), text)?;
            give_to_user(&data.join(name))?;
        }
        let (settings, databases) = (self.settings.clone(), AtomicU32::new(self.databases.load(Ordering::Relaxed)));
        let has_new_store = Mutex::default();
        let mut standby = Self { process: None, port: free_port()?, settings, databases, has_new_store, directory };
        standby.run()?;
        self.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        self.execute("postgres", "SELECT pg_reload_conf()")?;
        let deadline = Instant::now() + DEADLINE;
        let is_sync = || -> Result<bool> {
            Ok(self.execute("postgres", "SELECT sync_state FROM pg_stat_replication")?.contains(&"sync".into()))
        };
        while !is_sync()? {
            ensure!(Instant::now() < deadline, "no commit waits for the standby within {DEADLINE:?}");
            std::thread::park_timeout(POLL);
        }
        Ok(standby)
    }

    /// Copies the data of the running cluster, and returns the text of the file `backup_label` for the copy. No program is
    /// needed for that, which would have to be of PostgreSQL's version
    /// (<https://www.postgresql.org/docs/15/continuous-archiving.html#BACKUP-LOWLEVEL-BASE-BACKUP>).
    fn copy_to(&self, data: &Path) -> Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url("postgres"), NoTls).await?;
            tokio::spawn(connection);
            client.execute("SELECT pg_backup_start('standby', true)", &[]).await?;
            copy(&self.data(), data)?;
            Ok(client.query_one("SELECT labelfile FROM pg_backup_stop(false)", &[]).await?.try_get(0)?)
        })
    }

    /// Lets a standby take writes, in the place of the cluster that it was copied from.
    ///
    /// # Errors
    /// The cluster is no standby, or does not end its recovery in time.
    pub fn promote(&self) -> Result<()> {
        let promoted = self.execute("postgres", "SELECT pg_promote()")?;
        ensure!(promoted == ["t"], "the standby does not end its recovery");
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn run(&mut self) -> Result<()> {
        let port = format!("port={}", self.port);
        let required = [port.as_str(), "listen_addresses=127.0.0.1", "unix_socket_directories="];
        let settings = required.into_iter().chain(self.settings.iter().map(String::as_str));
        let mut arguments = vec!["-D".to_owned(), self.data().display().to_string()];
        arguments.extend(settings.flat_map(|setting| ["-c".to_owned(), setting.to_owned()]));
        let log = self.directory.path().join("log");
        self.process = Some(start(&programs()?.join("postgres"), &arguments, &log)?);
        let deadline = Instant::now() + DEADLINE;
        while self.execute("postgres", "SELECT 1").is_err() {
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            ensure!(Instant::now() < deadline, "PostgreSQL does not start within {DEADLINE:?}:\n{}", log());
            std::thread::park_timeout(POLL);
        }
        Ok(())
    }

    /// Returns the TCP port on which the cluster listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the connection URL of a database in this cluster.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://leasehold@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the log that PostgreSQL has written since its last start.
    ///
    /// # Errors
    /// The log file cannot be read.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.directory.path().join("log")).context("the log cannot be read")
    }

    /// Creates an empty database in the cluster. Returns the database's name.
    ///
    /// # Errors
    /// PostgreSQL refuses the statement.
    pub fn database(&self) -> Result<String> {
        let name = format!("claims_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.execute("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(name)
    }

    /// Creates a database with the tables of a new store: a copy takes a tenth of the time of a migration. Returns the
    /// database's name. All such stores have one id.
    ///
    /// # Errors
    /// PostgreSQL refuses a statement, or the tables can't be made.
    pub fn store(&self) -> Result<String> {
        self.make_new_store()?;
        let name = format!("claims_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.execute("postgres", &format!("CREATE DATABASE {name} TEMPLATE {NEW_STORE}"))?;
        Ok(name)
    }

    fn make_new_store(&self) -> Result<()> {
        let mut has_one = self.has_new_store.lock().map_err(|_| anyhow!("another test could not make the store"))?;
        if !*has_one {
            self.execute("postgres", &format!("CREATE DATABASE {NEW_STORE}"))?;
            let init = Command::new(binary()?).args(["init", "--store", &self.url(NEW_STORE)]).output()?;
            ensure!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
            *has_one = true;
        }
        Ok(())
    }

    /// Executes SQL statements in a database. Returns the first column of all result rows as text.
    ///
    /// # Errors
    /// PostgreSQL cannot be reached, or refuses a statement.
    pub fn execute(&self, database: &str, sql: &str) -> Result<Vec<String>> {
        let url = self.url(database);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
            let driven = tokio::spawn(connection);
            let messages = client.simple_query(sql).await?;
            drop(client);
            driven.await??;
            let text = |message: &tokio_postgres::SimpleQueryMessage| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
                _ => None,
            };
            Ok(messages.iter().filter_map(text).collect())
        })
    }

    /// Ends all processes of the cluster without a checkpoint, by SIGQUIT. PostgreSQL calls this an
    /// immediate shutdown. As in a crash, commits that are not in the write-ahead log on disk are
    /// lost.
    ///
    /// # Errors
    /// The cluster does not run.
    pub fn crash(&mut self) -> Result<()> {
        kill(Pid::from_raw(self.pid()?), Signal::SIGQUIT).context("the cluster cannot be killed")?;
        self.process = None;
        Ok(())
    }

    /// Suspends all child processes of PostgreSQL, the processes of open sessions among them, until
    /// the returned guard is dropped. Connections stay open. A later connection gets a new process,
    /// which is not suspended.
    ///
    /// # Errors
    /// The cluster does not run.
    pub fn freeze(&self) -> Result<Frozen> {
        let pid = self.pid()?;
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let children = children.split_whitespace().map(|pid| Ok(Pid::from_raw(pid.parse()?)));
        let frozen = Frozen(children.collect::<Result<_>>()?);
        suspend(&frozen.0)?;
        Ok(frozen)
    }

    fn pid(&self) -> Result<i32> {
        let pid = std::fs::read_to_string(self.data().join("postmaster.pid")).context("the cluster does not run")?;
        Ok(pid.lines().next().context("the file has no process id")?.parse()?)
    }

    /// Starts a cluster that [`crash`](Self::crash) has ended, on the same data and port.
    ///
    /// # Errors
    /// PostgreSQL does not start; the error contains its log.
    pub fn restart(&mut self) -> Result<()> {
        self.process = None;
        self.run()
    }
}

/// The suspended processes of a cluster. Dropping the value resumes them.
#[derive(Debug)]
pub struct Frozen(Vec<Pid>);

impl Drop for Frozen {
    fn drop(&mut self) {
        // Errors are ignored: the signal fails only for a process that has ended in the meantime.
        for pid in &self.0 {
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

/// A running pgbouncer, which pools connections per transaction by default. Dropping it stops
/// pgbouncer.
#[derive(Debug)]
pub struct Bouncer {
    _process: Guarded,
    port: u16,
    _directory: TempDir,
}

impl Bouncer {
    /// Starts a pgbouncer with at most `connections` connections to each database of the cluster.
    ///
    /// # Errors
    /// pgbouncer is not installed, or does not start.
    pub fn start(cluster: &Cluster, connections: u16) -> Result<Self> {
        Self::start_with("\"leasehold\" \"\"\n", |port, users| {
            format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                 pool_mode = transaction\nauth_type = trust\nauth_file = {users}\n\
                 default_pool_size = {connections}\nmax_client_conn = 400\nserver_login_retry = 1\nserver_idle_timeout = 5\n",
                cluster.port(),
            )
        })
    }

    /// Starts a pgbouncer. `users` is the text of its file of users. `config` returns the text of
    /// its configuration, given its port and the path of the file of users.
    ///
    /// # Errors
    /// pgbouncer is not installed, or does not start.
    pub fn start_with(users: &str, config: impl FnOnce(u16, &str) -> String) -> Result<Self> {
        let directory = directory()?;
        let (port, path) = (free_port()?, directory.path().join("pgbouncer.ini"));
        let users_path = directory.path().join("users.txt");
        std::fs::write(&users_path, users)?;
        // This line continues the last section, `[pgbouncer]`. Without the line pgbouncer would
        // create a Unix socket in Debian's default directory, which the test's user may not write.
        let text = config(port, &users_path.display().to_string()) + "\nunix_socket_dir =\n";
        std::fs::write(&path, text)?;
        let log = directory.path().join("log");
        let process = start(&bouncer(), &[path.display().to_string()], &log)?;
        let deadline = Instant::now() + DEADLINE;
        while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            ensure!(Instant::now() < deadline, "pgbouncer does not start within {DEADLINE:?}:\n{}", log());
            std::thread::park_timeout(POLL);
        }
        Ok(Self { _process: process, port, _directory: directory })
    }

    /// Returns the TCP port on which this pgbouncer listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a database whose connections go through this pgbouncer.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://leasehold@127.0.0.1:{}/{database}", self.port)
    }
}
