//! The engine against the independent model: over every short sequence of commands, over random long ones, and edge by
//! edge against the transition tables. Compared after every command: the reply, the state, and the rows written.

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
    Begin, Body, Command, End, Item, List, Model, More, Reply, SSH_KEYS, USERNAMES, engine_key, engine_record, lease_id,
};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed, TestRunner};

#[path = "../../../core/src/properties.rs"]
mod properties;

const SECOND: u64 = 1_000_000;
const UNKNOWN_LEASE: u128 = 0xdead_0000_0000_7000_8000_0000_0000_0000;

/// The id of the nth lease, in the form of a random one.
fn nth_lease(n: u64) -> u128 {
    0x0193_0000_0000_7000_8000_0000_0000_0000 | u128::from(n) << 32
}

fn row(id: i64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

/// The memory store, with a record of every write that a command makes.
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

/// Runs a group of commands as a host does, and returns the replies and the changes to write.
fn run_group(store: &MemoryStore, group: &[(command::Command, Timestamp)]) -> (Vec<Reply>, NetChanges) {
    let mut workspace = store.workspace().unwrap();
    let mut rounds = 0;
    loop {
        let missing = workspace.missing(group.iter().map(|(command, _)| command));
        if missing.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds <= 2, "still missing after two rounds: {missing:?}");
        store.load(missing, &mut workspace).unwrap();
    }
    let answers = group.iter().map(|(command, now)| Reply::of_engine(command.apply(&mut workspace, *now).unwrap()));
    let answers = answers.collect();
    (answers, workspace.into_changes())
}

/// The difference between two states as a group's net changes, in the order of keys.
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
    }
}

fn sorted_net(mut changes: NetChanges) -> NetChanges {
    changes.claims.sort_by(|a, b| a.key.cmp(&b.key));
    changes.leases.sort_by_key(|row| row.key);
    changes.replays.sort_by(|a, b| a.key.cmp(&b.key));
    changes
}

/// The engine on its memory store, and the model, in step.
#[derive(Clone)]
struct Pair {
    rules: Rc<Rules>,
    store: MemoryStore,
    model: Model,
}

impl Pair {
    fn new(cells: impl IntoIterator<Item = i64> + Clone) -> Self {
        let rules = Rules { cells: cells.clone().into_iter().map(CellId).collect(), ..Rules::default() };
        Self { rules: Rc::new(rules), store: MemoryStore::default(), model: Model::new(cells) }
    }

    /// Runs a command on both and compares all that can be seen. Says what it answered and whether it changed anything.
    fn step(&mut self, command: &Command, now: u64) -> (Reply, bool) {
        let before = self.store.state().unwrap();
        let (reply, written) = self.model.apply(command, now);
        let (engine_reply, changes) = self.run_engine(command, Timestamp::from_micros(now), &before);
        assert_eq!(engine_reply, reply, "engine and model answer differently to {command:?}");
        assert_eq!(changes, self.model.changes(&written), "engine and model write different rows for {command:?}");
        let after = self.store.state().unwrap();
        assert_eq!(after, self.model.state(), "engine and model stand differently after {command:?}");
        invariant::check(&after).unwrap();
        self.compare_reads(&after);
        let changed = changes != Changes::default();
        assert_eq!(changed, after != before, "{command:?} wrote what was there already");
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
        assert!(writes.len() <= 1, "more than one write is not atomic: {writes:?}");
        assert_eq!(
            answers,
            std::slice::from_ref(&reply),
            "the workspace and the store answer differently to {command:?}"
        );
        assert_eq!(sorted_net(net), difference(before, &self.store.state().unwrap()), "net changes of {command:?}");
        (reply, sorted(writes.pop().unwrap_or_default()))
    }

    fn compare_reads(&self, state: &State) {
        for key in state.claims.keys() {
            let shown = Store::claim(&self.store, key).unwrap().map(|claim| claim.record().clone());
            let bucket = (key.bucket_type.0, key.canonical.to_string());
            assert_eq!(shown, self.model.read(&bucket).map(engine_record));
        }
    }
}

// Every short sequence.

/// The action of a begin on one bucket.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Create,
    Destroy,
    Replace,
    DestroyOther,
}

const ACTS: [Act; 5] = [Act::Nothing, Act::Create, Act::Destroy, Act::Replace, Act::DestroyOther];

fn name(value: &str) -> Item {
    Item { bucket_type: USERNAMES, value: value.into(), ..Item::default() }
}

fn act(body: &mut Body, act: Act, cell: i64, id: i64) {
    let value = ["", "a", "b"][id as usize];
    let create =
        |value: String, table| Item { subject: Some((table, cell)), source: Some((table, row(id))), ..name(&value) };
    let destroy = |source| Item { source, ..name(value) };
    match act {
        Act::Nothing => {}
        Act::Create => body.creates.push(create(value.into(), 1)),
        Act::Destroy => body.destroys.push(destroy(Some((1, row(id))))),
        Act::DestroyOther => body.destroys.push(destroy(Some((1, row(99))))),
        Act::Replace => {
            body.destroys.push(destroy(None));
            body.creates.push(create(value.to_uppercase(), 2));
        }
    }
}

/// A point in the tree of sequences. Time is a second for each command that changed anything, ids count begun leases:
/// both depend on the state alone.
#[derive(Clone)]
struct Node {
    pair: Pair,
    begun: u64,
    changes: u64,
}

impl Node {
    fn root() -> Self {
        Self { pair: Pair::new([1, 2]), begun: 0, changes: 0 }
    }

    fn commands(&self) -> Vec<Command> {
        let lease = nth_lease(self.begun + 1);
        let mut commands = Vec::new();
        for cell in [1, 2] {
            for on_a in ACTS {
                for on_b in ACTS {
                    let mut body = Body::default();
                    act(&mut body, on_a, cell, 1);
                    act(&mut body, on_b, cell, 2);
                    commands.push(Command::Begin(Begin { cell, lease, key: None, body }));
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

/// Runs every sequence of up to `depth` commands after `node`; how many there are of each length, from 1.
///
/// With `cut`, what follows a command that changed nothing is not run again but counted. That loses nothing: the store,
/// the model, the time and the next lease's id are then what they were before the command, so that each sequence that
/// goes on from there is, without that command, a shorter one that is run anyway.
fn explore(node: &Node, depth: usize, cut: bool) -> Vec<u64> {
    let mut counts = vec![0; depth];
    if depth == 0 {
        return counts;
    }
    let mut unchanging = 0;
    for command in node.commands() {
        counts[0] += 1;
        let (next, changed) = node.after(&command);
        if cut && !changed {
            unchanging += 1;
        } else {
            let below = explore(&next, depth - 1, cut);
            counts[1..].iter_mut().zip(below).for_each(|(count, below)| *count += below);
        }
    }
    (1..depth).for_each(|length| counts[length] += unchanging * counts[length - 1]);
    counts
}

#[test]
fn b01_b02_b03_b04_b05_b06_b08_b10_b13_b14_b15_b20_b21_b22_b23_b24_b25_every_sequence_of_up_to_five_commands() {
    assert_eq!(explore(&Node::root(), 5, true), [54, 2_940, 161_336, 8_920_672, 496_807_072]);
}

#[test]
fn b01_b02_b03_b04_b05_b06_every_sequence_of_up_to_three_commands_with_nothing_cut() {
    assert_eq!(explore(&Node::root(), 3, false), explore(&Node::root(), 3, true));
}

// Random long sequences.

/// A command before it is known which leases there are.
#[derive(Clone, Debug)]
enum Op {
    Begin {
        cell: i64,
        key: Option<u8>,
        acts: Vec<Deed>,
        flaw: Option<Flaw>,
    },
    /// A begin of before under a new lease id, perhaps with a change.
    Again {
        which: Index,
        change: Option<Alteration>,
    },
    Settle {
        which: Index,
        stranger: bool,
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

/// The action of a begin on a named bucket.
#[derive(Clone, Debug)]
struct Deed {
    bucket: usize,
    lists: (bool, bool),
    capitals: bool,
    moved: bool,
    // The row that a destroy names: none, the first or the second of the bucket's rows.
    names: u8,
    subject: i64,
    data: bool,
}

#[derive(Clone, Copy, Debug)]
enum Flaw {
    Doubled,
    Untyped,
    Subjectless,
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
}

/// Four names whose case does not count, and two keys that differ in nothing else.
const BUCKETS: [(i32, &str); 6] = [
    (USERNAMES, "ann"),
    (USERNAMES, "ben"),
    (USERNAMES, "cat"),
    (USERNAMES, "dan"),
    (SSH_KEYS, "key"),
    (SSH_KEYS, "KEY"),
];

fn deed() -> impl Strategy<Value = Deed> {
    let lists = prop_oneof![4 => Just((true, false)), 2 => Just((false, true)), 2 => Just((true, true))];
    let spelling = (0..BUCKETS.len(), lists, any::<bool>());
    let rest = (prop::bool::weighted(0.2), 0..4_u8, 1..3_i64, prop::bool::weighted(0.2));
    (spelling, rest).prop_map(|((bucket, lists, capitals), (moved, names, subject, data))| Deed {
        bucket,
        lists,
        capitals,
        moved,
        names,
        subject,
        data,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let flaw = prop_oneof![Just(Flaw::Doubled), Just(Flaw::Untyped), Just(Flaw::Subjectless), Just(Flaw::Empty)];
    // Cell 4 is not known.
    let cell = prop_oneof![15 => 1..4_i64, 1 => Just(4_i64)];
    let key = prop::option::weighted(0.6, 0..4_u8);
    let begin = (cell, key, prop::collection::vec(deed(), 1..4), prop::option::weighted(0.06, flaw));
    let change = prop_oneof![
        Just(Alteration::Spelling),
        Just(Alteration::Subject),
        Just(Alteration::Source),
        Just(Alteration::Data),
        Just(Alteration::Shorter),
        Just(Alteration::Longer),
    ];
    let again = (any::<Index>(), prop::option::weighted(0.5, change));
    let end = prop_oneof![3 => Just(End::Commit), 2 => Just(End::Rollback)];
    prop_oneof![
        10 => begin.prop_map(|(cell, key, acts, flaw)| Op::Begin { cell, key, acts, flaw }),
        4 => again.prop_map(|(which, change)| Op::Again { which, change }),
        10 => (any::<Index>(), prop::bool::weighted(0.1), end)
            .prop_map(|(which, stranger, end)| Op::Settle { which, stranger, end }),
        2 => (any::<Index>(), -5..20_i64).prop_map(|(which, slack_seconds)| Op::Forget { which, slack_seconds }),
        3 => (-120..120_i64).prop_map(|seconds| Op::Tick { seconds }),
    ]
}

fn item_of(deed: &Deed, moved: bool) -> Item {
    let (bucket_type, value) = BUCKETS[deed.bucket];
    let value = if deed.capitals && bucket_type == USERNAMES { value.to_uppercase() } else { value.to_string() };
    let user_data = deed.data.then(|| ("t/x".to_string(), vec![deed.names]));
    let id = deed.bucket as i64 + if moved { 100 } else { 0 };
    Item { bucket_type, value, subject: Some((1, deed.subject)), source: Some((1, row(id))), user_data }
}

fn body_of(deeds: &[Deed], flaw: Option<Flaw>) -> Body {
    let mut body = Body::default();
    let mut seen = BTreeSet::new();
    for deed in deeds.iter().filter(|deed| seen.insert(deed.bucket)) {
        if deed.lists.0 {
            body.creates.push(item_of(deed, deed.moved));
        }
        if deed.lists.1 {
            let source = item_of(deed, deed.names == 2).source.filter(|_| deed.names != 0);
            body.destroys.push(Item { source, subject: None, ..item_of(deed, false) });
        }
    }
    let first = body.creates.first_mut();
    match (flaw, first) {
        (Some(Flaw::Doubled), _) => {
            body.creates.extend(body.creates.first().cloned());
            body.destroys.extend(body.destroys.first().cloned());
        }
        (Some(Flaw::Untyped), Some(first)) => first.bucket_type = 0,
        (Some(Flaw::Subjectless), Some(first)) => first.subject = None,
        (Some(Flaw::Empty), _) => body = Body::default(),
        (Some(_), None) | (None, _) => {}
    }
    body
}

fn altered(mut body: Body, change: Alteration) -> Body {
    if let Alteration::Longer = change {
        body.destroys.push(name("zoe"));
        return body;
    }
    let last = body.creates.last_mut().or(body.destroys.last_mut());
    match (change, last) {
        (Alteration::Longer, _) | (_, None) => {}
        (Alteration::Spelling, Some(item)) => item.value.push('x'),
        (Alteration::Subject, Some(item)) => item.subject = Some((3, 3)),
        (Alteration::Source, Some(item)) => item.source = Some((3, row(3))),
        (Alteration::Data, Some(item)) => item.user_data = Some(("t/y".to_string(), Vec::new())),
        (Alteration::Shorter, Some(_)) => _ = body.destroys.pop().or_else(|| body.creates.pop()),
    }
    body
}

/// Turns what is to happen into commands, and plays them on the pair and, in groups, on a second store.
struct Play {
    pair: Pair,
    grouped: MemoryStore,
    waiting: Vec<(Command, Reply, u64)>,
    begins: Vec<Begin>,
    now: u64,
    next_lease: u64,
}

impl Play {
    fn new() -> Self {
        Self {
            pair: Pair::new([1, 2, 3]),
            grouped: MemoryStore::default(),
            waiting: Vec::new(),
            begins: Vec::new(),
            now: 1000 * SECOND,
            next_lease: 0,
        }
    }

    fn fresh_lease(&mut self) -> u128 {
        self.next_lease += 1;
        nth_lease(self.next_lease)
    }

    /// A begin of before, or one that never was.
    fn begin_of_before(&self, which: Index) -> Begin {
        let never = Begin { cell: 1, lease: UNKNOWN_LEASE, key: None, body: Body::default() };
        let all = self.begins.iter().chain([&never]);
        // The later half: early leases are mostly settled.
        let recent: Vec<_> = all.skip(self.begins.len() / 2).collect();
        which.get(&recent).to_owned().clone()
    }

    fn command(&mut self, op: Op) -> Option<Command> {
        match op {
            Op::Tick { seconds } => {
                self.now = self.now.saturating_add_signed(seconds * SECOND as i64);
                None
            }
            Op::Begin { cell, key, acts, flaw } => {
                let (lease, key) = (self.fresh_lease(), key.map(|key| format!("key-{key}")));
                Some(Command::Begin(Begin { cell, lease, key, body: body_of(&acts, flaw) }))
            }
            Op::Again { which, change } => {
                let earlier = self.begin_of_before(which);
                let body = change.map_or(earlier.body.clone(), |change| altered(earlier.body.clone(), change));
                Some(Command::Begin(Begin { lease: self.fresh_lease(), body, ..earlier }))
            }
            Op::Settle { which, stranger, end } => {
                let begin = self.begin_of_before(which);
                let cell = if stranger { begin.cell % 4 + 1 } else { begin.cell };
                Some(Command::Settle { cell, lease: begin.lease, end })
            }
            Op::Forget { which, slack_seconds } => {
                let settled_before = self.now.saturating_add_signed(slack_seconds * SECOND as i64);
                Some(Command::Forget { lease: self.begin_of_before(which).lease, settled_before })
            }
        }
    }

    fn play(&mut self, op: Op, seen: &RefCell<BTreeSet<String>>) {
        let Some(command) = self.command(op) else { return };
        let (reply, _) = self.pair.step(&command, self.now);
        seen.borrow_mut().extend(kinds(&reply));
        if let (Command::Begin(begin), Reply::Begun { replayed: false, .. }) = (&command, &reply) {
            self.begins.push(begin.clone());
        }
        self.waiting.push((command, reply, self.now));
    }

    /// Plays what waits as one group: the same answers, and the model's state in one write.
    fn end_group(&mut self) {
        let before = self.grouped.state().unwrap();
        let (mut group, mut expected) = (Vec::new(), Vec::new());
        for (command, reply, now) in self.waiting.drain(..) {
            // A command that parsing refuses never gets into a group.
            if let Ok(command) = command.for_engine(&self.pair.rules) {
                group.push((command, Timestamp::from_micros(now)));
                expected.push(reply);
            }
        }
        let (answers, net) = run_group(&self.grouped, &group);
        assert_eq!(answers, expected);
        self.grouped.save(&net).unwrap();
        let after = self.grouped.state().unwrap();
        assert_eq!(after, self.pair.model.state(), "the grouped store and the model stand differently");
        assert_eq!(sorted_net(net), difference(&before, &after));
    }
}

/// The kinds of a reply, by name: a test checks that it has seen all of them.
fn kinds(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Begun { replayed, .. } => vec![format!("begun, replayed: {replayed}")],
        Reply::Settled(changed) => vec![format!("settled: {changed}")],
        Reply::Forgotten(changed) => vec![format!("forgotten: {changed}")],
        Reply::Rejected { retry_after_micros, offences, .. } => {
            let reason = offences.iter().map(|offence| offence.reason.to_string());
            let more = offences.iter().map(|offence| match &offence.more {
                More::Words => "words".to_string(),
                More::AlsoAt((List::Creates, _)) => "also among the creates".to_string(),
                More::AlsoAt((List::Destroys, _)) => "also among the destroys".to_string(),
                More::Differs(what) => what.split('.').next_back().unwrap().to_string(),
                More::RetryAfterMicros(100_000) => "the shortest hint".to_string(),
                More::RetryAfterMicros(60_000_000) => "the longest hint".to_string(),
                More::RetryAfterMicros(_) => "a hint between".to_string(),
            });
            let temporary = retry_after_micros.map(|_| "temporary".to_string());
            let many = (offences.len() > 1).then(|| "several offences".to_string());
            reason.chain(more).chain(temporary).chain(many).collect()
        }
    }
}

/// All that replies can show. Limits and values that are not allowed are the catalogue's and the batch's, and theirs to test.
const KINDS: [&str; 30] = [
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
    "settled: false",
    "settled: true",
    "several offences",
    "source",
    "subject",
    "temporary",
    "the longest hint",
    "the number of create_records",
    "the number of destroy_records",
    "the shortest hint",
    "user_data",
    "words",
];

/// The number of random long sequences in a run.
const LONG_SEQUENCES: u32 = 2000;

/// The configuration of the random long sequences: those of the seed in the environment variable `SEED`, if it is set.
fn long_sequences() -> Config {
    let config = Config { cases: LONG_SEQUENCES, failure_persistence: None, ..properties::config() };
    match std::env::var("SEED") {
        Ok(seed) => Config { rng_seed: RngSeed::Fixed(seed.parse().unwrap()), ..config },
        Err(_) => config,
    }
}

#[test]
fn b01_b02_b03_b04_b05_b06_b07_b09_b10_b13_b14_b15_b20_b21_b22_b23_b24_b25_random_long_sequences() {
    let (seen, commands) = (RefCell::new(BTreeSet::new()), Cell::new(0));
    let sequences = prop::collection::vec((op(), prop::bool::weighted(0.25)), 1..=60);
    let ran = TestRunner::new(long_sequences()).run(&sequences, |ops| {
        commands.set(commands.get() + ops.len());
        let mut play = Play::new();
        for (op, ends_group) in ops {
            play.play(op, &seen);
            if ends_group {
                play.end_group();
            }
        }
        play.end_group();
        Ok(())
    });
    ran.unwrap();
    println!("counts: {{\"sequences\":{LONG_SEQUENCES},\"commands\":{}}}", commands.get());
    assert_eq!(seen.into_inner(), KINDS.iter().map(|kind| kind.to_string()).collect());
}

// The transition tables.

const CLAIM_EVENTS: [ClaimEvent; 5] = [
    ClaimEvent::BeginCreate,
    ClaimEvent::BeginDestroy,
    ClaimEvent::BeginReplace,
    ClaimEvent::Commit,
    ClaimEvent::Rollback,
];

/// One bucket, `a` of cell 1, and the lease that had it last.
#[derive(Clone)]
struct ClaimWalk {
    pair: Pair,
    lease: u128,
    steps: u64,
}

impl ClaimWalk {
    fn status(&self) -> ClaimStatus {
        let key = engine_key(&(USERNAMES, "a".to_string()));
        ClaimStatus::of(Store::claim(&self.pair.store, &key).unwrap().as_ref())
    }

    /// Lets an event happen by a cell; whether anything changed.
    fn fire(&mut self, event: ClaimEvent, cell: i64) -> bool {
        let mut body = Body::default();
        let end = match event {
            ClaimEvent::BeginCreate | ClaimEvent::BeginDestroy | ClaimEvent::BeginReplace => None,
            ClaimEvent::Commit => Some(End::Commit),
            ClaimEvent::Rollback => Some(End::Rollback),
        };
        let destroy = if event == ClaimEvent::BeginDestroy { Act::Destroy } else { Act::Nothing };
        let create = if event == ClaimEvent::BeginDestroy { Act::Nothing } else { Act::Create };
        act(&mut body, create, cell, 1);
        act(&mut body, destroy, cell, 1);
        if event == ClaimEvent::BeginReplace {
            body.destroys.push(name("A"));
        }
        self.steps += 1;
        let lease = nth_lease(self.steps);
        let command = match end {
            Some(end) => Command::Settle { cell, lease: self.lease, end },
            None => Command::Begin(Begin { cell, lease, key: None, body }),
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
                None => assert!(!changed, "{:?} in {:?} is not in the table", event, self.status()),
                Some(edge) => {
                    assert!(changed, "{edge:?} does not happen");
                    assert_eq!(next.status(), edge.to);
                    taken.insert(format!("{edge:?}"));
                    if depth > 0 {
                        next.walk(depth - 1, taken);
                    }
                }
            }
            // A bucket that is not absent is nobody else's business.
            let others = self.status() != ClaimStatus::Absent && self.clone().fire(event, 2);
            assert!(!others, "{event:?} by another cell changes what is {:?}", self.status());
        }
    }
}

#[test]
fn b01_b02_b03_b04_b06_b20_b21_the_claim_table_is_what_the_engine_does() {
    let mut taken = BTreeSet::new();
    ClaimWalk { pair: Pair::new([1, 2]), lease: UNKNOWN_LEASE, steps: 0 }.walk(5, &mut taken);
    assert_eq!(taken, table::CLAIM.iter().map(|edge| format!("{edge:?}")).collect());
}

const LEASE_EVENTS: [LeaseEvent; 4] = [LeaseEvent::Begin, LeaseEvent::Commit, LeaseEvent::Rollback, LeaseEvent::Forget];

/// One lease of cell 1, begun with an idempotency key; it may be begun again once it is forgotten.
#[derive(Clone)]
struct LeaseWalk {
    pair: Pair,
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
                    // The bucket is one that no earlier turn has left behind.
                    let item =
                        Item { subject: Some((1, 1)), source: Some((1, row(1))), ..name(&format!("n{}", self.steps)) };
                    self.body = Body { creates: vec![item], destroys: Vec::new() };
                }
                // A retry comes with a lease id of its own.
                let lease = if known { nth_lease(self.steps) } else { lease };
                Command::Begin(Begin { cell, lease, key: Some("k".to_string()), body: self.body.clone() })
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
                None => assert!(!changed, "{:?} in {:?} is not in the table", event, self.status()),
                Some(edge) => {
                    assert!(changed, "{edge:?} does not happen");
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
        assert!(!self.pair.clone().step(&too_soon, SECOND).1, "forgotten too soon");
    }
}

#[test]
fn b09_b20_b21_b22_b23_b24_the_lease_table_is_what_the_engine_does() {
    let mut taken = BTreeSet::new();
    LeaseWalk { pair: Pair::new([1, 2]), body: Body::default(), steps: 0 }.walk(7, &mut taken);
    assert_eq!(taken, table::LEASE.iter().map(|edge| format!("{edge:?}")).collect());
}
