//! What operators watch, in Prometheus' terms. Counts and times only: never a claim's value.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::rejection::Rejection;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;

use crate::store::PoolState;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// Why a group of commands was tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Another server, or another writer, changed the same rows first.
    Changed,
    /// What the store had presumed was not so.
    Mistaken,
    /// The store was away.
    Away,
}

impl Retry {
    const ALL: [Self; 3] = [Self::Changed, Self::Mistaken, Self::Away];

    /// As its label.
    fn cause(self) -> Cause {
        let cause = match self {
            Self::Changed => "changed",
            Self::Mistaken => "mistaken",
            Self::Away => "away",
        };
        Cause { cause }
    }
}

/// A code's name, as its label.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "Ok",
        Code::Cancelled => "Cancelled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Every metric, and the registry that renders them.
pub struct Metrics {
    registry: Registry,
    requests: Family<Outcome, Counter>,
    durations: Family<Method, Histogram, fn() -> Histogram>,
    conflicts: Family<ReasonLabel, Counter>,
    shed: Family<Method, Counter>,
    group_commands: Histogram,
    retries: Family<Cause, Counter>,
    pool_connections: Gauge,
    pool_idle: Gauge,
    pool_waiting: Gauge,
    load: Histogram,
    save: Histogram,
    leases: Gauge,
    held_claims: Gauge,
    oldest_lease_seconds: Gauge,
    waiting: Gauge,
    groups_at_once: Gauge,
    disk_bytes: Gauge,
    store_failed: Gauge,
    // What was last seen of a database, whether anybody writes or not.
    is_database_away: AtomicBool,
    // Whether it refuses what servers do from time to time, such as when its disk is full.
    is_database_refusing: AtomicBool,
}

/// What is read off the server at the moment of a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Outstanding leases.
    pub leases: usize,
    /// Claims that they hold.
    pub held_claims: usize,
    /// The age of the oldest.
    pub oldest_lease: Duration,
    /// Commands that wait for the writer.
    pub waiting: usize,
    /// Groups that are written at once.
    pub groups_at_once: usize,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Whether the store has failed, or is away.
    pub store_failed: bool,
    /// The connections for reads, where there are any.
    pub pool: PoolState,
}

fn seconds() -> Histogram {
    // 50 µs to about 26 s.
    Histogram::new(exponential_buckets(0.000_05, 2.0, 20))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("leasehold"),
            requests: Family::default(),
            durations: Family::new_with_constructor(seconds),
            conflicts: Family::default(),
            shed: Family::default(),
            retries: Family::default(),
            pool_connections: Gauge::default(),
            pool_idle: Gauge::default(),
            pool_waiting: Gauge::default(),
            group_commands: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            load: seconds(),
            save: seconds(),
            leases: Gauge::default(),
            held_claims: Gauge::default(),
            oldest_lease_seconds: Gauge::default(),
            waiting: Gauge::default(),
            groups_at_once: Gauge::default(),
            disk_bytes: Gauge::default(),
            store_failed: Gauge::default(),
            is_database_away: AtomicBool::default(),
            is_database_refusing: AtomicBool::default(),
        };
        metrics.register();
        // There from the start: a rate over a counter that begins with 1 misses its first event.
        for why in Retry::ALL {
            drop(metrics.retries.get_or_create(&why.cause()));
        }
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let all = &mut self.registry;
        all.register("requests", "Requests by method and gRPC code", self.requests.clone());
        all.register_with_unit("request_duration", "Time to answer, by method", Unit::Seconds, self.durations.clone());
        all.register("rejections", "Updates refused by the engine, by reason", self.conflicts.clone());
        all.register("shed", "Requests turned away under load, by method", self.shed.clone());
        all.register("group_commands", "Commands in a group", self.group_commands.clone());
        all.register_with_unit("group_decide", "Time to load and decide a group", Unit::Seconds, self.load.clone());
        all.register_with_unit("store_save", "Time to write and sync a group", Unit::Seconds, self.save.clone());
        all.register("outstanding_leases", "Leases that are not settled", self.leases.clone());
        all.register("held_claims", "Claims under a lease", self.held_claims.clone());
        all.register_with_unit(
            "oldest_lease_age",
            "Age of the oldest outstanding lease",
            Unit::Seconds,
            self.oldest_lease_seconds.clone(),
        );
        all.register("waiting_commands", "Commands that wait for the writer", self.waiting.clone());
        let at_once = "Groups written at once: fewer where other servers are at work on the database";
        all.register("groups_at_once", at_once, self.groups_at_once.clone());
        all.register_with_unit("disk", "Bytes of the store on disk", Unit::Bytes, self.disk_bytes.clone());
        all.register("retries", "Groups of commands tried again, by cause", self.retries.clone());
        all.register("pool_connections", "Connections to the database for reads", self.pool_connections.clone());
        all.register("pool_idle_connections", "Those of them that nobody uses", self.pool_idle.clone());
        all.register("pool_waiting_reads", "Reads that wait for a connection", self.pool_waiting.clone());
        all.register("store_failed", "1 while the store can't be written to", self.store_failed.clone());
    }

    /// Counts an answered request.
    pub fn answered(&self, method: &'static str, code: Code, took: Duration) {
        self.requests.get_or_create(&Outcome { method, code: name(code) }).inc();
        self.durations.get_or_create(&Method { method }).observe(took.as_secs_f64());
    }

    /// Counts a refusal of the engine, by the reason that decided it.
    pub fn rejected(&self, rejection: &Rejection) {
        self.conflicts.get_or_create(&ReasonLabel { reason: rejection.reason().code() }).inc();
    }

    /// Counts a request that was turned away under load.
    pub fn shed(&self, method: &'static str) {
        self.shed.get_or_create(&Method { method }).inc();
    }

    /// Counts a group that is tried again.
    pub fn retried(&self, why: Retry) {
        self.retries.get_or_create(&why.cause()).inc();
    }

    /// Notes the size of a group.
    pub fn group(&self, commands: usize) {
        self.group_commands.observe(commands as f64);
    }

    /// Notes the time a group took to load and decide.
    pub fn loaded(&self, took: Duration) {
        self.load.observe(took.as_secs_f64());
    }

    /// Notes the time a group took to write and sync.
    pub fn saved(&self, took: Duration) {
        self.save.observe(took.as_secs_f64());
    }

    /// Notes whether a database was there at the last look; whether it was at the one before.
    pub fn looked_for_database(&self, is_there: bool) -> bool {
        !self.is_database_away.swap(!is_there, Ordering::Relaxed)
    }

    /// Notes whether a database does what servers ask of it from time to time; whether it did the last time.
    pub fn asked_database(&self, does_it: bool) -> bool {
        !self.is_database_refusing.swap(!does_it, Ordering::Relaxed)
    }

    /// Whether a database was away, or refused, when it was last looked for.
    pub fn is_database_lost(&self) -> bool {
        self.is_database_away.load(Ordering::Relaxed) || self.is_database_refusing.load(Ordering::Relaxed)
    }

    /// Every metric as text.
    ///
    /// # Errors
    /// None that a string can have.
    pub fn render(&self, reading: Reading) -> Result<String, std::fmt::Error> {
        let gauge = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.leases, reading.leases as u64);
        gauge(&self.held_claims, reading.held_claims as u64);
        gauge(&self.oldest_lease_seconds, reading.oldest_lease.as_secs());
        gauge(&self.waiting, reading.waiting as u64);
        gauge(&self.groups_at_once, reading.groups_at_once as u64);
        gauge(&self.disk_bytes, reading.disk_bytes);
        gauge(&self.store_failed, u64::from(reading.store_failed || self.is_database_lost()));
        gauge(&self.pool_connections, reading.pool.open as u64);
        gauge(&self.pool_idle, reading.pool.idle as u64);
        gauge(&self.pool_waiting, reading.pool.waiting as u64);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
