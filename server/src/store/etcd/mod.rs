//! The driver of etcd for [`super::ordered`].
//!
//! Each member has one connection. Calls go to one member until a call to it fails; then the next one is
//! tried. A call that changes nothing is tried at all members until [`PATIENCE`] is over. A guarded
//! transaction is sent to another member only if the first one has refused it, because it may have been made
//! although its answer is lost.

mod channel;
mod wire;

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::runtime::{Handle, Runtime};
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

use self::wire::{
    AlarmRequest, Answer, Call, CompactionRequest, Compare, DeleteRangeRequest, KeyValue, Operation, PutRequest,
    RangeRequest, RequestOp, StatusAnswer, StatusRequest, Target, TxnRequest,
};
use super::error::StoreError;
use super::identity::{Creation, Identity, RaisedFences};
use super::ordered::engine::{
    Engine, EngineFuture, EngineStatus, Entry, Guarded, KeyRange, KeyRead, LoadedEntries, MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES, Moment, RowGuard, RowWrite,
};
use super::ordered::{OrderedImport, OrderedStore};
use super::preflight::{PreflightError, Problem};
use crate::config::{EtcdConfig, EtcdPlace};

type Result<T> = std::result::Result<T, StoreError>;

/// The longest time that a member may take for a call. An election takes a second or two, in which a
/// member keeps calls waiting.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time that calls which change nothing are tried again.
const PATIENCE: Duration = Duration::from_secs(6);
/// The longest time that a member may take for one of the large messages that check its limits.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after all members have failed.
const PAUSE: Duration = Duration::from_millis(50);
/// The bytes by which etcd's limit on a gRPC message is larger than `--max-request-bytes`
/// (`grpcOverheadBytes` in `embed/config.go`).
const MESSAGE_OVERHEAD_BYTES: usize = 512 * 1024;
/// The bytes that are left for the rest of a message with one long value.
const MESSAGE_HEAD_BYTES: usize = 1024;

impl OrderedStore {
    /// Opens the store on a cluster of etcd. If there is no store with the prefix, makes one, provided
    /// that `creation` allows it.
    ///
    /// # Errors
    /// The settings or the cluster can't be used; [`StoreError::Preflight`] has the problem.
    pub async fn on_etcd(settings: &EtcdConfig, creation: Creation) -> Result<Self> {
        let (engine, prefix) = connect(settings).await?;
        let directory = settings.state_directory().map_err(|problem| refused(settings, Problem::Settings(problem)))?;
        Self::open(Arc::new(engine), &prefix, creation, &directory).await
    }

    /// Accepts the store on a cluster of etcd although it is a restored copy, and raises its fences. No server
    /// may use the original any more.
    ///
    /// # Errors
    /// The settings or the cluster can't be used, or there is no store.
    pub async fn adopt_on_etcd(settings: &EtcdConfig) -> Result<(Identity, RaisedFences)> {
        let (engine, prefix) = connect(settings).await?;
        Self::adopt(&engine, &prefix).await
    }
}

impl OrderedImport {
    /// Begins an import into a cluster of etcd.
    ///
    /// # Errors
    /// The settings or the cluster can't be used, or a store has the prefix; [`StoreError::Preflight`] has the problem.
    pub fn on_etcd(settings: &EtcdConfig) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let connected = runtime.map_err(|error| StoreError::Failed(error.to_string()))?.block_on(connect(settings));
        let (engine, prefix) = connected?;
        Self::begin(Arc::new(engine), &prefix)
    }
}

/// Returns the checked cluster that the settings name, and the prefix of the store.
async fn connect(settings: &EtcdConfig) -> Result<(Etcd, String)> {
    let place = settings.place().map_err(|problem| refused(settings, Problem::Settings(problem)))?;
    let engine = Etcd::connect(&place, settings).map_err(|problem| refused(settings, problem))?;
    engine.check_limits().await.map_err(|problem| refused(settings, problem))?;
    Ok((engine, place.prefix))
}

fn refused(settings: &EtcdConfig, problem: Problem) -> StoreError {
    StoreError::Preflight(Box::new(PreflightError { database: settings.shown_url(), problem }))
}

/// The runtime that drives the connections. It outlives the server's own, since writers still wait for
/// answers while the server stops.
struct DriverRuntime(Option<Runtime>, Handle);

impl DriverRuntime {
    fn start() -> std::io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("etcd").enable_all().build()?;
        let handle = runtime.handle().clone();
        Ok(Self(Some(runtime), handle))
    }
}

impl Drop for DriverRuntime {
    fn drop(&mut self) {
        // A plain drop waits for tasks, and panics on a thread that drives tasks itself.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// A member of the cluster.
struct Member {
    address: String,
    channel: Channel,
    // True once the member was found to be of another cluster.
    is_foreign: AtomicBool,
}

/// A cluster of etcd.
struct Etcd {
    place: String,
    members: Vec<Member>,
    // The place of the member that calls go to.
    current: AtomicUsize,
    // The id of the cluster; 0 before the first answer.
    cluster: AtomicU64,
    // The quota of a cluster that does not tell it.
    quota_bytes: u64,
    runtime: DriverRuntime,
}

impl Etcd {
    /// Returns the cluster with these members. Connections are opened with the first calls.
    fn connect(place: &EtcdPlace, settings: &EtcdConfig) -> std::result::Result<Self, Problem> {
        let runtime = DriverRuntime::start().map_err(|error| Problem::Failed(error.to_string()))?;
        let entered = runtime.1.enter();
        let tls = channel::Tls::of(settings, place).map_err(Problem::Settings)?;
        let member = |address: &String| {
            let channel = channel::open(address, tls.clone()).map_err(Problem::Settings)?;
            Ok(Member { address: address.clone(), channel, is_foreign: AtomicBool::default() })
        };
        let members = place.members.iter().map(member).collect::<std::result::Result<Vec<_>, Problem>>()?;
        drop(entered);
        let (current, cluster) = Default::default();
        let quota_bytes = settings.quota_mib.saturating_mul(1024 * 1024);
        Ok(Self { place: settings.shown_url(), members, current, cluster, quota_bytes, runtime })
    }

    /// Makes a call at the present member. If the member fails or refuses the call, the next call goes to another
    /// one: a member may refuse what the others take, such as a learner.
    async fn call_once<C: Call>(&self, request: C) -> Result<C::Answer> {
        let at = self.current.load(Ordering::Relaxed);
        let member = self.members.get(at).ok_or_else(|| StoreError::Unreachable("there is no member".into()))?;
        let answer = self.call_member(member, request).await;
        if answer.as_ref().is_err_and(|error| error.is_away() || is_refusal(error)) {
            let next = (at + 1) % self.members.len();
            // If the exchange fails, another call has chosen the next member already.
            let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        answer
    }

    /// Makes a call that must not be repeated once it may have been made: only a refusal leads to another member.
    async fn call_until_taken<C: Call>(&self, request: C) -> Result<C::Answer> {
        let mut refused = None;
        for _ in &self.members {
            match self.call_once(request.clone()).await {
                Err(error) if is_refusal(&error) => refused = Some(error),
                answer => return answer,
            }
        }
        Err(refused.unwrap_or_else(|| StoreError::Unreachable("there is no member".into())))
    }

    async fn call_member<C: Call>(&self, member: &Member, request: C) -> Result<C::Answer> {
        self.call_member_within(CALL_TIMEOUT, member, request).await
    }

    async fn call_member_within<C: Call>(&self, limit: Duration, member: &Member, request: C) -> Result<C::Answer> {
        if member.is_foreign.load(Ordering::Relaxed) {
            return Err(foreign(member));
        }
        let late = || Err(Status::deadline_exceeded(format!("no answer within {} s", limit.as_secs())));
        let answer = timeout(limit, wire::call(member.channel.clone(), request)).await;
        let answer = answer.unwrap_or_else(|_| late()).map_err(|status| failed(&member.address, &status))?;
        self.check_cluster(answer.header().cluster_id, member)?;
        Ok(answer)
    }

    /// Checks that the member is of the same cluster as the others. Two clusters would give the same names
    /// out twice. An answer without the id, 0, is not checked: etcd 3.4 leaves it out of that about alarms.
    fn check_cluster(&self, cluster: u64, member: &Member) -> Result<()> {
        if cluster == 0 {
            return Ok(());
        }
        match self.cluster.compare_exchange(0, cluster, Ordering::Relaxed, Ordering::Relaxed) {
            Err(known) if known != cluster => {
                member.is_foreign.store(true, Ordering::Relaxed);
                tracing::error!(member = member.address, "a member of the URL is of another cluster, and is not used");
                Err(foreign(member))
            }
            _ => Ok(()),
        }
    }

    /// Makes a call that changes nothing, at one member after the other.
    async fn call<C: Call>(&self, request: C) -> Result<C::Answer> {
        let started = Instant::now();
        loop {
            let mut last = None;
            let mut is_any_away = false;
            for _ in &self.members {
                match self.call_once(request.clone()).await {
                    Err(error) if error.is_away() || is_refusal(&error) => {
                        is_any_away |= error.is_away();
                        last = Some(error);
                    }
                    answer => return answer,
                }
            }
            if !is_any_away || started.elapsed() >= PATIENCE {
                return Err(last.unwrap_or_else(|| StoreError::Unreachable("there is no member".into())));
            }
            sleep(PAUSE).await;
        }
    }

    /// Checks that the members take the largest transactions. Nothing is written. A member that refuses them is no
    /// reason to refuse the start, if another one takes them. A member of another cluster is.
    async fn check_limits(&self) -> std::result::Result<(), Problem> {
        let (mut is_any_checked, mut refused, mut last) = (false, None, String::new());
        for member in &self.members {
            match self.check_member(member).await {
                Ok(()) => is_any_checked = true,
                Err(error @ StoreError::Failed(_)) if member.is_foreign.load(Ordering::Relaxed) => {
                    return Err(Problem::Settings(error.to_string()));
                }
                Err(StoreError::Unreachable(cause)) => last = cause,
                Err(StoreError::Failed(cause)) => refused = Some(cause),
                Err(error) => return Err(Problem::Failed(error.to_string())),
            }
        }
        match refused {
            Some(cause) if !is_any_checked => Err(Problem::Settings(cause)),
            Some(cause) => {
                tracing::warn!("a member of the cluster can't serve: {cause}");
                Ok(())
            }
            None if is_any_checked => Ok(()),
            None => Err(Problem::Unreachable(last)),
        }
    }

    async fn check_member(&self, member: &Member) -> Result<()> {
        let too_small = |flag: &str, least: usize, error: StoreError| match error.is_away() {
            true => error,
            false => StoreError::Failed(format!(
                "`{}` refuses large transactions: start etcd with `{flag}={least}` or more ({error})",
                member.address
            )),
        };
        self.call_member(member, StatusRequest {}).await?;
        // No row has this key.
        let key = Bytes::from_static(b"\0");
        let read = RangeRequest { key: key.clone(), count_only: true, serializable: true, ..Default::default() };
        let read = operation(Operation::Range(read));
        let many = TxnRequest { success: vec![read.clone(); MAX_OPERATIONS], ..Default::default() };
        let answer = self.call_member_within(CHECK_TIMEOUT, member, many).await;
        answer.map_err(|error| too_small("--max-txn-ops", MAX_OPERATIONS, error))?;
        // A condition on a long value makes the message large.
        let value = vec![0; MAX_TRANSACTION_BYTES + MESSAGE_OVERHEAD_BYTES - MESSAGE_HEAD_BYTES];
        let value = Some(Target::Value(value.into()));
        let long = Compare { result: wire::EQUAL, target: wire::VALUE, key, value, ..Default::default() };
        let large = TxnRequest { compare: vec![long], success: vec![read], ..Default::default() };
        let answer = self.call_member_within(CHECK_TIMEOUT, member, large).await;
        answer.map_err(|error| too_small("--max-request-bytes", MAX_TRANSACTION_BYTES, error)).map(drop)
    }
}

/// True if a member has refused a call, so that it was surely not made.
fn is_refusal(error: &StoreError) -> bool {
    matches!(error, StoreError::Failed(_))
}

fn foreign(member: &Member) -> StoreError {
    StoreError::Failed(format!("`{}` is a member of another cluster than the others: correct the URL", member.address))
}

/// Returns the failure that a status of this member means.
fn failed(address: &str, status: &Status) -> StoreError {
    // The status of a failed connection has the cause, such as that of TLS, at the end of its chain.
    let cause = std::iter::successors(status.source(), |&error| error.source()).last();
    let cause = cause.map_or_else(|| status.message().to_owned(), ToString::to_string);
    let text = format!("`{address}`: {cause}");
    let has = |part: &str| status.message().contains(part);
    match status.code() {
        // etcd 3.4 and later: `api/v3rpc/rpctypes/error.go`.
        Code::ResourceExhausted if has("database space exceeded") => StoreError::OutOfResources(format!(
            "{text}, so compact it, `etcdctl defrag` each member, then `etcdctl alarm disarm`"
        )),
        // The message is larger than gRPC's limit: `grpc-go/rpc_util.go`.
        Code::ResourceExhausted if has("larger than max") => StoreError::Failed(text),
        // The member has not seen the revision yet.
        Code::OutOfRange if has("future revision") => StoreError::Unreachable(text),
        Code::OutOfRange if has(COMPACTED) => StoreError::Conflict(text),
        Code::OutOfRange
        | Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::NotFound
        | Code::Unimplemented => StoreError::Failed(text),
        _ => StoreError::Unreachable(text),
    }
}

/// A part of the message about a revision that was forgotten.
const COMPACTED: &str = "has been compacted";

/// Returns a revision as etcd has it.
fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// Returns a number of etcd, which is never negative.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn operation(operation: Operation) -> RequestOp {
    RequestOp { request: Some(operation) }
}

/// Returns the request of a read. At a given revision, any member that has it may answer.
fn range_request(read: KeyRead, at: Moment) -> RangeRequest {
    let revision = if let Moment::Revision(revision) = at { signed(revision) } else { 0 };
    let common = RangeRequest { revision, serializable: at != Moment::Newest, ..Default::default() };
    match read {
        KeyRead::Row(key) => RangeRequest { key, ..common },
        KeyRead::Range { range: KeyRange { from, to }, limit, keys_only } => {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            RangeRequest { key: from, range_end: to, limit, keys_only, ..common }
        }
    }
}

fn compare(guard: RowGuard) -> Compare {
    match guard {
        RowGuard::Written { key, revision } => {
            let value = Some(Target::ModRevision(signed(revision)));
            Compare { result: wire::EQUAL, target: wire::MOD, key, value, ..Default::default() }
        }
        RowGuard::Absent(key) => {
            let value = Some(Target::CreateRevision(0));
            Compare { result: wire::EQUAL, target: wire::CREATE, key, value, ..Default::default() }
        }
        RowGuard::Unchanged { range: KeyRange { from, to }, since } => {
            let value = Some(Target::ModRevision(signed(since.saturating_add(1))));
            Compare { result: wire::LESS, target: wire::MOD, key: from, value, range_end: to }
        }
    }
}

fn change(write: RowWrite) -> RequestOp {
    operation(match write {
        RowWrite::Put { key, value } => Operation::Put(PutRequest { key, value }),
        RowWrite::Delete(key) => Operation::DeleteRange(DeleteRangeRequest { key, ..Default::default() }),
        RowWrite::DeleteRange(KeyRange { from, to }) => {
            Operation::DeleteRange(DeleteRangeRequest { key: from, range_end: to })
        }
    })
}

fn entry(KeyValue { key, mod_revision, value }: KeyValue) -> Entry {
    Entry { key, value, revision: unsigned(mod_revision) }
}

impl Engine for Etcd {
    fn load(&self, at: Moment, reads: Vec<KeyRead>) -> EngineFuture<'_, LoadedEntries> {
        Box::pin(async move {
            let success: Vec<_> =
                reads.into_iter().map(|read| operation(Operation::Range(range_request(read, at)))).collect();
            let count = success.len();
            let answer = self.call(TxnRequest { success, ..Default::default() }).await?;
            let told = unsigned(answer.header().revision);
            let revision = if let Moment::Revision(revision) = at { revision } else { told };
            let ranges = answer.responses.into_iter().map(|response| response.range.unwrap_or_default());
            let entries: Vec<Vec<_>> = ranges.map(|range| range.kvs.into_iter().map(entry).collect()).collect();
            match entries.len() == count {
                true => Ok(LoadedEntries { revision, entries }),
                false => Err(StoreError::Failed("etcd has answered another number of reads than were asked".into())),
            }
        })
    }

    fn write(&self, guards: Vec<RowGuard>, writes: Vec<RowWrite>) -> EngineFuture<'_, Guarded> {
        Box::pin(async move {
            let compare = guards.into_iter().map(compare).collect();
            let success = writes.into_iter().map(change).collect();
            let answer = self.call_until_taken(TxnRequest { compare, success, ..Default::default() }).await?;
            Ok(Guarded { is_written: answer.succeeded, revision: unsigned(answer.header().revision) })
        })
    }

    fn prove(&self, absent: Bytes) -> EngineFuture<'_, u64> {
        Box::pin(async move {
            // A deletion passes through consensus, also if there is no row.
            let request = TxnRequest { success: vec![change(RowWrite::Delete(absent))], ..Default::default() };
            Ok(unsigned(self.call(request).await?.header().revision))
        })
    }

    fn count(&self, KeyRange { from, to }: KeyRange) -> EngineFuture<'_, u64> {
        Box::pin(async move {
            let request = RangeRequest { key: from, range_end: to, count_only: true, ..Default::default() };
            Ok(unsigned(self.call(request).await?.count))
        })
    }

    fn compact(&self, revision: u64) -> EngineFuture<'_, ()> {
        Box::pin(async move {
            match self.call(CompactionRequest { revision: signed(revision) }).await {
                // Somebody else has forgotten the revision.
                Err(StoreError::Conflict(cause)) if cause.contains(COMPACTED) => Ok(()),
                answer => answer.map(drop),
            }
        })
    }

    fn status(&self) -> EngineFuture<'_, EngineStatus> {
        Box::pin(async move {
            let alarms = self.call(AlarmRequest {}).await?.alarms;
            let asked = self.members.iter().map(|member| self.call_member(member, StatusRequest {}));
            let told: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
            if told.is_empty() {
                return Err(StoreError::Unreachable("no member tells its state".into()));
            }
            let largest = |number: fn(&StatusAnswer) -> i64| told.iter().map(number).max().map_or(0, unsigned);
            let quotas = told.iter().map(|answer| unsigned(answer.db_size_quota)).filter(|quota| *quota > 0);
            // A member refuses writes once its file is as large as the quota, though parts of it may be free.
            let disk_bytes = largest(|answer| answer.db_size);
            let quota_bytes = quotas.min().unwrap_or(self.quota_bytes);
            let cluster = self.cluster.load(Ordering::Relaxed);
            Ok(EngineStatus { cluster, disk_bytes, quota_bytes, alarms: alarms.len() })
        })
    }

    fn handle(&self) -> &Handle {
        &self.runtime.1
    }

    fn place(&self) -> &str {
        &self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_of_a_write_is_known_after_a_refusal_only() {
        let failed = |code, text| failed("a:1", &Status::new(code, text));
        let large = "grpc: received message larger than max (9 vs. 8)";
        assert!(matches!(failed(Code::ResourceExhausted, large), StoreError::Failed(_)));
        let space = "etcdserver: mvcc: database space exceeded";
        assert!(matches!(failed(Code::ResourceExhausted, space), StoreError::OutOfResources(_)));
        let operations = "etcdserver: too many operations in txn request";
        assert!(matches!(failed(Code::InvalidArgument, operations), StoreError::Failed(_)));
        for (code, text) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::ResourceExhausted, "h2 protocol error: enhance your calm"),
            (Code::Unknown, "raft proposal dropped"),
            (Code::DeadlineExceeded, "no answer within 2 s"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
        ] {
            assert!(matches!(failed(code, text), StoreError::Unreachable(_)), "{text}");
        }
    }
}
