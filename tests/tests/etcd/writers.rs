//! Two servers on one cluster, in every short case: each pair of commands is decided on the same rows by two
//! writers, before each state of the rows. What the store then has is what the engine makes of the two
//! commands one after the other.

use std::collections::BTreeSet;

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
use leasehold_core::command::{Command, Reply};
use leasehold_core::invariant;
use leasehold_core::lease::{Fence, LeaseId, Outcome};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rejection::Rejection;
use leasehold_core::rows::State;
use leasehold_core::rules::Rules;
use leasehold_core::store::Store;
use leasehold_core::update::Settle;
use leasehold_server::store::{BlockingStore, Creation, StoreError};
use leasehold_tests::etcd::{EtcdCluster, LIMITS};
use uuid::Uuid;

use crate::guards::{decide, save};
use crate::open;

const CELL: CellId = CellId(1);

/// The names of a case.
#[derive(Clone, Copy, Debug)]
enum Name {
    Alice,
    Bob,
    Carol,
}

/// A lease of a case: the ones before the two commands, then those of the two commands.
#[derive(Clone, Copy, Debug)]
enum LeaseOf {
    Before,
    Outstanding,
    First,
    Second,
}

/// A command of a case.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin { creates: &'static [Name], destroys: &'static [Name], has_key: bool },
    Settle(LeaseOf, Outcome),
}

const fn begin(creates: &'static [Name], destroys: &'static [Name]) -> Step {
    Step::Begin { creates, destroys, has_key: false }
}

const COMMIT_BEFORE: Step = Step::Settle(LeaseOf::Before, Outcome::Committed);

/// The commands that make each state of the rows, with their leases.
const STATES: &[&[(LeaseOf, Step)]] = &[
    &[],
    &[(LeaseOf::Before, begin(&[Name::Alice, Name::Carol], &[])), (LeaseOf::Before, COMMIT_BEFORE)],
    &[(LeaseOf::Outstanding, begin(&[Name::Alice], &[]))],
    &[
        (LeaseOf::Before, begin(&[Name::Alice], &[])),
        (LeaseOf::Before, COMMIT_BEFORE),
        (LeaseOf::Outstanding, begin(&[Name::Bob], &[Name::Alice])),
    ],
    &[
        (LeaseOf::Before, Step::Begin { creates: &[Name::Alice], destroys: &[], has_key: true }),
        (LeaseOf::Before, COMMIT_BEFORE),
    ],
];

/// The commands of which each pair is played: they insert, delete and change rows, before, between and after
/// those of the lists of records and of leases.
const STEPS: &[Step] = &[
    begin(&[Name::Alice], &[]),
    begin(&[Name::Bob], &[]),
    begin(&[Name::Carol, Name::Alice], &[]),
    begin(&[], &[Name::Alice]),
    begin(&[Name::Bob], &[Name::Alice]),
    Step::Begin { creates: &[Name::Alice], destroys: &[], has_key: true },
    Step::Begin { creates: &[Name::Carol], destroys: &[], has_key: true },
    Step::Settle(LeaseOf::Outstanding, Outcome::Committed),
    Step::Settle(LeaseOf::Outstanding, Outcome::RolledBack),
];

/// A case, which has names, leases and an idempotency key of its own.
#[derive(Clone, Copy, Debug)]
struct Case(u32);

impl Case {
    fn value(self, name: Name) -> String {
        format!("{name:?}{}", self.0)
    }

    fn lease(self, lease: LeaseOf) -> LeaseId {
        LeaseId(Uuid::from_u128(u128::from(self.0) * 4 + lease as u128 + 1))
    }

    fn claim(self, name: Name) -> ClaimRequest {
        let number = u64::from(self.0) * 3 + name as u64 + 1;
        ClaimRequest {
            bucket_type: BucketType(4),
            value: self.value(name).into(),
            subject: Some(Subject { subject_type: 4, id: number.cast_signed() }),
            source: Some(Source { source_type: SourceType(1), id: SourceId::from(number) }),
            user_data: None,
        }
    }

    fn key(self, name: Name) -> BucketKey {
        BucketKey { bucket_type: BucketType(4), canonical: self.value(name).to_lowercase().into() }
    }

    /// Returns the command of a step. A begin has this lease.
    fn command(self, lease: LeaseOf, step: Step) -> Command {
        match step {
            Step::Begin { creates, destroys, has_key } => {
                let claims = |names: &[Name]| names.iter().map(|name| self.claim(*name)).collect();
                let update = UpdateRequest { creates: claims(creates), destroys: claims(destroys) };
                let rules = Rules { cells: [CELL].into(), ..Rules::default() };
                let key = has_key.then(|| format!("key-{}", self.0));
                Command::Begin(rules.begin(CELL, update, key.as_deref(), self.lease(lease)).unwrap())
            }
            Step::Settle(lease, outcome) => Command::Settle(Settle { cell: CELL, lease: self.lease(lease), outcome }),
        }
    }
}

/// A reply without its fence, which depends on the store.
fn without_fence(reply: Result<Reply, Rejection>) -> Result<Reply, Rejection> {
    reply.map(|reply| match reply {
        Reply::Begun(begun) => Reply::Begun(leasehold_core::update::Begun { fence: Fence(0), ..begun }),
        other => other,
    })
}

/// Returns the state with the rank of each fence in its place, because the store leaves gaps between them.
fn ranked(mut state: State) -> State {
    let fences: BTreeSet<_> = state.leases.values().map(|lease| lease.fence).collect();
    let rank = |fence: &mut Fence| *fence = Fence(fences.range(..*fence).count() as u64);
    state.leases.values_mut().for_each(|lease| rank(&mut lease.fence));
    state.replays.values_mut().for_each(|replay| rank(&mut replay.fence));
    State { fence: Fence(0), ..state }
}

/// Two writers of one store, and the engine's own store, in which commands are played one after the other.
struct Writers {
    one: BlockingStore,
    two: BlockingStore,
    model: MemoryStore,
    conflicts: u32,
}

impl Writers {
    /// Plays two commands that are decided on the same rows, after those of `state`.
    fn play(&mut self, case: Case, state: &[(LeaseOf, Step)], [first, second]: [Step; 2]) {
        for (lease, step) in state {
            let command = case.command(*lease, *step);
            let decided = decide(&self.one, &command);
            let reply = save(&mut self.one, decided).unwrap();
            assert_eq!(without_fence(reply), self.model_reply(&command), "{case:?}: {step:?}");
        }
        let [first, second] = [case.command(LeaseOf::First, first), case.command(LeaseOf::Second, second)];
        let (one, two) = (decide(&self.one, &first), decide(&self.two, &second));
        let one = save(&mut self.one, one).unwrap();
        assert_eq!(without_fence(one), self.model_reply(&first), "{case:?}: {first:?}");
        let two = save(&mut self.two, two).or_else(|error| {
            assert!(matches!(error, StoreError::Conflict(_)), "{error}");
            self.conflicts += 1;
            let again = decide(&self.two, &second);
            save(&mut self.two, again)
        });
        assert_eq!(without_fence(two.unwrap()), self.model_reply(&second), "{case:?}: {first:?}, then {second:?}");
        for name in [Name::Alice, Name::Bob, Name::Carol] {
            let (key, is) = (case.key(name), format!("{case:?}: {name:?} after {first:?}, then {second:?}"));
            assert_eq!(self.one.claim(&key).unwrap(), self.model.claim(&key).unwrap(), "{is}");
        }
    }

    fn model_reply(&mut self, command: &Command) -> Result<Reply, Rejection> {
        let decided = decide(&self.model, command);
        without_fence(save(&mut self.model, decided).unwrap())
    }
}

/// B01, B09, B13, B22: whichever two commands two servers decide at once, the second one is written only if it
/// is what the engine decides after the first.
#[test]
fn each_pair_of_commands_is_as_if_one_came_after_the_other() {
    let cluster = EtcdCluster::start(1, LIMITS).unwrap();
    let [one, two] = [(); 2].map(|()| open(&cluster, "pairs", Creation::Allowed).unwrap());
    let mut writers = Writers { one, two, model: MemoryStore::default(), conflicts: 0 };
    let mut cases = (0..).map(Case);
    let mut count = 0;
    for state in STATES {
        for first in STEPS {
            for second in STEPS {
                writers.play(cases.next().unwrap(), state, [*first, *second]);
                count += 1;
            }
        }
    }
    let (stored, model) = (writers.one.state().unwrap(), writers.model.state().unwrap());
    assert_eq!(invariant::check(&stored), Ok(()));
    assert!(ranked(stored) == ranked(model), "the rows differ");
    assert!(0 < writers.conflicts && writers.conflicts < count, "{} of {count} are conflicts", writers.conflicts);
}
