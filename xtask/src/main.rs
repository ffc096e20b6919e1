//! The project's own commands, as `cargo xtask COMMAND`.

mod bench;
mod check;
mod needs;
mod process;
mod python;
mod web;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// As in the server: the engine is measured under the allocator that it runs under.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a shell reports for a command ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The project's own commands
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what the tests need, then run the lints and every test
    Test,
    /// Check format and lints; writes nothing
    Lint,
    /// Format the code and apply what clippy can fix by itself
    Fix,
    /// Build the npm package, with the engine compiled to WebAssembly
    Web,
    /// Run the tests of the engine and of the simulation as WebAssembly in Node
    WebTest,
    /// Build the Python package as people get it, and install it into an environment of its own
    Python,
    /// Build the Python package quickly, install it there, and check and test it
    PythonTest {
        /// Test the wheel that people get, which takes longer to build
        #[arg(long)]
        release: bool,
    },
    /// Measure, and print a table: ours, the peer, their ratio, the machine
    Bench(bench::Arguments),
}

// What drives the load of a benchmark shares the processors with what it measures: one thread is the cheapest.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tokio::select! {
        outcome = run(arguments.command) => report(outcome),
        // Dropping `run` ends the processes that it started.
        _ = interrupted() => ExitCode::from(INTERRUPTED),
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Test => {
            // Ruby and Python before their packages: they are asked which of them they have.
            needs::install(&[needs::FOR_EXTENSION, needs::FOR_PYTHON].concat())?;
            needs::install(
                &[needs::FOR_TESTS, needs::FOR_GEM, needs::FOR_NPM, needs::FOR_PAGE, needs::FOR_VENV].concat(),
            )?;
            needs::install_components()?;
            check::test().await
        }
        Command::Lint => {
            needs::install(&[needs::FOR_EXTENSION, needs::FOR_PYTHON].concat())?;
            check::lint().await
        }
        Command::Fix => {
            needs::install(&[needs::FOR_EXTENSION, needs::FOR_PYTHON].concat())?;
            check::fix().await
        }
        Command::Web => {
            needs::install(needs::FOR_NPM)?;
            web::build().await
        }
        Command::WebTest => {
            needs::install(needs::FOR_NPM)?;
            web::suites::test().await
        }
        Command::Python => {
            needs::install(needs::FOR_PYTHON)?;
            needs::install(needs::FOR_VENV)?;
            python::build().await
        }
        Command::PythonTest { release } => {
            needs::install(needs::FOR_PYTHON)?;
            needs::install(needs::FOR_VENV)?;
            python::test(release).await
        }
        Command::Bench(arguments) => bench::run(arguments).await,
    }
}

fn report(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns at the first SIGINT or SIGTERM.
async fn interrupted() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}
