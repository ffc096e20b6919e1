//! The `leasehold` command line: the server, its data, and a client's verbs.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use leasehold_cli::{CliError, Verb, exit};
use leasehold_server::config::{Config, ConfigError, LogFormat};
use leasehold_server::serve::{ServeError, serve};
use leasehold_server::store::PostgresStore;
use leasehold_server::{logging, transfer};
use serde_json::{Value, json};

/// Names arrive and are freed on all threads at once; the system's allocator is slower at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Names the database for `serve` and `migrate`.
const STORE_VARIABLE: &str = "LEASEHOLD_STORE";

/// Keeps names unique across many databases.
#[derive(Parser)]
#[command(name = "leasehold", version, after_help = exit::EXIT_CODES, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Answer in JSON, for machines; errors too, on standard error
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Serve claims
    Serve(ServeArgs),
    /// Write everything in a data directory as JSON lines; its server must be stopped
    Export(ExportArgs),
    /// Read an export into a new data directory
    Import(ImportArgs),
    /// Bring the tables of a PostgreSQL database to this version; `serve` does so too
    Migrate(MigrateArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    #[command(flatten)]
    Client(Verb),
}

/// Flags win over the environment, the environment over the file.
#[derive(Args)]
struct ServeArgs {
    /// Where to serve; port 0 picks a free one and prints it [default: 127.0.0.1:7171]
    #[arg(long, value_name = "ADDR:PORT", env = "LEASEHOLD_LISTEN")]
    listen: Option<SocketAddr>,
    /// Where the data lies [default: leasehold in the user's state folder]
    #[arg(long, value_name = "DIR", env = "LEASEHOLD_DATA")]
    data: Option<PathBuf>,
    /// A PostgreSQL database as the store instead, which several servers may share
    #[arg(long, value_name = "URL", env = STORE_VARIABLE, hide_env_values = true)]
    store: Option<String>,
    /// The configuration, in TOML; without it, development cells 1 and 2 are served
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
    /// Where to serve /metrics in plain HTTP; without TLS it is at the main address too
    #[arg(long, value_name = "ADDR:PORT", env = "LEASEHOLD_METRICS_LISTEN")]
    metrics_listen: Option<SocketAddr>,
    /// How to log to standard error [default: text]
    #[arg(long, env = "LEASEHOLD_LOG_FORMAT")]
    log_format: Option<LogFormat>,
    /// What to log: a level, or a filter such as `info,audit=off` [default: info]
    #[arg(long, value_name = "FILTER", env = "LEASEHOLD_LOG")]
    log: Option<String>,
    /// Serve beyond loopback without TLS: everybody who reaches the port may do everything
    #[arg(long)]
    insecure_plaintext: bool,
}

#[derive(Args)]
struct ExportArgs {
    /// Where the data lies [default: leasehold in the user's state folder]
    #[arg(long, value_name = "DIR", env = "LEASEHOLD_DATA")]
    data: Option<PathBuf>,
    /// The configuration that is served with, which says where the data lies
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
    /// Where to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args)]
struct ImportArgs {
    /// The new data directory [default: leasehold in the user's state folder]
    #[arg(long, value_name = "DIR", env = "LEASEHOLD_DATA")]
    data: Option<PathBuf>,
    /// What to read [default: standard input]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The configuration to be served with: its data directory, its bucket types and, where it has cells, no others
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct MigrateArgs {
    /// The database [default: the configuration's]
    #[arg(long, value_name = "URL", env = STORE_VARIABLE, hide_env_values = true)]
    store: Option<String>,
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    config: Option<PathBuf>,
}

impl ServeArgs {
    fn config(self) -> Result<Config, ServeError> {
        let names_two = self.data.is_some() && self.store.is_some();
        let mut config = self.config.as_deref().map_or_else(|| Ok(Config::development()), Config::read)?;
        config.listen = self.listen.unwrap_or(config.listen);
        config.data = self.data.or(config.data);
        take_store(&mut config, self.store)?;
        config.metrics_listen = self.metrics_listen.or(config.metrics_listen);
        config.log.format = self.log_format.unwrap_or(config.log.format);
        config.log.filter = self.log.unwrap_or(config.log.filter);
        config.insecure_plaintext |= self.insecure_plaintext;
        config.checked().map_err(|error| match error {
            ConfigError::TwoStores { .. } if names_two => ServeError::of_command_line(error),
            error => error.into(),
        })
    }
}

/// Takes the database that the command line names, if any.
fn take_store(config: &mut Config, url: Option<String>) -> Result<(), ServeError> {
    if let Some(url) = &url {
        PostgresStore::check_url(url).map_err(ServeError::of_command_line)?;
    }
    config.override_database(url);
    Ok(())
}

fn main() -> ExitCode {
    let Cli { command, json } = match parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    match command {
        Command::Serve(args) => exit_served(run_server(args), json),
        Command::Export(args) => exit_served(export(args, json), json),
        Command::Import(args) => exit_served(import(args, json), json),
        Command::Migrate(args) => exit_served(migrate(args, json), json),
        Command::Completions { shell } => {
            exit_asked(leasehold_cli::write_completions(shell, &mut Cli::command()), json)
        }
        Command::Client(verb) => ask(verb, json),
    }
}

fn parse() -> Result<Cli, clap::Error> {
    let matches = without_empty_variables(Cli::command()).try_get_matches()?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()))
}

/// A variable that is set to nothing is not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let unset = |arg: Arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg };
    command.mut_args(unset).mut_subcommands(without_empty_variables)
}

/// Shows what is wrong with the command line, or the help that was asked for.
fn misused(error: &clap::Error) -> ExitCode {
    // There is no parsed command line to ask.
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

fn exit_served(result: Result<(), ServeError>, json: bool) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    leasehold_cli::report(&error.to_string(), error.hint().as_deref(), error.code(), error.exit_code(), json);
    ExitCode::from(error.exit_code())
}

/// Tells a client's failure, and ends as it does.
fn exit_asked(answered: Result<(), CliError>, json: bool) -> ExitCode {
    let Err(error) = answered else { return ExitCode::SUCCESS };
    error.report(json);
    ExitCode::from(error.exit_code())
}

fn run_server(args: ServeArgs) -> Result<(), ServeError> {
    let config = args.config()?;
    logging::start(&config.log)?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers()).enable_all().build()?.block_on(serve(config))
}

/// Threads that serve connections: one core is the committer's.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

fn export(args: ExportArgs, json: bool) -> Result<(), ServeError> {
    let data = stored(args.config, args.data)?.data_dir()?;
    let rows = match &args.output {
        Some(path) => {
            transfer::write_to(path, |file| transfer::export(&data, BufWriter::new(file)).map_err(io::Error::other))
                .map_err(|error| named(path, &error))?
        }
        None => transfer::export(&data, BufWriter::new(io::stdout().lock())).map_err(io::Error::other)?,
    };
    match &args.output {
        Some(path) if json => {
            let [data, output] = [&data, path].map(|path| path.display().to_string());
            tell(&json!({ "done": "exported", "rows": rows, "data": data, "output": output }))
        }
        // The lines themselves are JSON.
        _ => {
            eprintln!("exported {rows} rows from `{}`", data.display());
            Ok(())
        }
    }
}

/// Writes what was done to standard output, for machines.
fn tell(done: &Value) -> Result<(), ServeError> {
    Ok(writeln!(io::stdout().lock(), "{done}")?)
}

/// What is configured, with the data where the flag says.
fn stored(config: Option<PathBuf>, data: Option<PathBuf>) -> Result<Config, ConfigError> {
    let mut config = config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
    // What `serve` would serve from; a flag would say no more than that this is not for it.
    config.override_database(std::env::var(STORE_VARIABLE).ok().filter(|url| !url.is_empty()));
    match (&config.postgres, data) {
        (Some(postgres), None) => Err(ConfigError::NotEmbedded(postgres.shown_url())),
        (_, data) => Ok(Config { data: data.or(config.data), ..config }),
    }
}

fn import(args: ImportArgs, json: bool) -> Result<(), ServeError> {
    let config = stored(args.config, args.data)?;
    let data = config.data_dir()?;
    let rules = config.import_rules()?;
    let rows = match &args.input {
        Some(path) => {
            transfer::import(&data, BufReader::new(File::open(path).map_err(|error| named(path, &error))?), rules)
        }
        None => transfer::import(&data, io::stdin().lock(), rules),
    };
    let (rows, data) = (rows.map_err(io::Error::other)?, data.display().to_string());
    if json {
        return tell(&json!({ "done": "imported", "rows": rows, "data": data }));
    }
    eprintln!("imported {rows} rows into `{data}`");
    Ok(())
}

fn migrate(args: MigrateArgs, json: bool) -> Result<(), ServeError> {
    let mut config = args.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
    take_store(&mut config, args.store)?;
    if json {
        config.log.format = LogFormat::Json;
    }
    let settings = config.migration_database()?;
    logging::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (found, now) = runtime.block_on(PostgresStore::migrate(settings))?;
    let database = settings.shown_url();
    if json {
        return tell(&json!({ "done": "migrated", "database": database, "from": found, "to": now }));
    }
    match found == now {
        true => eprintln!("the tables in `{database}` have version {now} already"),
        false => eprintln!("migrated the tables in `{database}` from version {found} to {now}"),
    }
    Ok(())
}

fn named(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

fn ask(verb: Verb, json: bool) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit_served(Err(error.into()), json),
    };
    let answered = runtime.block_on(leasehold_cli::run(verb, json));
    // A look-up of a name that hangs is not waited for.
    runtime.shutdown_background();
    exit_asked(answered, json)
}
