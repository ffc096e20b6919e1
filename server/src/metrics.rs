//! The server's metrics for Prometheus. They have counts and times only; claims' values never
//! appear in them.

mod process;
mod relays;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::bucket::BucketType;
use leasehold_core::rejection::Rejection;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use self::process::ProcessCollector;
pub use self::relays::{RelayMetrics, RelayState};
use crate::locks;
use crate::queues::SavedRequests;
use crate::store::PoolState;

/// The commit from which the program was built, if the variable `LEASEHOLD_COMMIT` was set for the
/// build.
const COMMIT: &str = match option_env!("LEASEHOLD_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FileLabel {
    file: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BucketTypeLabel {
    bucket_type: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EffectLabel {
    effect: &'static str,
}

/// A file of the server's TLS, whose end is a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The server's certificate, with its chain.
    Certificate,
    /// The revocation lists of clients' certificates.
    RevocationList,
}

impl TlsFile {
    fn label(self) -> FileLabel {
        let file = match self {
            Self::Certificate => "certificate",
            Self::RevocationList => "revocation_list",
        };
        FileLabel { file }
    }
}

/// The result of a begin whose caller is gone: the begin was dropped, or its lease rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// The begin was dropped before it was decided.
    Dropped,
    /// The begun lease was rolled back, because its response had not left the server.
    TakenBack,
}

impl Abandoned {
    const ALL: [Self; 2] = [Self::Dropped, Self::TakenBack];

    fn label(self) -> EffectLabel {
        let effect = match self {
            Self::Dropped => "dropped",
            Self::TakenBack => "taken_back",
        };
        EffectLabel { effect }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabel {
    change: &'static str,
}

/// The outcome of a reload of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The new configuration is in force.
    Applied,
    /// The new configuration has a problem, and the former one stays in force.
    Refused,
}

impl Reload {
    const ALL: [Self; 2] = [Self::Applied, Self::Refused];

    fn label(self) -> OutcomeLabel {
        let outcome = match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
        };
        OutcomeLabel { outcome }
    }
}

/// An event of a ring: a call by which one server has another one look for grants or ready lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// Another server has answered this server's ring.
    Sent,
    /// Another server has refused this server's ring, or has not answered it.
    Failed,
    /// Another server has rung this one.
    Received,
}

impl Ring {
    const ALL: [Self; 3] = [Self::Sent, Self::Failed, Self::Received];

    fn label(self) -> OutcomeLabel {
        let outcome = match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Received => "received",
        };
        OutcomeLabel { outcome }
    }
}

/// The cause of a retry of a group of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Another writer, of this server or another, changed the same rows first.
    Changed,
    /// The store had assumed the rows of the group instead of reading them, and an assumption was
    /// wrong.
    Misspeculated,
    /// The store could not be reached.
    Away,
}

impl Retry {
    const ALL: [Self; 3] = [Self::Changed, Self::Misspeculated, Self::Away];

    /// The metric label of this cause.
    fn label(self) -> CauseLabel {
        let cause = match self {
            Self::Changed => "changed",
            Self::Misspeculated => "misspeculated",
            Self::Away => "away",
        };
        CauseLabel { cause }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    commit: &'static str,
    store: &'static str,
}

/// All metrics of the server, and the registries that render them as text.
pub struct Metrics {
    registry: Registry,
    // The metrics of the process. Their names have no prefix.
    process: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<MethodLabel, Histogram, fn() -> Histogram>,
    rejections: Family<ReasonLabel, Counter>,
    shed: Family<MethodLabel, Counter>,
    group_commands: Histogram,
    retries: Family<CauseLabel, Counter>,
    abandoned: Family<EffectLabel, Counter>,
    reloads: Family<OutcomeLabel, Counter>,
    tls_ends: Family<FileLabel, Gauge>,
    pool_connections: Gauge,
    pool_idle: Gauge,
    pool_waiting: Gauge,
    group_decide: Histogram,
    store_save: Histogram,
    leases: Gauge,
    held_claims: Gauge,
    oldest_lease_seconds: Gauge,
    sessions: Gauge,
    attended_asks: Gauge,
    lock_grants: Counter,
    locks_orphaned: Counter,
    locks_set_aside: Counter,
    queue_requests: Family<ChangeLabel, Counter>,
    /// The metrics of relays.
    pub relays: RelayMetrics,
    lock_rings: Family<OutcomeLabel, Counter>,
    queue_rings: Family<OutcomeLabel, Counter>,
    sessions_adopted: Counter,
    waiting: Gauge,
    groups_at_once: Gauge,
    disk: DiskGauges,
    store_failed: Gauge,
    store_unavailable: Gauge,
    database_lacks_changes: Gauge,
    damaged_rows: Counter,
    differing_claims: Family<BucketTypeLabel, Gauge>,
    connections: Gauge,
    connections_refused: Counter,
    subject_headers_removed: Counter,
    request_bytes: Gauge,
    answer_bytes: Gauge,
    log_lines_dropped: Counter,
    audit_events_dropped: Counter,
    // True if the last probe of the database failed. The probe also runs while no command is
    // written.
    is_database_away: AtomicBool,
    // True if the last maintenance run on the database failed, for example because the database's
    // disk is full.
    is_maintenance_failing: AtomicBool,
    // True if commits of the database wait for no standby.
    database_lacks_standby: Gauge,
}

/// The room that the store takes and has.
#[derive(Debug, Default)]
struct DiskGauges {
    bytes: Gauge,
    quota_bytes: Gauge,
    alarms: Gauge,
}

/// The values of metrics that other parts keep, read at the moment of a scrape by Prometheus.
#[derive(Clone, Copy, Debug, Default)]
pub struct GaugeValues {
    /// The number of outstanding leases.
    pub leases: usize,
    /// The number of claims under outstanding leases.
    pub held_claims: usize,
    /// The age of the oldest outstanding lease.
    pub oldest_lease: Duration,
    /// The live sessions, and the asks for locks that wait with an open call.
    pub locks: locks::HostSize,
    /// The number of commands that wait for a writer.
    pub waiting: usize,
    /// The number of groups of commands that this server may write at the same time.
    pub groups_at_once: usize,
    /// The size of the store on disk, in bytes.
    pub disk_bytes: u64,
    /// The size at which the store refuses writes, in bytes; 0 if it has no such size.
    pub disk_quota_bytes: u64,
    /// The number of alarms for which the store refuses writes.
    pub database_alarms: usize,
    /// True if a write has failed, so that only a restart can help, or if a read fails.
    pub store_failed: bool,
    /// True if the last group of commands could not be written, since the store was out of reach.
    pub store_away: bool,
    /// The bytes of requests that the server holds.
    pub request_bytes: usize,
    /// The bytes of answers to lists that the server holds.
    pub answer_bytes: usize,
    /// The number of lines that the log has dropped since the start.
    pub log_lines_dropped: u64,
    /// The number of events that the audit trail has dropped since the start.
    pub audit_events_dropped: u64,
    /// The counts of the pool of connections for reads; all 0 for the embedded store.
    pub pool: PoolState,
}

/// Returns a histogram of seconds, with buckets from 50 µs to about 26 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 20))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("leasehold"),
            process: Registry::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(seconds),
            rejections: Family::default(),
            shed: Family::default(),
            retries: Family::default(),
            abandoned: Family::default(),
            reloads: Family::default(),
            tls_ends: Family::default(),
            pool_connections: Gauge::default(),
            pool_idle: Gauge::default(),
            pool_waiting: Gauge::default(),
            group_commands: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            group_decide: seconds(),
            store_save: seconds(),
            leases: Gauge::default(),
            held_claims: Gauge::default(),
            oldest_lease_seconds: Gauge::default(),
            sessions: Gauge::default(),
            attended_asks: Gauge::default(),
            lock_grants: Counter::default(),
            locks_orphaned: Counter::default(),
            locks_set_aside: Counter::default(),
            queue_requests: Family::default(),
            relays: RelayMetrics::default(),
            lock_rings: Family::default(),
            queue_rings: Family::default(),
            sessions_adopted: Counter::default(),
            waiting: Gauge::default(),
            groups_at_once: Gauge::default(),
            disk: DiskGauges::default(),
            store_failed: Gauge::default(),
            store_unavailable: Gauge::default(),
            database_lacks_changes: Gauge::default(),
            damaged_rows: Counter::default(),
            differing_claims: Family::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            subject_headers_removed: Counter::default(),
            request_bytes: Gauge::default(),
            answer_bytes: Gauge::default(),
            log_lines_dropped: Counter::default(),
            audit_events_dropped: Counter::default(),
            is_database_away: AtomicBool::default(),
            is_maintenance_failing: AtomicBool::default(),
            database_lacks_standby: Gauge::default(),
        };
        metrics.register();
        metrics.relays.register(&mut metrics.registry);
        metrics.process.register_collector(Box::new(ProcessCollector::default()));
        // A counter must be scraped as 0 before its first event, because Prometheus' `rate()`
        // misses the first event of a series that starts at 1.
        for cause in Retry::ALL {
            drop(metrics.retries.get_or_create(&cause.label()));
        }
        for effect in Abandoned::ALL {
            drop(metrics.abandoned.get_or_create(&effect.label()));
        }
        for outcome in Reload::ALL {
            drop(metrics.reloads.get_or_create(&outcome.label()));
        }
        for outcome in Ring::ALL {
            drop(metrics.lock_rings.get_or_create(&outcome.label()));
            drop(metrics.queue_rings.get_or_create(&outcome.label()));
        }
        metrics
    }
}

impl Metrics {
    /// Returns the metrics of a server on a store of this kind, all of them 0.
    pub fn of_store(store: &'static str) -> Self {
        let mut metrics = Self::default();
        let labels = BuildLabels { version: env!("CARGO_PKG_VERSION"), commit: COMMIT, store };
        let help = "The version of the program, the commit of its build, and the kind of its store";
        metrics.registry.register("build", help, Info::new(labels));
        metrics
    }

    fn register(&mut self) {
        let all = &mut self.registry;
        all.register("requests", "Requests by method and gRPC code", self.requests.clone());
        all.register_with_unit("request_duration", "Time to answer, by method", Unit::Seconds, self.durations.clone());
        all.register("rejections", "Updates that the engine rejected, by reason", self.rejections.clone());
        all.register("shed", "Requests refused under load, by method", self.shed.clone());
        all.register("group_commands", "Commands in a group", self.group_commands.clone());
        all.register_with_unit(
            "group_decide",
            "Time to load and decide a group",
            Unit::Seconds,
            self.group_decide.clone(),
        );
        all.register_with_unit("store_save", "Time to write and sync a group", Unit::Seconds, self.store_save.clone());
        all.register("outstanding_leases", "Leases begun and not settled", self.leases.clone());
        all.register("held_claims", "Claims under a lease", self.held_claims.clone());
        all.register_with_unit(
            "oldest_lease_age",
            "Age of the oldest outstanding lease",
            Unit::Seconds,
            self.oldest_lease_seconds.clone(),
        );
        self.register_locks_and_queues();
        let all = &mut self.registry;
        all.register("waiting_commands", "Commands that wait for a writer", self.waiting.clone());
        let groups_at_once =
            "Groups that may be written at the same time: fewer while other servers use the same database";
        all.register("groups_at_once", groups_at_once, self.groups_at_once.clone());
        all.register("retries", "Retries of groups of commands, by cause", self.retries.clone());
        all.register("abandoned_begins", "Begins whose caller was gone, by effect", self.abandoned.clone());
        all.register("config_reloads", "Reloads of the configuration, by outcome", self.reloads.clone());
        let ends = "Earliest end of a certificate, or date of the next revocation list, since 1970";
        all.register_with_unit("tls_file_end", ends, Unit::Seconds, self.tls_ends.clone());
        all.register("pool_connections", "Connections to the database for reads", self.pool_connections.clone());
        all.register("pool_idle_connections", "Connections for reads that are idle", self.pool_idle.clone());
        all.register("pool_waiting_reads", "Reads that wait for a connection", self.pool_waiting.clone());
        all.register("connections", "Open connections of clients", self.connections.clone());
        let refused = "Connections closed because as many as allowed were open";
        all.register("connections_refused", refused, self.connections_refused.clone());
        let removed = "Requests whose header named a subject, from peers that are no balancer";
        all.register("subject_headers_removed", removed, self.subject_headers_removed.clone());
        let held = "Bytes of requests that are not answered";
        all.register_with_unit("request", held, Unit::Bytes, self.request_bytes.clone());
        let held = "Bytes of answers to lists that their callers have not taken";
        all.register_with_unit("answer", held, Unit::Bytes, self.answer_bytes.clone());
        let damaged = "Rows that a read or a list found damaged, each time";
        all.register("damaged_rows", damaged, self.damaged_rows.clone());
        let differing = "Claims whose key is not the canonical form by this program's Unicode, by bucket type";
        all.register("differing_claims", differing, self.differing_claims.clone());
        let lines = "Lines of the log that were dropped, since standard error was not read";
        all.register("log_lines_dropped", lines, self.log_lines_dropped.clone());
        let events = "Events of the audit trail that were dropped, since they could not be written";
        all.register("audit_events_dropped", events, self.audit_events_dropped.clone());
        self.register_store();
    }

    fn register_store(&mut self) {
        let all = &mut self.registry;
        all.register_with_unit("disk", "Bytes of the store on disk", Unit::Bytes, self.disk.bytes.clone());
        let quota = "Bytes on disk at which the store refuses writes, 0 if it has no quota";
        all.register_with_unit("disk_quota", quota, Unit::Bytes, self.disk.quota_bytes.clone());
        let alarms = "Alarms for which the database refuses writes";
        all.register("database_alarms", alarms, self.disk.alarms.clone());
        let failed = "1 while reads of the store fail, and once no command is written until a restart";
        all.register("store_failed", failed, self.store_failed.clone());
        let unavailable = "1 while the store can't be reached or written, and may be later";
        all.register("store_unavailable", unavailable, self.store_unavailable.clone());
        let lacks = "1 since the database was found to lack a lease that this server had begun";
        all.register("database_lacks_changes", lacks, self.database_lacks_changes.clone());
        let alone = "1 while commits of a database with standbys wait for none, so that a failover loses some";
        all.register("database_lacks_standby", alone, self.database_lacks_standby.clone());
    }

    fn register_locks_and_queues(&mut self) {
        let all = &mut self.registry;
        all.register("sessions", "Live sessions of locks", self.sessions.clone());
        all.register("lock_waiters", "Calls that wait for a lock", self.attended_asks.clone());
        all.register("lock_grants", "Grants of locks", self.lock_grants.clone());
        let help = "Locks that began to wait for a cleanup, after a death or a failed cleanup";
        all.register("locks_orphaned", help, self.locks_orphaned.clone());
        let help = "Locks that were set aside, because their cleanup failed too often";
        all.register("locks_set_aside", help, self.locks_set_aside.clone());
        let help = "Requests of queues that were submitted, taken, returned, completed or failed for good, by change";
        all.register("queue_requests", help, self.queue_requests.clone());
        let help = "Calls by which one server has another one look for grants, by outcome";
        all.register("lock_rings", help, self.lock_rings.clone());
        let help = "Calls by which one server has another one wake workers, by outcome";
        all.register("queue_rings", help, self.queue_rings.clone());
        let help = "Live sessions of servers that are gone, which this server has begun to watch";
        all.register("sessions_adopted", help, self.sessions_adopted.clone());
    }

    /// Sets the end of a file in seconds since 1970; `None` if it has none.
    pub fn set_tls_end(&self, file: TlsFile, end: Option<i64>) {
        match end {
            Some(end) => _ = self.tls_ends.get_or_create(&file.label()).set(end),
            None => _ = self.tls_ends.remove(&file.label()),
        }
    }

    /// Counts sessions of a server that is gone, which this server watches from now on.
    pub fn sessions_adopted(&self, sessions: usize) {
        self.sessions_adopted.inc_by(sessions as u64);
    }

    /// Counts the changes of locks that a group of commands has made.
    pub fn locks_saved(&self, saved: locks::SavedLocks) {
        self.lock_grants.inc_by(saved.grants as u64);
        self.locks_orphaned.inc_by(saved.orphaned as u64);
        self.locks_set_aside.inc_by(saved.set_aside as u64);
    }

    /// Counts the changes of requests that a group of commands has made.
    pub fn requests_saved(&self, saved: SavedRequests) {
        let SavedRequests { submitted, taken, returned, completed, failed } = saved;
        let counts = [
            ("submitted", submitted),
            ("taken", taken),
            ("returned", returned),
            ("completed", completed),
            ("failed", failed),
        ];
        for (change, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.queue_requests.get_or_create(&ChangeLabel { change }).inc_by(count as u64);
        }
    }

    /// Counts a ring for the waiters of locks, of this server or of another one.
    pub fn rung_for_locks(&self, outcome: Ring) {
        self.lock_rings.get_or_create(&outcome.label()).inc();
    }

    /// Counts a ring for workers, of this server or of another one.
    pub fn rung_for_queues(&self, outcome: Ring) {
        self.queue_rings.get_or_create(&outcome.label()).inc();
    }

    /// Counts an answered request under the name of its method and of its gRPC code, and observes
    /// the time `took`.
    pub fn answered(&self, method: &'static str, code: &'static str, took: Duration) {
        self.requests.get_or_create(&RequestLabels { method, code }).inc();
        self.durations.get_or_create(&MethodLabel { method }).observe(took.as_secs_f64());
    }

    /// Counts an engine's rejection under its reason.
    pub fn rejected(&self, rejection: &Rejection) {
        self.rejections.get_or_create(&ReasonLabel { reason: rejection.reason().code() }).inc();
    }

    /// Counts a request of this method that was refused under load.
    pub fn shed(&self, method: &'static str) {
        self.shed.get_or_create(&MethodLabel { method }).inc();
    }

    /// Counts rows that a read found damaged.
    pub fn damaged(&self, rows: usize) {
        self.damaged_rows.inc_by(rows as u64);
    }

    /// Sets the number of claims of each bucket type whose key is not their canonical form.
    pub fn set_differing_claims(&self, claims: &BTreeMap<BucketType, u64>) {
        for (number, count) in claims {
            let label = BucketTypeLabel { bucket_type: number.0 };
            self.differing_claims.get_or_create(&label).set(count.cast_signed());
        }
    }

    /// Counts a connection that was accepted.
    pub fn connection_opened(&self) {
        self.connections.inc();
    }

    /// Counts the end of a connection that was accepted.
    pub fn connection_closed(&self) {
        self.connections.dec();
    }

    /// Counts a connection that was closed because too many were open.
    pub fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// Counts a request whose subject header was removed, because the peer is no balancer.
    pub fn subject_header_removed(&self) {
        self.subject_headers_removed.inc();
    }

    /// Counts a retry of a group of commands.
    pub fn retried(&self, cause: Retry) {
        self.retries.get_or_create(&cause.label()).inc();
    }

    /// Counts a begin whose caller is gone.
    pub fn abandoned(&self, effect: Abandoned) {
        self.abandoned.get_or_create(&effect.label()).inc();
    }

    /// Counts a reload of the configuration.
    pub fn reloaded(&self, outcome: Reload) {
        self.reloads.get_or_create(&outcome.label()).inc();
    }

    /// Observes the number of commands in a group.
    pub fn group(&self, commands: usize) {
        self.group_commands.observe(commands as f64);
    }

    /// Observes the time that it took to load the rows of a group and decide its commands.
    pub fn loaded(&self, took: Duration) {
        self.group_decide.observe(took.as_secs_f64());
    }

    /// Observes the time that it took to write and sync the changes of a group.
    pub fn saved(&self, took: Duration) {
        self.store_save.observe(took.as_secs_f64());
    }

    /// Stores the result of a probe of the database. Returns true if the probe before succeeded.
    pub fn set_database_reachable(&self, is_reachable: bool) -> bool {
        !self.is_database_away.swap(!is_reachable, Ordering::Relaxed)
    }

    /// Stores if the database lacks changes that this server has acknowledged.
    pub fn set_database_lacks_changes(&self, lacks_changes: bool) {
        self.database_lacks_changes.set(lacks_changes.into());
    }

    /// True if the database lacks changes that this server has acknowledged.
    pub fn database_lacks_changes(&self) -> bool {
        self.database_lacks_changes.get() > 0
    }

    /// Stores if commits of the database wait for no standby.
    pub fn set_database_lacks_standby(&self, lacks_standby: bool) {
        self.database_lacks_standby.set(lacks_standby.into());
    }

    /// True if commits of the database wait for no standby, so that a failover would lose some.
    pub fn database_lacks_standby(&self) -> bool {
        self.database_lacks_standby.get() > 0
    }

    /// Stores the result of a maintenance run on the database. Returns true if the run before
    /// succeeded.
    pub fn set_maintenance_succeeding(&self, succeeds: bool) -> bool {
        !self.is_maintenance_failing.swap(!succeeds, Ordering::Relaxed)
    }

    /// True if the last probe of the database failed.
    pub fn is_database_away(&self) -> bool {
        self.is_database_away.load(Ordering::Relaxed)
    }

    /// True if the last maintenance run of the database failed.
    pub fn is_maintenance_failing(&self) -> bool {
        self.is_maintenance_failing.load(Ordering::Relaxed)
    }

    /// True if the last probe or the last maintenance run of the database failed.
    pub fn is_database_lost(&self) -> bool {
        self.is_database_away() || self.is_maintenance_failing()
    }

    /// Returns every metric in the OpenMetrics text format, with these `values`.
    ///
    /// # Errors
    /// Formatting failed. It can't fail in practice, because the text is written to memory.
    pub fn render(&self, values: GaugeValues) -> Result<String, std::fmt::Error> {
        self.relays.update();
        let set = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.leases, values.leases as u64);
        set(&self.held_claims, values.held_claims as u64);
        set(&self.oldest_lease_seconds, values.oldest_lease.as_secs());
        set(&self.sessions, values.locks.sessions as u64);
        set(&self.attended_asks, values.locks.attended_asks as u64);
        set(&self.waiting, values.waiting as u64);
        set(&self.groups_at_once, values.groups_at_once as u64);
        set(&self.disk.bytes, values.disk_bytes);
        set(&self.disk.quota_bytes, values.disk_quota_bytes);
        set(&self.disk.alarms, values.database_alarms as u64);
        set(&self.store_failed, u64::from(values.store_failed));
        set(&self.store_unavailable, u64::from(values.store_away || self.is_database_lost()));
        set(&self.request_bytes, values.request_bytes as u64);
        set(&self.answer_bytes, values.answer_bytes as u64);
        self.log_lines_dropped.inner().store(values.log_lines_dropped, Ordering::Relaxed);
        self.audit_events_dropped.inner().store(values.audit_events_dropped, Ordering::Relaxed);
        set(&self.pool_connections, values.pool.open as u64);
        set(&self.pool_idle, values.pool.idle as u64);
        set(&self.pool_waiting, values.pool.waiting as u64);
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &self.process)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}
