//! The verb `queue take`: runs a command for each batch of a queue.

use std::ffi::OsString;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leasehold_client::{Batch, Batches, Client, Error, LockSession, Refusal, SessionTerms, TakeTerms};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::error::{CliError, call_failed};
use crate::session::Session;
use crate::variables;
use crate::work::{self, Stops, Tenure, Work};

/// The longest time for which a worker that stops calls the server to give back what was on its way.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The pause before a server that is away is called again.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

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
    /// LEASEHOLD_REQUEST_KEY, the ids of the requests in LEASEHOLD_REQUESTS, one a line, the number of the attempt in
    /// LEASEHOLD_ATTEMPT, the fence in LEASEHOLD_FENCE, and the session in LEASEHOLD_SESSION. The exit code 0 completes
    /// the batch. After any other exit code it is tried again, up to the number of attempts of each request. A signal
    /// that stops this program reaches the command too; a batch that it did not complete is then given back. If the
    /// session is lost, its command is ended, and the program goes on with a new session, as soon as it reaches the
    /// server. A command that can't be started ends the program, and the batch is given back.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The end of a session of a worker.
enum Ended {
    /// The worker has done its work, or was stopped.
    Finished,
    /// The session was lost.
    SessionLost,
    /// The server is away for now.
    Away(CliError),
}

/// The outcome of a wait for a batch.
enum Next {
    Batch(Box<Batch>),
    Stopped(Signal),
    SessionLost,
    Away(CliError),
}

pub(crate) async fn take(session: &Session<'_>, args: TakeArgs) -> Result<(), CliError> {
    // A worker that can't reach the server at its start is set up wrongly, so it says so at once.
    session.open().await?;
    let client = session.connection.client()?;
    let mut stops = Stops::install()?;
    loop {
        match work_under_session(&client, &args, &mut stops).await? {
            Ended::Finished => return Ok(()),
            Ended::SessionLost => eprintln!("warning: the session was lost: the worker goes on with a new one"),
            Ended::Away(error) => {
                eprintln!("warning: the worker tries again: {error}");
                tokio::select! {
                    signal = stops.next() => return stopped(signal, &args),
                    () = tokio::time::sleep(AWAY_PAUSE) => {}
                }
            }
        }
    }
}

/// Returns the result of a worker that a signal has stopped while it had no batch.
fn stopped(signal: Signal, args: &TakeArgs) -> Result<(), CliError> {
    if args.once { Err(CliError::Ended(128 + signal as u8)) } else { Ok(()) }
}

/// Works under a new session, to its end.
async fn work_under_session(client: &Client, args: &TakeArgs, stops: &mut Stops) -> Result<Ended, CliError> {
    let terms = SessionTerms {
        duration: Duration::from_secs(args.duration_seconds),
        grace: Duration::from_secs(args.grace_seconds),
    };
    let opened = tokio::select! {
        biased;
        signal = stops.next() => return stopped(signal, args).map(|()| Ended::Finished),
        opened = client.lock_session(terms) => opened.map_err(call_failed),
    };
    let worker = match opened {
        Err(error) if error.is_temporary() => return Ok(Ended::Away(error)),
        opened => opened?,
    };
    let ended = match args.once {
        true => work_once(&worker, args, terms, stops).await,
        false => work_on_all(&worker, args, terms, stops).await,
    };
    work::close(worker).await;
    ended
}

fn batches<'a>(worker: &'a LockSession, args: &TakeArgs) -> Batches<'a> {
    worker.take(&args.queue, TakeTerms { credit: 1, max_requests: args.max_requests })
}

/// Works on one batch.
async fn work_once(
    worker: &LockSession,
    args: &TakeArgs,
    terms: SessionTerms,
    stops: &mut Stops,
) -> Result<Ended, CliError> {
    let mut batches = batches(worker, args);
    let next = next(&mut batches, stops).await?;
    match next {
        Next::Batch(batch) => {
            // No second batch comes while the first one is worked.
            stop(batches).await;
            work_on(worker, &batch, args, (terms, stops)).await.map(|()| Ended::Finished)
        }
        Next::Stopped(signal) => {
            stop(batches).await;
            stopped(signal, args).map(|()| Ended::Finished)
        }
        Next::SessionLost => Ok(Ended::SessionLost),
        Next::Away(error) => Ok(Ended::Away(error)),
    }
}

/// Works on one batch after another, until a signal stops the process or the session is lost.
async fn work_on_all(
    worker: &LockSession,
    args: &TakeArgs,
    terms: SessionTerms,
    stops: &mut Stops,
) -> Result<Ended, CliError> {
    let mut batches = batches(worker, args);
    while stops.received.is_none() {
        let batch = match next(&mut batches, stops).await? {
            Next::Batch(batch) => batch,
            Next::Stopped(_) => break,
            Next::SessionLost => return Ok(Ended::SessionLost),
            Next::Away(error) => return Ok(Ended::Away(error)),
        };
        if let Err(error) = work_on(worker, &batch, args, (terms, stops)).await {
            // Each further batch would fail in the same way, and use up its attempts.
            if let CliError::NotStarted { .. } = error {
                stop(batches).await;
                return Err(error);
            }
            // Keys stay out of what may become a log (Q22).
            let ids: Vec<_> = batch.requests().iter().map(|request| request.id.to_string()).collect();
            eprintln!("warning: the work on {} has failed: {error}", ids.join(", "));
        }
    }
    stop(batches).await;
    Ok(Ended::Finished)
}

/// Waits for the next batch.
async fn next(batches: &mut Batches<'_>, stops: &mut Stops) -> Result<Next, CliError> {
    tokio::select! {
        biased;
        signal = stops.next() => Ok(Next::Stopped(signal)),
        batch = batches.next() => match batch {
            Ok(batch) => Ok(Next::Batch(Box::new(batch))),
            Err(Error::SessionLost) => Ok(Next::SessionLost),
            Err(error) => match call_failed(error) {
                error if error.is_temporary() => Ok(Next::Away(error)),
                error => Err(error),
            },
        },
    }
}

/// Gives back what was on its way. If that fails, it comes back with the end of the session, and the attempt counts.
async fn stop(batches: Batches<'_>) {
    let stopped = tokio::time::timeout(STOP_WITHIN, batches.stop()).await;
    let stopped = stopped.unwrap_or_else(|_| Err(Error::Refused(Box::new(Refusal::late(STOP_WITHIN)))));
    if let Err(error) = stopped {
        eprintln!("warning: a batch that was on its way may not have been given back: {error}");
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
