//! Acknowledged updates survive a SIGKILL of the server at any moment.
//!
//! Each client claims names that no other client uses, so it knows which rows the server must have:
//! those of every acknowledged update. The one call that the kill interrupted must be stored
//! completely or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at what it does not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::invariant;
use leasehold_core::lease::Outcome;
use leasehold_core::rows::State;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::record::Status;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{Metadata, Record};
use leasehold_tests::client::{Begun, Client, Update, lease_of, name_of, reason, user};
use leasehold_tests::server::{Server, binary};
use leasehold_tests::transfer::{export, state};
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

const CLIENTS: u64 = 16;
const KILLS: u64 = 60;
/// The number of active claims above which a client destroys more claims than it creates.
const ENOUGH_CLAIMS: usize = 40;
const PROGRESS_DEADLINE: Duration = Duration::from_secs(60);

/// A claim as a read returns it: the claim, its status, and the lease that it is under.
type Shown = (Metadata, Status, Option<String>);
type View = BTreeMap<String, Shown>;

/// The progress of a client's current update, as far as the client knows.
#[derive(Clone, Debug)]
enum Stage {
    Idle,
    /// The begin was sent and not answered. The lease is known if a check after a kill found it on
    /// the server.
    Beginning(Update, Option<String>),
    Begun(Update, String),
    Settling(Update, String, Outcome),
}

/// Counts of the calls that a kill interrupted: those that the server had stored, and those that it
/// had not.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    kept: u32,
    lost: u32,
}

/// A client of the test, with the rows that the server must have stored for this client.
struct Owner {
    number: u64,
    cell_id: i64,
    rng: SmallRng,
    next: u64,
    resting: BTreeMap<String, Metadata>,
    /// The client's active records as they were first read. A record must not change unless an
    /// update names it.
    seen: BTreeMap<String, Record>,
    stage: Stage,
    settled: Vec<(String, Outcome)>,
    /// The number of leases at the front of `settled` that were already checked after a restart.
    asked: usize,
    keyed: Option<(Update, Begun)>,
    cut: Cut,
}

impl Owner {
    fn new(number: u64, seed: u64) -> Self {
        Self {
            number,
            cell_id: 1 + (number % 2).cast_signed(),
            rng: SmallRng::seed_from_u64(seed.wrapping_add(number)),
            next: 0,
            resting: BTreeMap::new(),
            seen: BTreeMap::new(),
            stage: Stage::Idle,
            settled: Vec::new(),
            asked: 0,
            keyed: None,
            cut: Cut::default(),
        }
    }

    /// Returns a claim of `name`, or of a new name if it is `None`. The claim's source is the
    /// client's next row.
    fn claim(&mut self, name: Option<String>) -> Metadata {
        self.next += 1;
        let bytes = if self.rng.random_ratio(1, 4) { self.rng.random_range(0..3000) } else { 20 };
        let name = name.unwrap_or_else(|| format!("u{}-{}", self.number, self.next));
        user(name, (self.number << 32) + self.next, vec![self.next.to_le_bytes()[0]; bytes])
    }

    fn update(&mut self) -> Update {
        let many = self.resting.len() > ENOUGH_CLAIMS;
        let creates = match self.rng.random_range(0..40) {
            0 if !many => self.rng.random_range(100..300),
            _ if many => 1,
            _ => self.rng.random_range(1..8),
        };
        let destroys = if many { self.resting.len() / 2 } else { self.rng.random_range(0..4) };
        let destroys = self.resting.values().cloned().sample(&mut self.rng, destroys);
        let mut creates: Vec<_> = (0..creates).map(|_| self.claim(None)).collect();
        let replaced = destroys.iter().filter(|_| self.rng.random_ratio(1, 3)).map(name_of).collect::<Vec<_>>();
        for name in replaced {
            let spelling = if name.starts_with('u') { name.to_uppercase() } else { name.to_lowercase() };
            creates.push(self.claim(Some(spelling)));
        }
        let key = self.rng.random_ratio(1, 2).then(|| format!("{}-{}", self.number, self.next));
        Update { creates, destroys, key, ..Update::default() }
    }

    /// Begins and settles updates until the connection breaks. Returns the client with its
    /// progress.
    async fn work(mut self, mut client: Client, load: Arc<Load>) -> Self {
        while self.step(&mut client, &load).await {}
        self
    }

    async fn step(&mut self, client: &mut Client, load: &Load) -> bool {
        let answered = match self.stage.clone() {
            Stage::Idle => {
                self.stage = Stage::Beginning(self.update(), None);
                return true;
            }
            Stage::Begun(update, lease) => {
                let outcome = if self.rng.random_ratio(2, 3) { Outcome::Committed } else { Outcome::RolledBack };
                self.stage = Stage::Settling(update, lease, outcome);
                return true;
            }
            Stage::Beginning(update, known) => {
                let newest = load.fence.load(Ordering::SeqCst);
                let begun = client.begin(update.clone()).await;
                begun.map(|begun| self.take_begun(update, begun, known.as_deref(), newest, load))
            }
            Stage::Settling(update, lease, outcome) => {
                let settled = client.settle(&lease, outcome).await;
                settled.map(|()| self.take_settled(&update, lease, outcome))
            }
        };
        if let Err(status) = &answered {
            let broken = reason(status).is_empty() && !status.message().contains("Timeout");
            assert!(broken, "client {} in {:?}: {status:?}", self.number, self.stage);
        }
        answered.is_ok() && load.acknowledged.send(()).is_ok()
    }

    fn take_begun(&mut self, update: Update, begun: Begun, known: Option<&str>, newest: u64, load: &Load) {
        match known {
            Some(known) => assert_eq!(begun.lease, known, "a retried begin got another lease"),
            None => assert!(begun.fence > newest, "fence {} after fence {newest}", begun.fence),
        }
        load.fence.fetch_max(begun.fence, Ordering::SeqCst);
        if update.key.is_some() {
            self.keyed = Some((update.clone(), begun.clone()));
        }
        self.stage = Stage::Begun(update, begun.lease);
    }

    fn take_settled(&mut self, update: &Update, lease: String, outcome: Outcome) {
        if outcome == Outcome::Committed {
            for name in update.destroys.iter().map(key_of) {
                self.resting.remove(&name);
                self.seen.remove(&name);
            }
            self.resting.extend(update.creates.iter().map(|claim| (key_of(claim), claim.clone())));
        }
        self.settled.push((lease, outcome));
        self.stage = Stage::Idle;
    }

    fn at_rest(&self) -> View {
        self.resting.iter().map(|(name, claim)| (name.clone(), (claim.clone(), Status::Active, None))).collect()
    }

    fn under(&self, update: &Update, lease: &str) -> View {
        let mut view = self.at_rest();
        let held = |claim: &Metadata, status| (key_of(claim), (claim.clone(), status, Some(lease.to_owned())));
        view.extend(update.destroys.iter().map(|claim| held(claim, Status::LeaseDestroying)));
        view.extend(update.creates.iter().map(|claim| held(claim, Status::LeaseCreating)));
        view
    }

    /// Asserts that the server has the client's expected rows. Notes if the interrupted call was
    /// stored or lost.
    fn compare(&mut self, records: &BTreeMap<String, Record>) {
        let view: View = records.iter().map(|(name, record)| (name.clone(), shown(record))).collect();
        match self.stage.clone() {
            Stage::Idle => assert_eq!(view, self.at_rest()),
            Stage::Begun(update, lease) => assert_eq!(view, self.under(&update, &lease)),
            Stage::Beginning(_, _) if view == self.at_rest() => {
                self.cut.lost += 1;
                // A lost begin with a key will be sent again. A lost begin without a key is
                // dropped.
                self.stage = match self.stage.clone() {
                    Stage::Beginning(update, _) if update.key.is_some() => Stage::Beginning(update, None),
                    _ => Stage::Idle,
                };
            }
            Stage::Beginning(update, _) => {
                let lease = view.values().find_map(|(_, _, lease)| lease.clone()).expect("some of it is there");
                assert_eq!(view, self.under(&update, &lease), "a begin that was not acknowledged is there in part");
                self.cut.kept += 1;
                let keyed = update.key.is_some();
                self.stage = if keyed { Stage::Beginning(update, Some(lease)) } else { Stage::Begun(update, lease) };
            }
            Stage::Settling(update, lease, _) if view == self.under(&update, &lease) => {
                self.cut.lost += 1;
                // The interrupted settle took no effect, so the client may now choose the other
                // outcome.
                self.stage = Stage::Begun(update, lease);
            }
            Stage::Settling(update, lease, outcome) => {
                self.cut.kept += 1;
                self.take_settled(&update, lease, outcome);
                assert_eq!(view, self.at_rest(), "a settle that was not acknowledged took effect in part");
            }
        }
        self.compare_with_seen(records);
    }

    fn compare_with_seen(&mut self, records: &BTreeMap<String, Record>) {
        for (name, record) in records.iter().filter(|(_, record)| record.status() == Status::Active) {
            let seen = self.seen.entry(name.clone()).or_insert_with(|| record.clone());
            assert_eq!(record, seen, "what no commit has touched has changed");
        }
    }

    /// Repeats acknowledged settles, which must succeed, and tries the opposite outcome, which must
    /// be refused.
    async fn ask_again(mut self, mut client: Client) -> Self {
        let (earlier, new) = self.settled.split_at(self.asked);
        let sample = earlier.iter().sample(&mut self.rng, 5);
        for (lease, outcome) in new.iter().chain(sample) {
            let (opposite, refusal) = match outcome {
                Outcome::Committed => (Outcome::RolledBack, "LEASE_COMMITTED"),
                Outcome::RolledBack => (Outcome::Committed, "LEASE_ROLLED_BACK"),
            };
            client.settle(lease, *outcome).await.expect("repeating a settle succeeds");
            let refused = client.settle(lease, opposite).await.expect_err("the opposite is refused");
            assert_eq!(reason(&refused), refusal);
        }
        self.asked = self.settled.len();
        if let Some((update, begun)) = &self.keyed {
            let repeated = client.begin(update.clone()).await;
            if self.settled.contains(&(begun.lease.clone(), Outcome::RolledBack)) {
                let refused = repeated.expect_err("repeating a begin of a lease that was rolled back is refused");
                assert_eq!(reason(&refused), "LEASE_ROLLED_BACK");
            } else {
                assert_eq!(repeated.expect("repeating a begin by its key succeeds"), *begun);
            }
        }
        let some = self.seen.iter().sample(&mut self.rng, 3);
        for (name, record) in some {
            let held = matches!(&self.stage, Stage::Beginning(update, Some(_)) | Stage::Begun(update, _)
                if update.destroys.iter().any(|claim| key_of(claim) == *name));
            let got = client.get(name).await.expect("a record that is listed can be read");
            assert!(held || got == *record, "GetRecord says {got:?}, ListRecords said {record:?}");
        }
        self
    }
}

fn key_of(claim: &Metadata) -> String {
    name_of(claim).to_lowercase()
}

fn shown(record: &Record) -> Shown {
    let mut metadata = record.metadata.clone().expect("a record says what it claims");
    // The clients name the bucket only; records name it in both ways.
    assert!(metadata.claim.take().is_some(), "a record lacks `claim`");
    (metadata, record.status(), lease_of(record).map(str::to_owned))
}

/// The state that all clients of a round share.
struct Load {
    /// The largest fence that any client has received.
    fence: AtomicU64,
    acknowledged: UnboundedSender<()>,
}

/// Lets the clients work until the server has acknowledged `calls` further calls, then kills the
/// server. Returns the clients.
async fn work_and_kill(
    server: &mut Server,
    owners: Vec<Owner>,
    load: &Arc<Load>,
    acknowledged: &mut UnboundedReceiver<()>,
    calls: u32,
) -> Vec<Owner> {
    let clients = clients(server).await;
    let mut working = JoinSet::new();
    for owner in owners {
        let client = clients.get(&owner.cell_id).unwrap().clone();
        working.spawn(owner.work(client, Arc::clone(load)));
    }
    let some = async {
        for _ in 0..calls {
            acknowledged.recv().await.unwrap();
        }
    };
    // A client ends before the kill only if it has found a fault, so its end fails the test.
    tokio::select! {
        done = tokio::time::timeout(PROGRESS_DEADLINE, some) => done.expect("the server acknowledges calls"),
        Some(stopped) = working.join_next() => panic!("a client has stopped: {:?}", stopped.map(|owner| owner.stage)),
    }
    server.kill_9().unwrap();
    let owners = working.join_all().await;
    while acknowledged.try_recv().is_ok() {}
    owners
}

async fn clients(server: &Server) -> BTreeMap<i64, Client> {
    let mut clients = BTreeMap::new();
    for cell_id in [1, 2] {
        clients.insert(cell_id, Client::connect(server, cell_id).await.unwrap());
    }
    clients
}

async fn check(server: &Server, mut owners: Vec<Owner>) -> Vec<Owner> {
    let clients = clients(server).await;
    let mut found: BTreeMap<u64, BTreeMap<String, Record>> = BTreeMap::new();
    for (cell_id, client) in &clients {
        let (mut held, mut client) = (BTreeSet::new(), client.clone());
        for record in client.records().await.unwrap() {
            let name = key_of(record.metadata.as_ref().unwrap());
            let number = name.trim_start_matches('u').split('-').next().unwrap().parse().unwrap();
            assert_eq!(record.cell_id, *cell_id);
            held.extend(lease_of(&record).map(str::to_owned));
            assert!(found.entry(number).or_default().insert(name, record).is_none(), "a record is listed twice");
        }
        let leases = client.leases().await.unwrap();
        assert_eq!(leases.len(), held.len(), "a lease is listed that holds nothing, or one is not");
        assert_eq!(leases.into_iter().collect::<BTreeSet<_>>(), held);
    }
    owners.iter_mut().for_each(|owner| owner.compare(&found.remove(&owner.number).unwrap_or_default()));
    assert!(found.is_empty(), "there are records of nobody");
    let mut asking = JoinSet::new();
    for owner in owners {
        let client = clients.get(&owner.cell_id).unwrap().clone();
        asking.spawn(owner.ask_again(client));
    }
    asking.join_all().await
}

/// Starts another server process on the data directory, and kills it `after` this time, often
/// during its recovery.
async fn kill_at_start(server: &Server, after: Duration) {
    let mut command = tokio::process::Command::new(binary().unwrap());
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--data"]).arg(server.data());
    let mut child = command.stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let ended = tokio::time::timeout(after, child.wait()).await;
    assert!(ended.is_err(), "the server ends by itself: {ended:?}");
    child.kill().await.unwrap();
}

fn check_export(server: &Server) -> State {
    let state = state(&export(server.data()).unwrap()).unwrap();
    invariant::check(&state).unwrap();
    state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_updates_survive_sigkill() {
    let seed = std::env::var("SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut server = Server::builder().arg("--log").arg("error").start().unwrap();
    let (acknowledged, mut acknowledgements) = unbounded_channel();
    let load = Arc::new(Load { fence: AtomicU64::new(0), acknowledged });
    let mut owners: Vec<_> = (1..=CLIENTS).map(|number| Owner::new(number, seed)).collect();
    for kill in 1..=KILLS {
        let calls = rng.random_range(1..400);
        owners = work_and_kill(&mut server, owners, &load, &mut acknowledgements, calls).await;
        if kill % 5 == 0 {
            kill_at_start(&server, Duration::from_micros(rng.random_range(0..80_000))).await;
        }
        if kill % 10 == 0 {
            check_export(&server);
        }
        server.restart().unwrap();
        owners = check(&server, owners).await;
    }
    let cut = owners
        .iter()
        .fold(Cut::default(), |sum, owner| Cut { kept: sum.kept + owner.cut.kept, lost: sum.lost + owner.cut.lost });
    let settled: usize = owners.iter().map(|owner| owner.settled.len()).sum();
    println!("counts: {{\"kills\":{KILLS},\"leases\":{settled},\"kept\":{},\"lost\":{}}}", cut.kept, cut.lost);
    assert!(cut.kept > 0 && cut.lost > 0, "no kill has cut a call short: {cut:?}");
    server.terminate().unwrap();
    let state = check_export(&server);
    assert!(state.fence.0 >= load.fence.load(Ordering::SeqCst));
    assert!(owners.iter().all(|owner| owner.settled.len() >= owner.asked));
}
