//! A linearizability checker. It uses the search of Wing and Gong with Lowe's cache of visited
//! configurations (G. Lowe, Testing for linearizability, 2017).
//!
//! A history is a list of calls with their answers. It is linearizable if there is one order of the
//! calls with two properties. The engine, run in that order, gives the same answers; and each call
//! takes effect between its start and its answer. A call without an answer may take effect at any
//! time after its start, or never.
//!
//! The search builds the order call by call, and backtracks if no call fits. A configuration is the
//! set of calls in the order so far, with the state that they lead to. The search enters each
//! configuration only once.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// The number of tries after which the check fails as undecided. A try counts if it does not lead to a longer order than
/// all before.
const MAX_TRIES: usize = 5_000_000;
/// The answer time of a call that may take effect at any time after its start.
pub(super) const NEVER: u64 = u64::MAX;
/// The fence of every lease in the search. The real fences are checked by
/// [`super::history::check_leases`].
const FENCE: Fence = Fence(1);

/// The request of one recorded call: a command, a read of a claim, or a list of a cell's
/// outstanding leases.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Command(Command),
    Get(BucketKey),
    List(CellId),
}

/// A rejection as the client sees it: the reason, and the offences. Each offence is a tuple: the
/// list of the claim (`true`: destroys, `false`: creates), its position in the list, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedRejection {
    pub(super) reason: String,
    pub(super) offences: BTreeSet<(bool, u32, String)>,
}

/// The claim that a read returned to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedClaim {
    pub(super) uuid: Uuid,
    pub(super) owner: CellId,
    pub(super) spelling: String,
    pub(super) subject: Subject,
    pub(super) source: Source,
    pub(super) status: i32,
    pub(super) lease: Option<LeaseId>,
}

/// The recorded answer to a client's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Begun(LeaseId, Fence),
    Settled,
    Rejected(ObservedRejection),
    Record(Option<Box<ObservedClaim>>),
    Leases(BTreeSet<LeaseId>),
    /// The call got no answer, so it may or may not have taken effect.
    Unknown,
}

/// One call of a client, with the times of its start and of its answer. If the answer is `Unknown`,
/// the call has no effect after the time `answered`; [`NEVER`] means that no such time is known.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) called: u64,
    pub(super) answered: u64,
    pub(super) action: Action,
    pub(super) answer: Answer,
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
                    let verb = match entry {
                        Entry::Create(_) => "create",
                        Entry::Destroy(_) => "destroy",
                        Entry::Replace(..) => "replace",
                    };
                    write!(f, ", {verb} {}", entry.key().canonical)?;
                }
            }
            Action::Command(other) => write!(f, "{other:?}")?,
            Action::Get(key) => write!(f, "get {}", key.canonical)?,
            Action::List(cell) => write!(f, "list the leases of cell {cell}")?,
        }
        write!(f, ": {:?}", self.answer)
    }
}

/// The error of a history that is not linearizable, or that the search could not decide. The text
/// shows where the search failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotLinearizable(pub String);

impl fmt::Display for NotLinearizable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks that the history `operations` is linearizable: one order of the calls explains all
/// answers, and leads from the empty state to `final_state`. Fails as undecided when
/// `is_over` is true. Returns the most tries that did not lead to a longer order.
pub(super) fn check_within(
    operations: &[Operation],
    final_state: &State,
    is_over: &AtomicBool,
) -> Result<usize, NotLinearizable> {
    let mut search = Search::new(operations, digest_of(final_state), is_over);
    search.run().map_err(NotLinearizable)?;
    Ok(search.most_tries)
}

/// The former value of a row that the engine has overwritten, with which the search undoes the
/// write; `None` if there was no row.
enum UndoEntry {
    Claim(BucketKey, Option<Claim>),
    Lease(LeaseId, Option<Lease>),
    Replay(IdempotencyKey, Option<Replay>),
}

/// The engine's rows during the search, with a journal that can undo writes, and a digest of all
/// rows. The digests of two different states are different with overwhelming probability.
#[derive(Default)]
struct Rows {
    tables: Tables,
    outstanding: BTreeSet<(CellId, LeaseId)>,
    digest: u128,
    journal: Vec<UndoEntry>,
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

    /// Undoes the newest writes until the journal has this length again.
    fn undo_to(&mut self, length: usize) {
        for before in self.journal.split_off(length).into_iter().rev() {
            match before {
                UndoEntry::Claim(key, claim) => drop(self.put(&key, claim)),
                UndoEntry::Lease(id, lease) => drop(self.put_lease(id, lease)),
                UndoEntry::Replay(key, replay) => drop(self.put(&key, replay)),
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
            self.journal.push(UndoEntry::Claim(key, before));
        }
        for (id, lease) in changes.leases {
            let before = self.put_lease(id, lease);
            self.journal.push(UndoEntry::Lease(id, before));
        }
        for (key, replay) in changes.replays {
            let before = self.put(&key, replay);
            self.journal.push(UndoEntry::Replay(key, before));
        }
        Ok(())
    }
}

/// Returns the digest of a state with all times and fences set to the search's constants, so that
/// it can equal the digest of [`Rows`].
fn digest_of(state: &State) -> u128 {
    let mut rows = Rows::default();
    for (key, claim) in &state.claims {
        rows.put(key, Some(without_times(claim)));
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

fn without_times(claim: &Claim) -> Claim {
    let mut claim = claim.clone();
    let clear = |record: &mut Record| (record.created_at, record.updated_at) = (Timestamp::MIN, Timestamp::MIN);
    match &mut claim.state {
        ClaimState::Active(record) => clear(record),
        ClaimState::Creating(hold, record) | ClaimState::Destroying(hold, record) => {
            hold.since = Timestamp::MIN;
            clear(record);
        }
        ClaimState::Replacing(hold, both) => {
            hold.since = Timestamp::MIN;
            clear(&mut both.old);
            clear(&mut both.new);
        }
    }
    claim
}

/// Returns the engine's claim in the form in which a read returns it to a client.
fn observed_claim(claim: &Claim) -> ObservedClaim {
    let record = claim.record();
    ObservedClaim {
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

fn observed_rejection(rejection: &Rejection) -> ObservedRejection {
    let offences = rejection.offences().iter().filter_map(|offence| {
        let place = offence.place?;
        Some((place.list == List::Destroys, place.position, offence.reason.code().to_owned()))
    });
    ObservedRejection { reason: rejection.reason().code().to_owned(), offences: offences.collect() }
}

/// The start or the answer of a call. Events form a linked list, which contains only the calls that
/// are not in the order yet.
struct Event {
    operation: usize,
    is_call: bool,
    previous: usize,
    next: usize,
}

/// The positions in the list of events of one call's start and answer.
struct EventPositions {
    call: usize,
    // The position of the answer's event; `None` if the call may take effect at any time.
    answer: Option<usize>,
}

struct Search<'a> {
    operations: &'a [Operation],
    final_digest: u128,
    // All events by time, as a doubly linked list. Its first and last elements, head and tail, are
    // no events.
    events: Vec<Event>,
    positions: Vec<EventPositions>,
    rows: Rows,
    // The XOR of the hashes of all calls in the order, which identifies the set of these calls.
    ordered: u128,
    // The digests of all configurations that the search has entered.
    visited: HashSet<u128>,
    // The order so far: for each call, the position of its start in `events`, and the length of the
    // journal before the call.
    path: Vec<(usize, usize)>,
    // `tries` counts the tries since the order last reached a new greatest length; `longest` is
    // that length.
    tries: usize,
    longest: usize,
    most_tries: usize,
    is_over: &'a AtomicBool,
    // The longest order that could not be continued: its length, and the call that could not come
    // next. The call is `None` if the order was complete but led to another state.
    dead_end: Option<(usize, Option<usize>)>,
}

const HEAD: usize = 0;

impl<'a> Search<'a> {
    fn new(operations: &'a [Operation], final_digest: u128, is_over: &'a AtomicBool) -> Self {
        let mut times = Vec::new();
        for (number, operation) in operations.iter().enumerate() {
            times.push((operation.called, false, number));
            if operation.answered < NEVER {
                times.push((operation.answered, true, number));
            }
        }
        times.sort_unstable();
        let event = |index: usize, operation, is_call| {
            let (previous, next) = (index.wrapping_sub(1), index + 1);
            Event { operation, is_call, previous, next }
        };
        let mut events = vec![event(HEAD, usize::MAX, false)];
        let mut positions: Vec<_> = operations.iter().map(|_| EventPositions { call: HEAD, answer: None }).collect();
        for (_, is_answer, number) in times {
            let index = events.len();
            if is_answer {
                positions[number].answer = Some(index);
            } else {
                positions[number].call = index;
            }
            events.push(event(index, number, !is_answer));
        }
        events.push(event(events.len(), usize::MAX, false));
        Self {
            operations,
            final_digest,
            events,
            positions,
            rows: Rows::default(),
            ordered: 0,
            visited: HashSet::new(),
            path: Vec::new(),
            tries: 0,
            longest: 0,
            most_tries: 0,
            is_over,
            dead_end: None,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let tail = self.events.len() - 1;
        let mut index = self.events[HEAD].next;
        loop {
            let Event { operation, is_call, .. } = self.events[index];
            if index != tail && is_call {
                index = if self.try_append(index)? { self.events[HEAD].next } else { self.events[index].next };
                continue;
            }
            if index != tail && self.try_skip(operation) {
                index = self.events[HEAD].next;
                continue;
            }
            // `index` is the tail, or the answer of a call that the current order does not contain:
            // a dead end.
            if index == tail && self.rows.digest == self.final_digest {
                return Ok(());
            }
            if self.dead_end.is_none_or(|(length, number)| number.is_none() || self.path.len() > length) {
                self.dead_end = Some((self.path.len(), (index != tail).then_some(operation)));
            }
            let Some((call, journal)) = self.path.pop() else { return Err(self.failure()) };
            self.reinsert(call, journal);
            index = self.events[call].next;
        }
    }

    /// Appends the call that starts at event `call` to the order. This succeeds if the engine gives
    /// the recorded answer and the configuration is new. Returns true on success.
    fn try_append(&mut self, call: usize) -> Result<bool, String> {
        self.tries += 1;
        if self.tries > MAX_TRIES || self.is_over.load(Ordering::Relaxed) {
            return Err(format!("undecided after {} tries; {}", self.tries, self.failure()));
        }
        self.most_tries = self.most_tries.max(self.tries);
        let number = self.events[call].operation;
        let journal = self.rows.journal.len();
        let agrees = self.agrees(&self.operations[number]);
        let ordered = self.ordered ^ hash128(number);
        if agrees && self.visited.insert(ordered.rotate_left(1) ^ self.rows.digest) {
            self.ordered = ordered;
            self.path.push((call, journal));
            self.remove(number);
            if self.path.len() > self.longest {
                (self.longest, self.tries) = (self.path.len(), 0);
            }
            return Ok(true);
        }
        self.rows.undo_to(journal);
        Ok(false)
    }

    /// Marks an unanswered call as one that never takes effect, if that configuration is new.
    /// Returns true on success.
    fn try_skip(&mut self, number: usize) -> bool {
        let ordered = self.ordered ^ hash128(number);
        let can_skip = self.operations[number].answer == Answer::Unknown
            && self.visited.insert(ordered.rotate_left(1) ^ self.rows.digest);
        if can_skip {
            self.ordered = ordered;
            self.path.push((self.positions[number].call, self.rows.journal.len()));
            self.remove(number);
        }
        can_skip
    }

    /// Executes a call on the engine. Returns true if the engine gives the recorded answer.
    fn agrees(&mut self, operation: &Operation) -> bool {
        let digest = self.rows.digest;
        match (&operation.action, &operation.answer) {
            (Action::Get(key), Answer::Record(record)) => {
                self.rows.tables.row(key).map(observed_claim) == record.as_deref().cloned()
            }
            (Action::List(cell), Answer::Leases(leases)) => self.rows.leases(*cell) == *leases,
            (Action::Command(command), answer) => {
                match (command.apply(&mut self.rows, Timestamp::MIN).unwrap(), answer) {
                    // An unanswered call without effect does not agree here, because `try_skip`
                    // covers this case.
                    (_, Answer::Unknown) => self.rows.digest != digest,
                    (Ok(Reply::Begun(begun)), Answer::Begun(lease, _)) => begun.lease == *lease,
                    (Ok(Reply::Settled(_)), Answer::Settled) => true,
                    (Err(rejection), Answer::Rejected(answer)) => observed_rejection(&rejection) == *answer,
                    _ => false,
                }
            }
            _ => false,
        }
    }

    /// Removes the start and the answer of a call from the linked list of events.
    fn remove(&mut self, number: usize) {
        let EventPositions { call, answer } = self.positions[number];
        for index in std::iter::once(call).chain(answer) {
            let Event { previous, next, .. } = self.events[index];
            self.events[previous].next = next;
            self.events[next].previous = previous;
        }
    }

    /// Removes the last call from the order, and undoes its writes. Its events return to the list
    /// in the opposite order of their removal, because each event is linked to its neighbours of
    /// that time.
    fn reinsert(&mut self, call: usize, journal: usize) {
        let number = self.events[call].operation;
        let answer = self.positions[number].answer;
        for index in answer.into_iter().chain([call]) {
            let Event { previous, next, .. } = self.events[index];
            self.events[previous].next = index;
            self.events[next].previous = index;
        }
        self.ordered ^= hash128(number);
        self.rows.undo_to(journal);
    }

    /// Returns a text that describes the longest dead end: the call that could not come next, and
    /// all calls that overlap with it in time.
    fn failure(&self) -> String {
        let (length, number) = self.dead_end.unwrap_or_default();
        let all = self.operations.len();
        let Some(number) = number else {
            return format!("an order agrees with all {length} answers, but none leads to the final state");
        };
        let stuck = &self.operations[number];
        let overlaps = |other: &&Operation| other.called <= stuck.answered && other.answered >= stuck.called;
        let mut text =
            format!("after {length} of {all} operations, no operation can come next so that this one agrees:\n");
        text += &format!("{stuck}\noperations that overlap with it:\n");
        for other in self.operations.iter().filter(overlaps) {
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

    fn check(operations: &[Operation], final_state: &State) -> Result<(), NotLinearizable> {
        check_within(operations, final_state, &AtomicBool::default()).map(drop)
    }

    fn rules() -> Rules {
        Rules { catalogue: Catalogue::default(), cells: [CELL].into() }
    }

    fn lease(number: u128) -> LeaseId {
        LeaseId(Uuid::from_u128(number))
    }

    fn key(name: &str) -> BucketKey {
        BucketKey { bucket_type: BucketType(4), canonical: name.into() }
    }

    /// Returns a begin of lease `number` that creates the username `name`.
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
        Answer::Rejected(ObservedRejection { reason: "CLAIM_BUSY".into(), offences })
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

    /// Returns the state after the engine has executed these commands.
    fn state_after(actions: &[Action]) -> State {
        let mut rows = Rows::default();
        for action in actions {
            let Action::Command(command) = action else { continue };
            command.apply(&mut rows, Timestamp::from_micros(5)).unwrap().unwrap();
        }
        State { fence: FENCE, ..rows.tables.state() }
    }

    /// Returns the answer of a read of username `a` after these commands.
    fn read_after(actions: &[Action]) -> Answer {
        Answer::Record(state_after(actions).claims.get(&key("a")).map(|claim| Box::new(observed_claim(claim))))
    }

    #[test]
    fn overlapping_operations_may_take_effect_in_any_order() {
        let (first, second) = (begin("a", 1), begin("a", 2));
        let history = operations(&[
            (0, 10, first.clone(), busy()),
            (1, 9, second.clone(), begun(2)),
            (5, 30, Action::Get(key("a")), Answer::Record(None)),
            (11, 12, Action::List(CELL), Answer::Leases([lease(2)].into())),
            (13, 20, commit(2), Answer::Settled),
            (14, 19, Action::Get(key("a")), read_after(&[second.clone(), commit(2)])),
        ]);
        assert_eq!(check(&history, &state_after(&[second.clone(), commit(2)])), Ok(()));
        // Two calls that do not overlap in time keep their order, so this history has no solution.
        let late = operations(&[(0, 1, first, busy()), (2, 3, second.clone(), begun(2))]);
        assert!(check(&late, &state_after(&[second])).is_err());
    }

    #[test]
    fn two_leases_on_one_bucket_are_detected() {
        let (first, second) = (begin("a", 1), begin("a", 2));
        for (called, answered) in [(0, 10), (11, 12)] {
            let history = operations(&[(0, 10, first.clone(), begun(1)), (called, answered, second.clone(), begun(2))]);
            for last in [&first, &second] {
                assert!(check(&history, &state_after(from_ref(last))).is_err());
            }
        }
    }

    #[test]
    fn a_lost_commit_is_detected() {
        let first = begin("a", 1);
        let begun_and_committed = [(0, 1, first.clone(), begun(1)), (2, 3, commit(1), Answer::Settled)];
        let (held, rested) = (read_after(from_ref(&first)), read_after(&[first.clone(), commit(1)]));
        let then = |called, answer: &Answer| {
            let read = (called, 9, Action::Get(key("a")), answer.clone());
            operations(&[begun_and_committed.as_slice(), &[read]].concat())
        };
        let last = state_after(&[first.clone(), commit(1)]);
        assert_eq!(check(&then(4, &rested), &last), Ok(()));
        assert!(check(&then(4, &held), &last).is_err(), "a read after the commit has the state before it");
        assert_eq!(check(&then(2, &held), &last), Ok(()), "a read that overlaps with the commit may have either state");
        assert!(check(&then(4, &rested), &state_after(&[first])).is_err(), "the final state lacks the commit");
        assert!(check(&then(4, &Answer::Record(None)), &state_after(&[])).is_err(), "the final state lacks the lease");
    }

    #[test]
    fn an_operation_without_an_answer_may_take_effect_late_or_never() {
        let (first, second) = (begin("a", 1), begin("b", 2));
        let history = operations(&[
            (0, NEVER, first.clone(), Answer::Unknown),
            (0, NEVER, second.clone(), Answer::Unknown),
            (20, 21, Action::Get(key("a")), Answer::Record(None)),
            (22, 23, Action::Get(key("a")), read_after(from_ref(&first))),
        ]);
        assert_eq!(check(&history, &state_after(from_ref(&first))), Ok(()));
        assert_eq!(check(&history, &state_after(&[first.clone(), second.clone()])), Ok(()));
        assert!(check(&history, &state_after(&[second])).is_err());
        // An unanswered call must not take effect after its time `answered`.
        let until = |time| {
            let unanswered = (0, time, first.clone(), Answer::Unknown);
            let history = operations(&[unanswered, (20, 21, Action::Get(key("a")), Answer::Record(None))]);
            check(&history, &state_after(from_ref(&first))).is_ok()
        };
        assert_eq!((until(19), until(22)), (false, true));
        let back = operations(&[
            (0, NEVER, first.clone(), Answer::Unknown),
            (2, 3, Action::Get(key("a")), read_after(from_ref(&first))),
            (4, 5, Action::Get(key("a")), Answer::Record(None)),
        ]);
        assert!(
            check(&back, &state_after(&[first])).is_err(),
            "a claim that a read has returned does not vanish by itself"
        );
    }
}
