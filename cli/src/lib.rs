//! The client's part of the `leasehold` command line: a verb for each call of a server, and
//! `bench`.
//!
//! | file | content |
//! |---|---|
//! | `lib.rs` | the verbs, and their dispatch |
//! | `read.rs`, `update.rs`, `decommission.rs`, `bench.rs` | the verbs' arguments and their execution |
//! | `lock.rs`, `reap.rs`, `queue_take.rs`, `work.rs`, `variables.rs` | a command under a lock or a batch, and what it finds |
//! | `command_group.rs`, `terminal.rs` | the processes of a command, and its terminal |
//! | `locks.rs`, `queue.rs` | the lists of locks, and the verbs of queues |
//! | `scripts.rs` | completions for shells, and SQL |
//! | `session.rs`, `connection.rs`, `obstacle.rs` | the connection of a verb, its options, and the fault that broke it |
//! | `error.rs`, `refused.rs`, `exit.rs` | failures: messages, hints, exit codes |
//! | `words.rs`, `contract.rs`, `output.rs` | typed values, JSON and tables |
//!
//! The program of the crate `leasehold-server` parses the command line and calls [`run`]. Most
//! verbs use [`leasehold_client::Stub`], which sends each call once: the user decides if a call is
//! repeated, and the hint of a failed begin names the idempotency key for that. Two verbs of many
//! calls repeat calls themselves: `bench`, and `decommission` by [`leasehold_client::Client`].

mod bench;
mod command_group;
mod connection;
mod contract;
mod decommission;
mod error;
pub mod exit;
mod lock;
mod locks;
mod obstacle;
mod output;
mod queue;
mod queue_take;
mod read;
mod reap;
mod refused;
mod reload;
mod scripts;
mod session;
mod terminal;
mod update;
mod variables;
mod words;
mod work;

use clap::Subcommand;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{bucket, source, subject};

pub use bench::BenchArgs;
pub use connection::Connection;
pub use contract::ContractError;
pub use decommission::DecommissionArgs;
pub use error::{CliError, TenureKind, report};
pub use lock::LockArgs;
pub use locks::{ForceLockArgs, LocksArgs};
pub use queue::{
    HistoryArgs, LaneList, LimitArgs, ListArgs, PauseArgs, QueueVerb, RequestArgs, RequestsArgs, ShowArgs, StatusArgs,
    SubmitArgs,
};
pub use queue_take::TakeArgs;
pub use read::{CellsArgs, ClassifyArgs, GetArgs, LeasesArgs, RecordsArgs};
pub use reap::{ReapArgs, ResolveOrphanArgs};
pub use refused::RefusedCall;
pub use reload::ReloadArgs;
pub use scripts::{CaptureArgs, write_completions, write_script};
pub use session::Call;
pub use update::{BeginArgs, SettleArgs};
pub use words::{BucketArg, SourceArg, SourceIdArg, SubjectArg};

/// A call of a server.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// List the cells of the server's configuration
    Cells(Call<CellsArgs>),
    /// Begin an update: take a lease on all of its claims, or on none
    #[command(after_long_help = types_help())]
    Begin(Call<BeginArgs>),
    /// Commit a lease: make its changes final
    Commit(Call<SettleArgs>),
    /// Roll a lease back: undo its changes
    Rollback(Call<SettleArgs>),
    /// Show the record of one claim, and the cell that owns it
    #[command(after_long_help = records_help())]
    Get(Call<GetArgs>),
    /// Show the cell that a request belongs to
    #[command(after_long_help = types_help())]
    Classify(Call<ClassifyArgs>),
    /// List a cell's outstanding leases, oldest first
    Leases(Call<LeasesArgs>),
    /// List a cell's records of one table, in key order
    #[command(after_long_help = records_help())]
    Records(Call<RecordsArgs>),
    /// Count the data of a cell; with --drop, drop all of it
    Decommission(Call<DecommissionArgs>),
    /// Make a server read its configuration and certificates again, as SIGHUP does
    Reload(Call<ReloadArgs>),
    /// Run a command while it holds a lock, and release the lock when the command has ended
    Lock(Call<LockArgs>),
    /// List the locks of a namespace, with their holders and waiters
    Locks(Call<LocksArgs>),
    /// Take a lock from its holder; it passes on when the holder's time is over
    ForceLock(Call<ForceLockArgs>),
    /// Clean up after dead holders: run a command for each orphaned lock of a namespace that is reaped
    Reap(Call<ReapArgs>),
    /// Begin the cleanup of an orphaned lock again, or let the lock pass on
    ResolveOrphan(Call<ResolveOrphanArgs>),
    /// Hand work over: submit requests, run a command for each, and look at queues
    #[command(subcommand)]
    Queue(QueueVerb),
    /// Measure saves (one begin, one commit) against a server; leaves its claims behind
    ///
    /// Calls whose outcome is unknown are repeated, for half a minute after the last save was begun. If some calls
    /// failed, the result is shown, then the first error, and the exit code is that error's.
    Bench(Call<BenchArgs>),
}

/// Calls the server as `verb` says, and writes the answer to standard output: as JSON if `json` is
/// true, else as text for people.
///
/// # Errors
/// The command line is wrong, the server cannot be reached, or it refuses the call. The caller
/// should show the error with [`CliError::report`] and exit with [`CliError::exit_code`].
pub async fn run(verb: Verb, json: bool) -> Result<(), CliError> {
    match verb {
        Verb::Cells(call) => call.run(json, read::cells).await,
        Verb::Begin(call) => call.run(json, update::begin).await,
        Verb::Commit(call) => call.run(json, update::commit).await,
        Verb::Rollback(call) => call.run(json, update::rollback).await,
        Verb::Get(call) => call.run(json, read::get).await,
        Verb::Classify(call) => call.run(json, read::classify).await,
        Verb::Leases(call) => call.run(json, read::leases).await,
        Verb::Records(call) => call.run(json, read::records).await,
        Verb::Decommission(call) => call.run(json, decommission::decommission).await,
        Verb::Reload(call) => call.run(json, reload::reload).await,
        Verb::Lock(call) => call.run(json, lock::lock).await,
        Verb::Locks(call) => call.run(json, locks::locks).await,
        Verb::ForceLock(call) => call.run(json, locks::force).await,
        Verb::Reap(call) => call.run(json, reap::reap).await,
        Verb::ResolveOrphan(call) => call.run(json, reap::resolve).await,
        Verb::Queue(verb) => queue::run(verb, json).await,
        Verb::Bench(call) => call.run(json, bench::bench).await,
    }
}

fn records_help() -> String {
    format!("{}\n\n{}", types_help(), contract::JSON_HELP)
}

fn types_help() -> String {
    format!(
        "Bucket types: {}\nSubject types: {}\nSource tables: {}\n\nUpper or lower case, or the number on the wire.",
        words::names::<bucket::Type>(),
        words::names::<subject::Type>(),
        words::names::<source::Type>(),
    )
}
