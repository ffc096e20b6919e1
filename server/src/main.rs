//! The `leasehold` program: the commands that run a server or work on its data. The commands of the
//! client are in the crate `leasehold_cli`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use leasehold_cli::{CaptureArgs, CliError, Verb, exit};
use leasehold_core::{guard, outbox};
use leasehold_server::audit::{AuditEvent, AuditSink};
use leasehold_server::config::{Config, ConfigError, EtcdConfig, LogConfig, LogFormat};
use leasehold_server::doctor::{self, CheckResult, Finding};
use leasehold_server::serve::{ReadConfig, ServeError, StoreStart, serve};
use leasehold_server::store::{Backend, Creation, EmbeddedStore, Identity, Migrated, OrderedStore, PostgresStore};
use leasehold_server::transfer::{Exported, StorePlace, TransferError};
use leasehold_server::{logging, transfer};
use serde_json::{Value, json};

/// The program uses mimalloc, because all threads allocate and free names at the same time. The
/// system's allocator is slower under this load.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps names unique across many databases.
#[derive(Parser)]
#[command(name = "leasehold", version, after_help = exit::EXIT_CODES, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print results and errors as JSON, for machines
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run a claims server
    Serve(ServeArgs),
    /// Make a new store: a data directory, or the tables in a PostgreSQL database
    Init(StoreArgs),
    /// Check the configuration, certificates, clocks, store and limits of a server, and say what to do
    Doctor(DoctorArgs),
    /// Write every row of a store as JSON lines; stop the server of a data directory first
    Export(ExportArgs),
    /// Read an export into a new store, which may be of another kind
    Import(ImportArgs),
    /// Migrate the tables in a PostgreSQL database to this version; `serve` does this too
    Migrate(MigrateArgs),
    /// Print the SQL that installs the guard of locks in your own PostgreSQL database
    ///
    /// A transaction that writes under a lock calls leasehold_guard(resource, fence, remaining) first. It then can't commit
    /// once a later holder of the lock has written. The holder of a slot of a shared lock adds the slot's number:
    /// leasehold_guard(resource, fence, remaining, slot). Install it, also over a former version, with:
    /// leasehold guard | psql --single-transaction DATABASE
    Guard,
    /// Print the SQL that installs the outbox of queues in your own PostgreSQL database
    ///
    /// A transaction that calls leasehold_submit(queue, key, body) submits a request exactly if it commits. A relay hands
    /// requests on to the server. Install it, also over a former version, with:
    /// leasehold outbox | psql --single-transaction DATABASE
    Outbox,
    /// Print the SQL that has triggers submit the changes of tables, those of raw SQL too, to a queue
    ///
    /// Install the outbox first. The triggers write each statement's changes into it, in the same transaction. Install
    /// them with:
    /// leasehold capture users teams | psql --single-transaction DATABASE
    Capture(CaptureArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    #[command(flatten)]
    Client(Verb),
}

/// The flags of `serve`. A flag wins over its environment variable, and that over the configuration file.
#[derive(Args, Clone)]
struct ServeArgs {
    /// The address to listen on; port 0 picks a free port and prints it [default: 127.0.0.1:7171]
    #[arg(long, value_name = "ADDR:PORT", env = "LEASEHOLD_LISTEN")]
    listen: Option<SocketAddr>,
    /// The data directory [default: leasehold in the user's state folder]
    #[arg(long, value_name = "DIR", env = "LEASEHOLD_DATA")]
    data: Option<PathBuf>,
    /// A PostgreSQL database or a cluster of etcd in place of the data directory; several servers may share it
    #[arg(long, value_name = "URL", env = "LEASEHOLD_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The configuration file, in TOML; without one the server has development cells 1 and 2
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
    /// The address for /metrics in plain HTTP; without TLS the main address has them too
    #[arg(long, value_name = "ADDR:PORT", env = "LEASEHOLD_METRICS_LISTEN")]
    metrics_listen: Option<SocketAddr>,
    /// The format of the log on standard error [default: text]
    #[arg(long, env = "LEASEHOLD_LOG_FORMAT")]
    log_format: Option<LogFormat>,
    /// The log level, or a filter such as `info,audit=off` [default: info]
    #[arg(long, value_name = "FILTER", env = "LEASEHOLD_LOG")]
    log: Option<String>,
    /// Listen on other addresses than loopback without TLS: any caller may do anything
    #[arg(long)]
    insecure_plaintext: bool,
    /// Make a new store if there is none, as `leasehold init` does. A server without --config, --data and --store
    /// makes one for development
    #[arg(long)]
    create: bool,
    /// The store is a copy brought back from a backup: raise its fences beyond those given out since. For one start
    #[arg(long, conflicts_with = "create")]
    restored: bool,
}

/// The place of a store.
#[derive(Args)]
struct StoreArgs {
    /// The data directory [default: leasehold in the user's state folder]
    #[arg(long, value_name = "DIR", env = "LEASEHOLD_DATA")]
    data: Option<PathBuf>,
    /// A PostgreSQL database or a cluster of etcd in place of the data directory
    #[arg(long, value_name = "URL", env = "LEASEHOLD_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The server's configuration file, which may name either
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct DoctorArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Read every row of a data directory, to find blocks that were damaged on disk; stop its server first
    #[arg(long)]
    deep: bool,
}

#[derive(Args)]
struct ExportArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave out rows that can't be read, count them, and end with exit code 1 if there are any
    #[arg(long)]
    salvage: bool,
}

#[derive(Args)]
struct ImportArgs {
    /// The new data directory [default: leasehold in the user's state folder]
    #[arg(long, value_name = "DIR", env = "LEASEHOLD_DATA")]
    data: Option<PathBuf>,
    /// A PostgreSQL database or a cluster of etcd without a store, in place of the data directory
    #[arg(long, value_name = "URL", env = "LEASEHOLD_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The file to read [default: standard input]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The server's configuration file: rows must have its bucket types, and its cells if it has any
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct MigrateArgs {
    /// The database [default: the database of the configuration file]
    #[arg(long, value_name = "URL", env = "LEASEHOLD_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The configuration file, in TOML
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
    /// Accept the tables of a copy of the database, such as a restored dump; no server may use the other
    /// copy any more
    #[arg(long)]
    adopt: bool,
}

impl StoreArgs {
    /// Returns the configuration of the store. Unlike a server's configuration, it may have no
    /// cells.
    fn config(self) -> Result<Config, ServeError> {
        let mut config = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        config.data = self.data.or(config.data);
        override_database(&mut config, self.store)?;
        Ok(config.checked_store()?)
    }

    /// Returns the configuration of an export or import, whose store need not be the one of the file.
    fn transfer_config(self) -> Result<Config, ServeError> {
        let Self { data, store, config } = self;
        let mut config = config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        if data.is_some() {
            (config.postgres, config.etcd) = (None, None);
        } else if store.is_some() {
            config.data = None;
        }
        config.data = data.or(config.data);
        override_database(&mut config, store)?;
        Ok(config.checked_store()?)
    }

    /// Returns the checked configuration of a server.
    fn server_config(self) -> Result<Config, ServeError> {
        let mut config = self.config.as_deref().map_or_else(|| Ok(Config::development()), Config::read)?;
        config.data = self.data.or(config.data);
        override_database(&mut config, self.store)?;
        Ok(config.checked()?)
    }
}

impl ServeArgs {
    /// Returns the format of the log: that of the configuration file if no flag or variable names one.
    fn log_format(&self) -> LogFormat {
        let of_file = || Some(Config::read(self.config.as_deref()?).ok()?.log.format);
        self.log_format.or_else(of_file).unwrap_or_default()
    }

    /// Returns the permission to make a store, and if the store is a restored copy. Without
    /// `--create`, a server makes a store only if neither a configuration file nor a store is
    /// named. Such a server is for development.
    fn store_start(&self) -> StoreStart {
        let names_a_store = self.config.is_some() || self.data.is_some() || self.store.is_some();
        let may_create = self.create || !names_a_store && !self.restored;
        StoreStart {
            creation: if may_create { Creation::Allowed } else { Creation::Refused },
            is_restored: self.restored,
        }
    }

    /// Returns the checked configuration: the configuration file, overridden by the flags and
    /// environment variables.
    fn config(self) -> Result<Config, ServeError> {
        let has_two_flags = self.data.is_some() && self.store.is_some();
        let mut config = self.config.as_deref().map_or_else(|| Ok(Config::development()), Config::read)?;
        config.listen = self.listen.unwrap_or(config.listen);
        config.data = self.data.or(config.data);
        override_database(&mut config, self.store)?;
        config.metrics_listen = self.metrics_listen.or(config.metrics_listen);
        config.log.format = self.log_format.unwrap_or(config.log.format);
        config.log.filter = self.log.unwrap_or(config.log.filter);
        config.insecure_plaintext |= self.insecure_plaintext;
        config.checked().map_err(|error| match error {
            ConfigError::TwoStores { .. } if has_two_flags => ServeError::of_command_line(error),
            error => error.into(),
        })
    }
}

/// Overrides the database of the configuration with `url`, if the command line or the environment
/// names one.
fn override_database(config: &mut Config, url: Option<String>) -> Result<(), ServeError> {
    match &url {
        // The check of the whole configuration reads the URL of etcd.
        Some(url) if !EtcdConfig::is_url(url) => PostgresStore::check_url(url).map_err(ServeError::of_command_line)?,
        _ => {}
    }
    config.override_database(url);
    Ok(())
}

fn main() -> ExitCode {
    let Cli { command, json } = match parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage_error(&error),
    };
    match command {
        Command::Serve(args) => serve_until_stopped(args, json),
        Command::Init(args) => exit_code(init(args, json), json),
        Command::Doctor(args) => doctor(args, json),
        Command::Export(args) => exit_code(export(args, json), json),
        Command::Import(args) => exit_code(import(args, json), json),
        Command::Migrate(args) => exit_code(migrate(args, json), json),
        Command::Completions { shell } => {
            client_exit_code(leasehold_cli::write_completions(shell, &mut Cli::command()), json)
        }
        Command::Guard => print_sql(guard::SQL, json),
        Command::Outbox => print_sql(outbox::SQL, json),
        Command::Capture(args) => print_sql(&args.script(outbox::CAPTURE_SQL), json),
        Command::Client(verb) => run_client(verb, json),
    }
}

fn print_sql(sql: &str, json: bool) -> ExitCode {
    client_exit_code(leasehold_cli::write_script(sql.as_bytes()), json)
}

fn parse() -> Result<Cli, clap::Error> {
    let command = without_empty_variables(Cli::command());
    let matches = command.clone().try_get_matches()?;
    let ignored = matches.subcommand().and_then(|(verb, matches)| Some((verb, ignored_variable(verb, matches)?)));
    let matches = match ignored {
        Some((verb, argument)) => command
            .mut_subcommand(verb, |command| command.mut_arg(argument, |argument| argument.env(Resettable::Reset)))
            .try_get_matches()?,
        None => matches,
    };
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()))
}

/// Returns the argument whose environment variable names a store, if a flag of an export or import names another one: an
/// operator of a server may name its store in the environment. A server refuses two stores, because names that it looks for
/// in the wrong one would be given out twice.
fn ignored_variable(verb: &str, matches: &ArgMatches) -> Option<&'static str> {
    if !matches!(verb, "export" | "import") {
        return None;
    }
    match (matches.value_source("data")?, matches.value_source("store")?) {
        (ValueSource::CommandLine, ValueSource::EnvVariable) => Some("store"),
        (ValueSource::EnvVariable, ValueSource::CommandLine) => Some("data"),
        _ => None,
    }
}

/// Makes clap ignore empty environment variables of arguments, as if they were unset.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let unset = |arg: Arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg };
    command.mut_args(unset).mut_subcommands(without_empty_variables)
}

/// Prints the problem of the command line, or the help text that it asks for, and returns the exit
/// code.
fn report_usage_error(error: &clap::Error) -> ExitCode {
    // Parsing failed, so `--json` must be found in the raw arguments.
    let json = std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    if !(json && error.use_stderr()) {
        error.exit();
    }
    let text = error.to_string();
    let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let [message, hint] = [message, rest].map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    leasehold_cli::report(message.trim_start_matches("error: "), Some(&hint), None, exit::USAGE, json);
    ExitCode::from(exit::USAGE)
}

/// Reports the failure of a command, if any, and returns its exit code.
fn exit_code(result: Result<(), ServeError>, json: bool) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    leasehold_cli::report(&error.to_string(), error.hint().as_deref(), error.code(), error.exit_code(), json);
    ExitCode::from(error.exit_code())
}

/// Reports the failure of a client's command, if any, and returns its exit code.
fn client_exit_code(result: Result<(), CliError>, json: bool) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    error.report(json);
    ExitCode::from(error.exit_code())
}

/// Runs a server, and returns its exit code. If the log is JSON, a failure to start is logged as a
/// line of JSON, so that the log's reader gets nothing else.
fn serve_until_stopped(args: ServeArgs, json: bool) -> ExitCode {
    let format = args.log_format();
    let result = run_server(args);
    match &result {
        Err(error) if format == LogFormat::Json && !json && is_logged(error) => ExitCode::from(error.exit_code()),
        _ => exit_code(result, json),
    }
}

/// Logs the failure of a server as a JSON line. Returns false if the log's filter drops errors.
fn is_logged(error: &ServeError) -> bool {
    // The server may have failed before it started its log. If it had started the log, this start
    // fails and changes nothing.
    let _log = logging::start(&LogConfig { format: LogFormat::Json, ..LogConfig::default() });
    let (hint, exit_code) = (error.hint(), error.exit_code());
    tracing::error!(hint, exit_code, "{error}");
    logging::flush();
    tracing::enabled!(tracing::Level::ERROR)
}

fn run_server(args: ServeArgs) -> Result<(), ServeError> {
    let start = args.store_start();
    let read: ReadConfig = Arc::new(move || args.clone().config());
    let config = read()?;
    // The log is dropped last, so that it writes the lines of all parts that stop.
    let _log = logging::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers()).enable_all().build()?;
    runtime.block_on(serve(config, read, start))
}

/// Returns the number of threads that serve connections: one less than the machine's cores, at
/// least 1. One core is left to the committer's thread.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

/// Checks a server, prints the findings, and returns the exit code. If a check failed, this is the
/// code of a failure.
fn doctor(DoctorArgs { store: args, deep }: DoctorArgs, json: bool) -> ExitCode {
    let shown = match &args.config {
        Some(path) => format!("`{}`", path.display()),
        None => "no file: two cells for development".into(),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit_code(Err(error.into()), json),
    };
    let findings = runtime.block_on(doctor::examine(args.server_config(), &shown, deep));
    let line = |finding: &Finding| match json {
        true => json!({ "check": finding.check, "state": finding.state.to_string(), "text": finding.text }).to_string(),
        false => finding.to_string(),
    };
    let report = findings.iter().map(|finding| line(finding) + "\n").collect::<String>();
    if let Err(error) = io::stdout().lock().write_all(report.as_bytes()) {
        return exit_code(Err(error.into()), json);
    }
    let has_failed = findings.iter().any(|finding| finding.state == CheckResult::Fail);
    ExitCode::from(if has_failed { exit::FAILURE } else { 0 })
}

/// Makes a store, and reports its identity. If the store exists already, only reports it.
fn init(args: StoreArgs, json: bool) -> Result<(), ServeError> {
    let mut config = args.config()?;
    if json {
        config.log.format = LogFormat::Json;
    }
    let _log = logging::start(&config.log)?;
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Identity { id, is_new, .. } = match (&config.postgres, &config.etcd) {
        (None, None) => EmbeddedStore::open(&config.data_dir()?, Creation::Allowed)?.identity(),
        (Some(postgres), _) => {
            runtime()?.block_on(PostgresStore::migrate(postgres, Creation::Allowed, false))?.identity
        }
        (None, Some(etcd)) => runtime()?.block_on(OrderedStore::on_etcd(etcd, Creation::Allowed))?.identity(),
    };
    let location = config.store_location()?;
    if json {
        let done = if is_new { "made" } else { "found" };
        return print_result(&json!({ "done": done, "store": id.to_string(), "location": location }));
    }
    let made = if is_new { "made the store" } else { "there is a store already:" };
    eprintln!("{made} {id} in `{location}`");
    Ok(())
}

fn export(args: ExportArgs, json: bool) -> Result<(), ServeError> {
    let place = StorePlace::of(&args.store.transfer_config()?)?;
    let Exported { rows, damaged, is_exact } = match &args.output {
        Some(path) => transfer::export_to(&place, args.salvage, path).map_err(|error| match error {
            TransferError::Io(error) => with_path(path, &error).into(),
            error => error,
        })?,
        None => transfer::export(&place, args.salvage, BufWriter::new(io::stdout()))?,
    };
    match &args.output {
        Some(path) if json => {
            let output = path.display().to_string();
            let mut result =
                json!({ "done": "exported", "rows": rows, place_member(&place): place.to_string(), "output": output });
            if args.salvage
                && let Some(members) = result.as_object_mut()
            {
                members.insert("damaged".into(), damaged.into());
                members.insert("damaged_is_exact".into(), is_exact.into());
            }
            print_result(&result)?;
        }
        // Standard output may be the export itself, so the result goes to standard error as text.
        _ => {
            eprintln!("exported {rows} rows from `{place}`");
        }
    }
    if damaged > 0 { Err(TransferError::Damaged { rows: damaged, is_exact }.into()) } else { Ok(()) }
}

/// Returns the name of a place in a result: `data` or `store`, as the flag that sets it.
fn place_member(place: &StorePlace) -> &'static str {
    if matches!(place, StorePlace::Directory(_)) { "data" } else { "store" }
}

/// Prints a result as a line of JSON.
fn print_result(result: &Value) -> Result<(), ServeError> {
    Ok(writeln!(io::stdout().lock(), "{result}")?)
}

fn import(args: ImportArgs, json: bool) -> Result<(), ServeError> {
    let config = StoreArgs { data: args.data, store: args.store, config: args.config }.transfer_config()?;
    let (place, rules) = (StorePlace::of(&config)?, config.import_rules()?);
    let rows = match &args.input {
        Some(path) => {
            transfer::import(&place, BufReader::new(File::open(path).map_err(|error| with_path(path, &error))?), rules)
        }
        None => transfer::import(&place, io::stdin().lock(), rules),
    };
    let rows = rows?;
    if json {
        return print_result(&json!({ "done": "imported", "rows": rows, place_member(&place): place.to_string() }));
    }
    eprintln!("imported {rows} rows into `{place}`");
    Ok(())
}

fn migrate(args: MigrateArgs, json: bool) -> Result<(), ServeError> {
    let mut config = args.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
    override_database(&mut config, args.store)?;
    if json {
        config.log.format = LogFormat::Json;
    }
    if let Some(etcd) = &config.etcd {
        return adopt_on_etcd(&config, etcd, args.adopt, json);
    }
    let settings = config.migration_database()?;
    let _log = logging::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The trail is opened first: an adoption that can't be recorded must not happen.
    let audit = if args.adopt { Some(AuditSink::open(&config)?) } else { None };
    let migrated = runtime.block_on(PostgresStore::migrate(settings, Creation::Refused, args.adopt))?;
    let Migrated { identity, from, to, is_adopted } = migrated;
    if let Some(audit) = audit.filter(|_| is_adopted) {
        audit.record(vec![AuditEvent::of_adoption(identity.id)]);
    }
    let database = settings.shown_url();
    if json {
        return print_result(
            &json!({ "done": "migrated", "database": database, "from": from, "to": to, "adopted": is_adopted }),
        );
    }
    if is_adopted {
        eprintln!("adopted the copy in `{database}`, and raised its fences");
    } else if args.adopt {
        eprintln!("`{database}` is no copy that servers refuse: nothing to adopt");
    }
    if from == to {
        eprintln!("the tables in `{database}` have version {to} already");
    } else {
        eprintln!("migrated the tables in `{database}` from version {from} to {to}");
    }
    Ok(())
}

/// Accepts a restored copy of a store in etcd. Its rows have had one version so far.
fn adopt_on_etcd(config: &Config, etcd: &EtcdConfig, adopts: bool, json: bool) -> Result<(), ServeError> {
    config.clone().checked_store()?;
    let _log = logging::start(&config.log)?;
    let database = etcd.shown_url();
    if !adopts {
        if json {
            return print_result(&json!({ "done": "migrated", "database": database, "adopted": false }));
        }
        eprintln!("`{database}` needs no migration: its rows have had one version so far");
        return Ok(());
    }
    // The trail is opened first: an adoption that can't be recorded must not happen.
    let audit = AuditSink::open(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (identity, fences) = runtime.block_on(OrderedStore::adopt_on_etcd(etcd))?;
    audit.record(vec![AuditEvent::of_adoption(identity.id)]);
    let [from, to] = [fences.from.0, fences.to.0];
    if json {
        return print_result(&json!({ "done": "adopted", "database": database, "fences": { "from": from, "to": to } }));
    }
    eprintln!("adopted the copy in `{database}`, and raised its fences from {from} to {to}");
    Ok(())
}

/// Returns the error with the path of the file in front of its text.
fn with_path(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// Runs a command of the client.
fn run_client(verb: Verb, json: bool) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit_code(Err(error.into()), json),
    };
    let result = runtime.block_on(leasehold_cli::run(verb, json));
    // A DNS lookup that hangs blocks one of the runtime's threads, and dropping the runtime would
    // wait for it.
    runtime.shutdown_background();
    client_exit_code(result, json)
}
