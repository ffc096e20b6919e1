//! Epochs. An epoch is the time in which one process of one host is the primary: each restart, promotion and restore of
//! the database begins another one. A server enters an epoch before it serves in it, and every transaction fails in
//! another. Behind a pooler each transaction may be on another host, so a check of each connection would not do.
//!
//! **No answer of a former primary is stale.** A read is answered only if the primary has acknowledged a durable write
//! that was sent less than [`PROOF_VALIDITY`] ago, or after the read. A former primary acknowledges none, because its standbys
//! follow another host. A new epoch is served in only [`EPOCH_WAIT`] after this server has seen it first. So all reads of the
//! former epoch that other servers answer come before any write of the new one.
//!
//! **No write that a failover may undo is acknowledged.** A COMMIT with a warning has an unknown outcome, whatever the
//! warning says: the wait for a standby may have been canceled. All of this needs a synchronous standby. Without
//! one, a failover loses writes, and the server says if it misses its last lease.
//!
//! **One limit remains.** When somebody cancels the wait of a COMMIT, its rows are visible before a standby has them.
//! Another server does not see the warning. A read of its own within [`PROOF_VALIDITY`] may show such a row, which a
//! failover at that moment loses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::lease::{Fence, LeaseId};
use leasehold_core::time::Timestamp;
use tokio::sync::watch;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::connect::{DatabaseConnection, OVERTAKEN};
use super::failure::failed;
use super::hosts::Timeline;
use super::preflight::of_away;
use crate::awake::Awake;
use crate::store::error::StoreError;
use crate::store::preflight::Problem;
use crate::store::remedies::Remedy;

/// The time for which an acknowledged durable write proves that its host is the primary. It is shorter than
/// [`EPOCH_WAIT`], because the clocks of two servers may run at different speeds: NTP slews one by up to a twelfth.
pub(super) const PROOF_VALIDITY: Duration = Duration::from_millis(1_600);
/// The time after which a new epoch is served in: no other server answers reads of an earlier one then.
pub(super) const EPOCH_WAIT: Duration = Duration::from_secs(2);
/// The time after which a later timeline is forgotten whose host proves itself no more, for an earlier one whose COMMITs
/// wait for a standby.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(15);
/// An epoch of this age needs no wait. The age is measured by the database's clock, which may be set meanwhile.
const OLD_MS: i64 = 10_000;
/// The longest wait of a server for another one that begins the same epoch.
const LOCK_TIMEOUT: &str = "5s";

/// The cause of missing changes, and what to do.
const LOST: &str = "an asynchronous standby was promoted, or an older copy was restored; other changes are lost too, so verify \
    every cell";
/// The text for a database that holds another store, as if an address had been pointed elsewhere.
const OTHER_STORE: &str = "the database holds another store than this server has opened: correct the URL, or what it leads to, \
    and restart the server";
/// The text for an epoch that a COMMIT of another session holds up: that of a server, or of a start that has given up.
const HELD_UP: &str = "the epoch is begun by another COMMIT, which does not end: does a synchronous standby answer?";
/// The text for a copy that took the place of the database while this server was running.
const OLDER_COPY: &str = "the database is a copy that lacks changes of this server: if it is to take the place of the other one, \
    restart the server";
/// A query that returns true if there is a lease, outstanding or settled.
const IS_KNOWN: &str = "
    SELECT EXISTS (SELECT FROM claim_leases WHERE uuid = $1) OR EXISTS (SELECT FROM settled_leases WHERE uuid = $1)";
/// A query that returns true if a lease is outstanding.
const IS_OUTSTANDING: &str = "SELECT EXISTS (SELECT FROM claim_leases WHERE uuid = $1)";
/// A query that returns true if COMMITs wait for a standby.
const WAITS: &str = "SELECT current_setting('synchronous_standby_names') <> ''";
/// A query that returns true if servers have used tables of which those of this epoch are a copy.
const IS_FOREIGN: &str = "
    SELECT count(*) > 0 AND NOT coalesce(bool_or(are_same_tables(e.epoch, $1)), false) FROM store_epochs e";

type Result<T> = std::result::Result<T, StoreError>;

/// An epoch, as the function `current_epoch` of the tables returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Epoch(String);

impl Epoch {
    /// The timeline of the epoch, whose number the text may lack.
    fn timeline(&self) -> Timeline {
        let mut parts = self.0.split('/');
        let (database, number) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let cluster = database.split(':').next().unwrap_or_default();
        Timeline::read(cluster, number)
    }

    /// True if the other epoch is of the same cluster, and of an earlier timeline.
    fn is_after(&self, other: &Self) -> bool {
        self.timeline().is_after(other.timeline())
    }

    /// True if the other epoch is of the same tables, and not of a copy: the function `are_same_tables`.
    fn has_tables_of(&self, other: &Self) -> bool {
        let tables = |epoch: &Self| {
            let mut parts = epoch.0.split('/').map(str::to_owned);
            (parts.next(), parts.next_back())
        };
        tables(self) == tables(other)
    }
}

/// The proof that a host is the primary, and that its rows are durable.
#[derive(Clone, Copy, Debug, Default)]
struct Proof {
    // When the last durable write was sent that the primary has acknowledged.
    sent: Option<Awake>,
    // Writes that were sent before this time prove nothing any longer.
    doubted: Option<Awake>,
}

/// An epoch that this server serves in.
#[derive(Debug)]
pub(super) struct Accepted {
    epoch: Epoch,
    proof: Mutex<Proof>,
    // True for an examination, which writes nothing.
    needs_proof: bool,
}

impl Accepted {
    /// Returns the SQL expression that returns `value` in this epoch and fails in another.
    pub(super) fn guard(&self, value: &str) -> String {
        // INVARIANT: the text has digits and slashes only, see `host_epoch`.
        format!("at_epoch('{}', {value})", self.text())
    }

    /// The epoch as the first argument of `at_epoch`: without the cluster.
    pub(super) fn text(&self) -> &str {
        self.epoch.0.split_once('/').map_or("", |(_, host)| host)
    }

    /// Notes that the primary has acknowledged a durable write that was sent at this time.
    pub(super) fn prove(&self, sent: Option<Awake>) {
        let mut proof = locked(&self.proof);
        if sent > proof.doubted.max(proof.sent) {
            proof.sent = sent;
        }
    }

    /// Forgets the proof, because a COMMIT had a warning: rows may be visible that a standby does not have.
    pub(super) fn doubt(&self) {
        *locked(&self.proof) = Proof { sent: None, doubted: Awake::now() };
    }

    /// True if the host has proved itself no more for so long that it is taken for gone.
    fn is_forgotten(&self) -> bool {
        let Proof { sent, doubted } = *locked(&self.proof);
        sent.max(doubted).and_then(Awake::elapsed).is_some_and(|age| age > FORGOTTEN)
    }

    /// True if the last proof is good.
    pub(super) fn is_proved(&self) -> bool {
        let needs_proof = self.needs_proof && !Remedy::Proof.is_out();
        !needs_proof || locked(&self.proof).sent.and_then(Awake::elapsed).is_some_and(|age| age < PROOF_VALIDITY)
    }
}

/// The last lease that this server has begun, which each later epoch must have.
#[derive(Clone, Copy, Debug)]
struct LastLease {
    lease: LeaseId,
    fence: Fence,
    begun_at: Timestamp,
}

/// A change that a database lacks.
enum LostChange {
    /// This lease was begun.
    Lease(LastLease),
    /// This lease was settled.
    Settle(LeaseId),
}

/// The epochs of a database as this server has seen them, for all connections of a store.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    accepted: watch::Sender<Option<Arc<Accepted>>>,
    // The epoch that was seen last, and when it was seen first.
    seen: Mutex<Option<(Epoch, Option<Awake>)>>,
    // The latest timeline of the cluster, and when one of its hosts was seen last.
    latest: Mutex<(Timeline, Option<Awake>)>,
    last_lease: Mutex<Option<LastLease>>,
    last_settled: Mutex<Option<LeaseId>>,
    // Leases that were begun before this time may be forgotten.
    forgotten_before: Mutex<Timestamp>,
    lacks_changes: AtomicBool,
    // True if the database did not answer the last probe.
    is_away: watch::Sender<bool>,
    // The id of the store, which each later epoch must have.
    store: OnceLock<Uuid>,
}

/// The reason why an epoch can't be entered.
#[derive(Debug)]
pub(super) enum NotEntered {
    /// The tables are a copy of those that servers have used.
    Foreign,
    /// Another host was promoted after this one.
    Overtaken,
    /// The tables are those of another store than this server has opened.
    OtherStore,
    /// The tables are a copy of those that this server has used, and lack its changes.
    OlderCopy,
    /// The database has not acknowledged a durable write in this time.
    NotDurable(Duration),
    /// Another session begins the epoch, and its COMMIT does not end.
    HeldUp,
    /// The database can't be read or written.
    Failed(StoreError),
}

impl From<StoreError> for NotEntered {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<NotEntered> for StoreError {
    fn from(cause: NotEntered) -> Self {
        match cause {
            NotEntered::Foreign => Self::Unreachable(format!("the database {}", Problem::Foreign)),
            NotEntered::Overtaken => Self::Unreachable(OVERTAKEN.into()),
            NotEntered::OtherStore => Self::Unreachable(OTHER_STORE.into()),
            NotEntered::OlderCopy => Self::Unreachable(OLDER_COPY.into()),
            NotEntered::NotDurable(time) => Self::Unreachable(not_durable(time)),
            NotEntered::HeldUp => Self::Unreachable(HELD_UP.into()),
            NotEntered::Failed(error) => error,
        }
    }
}

impl From<NotEntered> for Problem {
    fn from(cause: NotEntered) -> Self {
        match cause {
            NotEntered::Foreign => Self::Foreign,
            NotEntered::Overtaken => Self::NotServing(OVERTAKEN.into()),
            NotEntered::OtherStore => Self::NotServing(OTHER_STORE.into()),
            NotEntered::OlderCopy => Self::NotServing(OLDER_COPY.into()),
            NotEntered::NotDurable(time) => Self::NotServing(not_durable(time)),
            NotEntered::HeldUp => Self::NotServing(HELD_UP.into()),
            NotEntered::Failed(error) => of_away(error).unwrap_or_else(|error| Self::Failed(error.to_string())),
        }
    }
}

fn not_durable(time: Duration) -> String {
    format!("no durable write within {} s: does a synchronous standby answer?", time.as_secs())
}

/// The answer of `begin_epoch`.
struct Begun {
    epoch: Epoch,
    state: i16,
    age_ms: i64,
}

/// The states that `begin_epoch` returns.
mod state {
    pub(super) const FIRST: i16 = 1;
    pub(super) const FOREIGN: i16 = 3;
    pub(super) const OVERTAKEN: i16 = 4;
    pub(super) const ADOPTED: i16 = 5;
}

impl Epochs {
    /// True if this server still serves in this epoch.
    pub(super) fn is_present(&self, accepted: &Arc<Accepted>) -> bool {
        is_same(self.accepted.borrow().as_ref(), accepted)
    }

    /// Waits until this server has left the epoch.
    pub(super) async fn left(&self, accepted: &Arc<Accepted>) {
        let mut changes = self.accepted.subscribe();
        // The sender outlives this borrow of it, so the wait never fails.
        let _ = changes.wait_for(|present| !is_same(present.as_ref(), accepted)).await;
    }

    /// Notes that a host of this timeline accepts writes.
    fn note_timeline(&self, timeline: Timeline) {
        let mut latest = locked(&self.latest);
        if !latest.0.is_after(timeline) {
            *latest = (timeline, Awake::now());
        }
    }

    /// True if a later timeline than this one was seen.
    fn is_overtaken(&self, timeline: Timeline) -> bool {
        locked(&self.latest).0.is_after(timeline)
    }

    /// Leaves an epoch of an earlier timeline, because another host has this one.
    pub(super) fn overtake(&self, timeline: Timeline) {
        self.note_timeline(timeline);
        self.accepted.send_if_modified(|present| {
            let is_overtaken = present.as_ref().is_some_and(|accepted| timeline.is_after(accepted.epoch.timeline()));
            if is_overtaken {
                *present = None;
            }
            is_overtaken
        });
    }

    /// Notes the last lease that was begun.
    pub(super) fn note(&self, lease: LeaseId, fence: Fence, begun_at: Timestamp) {
        let mut last_lease = locked(&self.last_lease);
        if last_lease.is_none_or(|former| former.fence < fence) {
            *last_lease = Some(LastLease { lease, fence, begun_at });
        }
    }

    /// Notes a lease that was settled.
    pub(super) fn note_settled(&self, lease: LeaseId) {
        *locked(&self.last_settled) = Some(lease);
    }

    /// Notes that leases which were settled before this time are forgotten.
    pub(super) fn forget(&self, settled_before: Timestamp) {
        *locked(&self.forgotten_before) = settled_before;
    }

    /// True if a lease was missing that this server has begun in an earlier epoch.
    pub(super) fn lacks_changes(&self) -> bool {
        self.lacks_changes.load(Ordering::Relaxed)
    }

    /// Notes if the database has not answered a probe.
    pub(super) fn set_away(&self, is_away: bool) {
        self.is_away.send_if_modified(|former| std::mem::replace(former, is_away) != is_away);
    }

    /// Waits until the database has answered no probe for this time.
    pub(super) async fn away_for(&self, time: Duration) {
        let mut away = self.is_away.subscribe();
        loop {
            // The sender outlives this borrow of it, so no wait fails.
            let _ = away.wait_for(|is_away| *is_away).await;
            if tokio::time::timeout(time, away.wait_for(|is_away| !is_away)).await.is_err() {
                return;
            }
        }
    }

    /// Returns the epoch of a connection, on which the caller examines the database and writes nothing.
    ///
    /// # Errors
    /// The tables are a copy, or the database can't be read.
    pub(super) async fn observe(connection: &DatabaseConnection) -> std::result::Result<Arc<Accepted>, NotEntered> {
        let epoch = current(connection).await?;
        let row = connection.query_typed_one(IS_FOREIGN, &[(&epoch.0, Type::TEXT)]).await.map_err(failed)?;
        if row.try_get(0).map_err(failed)? {
            return Err(NotEntered::Foreign);
        }
        Ok(Arc::new(Accepted { epoch, proof: Mutex::default(), needs_proof: false }))
    }

    /// Enters the epoch of a connection. Waits until no other server answers reads of an earlier epoch.
    ///
    /// # Errors
    /// The host is no longer the primary, the tables are a copy, or the database can't be written.
    pub(super) async fn enter(
        &self,
        connection: &DatabaseConnection,
    ) -> std::result::Result<Arc<Accepted>, NotEntered> {
        let epoch = current(connection).await?;
        let present = self.accepted.borrow().clone();
        if let Some(present) = present.as_ref().filter(|present| present.epoch == epoch) {
            return Ok(present.clone());
        }
        let returns = self.is_overtaken(epoch.timeline());
        if returns && !self.may_return(connection, present.as_ref()).await? {
            return Err(NotEntered::Overtaken);
        }
        let accepted = self.begin(connection, epoch, returns).await?;
        let lost = self.lost_change(connection).await?;
        let is_copy = present.as_ref().is_some_and(|present| !present.epoch.has_tables_of(&accepted.epoch));
        match lost {
            Some(_) if is_copy => return Err(NotEntered::OlderCopy),
            Some(lost) => self.report(lost),
            None => {}
        }
        self.accept(accepted, present.as_ref().filter(|_| returns))
    }

    /// True if this server may go back to a host of an earlier timeline. The host of the later one has not proved itself
    /// for long, and this one acknowledges writes that a standby confirms: nobody has taken its standbys away. That is so
    /// if somebody has promoted a standby by hand, and its cluster manager has taken it back.
    async fn may_return(&self, connection: &DatabaseConnection, present: Option<&Arc<Accepted>>) -> Result<bool> {
        let seen = locked(&self.latest).1;
        let is_gone = seen.and_then(Awake::elapsed).is_some_and(|age| age > FORGOTTEN);
        if !is_gone || present.is_some_and(|present| !present.is_forgotten()) {
            return Ok(false);
        }
        let row = connection.query_typed_one(WAITS, &[]).await.map_err(failed)?;
        row.try_get(0).map_err(failed)
    }

    /// Begins an epoch, or joins the servers that have begun it. Waits until no other server answers reads of an earlier
    /// one.
    async fn begin(
        &self,
        connection: &DatabaseConnection,
        epoch: Epoch,
        returns: bool,
    ) -> std::result::Result<Arc<Accepted>, NotEntered> {
        let store = store_id(connection).await?;
        if *self.store.get_or_init(|| store) != store {
            return Err(NotEntered::OtherStore);
        }
        let seen = self.see(&epoch);
        let last_fence = locked(&self.last_lease).map_or(0, |last_lease| last_lease.fence.0.cast_signed());
        let (sent, begun) = begin(connection, last_fence, false).await?;
        match begun.state {
            state::FOREIGN => return Err(NotEntered::Foreign),
            state::OVERTAKEN => return Err(NotEntered::Overtaken),
            _ if begun.epoch != epoch => return Err(StoreError::Unreachable("the host was restarted".into()).into()),
            _ => {}
        }
        let accepted =
            Arc::new(Accepted { epoch, proof: Mutex::new(Proof { sent, doubted: None }), needs_proof: true });
        let may_be_read_elsewhere = returns || begun.age_ms < OLD_MS;
        if begun.state != state::FIRST && may_be_read_elsewhere && !Remedy::Wait.is_out() {
            let rest = EPOCH_WAIT.saturating_sub(seen.and_then(Awake::elapsed).unwrap_or_default());
            tokio::time::sleep(rest).await;
            // The host may have been left for another one meanwhile.
            prove(connection, &accepted).await?;
        }
        Ok(accepted)
    }

    /// Returns the time at which this epoch was seen first.
    fn see(&self, epoch: &Epoch) -> Option<Awake> {
        let mut seen = locked(&self.seen);
        match &*seen {
            Some((former, at)) if former == epoch => *at,
            _ => seen.insert((epoch.clone(), Awake::now())).1,
        }
    }

    /// Lets this server serve in an epoch. It may be of an earlier timeline than `left`, which this server leaves.
    fn accept(
        &self,
        accepted: Arc<Accepted>,
        left: Option<&Arc<Accepted>>,
    ) -> std::result::Result<Arc<Accepted>, NotEntered> {
        let mut entered = Ok(accepted.clone());
        self.accepted.send_if_modified(|present| match present {
            // Another connection has entered the epoch, or a later one, in the meantime.
            Some(former) if former.epoch == accepted.epoch => {
                entered = Ok(former.clone());
                false
            }
            Some(former) if former.epoch.is_after(&accepted.epoch) && !is_same(left, former) => {
                entered = Err(NotEntered::Overtaken);
                false
            }
            former => {
                if former.is_some() {
                    tracing::warn!(
                        epoch = accepted.epoch.0,
                        "the database was restarted, or another host was promoted: all connections are opened anew"
                    );
                }
                *former = Some(accepted.clone());
                true
            }
        });
        if entered.is_ok() {
            *locked(&self.latest) = (accepted.epoch.timeline(), Awake::now());
        }
        entered
    }

    /// Returns a change that this server has made last and the database lacks.
    async fn lost_change(&self, connection: &DatabaseConnection) -> Result<Option<LostChange>> {
        let last_lease = *locked(&self.last_lease);
        if let Some(last @ LastLease { lease, begun_at, .. }) = last_lease
            && begun_at > *locked(&self.forgotten_before)
            && !is_true(connection, IS_KNOWN, lease).await?
        {
            return Ok(Some(LostChange::Lease(last)));
        }
        let last_settled = *locked(&self.last_settled);
        let Some(lease) = last_settled else { return Ok(None) };
        Ok(is_true(connection, IS_OUTSTANDING, lease).await?.then_some(LostChange::Settle(lease)))
    }

    fn report(&self, lost: LostChange) {
        self.lacks_changes.store(true, Ordering::Relaxed);
        match lost {
            LostChange::Lease(LastLease { lease, fence, .. }) => {
                tracing::error!(%lease, fence = fence.0, "the database lacks a lease that this server has begun: {LOST}");
            }
            LostChange::Settle(lease) => {
                tracing::error!(%lease, "the database has a lease as outstanding that this server has settled: {LOST}");
            }
        }
    }
}

/// Accepts the tables of a copy. Returns false if they are none.
///
/// # Errors
/// The database can't be written, or the tables have seen a later timeline of this cluster.
pub(super) async fn adopt(connection: &DatabaseConnection) -> std::result::Result<bool, NotEntered> {
    match begin(connection, 0, true).await?.1.state {
        state::OVERTAKEN => Err(NotEntered::Overtaken),
        state => Ok(state == state::ADOPTED),
    }
}

/// Proves that the host of a connection is the primary, by a durable write.
///
/// # Errors
/// The host is in another epoch, or does not acknowledge the write without a warning.
pub(super) async fn prove(connection: &DatabaseConnection, accepted: &Accepted) -> Result<()> {
    let sql = format!("SELECT {}, write_durably()", accepted.guard("0"));
    let sent = Awake::now();
    durable(connection, async { connection.batch_execute(&sql).await.map_err(failed) }).await?;
    accepted.prove(sent);
    Ok(())
}

/// Waits for the answer to a COMMIT. A warning makes its outcome unknown.
///
/// # Errors
/// The errors of `answer`, or the database has sent a warning.
pub(super) async fn durable<T>(connection: &DatabaseConnection, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let warnings = connection.warnings();
    let answered = answer.await?;
    if connection.warnings() == warnings {
        return Ok(answered);
    }
    Err(StoreError::Unreachable("the database has committed with a warning, so a standby may lack the change".into()))
}

async fn current(connection: &DatabaseConnection) -> Result<Epoch> {
    let row = connection.query_typed_one("SELECT current_epoch()", &[]).await.map_err(failed)?;
    Ok(Epoch(row.try_get(0).map_err(failed)?))
}

/// Returns the id of the store.
async fn store_id(connection: &DatabaseConnection) -> Result<Uuid> {
    let row = connection.query_typed_one("SELECT id FROM leasehold_store", &[]).await.map_err(failed)?;
    row.try_get(0).map_err(failed)
}

/// Begins the epoch of a connection, unless it has begun. Returns also when that was sent.
///
/// # Errors
/// Another COMMIT holds the epoch up, or the database can't be written.
async fn begin(
    connection: &DatabaseConnection,
    last_fence: i64,
    adopts: bool,
) -> std::result::Result<(Option<Awake>, Begun), NotEntered> {
    // The statements of one message are one transaction.
    let sql = format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; SELECT epoch, state, age_ms FROM begin_epoch({last_fence}, {adopts})"
    );
    let sent = Awake::now();
    let answer = durable(connection, async { connection.simple_query(&sql).await.map_err(failed) }).await;
    let answer = answer.map_err(|error| match error {
        // No session of somebody else has the row: its COMMIT waits for a standby.
        StoreError::Locked(_) => NotEntered::HeldUp,
        error => error.into(),
    })?;
    let begun = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(Begun {
            epoch: Epoch(row.get(0)?.to_owned()),
            state: row.get(1)?.parse().ok()?,
            age_ms: row.get(2)?.parse().ok()?,
        }),
        _ => None,
    });
    let begun = begun.ok_or_else(|| StoreError::Failed("`begin_epoch` returns no row".into()))?;
    Ok((sent, begun))
}

/// Returns the answer of a query about a lease.
async fn is_true(connection: &DatabaseConnection, sql: &str, lease: LeaseId) -> Result<bool> {
    let row = connection.query_typed_one(sql, &[(&lease.0, Type::UUID)]).await.map_err(failed)?;
    row.try_get(0).map_err(failed)
}

fn is_same(present: Option<&Arc<Accepted>>, accepted: &Arc<Accepted>) -> bool {
    present.is_some_and(|present| Arc::ptr_eq(present, accepted))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change of these values is one assignment, so a panic leaves none half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_the_cluster_and_the_timeline_that_its_hosts_tell() {
        let epoch = |text: &str| Epoch(text.into());
        let first = epoch("7412345678901234567:16384/00000001/1796012673650000/1796012673600000/16390");
        assert_eq!(first.timeline(), Timeline { cluster: 7_412_345_678_901_234_567, number: 1 });
        let promoted = epoch("7412345678901234567:16384/0000001A/1796012673650001/1796012673600000/16390");
        assert!(promoted.is_after(&first) && !first.is_after(&promoted));
        assert!(!epoch("8:16384/0000001B/1/1/16390").is_after(&first));
    }
}
