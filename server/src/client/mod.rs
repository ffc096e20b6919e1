//! The client's half of the command line: one verb for each thing a server can be asked.

mod bench;
mod connection;
mod contract;
mod error;
mod handshake;
mod output;
mod read;
mod update;
mod words;

use std::io;
use std::time::Instant;

use clap::{Args, Subcommand};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{bucket, source, subject};
use leasehold_proto::gitlab::cells::topology_service::classify_service_client::ClassifyServiceClient;
use tonic::transport::Channel;

pub use bench::BenchArgs;
pub use connection::Connection;
pub(crate) use error::exit_code_of;
pub use error::{ClientError, EXIT_CODES, Refusal, USAGE, report};
pub use read::{CellsArgs, ClassifyArgs, GetArgs, LeasesArgs, RecordsArgs};
pub use update::{BeginArgs, SettleArgs};
pub use words::{BucketArg, SourceArg, SourceIdArg, SubjectArg};

/// A page of records is bounded by the server, but its records carry the cells' own data.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// What to ask a server.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// List the cells that the server is configured with
    Cells(Ask<CellsArgs>),
    /// Begin an update: take a lease on all of its claims, or on none
    #[command(after_long_help = types_help())]
    Begin(Ask<BeginArgs>),
    /// Commit a lease: make its changes final
    Commit(Ask<SettleArgs>),
    /// Roll a lease back: take its changes back
    Rollback(Ask<SettleArgs>),
    /// Show the record of one claim, and the cell that holds it
    #[command(after_long_help = records_help())]
    Get(Ask<GetArgs>),
    /// Ask which cell a request belongs to
    #[command(after_long_help = types_help())]
    Classify(Ask<ClassifyArgs>),
    /// List a cell's outstanding leases, oldest first
    Leases(Ask<LeasesArgs>),
    /// List a cell's records out of one table, in key order
    #[command(after_long_help = records_help())]
    Records(Ask<RecordsArgs>),
    /// Measure saves (one begin, one commit) against a server; leaves its claims behind
    ///
    /// Calls whose outcome is open are repeated, for half a minute after the last save was begun. When some calls failed,
    /// it shows the result, then the first error, and exits with that error's code.
    Bench(Ask<BenchArgs>),
}

/// What a verb asks, and whom.
#[derive(Clone, Debug, Args)]
pub struct Ask<A: Args> {
    #[command(flatten)]
    args: A,
    #[command(flatten)]
    connection: Connection,
}

impl<A: Args> Ask<A> {
    async fn answer(
        self,
        json: bool,
        verb: impl AsyncFnOnce(&Session<'_>, A) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let start = Instant::now();
        match verb(&Session { connection: &self.connection, json }, self.args).await {
            // Whoever reads the output has seen enough.
            Err(ClientError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if error.is_of_connection() => {
                let left = self.connection.timeout().saturating_sub(start.elapsed());
                Err(handshake::explain(&self.connection, left).await.unwrap_or(error))
            }
            answered => answered.map_err(|error| error.shown(self.connection.cert.as_deref())),
        }
    }
}

/// Asks the server what `verb` says, and writes the answer to stdout: for people, or as JSON.
///
/// # Errors
/// When the question is malformed, the server cannot be reached, or it refuses. Show it with
/// [`ClientError::report`] and exit with [`ClientError::exit_code`].
pub async fn run(verb: Verb, json: bool) -> Result<(), ClientError> {
    match verb {
        Verb::Cells(ask) => ask.answer(json, read::cells).await,
        Verb::Begin(ask) => ask.answer(json, update::begin).await,
        Verb::Commit(ask) => ask.answer(json, update::commit).await,
        Verb::Rollback(ask) => ask.answer(json, update::rollback).await,
        Verb::Get(ask) => ask.answer(json, read::get).await,
        Verb::Classify(ask) => ask.answer(json, read::classify).await,
        Verb::Leases(ask) => ask.answer(json, read::leases).await,
        Verb::Records(ask) => ask.answer(json, read::records).await,
        Verb::Bench(ask) => ask.answer(json, bench::bench).await,
    }
}

/// One invocation: whom to ask, and how to show the answer.
struct Session<'a> {
    connection: &'a Connection,
    json: bool,
}

impl Session<'_> {
    async fn claims(&self) -> Result<ClaimServiceClient<Channel>, ClientError> {
        let channel = self.connection.open().await?;
        Ok(ClaimServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    async fn classifier(&self) -> Result<ClassifyServiceClient<Channel>, ClientError> {
        Ok(ClassifyServiceClient::new(self.connection.open().await?))
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
