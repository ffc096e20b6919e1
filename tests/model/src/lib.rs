//! An independent model of the claims engine. It is written from the numbered promises of
//! `docs/src/reference/promises.md`, shares no code with the engine, and is simple rather than
//! fast.
//!
//! The model stores a record for each claimed bucket, and the lease that lists the claim, if one
//! does. For each bucket of a lease, the model stores the claim before the update and the claim
//! after the update. A commit stores the claim after the update; a rollback restores the claim
//! before. The model has its own types. The last part of this file converts them into the engine's
//! types, so that tests can compare both.

#![allow(clippy::expect_used, reason = "a model that contradicts itself has to stop the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{self as core_claim, ClaimState, Hold, Replacement, SourceId, SourceType, UserData};
use leasehold_core::command;
use leasehold_core::lease::{self as core_lease, Fence, IdempotencyKey, LeaseId, LeaseState, Outcome, Replay};
use leasehold_core::organization::OrganizationId;
use leasehold_core::rejection::{Detail, List as CoreList, Place as CorePlace, Rejection};
use leasehold_core::rows::{Changes, State};
use leasehold_core::rules::Rules;
use leasehold_core::time::Timestamp;
use leasehold_core::update;
use uuid::Uuid;

/// The wire number of the bucket type `USERNAMES`. Usernames that differ only in case are equal.
pub const USERNAMES: i32 = 4;
/// The wire number of the bucket type `SSH_KEYS`. SSH keys that differ only in case are different.
pub const SSH_KEYS: i32 = 9;

/// The key of a claim: the bucket's type, and its value in canonical form.
pub type Bucket = (i32, String);
/// The source of a claim: the number of a table, and the primary key of one row.
pub type Source = (i32, Vec<u8>);

/// One create or destroy of an update, as a client sends it: a bucket, a subject and a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The wire number of the claimed bucket's type.
    pub bucket_type: i32,
    /// The claimed value in the client's spelling, before it is brought into canonical form.
    pub value: String,
    /// The type and id of the claim's subject, such as a user; `None` if the client sent no
    /// subject.
    pub subject: Option<(i32, i64)>,
    /// The table and row that the claim comes from; `None` if the client sent no source.
    pub source: Option<Source>,
    /// The type URL and bytes of the data that the cell attaches to the claim; `None` without data.
    pub user_data: Option<(String, Vec<u8>)>,
}

/// The lists of claims in a begin request: the update's creates and destroys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The claims that the update creates, in the order of the request.
    pub creates: Vec<Item>,
    /// The claims that the update destroys, in the order of the request.
    pub destroys: Vec<Item>,
}

/// The outcome with which a settle ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Commit: the lease's creates and destroys take effect.
    Commit,
    /// Rollback: every claim of the lease is again as it was before the begin.
    Rollback,
}

/// A begin request, as a client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The id of the cell that sends the begin.
    pub cell: i64,
    /// The id that the new lease gets if the begin succeeds.
    pub lease: u128,
    /// The idempotency key of the begin; `None` if the client sent no key.
    pub key: Option<String>,
    /// The id of the organization that the begin names; 0 if it names none.
    pub organization: i64,
    /// The claims that the begin creates and destroys.
    pub body: Body,
}

/// A command that the test sends both to the model and to the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begins an update under a new lease.
    Begin(Begin),
    /// Commits a lease or rolls it back.
    Settle {
        /// The id of the cell that sends the settle.
        cell: i64,
        /// The id of the lease to settle.
        lease: u128,
        /// The requested outcome: commit or rollback.
        end: End,
    },
    /// Deletes a settled lease that is old enough, together with its idempotency key.
    Forget {
        /// The id of the lease to forget.
        lease: u128,
        /// Only a lease settled before this time is forgotten; in microseconds.
        settled_before: u64,
    },
}

/// One of the two lists of claims in an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// The list of claims that the update creates.
    Creates,
    /// The list of claims that the update destroys.
    Destroys,
}

/// The place of a claim in an update: its list, and its position in that list, counted from 0.
pub type Place = (List, u32);

/// The data that an offence carries in addition to its reason code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffenceDetail {
    /// The offence has no data, or only a text for people, which tests do not compare.
    TextOnly,
    /// A bucket occurs twice in one list; this is the place where it occurs first.
    AlsoAt(Place),
    /// The name of the first field that differs from the update that used the idempotency key
    /// first.
    Differs(String),
    /// The time to wait before a retry of a busy claim, in microseconds.
    RetryAfterMicros(u64),
}

/// One reason for which a command is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offence {
    /// The place and bucket type of the offending claim; `None` if the whole command is at fault.
    pub claim: Option<(Place, i32)>,
    /// The reason code of the offence, such as `CLAIM_TAKEN`.
    pub reason: &'static str,
    /// The data of the offence beside its reason, such as the time to wait before a retry.
    pub detail: OffenceDetail,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The begin is accepted; the lease exists.
    Begun {
        /// The id of the begun lease.
        lease: u128,
        /// The fence of the begun lease.
        fence: u64,
        /// True if an earlier begin with the same idempotency key created the lease.
        replayed: bool,
    },
    /// The settle is accepted. True if it ended the lease, false if the lease had this outcome
    /// already.
    Settled(bool),
    /// The answer to a forget. True if the lease was deleted, false if it stays or does not exist.
    Forgotten(bool),
    /// The command is refused and changed nothing.
    Rejected {
        /// The reason code with the highest precedence among the reasons of all offences (B15).
        reason: &'static str,
        /// Microseconds to wait before a retry; `None` if a retry cannot help because an offence is
        /// permanent.
        retry_after_micros: Option<u64>,
        /// Every offence of the command, sorted by the places of the claims.
        offences: Vec<Offence>,
    },
}

/// The keys of the rows that one command wrote or deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The buckets whose claims the command wrote or deleted.
    pub claims: BTreeSet<Bucket>,
    /// The ids of the leases that the command wrote or deleted.
    pub leases: BTreeSet<u128>,
    /// The idempotency keys that the command wrote or deleted, each with the id of its cell.
    pub keys: BTreeSet<(i64, String)>,
    /// True if the command gave a new fence to a lease.
    pub fence: bool,
}

/// The content of a claim: uuid, spelling, subject, source, attached data and times.
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
    // The record that reads of this claim return: the newer one while a lease replaces it.
    record: Record,
    // The id of the outstanding lease that lists this claim; `None` if the claim is at rest.
    lease: Option<u128>,
}

/// One bucket of an outstanding lease: the claim before its update, and the claim after a commit.
#[derive(Clone, Debug)]
struct Change {
    before: Option<Claim>,
    after: Option<Claim>,
}

#[derive(Clone, Debug)]
enum Progress {
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
    // The id of the organization that the begin named; 0 if it named none.
    organization: i64,
    progress: Progress,
}

/// The stored begin that used an idempotency key first: its lease and its update.
#[derive(Clone, Debug)]
struct KeyUse {
    lease: u128,
    body: Body,
}

/// The whole state of the modelled claims service.
#[derive(Clone, Debug, Default)]
pub struct Model {
    cells: BTreeSet<i64>,
    claims: BTreeMap<Bucket, Claim>,
    leases: BTreeMap<u128, Lease>,
    key_uses: BTreeMap<(i64, String), KeyUse>,
    fence: u64,
}

/// All reason codes, the highest precedence first. The first one among the offences is answered
/// (B15).
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

type Execution = (Reply, Written);
type Offences = Vec<Offence>;

impl Model {
    /// Returns a service without claims and leases, with the cells of these ids.
    pub fn new(cells: impl IntoIterator<Item = i64>) -> Self {
        Self { cells: cells.into_iter().collect(), ..Self::default() }
    }

    /// Executes a command at the time `now` in microseconds. Returns the answer, and the keys of
    /// the rows that the command wrote.
    pub fn apply(&mut self, command: &Command, now: u64) -> Execution {
        let done = match command {
            Command::Begin(begin) => self.begin(begin, now),
            Command::Settle { cell, lease, end } => self.settle(*cell, *lease, *end, now),
            Command::Forget { lease, settled_before } => Ok(self.forget(*lease, *settled_before)),
        };
        done.unwrap_or_else(|offences| (rejected(offences), Written::default()))
    }

    /// Returns the record that a read of this bucket returns (B08); `None` if the bucket is free.
    pub fn read(&self, bucket: &Bucket) -> Option<&Record> {
        self.claims.get(bucket).map(|claim| &claim.record)
    }

    fn begin(&mut self, begin: &Begin, now: u64) -> Result<Execution, Offences> {
        self.check_cell(begin.cell)?;
        check_form(&begin.body)?;
        if let Some(replayed) = self.replayed(begin)? {
            return Ok((replayed, Written::default()));
        }
        let changes = self.plan(begin, now)?;
        Ok(self.begin_lease(begin, changes, now))
    }

    /// Returns an error with the reason `INVALID_UPDATE` if the service has no cell of this id
    /// (B14).
    fn check_cell(&self, cell: i64) -> Result<(), Offences> {
        if self.cells.contains(&cell) {
            Ok(())
        } else {
            Err(of_whole_command("INVALID_UPDATE", OffenceDetail::TextOnly))
        }
    }

    /// Returns the first answer again if this begin repeats an earlier one under the same
    /// idempotency key (B09); `None` if the key is new or missing. A different update or another
    /// organization under the key is an error, and so is a repetition after the lease was rolled back.
    fn replayed(&self, begin: &Begin) -> Result<Option<Reply>, Offences> {
        let Some(key) = &begin.key else { return Ok(None) };
        let Some(earlier) = self.key_uses.get(&(begin.cell, key.clone())) else { return Ok(None) };
        let other_organization = self.lease(earlier.lease).organization != begin.organization;
        let other_organization = other_organization.then(|| "organization_id".to_owned());
        match difference(&earlier.body, &begin.body).or(other_organization) {
            Some(what) => Err(of_whole_command("IDEMPOTENCY_KEY_REUSED", OffenceDetail::Differs(what))),
            None => {
                let lease = self.lease(earlier.lease);
                if matches!(lease.progress, Progress::Settled(End::Rollback)) {
                    return Err(of_whole_command("LEASE_ROLLED_BACK", OffenceDetail::TextOnly));
                }
                Ok(Some(Reply::Begun { lease: earlier.lease, fence: lease.fence, replayed: true }))
            }
        }
    }

    /// Returns the change of each bucket in the update, or an error with every offence (B01).
    fn plan(&self, begin: &Begin, now: u64) -> Result<BTreeMap<Bucket, Change>, Offences> {
        let mut buckets: BTreeMap<Bucket, (Option<u32>, Option<u32>)> = BTreeMap::new();
        for (position, item) in (0..).zip(&begin.body.creates) {
            buckets.entry(bucket(item)).or_default().0 = Some(position);
        }
        for (position, item) in (0..).zip(&begin.body.destroys) {
            buckets.entry(bucket(item)).or_default().1 = Some(position);
        }
        let (mut changes, mut offences) = (BTreeMap::new(), Offences::new());
        for (bucket, (create, destroy)) in buckets {
            let place = match destroy {
                Some(position) => (List::Destroys, position),
                None => (List::Creates, create.unwrap_or_default()),
            };
            match self.plan_bucket(begin, &bucket, create, destroy, now) {
                Ok(change) => _ = changes.insert(bucket, change),
                Err((reason, detail)) => offences.push(Offence { claim: Some((place, bucket.0)), reason, detail }),
            }
        }
        if offences.is_empty() { Ok(changes) } else { Err(offences) }
    }

    fn plan_bucket(
        &self,
        begin: &Begin,
        bucket: &Bucket,
        create: Option<u32>,
        destroy: Option<u32>,
        now: u64,
    ) -> Result<Change, (&'static str, OffenceDetail)> {
        let claim = self.claims.get(bucket);
        if let Some(lease) = claim.and_then(|claim| claim.lease) {
            let age = now.saturating_sub(self.lease(lease).created_at);
            return Err(("CLAIM_BUSY", OffenceDetail::RetryAfterMicros(age.clamp(100_000, 60_000_000))));
        }
        if let Some(position) = destroy {
            let item = begin.body.destroys.get(position as usize).expect("the position is in the list");
            let claim = claim.ok_or(("CLAIM_NOT_FOUND", OffenceDetail::TextOnly))?;
            if claim.owner != begin.cell {
                return Err(("NOT_OWNER", OffenceDetail::TextOnly));
            }
            if item.source.as_ref().is_some_and(|source| *source != claim.record.source) {
                return Err(("CLAIM_CHANGED", OffenceDetail::TextOnly));
            }
        } else if claim.is_some() {
            return Err(("CLAIM_TAKEN", OffenceDetail::TextOnly));
        }
        let after = create.map(|position| Claim {
            owner: begin.cell,
            record: new_record(begin, position, claim.map(|claim| &claim.record), now),
            lease: None,
        });
        Ok(Change { before: claim.cloned(), after })
    }

    /// Stores a new lease with the next fence, and lists the changed claims under the lease (B13).
    /// Reads then return the claim after the update, or the claim before if the update destroys it
    /// (B08).
    fn begin_lease(&mut self, begin: &Begin, changes: BTreeMap<Bucket, Change>, now: u64) -> Execution {
        let mut written = Written { fence: true, ..Written::default() };
        self.fence += 1;
        for (bucket, change) in &changes {
            let visible = change.after.clone().or(change.before.clone()).expect("a change has a claim before or after");
            self.claims.insert(bucket.clone(), Claim { lease: Some(begin.lease), ..visible });
            written.claims.insert(bucket.clone());
        }
        if let Some(key) = &begin.key {
            let key = (begin.cell, key.clone());
            self.key_uses.insert(key.clone(), KeyUse { lease: begin.lease, body: begin.body.clone() });
            written.keys.insert(key);
        }
        let lease = Lease {
            cell: begin.cell,
            fence: self.fence,
            created_at: now,
            updated_at: now,
            key: begin.key.clone(),
            organization: begin.organization,
            progress: Progress::Outstanding(changes),
        };
        self.leases.insert(begin.lease, lease);
        written.leases.insert(begin.lease);
        (Reply::Begun { lease: begin.lease, fence: self.fence, replayed: false }, written)
    }

    fn settle(&mut self, cell: i64, id: u128, end: End, now: u64) -> Result<Execution, Offences> {
        self.check_cell(cell)?;
        let lease =
            self.leases.get_mut(&id).ok_or_else(|| of_whole_command("LEASE_NOT_FOUND", OffenceDetail::TextOnly))?;
        if lease.cell != cell {
            return Err(of_whole_command("NOT_OWNER", OffenceDetail::TextOnly));
        }
        let changes = match &lease.progress {
            Progress::Outstanding(changes) => changes.clone(),
            Progress::Settled(earlier) if *earlier == end => return Ok((Reply::Settled(false), Written::default())),
            Progress::Settled(End::Commit) => return Err(of_whole_command("LEASE_COMMITTED", OffenceDetail::TextOnly)),
            Progress::Settled(End::Rollback) => {
                return Err(of_whole_command("LEASE_ROLLED_BACK", OffenceDetail::TextOnly));
            }
        };
        lease.progress = Progress::Settled(end);
        lease.updated_at = now;
        let claims = changes.keys().cloned().collect();
        for (bucket, change) in changes {
            self.settle_bucket(bucket, change, end, now);
        }
        Ok((Reply::Settled(true), Written { claims, leases: [id].into(), ..Written::default() }))
    }

    /// Ends one bucket's change: a commit stores the claim after the update (B20), a rollback
    /// restores the claim before it (B21).
    fn settle_bucket(&mut self, bucket: Bucket, change: Change, end: End, now: u64) {
        let settled = match end {
            End::Commit => {
                change.after.map(|claim| Claim { record: Record { updated_at: now, ..claim.record.clone() }, ..claim })
            }
            End::Rollback => change.before,
        };
        match settled {
            Some(claim) => _ = self.claims.insert(bucket, claim),
            None => _ = self.claims.remove(&bucket),
        }
    }

    /// Deletes a lease that was settled before `settled_before`, and its idempotency key (B22).
    fn forget(&mut self, id: u128, settled_before: u64) -> Execution {
        let old = |lease: &Lease| matches!(lease.progress, Progress::Settled(_)) && lease.updated_at < settled_before;
        if !self.leases.get(&id).is_some_and(old) {
            return (Reply::Forgotten(false), Written::default());
        }
        self.leases.remove(&id);
        let keys: BTreeSet<_> =
            self.key_uses.iter().filter(|(_, used)| used.lease == id).map(|(key, _)| key.clone()).collect();
        self.key_uses.retain(|key, _| !keys.contains(key));
        (Reply::Forgotten(true), Written { leases: [id].into(), keys, ..Written::default() })
    }

    fn lease(&self, id: u128) -> &Lease {
        self.leases.get(&id).expect("a lease exists while a claim or a key refers to it")
    }
}

/// Returns the bucket of a claim. The canonical form computed here is correct for ASCII values
/// only.
pub fn bucket(item: &Item) -> Bucket {
    let folds = item.bucket_type == USERNAMES;
    let value = if folds { item.value.to_ascii_lowercase() } else { item.value.clone() };
    (item.bucket_type, value)
}

/// Returns the record that a create stores. If the create replaces a claim, the record keeps the
/// UUID and creation time of `old` (B06).
fn new_record(begin: &Begin, position: u32, old: Option<&Record>, now: u64) -> Record {
    let item = begin.body.creates.get(position as usize).expect("the position is in the list");
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

/// Returns the UUID of a new record. It is the lease's id XORed with the create's position, counted
/// from 1, and its version field is 8.
fn record_uuid(lease: u128, position: u32) -> u128 {
    let version_bits = 0xf << 76;
    (lease ^ (u128::from(position) + 1)) & !version_bits | (0x8 << 76)
}

fn of_whole_command(reason: &'static str, detail: OffenceDetail) -> Offences {
    vec![Offence { claim: None, reason, detail }]
}

/// Returns a rejection with every offence, sorted by places (B10). The rejection's reason is the
/// one with the highest precedence (B15).
fn rejected(mut offences: Offences) -> Reply {
    offences.sort_by_key(|offence| offence.claim);
    let has_offence = |code: &&&str| offences.iter().any(|offence| offence.reason == **code);
    let reason = PRECEDENCE.iter().find(has_offence).expect("every reason is in the list");
    let hints: Option<Vec<u64>> = offences
        .iter()
        .map(|offence| match offence.detail {
            OffenceDetail::RetryAfterMicros(micros) => Some(micros),
            _ => None,
        })
        .collect();
    Reply::Rejected { reason, retry_after_micros: hints.and_then(|all| all.into_iter().max()), offences }
}

/// Returns an error for an update that is empty, has an incomplete claim (B14), or has one bucket
/// twice in one list (B07).
fn check_form(body: &Body) -> Result<(), Offences> {
    if body.creates.is_empty() && body.destroys.is_empty() {
        return Err(of_whole_command("INVALID_UPDATE", OffenceDetail::TextOnly));
    }
    let mut offences = check_list(List::Creates, &body.creates);
    offences.extend(check_list(List::Destroys, &body.destroys));
    if offences.is_empty() { Ok(()) } else { Err(offences) }
}

fn check_list(list: List, items: &[Item]) -> Offences {
    let mut first: BTreeMap<Bucket, u32> = BTreeMap::new();
    let mut offences = Offences::new();
    for (position, item) in (0..).zip(items) {
        let detail = if !is_complete(list, item) {
            Some(OffenceDetail::TextOnly)
        } else {
            let earlier = *first.entry(bucket(item)).or_insert(position);
            (earlier != position).then_some(OffenceDetail::AlsoAt((list, earlier)))
        };
        let claim = Some(((list, position), item.bucket_type));
        offences.extend(detail.map(|detail| Offence { claim, reason: "INVALID_UPDATE", detail }));
    }
    offences
}

fn is_complete(list: List, item: &Item) -> bool {
    let typed = [USERNAMES, SSH_KEYS].contains(&item.bucket_type);
    typed && (list == List::Destroys || (item.subject.is_some() && item.source.is_some()))
}

/// Returns the name of the first field in which two updates differ (B09); `None` if they are equal.
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

// Conversions of the model's values into the engine's types, and of the engine's answers back.

impl Command {
    /// Returns this command in the engine's type, after the engine's checks of the request's form.
    ///
    /// # Errors
    /// The engine's rules refuse the form of the request.
    pub fn for_engine(&self, rules: &Rules) -> Result<command::Command, Rejection> {
        match self {
            Self::Begin(begin) => {
                let (cell, lease) = (CellId(begin.cell), LeaseId(Uuid::from_u128(begin.lease)));
                let parsed = rules.begin(cell, engine_body(&begin.body), begin.key.as_deref(), lease)?;
                let organization = OrganizationId::parse(begin.organization)?;
                Ok(command::Command::Begin(parsed.for_organization(organization)))
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
    /// Returns the engine's answer to a command as the model's type.
    pub fn of_engine(answer: Result<command::Reply, Rejection>) -> Self {
        match answer {
            Ok(command::Reply::Begun(begun)) => {
                Self::Begun { lease: begun.lease.0.as_u128(), fence: begun.fence.0, replayed: begun.replayed }
            }
            Ok(command::Reply::Settled(changed)) => Self::Settled(changed),
            Ok(command::Reply::Forgotten(changed)) => Self::Forgotten(changed),
            Ok(reply @ (command::Reply::Lock(_) | command::Reply::Queue(_))) => {
                unreachable!("this model has neither locks nor queues: {reply:?}")
            }
            Err(rejection) => Self::Rejected {
                reason: rejection.reason().code(),
                retry_after_micros: rejection.retry_after_micros(),
                offences: rejection.offences().iter().map(offence_of_engine).collect(),
            },
        }
    }
}

fn offence_of_engine(offence: &leasehold_core::rejection::Offence) -> Offence {
    let detail = match &offence.detail {
        Detail::None | Detail::Form(_) | Detail::Limit { .. } => OffenceDetail::TextOnly,
        Detail::AlsoAt(place) => OffenceDetail::AlsoAt(place_of_engine(*place)),
        Detail::Differs(what) => OffenceDetail::Differs(what.clone()),
        Detail::RetryAfterMicros(micros) => OffenceDetail::RetryAfterMicros(*micros),
    };
    // An engine's offence has both a place and a bucket type, or neither if it concerns the whole
    // command.
    let claim = match (offence.place, offence.bucket_type) {
        (Some(place), Some(bucket_type)) => Some((place_of_engine(place), bucket_type.0)),
        (None, None) => None,
        half => unreachable!("a place without a bucket type, or the reverse: {half:?}"),
    };
    Offence { claim, reason: offence.reason.code(), detail }
}

fn place_of_engine(place: CorePlace) -> Place {
    let list = match place.list {
        CoreList::Creates => List::Creates,
        CoreList::Destroys => List::Destroys,
    };
    (list, place.position)
}

impl Model {
    /// Returns the model's state as the engine's type. The engine's store must contain exactly this
    /// state.
    pub fn state(&self) -> State {
        State {
            claims: self.claims.keys().filter_map(|key| Some((engine_key(key), self.engine_claim(key)?))).collect(),
            leases: self.leases.keys().filter_map(|id| Some((lease_id(*id), self.engine_lease(*id)?))).collect(),
            replays: self
                .key_uses
                .keys()
                .filter_map(|key| Some((engine_idempotency_key(key), self.engine_replay(key)?)))
                .collect(),
            fence: Fence(self.fence),
            ..State::default()
        }
    }

    /// Returns the rows that a command wrote, with their values after the command, as the engine's
    /// type. Each list of rows is sorted by key. A deleted row has the value `None`.
    pub fn changes(&self, written: &Written) -> Changes {
        Changes {
            claims: written.claims.iter().map(|key| (engine_key(key), self.engine_claim(key))).collect(),
            leases: written.leases.iter().map(|id| (lease_id(*id), self.engine_lease(*id))).collect(),
            replays: written.keys.iter().map(|key| (engine_idempotency_key(key), self.engine_replay(key))).collect(),
            fence: written.fence.then_some(Fence(self.fence)),
            ..Changes::default()
        }
    }

    fn engine_claim(&self, bucket: &Bucket) -> Option<core_claim::Claim> {
        let claim = self.claims.get(bucket)?;
        let state = match claim.lease {
            None => ClaimState::Active(engine_record(&claim.record)),
            Some(id) => self.engine_state_under_lease(bucket, id),
        };
        Some(core_claim::Claim { owner: CellId(claim.owner), state })
    }

    fn engine_state_under_lease(&self, bucket: &Bucket, id: u128) -> ClaimState {
        let lease = self.lease(id);
        let hold = Hold { lease: lease_id(id), since: Timestamp::from_micros(lease.created_at) };
        let Progress::Outstanding(changes) = &lease.progress else {
            unreachable!("`{bucket:?}` is under a settled lease")
        };
        let change = changes.get(bucket).expect("a lease has a change for each of its claims");
        match (&change.before, &change.after) {
            (None, Some(new)) => ClaimState::Creating(hold, engine_record(&new.record)),
            (Some(old), None) => ClaimState::Destroying(hold, engine_record(&old.record)),
            (Some(old), Some(new)) => {
                let both = Replacement { old: engine_record(&old.record), new: engine_record(&new.record) };
                ClaimState::Replacing(hold, Box::new(both))
            }
            (None, None) => unreachable!("a change has a claim before or after"),
        }
    }

    fn engine_lease(&self, id: u128) -> Option<core_lease::Lease> {
        let lease = self.leases.get(&id)?;
        let state = match &lease.progress {
            Progress::Outstanding(changes) => LeaseState::Outstanding(changes.keys().map(engine_key).collect()),
            Progress::Settled(end) => LeaseState::Settled(outcome(*end)),
        };
        Some(core_lease::Lease {
            cell: CellId(lease.cell),
            fence: Fence(lease.fence),
            created_at: Timestamp::from_micros(lease.created_at),
            updated_at: Timestamp::from_micros(lease.updated_at),
            idempotency_key: lease.key.as_ref().map(|key| engine_idempotency_key(&(lease.cell, key.clone()))),
            organization: engine_organization(lease.organization),
            state,
        })
    }

    fn engine_replay(&self, key: &(i64, String)) -> Option<Replay> {
        let used = self.key_uses.get(key)?;
        Some(Replay {
            lease: lease_id(used.lease),
            fence: Fence(self.lease(used.lease).fence),
            fingerprint: engine_body(&used.body).fingerprint(),
        })
    }
}

/// Returns the model's bucket as the engine's key of a claim.
pub fn engine_key((bucket_type, canonical): &Bucket) -> BucketKey {
    BucketKey { bucket_type: BucketType(*bucket_type), canonical: canonical.as_str().into() }
}

/// Returns the model's record as the engine's type.
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

/// Returns the model's number of a lease as the engine's lease id.
pub fn lease_id(lease: u128) -> LeaseId {
    LeaseId(Uuid::from_u128(lease))
}

fn engine_idempotency_key((cell, key): &(i64, String)) -> IdempotencyKey {
    IdempotencyKey { cell: CellId(*cell), key: key.as_str().into() }
}

fn engine_organization(id: i64) -> Option<OrganizationId> {
    OrganizationId::parse(id).expect("the model's organizations are not negative")
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
