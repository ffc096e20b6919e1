//! Closed-loop load: so many clients, each beginning and committing one save after the other.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::{CreationError, Histogram};
use leasehold_proto::gitlab::cells::topology_service::GetCellsRequest;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::claim_service_client::ClaimServiceClient;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{
    BeginUpdateRequest, Bucket, CommitUpdateRequest, Metadata, Source, Subject, bucket, source, subject,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::transport::Channel;

use super::error::{ClientError, code_name};
use super::{Connection, Session, output};

/// How long a client waits after an error, unless the server says how long.
const PAUSE: Duration = Duration::from_millis(100);
const MAX_LATENCY_MICROS: u64 = 3_600_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// How hard to press the server.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// The cell that claims
    #[arg(long, value_name = "N")]
    cell: i64,

    /// How many clients save at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    clients: u64,

    /// How many connections they share
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    connections: u64,

    /// How long to begin new saves
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// How many names each save claims
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=2000))]
    claims: u64,
}

/// What one try to save came to.
enum Sample {
    Saved { begin: Duration, commit: Duration },
    Failed { call: &'static str, error: ClientError },
}

struct Load {
    connection: Connection,
    args: BenchArgs,
    until: Instant,
}

pub(super) async fn bench(session: &Session<'_>, args: BenchArgs) -> Result<(), ClientError> {
    let channels = open(session.connection, args.connections).await?;
    let start = Instant::now();
    let until = start + Duration::from_secs(args.seconds);
    let load = Arc::new(Load { connection: session.connection.clone(), args, until });
    let (samples, collected) = unbounded_channel();
    for channel in channels.iter().cycle().zip(0..load.args.clients).map(|(channel, _)| channel.clone()) {
        tokio::spawn(client(Arc::clone(&load), channel, samples.clone()));
    }
    drop(samples);
    let mut tally = collect(collected, start).await?;
    let first_error = tally.first_error.take();
    if !tally.begin.is_empty() {
        if session.json { output::line(&tally.to_json(&load.args).to_string()) } else { tally.show() }?;
    }
    first_error.map_or(Ok(()), Err)
}

/// Opens the connections, and makes sure that the server on the other side is the right kind.
async fn open(connection: &Connection, count: u64) -> Result<Vec<Channel>, ClientError> {
    let mut channels = Vec::new();
    for _ in 0..count {
        let channel = connection.open().await?;
        let mut client = ClaimServiceClient::new(channel.clone());
        connection.wait(client.get_cells(connection.request(GetCellsRequest {}))).await?;
        channels.push(channel);
    }
    Ok(channels)
}

async fn client(load: Arc<Load>, channel: Channel, samples: UnboundedSender<Sample>) {
    let mut claims = ClaimServiceClient::new(channel);
    while Instant::now() < load.until {
        let sample = save(&load, &mut claims).await.unwrap_or_else(|(call, error)| Sample::Failed { call, error });
        let pause = sample.pause();
        if samples.send(sample).is_err() {
            return;
        }
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
    }
}

async fn save(load: &Load, claims: &mut ClaimServiceClient<Channel>) -> Result<Sample, (&'static str, ClientError)> {
    let connection = &load.connection;
    let update = connection.request(update(&load.args));
    let start = Instant::now();
    let begun = connection.wait(claims.begin_update(update)).await.map_err(|error| ("begin", error))?.into_inner();
    let begin = start.elapsed();
    let settle = connection.request(CommitUpdateRequest { cell_id: begun.cell_id, lease_uuid: begun.lease_uuid });
    let start = Instant::now();
    connection.wait(claims.commit_update(settle)).await.map_err(|error| ("commit", error))?;
    Ok(Sample::Saved { begin, commit: start.elapsed() })
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
    }
}

impl Sample {
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Saved { .. } => None,
            Self::Failed { error: ClientError::Refused(refusal), .. } => Some(refusal.retry_after.unwrap_or(PAUSE)),
            Self::Failed { .. } => Some(PAUSE),
        }
    }
}

/// What all the samples add up to.
struct Tally {
    begin: Histogram<u64>,
    commit: Histogram<u64>,
    errors: BTreeMap<(&'static str, String), u64>,
    first_error: Option<ClientError>,
    elapsed: Duration,
}

async fn collect(mut samples: UnboundedReceiver<Sample>, start: Instant) -> Result<Tally, ClientError> {
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
        Ok(Self { begin, commit, errors: BTreeMap::new(), first_error: None, elapsed: Duration::ZERO })
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
        }
    }

    fn saves_per_second(&self) -> f64 {
        self.begin.len() as f64 / self.elapsed.as_secs_f64()
    }

    fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    fn show(&self) -> Result<(), ClientError> {
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

fn label(error: &ClientError) -> String {
    match error {
        ClientError::Refused(refusal) => refusal.label(),
        _ => code_name(tonic::Code::Unknown),
    }
}

/// The rate of the last second, on stderr, where somebody watches.
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

    /// Replaces the line; that it cannot be shown is no reason to stop measuring.
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
        let error = || ClientError::from(Status::already_exists("no"));
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
    fn clients_pause_after_errors_only() {
        let saved = Sample::Saved { begin: Duration::ZERO, commit: Duration::ZERO };
        assert_eq!(saved.pause(), None);
        let failed = Sample::Failed { call: "begin", error: ClientError::from(Status::internal("no")) };
        assert_eq!(failed.pause(), Some(PAUSE));
    }
}
