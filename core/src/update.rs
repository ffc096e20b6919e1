//! Begin, commit and rollback: the commands, as functions over a transaction.

use crate::batch::{Batch, Create, Destroy, Entry, Fingerprint};
use crate::bucket::BucketKey;
use crate::claim::{CellId, Claim, ClaimState, Hold, Record, Replacement};
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState, Outcome};
use crate::rejection::{Detail, Offence, Place, Reason, Rejection};
use crate::store::Fences;
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Changes, Keys, Replay, Transaction, Workspace};

/// A command's answer: the inner result is the engine's decision, the outer one the store's health.
pub type Answer<T, E> = Result<Result<T, Rejection>, E>;

/// The shortest and longest hint of when to try a busy claim again.
const RETRY_AFTER_MICROS: std::ops::RangeInclusive<u64> = 100_000..=60_000_000;

/// Begin an update. Made by [`Rules::begin`](crate::rules::Rules::begin).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The cell that calls.
    pub cell: CellId,
    /// The lease's id, minted by the host; a replay gets the first one's.
    pub lease: LeaseId,
    /// What to do.
    pub batch: Batch,
    /// The caller's name for this begin, and what its body looks like (B09).
    pub idempotency: Option<(IdempotencyKey, Fingerprint)>,
    /// Whether the host runs this begin again because it does not know if the store kept it: where its lease is known, it
    /// was kept.
    pub resumed: bool,
}

/// Commit or roll back a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The cell whose lease it is.
    pub cell: CellId,
    /// The lease.
    pub lease: LeaseId,
    /// Commit or roll back.
    pub outcome: Outcome,
}

/// Forget a lease that was settled before a time, and its idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The lease.
    pub lease: LeaseId,
    /// Only if it was settled earlier than this.
    pub settled_before: Timestamp,
}

/// A begun update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The lease; of a replay, the first try's (B09).
    pub lease: LeaseId,
    /// Its fence (B13).
    pub fence: Fence,
    /// Whether an earlier try had begun it.
    pub replayed: bool,
}

/// Any command, for hosts that queue them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// See [`begin`].
    Begin(Begin),
    /// See [`settle`].
    Settle(Settle),
    /// See [`forget`].
    Forget(Forget),
}

/// Any command's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A begin's.
    Begun(Begun),
    /// A settle's: whether it changed anything, or had happened before (B22).
    Settled(bool),
    /// A forget's: whether there was something to forget.
    Forgotten(bool),
}

impl Reply {
    /// The reply with the fence that the store gave the lease, where it gave one.
    #[must_use]
    pub fn numbered(self, fences: &Fences) -> Self {
        match self {
            Self::Begun(begun) => {
                let fence = fences.get(&begun.lease).copied().unwrap_or(begun.fence);
                Self::Begun(Begun { fence, ..begun })
            }
            reply => reply,
        }
    }
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The store failed; nothing was changed.
    pub fn apply<T: Transaction>(&self, tx: &mut T, now: Timestamp) -> Answer<Reply, T::Error> {
        Ok(match self {
            Self::Begin(command) => begin(tx, command, now)?.map(Reply::Begun),
            Self::Settle(command) => settle(tx, command, now)?.map(Reply::Settled),
            Self::Forget(command) => Ok(Reply::Forgotten(forget(tx, command)?)),
        })
    }

    /// Adds the rows that the command reads, as far as `workspace` lets it know them.
    pub(crate) fn keys(&self, workspace: &Workspace, keys: &mut Keys) {
        match self {
            Self::Begin(begin) => {
                keys.claims.extend(begin.batch.keys().cloned());
                keys.replays.extend(begin.idempotency.as_ref().map(|(key, _)| key.clone()));
                keys.leases.extend(begin.resumed.then_some(begin.lease));
            }
            Self::Settle(Settle { lease, .. }) => {
                keys.leases.push(*lease);
                let claims = workspace.loaded_lease(*lease).map_or(&[][..], Lease::claims);
                keys.claims.extend(claims.iter().cloned());
            }
            Self::Forget(Forget { lease, .. }) => {
                keys.leases.push(*lease);
                let known = workspace.loaded_lease(*lease);
                keys.replays.extend(known.and_then(|lease| lease.idempotency_key.clone()));
            }
        }
    }
}

/// Begins an update under a new lease: every entry takes effect, or none (B01).
///
/// # Errors
/// The store failed. A refusal is the inner error, with every offence (B10).
pub fn begin<T: Transaction>(tx: &mut T, command: &Begin, now: Timestamp) -> Answer<Begun, T::Error> {
    if command.resumed
        && let Some(lease) = tx.lease(command.lease)?
    {
        return Ok(Ok(Begun { lease: command.lease, fence: lease.fence, replayed: false }));
    }
    if let Some((key, fingerprint)) = &command.idempotency
        && let Some(replay) = tx.replay(key)?
    {
        return Ok(replayed(replay, fingerprint));
    }
    let hold = Hold { lease: command.lease, since: now };
    let mut offences = Vec::new();
    let mut claims = Vec::with_capacity(command.batch.entries().len());
    for entry in command.batch.entries() {
        match next_claim(tx.claim(entry.key())?, entry, command.cell, hold) {
            Ok(claim) => claims.push((entry.key().clone(), Some(claim))),
            Err(offence) => offences.push(offence),
        }
    }
    if let Some(rejection) = Rejection::of(offences) {
        return Ok(Err(rejection));
    }
    let fence = tx.last_fence()?.next();
    tx.write(begin_changes(command, claims, fence, now))?;
    Ok(Ok(Begun { lease: command.lease, fence, replayed: false }))
}

fn replayed(replay: &Replay, fingerprint: &Fingerprint) -> Result<Begun, Rejection> {
    match replay.fingerprint.difference(fingerprint) {
        Some(what) => Err(Rejection::whole(Reason::IdempotencyKeyReused, Detail::Differs(what))),
        None => Ok(Begun { lease: replay.lease, fence: replay.fence, replayed: true }),
    }
}

fn begin_changes(command: &Begin, claims: Vec<(BucketKey, Option<Claim>)>, fence: Fence, now: Timestamp) -> Changes {
    let lease = Lease {
        cell: command.cell,
        fence,
        created_at: now,
        updated_at: now,
        idempotency_key: command.idempotency.as_ref().map(|(key, _)| key.clone()),
        state: LeaseState::Outstanding(claims.iter().map(|(key, _)| key.clone()).collect()),
    };
    let replay = |(key, fingerprint): &(IdempotencyKey, Fingerprint)| {
        let replay = Replay { lease: command.lease, fence, fingerprint: fingerprint.clone() };
        (key.clone(), Some(replay))
    };
    Changes {
        claims,
        leases: vec![(command.lease, Some(lease))],
        replays: command.idempotency.iter().map(replay).collect(),
        fence: Some(fence),
    }
}

/// The claim of an entry's bucket after begin, or why it may not be.
fn next_claim(present: Option<&Claim>, entry: &Entry, cell: CellId, hold: Hold) -> Result<Claim, Offence> {
    let state = match entry {
        Entry::Create(create) => {
            check_create(present, create, hold.since)?;
            ClaimState::Creating(hold, new_record(create, hold))
        }
        Entry::Destroy(destroy) => {
            let record = owned_record(present, destroy, cell, hold.since)?;
            ClaimState::Destroying(hold, record.clone())
        }
        Entry::Replace(create, destroy) => {
            let old = owned_record(present, destroy, cell, hold.since)?.clone();
            // The cell keeps the bucket without a gap, so the claim keeps its name and its birth (B06).
            let new = Record { uuid: old.uuid, created_at: old.created_at, ..new_record(create, hold) };
            ClaimState::Replacing(hold, Box::new(Replacement { old, new }))
        }
    };
    Ok(Claim { owner: cell, state })
}

fn new_record(create: &Create, hold: Hold) -> Record {
    Record {
        uuid: hold.lease.record_uuid(create.position),
        spelling: create.bucket.spelling.clone(),
        subject: create.subject,
        source: create.source.clone(),
        user_data: create.user_data.clone(),
        created_at: hold.since,
        updated_at: hold.since,
    }
}

/// A create needs an absent bucket: under a lease it is busy (B03), at rest it is taken (B02).
fn check_create(present: Option<&Claim>, create: &Create, now: Timestamp) -> Result<(), Offence> {
    let Some(claim) = present else { return Ok(()) };
    let (reason, detail) = match claim.hold() {
        Some(hold) => busy(hold, now),
        None => (Reason::ClaimTaken, Detail::None),
    };
    Err(Offence::at(Place::create(create.position), create.bucket.key.bucket_type, reason, detail))
}

/// A destroy needs a claim at rest (B03), owned by the calling cell (B04), still from the row that it names (B05).
/// A replace is judged as its destroy (B06).
fn owned_record<'a>(
    present: Option<&'a Claim>,
    destroy: &Destroy,
    cell: CellId,
    now: Timestamp,
) -> Result<&'a Record, Offence> {
    let offence =
        |(reason, detail)| Offence::at(Place::destroy(destroy.position), destroy.key.bucket_type, reason, detail);
    let claim = present.ok_or_else(|| offence((Reason::ClaimNotFound, Detail::None)))?;
    if let Some(hold) = claim.hold() {
        return Err(offence(busy(hold, now)));
    }
    if claim.owner != cell {
        return Err(offence((Reason::NotOwner, Detail::None)));
    }
    let record = claim.record();
    match &destroy.source {
        Some(source) if *source != record.source => Err(offence((Reason::ClaimChanged, Detail::None))),
        _ => Ok(record),
    }
}

/// Busy, with the hint to wait as long again as the lease has lasted: most end at once, a lost one takes minutes.
fn busy(hold: Hold, now: Timestamp) -> (Reason, Detail) {
    let age = now.micros_since(hold.since);
    let hint = age.clamp(*RETRY_AFTER_MICROS.start(), *RETRY_AFTER_MICROS.end());
    (Reason::ClaimBusy, Detail::RetryAfterMicros(hint))
}

/// Commits a lease (B20) or rolls it back (B21); again is the same as once (B22). True where it changed anything.
///
/// # Errors
/// The store failed. Refused, as the inner error, where the lease is unknown or another cell's (B24) or was settled
/// the other way (B23).
pub fn settle<T: Transaction>(tx: &mut T, command: &Settle, now: Timestamp) -> Answer<bool, T::Error> {
    let Some(lease) = tx.lease(command.lease)? else {
        return Ok(Err(Rejection::whole(Reason::LeaseNotFound, Detail::None)));
    };
    if lease.cell != command.cell {
        return Ok(Err(Rejection::whole(Reason::NotOwner, Detail::None)));
    }
    let reason = match (&lease.state, command.outcome) {
        (LeaseState::Outstanding(keys), _) => {
            let changes = settle_changes(tx, command, lease, keys, now)?;
            tx.write(changes)?;
            return Ok(Ok(true));
        }
        (LeaseState::Settled(before), outcome) if *before == outcome => return Ok(Ok(false)),
        (LeaseState::Settled(Outcome::RolledBack), _) => Reason::LeaseRolledBack,
        (LeaseState::Settled(Outcome::Committed), _) => Reason::LeaseCommitted,
    };
    Ok(Err(Rejection::whole(reason, Detail::None)))
}

fn settle_changes<T: Transaction>(
    tx: &T,
    command: &Settle,
    lease: &Lease,
    keys: &[BucketKey],
    now: Timestamp,
) -> Result<Changes, T::Error> {
    let mut claims = Vec::with_capacity(keys.len());
    for key in keys {
        let held = tx.claim(key)?.filter(|claim| claim.hold().is_some_and(|hold| hold.lease == command.lease));
        let claim = held.ok_or(BrokenState::LeaseListsForeignClaim(command.lease))?;
        claims.push((key.clone(), claim.settled(command.outcome, now)));
    }
    let lease = Lease {
        updated_at: now,
        idempotency_key: lease.idempotency_key.clone(),
        state: LeaseState::Settled(command.outcome),
        ..*lease
    };
    Ok(Changes { claims, leases: vec![(command.lease, Some(lease))], ..Changes::default() })
}

/// Forgets a lease that has been settled for long enough (B22, B24). False where it is not so.
///
/// # Errors
/// The store failed.
pub fn forget<T: Transaction>(tx: &mut T, command: &Forget) -> Result<bool, T::Error> {
    let Some(lease) = tx.lease(command.lease)? else { return Ok(false) };
    if lease.outcome().is_none() || lease.updated_at >= command.settled_before {
        return Ok(false);
    }
    let replays = lease.idempotency_key.iter().map(|key| (key.clone(), None)).collect();
    tx.write(Changes { leases: vec![(command.lease, None)], replays, ..Changes::default() })?;
    Ok(true)
}
