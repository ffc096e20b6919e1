//! The client's half of the command line: one verb for each thing a server can be asked.

mod bench;
mod connection;
mod contract;
mod error;
mod output;
mod read;
mod update;
mod words;

use std::io;

use clap::Subcommand;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{bucket, source, subject};
use leasehold_proto::gitlab::cells::topology_service::classify_service_client::ClassifyServiceClient;
use tonic::transport::Channel;

pub use bench::BenchArgs;
pub use connection::Connection;
pub use error::{ClientError, EXIT_CODES, Refusal};
pub use read::{ClassifyArgs, GetArgs, LeasesArgs, RecordsArgs};
pub use update::{BeginArgs, SettleArgs};
pub use words::{BucketArg, SourceArg, SourceIdArg, SubjectArg};

/// A page of records is bounded by the server, but its records carry the cells' own data.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// What to ask a server.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// List the cells that the server is configured with
    Cells,
    /// Begin an update: take a lease on all of its claims, or on none
    #[command(after_long_help = types_help())]
    Begin(BeginArgs),
    /// Commit a lease: make its changes final
    Commit(SettleArgs),
    /// Roll a lease back: take its changes back
    Rollback(SettleArgs),
    /// Show the record of one claim, and the cell that holds it
    #[command(after_long_help = types_help())]
    Get(GetArgs),
    /// Ask which cell a request belongs to
    #[command(after_long_help = types_help())]
    Classify(ClassifyArgs),
    /// List a cell's outstanding leases, oldest first
    Leases(LeasesArgs),
    /// List a cell's records out of one table, in key order
    #[command(after_long_help = types_help())]
    Records(RecordsArgs),
    /// Measure saves (one begin, one commit) against a server; leaves its claims behind
    Bench(BenchArgs),
}

/// Asks the server what `verb` says, and writes the answer to stdout: for people, or as JSON.
///
/// # Errors
/// When the question is malformed, the server cannot be reached, or it refuses. Show it with
/// [`ClientError::report`] and exit with [`ClientError::exit_code`].
pub async fn run(connection: &Connection, verb: Verb, json: bool) -> Result<(), ClientError> {
    match answer(&Session { connection, json }, verb).await {
        // Whoever reads the output has seen enough.
        Err(ClientError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        answered => answered,
    }
}

async fn answer(session: &Session<'_>, verb: Verb) -> Result<(), ClientError> {
    match verb {
        Verb::Cells => read::cells(session).await,
        Verb::Begin(args) => update::begin(session, args).await,
        Verb::Commit(args) => update::commit(session, args).await,
        Verb::Rollback(args) => update::rollback(session, args).await,
        Verb::Get(args) => read::get(session, args).await,
        Verb::Classify(args) => read::classify(session, args).await,
        Verb::Leases(args) => read::leases(session, args).await,
        Verb::Records(args) => read::records(session, args).await,
        Verb::Bench(args) => bench::bench(session, args).await,
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

fn types_help() -> String {
    format!(
        "Bucket types: {}\nSubject types: {}\nSource tables: {}\n\nUpper or lower case, or the number on the wire.",
        words::names::<bucket::Type>(),
        words::names::<subject::Type>(),
        words::names::<source::Type>(),
    )
}
