//! The fight of a hundred clients for fifty buckets on two servers, while something breaks. One order of
//! all operations must explain every answer.
//!
//! Clients, cells and buckets are divided into groups. An update names buckets of one group only,
//! so the history of each group is independent and is checked separately.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test stops at what it does not expect"
)]

mod checker;
mod history;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::catalogue::Catalogue;
use leasehold_core::cell::CellId;
use leasehold_core::command::Command;
use leasehold_core::invariant;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::rows::State;
use leasehold_core::rules::Rules;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Channel;

use self::checker::{Action, Answer, Operation};
use self::history::{check_leases, failed_answer, observed_claim, resolve};
pub use self::history::{lease_id, update_request};
use crate::client::{BUCKET_TYPE, Client, Update, lease_of, name_of, reason, user};
use crate::server::{Builder, Server};

const GROUPS: i64 = 10;
const CLIENTS_PER_GROUP: i64 = 10;
const CELLS_PER_GROUP: i64 = 3;
const BUCKETS_PER_GROUP: i64 = 5;
/// The start of the message about a stale answer.
pub const STALE: &str = "a lease is shown that was settled before the call";
/// The start of the message about servers that give no answers.
pub const SILENT: &str = "a server no longer answers";
/// The lines of a server's log that are shown after a failure.
const LOG_LINES: usize = 40;

/// The state that all clients share: a channel to each server (`None` while the server is down),
/// the number of answers of each server, and the flag that ends the load.
#[derive(Default)]
struct SharedLoad {
    channels: [RwLock<Option<Channel>>; 2],
    answered: [AtomicU64; 2],
    is_stopped: AtomicBool,
}

impl SharedLoad {
    fn set(&self, server: usize, channel: Option<Channel>) {
        *self.channels[server].write().unwrap() = channel;
    }

    /// Returns the server to call and its channel: the preferred server, or the other server if the
    /// preferred one is down.
    fn choose(&self, preferred: usize) -> (usize, Channel) {
        let up = |server: usize| Some((server, self.channels[server].read().unwrap().clone()?));
        up(preferred).or_else(|| up(1 - preferred)).expect("one server is always up")
    }
}

/// The owner and the source row of a claim, as a client last read them.
#[derive(Clone)]
struct LastSeen {
    owner: i64,
    source: Option<wire::Source>,
}

/// A client that makes random calls and records each call with its answer.
struct RandomClient {
    number: i64,
    group: i64,
    cell: i64,
    // True while this client may send begins without a key. One client of each cell may, until such
    // a begin stays without an answer. `resolve` can match one such begin of each cell to its
    // lease, but not several.
    may_omit_key: bool,
    rng: SmallRng,
    shared: Arc<SharedLoad>,
    rules: Arc<Rules>,
    epoch: Instant,
    next: u64,
    // The claim that this client last saw in each bucket; `None` if the bucket was free.
    seen: BTreeMap<String, Option<LastSeen>>,
    // The updates that this client has sent with a key, and may repeat later.
    keyed: Vec<Update>,
    history: Vec<Operation>,
    _end: EndSignal,
}

/// Tells the test that a client has ended. The signal is sent on drop, so also after a panic.
struct EndSignal(Sender<()>);

impl Drop for EndSignal {
    fn drop(&mut self) {
        // The result is ignored: sending fails only if the test has stopped listening.
        let _ = self.0.send(());
    }
}

fn bucket_key(name: &str) -> BucketKey {
    BucketKey { bucket_type: BucketType(BUCKET_TYPE.into()), canonical: name.to_lowercase().into() }
}

fn group_of_cell(cell: CellId) -> i64 {
    (cell.0 - 1) / CELLS_PER_GROUP
}

impl RandomClient {
    async fn run(mut self) -> Vec<Operation> {
        while !self.shared.is_stopped.load(Ordering::Relaxed) {
            match self.rng.random_range(0..100) {
                0..50 => self.update().await,
                50..75 => self.read().await,
                75..90 => self.list().await,
                _ => self.repeat_begin().await,
            }
        }
        self.history
    }

    /// Makes a call on one of the two servers, and records it. Returns the recorded answer, and the
    /// value if the call succeeded.
    async fn call<T>(
        &mut self,
        action: Action,
        call: impl AsyncFnOnce(Client) -> Result<T, Status>,
        answer: impl FnOnce(&T) -> Answer,
    ) -> (Answer, Option<T>) {
        let (server, channel) = self.shared.choose(self.rng.random_range(0..2));
        let nanos = |epoch: Instant| u64::try_from(epoch.elapsed().as_nanos()).unwrap();
        let called = nanos(self.epoch);
        let result = call(Client::over(channel, self.cell)).await;
        let answered = nanos(self.epoch);
        let answer = result.as_ref().map_or_else(failed_answer, answer);
        if answer != Answer::Unknown {
            self.shared.answered[server].fetch_add(1, Ordering::Relaxed);
        }
        self.history.push(Operation { called, answered, action, answer: answer.clone() });
        (answer, result.ok())
    }

    async fn update(&mut self) {
        let update = self.compose();
        if update.creates.is_empty() && update.destroys.is_empty() {
            return self.read().await;
        }
        let Some(lease) = self.begin(update.clone()).await else { return };
        if self.rng.random_ratio(1, 4) {
            self.read().await;
        }
        let outcome = match self.rng.random_range(0..100) {
            0..65 => Outcome::Committed,
            65..90 => Outcome::RolledBack,
            // The lease stays outstanding. Other clients of the cell will find and settle it.
            _ => return,
        };
        if self.settle(&lease, outcome).await && outcome == Outcome::Committed {
            self.remember(&update);
        }
    }

    /// Returns a random update. Usually it fits the claims that this client last saw; sometimes it
    /// contradicts them.
    fn compose(&mut self) -> Update {
        let mut names: Vec<_> = (0..BUCKETS_PER_GROUP).map(|bucket| format!("g{}-b{bucket}", self.group)).collect();
        names.shuffle(&mut self.rng);
        names.truncate(*[1, 1, 1, 2, 2, 3, 5].choose(&mut self.rng).unwrap());
        let mut update = Update::default();
        for name in names {
            let seen = self.seen.get(&name).cloned().flatten();
            if seen.as_ref().is_some_and(|seen| seen.owner != self.cell) && self.rng.random_ratio(4, 5) {
                continue;
            }
            let (create, destroy) = match (&seen, self.rng.random_range(0..20)) {
                (None, 0..17) => (true, false),
                (None, _) => (false, true),
                (Some(seen), 0..9) if seen.owner == self.cell => (true, true),
                (Some(seen), 9..19) if seen.owner == self.cell => (false, true),
                (Some(_), 0..14) => (true, false),
                (Some(_), 14..17) => (false, true),
                (Some(_), _) => (true, true),
            };
            if create {
                update.creates.push(self.claim(&name));
            }
            if destroy {
                let mut claim = self.claim(&name);
                let conditional = self.rng.random_ratio(1, 2);
                claim.source = seen.and_then(|seen| seen.source).filter(|_| conditional);
                update.destroys.push(claim);
            }
        }
        let omit_key = self.may_omit_key && self.rng.random_ratio(1, 2);
        update.key = (!omit_key).then(|| format!("{}-{}", self.number, self.next));
        update
    }

    /// Returns a claim of the username with a new subject and source, spelled in upper or in lower
    /// case.
    fn claim(&mut self, name: &str) -> wire::Metadata {
        self.next += 1;
        let spelling = if self.rng.random() { name.to_uppercase() } else { name.to_owned() };
        user(spelling, (self.number.cast_unsigned() << 32) + self.next, Vec::new())
    }

    /// Begins an update, and usually repeats the begin if no answer comes. Returns the lease;
    /// `None` if the begin was refused or stays unanswered.
    async fn begin(&mut self, update: Update) -> Option<String> {
        if update.key.is_some() {
            self.keyed.push(update.clone());
        }
        loop {
            let id = LeaseId(uuid::Uuid::from_u128(self.rng.random()));
            let begin = self.rules.begin(CellId(self.cell), update_request(&update), update.key.as_deref(), id);
            let action = Action::Command(Command::Begin(begin.unwrap()));
            let sent = update.clone();
            let call = self.call(
                action,
                async move |mut client| client.begin(sent).await,
                |begun| Answer::Begun(lease_id(&begun.lease), leasehold_core::lease::Fence(begun.fence)),
            );
            match call.await {
                (Answer::Unknown, _) if update.key.is_none() => {
                    self.may_omit_key = false;
                    return None;
                }
                (Answer::Unknown, _) if self.repeats() => {}
                (_, begun) => return begun.map(|begun| begun.lease),
            }
        }
    }

    /// Settles a lease, and usually repeats the settle if no answer comes. Returns true if the
    /// server answers that the lease has this outcome.
    async fn settle(&mut self, lease: &str, outcome: Outcome) -> bool {
        loop {
            let settle = self.rules.settle(CellId(self.cell), lease, outcome).unwrap();
            let action = Action::Command(Command::Settle(settle));
            let call = self.call(action, async |mut client| client.settle(lease, outcome).await, |()| Answer::Settled);
            match call.await.0 {
                Answer::Unknown if self.repeats() => {}
                answer => return answer == Answer::Settled,
            }
        }
    }

    /// Returns true if the client shall repeat a call that got no answer: in three of four cases,
    /// unless the load has ended.
    fn repeats(&mut self) -> bool {
        !self.shared.is_stopped.load(Ordering::Relaxed) && self.rng.random_ratio(3, 4)
    }

    fn remember(&mut self, update: &Update) {
        for claim in &update.destroys {
            self.seen.insert(bucket_name(claim), None);
        }
        for claim in &update.creates {
            self.seen.insert(bucket_name(claim), Some(LastSeen { owner: self.cell, source: claim.source.clone() }));
        }
    }

    async fn read(&mut self) {
        let name = format!("g{}-b{}", self.group, self.rng.random_range(0..BUCKETS_PER_GROUP));
        let (action, requested) = (Action::Get(bucket_key(&name)), name.clone());
        let get = async move |mut client: Client| match client.get(&requested).await {
            Err(status) if reason(&status) == "CLAIM_NOT_FOUND" => Ok(None),
            read => read.map(Some),
        };
        let call = self.call(action, get, |read: &Option<wire::Record>| {
            Answer::Record(read.as_ref().map(observed_claim).map(Box::new))
        });
        let (_, Some(record)) = call.await else { return };
        let source = |record: &wire::Record| record.metadata.as_ref().and_then(|metadata| metadata.source.clone());
        let seen = record.as_ref().map(|record| LastSeen { owner: record.cell_id, source: source(record) });
        self.seen.insert(name, seen);
        let held = record.as_ref().filter(|record| record.cell_id == self.cell).and_then(lease_of);
        if let Some(lease) = held
            && self.rng.random_ratio(1, 5)
        {
            self.settle_at_random(lease).await;
        }
    }

    async fn list(&mut self) {
        let call = self.call(
            Action::List(CellId(self.cell)),
            async |mut client: Client| client.first_leases().await,
            |leases: &Vec<String>| Answer::Leases(leases.iter().map(|lease| lease_id(lease)).collect()),
        );
        let (_, Some(leases)) = call.await else { return };
        if self.rng.random_ratio(1, 3)
            && let Some(lease) = leases.choose(&mut self.rng)
        {
            self.settle_at_random(lease).await;
        }
    }

    /// Settles a lease of the client's cell with a random outcome. The client that began the lease
    /// may settle it at the same time.
    async fn settle_at_random(&mut self, lease: &str) {
        let outcome = if self.rng.random() { Outcome::Committed } else { Outcome::RolledBack };
        self.settle(lease, outcome).await;
    }

    /// Sends a begin again under the key of an earlier one, in one of five cases with a changed
    /// update.
    async fn repeat_begin(&mut self) {
        let Some(mut update) = self.keyed.choose(&mut self.rng).cloned() else { return };
        if self.rng.random_ratio(1, 5) {
            self.next += 1;
            let next = Some(wire::Subject { r#type: wire::subject::Type::User.into(), id: self.next.cast_signed() });
            update.creates.iter_mut().chain(&mut update.destroys).for_each(|claim| claim.subject = next);
        }
        self.keyed.retain(|keyed| keyed.key != update.key);
        self.begin(update).await;
    }
}

fn bucket_name(claim: &wire::Metadata) -> String {
    name_of(claim).to_lowercase()
}

/// Returns the configuration text of `count` cells with the ids from 1.
#[must_use]
pub fn cells(count: i64) -> String {
    (1..=count).fold(String::new(), |mut text, id| {
        writeln!(text, "[[cells]]\nid = {id}\nname = \"cell-{id}\"\naddress = \"http://127.0.0.1:{}\"", 3000 + id)
            .unwrap();
        text
    })
}

/// The operations of each client of a load.
pub struct Histories(Vec<Vec<Operation>>);

/// Two servers on one store, and all clients that call them.
pub struct Load {
    servers: Vec<Server>,
    shared: Arc<SharedLoad>,
    clients: Vec<JoinHandle<Vec<Operation>>>,
    ended: Receiver<()>,
    runtime: Runtime,
}

impl Load {
    /// Starts the servers, each with these lines of its configuration, and the clients.
    pub fn start(seed: u64, servers: [(Builder, String); 2]) -> Self {
        let start = |(server, settings): (Builder, String)| {
            let config = format!("{settings}\n{}", cells(GROUPS * CELLS_PER_GROUP));
            server.config(config).start().unwrap()
        };
        let servers: Vec<_> = servers.into_iter().map(start).collect();
        let runtime = Runtime::new().unwrap();
        let shared = Arc::new(SharedLoad::default());
        let (sender, ended) = channel();
        let mut load = Self { servers, shared, clients: Vec::new(), ended, runtime };
        [0, 1].into_iter().for_each(|server| load.connect(server));
        let cells = (1..=GROUPS * CELLS_PER_GROUP).map(CellId).collect();
        let rules = Arc::new(Rules { catalogue: Catalogue::default(), cells });
        let epoch = Instant::now();
        for number in 0..GROUPS * CLIENTS_PER_GROUP {
            let (group, member) = (number / CLIENTS_PER_GROUP, number % CLIENTS_PER_GROUP);
            let client = RandomClient {
                number,
                group,
                cell: 1 + group * CELLS_PER_GROUP + member % CELLS_PER_GROUP,
                may_omit_key: member < CELLS_PER_GROUP,
                rng: SmallRng::seed_from_u64(seed.wrapping_add(number.cast_unsigned())),
                shared: load.shared.clone(),
                rules: rules.clone(),
                epoch,
                next: 0,
                seen: BTreeMap::new(),
                keyed: Vec::new(),
                history: Vec::new(),
                _end: EndSignal(sender.clone()),
            };
            load.clients.push(load.runtime.spawn(client.run()));
        }
        load
    }

    fn connect(&self, server: usize) {
        let channel = self.runtime.block_on(self.servers[server].connect(None)).unwrap();
        self.shared.set(server, Some(channel));
    }

    /// Waits while the clients work.
    ///
    /// # Panics
    /// A client has ended, which means that one of its checks failed.
    pub fn run_for(&self, time: Duration) {
        let ended = self.ended.recv_timeout(time);
        assert_eq!(ended, Err(RecvTimeoutError::Timeout), "a client has ended");
    }

    /// Waits until each server has answered more than a hundred further calls.
    ///
    /// # Panics
    /// One has not done so within this time.
    pub fn await_answers(&self, limit: Duration) {
        let answered = |server: usize| self.shared.answered[server].load(Ordering::Relaxed);
        let before = [answered(0), answered(1)];
        let deadline = Instant::now() + limit;
        while !(0..2).all(|server| answered(server) > before[server] + 100) {
            let answered = &self.shared.answered;
            assert!(Instant::now() < deadline, "{SILENT}: {before:?}, {answered:?}\n{}", self.logs());
            self.run_for(Duration::from_millis(10));
        }
    }

    /// Returns the last lines that each server has logged.
    fn logs(&self) -> String {
        let last = |text: String| text.lines().rev().take(LOG_LINES).map(str::to_owned).collect::<Vec<_>>();
        let logs =
            self.servers.iter().map(|server| last(server.stderr()).into_iter().rev().collect::<Vec<_>>().join("\n"));
        logs.collect::<Vec<_>>().join("\n\n")
    }

    /// Kills a server, and starts it again.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].kill_9().unwrap();
        self.shared.set(server, None);
        self.servers[server].restart().unwrap();
        self.connect(server);
    }

    /// Stops the clients and the servers. Returns the history of each client.
    pub fn end(mut self) -> Histories {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        let clients = std::mem::take(&mut self.clients);
        let histories = clients.into_iter().map(|client| self.runtime.block_on(client).unwrap()).collect();
        for server in &mut self.servers {
            assert!(server.terminate().unwrap().success(), "{}", server.stderr());
        }
        Histories(histories)
    }
}

/// Returns the claims, leases and keys of one group of cells and buckets.
fn rows_of_group(state: &State, group: i64) -> State {
    let prefix = format!("g{group}-");
    let claims = state.claims.iter().filter(|(key, _)| key.canonical.starts_with(&prefix));
    let leases = state.leases.iter().filter(|(_, lease)| group_of_cell(lease.cell) == group);
    let replays = state.replays.iter().filter(|(key, _)| group_of_cell(key.cell) == group);
    State {
        claims: claims.map(|(key, claim)| (key.clone(), claim.clone())).collect(),
        leases: leases.map(|(id, lease)| (*id, lease.clone())).collect(),
        replays: replays.map(|(key, replay)| (key.clone(), replay.clone())).collect(),
        fence: state.fence,
        ..State::default()
    }
}

/// Returns the number of operations by kind and answer, such as `begin CLAIM_BUSY`. The test
/// requires some kinds, which show that there were conflicts and faults.
fn tally(history: &[Operation]) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for operation in history {
        let action = match &operation.action {
            Action::Command(Command::Begin(_)) => "begin",
            Action::Command(Command::Settle(_)) => "settle",
            Action::Command(Command::Forget(_)) => "forget",
            Action::Command(Command::Lock(_)) => "lock",
            Action::Command(Command::Queue(_)) => "queue",
            Action::Get(_) => "get",
            Action::List(_) => "list",
        };
        let answer = match &operation.answer {
            Answer::Rejected(rejection) => rejection.reason.as_str(),
            Answer::Unknown => "unknown",
            _ => "OK",
        };
        *tally.entry(format!("{action} {answer}")).or_default() += 1;
    }
    tally
}

/// Returns a number of the environment.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// Returns the seed of the run, and prints it.
pub fn seed() -> u64 {
    let seed = number("SEED").unwrap_or_else(rand::random);
    println!("SEED={seed}");
    seed
}

/// Checks that one order of all operations explains every answer and the final rows. `kinds` are kinds of operations that
/// the faults must have caused, and `counts` are printed.
pub fn check_histories(Histories(histories): &Histories, state: &State, counts: &[(&str, u64)], kinds: &[&str]) {
    invariant::check(state).unwrap();
    let all = histories.concat();
    let tally = tally(&all);
    println!("{} operations: {tally:#?}", all.len());
    let counts: BTreeMap<_, _> = counts.iter().copied().chain([("operations", all.len() as u64)]).collect();
    println!("counts: {}", serde_json::to_string(&counts).unwrap());
    for kind in ["begin OK", "begin CLAIM_BUSY", "begin CLAIM_TAKEN", "settle OK"].iter().chain(kinds) {
        assert!(tally.contains_key(*kind), "no operation was `{kind}`");
    }
    check_settled(&all);
    let all = resolve(all, state).unwrap();
    check_leases(&all, state).unwrap();
    check_groups(histories, state);
}

/// Checks that no answer shows a lease as outstanding that was settled before the call (B30). The search would find it
/// too, late and without this reason.
///
/// # Panics
/// An answer is stale.
fn check_settled(history: &[Operation]) {
    let mut settled = BTreeMap::<LeaseId, u64>::new();
    for operation in history {
        if let (Action::Command(Command::Settle(settle)), Answer::Settled) = (&operation.action, &operation.answer) {
            let first = settled.entry(settle.lease).or_insert(operation.answered);
            *first = operation.answered.min(*first);
        }
    }
    for operation in history {
        let shown: Vec<LeaseId> = match &operation.answer {
            Answer::Record(Some(record)) => record.lease.into_iter().collect(),
            Answer::Leases(leases) => leases.iter().copied().collect(),
            _ => Vec::new(),
        };
        let is_stale = |lease: &LeaseId| settled.get(lease).is_some_and(|answered| *answered < operation.called);
        assert!(!shown.iter().any(is_stale), "{STALE}: {operation}");
    }
}

/// Writes a history to a file that is kept: one operation on each line, in the order of the calls.
/// Returns a message with the file's path.
fn save_history(history: &[Operation]) -> String {
    let mut operations: Vec<_> = history.iter().collect();
    operations.sort_by_key(|operation| operation.called);
    let lines: Vec<_> = operations.iter().map(ToString::to_string).collect();
    let (_, path) = tempfile::NamedTempFile::with_prefix("history-").unwrap().keep().unwrap();
    std::fs::write(&path, lines.join("\n")).unwrap();
    format!("the whole history: `{}`", path.display())
}

/// Checks that the history of each group is linearizable. The groups are checked in parallel, until one is not.
fn check_groups(histories: &[Vec<Operation>], state: &State) {
    let is_over = AtomicBool::default();
    let check = |(group, histories): (i64, &[Vec<Operation>])| {
        let rows = rows_of_group(state, group);
        let history = resolve(histories.concat(), &rows).unwrap();
        checker::check_within(&history, &rows, &is_over).map_err(|error| {
            let is_first = !is_over.swap(true, Ordering::Relaxed);
            is_first.then(|| format!("group {group}: {error}\n{}", save_history(&history)))
        })
    };
    let started = Instant::now();
    let groups = (0..).zip(histories.chunks(usize::try_from(CLIENTS_PER_GROUP).unwrap()));
    let checked: Vec<_> = std::thread::scope(|scope| {
        let check = &check;
        let checks: Vec<_> = groups.map(|group| scope.spawn(move || check(group))).collect();
        checks.into_iter().map(|checked| checked.join().unwrap()).collect()
    });
    if let Some(error) = checked.iter().find_map(|checked| checked.as_ref().err()?.as_ref()) {
        panic!("{error}");
    }
    let most = checked.into_iter().filter_map(Result::ok).max().unwrap_or_default();
    println!("checked in {:?}, with {most} tries for one call at most", started.elapsed());
}
