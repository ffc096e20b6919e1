//! The commands as functions over a [`Transaction`]: [`begin`], [`settle`] (commit or roll back)
//! and [`forget`].
//!
//! A command first reads everything that it decides on and then writes once. So a refused or failed
//! command leaves no trace, and a host can run the command again on newer rows.
//!
//! ```
//! # use leasehold_core::batch::{ClaimRequest, UpdateRequest};
//! # use leasehold_core::bucket::BucketType;
//! # use leasehold_core::cell::CellId;
//! # use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
//! # use leasehold_core::lease::{LeaseId, Outcome};
//! # use leasehold_core::memory::MemoryStore;
//! # use leasehold_core::rejection::Reason;
//! # use leasehold_core::rules::Rules;
//! # use leasehold_core::time::Timestamp;
//! # use leasehold_core::update::{begin, settle};
//! # fn create(value: &str) -> UpdateRequest {
//! #     let claim = ClaimRequest {
//! #         bucket_type: BucketType(4),
//! #         value: value.into(),
//! #         subject: Some(Subject { subject_type: 4, id: 7 }),
//! #         source: Some(Source { source_type: SourceType(1), id: SourceId::from(7) }),
//! #         user_data: None,
//! #     };
//! #     UpdateRequest { creates: vec![claim], destroys: vec![] }
//! # }
//! # fn lease(number: u128) -> LeaseId {
//! #     LeaseId(uuid::Uuid::from_u128(number))
//! # }
//! let rules = Rules { cells: [CellId(1), CellId(2)].into(), ..Rules::default() };
//! let (mut store, now) = (MemoryStore::default(), Timestamp::from_micros(1));
//!
//! let first = rules.begin(CellId(1), create("alice"), None, lease(1)).unwrap();
//! let begun = begin(&mut store, &first, now).unwrap().unwrap();
//!
//! // The bucket is under a lease, so another cell is told to try again (B03).
//! let second = rules.begin(CellId(2), create("Alice"), None, lease(2)).unwrap();
//! let refused = begin(&mut store, &second, now).unwrap().unwrap_err();
//! assert_eq!((refused.reason(), refused.is_temporary()), (Reason::ClaimBusy, true));
//!
//! // Once the lease is committed, the bucket is taken (B02).
//! let commit = rules.settle(CellId(1), &begun.lease.to_string(), Outcome::Committed).unwrap();
//! assert_eq!(settle(&mut store, &commit, now).unwrap(), Ok(true));
//! let refused = begin(&mut store, &second, now).unwrap().unwrap_err();
//! assert_eq!((refused.reason(), refused.is_temporary()), (Reason::ClaimTaken, false));
//! ```

use crate::batch::{Batch, Create, Destroy, Entry};
use crate::bucket::BucketKey;
use crate::cell::CellId;
use crate::claim::{Claim, ClaimState, Hold, Record, Replacement};
use crate::fingerprint::Fingerprint;
use crate::lease::{Fence, IdempotencyKey, Lease, LeaseId, LeaseState, Outcome, Replay};
use crate::rejection::{Detail, Offence, Place, Reason, Rejection};
use crate::rows::Changes;
use crate::time::Timestamp;
use crate::transaction::{BrokenState, Transaction};

/// A command's answer. The inner error is the engine's refusal, the outer one a failing store.
pub type Answer<T, E> = Result<Result<T, Rejection>, E>;

/// The shortest and the longest hint of when to try a busy claim again.
const RETRY_AFTER_MICROS: std::ops::RangeInclusive<u64> = 100_000..=60_000_000;

/// The command to begin an update. Made by [`Rules::begin`](crate::rules::Rules::begin).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The calling cell.
    pub cell: CellId,
    /// The lease's id, minted by the host. A replay gets the id of the first begin.
    pub lease: LeaseId,
    /// The validated update.
    pub batch: Batch,
    /// The caller's idempotency key and the fingerprint of its update (B09).
    pub idempotency: Option<(IdempotencyKey, Fingerprint)>,
    /// True if the host runs this begin again because it does not know if the store kept the first
    /// run. A known lease then means that the store did.
    pub resumed: bool,
}

/// The command to commit a lease or to roll it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The calling cell, which must have begun the lease.
    pub cell: CellId,
    /// The lease.
    pub lease: LeaseId,
    /// Commit or roll back.
    pub outcome: Outcome,
}

/// The command to forget a settled lease and its idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The lease.
    pub lease: LeaseId,
    /// The lease is forgotten only if it was settled before this time.
    pub settled_before: Timestamp,
}

/// A begun update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The update's lease. A replay has the lease of the first begin (B09).
    pub lease: LeaseId,
    /// The lease's fence (B13).
    pub fence: Fence,
    /// True if an earlier begin with the same idempotency key has begun the update.
    pub replayed: bool,
}

/// Begins an update under a new lease: every entry takes effect, or none does (B01).
///
/// # Errors
/// The store failed. The inner error is a refusal with every offence (B10).
pub fn begin<T: Transaction>(tx: &mut T, command: &Begin, now: Timestamp) -> Answer<Begun, T::Error> {
    if command.resumed
        && let Some(lease) = tx.lease(command.lease)?
    {
        return Ok(Ok(Begun { lease: command.lease, fence: lease.fence, replayed: false }));
    }
    // The key comes before the claims: a retry's own claims are busy under its first try's lease
    // (B09).
    if let Some((key, fingerprint)) = &command.idempotency
        && let Some(replay) = tx.replay(key)?
    {
        return Ok(replayed(replay, fingerprint));
    }
    let hold = Hold { lease: command.lease, since: now };
    let mut offences = Vec::new();
    let mut claims = Vec::with_capacity(command.batch.entries().len());
    // One offence does not end the loop: the caller is told all of them at once (B10).
    for entry in command.batch.entries() {
        match next_claim(tx.claim(entry.key())?, entry, command.cell, hold) {
            Ok(claim) => claims.push((entry.key().clone(), Some(claim))),
            Err(offence) => offences.push(offence),
        }
    }
    if let Some(rejection) = Rejection::of(offences) {
        return Ok(Err(rejection));
    }
    // Fences order leases, since `now` may stand still or step back (B13).
    let fence = tx.last_fence()?.next();
    tx.write(begin_changes(command, claims, fence, now))?;
    Ok(Ok(Begun { lease: command.lease, fence, replayed: false }))
}

/// The answer to a begin whose idempotency key is known: the first begin's, unless the update
/// differs.
fn replayed(replay: &Replay, fingerprint: &Fingerprint) -> Result<Begun, Rejection> {
    match replay.fingerprint.difference(fingerprint) {
        Some(field) => Err(Rejection::whole(Reason::IdempotencyKeyReused, Detail::Differs(field))),
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

/// The claim of an entry's bucket after the begin.
///
/// # Errors
/// The offence if the bucket's present claim does not allow the entry.
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
            // The cell keeps the bucket without a gap, so the claim keeps its uuid and the time of
            // its creation (B06).
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

/// Checks that a create's bucket has no claim. Under a lease the claim is busy, since a rollback
/// may remove it (B03). At rest it is taken (B02).
fn check_create(present: Option<&Claim>, create: &Create, now: Timestamp) -> Result<(), Offence> {
    let Some(claim) = present else { return Ok(()) };
    let (reason, detail) = match claim.hold() {
        Some(hold) => busy(hold, now),
        None => (Reason::ClaimTaken, Detail::None),
    };
    Err(Offence::at(Place::create(create.position), create.bucket.key.bucket_type, reason, detail))
}

/// The record that a destroy gives up. Its claim must be at rest (B03), owned by the calling cell
/// (B04) and still from the row that the destroy names (B05). A replace is checked as its destroy
/// (B06).
///
/// Busy comes before the owner: the lease's end may remove the claim, so its owner is not known
/// yet.
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

/// The busy reason with a hint to wait as long again as the lease has lasted so far. Most leases
/// end at once, but a lease whose cell died lasts until reconciliation settles it, minutes later.
fn busy(hold: Hold, now: Timestamp) -> (Reason, Detail) {
    let age = now.micros_since(hold.since);
    let hint = age.clamp(*RETRY_AFTER_MICROS.start(), *RETRY_AFTER_MICROS.end());
    (Reason::ClaimBusy, Detail::RetryAfterMicros(hint))
}

/// Commits a lease (B20) or rolls it back (B21). Returns true if the lease was outstanding, and
/// false if it was settled that way before (B22).
///
/// # Errors
/// The store failed. The inner error is a refusal: the lease is unknown or another cell's (B24), or
/// was settled the other way (B23).
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
        // A claim that is not under the lease means that the store lost a row: settling the rest
        // would hide that.
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

/// Forgets a lease that was settled before a given time, and its idempotency key (B22, B24).
/// Returns true if it did.
///
/// # Errors
/// The store failed.
pub fn forget<T: Transaction>(tx: &mut T, command: &Forget) -> Result<bool, T::Error> {
    let Some(lease) = tx.lease(command.lease)? else { return Ok(false) };
    // The caller's list of old leases is older than this read, so both conditions are checked here.
    if lease.outcome().is_none() || lease.updated_at >= command.settled_before {
        return Ok(false);
    }
    let replays = lease.idempotency_key.iter().map(|key| (key.clone(), None)).collect();
    tx.write(Changes { leases: vec![(command.lease, None)], replays, ..Changes::default() })?;
    Ok(true)
}
