//! Rejections: the engine's refusals of a command. A rejection is a value with all offences of the
//! request. A fixed order decides which offence gives the rejection its reason (B15).

use std::fmt;

use crate::bucket::BucketType;
use crate::order::sorted_by;

/// The reasons of offences, in order of precedence. A rejection takes the reason of its offence
/// that comes first in this order (B15).
///
/// Numbers are never reused. Each host maps every reason to its own codes in a `match` without a
/// default, so that the compiler finds a missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Reason {
    /// A part of the request is empty, unknown, unspecified or repeated (B07, B14).
    InvalidUpdate = 1,
    /// The request exceeds a published limit (B11).
    LimitExceeded = 2,
    /// The bucket type does not allow the value (B12).
    ValueNotAllowed = 3,
    /// The idempotency key or the id of the request was used for another one (B09, Q09).
    IdempotencyKeyReused = 4,
    /// The lease was never known or is forgotten (B24).
    LeaseNotFound = 5,
    /// The claim or the lease belongs to another cell (B04, B24).
    NotOwner = 6,
    /// The lease to commit was rolled back (B23).
    LeaseRolledBack = 7,
    /// The lease to roll back was committed (B23).
    LeaseCommitted = 8,
    /// The bucket to create has a claim at rest (B02).
    ClaimTaken = 9,
    /// The claim to destroy is absent (B04).
    ClaimNotFound = 10,
    /// The claim to destroy now comes from another source row than the destroy names (B05).
    ClaimChanged = 11,
    /// The claim is under another lease (B03).
    ClaimBusy = 12,
    /// The session was never known or is forgotten.
    SessionNotFound = 13,
    /// Another service opened the session.
    SessionNotOwned = 14,
    /// The session has ended, and can't be revived (K02).
    SessionEnded = 15,
    /// The id of the session was used with other terms.
    SessionReused = 16,
    /// The session renewed, or was not silent for its duration and grace (K06).
    SessionAlive = 17,
    /// The id of the ask or take was used for another lock, lane or session, or the ask or take has ended (K05).
    AskReused = 18,
    /// The lock or the lane is not held under this fence any more (K19, Q10).
    FencePassed = 19,
    /// The lock is not free, and the ask does not wait (K01).
    LockHeld = 20,
    /// The time of the former holder of the lock or lane is not over (K20).
    LockWithheld = 21,
    /// The ask waited for a lock whose holder waited for the caller (K15).
    LockCircle = 22,
}

impl Reason {
    /// Every reason, in order of precedence.
    pub const ALL: [Self; 22] = [
        Self::InvalidUpdate,
        Self::LimitExceeded,
        Self::ValueNotAllowed,
        Self::IdempotencyKeyReused,
        Self::LeaseNotFound,
        Self::NotOwner,
        Self::LeaseRolledBack,
        Self::LeaseCommitted,
        Self::ClaimTaken,
        Self::ClaimNotFound,
        Self::ClaimChanged,
        Self::ClaimBusy,
        Self::SessionNotFound,
        Self::SessionNotOwned,
        Self::SessionEnded,
        Self::SessionReused,
        Self::SessionAlive,
        Self::AskReused,
        Self::FencePassed,
        Self::LockHeld,
        Self::LockWithheld,
        Self::LockCircle,
    ];

    /// Returns the code of the reason, which is the same in every language and on the wire.
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidUpdate => "INVALID_UPDATE",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::ValueNotAllowed => "VALUE_NOT_ALLOWED",
            Self::IdempotencyKeyReused => "IDEMPOTENCY_KEY_REUSED",
            Self::LeaseNotFound => "LEASE_NOT_FOUND",
            Self::NotOwner => "NOT_OWNER",
            Self::LeaseRolledBack => "LEASE_ROLLED_BACK",
            Self::LeaseCommitted => "LEASE_COMMITTED",
            Self::ClaimTaken => "CLAIM_TAKEN",
            Self::ClaimNotFound => "CLAIM_NOT_FOUND",
            Self::ClaimChanged => "CLAIM_CHANGED",
            Self::ClaimBusy => "CLAIM_BUSY",
            Self::SessionNotFound => "SESSION_NOT_FOUND",
            Self::SessionNotOwned => "SESSION_NOT_OWNED",
            Self::SessionEnded => "SESSION_ENDED",
            Self::SessionReused => "SESSION_REUSED",
            Self::SessionAlive => "SESSION_ALIVE",
            Self::AskReused => "ASK_REUSED",
            Self::FencePassed => "FENCE_PASSED",
            Self::LockHeld => "LOCK_HELD",
            Self::LockWithheld => "LOCK_WITHHELD",
            Self::LockCircle => "LOCK_CIRCLE",
        }
    }

    /// Returns true if the same request may succeed later: if the claim is busy (B03), or the lock
    /// is not free (K01).
    pub const fn is_temporary(self) -> bool {
        match self {
            Self::ClaimBusy | Self::LockHeld | Self::LockWithheld => true,
            Self::InvalidUpdate
            | Self::LimitExceeded
            | Self::ValueNotAllowed
            | Self::IdempotencyKeyReused
            | Self::LeaseNotFound
            | Self::NotOwner
            | Self::LeaseRolledBack
            | Self::LeaseCommitted
            | Self::ClaimTaken
            | Self::ClaimNotFound
            | Self::ClaimChanged
            | Self::SessionNotFound
            | Self::SessionNotOwned
            | Self::SessionEnded
            | Self::SessionReused
            | Self::SessionAlive
            | Self::AskReused
            | Self::FencePassed
            | Self::LockCircle => false,
        }
    }

    /// Returns the text of the reason for messages.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::InvalidUpdate => "the request is not valid",
            Self::LimitExceeded => "a limit is exceeded",
            Self::ValueNotAllowed => "the value is not allowed",
            Self::IdempotencyKeyReused => "the idempotency key was used for another request",
            Self::LeaseNotFound => "the lease is not known, or was settled so long ago that it is forgotten",
            Self::NotOwner => "it belongs to another cell",
            Self::LeaseRolledBack => "the lease was rolled back",
            Self::LeaseCommitted => "the lease was committed",
            Self::ClaimTaken => "the bucket is taken",
            Self::ClaimNotFound => "there is no such claim",
            Self::ClaimChanged => "the claim has moved to another source row",
            Self::ClaimBusy => "the claim is under another lease",
            Self::SessionNotFound => "the session is not known, or ended so long ago that it is forgotten",
            Self::SessionNotOwned => "the session belongs to another service",
            Self::SessionEnded => "the session has ended: open a new one",
            Self::SessionReused => "the id was used for a session with other terms",
            Self::SessionAlive => "the session has renewed, or was not silent for long enough",
            Self::AskReused => "the id was used for another ask, or for one that has ended",
            Self::FencePassed => "the lock or the lane is not held under this fence",
            Self::LockHeld => "the lock is not free",
            Self::LockWithheld => "the time of the former holder is not over",
            Self::LockCircle => {
                "the wait would never end: the lock is the caller's own, or its holder waits for a lock of the caller"
            }
        }
    }
}

/// One of the two lists of claims in an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// The list of claims to create.
    Creates,
    /// The list of claims to destroy.
    Destroys,
}

/// The place of a claim in an update: its list and its position in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The list that has the claim.
    pub list: List,
    /// The position of the claim in its list, counted from 0.
    pub position: u32,
}

impl Place {
    /// Returns the place of the create at `position`.
    pub const fn create(position: u32) -> Self {
        Self { list: List::Creates, position }
    }

    /// Returns the place of the destroy at `position`.
    pub const fn destroy(position: u32) -> Self {
        Self { list: List::Destroys, position }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = match self.list {
            List::Creates => "create_records",
            List::Destroys => "destroy_records",
        };
        write!(f, "{list}[{}]", self.position)
    }
}

/// The details of an offence. They never show data of another cell (B10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The offence has no details except its reason.
    None,
    /// The text that names the invalid field and its fault.
    Form(&'static str),
    /// The place of the same bucket earlier in the update (B07).
    AlsoAt(Place),
    /// The limit that the request exceeds (B11).
    Limit {
        /// The name of the limit, with its unit.
        name: &'static str,
        /// The largest value that the limit allows.
        max: u64,
        /// The request's value, which exceeds the limit.
        actual: u64,
    },
    /// The path of the field that differs from the first request with the same idempotency key
    /// (B09).
    Differs(String),
    /// The number of microseconds to wait before a retry (B03).
    RetryAfterMicros(u64),
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Form(what) => f.write_str(what),
            Self::AlsoAt(place) => write!(f, "the same bucket stands at `{place}`"),
            Self::Limit { name, max, actual } => write!(f, "`{name}` is {actual}, at most {max} is allowed"),
            Self::Differs(what) => write!(f, "`{what}` differs from the first request with this key"),
            Self::RetryAfterMicros(micros) => write!(f, "try again in {} ms", micros.div_ceil(1000)),
        }
    }
}

/// One fault of a request: its place, its reason and its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// The place of the claim at fault, `None` if the request as a whole is at fault.
    pub place: Option<Place>,
    /// The bucket type of the claim at fault, `None` if the request as a whole is at fault.
    pub bucket_type: Option<BucketType>,
    /// The reason of the offence.
    pub reason: Reason,
    /// The details of the offence, for example the exceeded limit.
    pub detail: Detail,
}

impl Offence {
    /// Makes an offence of the request as a whole.
    pub fn whole(reason: Reason, detail: Detail) -> Self {
        Self { place: None, bucket_type: None, reason, detail }
    }

    /// Makes an offence of the claim at `place`.
    pub fn at(place: Place, bucket_type: BucketType, reason: Reason, detail: Detail) -> Self {
        Self { place: Some(place), bucket_type: Some(bucket_type), reason, detail }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "`{place}`: ")?;
        }
        f.write_str(self.reason.summary())?;
        match &self.detail {
            Detail::None => Ok(()),
            detail => write!(f, ": {detail}"),
        }
    }
}

/// A refusal of a command: every offence (B10), and the reason of highest precedence among them
/// (B15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    reason: Reason,
    offences: Vec<Offence>,
}

impl Rejection {
    /// Makes a rejection of these offences, `None` if there are none.
    pub fn of(offences: Vec<Offence>) -> Option<Self> {
        let offences = sorted_by(offences, |a, b| (a.place, a.reason).cmp(&(b.place, b.reason)));
        let reason = offences.iter().map(|offence| offence.reason).min()?;
        Some(Self { reason, offences })
    }

    /// Makes a rejection of the request as a whole, with one offence.
    pub fn whole(reason: Reason, detail: Detail) -> Self {
        Self { reason, offences: vec![Offence::whole(reason, detail)] }
    }

    /// Returns the reason of highest precedence among the offences (B15).
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns every offence, in the order of places (B10).
    pub fn offences(&self) -> &[Offence] {
        &self.offences
    }

    /// Returns true if every offence is temporary, so that the same request can succeed later.
    pub fn is_temporary(&self) -> bool {
        self.offences.iter().all(|offence| offence.reason.is_temporary())
    }

    /// Returns the number of microseconds to wait before a retry, the longest of the offences'
    /// hints. Returns `None` if a retry can't help (B03).
    pub fn retry_after_micros(&self) -> Option<u64> {
        let hint = |offence: &Offence| match offence.detail {
            Detail::RetryAfterMicros(micros) => Some(micros),
            _ => None,
        };
        self.is_temporary().then(|| self.offences.iter().filter_map(hint).max())?
    }
}

impl fmt::Display for Rejection {
    /// Writes the first offence that has the rejection's reason, and the number of other offences.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(first) = self.offences.iter().find(|offence| offence.reason == self.reason) {
            first.fmt(f)?;
        }
        match self.offences.len() {
            0 | 1 => Ok(()),
            n => write!(f, " (and {} more)", n - 1),
        }
    }
}
