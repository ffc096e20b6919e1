//! The independent model of the claims engine: written from the behaviours, sharing no code with the engine, and plain
//! wherever that makes it easier to see that it is right.
//!
//! A claim is a record and the lease that it is under, if any. A lease keeps, for each of its buckets, the claim as it
//! was and the claim as it is to be: commit puts the one in place, rollback the other. The model answers in its own
//! types; what a comparison needs of the engine's types is made at the end of this file.

#![allow(clippy::expect_used, reason = "a model that contradicts itself has to stop the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{self as core_claim, ClaimState, Hold, Replacement, SourceId, SourceType, UserData};
use leasehold_core::command;
use leasehold_core::lease::{self as core_lease, Fence, IdempotencyKey, LeaseId, LeaseState, Outcome, Replay};
use leasehold_core::rejection::{Detail, List as CoreList, Place as CorePlace, Rejection};
use leasehold_core::rows::{Changes, State};
use leasehold_core::rules::Rules;
use leasehold_core::time::Timestamp;
use leasehold_core::update;
use uuid::Uuid;

/// The bucket type `USERNAMES`, whose values are the same in upper and lower case.
pub const USERNAMES: i32 = 4;
/// The bucket type `SSH_KEYS`, whose values are not.
pub const SSH_KEYS: i32 = 9;

/// A type and a canonical value.
pub type Bucket = (i32, String);
/// A table and a row's key.
pub type Source = (i32, Vec<u8>);

/// One claim of an update, as sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The bucket's type.
    pub bucket_type: i32,
    /// The bucket's value as spelled.
    pub value: String,
    /// Kind and id.
    pub subject: Option<(i32, i64)>,
    /// Table and key.
    pub source: Option<Source>,
    /// Type and value.
    pub user_data: Option<(String, Vec<u8>)>,
}

/// An update, as sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The claims to create.
    pub creates: Vec<Item>,
    /// The claims to destroy.
    pub destroys: Vec<Item>,
}

/// The way in which a lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its update takes effect.
    Commit,
    /// Its update leaves nothing behind.
    Rollback,
}

/// A begin, as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The cell that calls.
    pub cell: i64,
    /// The id that the lease is to get.
    pub lease: u128,
    /// The idempotency key.
    pub key: Option<String>,
    /// The update.
    pub body: Body,
}

/// A command for the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin an update.
    Begin(Begin),
    /// Settle a lease.
    Settle {
        /// The cell that calls.
        cell: i64,
        /// The lease.
        lease: u128,
        /// The way in which the lease is to end.
        end: End,
    },
    /// Forget a lease.
    Forget {
        /// The lease.
        lease: u128,
        /// Only if it was settled before this time, in microseconds.
        settled_before: u64,
    },
}

/// A list of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// The creates.
    Creates,
    /// The destroys.
    Destroys,
}

/// A claim's place in an update.
pub type Place = (List, u32);

/// The details of an offence, beside its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum More {
    /// No detail, or only a text for people.
    Words,
    /// The other place of the same bucket.
    AlsoAt(Place),
    /// The difference from the first use of an idempotency key.
    Differs(String),
    /// When to try again.
    RetryAfterMicros(u64),
}

/// One thing wrong with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// The claim's place and bucket type, none for the command as a whole.
    pub claim: Option<(Place, i32)>,
    /// The reason's code.
    pub reason: &'static str,
    /// More about it.
    pub more: More,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a begin.
    Begun {
        /// The lease.
        lease: u128,
        /// Its fence.
        fence: u64,
        /// True if an earlier begin made the lease.
        replayed: bool,
    },
    /// To a settle: whether it changed anything.
    Settled(bool),
    /// To a forget: whether it changed anything.
    Forgotten(bool),
    /// To a command that is refused.
    Rejected {
        /// The code of the reason that speaks for all.
        reason: &'static str,
        /// When to try again, where that can help.
        retry_after_micros: Option<u64>,
        /// Every offence, by place.
        offences: Vec<Offence>,
    },
}

/// The rows that a command wrote or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Claims.
    pub claims: BTreeSet<Bucket>,
    /// Leases.
    pub leases: BTreeSet<u128>,
    /// Idempotency keys, each with its cell.
    pub keys: BTreeSet<(i64, String)>,
    /// True if a fence was given out.
    pub fence: bool,
}

/// The state of a claimed bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    uuid: u128,
    spelling: String,
    subject: (i32, i64),
    source: Source,
    user_data: Option<(String, Vec<u8>)>,
    created_at: u64,
    updated_at: u64,
}

#[derive(Clone, Debug)]
struct Claim {
    owner: i64,
    // The record that reads return.
    record: Record,
    // The lease that it is under, unless it is at rest.
    lease: Option<u128>,
}

/// One bucket of an outstanding lease.
#[derive(Clone, Debug)]
struct Change {
    before: Option<Claim>,
    after: Option<Claim>,
}

#[derive(Clone, Debug)]
enum Stand {
    Outstanding(BTreeMap<Bucket, Change>),
    Settled(End),
}

#[derive(Clone, Debug)]
struct Lease {
    cell: i64,
    fence: u64,
    created_at: u64,
    updated_at: u64,
    key: Option<String>,
    stand: Stand,
}

/// The first use of an idempotency key.
#[derive(Clone, Debug)]
struct Use {
    lease: u128,
    body: Body,
}

/// All that the service knows.
#[derive(Clone, Debug, Default)]
pub struct Model {
    cells: BTreeSet<i64>,
    claims: BTreeMap<Bucket, Claim>,
    leases: BTreeMap<u128, Lease>,
    uses: BTreeMap<(i64, String), Use>,
    fence: u64,
}

/// The reasons, the one that speaks first in front (B15).
const PRECEDENCE: [&str; 12] = [
    "INVALID_UPDATE",
    "LIMIT_EXCEEDED",
    "VALUE_NOT_ALLOWED",
    "IDEMPOTENCY_KEY_REUSED",
    "LEASE_NOT_FOUND",
    "NOT_OWNER",
    "LEASE_ROLLED_BACK",
    "LEASE_COMMITTED",
    "CLAIM_TAKEN",
    "CLAIM_NOT_FOUND",
    "CLAIM_CHANGED",
    "CLAIM_BUSY",
];

type Done = (Reply, Written);
type Refused = Vec<Offence>;

impl Model {
    /// An empty service that knows these cells.
    pub fn new(cells: impl IntoIterator<Item = i64>) -> Self {
        Self { cells: cells.into_iter().collect(), ..Self::default() }
    }

    /// Runs a command at a time in microseconds: the answer, and the rows that were written.
    pub fn apply(&mut self, command: &Command, now: u64) -> Done {
        let done = match command {
            Command::Begin(begin) => self.begin(begin, now),
            Command::Settle { cell, lease, end } => self.settle(*cell, *lease, *end, now),
            Command::Forget { lease, settled_before } => Ok(self.forget(*lease, *settled_before)),
        };
        done.unwrap_or_else(|offences| (rejected(offences), Written::default()))
    }

    /// The record that a read of a bucket shows (B08).
    pub fn read(&self, bucket: &Bucket) -> Option<&Record> {
        self.claims.get(bucket).map(|claim| &claim.record)
    }

    fn begin(&mut self, begin: &Begin, now: u64) -> Result<Done, Refused> {
        self.check_cell(begin.cell)?;
        check_form(&begin.body)?;
        if let Some(replayed) = self.replayed(begin)? {
            return Ok((replayed, Written::default()));
        }
        let changes = self.judge(begin, now)?;
        Ok(self.take(begin, changes, now))
    }

    /// B14: the cell is known.
    fn check_cell(&self, cell: i64) -> Result<(), Refused> {
        if self.cells.contains(&cell) { Ok(()) } else { Err(whole("INVALID_UPDATE", More::Words)) }
    }

    /// B09: the answer to a begin that was begun before with the same key.
    fn replayed(&self, begin: &Begin) -> Result<Option<Reply>, Refused> {
        let Some(key) = &begin.key else { return Ok(None) };
        let Some(earlier) = self.uses.get(&(begin.cell, key.clone())) else { return Ok(None) };
        match difference(&earlier.body, &begin.body) {
            Some(what) => Err(whole("IDEMPOTENCY_KEY_REUSED", More::Differs(what))),
            None => {
                let fence = self.lease(earlier.lease).fence;
                Ok(Some(Reply::Begun { lease: earlier.lease, fence, replayed: true }))
            }
        }
    }

    /// B01: what becomes of every bucket, or everything that is wrong.
    fn judge(&self, begin: &Begin, now: u64) -> Result<BTreeMap<Bucket, Change>, Refused> {
        let mut buckets: BTreeMap<Bucket, (Option<u32>, Option<u32>)> = BTreeMap::new();
        for (position, item) in (0..).zip(&begin.body.creates) {
            buckets.entry(bucket(item)).or_default().0 = Some(position);
        }
        for (position, item) in (0..).zip(&begin.body.destroys) {
            buckets.entry(bucket(item)).or_default().1 = Some(position);
        }
        let (mut changes, mut refused) = (BTreeMap::new(), Refused::new());
        for (bucket, (create, destroy)) in buckets {
            let place = match destroy {
                Some(position) => (List::Destroys, position),
                None => (List::Creates, create.unwrap_or_default()),
            };
            match self.judge_one(begin, &bucket, create, destroy, now) {
                Ok(change) => _ = changes.insert(bucket, change),
                Err((reason, more)) => refused.push(Offence { claim: Some((place, bucket.0)), reason, more }),
            }
        }
        if refused.is_empty() { Ok(changes) } else { Err(refused) }
    }

    fn judge_one(
        &self,
        begin: &Begin,
        bucket: &Bucket,
        create: Option<u32>,
        destroy: Option<u32>,
        now: u64,
    ) -> Result<Change, (&'static str, More)> {
        let claim = self.claims.get(bucket);
        if let Some(lease) = claim.and_then(|claim| claim.lease) {
            let age = now.saturating_sub(self.lease(lease).created_at);
            return Err(("CLAIM_BUSY", More::RetryAfterMicros(age.clamp(100_000, 60_000_000))));
        }
        if let Some(position) = destroy {
            let item = begin.body.destroys.get(position as usize).expect("its place");
            let claim = claim.ok_or(("CLAIM_NOT_FOUND", More::Words))?;
            if claim.owner != begin.cell {
                return Err(("NOT_OWNER", More::Words));
            }
            if item.source.as_ref().is_some_and(|source| *source != claim.record.source) {
                return Err(("CLAIM_CHANGED", More::Words));
            }
        } else if claim.is_some() {
            return Err(("CLAIM_TAKEN", More::Words));
        }
        let after = create.map(|position| Claim {
            owner: begin.cell,
            record: new_record(begin, position, claim.map(|claim| &claim.record), now),
            lease: None,
        });
        Ok(Change { before: claim.cloned(), after })
    }

    /// B08, B13: everything is under the lease, and shows what it is to be, or else what it was.
    fn take(&mut self, begin: &Begin, changes: BTreeMap<Bucket, Change>, now: u64) -> Done {
        let mut written = Written { fence: true, ..Written::default() };
        self.fence += 1;
        for (bucket, change) in &changes {
            let shown = change.after.clone().or(change.before.clone()).expect("a change of something");
            self.claims.insert(bucket.clone(), Claim { lease: Some(begin.lease), ..shown });
            written.claims.insert(bucket.clone());
        }
        if let Some(key) = &begin.key {
            let key = (begin.cell, key.clone());
            self.uses.insert(key.clone(), Use { lease: begin.lease, body: begin.body.clone() });
            written.keys.insert(key);
        }
        let lease = Lease {
            cell: begin.cell,
            fence: self.fence,
            created_at: now,
            updated_at: now,
            key: begin.key.clone(),
            stand: Stand::Outstanding(changes),
        };
        self.leases.insert(begin.lease, lease);
        written.leases.insert(begin.lease);
        (Reply::Begun { lease: begin.lease, fence: self.fence, replayed: false }, written)
    }

    fn settle(&mut self, cell: i64, id: u128, end: End, now: u64) -> Result<Done, Refused> {
        self.check_cell(cell)?;
        let lease = self.leases.get_mut(&id).ok_or_else(|| whole("LEASE_NOT_FOUND", More::Words))?;
        if lease.cell != cell {
            return Err(whole("NOT_OWNER", More::Words));
        }
        let changes = match &lease.stand {
            Stand::Outstanding(changes) => changes.clone(),
            Stand::Settled(earlier) if *earlier == end => return Ok((Reply::Settled(false), Written::default())),
            Stand::Settled(End::Commit) => return Err(whole("LEASE_COMMITTED", More::Words)),
            Stand::Settled(End::Rollback) => return Err(whole("LEASE_ROLLED_BACK", More::Words)),
        };
        lease.stand = Stand::Settled(end);
        lease.updated_at = now;
        let claims = changes.keys().cloned().collect();
        for (bucket, change) in changes {
            self.rest(bucket, change, end, now);
        }
        Ok((Reply::Settled(true), Written { claims, leases: [id].into(), ..Written::default() }))
    }

    /// B20, B21: what was to be, or what was.
    fn rest(&mut self, bucket: Bucket, change: Change, end: End, now: u64) {
        let rested = match end {
            End::Commit => {
                change.after.map(|claim| Claim { record: Record { updated_at: now, ..claim.record.clone() }, ..claim })
            }
            End::Rollback => change.before,
        };
        match rested {
            Some(claim) => _ = self.claims.insert(bucket, claim),
            None => _ = self.claims.remove(&bucket),
        }
    }

    /// B22: a lease settled before a time goes, and its idempotency key with it.
    fn forget(&mut self, id: u128, settled_before: u64) -> Done {
        let old = |lease: &Lease| matches!(lease.stand, Stand::Settled(_)) && lease.updated_at < settled_before;
        if !self.leases.get(&id).is_some_and(old) {
            return (Reply::Forgotten(false), Written::default());
        }
        self.leases.remove(&id);
        let keys: BTreeSet<_> =
            self.uses.iter().filter(|(_, used)| used.lease == id).map(|(key, _)| key.clone()).collect();
        self.uses.retain(|key, _| !keys.contains(key));
        (Reply::Forgotten(true), Written { leases: [id].into(), keys, ..Written::default() })
    }

    fn lease(&self, id: u128) -> &Lease {
        self.leases.get(&id).expect("a lease is known as long as anything names it")
    }
}

/// The canonical form; of the values that the tests use, which are ASCII.
pub fn bucket(item: &Item) -> Bucket {
    let folds = item.bucket_type == USERNAMES;
    let value = if folds { item.value.to_ascii_lowercase() } else { item.value.clone() };
    (item.bucket_type, value)
}

/// B06: a replace keeps the old record's uuid and time of creation.
fn new_record(begin: &Begin, position: u32, old: Option<&Record>, now: u64) -> Record {
    let item = begin.body.creates.get(position as usize).expect("its place");
    Record {
        uuid: old.map_or(record_uuid(begin.lease, position), |old| old.uuid),
        spelling: item.value.clone(),
        subject: item.subject.expect("checked"),
        source: item.source.clone().expect("checked"),
        user_data: item.user_data.clone(),
        created_at: old.map_or(now, |old| old.created_at),
        updated_at: now,
    }
}

/// The lease's own id with the place, counted from 1, mixed into it, as a UUID of version 8.
fn record_uuid(lease: u128, position: u32) -> u128 {
    let version_bits = 0xf << 76;
    (lease ^ (u128::from(position) + 1)) & !version_bits | (0x8 << 76)
}

fn whole(reason: &'static str, more: More) -> Refused {
    vec![Offence { claim: None, reason, more }]
}

/// B10, B15: every offence by place, and the first reason speaks.
fn rejected(mut offences: Refused) -> Reply {
    offences.sort_by_key(|offence| offence.claim);
    let spoken = |code: &&&str| offences.iter().any(|offence| offence.reason == **code);
    let reason = PRECEDENCE.iter().find(spoken).expect("every reason has its place");
    let hints: Option<Vec<u64>> = offences
        .iter()
        .map(|offence| match offence.more {
            More::RetryAfterMicros(micros) => Some(micros),
            _ => None,
        })
        .collect();
    Reply::Rejected { reason, retry_after_micros: hints.and_then(|all| all.into_iter().max()), offences }
}

/// B07, B14: not empty, every claim whole, no bucket twice in one list.
fn check_form(body: &Body) -> Result<(), Refused> {
    if body.creates.is_empty() && body.destroys.is_empty() {
        return Err(whole("INVALID_UPDATE", More::Words));
    }
    let mut refused = check_list(List::Creates, &body.creates);
    refused.extend(check_list(List::Destroys, &body.destroys));
    if refused.is_empty() { Ok(()) } else { Err(refused) }
}

fn check_list(list: List, items: &[Item]) -> Refused {
    let mut first: BTreeMap<Bucket, u32> = BTreeMap::new();
    let mut refused = Refused::new();
    for (position, item) in (0..).zip(items) {
        let more = if !is_whole(list, item) {
            Some(More::Words)
        } else {
            let earlier = *first.entry(bucket(item)).or_insert(position);
            (earlier != position).then_some(More::AlsoAt((list, earlier)))
        };
        let claim = Some(((list, position), item.bucket_type));
        refused.extend(more.map(|more| Offence { claim, reason: "INVALID_UPDATE", more }));
    }
    refused
}

fn is_whole(list: List, item: &Item) -> bool {
    let typed = [USERNAMES, SSH_KEYS].contains(&item.bucket_type);
    typed && (list == List::Destroys || (item.subject.is_some() && item.source.is_some()))
}

/// B09: the first thing in which two updates differ.
fn difference(first: &Body, other: &Body) -> Option<String> {
    let in_list = |name: &str, a: &[Item], b: &[Item]| {
        let field = a.iter().zip(b).enumerate().find_map(|(position, (a, b))| {
            let field = field_difference(a, b)?;
            Some(format!("{name}[{position}].{field}"))
        });
        field.or_else(|| (a.len() != b.len()).then(|| format!("the number of {name}")))
    };
    in_list("create_records", &first.creates, &other.creates)
        .or_else(|| in_list("destroy_records", &first.destroys, &other.destroys))
}

fn field_difference(a: &Item, b: &Item) -> Option<&'static str> {
    if (a.bucket_type, &a.value) != (b.bucket_type, &b.value) {
        Some("bucket")
    } else if a.subject != b.subject {
        Some("subject")
    } else if a.source != b.source {
        Some("source")
    } else if a.user_data != b.user_data {
        Some("user_data")
    } else {
        None
    }
}

// From here on: the model's values in the engine's types, and the engine's answers in the model's.

impl Command {
    /// The command for the engine, past its door.
    ///
    /// # Errors
    /// The door refuses it.
    pub fn for_engine(&self, rules: &Rules) -> Result<command::Command, Rejection> {
        match self {
            Self::Begin(begin) => {
                let (cell, lease) = (CellId(begin.cell), LeaseId(Uuid::from_u128(begin.lease)));
                rules.begin(cell, engine_body(&begin.body), begin.key.as_deref(), lease).map(command::Command::Begin)
            }
            Self::Settle { cell, lease, end } => {
                let lease = Uuid::from_u128(*lease).to_string();
                rules.settle(CellId(*cell), &lease, outcome(*end)).map(command::Command::Settle)
            }
            Self::Forget { lease, settled_before } => Ok(command::Command::Forget(update::Forget {
                lease: lease_id(*lease),
                settled_before: Timestamp::from_micros(*settled_before),
            })),
        }
    }
}

impl Reply {
    /// The engine's answer in the model's words.
    pub fn of_engine(answer: Result<command::Reply, Rejection>) -> Self {
        match answer {
            Ok(command::Reply::Begun(begun)) => {
                Self::Begun { lease: begun.lease.0.as_u128(), fence: begun.fence.0, replayed: begun.replayed }
            }
            Ok(command::Reply::Settled(changed)) => Self::Settled(changed),
            Ok(command::Reply::Forgotten(changed)) => Self::Forgotten(changed),
            Err(rejection) => Self::Rejected {
                reason: rejection.reason().code(),
                retry_after_micros: rejection.retry_after_micros(),
                offences: rejection.offences().iter().map(offence_of_engine).collect(),
            },
        }
    }
}

fn offence_of_engine(offence: &leasehold_core::rejection::Offence) -> Offence {
    let more = match &offence.detail {
        Detail::None | Detail::Form(_) | Detail::Limit { .. } => More::Words,
        Detail::AlsoAt(place) => More::AlsoAt(place_of_engine(*place)),
        Detail::Differs(what) => More::Differs(what.clone()),
        Detail::RetryAfterMicros(micros) => More::RetryAfterMicros(*micros),
    };
    // A place without a bucket type, or a type without a place, would be neither's.
    let claim = match (offence.place, offence.bucket_type) {
        (Some(place), Some(bucket_type)) => Some((place_of_engine(place), bucket_type.0)),
        (None, None) => None,
        half => unreachable!("half a place: {half:?}"),
    };
    Offence { claim, reason: offence.reason.code(), more }
}

fn place_of_engine(place: CorePlace) -> Place {
    let list = match place.list {
        CoreList::Creates => List::Creates,
        CoreList::Destroys => List::Destroys,
    };
    (list, place.position)
}

impl Model {
    /// The whole state, as the engine's store has to hold it.
    pub fn state(&self) -> State {
        State {
            claims: self.claims.keys().filter_map(|key| Some((engine_key(key), self.engine_claim(key)?))).collect(),
            leases: self.leases.keys().filter_map(|id| Some((lease_id(*id), self.engine_lease(*id)?))).collect(),
            replays: self.uses.keys().filter_map(|key| Some((use_key(key), self.engine_replay(key)?))).collect(),
            fence: Fence(self.fence),
        }
    }

    /// The rows that a command wrote, as the engine's store has to hold them afterwards; each list in the order of keys.
    pub fn changes(&self, written: &Written) -> Changes {
        Changes {
            claims: written.claims.iter().map(|key| (engine_key(key), self.engine_claim(key))).collect(),
            leases: written.leases.iter().map(|id| (lease_id(*id), self.engine_lease(*id))).collect(),
            replays: written.keys.iter().map(|key| (use_key(key), self.engine_replay(key))).collect(),
            fence: written.fence.then_some(Fence(self.fence)),
        }
    }

    fn engine_claim(&self, bucket: &Bucket) -> Option<core_claim::Claim> {
        let claim = self.claims.get(bucket)?;
        let state = match claim.lease {
            None => ClaimState::Active(engine_record(&claim.record)),
            Some(id) => self.engine_held(bucket, id),
        };
        Some(core_claim::Claim { owner: CellId(claim.owner), state })
    }

    fn engine_held(&self, bucket: &Bucket, id: u128) -> ClaimState {
        let lease = self.lease(id);
        let hold = Hold { lease: lease_id(id), since: Timestamp::from_micros(lease.created_at) };
        let Stand::Outstanding(changes) = &lease.stand else { unreachable!("a settled lease holds `{bucket:?}`") };
        let change = changes.get(bucket).expect("a lease knows its claims");
        match (&change.before, &change.after) {
            (None, Some(new)) => ClaimState::Creating(hold, engine_record(&new.record)),
            (Some(old), None) => ClaimState::Destroying(hold, engine_record(&old.record)),
            (Some(old), Some(new)) => {
                let both = Replacement { old: engine_record(&old.record), new: engine_record(&new.record) };
                ClaimState::Replacing(hold, Box::new(both))
            }
            (None, None) => unreachable!("a change of nothing"),
        }
    }

    fn engine_lease(&self, id: u128) -> Option<core_lease::Lease> {
        let lease = self.leases.get(&id)?;
        let state = match &lease.stand {
            Stand::Outstanding(changes) => LeaseState::Outstanding(changes.keys().map(engine_key).collect()),
            Stand::Settled(end) => LeaseState::Settled(outcome(*end)),
        };
        Some(core_lease::Lease {
            cell: CellId(lease.cell),
            fence: Fence(lease.fence),
            created_at: Timestamp::from_micros(lease.created_at),
            updated_at: Timestamp::from_micros(lease.updated_at),
            idempotency_key: lease.key.as_ref().map(|key| use_key(&(lease.cell, key.clone()))),
            state,
        })
    }

    fn engine_replay(&self, key: &(i64, String)) -> Option<Replay> {
        let used = self.uses.get(key)?;
        Some(Replay {
            lease: lease_id(used.lease),
            fence: Fence(self.lease(used.lease).fence),
            fingerprint: engine_body(&used.body).fingerprint(),
        })
    }
}

/// A bucket's key for the engine.
pub fn engine_key((bucket_type, canonical): &Bucket) -> BucketKey {
    BucketKey { bucket_type: BucketType(*bucket_type), canonical: canonical.as_str().into() }
}

/// A record for the engine.
pub fn engine_record(record: &Record) -> core_claim::Record {
    core_claim::Record {
        uuid: Uuid::from_u128(record.uuid),
        spelling: record.spelling.as_str().into(),
        subject: engine_subject(record.subject),
        source: engine_source(&record.source),
        user_data: record.user_data.as_ref().map(engine_user_data).map(Arc::new),
        created_at: Timestamp::from_micros(record.created_at),
        updated_at: Timestamp::from_micros(record.updated_at),
    }
}

/// A lease's id for the engine.
pub fn lease_id(lease: u128) -> LeaseId {
    LeaseId(Uuid::from_u128(lease))
}

fn use_key((cell, key): &(i64, String)) -> IdempotencyKey {
    IdempotencyKey { cell: CellId(*cell), key: key.as_str().into() }
}

fn outcome(end: End) -> Outcome {
    match end {
        End::Commit => Outcome::Committed,
        End::Rollback => Outcome::RolledBack,
    }
}

fn engine_body(body: &Body) -> UpdateRequest {
    let list = |items: &[Item]| items.iter().map(engine_item).collect();
    UpdateRequest { creates: list(&body.creates), destroys: list(&body.destroys) }
}

fn engine_item(item: &Item) -> ClaimRequest {
    ClaimRequest {
        bucket_type: BucketType(item.bucket_type),
        value: item.value.as_str().into(),
        subject: item.subject.map(engine_subject),
        source: item.source.as_ref().map(engine_source),
        user_data: item.user_data.as_ref().map(engine_user_data),
    }
}

fn engine_subject((subject_type, id): (i32, i64)) -> core_claim::Subject {
    core_claim::Subject { subject_type, id }
}

fn engine_source((source_type, id): &Source) -> core_claim::Source {
    core_claim::Source { source_type: SourceType(*source_type), id: SourceId::from_bytes(id) }
}

fn engine_user_data((type_url, value): &(String, Vec<u8>)) -> UserData {
    UserData { type_url: type_url.clone(), value: value.clone() }
}
