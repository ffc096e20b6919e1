//! `cargo xtask bench`: runs the benchmarks and prints a table. A module measures each row of the
//! table, or a few related rows, and returns [`Row`]s.

mod begin_p99_vs_etcd;
mod bulk;
mod captures;
mod connection;
mod directory;
mod engine;
mod etcd;
mod job_queues;
mod load;
mod lock_waiters_vs_etcd;
mod locks_postgres_vs_pgbench;
mod locks_vs_etcd;
mod locks_vs_seed_004;
mod locks_vs_zookeeper;
mod machine;
mod million_leases;
mod ours;
mod pgbench;
mod polled_leases;
mod postgres;
mod queue_depth;
mod queue_start;
mod queue_stuck_key;
mod queues;
mod row;
mod saves_etcd_store;
mod saves_postgres_vs_pgbench;
mod saves_vs_etcd;
mod script;
mod server;
mod sessions;
mod simulation;
mod ten_million;
mod verify_python;
mod verify_ruby_vs_plain;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::{Args, Parser, ValueEnum};
use tokio::sync::OnceCell;

use self::machine::Machine;
use self::row::Row;
use self::saves_vs_etcd::Comparison;
use self::ten_million::TenMillion;

/// The allocator is the server's, so that the engine is measured with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure, and print a table: ours, the peer, their ratio, the machine
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    /// The row to run; every row when left out
    name: Option<Name>,

    /// Print each row as one JSON object on a line of its own, and nothing else, to standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    load: LoadArguments,
}

/// The arguments of the load, which is the same on Leasehold's servers and on the peers.
#[derive(Args, Clone, Copy)]
struct LoadArguments {
    /// Seconds measured in each round
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Seconds of load before each measurement, to let caches and connections settle
    #[arg(long, value_name = "N", default_value_t = 2)]
    warm_up_seconds: u32,

    /// Rounds, ours and the peer in turn; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Concurrent clients; each starts its next save when its last one is answered
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,

    /// Connections that the clients share, the same number for ours and for the peer [default: one for 8 clients]
    ///
    /// A connection carries many calls at a time (HTTP/2), and a cell's client keeps few of them. More connections cost
    /// both sides more system calls for the same work.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,

    /// Requests that wait in the rows queue-take-waiting and queue-take-settled
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100_000..))]
    waiting: u64,
}

impl LoadArguments {
    fn connections(&self) -> u32 {
        self.connections.unwrap_or_else(|| self.clients.div_ceil(8))
    }
}

/// The names of the table's rows.
#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// Saves a second: a begin of 4 claims and its commit, each durable before it is answered
    SavesVsEtcd,
    /// Saves a second of a server whose store is in three nodes of etcd, beside one hand-written transaction a save
    /// on the same nodes
    SavesEtcdStore,
    /// Locks acquired and released in a second, each write durable before it is answered
    LocksVsEtcd,
    /// The same, beside the lock recipe of ZooKeeper
    #[value(name = "locks-vs-zookeeper")]
    LocksVsZooKeeper,
    /// The same on PostgreSQL, beside two hand-written statements that pgbench has prepared
    LocksPostgresVsPgbench,
    /// The time from a release to the next grant that 99 of 100 hand-overs stay within, of 64 clients at
    /// 16 locks on PostgreSQL, beside leases with deadlines whose waiters poll
    #[value(name = "locks-vs-seed-004")]
    LocksVsSeed004,
    /// The time from a release to the next grant that 99 of 100 hand-overs stay within, of one lock
    /// with 1,000 waiters
    LockWaitersVsEtcd,
    /// Requests submitted, taken and completed in a second on the embedded store, each write durable before it is
    /// answered, beside the 10,000 asked for
    QueueEmbedded,
    /// The same in batches of 50 of one key, beside the 50,000 asked for
    QueueEmbeddedBatches,
    /// The median time from a submit until an idle worker has the request, on the embedded store, beside the 5 ms allowed
    QueueStartEmbedded,
    /// The same on PostgreSQL, with the worker at another server than the submit, beside the 50 ms allowed
    QueueStartTwoServers,
    /// Requests one by one on PostgreSQL, beside seed 001's statements, which pgbench has prepared
    QueueVsPgbench,
    /// The same in batches of 50
    QueueBatchesVsPgbench,
    /// The same one by one, beside pgqueuer on the same PostgreSQL
    QueueVsPgqueuer,
    /// The same, beside pg-boss
    QueueVsPgBoss,
    /// The same, beside graphile-worker
    QueueVsGraphile,
    /// The same, beside procrastinate
    QueueVsProcrastinate,
    /// The median time of a take with `--waiting` requests in the queue, compared with 10 thousand
    QueueTakeWaiting,
    /// The median time of a take after `--waiting` requests were settled, compared with before
    QueueTakeSettled,
    /// Requests in a second on the embedded store while one key is stuck with 10,000 requests, compared with none
    QueueStuckKey,
    /// Milliseconds of an UPDATE of 100,000 rows whose keys are captured into the outbox, compared with
    /// the UPDATE alone
    CaptureKeys,
    /// The same with old and new values of two columns
    CaptureColumns,
    /// The server's processor time for the renewal of one of 100,000 sessions, without a write to the
    /// disk, beside the 30 µs allowed
    SessionsRenewal,
    /// The share of a core with which the server watches 100,000 sessions, beside the 2 % allowed
    SessionsScan,
    /// Rows that a server writes to PostgreSQL in a second while 100,000 sessions renew, beside the one
    /// allowed
    SessionsPostgresRows,
    /// Saves a second on PostgreSQL, beside hand-written statements run by pgbench on the same cluster
    SavesPostgresVsPgbench,
    /// Saves a second of two servers on one PostgreSQL, compared with one server
    SavesTwoServers,
    /// The time that 99 of 100 begins stay within, under the load of saves-vs-etcd
    BeginP99VsEtcd,
    /// Saves a second of the engine alone, in memory, on one core, beside the 300,000 asked for
    EngineSaves,
    /// The median time of a begin with 10 million claims stored, compared with 10 thousand
    #[value(name = "begin-10m-vs-10k")]
    Begin10mVs10k,
    /// The median time of a begin on PostgreSQL with 10 million claims stored, compared with 10
    /// thousand
    #[value(name = "begin-postgres-10m-vs-10k")]
    BeginPostgres10mVs10k,
    /// Megabytes that the server has resident with 10 million claims stored, beside the 300 allowed
    #[value(name = "memory-10m")]
    Memory10m,
    /// Seconds from the start after SIGKILL under load, with 10 million claims stored, to the first answer, beside the 2 allowed
    #[value(name = "restart-10m")]
    Restart10m,
    /// The median time to list 10 outstanding leases after a million were settled, compared with
    /// before
    LeasesAfterMillion,
    /// Claims a second that a verification compares from Ruby, beside the algorithm in plain Ruby
    VerifyRubyVsPlain,
    /// Claims a second that a verification compares from Python's Arrow tables, beside the algorithm in plain Python
    VerifyPythonVsPlain,
    /// Claims a second that a verification compares from Python on two threads, compared with one
    /// thread
    VerifyPythonThreads,
    /// Events a second that the simulation plays natively, each of them checked, beside the 500,000 asked for
    SimulationNative,
    /// Events a second that the simulation plays, describes and keeps through the wasm file in
    /// Node, beside the 150,000 asked for
    SimulationNode,
}

impl Name {
    /// True if a Ruby or Python program measures the row. Such a program uses neither the benchmark
    /// program nor the server, so these need no optimised build.
    const fn is_measured_elsewhere(self) -> bool {
        matches!(self, Self::VerifyRubyVsPlain | Self::VerifyPythonVsPlain | Self::VerifyPythonThreads)
    }
}

// The load runs on one thread, which uses the least processor time. The load shares the processors
// with the measured server.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    xtask::process::until_interrupted(run(Arguments::parse())).await
}

/// The measurements that several rows share within one run of the command.
struct Context {
    load: LoadArguments,
    comparison: OnceCell<Comparison>,
    ten_million: OnceCell<TenMillion>,
    postgres: OnceCell<saves_postgres_vs_pgbench::Comparison>,
    sessions: OnceCell<sessions::Embedded>,
    queue_depth: OnceCell<queue_depth::Depth>,
}

impl Context {
    fn new(load: LoadArguments) -> Self {
        let (comparison, ten_million, postgres, sessions, queue_depth) = Default::default();
        Self { load, comparison, ten_million, postgres, sessions, queue_depth }
    }

    /// Returns the figures of Leasehold and of etcd under the same load. The first call measures
    /// them.
    async fn comparison(&self) -> Result<&Comparison> {
        self.comparison.get_or_try_init(|| saves_vs_etcd::compare(&self.load)).await
    }

    /// Returns the figures of Leasehold on PostgreSQL and of pgbench under the same load. The first
    /// call measures them.
    async fn postgres(&self) -> Result<&saves_postgres_vs_pgbench::Comparison> {
        self.postgres.get_or_try_init(|| saves_postgres_vs_pgbench::compare(&self.load)).await
    }

    /// Returns the figures of a server with 100,000 sessions. The first call measures them.
    async fn sessions(&self) -> Result<&sessions::Embedded> {
        self.sessions.get_or_try_init(sessions::embedded).await
    }

    /// Returns the times of takes from a short and a long queue. The first call measures them.
    async fn queue_depth(&self) -> Result<&queue_depth::Depth> {
        self.queue_depth.get_or_try_init(|| queue_depth::measure(&self.load)).await
    }

    /// Returns the figures of a server with 10 million claims. The first call measures them.
    async fn ten_million(&self) -> Result<&TenMillion> {
        self.ten_million.get_or_try_init(|| ten_million::measure(&self.load)).await
    }
}

/// Measures the requested rows and prints them.
///
/// # Errors
/// A row cannot be measured. A missed target is no error.
async fn run(arguments: Arguments) -> Result<()> {
    let names = arguments.name.map_or_else(|| Name::value_variants().to_vec(), |name| vec![name]);
    if cfg!(debug_assertions) && !names.iter().all(|name| name.is_measured_elsewhere()) {
        return Err(run_optimised()).context("the release build of this command cannot be run");
    }
    let context = Context::new(arguments.load);
    let tell = |row: &Row| if arguments.json { print_json(row) } else { Ok(()) };
    let rows = each(names, async |name| measure(name, &context).await, tell).await?;
    if !arguments.json {
        println!("{}\n{}", row::table(&rows), Machine::here(directory::new()?.path())?);
    }
    Ok(())
}

/// Measures the rows one after the other, and passes each to `tell` at once. All rows take an hour,
/// and if one fails, the figures of the rows before it must not be lost.
async fn each(
    names: Vec<Name>,
    measure: impl AsyncFn(Name) -> Result<Row>,
    tell: impl Fn(&Row) -> Result<()>,
) -> Result<Vec<Row>> {
    let mut rows = Vec::with_capacity(names.len());
    for name in names {
        let row = measure(name).await?;
        tell(&row)?;
        rows.push(row);
    }
    Ok(rows)
}

/// Replaces this process with its release build, because the clients share the machine with the
/// servers and must be fast too. Returns only if that fails, with the error.
fn run_optimised() -> std::io::Error {
    match ours::programs() {
        Ok(programs) => Command::new(programs.bench).args(std::env::args_os().skip(1)).exec(),
        Err(error) => std::io::Error::other(format!("{error:#}")),
    }
}

async fn measure(name: Name, context: &Context) -> Result<Row> {
    match name {
        Name::SavesVsEtcd => saves_vs_etcd::row(context).await,
        Name::SavesEtcdStore => saves_etcd_store::row(context).await,
        Name::LocksVsEtcd => locks_vs_etcd::row(context).await,
        Name::LocksVsZooKeeper => locks_vs_zookeeper::row(context).await,
        Name::LocksPostgresVsPgbench => locks_postgres_vs_pgbench::row(context).await,
        Name::LocksVsSeed004 => locks_vs_seed_004::row(context).await,
        Name::LockWaitersVsEtcd => lock_waiters_vs_etcd::row(context).await,
        Name::QueueEmbedded => queues::embedded(context).await,
        Name::QueueEmbeddedBatches => queues::embedded_batches(context).await,
        Name::QueueStartEmbedded => queue_start::embedded(context).await,
        Name::QueueStartTwoServers => queue_start::two_servers(context).await,
        Name::QueueVsPgbench => queues::vs_pgbench(context).await,
        Name::QueueBatchesVsPgbench => queues::batches_vs_pgbench(context).await,
        Name::QueueVsPgqueuer => job_queues::vs_pgqueuer(context).await,
        Name::QueueVsPgBoss => job_queues::vs_pg_boss(context).await,
        Name::QueueVsGraphile => job_queues::vs_graphile(context).await,
        Name::QueueVsProcrastinate => job_queues::vs_procrastinate(context).await,
        Name::QueueTakeWaiting => Ok(context.queue_depth().await?.waiting_row()),
        Name::QueueTakeSettled => Ok(context.queue_depth().await?.settled_row()),
        Name::QueueStuckKey => queue_stuck_key::row(context).await,
        Name::CaptureKeys => captures::keys().await,
        Name::CaptureColumns => captures::columns().await,
        Name::SessionsRenewal => Ok(context.sessions().await?.renewal_row()),
        Name::SessionsScan => Ok(context.sessions().await?.scan_row()),
        Name::SessionsPostgresRows => sessions::on_postgres().await,
        Name::SavesPostgresVsPgbench => saves_postgres_vs_pgbench::row(context).await,
        Name::SavesTwoServers => context.postgres().await?.two_servers_row(),
        Name::BeginP99VsEtcd => begin_p99_vs_etcd::row(context).await,
        Name::EngineSaves => engine::row(),
        Name::Begin10mVs10k => Ok(context.ten_million().await?.begin_row()),
        Name::BeginPostgres10mVs10k => ten_million::on_postgres(&context.load).await,
        Name::Memory10m => Ok(context.ten_million().await?.memory_row()),
        Name::Restart10m => Ok(context.ten_million().await?.restart_row()),
        Name::LeasesAfterMillion => million_leases::row().await,
        Name::VerifyRubyVsPlain => verify_ruby_vs_plain::row().await,
        Name::VerifyPythonVsPlain => verify_python::vs_plain().await,
        Name::VerifyPythonThreads => verify_python::threads().await,
        Name::SimulationNative => simulation::native().await,
        Name::SimulationNode => simulation::in_node().await,
    }
}

fn print_json(row: &Row) -> Result<()> {
    println!("{}", serde_json::to_string(row)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::cell::RefCell;

    use super::row::{Better, Heading};
    use super::*;

    const HEADING: Heading = Heading { name: "rate", unit: "saves/s", better: Better::Higher, target: 1.0 };

    #[tokio::test]
    async fn a_row_is_told_before_the_next_one_is_measured() {
        let told = RefCell::new(0);
        let measure = async |name| match name {
            Name::SavesVsEtcd => Ok(HEADING.row(2.0, 1.0)),
            _ => {
                assert_eq!(*told.borrow(), 1);
                anyhow::bail!("it can't be measured")
            }
        };
        let tell = |_: &Row| {
            *told.borrow_mut() += 1;
            Ok(())
        };
        let failed = each(vec![Name::SavesVsEtcd, Name::EngineSaves], measure, tell).await;
        assert!(failed.is_err() && *told.borrow() == 1);
    }
}
