//! Compares the engine with the independent model: on every short sequence of commands, on random
//! long sequences, and on each edge of the engine's transition tables. After every command the
//! tests compare the two answers, the two states, and the rows written.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use leasehold_core::cell::CellId;
use leasehold_core::command;
use leasehold_core::invariant;
use leasehold_core::lease::Fence;
use leasehold_core::memory::MemoryStore;
use leasehold_core::rows::{Changes, Kind, NetChanges, OrderedRead, RowChange, RowKind, State};
use leasehold_core::rules::Rules;
use leasehold_core::store::Store;
use leasehold_core::table::{self, ClaimEvent, ClaimStatus, LeaseEvent, LeaseStatus};
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::{BrokenState, Transaction};
use leasehold_model::{
    Begin, Body, Command, End, Item, List, Model, OffenceDetail, Reply, SSH_KEYS, USERNAMES, engine_key, engine_record,
    lease_id,
};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed, TestRunner};

#[path = "../../../core/src/properties.rs"]
mod properties;

const SECOND: u64 = 1_000_000;
const UNKNOWN_LEASE: u128 = 0xdead_0000_0000_7000_8000_0000_0000_0000;

/// Returns the id of the lease with number `n`. The id is a UUID of version 7, like those of real
/// leases.
fn nth_lease(n: u64) -> u128 {
    0x0193_0000_0000_7000_8000_0000_0000_0000 | u128::from(n) << 32
}

fn row(id: i64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

/// A transaction on a memory store that also records the changes which a command writes.
struct Recorder<'a> {
    store: &'a mut MemoryStore,
    writes: Vec<Changes>,
}

impl Transaction for Recorder<'_> {
    type Error = BrokenState;

    fn row<K: Kind>(&self, key: &K::Key) -> Result<Option<&K>, BrokenState> {
        self.store.row(key)
    }

    fn first<K: Kind>(&self, read: &OrderedRead<K>) -> Result<Vec<K::Key>, BrokenState> {
        self.store.first(read)
    }

    fn last_fence(&self) -> Result<Fence, BrokenState> {
        self.store.last_fence()
    }

    fn write(&mut self, changes: Changes) -> Result<(), BrokenState> {
        self.writes.push(changes.clone());
        self.store.write(changes)
    }
}

fn sorted(mut changes: Changes) -> Changes {
    changes.claims.sort_by(|a, b| a.0.cmp(&b.0));
    changes.leases.sort_by_key(|row| row.0);
    changes.replays.sort_by(|a, b| a.0.cmp(&b.0));
    changes
}

/// Executes commands as one group, like a server: loads the rows, applies each command to them.
/// Returns the answers, and the net changes that the host must save.
fn run_group(store: &MemoryStore, group: &[(command::Command, Timestamp)]) -> (Vec<Reply>, NetChanges) {
    let mut workspace = store.workspace().unwrap();
    let mut rounds = 0;
    loop {
        let missing = workspace.missing(group.iter().map(|(command, _)| command));
        if missing.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds <= 2, "rows are missing after two rounds of loading: {missing:?}");
        store.load(missing, &mut workspace).unwrap();
    }
    let answers = group.iter().map(|(command, now)| Reply::of_engine(command.apply(&mut workspace, *now).unwrap()));
    let answers = answers.collect();
    (answers, workspace.into_changes())
}

/// Returns the rows in which two states differ, as the net changes of a group, sorted by key.
fn difference(before: &State, after: &State) -> NetChanges {
    use std::collections::BTreeMap;
    fn rows<K: RowKind>(a: &BTreeMap<K::Key, K>, b: &BTreeMap<K::Key, K>) -> Vec<RowChange<K>> {
        let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
        let row =
            |key: &K::Key| RowChange { key: key.clone(), before: a.get(key).cloned(), after: b.get(key).cloned() };
        keys.into_iter().map(row).filter(|row| row.before != row.after).collect()
    }
    NetChanges {
        claims: rows(&before.claims, &after.claims),
        leases: rows(&before.leases, &after.leases),
        replays: rows(&before.replays, &after.replays),
        fence: (before.fence != after.fence).then_some(after.fence),
        ..NetChanges::default()
    }
}

fn sorted_net(mut changes: NetChanges) -> NetChanges {
    changes.claims.sort_by(|a, b| a.key.cmp(&b.key));
    changes.leases.sort_by_key(|row| row.key);
    changes.replays.sort_by(|a, b| a.key.cmp(&b.key));
    changes
}

/// The engine on a memory store, and the model. A test executes each command on both.
#[derive(Clone)]
struct EngineAndModel {
    rules: Rc<Rules>,
    store: MemoryStore,
    model: Model,
}

impl EngineAndModel {
    fn new(cells: impl IntoIterator<Item = i64> + Clone) -> Self {
        let rules = Rules { cells: cells.clone().into_iter().map(CellId).collect(), ..Rules::default() };
        Self { rules: Rc::new(rules), store: MemoryStore::default(), model: Model::new(cells) }
    }

    /// Executes a command on the engine and on the model. Asserts that both give the same answer,
    /// write the same rows and have the same state. Returns the answer, and true if the state
    /// changed.
    fn step(&mut self, command: &Command, now: u64) -> (Reply, bool) {
        let before = self.store.state().unwrap();
        let (reply, written) = self.model.apply(command, now);
        let (engine_reply, changes) = self.run_engine(command, Timestamp::from_micros(now), &before);
        assert_eq!(engine_reply, reply, "engine and model give different answers to {command:?}");
        assert_eq!(changes, self.model.changes(&written), "engine and model write different rows for {command:?}");
        let after = self.store.state().unwrap();
        assert_eq!(after, self.model.state(), "engine and model have different states after {command:?}");
        invariant::check(&after).unwrap();
        self.compare_reads(&after);
        let changed = changes != Changes::default();
        assert_eq!(changed, after != before, "{command:?} wrote rows without changing them");
        (reply, changed)
    }

    fn run_engine(&mut self, command: &Command, now: Timestamp, before: &State) -> (Reply, Changes) {
        let command = match command.for_engine(&self.rules) {
            Ok(command) => command,
            Err(rejection) => return (Reply::of_engine(Err(rejection)), Changes::default()),
        };
        let (answers, net) = run_group(&self.store, &[(command.clone(), now)]);
        let mut recorder = Recorder { store: &mut self.store, writes: Vec::new() };
        let reply = Reply::of_engine(command.apply(&mut recorder, now).unwrap());
        let mut writes = recorder.writes;
        assert!(writes.len() <= 1, "a command must write once to be atomic: {writes:?}");
        assert_eq!(
            answers,
            std::slice::from_ref(&reply),
            "the workspace and the store give different answers to {command:?}"
        );
        assert_eq!(sorted_net(net), difference(before, &self.store.state().unwrap()), "net changes of {command:?}");
        (reply, sorted(writes.pop().unwrap_or_default()))
    }

    fn compare_reads(&self, state: &State) {
        for key in state.claims.keys() {
            let engine_record_read = Store::claim(&self.store, key).unwrap().map(|claim| claim.record().clone());
            let bucket = (key.bucket_type.0, key.canonical.to_string());
            assert_eq!(engine_record_read, self.model.read(&bucket).map(engine_record));
        }
    }
}

// The tests below execute every short sequence of commands.

/// The action of a begin on one bucket. `DestroyOther` is a destroy that names a wrong source row.
#[derive(Clone, Copy, Debug)]
enum Action {
    Nothing,
    Create,
    Destroy,
    Replace,
    DestroyOther,
}

const ACTIONS: [Action; 5] = [Action::Nothing, Action::Create, Action::Destroy, Action::Replace, Action::DestroyOther];

fn name(value: &str) -> Item {
    Item { bucket_type: USERNAMES, value: value.into(), ..Item::default() }
}

fn add_action(body: &mut Body, action: Action, cell: i64, id: i64) {
    let value = ["", "a", "b"][id as usize];
    let create =
        |value: String, table| Item { subject: Some((table, cell)), source: Some((table, row(id))), ..name(&value) };
    let destroy = |source| Item { source, ..name(value) };
    match action {
        Action::Nothing => {}
        Action::Create => body.creates.push(create(value.into(), 1)),
        Action::Destroy => body.destroys.push(destroy(Some((1, row(id))))),
        Action::DestroyOther => body.destroys.push(destroy(Some((1, row(99))))),
        Action::Replace => {
            body.destroys.push(destroy(None));
            body.creates.push(create(value.to_uppercase(), 2));
        }
    }
}

/// A state that a sequence of commands leads to, for the search through all sequences. The clock
/// advances one second with each command that changed the state.
#[derive(Clone)]
struct Node {
    pair: EngineAndModel,
    begun: u64,
    changes: u64,
}

impl Node {
    fn root() -> Self {
        Self { pair: EngineAndModel::new([1, 2]), begun: 0, changes: 0 }
    }

    fn commands(&self) -> Vec<Command> {
        let lease = nth_lease(self.begun + 1);
        let mut commands = Vec::new();
        for cell in [1, 2] {
            for on_a in ACTIONS {
                for on_b in ACTIONS {
                    let mut body = Body::default();
                    add_action(&mut body, on_a, cell, 1);
                    add_action(&mut body, on_b, cell, 2);
                    commands.push(Command::Begin(Begin { cell, lease, key: None, organization: 0, body }));
                }
            }
            for lease in (1..=self.begun).map(nth_lease).chain([UNKNOWN_LEASE]) {
                commands.extend([End::Commit, End::Rollback].map(|end| Command::Settle { cell, lease, end }));
            }
        }
        commands
    }

    fn after(&self, command: &Command) -> (Self, bool) {
        let mut next = self.clone();
        let (reply, changed) = next.pair.step(command, SECOND * (self.changes + 1));
        next.begun += u64::from(matches!(reply, Reply::Begun { .. }));
        next.changes += u64::from(changed);
        (next, changed)
    }
}

/// Executes every sequence of up to `depth` commands from the state `node`. Returns how many
/// sequences there are of each length, from length 1.
///
/// With `prune`, no sequence is executed beyond a command that changed nothing; such sequences are
/// only counted. The state, the clock and the next lease's id are then the same as before the
/// command. A shorter sequence without the command therefore covers the same case.
fn explore(node: &Node, depth: usize, prune: bool) -> Vec<u64> {
    let mut counts = vec![0; depth];
    if depth == 0 {
        return counts;
    }
    let mut unchanged = 0;
    for command in node.commands() {
        counts[0] += 1;
        let (next, changed) = node.after(&command);
        if prune && !changed {
            unchanged += 1;
        } else {
            let counts_below = explore(&next, depth - 1, prune);
            counts[1..].iter_mut().zip(counts_below).for_each(|(count, below)| *count += below);
        }
    }
    (1..depth).for_each(|length| counts[length] += unchanged * counts[length - 1]);
    counts
}

#[test]
fn b01_b02_b03_b04_b05_b06_b08_b10_b13_b14_b15_b20_b21_b22_b23_b24_b25_engine_and_model_agree_on_every_sequence_of_up_to_five_commands()
 {
    assert_eq!(explore(&Node::root(), 5, true), [54, 2_940, 161_336, 8_920_672, 496_807_072]);
}

#[test]
fn b01_b02_b03_b04_b05_b06_pruning_loses_no_sequence_of_up_to_three_commands() {
    assert_eq!(explore(&Node::root(), 3, false), explore(&Node::root(), 3, true));
}

// The tests below execute long sequences of random commands.

/// A random command. When the command is executed, `which` selects the earlier begin to which the
/// command refers.
#[derive(Clone, Debug)]
enum Operation {
    Begin {
        cell: i64,
        key: Option<u8>,
        organization: i64,
        actions: Vec<BucketAction>,
        flaw: Option<Flaw>,
    },
    /// Sends an earlier begin again with a new lease id. `change` alters the update of the
    /// repetition.
    Repeat {
        which: Index,
        change: Option<Alteration>,
    },
    Settle {
        which: Index,
        by_other_cell: bool,
        end: End,
    },
    Forget {
        which: Index,
        slack_seconds: i64,
    },
    Tick {
        seconds: i64,
    },
}

/// The part of a random begin that concerns one bucket: `lists` says if it is created and
/// destroyed.
#[derive(Clone, Debug)]
struct BucketAction {
    bucket: usize,
    lists: (bool, bool),
    is_upper_case: bool,
    is_second_row: bool,
    // The source that the destroy names: none if 0, the bucket's second row if 2, else its first
    // row.
    destroy_source: u8,
    subject: i64,
    data: bool,
}

#[derive(Clone, Copy, Debug)]
enum Flaw {
    Duplicate,
    UnknownType,
    MissingSubject,
    Empty,
}

#[derive(Clone, Copy, Debug)]
enum Alteration {
    Spelling,
    Subject,
    Source,
    Data,
    Shorter,
    Longer,
    Organization,
}

/// The buckets of random commands: type and value. The usernames are folded to lower case; the SSH
/// keys are not.
const BUCKETS: [(i32, &str); 6] = [
    (USERNAMES, "ann"),
    (USERNAMES, "ben"),
    (USERNAMES, "cat"),
    (USERNAMES, "dan"),
    (SSH_KEYS, "key"),
    (SSH_KEYS, "KEY"),
];

fn bucket_action() -> impl Strategy<Value = BucketAction> {
    let lists = prop_oneof![4 => Just((true, false)), 2 => Just((false, true)), 2 => Just((true, true))];
    let spelling = (0..BUCKETS.len(), lists, any::<bool>());
    let rest = (prop::bool::weighted(0.2), 0..4_u8, 1..3_i64, prop::bool::weighted(0.2));
    (spelling, rest).prop_map(|((bucket, lists, is_upper_case), (is_second_row, destroy_source, subject, data))| {
        BucketAction { bucket, lists, is_upper_case, is_second_row, destroy_source, subject, data }
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let flaw =
        prop_oneof![Just(Flaw::Duplicate), Just(Flaw::UnknownType), Just(Flaw::MissingSubject), Just(Flaw::Empty)];
    // Cells 1 to 3 exist. Cell 4 is unknown to the service, so it gets refusals.
    let cell = prop_oneof![15 => 1..4_i64, 1 => Just(4_i64)];
    let key = prop::option::weighted(0.6, 0..4_u8);
    // Organization 0 stands for a begin without an organization.
    let claims = (prop::collection::vec(bucket_action(), 1..4), prop::option::weighted(0.06, flaw));
    let begin = (cell, key, 0..3_i64, claims);
    let change = prop_oneof![
        Just(Alteration::Spelling),
        Just(Alteration::Subject),
        Just(Alteration::Source),
        Just(Alteration::Data),
        Just(Alteration::Shorter),
        Just(Alteration::Longer),
        Just(Alteration::Organization),
    ];
    let repeat = (any::<Index>(), prop::option::weighted(0.5, change));
    let end = prop_oneof![3 => Just(End::Commit), 2 => Just(End::Rollback)];
    prop_oneof![
        10 => begin.prop_map(|(cell, key, organization, (actions, flaw))| {
            Operation::Begin { cell, key, organization, actions, flaw }
        }),
        4 => repeat.prop_map(|(which, change)| Operation::Repeat { which, change }),
        10 => (any::<Index>(), prop::bool::weighted(0.1), end)
            .prop_map(|(which, by_other_cell, end)| Operation::Settle { which, by_other_cell, end }),
        2 => (any::<Index>(), -5..20_i64).prop_map(|(which, slack_seconds)| Operation::Forget { which, slack_seconds }),
        3 => (-120..120_i64).prop_map(|seconds| Operation::Tick { seconds }),
    ]
}

fn item_of(action: &BucketAction, is_second_row: bool) -> Item {
    let (bucket_type, value) = BUCKETS[action.bucket];
    let value = if action.is_upper_case && bucket_type == USERNAMES { value.to_uppercase() } else { value.to_string() };
    let user_data = action.data.then(|| ("t/x".to_string(), vec![action.destroy_source]));
    let id = action.bucket as i64 + if is_second_row { 100 } else { 0 };
    Item { bucket_type, value, subject: Some((1, action.subject)), source: Some((1, row(id))), user_data }
}

fn body_of(actions: &[BucketAction], flaw: Option<Flaw>) -> Body {
    let mut body = Body::default();
    let mut seen = BTreeSet::new();
    for action in actions.iter().filter(|action| seen.insert(action.bucket)) {
        if action.lists.0 {
            body.creates.push(item_of(action, action.is_second_row));
        }
        if action.lists.1 {
            let source = item_of(action, action.destroy_source == 2).source.filter(|_| action.destroy_source != 0);
            body.destroys.push(Item { source, subject: None, ..item_of(action, false) });
        }
    }
    let first = body.creates.first_mut();
    match (flaw, first) {
        (Some(Flaw::Duplicate), _) => {
            body.creates.extend(body.creates.first().cloned());
            body.destroys.extend(body.destroys.first().cloned());
        }
        (Some(Flaw::UnknownType), Some(first)) => first.bucket_type = 0,
        (Some(Flaw::MissingSubject), Some(first)) => first.subject = None,
        (Some(Flaw::Empty), _) => body = Body::default(),
        (Some(_), None) | (None, _) => {}
    }
    body
}

fn altered(mut begin: Begin, change: Alteration) -> Begin {
    let body = &mut begin.body;
    let last = body.creates.last_mut().or(body.destroys.last_mut());
    match (change, last) {
        (Alteration::Longer, _) => body.destroys.push(name("zoe")),
        (Alteration::Organization, _) => begin.organization += 1,
        (_, None) => {}
        (Alteration::Spelling, Some(item)) => item.value.push('x'),
        (Alteration::Subject, Some(item)) => item.subject = Some((3, 3)),
        (Alteration::Source, Some(item)) => item.source = Some((3, row(3))),
        (Alteration::Data, Some(item)) => item.user_data = Some(("t/y".to_string(), Vec::new())),
        (Alteration::Shorter, Some(_)) => _ = body.destroys.pop().or_else(|| body.creates.pop()),
    }
    begin
}

/// Executes random operations on engine and model one by one, and on a second store in groups.
struct SequenceRun {
    pair: EngineAndModel,
    grouped: MemoryStore,
    pending: Vec<(Command, Reply, u64)>,
    begins: Vec<Begin>,
    now: u64,
    next_lease: u64,
}

impl SequenceRun {
    fn new() -> Self {
        Self {
            pair: EngineAndModel::new([1, 2, 3]),
            grouped: MemoryStore::default(),
            pending: Vec::new(),
            begins: Vec::new(),
            now: 1000 * SECOND,
            next_lease: 0,
        }
    }

    fn fresh_lease(&mut self) -> u128 {
        self.next_lease += 1;
        nth_lease(self.next_lease)
    }

    /// Returns the begin that `which` selects among the earlier ones, or a begin that was never
    /// sent.
    fn earlier_begin(&self, which: Index) -> Begin {
        let body = Body::default();
        let never = Begin { cell: 1, lease: UNKNOWN_LEASE, key: None, organization: 0, body };
        let all = self.begins.iter().chain([&never]);
        // Most leases of the first half are settled. Select from the second half to meet
        // outstanding ones.
        let recent: Vec<_> = all.skip(self.begins.len() / 2).collect();
        which.get(&recent).to_owned().clone()
    }

    fn command(&mut self, operation: Operation) -> Option<Command> {
        match operation {
            Operation::Tick { seconds } => {
                self.now = self.now.saturating_add_signed(seconds * SECOND as i64);
                None
            }
            Operation::Begin { cell, key, organization, actions, flaw } => {
                let (lease, key) = (self.fresh_lease(), key.map(|key| format!("key-{key}")));
                Some(Command::Begin(Begin { cell, lease, key, organization, body: body_of(&actions, flaw) }))
            }
            Operation::Repeat { which, change } => {
                let earlier = self.earlier_begin(which);
                let repeated = match change {
                    Some(change) => altered(earlier, change),
                    None => earlier,
                };
                Some(Command::Begin(Begin { lease: self.fresh_lease(), ..repeated }))
            }
            Operation::Settle { which, by_other_cell, end } => {
                let begin = self.earlier_begin(which);
                let cell = if by_other_cell { begin.cell % 4 + 1 } else { begin.cell };
                Some(Command::Settle { cell, lease: begin.lease, end })
            }
            Operation::Forget { which, slack_seconds } => {
                let settled_before = self.now.saturating_add_signed(slack_seconds * SECOND as i64);
                Some(Command::Forget { lease: self.earlier_begin(which).lease, settled_before })
            }
        }
    }

    fn step(&mut self, operation: Operation, seen: &RefCell<BTreeSet<String>>) {
        let Some(command) = self.command(operation) else { return };
        let (reply, _) = self.pair.step(&command, self.now);
        seen.borrow_mut().extend(reply_kinds(&reply));
        if let (Command::Begin(begin), Reply::Begun { replayed: false, .. }) = (&command, &reply) {
            self.begins.push(begin.clone());
        }
        self.pending.push((command, reply, self.now));
    }

    /// Executes the pending commands as one group on the second store. Asserts that the answers are
    /// those of the single commands, and that one save leads to the model's state.
    fn end_group(&mut self) {
        let before = self.grouped.state().unwrap();
        let (mut group, mut expected) = (Vec::new(), Vec::new());
        for (command, reply, now) in self.pending.drain(..) {
            // A server refuses a request of invalid form before the request reaches a group.
            if let Ok(command) = command.for_engine(&self.pair.rules) {
                group.push((command, Timestamp::from_micros(now)));
                expected.push(reply);
            }
        }
        let (answers, net) = run_group(&self.grouped, &group);
        assert_eq!(answers, expected);
        self.grouped.save(&net).unwrap();
        let after = self.grouped.state().unwrap();
        assert_eq!(after, self.pair.model.state(), "the grouped store and the model have different states");
        assert_eq!(sorted_net(net), difference(&before, &after));
    }
}

/// Returns the kinds of an answer, such as `settled: true`. The tests require that every kind
/// occurs.
fn reply_kinds(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Begun { replayed, .. } => vec![format!("begun, replayed: {replayed}")],
        Reply::Settled(changed) => vec![format!("settled: {changed}")],
        Reply::Forgotten(changed) => vec![format!("forgotten: {changed}")],
        Reply::Rejected { retry_after_micros, offences, .. } => {
            let reason = offences.iter().map(|offence| offence.reason.to_string());
            let details = offences.iter().map(|offence| match &offence.detail {
                OffenceDetail::TextOnly => "text only".to_string(),
                OffenceDetail::AlsoAt((List::Creates, _)) => "also among the creates".to_string(),
                OffenceDetail::AlsoAt((List::Destroys, _)) => "also among the destroys".to_string(),
                OffenceDetail::Differs(what) => what.split('.').next_back().unwrap().to_string(),
                OffenceDetail::RetryAfterMicros(100_000) => "the shortest hint".to_string(),
                OffenceDetail::RetryAfterMicros(60_000_000) => "the longest hint".to_string(),
                OffenceDetail::RetryAfterMicros(_) => "a hint between".to_string(),
            });
            let temporary = retry_after_micros.map(|_| "temporary".to_string());
            let many = (offences.len() > 1).then(|| "several offences".to_string());
            reason.chain(details).chain(temporary).chain(many).collect()
        }
    }
}

/// The kinds of answers that random sequences must produce. The tests of the catalogue and of
/// batches cover refused limits and values.
const REPLY_KINDS: [&str; 31] = [
    "CLAIM_BUSY",
    "CLAIM_CHANGED",
    "CLAIM_NOT_FOUND",
    "CLAIM_TAKEN",
    "IDEMPOTENCY_KEY_REUSED",
    "INVALID_UPDATE",
    "LEASE_COMMITTED",
    "LEASE_NOT_FOUND",
    "LEASE_ROLLED_BACK",
    "NOT_OWNER",
    "a hint between",
    "also among the creates",
    "also among the destroys",
    "begun, replayed: false",
    "begun, replayed: true",
    "bucket",
    "forgotten: false",
    "forgotten: true",
    "organization_id",
    "settled: false",
    "settled: true",
    "several offences",
    "source",
    "subject",
    "temporary",
    "the longest hint",
    "the number of create_records",
    "the number of destroy_records",
    "text only",
    "the shortest hint",
    "user_data",
];

/// The number of random long sequences that one test run executes.
const LONG_SEQUENCES: u32 = 2000;

/// Returns proptest's configuration of the long sequences. The environment variable `SEED` sets its
/// seed.
fn long_sequences() -> Config {
    let config = Config { cases: LONG_SEQUENCES, failure_persistence: None, ..properties::config() };
    match std::env::var("SEED") {
        Ok(seed) => Config { rng_seed: RngSeed::Fixed(seed.parse().unwrap()), ..config },
        Err(_) => config,
    }
}

#[test]
fn b01_b02_b03_b04_b05_b06_b07_b09_b10_b13_b14_b15_b20_b21_b22_b23_b24_b25_engine_and_model_agree_on_random_long_sequences()
 {
    let (seen, commands) = (RefCell::new(BTreeSet::new()), Cell::new(0));
    let sequences = prop::collection::vec((operation(), prop::bool::weighted(0.25)), 1..=60);
    let ran = TestRunner::new(long_sequences()).run(&sequences, |operations| {
        commands.set(commands.get() + operations.len());
        let mut run = SequenceRun::new();
        for (operation, ends_group) in operations {
            run.step(operation, &seen);
            if ends_group {
                run.end_group();
            }
        }
        run.end_group();
        Ok(())
    });
    ran.unwrap();
    println!("counts: {{\"sequences\":{LONG_SEQUENCES},\"commands\":{}}}", commands.get());
    assert_eq!(seen.into_inner(), REPLY_KINDS.iter().map(|kind| kind.to_string()).collect());
}

// The tests below compare the engine with its transition tables.

const CLAIM_EVENTS: [ClaimEvent; 5] = [
    ClaimEvent::BeginCreate,
    ClaimEvent::BeginDestroy,
    ClaimEvent::BeginReplace,
    ClaimEvent::Commit,
    ClaimEvent::Rollback,
];

/// A walk through the states of the claim of bucket `a` by cell 1. `lease` is the newest lease of
/// the bucket.
#[derive(Clone)]
struct ClaimWalk {
    pair: EngineAndModel,
    lease: u128,
    steps: u64,
}

impl ClaimWalk {
    fn status(&self) -> ClaimStatus {
        let key = engine_key(&(USERNAMES, "a".to_string()));
        ClaimStatus::of(Store::claim(&self.pair.store, &key).unwrap().as_ref())
    }

    /// Sends the command that stands for `event`, in the name of `cell`. Returns true if the state
    /// changed.
    fn fire(&mut self, event: ClaimEvent, cell: i64) -> bool {
        let mut body = Body::default();
        let end = match event {
            ClaimEvent::BeginCreate | ClaimEvent::BeginDestroy | ClaimEvent::BeginReplace => None,
            ClaimEvent::Commit => Some(End::Commit),
            ClaimEvent::Rollback => Some(End::Rollback),
        };
        let destroy = if event == ClaimEvent::BeginDestroy { Action::Destroy } else { Action::Nothing };
        let create = if event == ClaimEvent::BeginDestroy { Action::Nothing } else { Action::Create };
        add_action(&mut body, create, cell, 1);
        add_action(&mut body, destroy, cell, 1);
        if event == ClaimEvent::BeginReplace {
            body.destroys.push(name("A"));
        }
        self.steps += 1;
        let lease = nth_lease(self.steps);
        let command = match end {
            Some(end) => Command::Settle { cell, lease: self.lease, end },
            None => Command::Begin(Begin { cell, lease, key: None, organization: 0, body }),
        };
        let (reply, changed) = self.pair.step(&command, self.steps * SECOND);
        if let Reply::Begun { lease, .. } = reply {
            self.lease = lease;
        }
        changed
    }

    fn walk(&self, depth: usize, taken: &mut BTreeSet<String>) {
        for event in CLAIM_EVENTS {
            let mut next = self.clone();
            let changed = next.fire(event, 1);
            match table::CLAIM.iter().find(|edge| (edge.from, edge.event) == (self.status(), event)) {
                None => {
                    assert!(!changed, "{:?} in {:?} changes the state but is not in the table", event, self.status())
                }
                Some(edge) => {
                    assert!(changed, "{edge:?} changes no state");
                    assert_eq!(next.status(), edge.to);
                    taken.insert(format!("{edge:?}"));
                    if depth > 0 {
                        next.walk(depth - 1, taken);
                    }
                }
            }
            // Cell 2 must not be able to change a bucket that cell 1 has claimed.
            let has_changed = self.status() != ClaimStatus::Absent && self.clone().fire(event, 2);
            assert!(!has_changed, "{event:?} by another cell changes a claim that is {:?}", self.status());
        }
    }
}

#[test]
fn b01_b02_b03_b04_b06_b20_b21_the_engine_follows_the_claim_table() {
    let mut taken = BTreeSet::new();
    ClaimWalk { pair: EngineAndModel::new([1, 2]), lease: UNKNOWN_LEASE, steps: 0 }.walk(5, &mut taken);
    assert_eq!(taken, table::CLAIM.iter().map(|edge| format!("{edge:?}")).collect());
}

const LEASE_EVENTS: [LeaseEvent; 4] = [LeaseEvent::Begin, LeaseEvent::Commit, LeaseEvent::Rollback, LeaseEvent::Forget];

/// A walk through the states of one lease of cell 1 that is begun with an idempotency key. The walk
/// can begin the lease again after a forget.
#[derive(Clone)]
struct LeaseWalk {
    pair: EngineAndModel,
    body: Body,
    steps: u64,
}

impl LeaseWalk {
    fn status(&self) -> LeaseStatus {
        LeaseStatus::of(self.pair.store.lease(lease_id(nth_lease(0))).unwrap())
    }

    fn fire(&mut self, event: LeaseEvent, cell: i64) -> bool {
        self.steps += 1;
        let known = self.status() != LeaseStatus::Absent;
        let lease = nth_lease(0);
        let settle = |end| Command::Settle { cell, lease, end };
        let command = match event {
            LeaseEvent::Begin => {
                if !known {
                    // Claim a new bucket each time: an earlier committed begin still owns the last
                    // bucket.
                    let item =
                        Item { subject: Some((1, 1)), source: Some((1, row(1))), ..name(&format!("n{}", self.steps)) };
                    self.body = Body { creates: vec![item], destroys: Vec::new() };
                }
                // A repeated begin has a new lease id, because hosts generate an id for each
                // attempt.
                let lease = if known { nth_lease(self.steps) } else { lease };
                let (key, body) = (Some("k".to_string()), self.body.clone());
                Command::Begin(Begin { cell, lease, key, organization: 0, body })
            }
            LeaseEvent::Commit => settle(End::Commit),
            LeaseEvent::Rollback => settle(End::Rollback),
            LeaseEvent::Forget => Command::Forget { lease, settled_before: u64::MAX },
        };
        self.pair.step(&command, self.steps * SECOND).1
    }

    fn walk(&self, depth: usize, taken: &mut BTreeSet<String>) {
        for event in LEASE_EVENTS {
            let mut next = self.clone();
            let changed = next.fire(event, 1);
            match table::LEASE.iter().find(|edge| (edge.from, edge.event) == (self.status(), event)) {
                None => {
                    assert!(!changed, "{:?} in {:?} changes the state but is not in the table", event, self.status())
                }
                Some(edge) => {
                    assert!(changed, "{edge:?} changes no state");
                    assert_eq!(next.status(), edge.to);
                    taken.insert(format!("{edge:?}"));
                    if depth > 0 {
                        next.walk(depth - 1, taken);
                    }
                }
            }
        }
        for event in [LeaseEvent::Commit, LeaseEvent::Rollback] {
            assert!(!self.clone().fire(event, 2), "{event:?} by another cell changes the lease");
        }
        let too_soon = Command::Forget { lease: nth_lease(0), settled_before: 0 };
        assert!(!self.pair.clone().step(&too_soon, SECOND).1, "a lease is forgotten before the time");
    }
}

#[test]
fn b09_b20_b21_b22_b23_b24_the_engine_follows_the_lease_table() {
    let mut taken = BTreeSet::new();
    LeaseWalk { pair: EngineAndModel::new([1, 2]), body: Body::default(), steps: 0 }.walk(7, &mut taken);
    assert_eq!(taken, table::LEASE.iter().map(|edge| format!("{edge:?}")).collect());
}
