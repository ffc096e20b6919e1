//! The verb `bench`: closed-loop load. Each of a number of clients begins and commits one save
//! after the other. A failed call that may have taken effect is repeated until its outcome is
//! known, so that no claim stays under a lease.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::{CreationError, Histogram};
use leasehold_client::{Stub, new_idempotency_key};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, Bucket, CommitUpdateRequest, Metadata, Source, Subject, bucket, source, subject,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::Response;
use tonic::transport::Channel;

use crate::connection::Connection;
use crate::error::CliError;
use crate::exit;
use crate::output;
use crate::refused::code_name;
use crate::session::Session;

/// Pause of a client after a failed call, unless the server suggests another delay.
const PAUSE: Duration = Duration::from_millis(100);
/// Time after the end of the measurement in which clients still repeat calls with an unknown
/// outcome.
const SETTLE_TIME: Duration = Duration::from_secs(30);
const BEGIN: &str = "begin";
const COMMIT: &str = "commit";
const MAX_LATENCY_MICROS: u64 = 3_600_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Arguments of `bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// The cell that claims
    #[arg(long, value_name = "N")]
    cell: i64,

    /// Number of clients that save at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    clients: u64,

    /// Number of connections that the clients share
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    connections: u64,

    /// Seconds during which new saves are begun
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// Number of names that each save claims
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=2000))]
    claims: u64,
}

/// Result that a client reports: of a save, or of one attempt of a call.
enum Sample {
    Saved {
        begin: Duration,
        commit: Duration,
    },
    Failed {
        call: &'static str,
        error: CliError,
    },
    /// The outcome of a call stayed unknown, so its save may have left its claims under a lease.
    Unsettled,
}

struct Load {
    connection: Connection,
    args: BenchArgs,
    until: Instant,
}

pub(crate) async fn bench(session: &Session<'_>, args: BenchArgs) -> Result<(), CliError> {
    let stubs = open(session.connection, args.connections).await?;
    let start = Instant::now();
    let until = start + Duration::from_secs(args.seconds);
    let load = Arc::new(Load { connection: session.connection.clone(), args, until });
    let (samples, collected) = unbounded_channel();
    for stub in stubs.iter().cycle().zip(0..load.args.clients).map(|(stub, _)| stub.clone()) {
        tokio::spawn(client(Arc::clone(&load), stub, samples.clone()));
    }
    drop(samples);
    let mut tally = collect(collected, start).await?;
    let first_error = tally.first_error.take();
    if !tally.begin.is_empty() {
        if session.json { output::line(&tally.to_json(&load.args).to_string()) } else { tally.show() }?;
    }
    first_error.map_or(Ok(()), Err)
}

/// Opens `count` connections and makes a first call on each, so that an error, such as a wrong
/// server, shows before the load.
async fn open(connection: &Connection, count: u64) -> Result<Vec<Stub<Channel>>, CliError> {
    let mut stubs = Vec::new();
    for _ in 0..count {
        let mut stub = connection.open().await?;
        connection.wait(stub.get_cells()).await?;
        stubs.push(stub);
    }
    Ok(stubs)
}

async fn client(load: Arc<Load>, stub: Stub<Channel>, samples: UnboundedSender<Sample>) {
    let client = LoadClient { load, stub, samples };
    while Instant::now() < client.load.until {
        if let Some(saved) = client.save().await {
            client.report(saved);
        }
    }
}

/// A client of the load, which saves in a loop.
struct LoadClient {
    load: Arc<Load>,
    stub: Stub<Channel>,
    samples: UnboundedSender<Sample>,
}

impl LoadClient {
    fn report(&self, sample: Sample) {
        // Sending fails only if the process is about to end.
        let _ = self.samples.send(sample);
    }

    /// Begins and commits an update. Returns the time of each call, repetitions included; `None` if
    /// a call failed.
    async fn save(&self) -> Option<Sample> {
        let (connection, update, key) = (&self.load.connection, update(&self.load.args), new_idempotency_key());
        let begin = |mut stub: Stub<Channel>| {
            let (message, key) = (update.clone(), &key);
            async move { connection.wait(stub.begin(message, Some(key))).await }
        };
        let start = Instant::now();
        let begun = self.until_known(BEGIN, begin).await?;
        let begin = start.elapsed();
        let settle = CommitUpdateRequest { cell_id: begun.cell_id, lease_uuid: begun.lease_uuid };
        let commit = |mut stub: Stub<Channel>| {
            let message = settle.clone();
            async move { connection.wait(stub.commit(message)).await }
        };
        let start = Instant::now();
        self.until_known(COMMIT, commit).await?;
        Some(Sample::Saved { begin, commit: start.elapsed() })
    }

    /// Repeats a call while its outcome is unknown. Returns the answer; `None` if the call was
    /// refused, or if [`SETTLE_TIME`] is over.
    async fn until_known<T, F: Future<Output = Result<Response<T>, CliError>>>(
        &self,
        call: &'static str,
        send: impl Fn(Stub<Channel>) -> F,
    ) -> Option<T> {
        loop {
            let error = match send(self.stub.clone()).await {
                Ok(answer) => return Some(answer.into_inner()),
                Err(error) => error,
            };
            let (pause, need_not_repeat) = (pause(&error), need_not_repeat(call, &error));
            self.report(Sample::Failed { call, error });
            tokio::time::sleep(pause).await;
            if need_not_repeat {
                return None;
            }
            if Instant::now() > self.load.until + SETTLE_TIME {
                self.report(Sample::Unsettled);
                return None;
            }
        }
    }
}

fn pause(error: &CliError) -> Duration {
    match error {
        CliError::Refused(call) => call.refusal.retry_after.unwrap_or(PAUSE),
        _ => PAUSE,
    }
}

/// Returns true if a failed call need not be repeated: it certainly took no effect, and, if it is a
/// commit, a repetition would fail too.
fn need_not_repeat(call: &str, error: &CliError) -> bool {
    use tonic::Code::{Cancelled, DeadlineExceeded, Internal, Unavailable, Unknown};
    let CliError::Refused(failed) = error else { return false };
    let is_unknown = matches!(failed.refusal.code, Cancelled | DeadlineExceeded | Internal | Unavailable | Unknown);
    !(is_unknown || call == COMMIT && error.exit_code() == exit::TRY_AGAIN)
}

fn update(args: &BenchArgs) -> BeginUpdateRequest {
    let id = rand::random_range(1..i64::MAX);
    let record = |_| Metadata {
        bucket: Some(Bucket {
            r#type: bucket::Type::Usernames.into(),
            value: format!("bench-{:032x}", rand::random::<u128>()),
        }),
        subject: Some(Subject { r#type: subject::Type::User.into(), id }),
        source: Some(Source {
            r#type: source::Type::RailsTableUsers.into(),
            rails_primary_key_id: id.to_be_bytes().to_vec(),
        }),
        ..Metadata::default()
    };
    BeginUpdateRequest {
        create_records: (0..args.claims).map(record).collect(),
        destroy_records: Vec::new(),
        cell_id: args.cell,
        organization_id: 0,
    }
}

/// Totals of all samples of a measurement.
struct Tally {
    begin: Histogram<u64>,
    commit: Histogram<u64>,
    errors: BTreeMap<(&'static str, String), u64>,
    /// Number of saves that may have left their claims under a lease.
    unsettled: u64,
    first_error: Option<CliError>,
    elapsed: Duration,
}

async fn collect(mut samples: UnboundedReceiver<Sample>, start: Instant) -> Result<Tally, CliError> {
    let mut tally = Tally::new()?;
    let mut progress = Progress::new();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            sample = samples.recv() => match sample {
                Some(sample) => tally.add(sample),
                None => break,
            },
            _ = tick.tick() => progress.show(&tally, start.elapsed()),
        }
    }
    progress.clear();
    tally.elapsed = start.elapsed();
    Ok(tally)
}

impl Tally {
    fn new() -> Result<Self, CreationError> {
        let begin = Histogram::new_with_bounds(1, MAX_LATENCY_MICROS, SIGNIFICANT_DIGITS)?;
        let commit = begin.clone();
        Ok(Self { begin, commit, errors: BTreeMap::new(), unsettled: 0, first_error: None, elapsed: Duration::ZERO })
    }

    fn add(&mut self, sample: Sample) {
        match sample {
            Sample::Saved { begin, commit } => {
                self.begin.saturating_record(micros(begin));
                self.commit.saturating_record(micros(commit));
            }
            Sample::Failed { call, error } => {
                *self.errors.entry((call, label(&error))).or_default() += 1;
                self.first_error.get_or_insert(error);
            }
            Sample::Unsettled => self.unsettled += 1,
        }
    }

    fn saves_per_second(&self) -> f64 {
        self.begin.len() as f64 / self.elapsed.as_secs_f64()
    }

    fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    fn show(&self) -> Result<(), CliError> {
        let (saves, seconds) = (self.begin.len(), self.elapsed.as_secs_f64());
        output::line(&format!(
            "{:.0} saves/s: {saves} saves in {seconds:.1} s, {} errors\n",
            self.saves_per_second(),
            self.failures()
        ))?;
        let row = |name: &str, times: &Histogram<u64>| {
            let times = QUANTILES.map(|(_, quantile)| format!("{:.2}", milliseconds(times, quantile)));
            std::iter::once(name.to_owned()).chain(times).collect()
        };
        let rows: [Vec<String>; 2] = [row("begin", &self.begin), row("commit", &self.commit)];
        output::Pages::new(&["CALL", "P50 MS", "P90 MS", "P99 MS"]).write(rows)?;
        if self.errors.is_empty() {
            return Ok(());
        }
        if self.unsettled > 0 {
            let unsettled = self.unsettled;
            output::line(&format!("\n{unsettled} saves may be left under a lease: see `leasehold leases`"))?;
        }
        output::line("")?;
        let rows = self.errors.iter().map(|((call, label), n)| vec![(*call).to_owned(), label.clone(), n.to_string()]);
        output::Pages::new(&["CALL", "ERROR", "TIMES"]).write(rows)
    }

    fn to_json(&self, args: &BenchArgs) -> Value {
        let error =
            |((call, label), times): (&(&str, String), &u64)| json!({ "call": call, "reason": label, "times": times });
        json!({
            "clients": args.clients,
            "connections": args.connections,
            "claimsPerSave": args.claims,
            "seconds": self.elapsed.as_secs_f64(),
            "saves": self.begin.len(),
            "savesPerSecond": self.saves_per_second(),
            "beginMilliseconds": quantiles(&self.begin),
            "commitMilliseconds": quantiles(&self.commit),
            "unsettled": self.unsettled,
            "errors": self.errors.iter().map(error).collect::<Vec<_>>(),
        })
    }
}

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

fn quantiles(times: &Histogram<u64>) -> Value {
    QUANTILES.into_iter().map(|(name, quantile)| (name.to_owned(), json!(milliseconds(times, quantile)))).collect()
}

fn milliseconds(times: &Histogram<u64>, quantile: f64) -> f64 {
    times.value_at_quantile(quantile) as f64 / 1000.0
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn label(error: &CliError) -> String {
    match error {
        CliError::Refused(call) => call.label(),
        _ => code_name(tonic::Code::Unknown),
    }
}

/// Display of the progress once a second, on standard error if that is a terminal.
struct Progress {
    shown: bool,
    saves: u64,
    at: Duration,
}

impl Progress {
    fn new() -> Self {
        Self { shown: std::io::stderr().is_terminal(), saves: 0, at: Duration::ZERO }
    }

    fn show(&mut self, tally: &Tally, now: Duration) {
        let rate = (tally.begin.len() - self.saves) as f64 / (now - self.at).as_secs_f64();
        (self.saves, self.at) = (tally.begin.len(), now);
        if self.shown {
            self.write(&format!("{:>4} s {rate:>8.0} saves/s {:>6} errors", now.as_secs(), tally.failures()));
        }
    }

    fn clear(&self) {
        if self.shown {
            self.write("");
        }
    }

    /// Replaces the progress line. An error is ignored, because it must not stop the measurement.
    fn write(&self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "\r\u{1b}[K{text}").and_then(|()| stderr.flush());
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    fn args() -> BenchArgs {
        BenchArgs { cell: 1, clients: 2, connections: 1, seconds: 1, claims: 4 }
    }

    #[test]
    fn every_save_claims_new_names() {
        let values =
            |update: BeginUpdateRequest| update.create_records.into_iter().map(|record| record.bucket.unwrap().value);
        let names: std::collections::BTreeSet<_> = values(update(&args())).chain(values(update(&args()))).collect();
        assert_eq!(names.len(), 8);
    }

    #[test]
    fn the_tally_counts_saves_and_errors_by_reason() {
        let mut tally = Tally::new().unwrap();
        for milliseconds in 1..=100 {
            let begin = Duration::from_millis(milliseconds);
            tally.add(Sample::Saved { begin, commit: begin * 2 });
        }
        let error = || CliError::from(Status::already_exists("no"));
        tally.add(Sample::Failed { call: "begin", error: error() });
        tally.add(Sample::Failed { call: "begin", error: error() });
        tally.elapsed = Duration::from_secs(2);
        let json = tally.to_json(&args());
        assert_eq!((&json["saves"], &json["savesPerSecond"]), (&json!(100), &json!(50.0)));
        let p50 = json["beginMilliseconds"]["p50"].as_f64().unwrap();
        let p99 = json["commitMilliseconds"]["p99"].as_f64().unwrap();
        assert!((p50 - 50.0).abs() < 0.1 && (p99 - 198.0).abs() < 0.3, "{json}");
        assert_eq!(json["errors"], json!([{"call": "begin", "reason": "ALREADY_EXISTS", "times": 2}]));
    }

    #[test]
    fn a_call_with_an_unknown_outcome_is_repeated() {
        let need_not_repeat = |call, status: Status| need_not_repeat(call, &CliError::from(status));
        for call in [BEGIN, COMMIT] {
            assert!(
                !need_not_repeat(call, Status::unavailable(""))
                    && !need_not_repeat(call, Status::deadline_exceeded(""))
            );
            assert!(
                need_not_repeat(call, Status::already_exists(""))
                    && need_not_repeat(call, Status::failed_precondition(""))
            );
        }
        assert!(
            need_not_repeat(BEGIN, Status::resource_exhausted(""))
                && !need_not_repeat(COMMIT, Status::resource_exhausted(""))
        );
        assert_eq!(pause(&CliError::from(Status::internal("no"))), PAUSE);
    }
}
