//! Whether what clients saw agrees with some order of their commands (linearizability): the search of Wing and Gong, with
//! Lowe's memory of where it has been.
//!
//! Each operation takes effect at one moment between its call and its answer, or, where no answer came, at any moment after
//! its call or never. The engine itself says what the answer has to be at that moment. The search puts operations in order
//! one by one, takes steps back where it gets stuck, and never comes twice to the same state by the same operations.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};

use leasehold_core::batch::Entry;
use leasehold_core::bucket::BucketKey;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, ClaimState, Record, Source, Subject};
use leasehold_core::command::{Command, Reply};
use leasehold_core::lease::{Fence, IdempotencyKey, Lease, LeaseId, Replay};
use leasehold_core::rejection::{List, Rejection};
use leasehold_core::rows::{Changes, Kind, OrderedRead, State, Tables};
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::{BrokenState, Transaction};
use serde::Serialize;
use uuid::Uuid;

/// Beyond this many tries that came no further the history is undecided, which no test may pass.
const MAX_TRIES: usize = 5_000_000;
/// The end of what may have an effect at any time.
pub(crate) const NEVER: u64 = u64::MAX;
/// Every fence that the search gives out: whether fences grow is another question.
const FENCE: Fence = Fence(1);

/// What a client asked for.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Command(Command),
    Get(BucketKey),
    List(CellId),
}

/// A refusal: its reason, and each claim's place (whether among the destroys, and its position) and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: String,
    pub(crate) offences: BTreeSet<(bool, u32, String)>,
}

/// A claim as a read shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) uuid: Uuid,
    pub(crate) owner: CellId,
    pub(crate) spelling: String,
    pub(crate) subject: Subject,
    pub(crate) source: Source,
    pub(crate) status: i32,
    pub(crate) lease: Option<LeaseId>,
}

/// What a client was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Begun(LeaseId, Fence),
    Settled,
    Refused(Refused),
    Record(Option<Box<Shown>>),
    Leases(BTreeSet<LeaseId>),
    Unknown,
}

/// One call, with the times of its call and of its answer; of an unknown answer, the time from which on the call can't have
/// an effect any more, where that is known.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) called: u64,
    pub(crate) answered: u64,
    pub(crate) action: Action,
    pub(crate) answer: Answer,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{} ", self.called, self.answered)?;
        match &self.action {
            Action::Command(Command::Begin(begin)) => {
                write!(f, "begin by cell {}, lease {}", begin.cell, begin.lease)?;
                if let Some((key, _)) = &begin.idempotency {
                    write!(f, ", key {key}")?;
                }
                for entry in begin.batch.entries() {
                    let what = match entry {
                        Entry::Create(_) => "create",
                        Entry::Destroy(_) => "destroy",
                        Entry::Replace(..) => "replace",
                    };
                    write!(f, ", {what} {}", entry.key().canonical)?;
                }
            }
            Action::Command(other) => write!(f, "{other:?}")?,
            Action::Get(key) => write!(f, "get {}", key.canonical)?,
            Action::List(cell) => write!(f, "list the leases of cell {cell}")?,
        }
        write!(f, ": {:?}", self.answer)
    }
}

/// There is no order, or none was found in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Disorder(pub(crate) String);

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether there is an order of the operations that begins with nothing and ends in `last`.
pub(crate) fn check(operations: &[Operation], last: &State) -> Result<(), Disorder> {
    let mut search = Search::new(operations, digest_of(last));
    search.run().map_err(Disorder)
}

/// Some row of the engine as it was before a step.
enum Before {
    Claim(BucketKey, Option<Claim>),
    Lease(LeaseId, Option<Lease>),
    Replay(IdempotencyKey, Option<Replay>),
}

/// The engine's rows, with a way back, and a sum of them that two different states hardly share.
#[derive(Default)]
struct Rows {
    tables: Tables,
    outstanding: BTreeSet<(CellId, LeaseId)>,
    digest: u128,
    journal: Vec<Before>,
}

fn hash128(value: impl Hash) -> u128 {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, &value).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

fn row_digest(row: &impl Serialize) -> u128 {
    hash128(serde_json::to_vec(row).unwrap())
}

impl Rows {
    fn put<K: Kind<Key: Serialize> + Serialize>(&mut self, key: &K::Key, row: Option<K>) -> Option<K> {
        let after = row.as_ref().map_or(0, |row| row_digest(&(key, row)));
        let before = K::table_mut(&mut self.tables).write(key.clone(), row);
        self.digest ^= after ^ before.as_ref().map_or(0, |row| row_digest(&(key, row)));
        before
    }

    fn put_lease(&mut self, id: LeaseId, lease: Option<Lease>) -> Option<Lease> {
        let outstanding =
            |lease: &Option<Lease>| lease.as_ref().filter(|lease| lease.outcome().is_none()).map(|l| l.cell);
        let cell = outstanding(&lease);
        let before = self.put(&id, lease);
        outstanding(&before).map(|cell| self.outstanding.remove(&(cell, id)));
        cell.map(|cell| self.outstanding.insert((cell, id)));
        before
    }

    fn back_to(&mut self, length: usize) {
        for before in self.journal.split_off(length).into_iter().rev() {
            match before {
                Before::Claim(key, claim) => drop(self.put(&key, claim)),
                Before::Lease(id, lease) => drop(self.put_lease(id, lease)),
                Before::Replay(key, replay) => drop(self.put(&key, replay)),
            }
        }
    }

    fn leases(&self, cell: CellId) -> BTreeSet<LeaseId> {
        let first = (cell, LeaseId(Uuid::nil()));
        self.outstanding.range(first..).take_while(|(owner, _)| *owner == cell).map(|(_, lease)| *lease).collect()
    }
}

impl Transaction for Rows {
    type Error = BrokenState;

    fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, BrokenState> {
        Ok(self.tables.row(key))
    }

    fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, BrokenState> {
        Ok(self.tables.first(read).into_iter().map(|(key, _)| key).collect())
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        Ok(Fence::default())
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        for (key, claim) in changes.claims {
            let before = self.put(&key, claim);
            self.journal.push(Before::Claim(key, before));
        }
        for (id, lease) in changes.leases {
            let before = self.put_lease(id, lease);
            self.journal.push(Before::Lease(id, before));
        }
        for (key, replay) in changes.replays {
            let before = self.put(&key, replay);
            self.journal.push(Before::Replay(key, before));
        }
        Ok(())
    }
}

/// The digest of a state as the search comes to it: its clock stands still, and it has one fence.
fn digest_of(state: &State) -> u128 {
    let mut rows = Rows::default();
    for (key, claim) in &state.claims {
        rows.put(key, Some(timeless(claim)));
    }
    for (id, lease) in &state.leases {
        let (created_at, updated_at) = (Timestamp::MIN, Timestamp::MIN);
        rows.put_lease(*id, Some(Lease { fence: FENCE, created_at, updated_at, ..lease.clone() }));
    }
    for (key, replay) in &state.replays {
        rows.put(key, Some(Replay { fence: FENCE, ..replay.clone() }));
    }
    rows.digest
}

fn timeless(claim: &Claim) -> Claim {
    let mut claim = claim.clone();
    let still = |record: &mut Record| (record.created_at, record.updated_at) = (Timestamp::MIN, Timestamp::MIN);
    match &mut claim.state {
        ClaimState::Active(record) => still(record),
        ClaimState::Creating(hold, record) | ClaimState::Destroying(hold, record) => {
            hold.since = Timestamp::MIN;
            still(record);
        }
        ClaimState::Replacing(hold, both) => {
            hold.since = Timestamp::MIN;
            still(&mut both.old);
            still(&mut both.new);
        }
    }
    claim
}

/// A claim as a read shows it.
fn shown(claim: &Claim) -> Shown {
    let record = claim.record();
    Shown {
        uuid: record.uuid,
        owner: claim.owner,
        spelling: record.spelling.to_string(),
        subject: record.subject,
        source: record.source.clone(),
        status: match claim.state {
            ClaimState::Active(_) => 1,
            ClaimState::Creating(..) | ClaimState::Replacing(..) => 2,
            ClaimState::Destroying(..) => 3,
        },
        lease: claim.hold().map(|hold| hold.lease),
    }
}

fn refused(rejection: &Rejection) -> Refused {
    let offences = rejection.offences().iter().filter_map(|offence| {
        let place = offence.place?;
        Some((place.list == List::Destroys, place.position, offence.reason.code().to_owned()))
    });
    Refused { reason: rejection.reason().code().to_owned(), offences: offences.collect() }
}

/// A call or an answer, in the list of those whose operation has no place in the order yet.
struct Event {
    operation: usize,
    is_call: bool,
    before: usize,
    after: usize,
}

struct Search<'a> {
    operations: &'a [Operation],
    last: u128,
    // Linked both ways, between a head and a tail of their own.
    events: Vec<Event>,
    places: Vec<(usize, Option<usize>)>,
    rows: Rows,
    ordered: u128,
    been: HashSet<u128>,
    // The call's event, and the journal's length before it.
    path: Vec<(usize, usize)>,
    // Since the path was longer than ever before, and how long that was.
    tries: usize,
    longest: usize,
    // How far it came before it got stuck, and the operation that had no place then.
    furthest: (usize, Option<usize>),
}

const HEAD: usize = 0;

impl<'a> Search<'a> {
    fn new(operations: &'a [Operation], last: u128) -> Self {
        let mut times = Vec::new();
        for (number, operation) in operations.iter().enumerate() {
            times.push((operation.called, false, number));
            if operation.answered < NEVER {
                times.push((operation.answered, true, number));
            }
        }
        times.sort_unstable();
        let event =
            |at: usize, operation, is_call| Event { operation, is_call, before: at.wrapping_sub(1), after: at + 1 };
        let mut events = vec![event(HEAD, usize::MAX, false)];
        let mut places = vec![(0, None); operations.len()];
        for (_, is_answer, number) in times {
            let at = events.len();
            if is_answer {
                places[number].1 = Some(at);
            } else {
                places[number].0 = at;
            }
            events.push(event(at, number, !is_answer));
        }
        events.push(event(events.len(), usize::MAX, false));
        Self {
            operations,
            last,
            events,
            places,
            rows: Rows::default(),
            ordered: 0,
            been: HashSet::new(),
            path: Vec::new(),
            tries: 0,
            longest: 0,
            furthest: (0, None),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let tail = self.events.len() - 1;
        let mut at = self.events[HEAD].after;
        loop {
            let Event { operation, is_call, .. } = self.events[at];
            if at != tail && is_call {
                at = if self.step(at)? { self.events[HEAD].after } else { self.events[at].after };
                continue;
            }
            if at != tail && self.is_over(operation) {
                at = self.events[HEAD].after;
                continue;
            }
            // An answer whose operation has no place, or the end.
            if at == tail && self.rows.digest == self.last {
                return Ok(());
            }
            if self.furthest.1.is_none() || self.path.len() > self.furthest.0 {
                self.furthest = (self.path.len(), (at != tail).then_some(operation));
            }
            let Some((call, journal)) = self.path.pop() else { return Err(self.failure()) };
            self.put_back(call, journal);
            at = self.events[call].after;
        }
    }

    /// Puts an operation next in the order, where that agrees with its answer and leads to somewhere new.
    fn step(&mut self, at: usize) -> Result<bool, String> {
        self.tries += 1;
        if self.tries > MAX_TRIES {
            return Err(format!("undecided after {MAX_TRIES} tries; {}", self.failure()));
        }
        let number = self.events[at].operation;
        let journal = self.rows.journal.len();
        let agrees = self.agrees(&self.operations[number]);
        let ordered = self.ordered ^ hash128(number);
        if agrees && self.been.insert(ordered.rotate_left(1) ^ self.rows.digest) {
            self.ordered = ordered;
            self.path.push((at, journal));
            self.take_out(number);
            if self.path.len() > self.longest {
                (self.longest, self.tries) = (self.path.len(), 0);
            }
            return Ok(true);
        }
        self.rows.back_to(journal);
        Ok(false)
    }

    /// Whether an operation may be left out from here on, and where that leads is new.
    fn is_over(&mut self, number: usize) -> bool {
        let ordered = self.ordered ^ hash128(number);
        let over = self.operations[number].answer == Answer::Unknown
            && self.been.insert(ordered.rotate_left(1) ^ self.rows.digest);
        if over {
            self.ordered = ordered;
            self.path.push((self.places[number].0, self.rows.journal.len()));
            self.take_out(number);
        }
        over
    }

    fn agrees(&mut self, operation: &Operation) -> bool {
        let digest = self.rows.digest;
        match (&operation.action, &operation.answer) {
            (Action::Get(key), Answer::Record(record)) => {
                self.rows.tables.row(key).map(shown) == record.as_deref().cloned()
            }
            (Action::List(cell), Answer::Leases(leases)) => self.rows.leases(*cell) == *leases,
            (Action::Command(command), answer) => {
                match (command.apply(&mut self.rows, Timestamp::MIN).unwrap(), answer) {
                    // One that changes nothing may as well never happen.
                    (_, Answer::Unknown) => self.rows.digest != digest,
                    (Ok(Reply::Begun(begun)), Answer::Begun(lease, _)) => begun.lease == *lease,
                    (Ok(Reply::Settled(_)), Answer::Settled) => true,
                    (Err(rejection), Answer::Refused(answer)) => refused(&rejection) == *answer,
                    _ => false,
                }
            }
            _ => false,
        }
    }

    fn take_out(&mut self, number: usize) {
        let (call, answer) = self.places[number];
        for at in std::iter::once(call).chain(answer) {
            let (before, after) = (self.events[at].before, self.events[at].after);
            self.events[before].after = after;
            self.events[after].before = before;
        }
    }

    fn put_back(&mut self, call: usize, journal: usize) {
        let number = self.events[call].operation;
        let (_, answer) = self.places[number];
        for at in answer.into_iter().chain([call]) {
            let (before, after) = (self.events[at].before, self.events[at].after);
            self.events[before].after = at;
            self.events[after].before = at;
        }
        self.ordered ^= hash128(number);
        self.rows.back_to(journal);
    }

    /// What had no place in the furthest that the search came, and what went on at the time.
    fn failure(&self) -> String {
        let (length, number) = self.furthest;
        let all = self.operations.len();
        let Some(number) = number else {
            return format!("all of {length} answers agree with an order, but what is there in the end does not");
        };
        let stuck = &self.operations[number];
        let meets = |other: &&Operation| other.called <= stuck.answered && other.answered >= stuck.called;
        let mut text =
            format!("after {length} of {all} operations, none of these can come next so that this agrees:\n");
        text += &format!("{stuck}\nwhat went on meanwhile:\n");
        for other in self.operations.iter().filter(meets) {
            text += &format!("  {other}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use leasehold_core::batch::{ClaimRequest, UpdateRequest};
    use leasehold_core::bucket::BucketType;
    use leasehold_core::catalogue::Catalogue;
    use leasehold_core::claim::SourceType;
    use leasehold_core::lease::Outcome;
    use leasehold_core::rules::Rules;

    use super::*;

    const CELL: CellId = CellId(1);

    fn rules() -> Rules {
        Rules { catalogue: Catalogue::default(), cells: [CELL].into() }
    }

    fn lease(number: u128) -> LeaseId {
        LeaseId(Uuid::from_u128(number))
    }

    fn key(name: &str) -> BucketKey {
        BucketKey { bucket_type: BucketType(4), canonical: name.into() }
    }

    /// A begin that creates a name.
    fn begin(name: &str, number: u128) -> Action {
        let claim = ClaimRequest {
            bucket_type: BucketType(4),
            value: name.into(),
            subject: Some(Subject { subject_type: 4, id: 7 }),
            source: Some(Source { source_type: SourceType(1), id: 7.into() }),
            user_data: None,
        };
        let request = UpdateRequest { creates: vec![claim], ..UpdateRequest::default() };
        Action::Command(Command::Begin(rules().begin(CELL, request, None, lease(number)).unwrap()))
    }

    fn commit(number: u128) -> Action {
        let settle = rules().settle(CELL, &lease(number).to_string(), Outcome::Committed);
        Action::Command(Command::Settle(settle.unwrap()))
    }

    fn begun(number: u128) -> Answer {
        Answer::Begun(lease(number), Fence::default())
    }

    fn busy() -> Answer {
        let offences = [(false, 0, "CLAIM_BUSY".to_owned())].into();
        Answer::Refused(Refused { reason: "CLAIM_BUSY".into(), offences })
    }

    fn operations(operations: &[(u64, u64, Action, Answer)]) -> Vec<Operation> {
        let operation = |(called, answered, action, answer): &(u64, u64, Action, Answer)| Operation {
            called: *called,
            answered: *answered,
            action: action.clone(),
            answer: answer.clone(),
        };
        operations.iter().map(operation).collect()
    }

    /// What is there after these commands.
    fn after(actions: &[Action]) -> State {
        let mut rows = Rows::default();
        for action in actions {
            let Action::Command(command) = action else { continue };
            command.apply(&mut rows, Timestamp::from_micros(5)).unwrap().unwrap();
        }
        State { fence: FENCE, ..rows.tables.state() }
    }

    fn read(actions: &[Action]) -> Answer {
        Answer::Record(after(actions).claims.get(&key("a")).map(|claim| Box::new(shown(claim))))
    }

    #[test]
    fn what_overlaps_may_have_happened_in_any_order() {
        let (first, second) = (begin("a", 1), begin("a", 2));
        let history = operations(&[
            (0, 10, first.clone(), busy()),
            (1, 9, second.clone(), begun(2)),
            (5, 30, Action::Get(key("a")), Answer::Record(None)),
            (11, 12, Action::List(CELL), Answer::Leases([lease(2)].into())),
            (13, 20, commit(2), Answer::Settled),
            (14, 19, Action::Get(key("a")), read(&[second.clone(), commit(2)])),
        ]);
        assert_eq!(check(&history, &after(&[second.clone(), commit(2)])), Ok(()));
        // What came one after the other did not happen the other way round.
        let late = operations(&[(0, 1, first, busy()), (2, 3, second.clone(), begun(2))]);
        assert!(check(&late, &after(&[second])).is_err());
    }

    #[test]
    fn a_doubled_lease_is_caught() {
        let (first, second) = (begin("a", 1), begin("a", 2));
        for (called, answered) in [(0, 10), (11, 12)] {
            let history = operations(&[(0, 10, first.clone(), begun(1)), (called, answered, second.clone(), begun(2))]);
            for last in [&first, &second] {
                assert!(check(&history, &after(from_ref(last))).is_err());
            }
        }
    }

    #[test]
    fn a_lost_commit_is_caught() {
        let first = begin("a", 1);
        let begun_and_committed = [(0, 1, first.clone(), begun(1)), (2, 3, commit(1), Answer::Settled)];
        let (held, rested) = (read(from_ref(&first)), read(&[first.clone(), commit(1)]));
        let then = |called, answer: &Answer| {
            let read = (called, 9, Action::Get(key("a")), answer.clone());
            operations(&[begun_and_committed.as_slice(), &[read]].concat())
        };
        let last = after(&[first.clone(), commit(1)]);
        assert_eq!(check(&then(4, &rested), &last), Ok(()));
        assert!(check(&then(4, &held), &last).is_err(), "a read after the commit shows what was before");
        assert_eq!(check(&then(2, &held), &last), Ok(()), "a read that overlaps the commit may");
        assert!(check(&then(4, &rested), &after(&[first])).is_err(), "in the end it is not there");
        assert!(check(&then(4, &Answer::Record(None)), &after(&[])).is_err(), "not even the lease is");
    }

    #[test]
    fn what_was_not_answered_may_happen_late_or_never() {
        let (first, second) = (begin("a", 1), begin("b", 2));
        let history = operations(&[
            (0, NEVER, first.clone(), Answer::Unknown),
            (0, NEVER, second.clone(), Answer::Unknown),
            (20, 21, Action::Get(key("a")), Answer::Record(None)),
            (22, 23, Action::Get(key("a")), read(from_ref(&first))),
        ]);
        assert_eq!(check(&history, &after(from_ref(&first))), Ok(()));
        assert_eq!(check(&history, &after(&[first.clone(), second.clone()])), Ok(()));
        assert!(check(&history, &after(&[second])).is_err());
        // Nor may it happen once it is known that it can't any more.
        let until = |time| {
            let unanswered = (0, time, first.clone(), Answer::Unknown);
            let history = operations(&[unanswered, (20, 21, Action::Get(key("a")), Answer::Record(None))]);
            check(&history, &after(from_ref(&first))).is_ok()
        };
        assert_eq!((until(19), until(22)), (false, true));
        let back = operations(&[
            (0, NEVER, first.clone(), Answer::Unknown),
            (2, 3, Action::Get(key("a")), read(from_ref(&first))),
            (4, 5, Action::Get(key("a")), Answer::Record(None)),
        ]);
        assert!(check(&back, &after(&[first])).is_err(), "what was seen once does not go away by itself");
    }
}
