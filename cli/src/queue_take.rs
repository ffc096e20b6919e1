//! The verb `queue take`: runs a command for each batch of a queue.

use std::ffi::OsString;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leasehold_client::{Batch, Batches, LockSession, SessionTerms, TakeTerms};
use serde_json::json;

use crate::error::{CliError, TenureKind, call_failed};
use crate::session::Session;
use crate::variables;
use crate::work::{self, Stops, Tenure, Work};

/// The longest time for which a worker that stops calls the server to give back what was on its way.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Arguments of `queue take`.
#[derive(Clone, Debug, clap::Args)]
pub struct TakeArgs {
    /// The queue
    queue: String,

    /// Take one batch, then end with the command's exit code
    #[arg(long)]
    once: bool,

    /// Take up to N requests of a key as one; with N above 1 the command reads a line of JSON for each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    max_requests: u32,

    /// The time until the next attempt after a failure; doubles with each attempt from 1 s to 300 s if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    retry_seconds: Option<u64>,

    /// The time without an answer of the server after which the command is in jeopardy
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration_seconds: u64,

    /// The time after that in which the command is ended, before the batch goes to another worker
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    grace_seconds: u64,

    /// The command, with its arguments
    ///
    /// It reads the body of the request from its standard input. It finds the queue in LEASEHOLD_QUEUE, the key in
    /// LEASEHOLD_REQUEST_KEY, the ids of the requests in LEASEHOLD_REQUESTS, the number of the attempt in
    /// LEASEHOLD_ATTEMPT, the fence in LEASEHOLD_FENCE, and the session in LEASEHOLD_SESSION. The exit code 0 completes
    /// the batch. After any other exit code it is tried again, up to the number of attempts of each request. A signal
    /// that stops this program reaches the command too; a batch that it did not complete is then given back.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn take(session: &Session<'_>, args: TakeArgs) -> Result<(), CliError> {
    session.open().await?;
    let client = session.connection.client()?;
    let mut stops = Stops::install()?;
    let terms = SessionTerms {
        duration: Duration::from_secs(args.duration_seconds),
        grace: Duration::from_secs(args.grace_seconds),
    };
    let worker = client.lock_session(terms).await.map_err(call_failed)?;
    let mut batches = worker.take(&args.queue, TakeTerms { credit: 1, max_requests: args.max_requests });
    let result = match next(&worker, &mut batches, &mut stops).await {
        Ok(Some(batch)) if args.once => {
            // No second batch comes while the first one is worked.
            stop(batches).await;
            work_on(&worker, &batch, &args, (terms, &mut stops)).await
        }
        Ok(first) => {
            let result = work_on_all(&worker, first, &mut batches, &args, (terms, &mut stops)).await;
            stop(batches).await;
            result
        }
        Err(error) => Err(error),
    };
    work::close(worker).await;
    result
}

/// Waits for the next batch; `None` if a signal stops the process.
async fn next(worker: &LockSession, batches: &mut Batches<'_>, stops: &mut Stops) -> Result<Option<Batch>, CliError> {
    tokio::select! {
        batch = batches.next() => batch.map(Some).map_err(call_failed),
        () = worker.lost() => Err(CliError::TenureLost(TenureKind::Batch)),
        _ = stops.next() => Ok(None),
    }
}

/// Gives back what was on its way. If that fails, it comes back with the end of the session, and the attempt counts.
async fn stop(batches: Batches<'_>) {
    if let Ok(Err(error)) = tokio::time::timeout(STOP_WITHIN, batches.stop()).await {
        eprintln!("warning: what was on its way is not given back: {error}");
    }
}

async fn work_on(
    worker: &LockSession,
    batch: &Batch,
    args: &TakeArgs,
    (terms, stops): (SessionTerms, &mut Stops),
) -> Result<(), CliError> {
    let work = Work {
        session: worker,
        tenure: Tenure::Batch { batch, retry_after: args.retry_seconds.map(Duration::from_secs) },
        terms,
        command: &args.command,
        environment: environment(worker, &args.queue, batch),
        input: Some(input(batch, args.max_requests)),
    };
    work.run(stops).await
}

/// Works on one batch after another, until a signal stops the process.
async fn work_on_all(
    worker: &LockSession,
    mut batch: Option<Batch>,
    batches: &mut Batches<'_>,
    args: &TakeArgs,
    (terms, stops): (SessionTerms, &mut Stops),
) -> Result<(), CliError> {
    while let Some(taken) = batch {
        if let Err(error) = work_on(worker, &taken, args, (terms, stops)).await {
            // Keys stay out of what may become a log (Q22).
            let ids: Vec<_> = taken.requests().iter().map(|request| request.id.to_string()).collect();
            eprintln!("warning: the work on {} has failed: {error}", ids.join(", "));
        }
        if stops.received.is_some() {
            break;
        }
        batch = next(worker, batches, stops).await?;
    }
    Ok(())
}

fn environment(worker: &LockSession, queue: &str, batch: &Batch) -> Vec<(&'static str, String)> {
    let ids: Vec<_> = batch.requests().iter().map(|request| request.id.to_string()).collect();
    let attempt = batch.requests().iter().map(|request| request.attempt).max().unwrap_or_default();
    vec![
        (variables::QUEUE, queue.to_owned()),
        (variables::REQUEST_KEY, batch.key().to_owned()),
        (variables::REQUESTS, ids.join("\n")),
        (variables::ATTEMPT, attempt.to_string()),
        (variables::FENCE, batch.fence().to_string()),
        (variables::SESSION, worker.id().to_string()),
    ]
}

/// Returns what the command reads: the body of the only request, or a line of JSON for each request.
fn input(batch: &Batch, max_requests: u32) -> Vec<u8> {
    if max_requests == 1 {
        return batch.requests().iter().flat_map(|request| request.body.clone()).collect();
    }
    let line = |request: &leasehold_client::TakenRequest| {
        let (id, body) = (request.id.to_string(), STANDARD.encode(&request.body));
        format!("{}\n", json!({"requestId": id, "attempt": request.attempt, "body": body}))
    };
    batch.requests().iter().map(line).collect::<String>().into_bytes()
}
