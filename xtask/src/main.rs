//! The project's own commands, as `cargo xtask COMMAND`.

mod bundlers;
mod check;
mod cluster_shell;
mod container;
mod debian;
mod deep;
mod docs;
mod fuzz;
mod installation;
mod pipeline;
mod postgres_versions;
mod rails;
mod release;
mod upgrade;
mod web;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, value_parser};
use xtask::process::{as_a_person, root, run as run_command, until_interrupted};
use xtask::{needs, python};

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
    Test {
        /// Repeat a part of the tests with new seeds instead; counts add up in `target/deep.jsonl`
        #[arg(long, value_name = "PART")]
        deep: Option<deep::Part>,

        /// Minutes after which a deep part starts no further round
        #[arg(long, value_name = "N", default_value_t = 55, requires = "deep")]
        minutes: u64,

        /// The number of rounds that run at the same time, for parts that mostly wait
        #[arg(long, value_name = "N", default_value_t = 1, requires = "deep", value_parser = value_parser!(u8).range(1..))]
        at_once: u8,
    },
    /// Check format and lints; writes nothing
    Lint,
    /// Format the code and apply what clippy can fix by itself
    Fix,
    /// Build the npm package, with the engine compiled to WebAssembly
    Web {
        /// Compile to WebAssembly only
        #[arg(long, conflicts_with = "no_compile")]
        no_package: bool,

        /// Build the package from the wasm files that are compiled already
        #[arg(long)]
        no_compile: bool,
    },
    /// Run the tests of the engine and of the simulation as WebAssembly in Node
    WebTest {
        /// Only compile the tests
        #[arg(long)]
        no_run: bool,
    },
    /// Build a server with the page that `web` built, and test the page in a browser
    PageTest {
        /// Build the server only
        #[arg(long, conflicts_with = "no_build")]
        no_run: bool,

        /// Test with the server that is built already
        #[arg(long)]
        no_build: bool,
    },
    /// Build the Python package as people get it, and install it into an environment of its own
    Python,
    /// Build the Python package quickly, install it there, and check and test it
    PythonTest {
        /// Test the wheel that people get, which takes longer to build
        #[arg(long)]
        release: bool,

        /// Build and install it only
        #[arg(long, conflicts_with = "no_build")]
        no_run: bool,

        /// Check and test the package that is installed already
        #[arg(long)]
        no_build: bool,
    },
    /// Build the Python packages of a release, and try them in fresh environments
    PythonRelease {
        /// Build them only
        #[arg(long, conflicts_with = "no_build")]
        no_run: bool,

        /// Try the packages that are built already
        #[arg(long)]
        no_build: bool,
    },
    /// Run the gem's specs on the Rails of Debian's next release, with this machine's Ruby
    RailsTest {
        /// Only download Rails
        #[arg(long)]
        no_run: bool,
    },
    /// Build the book; the first time installs mdBook
    Docs,
    /// Compile all native code for the tests, with the features that every package's tests need
    WorkspaceBuild,
    /// Build the packages of a release into `target/package`
    Package,
    /// Start PostgreSQL under Patroni on three machines in namespaces, and two servers, to play with and break
    Cluster,
    /// Check the rules of `deny.toml`; the first time installs cargo-deny
    Deny {
        /// Also look for known faults in dependencies, whose list is downloaded
        #[arg(long)]
        advisories: bool,
    },
    /// Measure, and print a table: ours, the peer, their ratio, the machine
    #[command(disable_help_flag = true)]
    Bench {
        /// The arguments of the benchmarks; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    until_interrupted(run(Arguments::parse().command)).await
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Test { deep, minutes, at_once } => {
            install_for_tests()?;
            match deep {
                Some(part) => deep::run(part, minutes, at_once.into()).await,
                None => check::test().await,
            }
        }
        Command::Lint => {
            install_for_extensions()?;
            check::lint().await
        }
        Command::Fix => {
            install_for_extensions()?;
            check::fix().await
        }
        Command::Web { no_package, no_compile } => {
            needs::install(needs::FOR_NPM)?;
            if !no_compile {
                web::compile().await?;
            }
            if no_package { Ok(()) } else { web::package().await }
        }
        Command::WebTest { no_run } => {
            needs::install(needs::FOR_NPM)?;
            web::suites::test(!no_run).await
        }
        Command::PageTest { no_run, no_build } => {
            needs::install(&[needs::FOR_NPM, needs::FOR_PAGE].concat())?;
            if !no_build {
                check::build_server_with_page().await?;
            }
            if no_run { Ok(()) } else { check::test_page().await }
        }
        Command::Python => {
            needs::install(&[needs::FOR_PYTHON, needs::FOR_VENV].concat())?;
            python::build().await
        }
        Command::PythonTest { release, no_run, no_build } => {
            needs::install(&[needs::FOR_PYTHON, needs::FOR_VENV].concat())?;
            if !no_build {
                python::build_for_tests(release).await?;
            }
            if no_run { Ok(()) } else { python::test(release).await }
        }
        Command::PythonRelease { no_run, no_build } => python_release(!no_build, !no_run).await,
        Command::RailsTest { no_run } => {
            needs::install(needs::FOR_GEM)?;
            rails::prepare().await?;
            if no_run { Ok(()) } else { rails::test().await }
        }
        Command::Docs => {
            needs::install(needs::FOR_NPM)?;
            docs::build().await
        }
        Command::WorkspaceBuild => {
            install_for_extensions()?;
            needs::install_nextest()?;
            check::build_workspace().await
        }
        Command::Cluster => cluster_shell::run().await,
        Command::Package => release::package().await,
        Command::Deny { advisories } => release::deny(advisories).await,
        Command::Bench { arguments } => bench(&arguments).await,
    }
}

/// Builds the Python packages of a release, and tries them.
async fn python_release(builds: bool, runs: bool) -> Result<()> {
    needs::install(&[needs::FOR_PYTHON, needs::FOR_VENV].concat())?;
    if builds {
        python::build_release().await?;
    }
    if runs { python::test_release().await } else { Ok(()) }
}

/// Installs what a build of the whole workspace needs, since it compiles both extensions.
fn install_for_extensions() -> Result<()> {
    needs::install(&[needs::FOR_EXTENSION, needs::FOR_PYTHON].concat())
}

/// Installs what the tests of every package need.
fn install_for_tests() -> Result<()> {
    // Ruby and Python are installed first, because later checks run them to look for their packages.
    install_for_extensions()?;
    needs::install(
        &[needs::FOR_TESTS, needs::FOR_CLUSTER, needs::FOR_GEM, needs::FOR_NPM, needs::FOR_PAGE, needs::FOR_VENV]
            .concat(),
    )?;
    needs::install_components()?;
    needs::install_nextest()
}

/// Runs the benchmarks. They are a separate program because their dependencies take minutes to
/// compile.
async fn bench(arguments: &[OsString]) -> Result<()> {
    let mut cargo = as_a_person("cargo");
    cargo.args(["run", "--quiet", "--package", "leasehold-bench", "--"]).args(arguments).current_dir(root());
    run_command(&mut cargo).await
}
