//! A hundred clients fight over fifty buckets on two servers, one of them behind pgbouncer, while servers are killed and
//! the database crashes: what everybody was answered agrees with some order of all that was asked.
//!
//! An update touches buckets of one group only, so each group's history is one of its own.

use std::collections::BTreeMap;
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
use leasehold_tests::client::{BUCKET_TYPE, Client, Update, lease_of, user};
use leasehold_tests::postgres::{Bouncer, Cluster};
use leasehold_tests::server::Server;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Channel;

use crate::history::{check_leases, lease_id, refusal, resolve, shown, update_request};
use crate::order::{self, Action, Answer, Operation};
use crate::{cells, final_state};

const GROUPS: i64 = 10;
const CLIENTS_PER_GROUP: i64 = 10;
const CELLS_PER_GROUP: i64 = 3;
const BUCKETS_PER_GROUP: i64 = 5;
/// How long the fight takes, unless `LEASEHOLD_FIGHT_SECONDS` says otherwise.
const SECONDS: u64 = 20;
/// How long it may take until a server answers again.
const RECOVERY: Duration = Duration::from_secs(30);

/// The ways to the servers; none where one is down.
#[derive(Default)]
struct Links {
    channels: [RwLock<Option<Channel>>; 2],
    answered: [AtomicU64; 2],
    stop: AtomicBool,
}

impl Links {
    fn set(&self, server: usize, channel: Option<Channel>) {
        *self.channels[server].write().unwrap() = channel;
    }

    /// One that is up, whichever comes first after `wanted`.
    fn choose(&self, wanted: usize) -> (usize, Channel) {
        let up = |server: usize| Some((server, self.channels[server].read().unwrap().clone()?));
        up(wanted).or_else(|| up(1 - wanted)).expect("one server is always up")
    }
}

/// What a client has last seen of a claim at rest.
#[derive(Clone)]
struct Seen {
    owner: i64,
    source: Option<wire::Source>,
}

struct Fighter {
    number: i64,
    group: i64,
    cell: i64,
    // Whether it may begin without a key: at most once may it not know what became of that.
    keyless: bool,
    rng: SmallRng,
    links: Arc<Links>,
    rules: Arc<Rules>,
    epoch: Instant,
    next: u64,
    seen: BTreeMap<String, Option<Seen>>,
    keyed: Vec<Update>,
    log: Vec<Operation>,
    _end: End,
}

/// Tells of a client's end, however it comes about.
struct End(Sender<()>);

impl Drop for End {
    fn drop(&mut self) {
        // After the fight nobody listens.
        let _ = self.0.send(());
    }
}

fn bucket_key(name: &str) -> BucketKey {
    BucketKey { bucket_type: BucketType(BUCKET_TYPE.into()), canonical: name.to_lowercase().into() }
}

fn group_of_cell(cell: CellId) -> i64 {
    (cell.0 - 1) / CELLS_PER_GROUP
}

impl Fighter {
    async fn fight(mut self) -> Vec<Operation> {
        while !self.links.stop.load(Ordering::Relaxed) {
            match self.rng.random_range(0..100) {
                0..50 => self.update().await,
                50..75 => self.read().await,
                75..90 => self.list().await,
                _ => self.resend().await,
            }
        }
        self.log
    }

    /// Makes a call on one of the servers, and writes down what became of it.
    async fn call<T>(
        &mut self,
        action: Action,
        call: impl AsyncFnOnce(Client) -> Result<T, Status>,
        answer: impl FnOnce(&T) -> Answer,
    ) -> (Answer, Option<T>) {
        let (server, channel) = self.links.choose(self.rng.random_range(0..2));
        let nanos = |epoch: Instant| u64::try_from(epoch.elapsed().as_nanos()).unwrap();
        let called = nanos(self.epoch);
        let done = call(Client::over(channel, self.cell)).await;
        let answered = nanos(self.epoch);
        let answer = done.as_ref().map_or_else(refusal, answer);
        if answer != Answer::Unknown {
            self.links.answered[server].fetch_add(1, Ordering::Relaxed);
        }
        self.log.push(Operation { called, answered, action, answer: answer.clone() });
        (answer, done.ok())
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
            // Others find it, and settle it.
            _ => return,
        };
        if self.settle(&lease, outcome).await && outcome == Outcome::Committed {
            self.remember(&update);
        }
    }

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
        let keyless = self.keyless && self.rng.random_ratio(1, 2);
        update.key = (!keyless).then(|| format!("{}-{}", self.number, self.next));
        update
    }

    /// A claim of a row of its own, spelled one way or the other.
    fn claim(&mut self, name: &str) -> wire::Metadata {
        self.next += 1;
        let spelling = if self.rng.random() { name.to_uppercase() } else { name.to_owned() };
        user(spelling, (self.number.cast_unsigned() << 32) + self.next, Vec::new())
    }

    /// Begins an update, again and again where no answer comes; mostly. The lease, where it got one.
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
                    self.keyless = false;
                    return None;
                }
                (Answer::Unknown, _) if self.goes_on() => {}
                (_, begun) => return begun.map(|begun| begun.lease),
            }
        }
    }

    /// Settles a lease, again and again where no answer comes; mostly. Whether it is settled so.
    async fn settle(&mut self, lease: &str, outcome: Outcome) -> bool {
        loop {
            let settle = self.rules.settle(CellId(self.cell), lease, outcome).unwrap();
            let action = Action::Command(Command::Settle(settle));
            let call = self.call(action, async |mut client| client.settle(lease, outcome).await, |()| Answer::Settled);
            match call.await.0 {
                Answer::Unknown if self.goes_on() => {}
                answer => return answer == Answer::Settled,
            }
        }
    }

    fn goes_on(&mut self) -> bool {
        !self.links.stop.load(Ordering::Relaxed) && self.rng.random_ratio(3, 4)
    }

    fn remember(&mut self, update: &Update) {
        for claim in &update.destroys {
            self.seen.insert(bucket_name(claim), None);
        }
        for claim in &update.creates {
            self.seen.insert(bucket_name(claim), Some(Seen { owner: self.cell, source: claim.source.clone() }));
        }
    }

    async fn read(&mut self) {
        let name = format!("g{}-b{}", self.group, self.rng.random_range(0..BUCKETS_PER_GROUP));
        let (action, asked) = (Action::Get(bucket_key(&name)), name.clone());
        let get = async move |mut client: Client| match client.get(&asked).await {
            Err(status) if leasehold_tests::client::reason(&status) == "CLAIM_NOT_FOUND" => Ok(None),
            read => read.map(Some),
        };
        let call = self
            .call(action, get, |read: &Option<wire::Record>| Answer::Record(read.as_ref().map(shown).map(Box::new)));
        let (_, Some(record)) = call.await else { return };
        let source = |record: &wire::Record| record.metadata.as_ref().and_then(|metadata| metadata.source.clone());
        let seen = record.as_ref().map(|record| Seen { owner: record.cell_id, source: source(record) });
        self.seen.insert(name, seen);
        let held = record.as_ref().filter(|record| record.cell_id == self.cell).and_then(lease_of);
        if let Some(lease) = held
            && self.rng.random_ratio(1, 5)
        {
            self.settle_anyhow(lease).await;
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
            self.settle_anyhow(lease).await;
        }
    }

    /// Settles a lease of somebody in the cell, who may do so too.
    async fn settle_anyhow(&mut self, lease: &str) {
        let outcome = if self.rng.random() { Outcome::Committed } else { Outcome::RolledBack };
        self.settle(lease, outcome).await;
    }

    /// Begins again by a key that was used before, now and then with another body.
    async fn resend(&mut self) {
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
    leasehold_tests::client::name_of(claim).to_lowercase()
}

/// The two servers, their database, and the clients at work.
struct Arena {
    cluster: Cluster,
    database: String,
    bouncer: Bouncer,
    servers: Vec<Server>,
    links: Arc<Links>,
    fighters: Vec<JoinHandle<Vec<Operation>>>,
    ended: Receiver<()>,
    runtime: Runtime,
}

impl Arena {
    fn start(seed: u64) -> Self {
        let cluster = Cluster::start(&[]).unwrap();
        let database = cluster.database().unwrap();
        let bouncer = Bouncer::start(&cluster, 6).unwrap();
        let urls = [cluster.url(&database), bouncer.url(&database)];
        let server = |url| Server::builder().config(cells(GROUPS * CELLS_PER_GROUP)).arg("--store").arg(url).start();
        let servers: Vec<_> = urls.into_iter().map(|url| server(url).unwrap()).collect();
        let runtime = Runtime::new().unwrap();
        let links = Arc::new(Links::default());
        let (sender, ended) = channel();
        let mut arena = Self { cluster, database, bouncer, servers, links, fighters: Vec::new(), ended, runtime };
        [0, 1].into_iter().for_each(|server| arena.connect(server));
        let cells = (1..=GROUPS * CELLS_PER_GROUP).map(CellId).collect();
        let rules = Arc::new(Rules { catalogue: Catalogue::default(), cells });
        let epoch = Instant::now();
        for number in 0..GROUPS * CLIENTS_PER_GROUP {
            let (group, place) = (number / CLIENTS_PER_GROUP, number % CLIENTS_PER_GROUP);
            let fighter = Fighter {
                number,
                group,
                cell: 1 + group * CELLS_PER_GROUP + place % CELLS_PER_GROUP,
                keyless: place < CELLS_PER_GROUP,
                rng: SmallRng::seed_from_u64(seed.wrapping_add(number.cast_unsigned())),
                links: arena.links.clone(),
                rules: rules.clone(),
                epoch,
                next: 0,
                seen: BTreeMap::new(),
                keyed: Vec::new(),
                log: Vec::new(),
                _end: End(sender.clone()),
            };
            arena.fighters.push(arena.runtime.spawn(fighter.fight()));
        }
        arena
    }

    fn connect(&self, server: usize) {
        let channel = self.runtime.block_on(self.servers[server].connect(None)).unwrap();
        self.links.set(server, Some(channel));
    }

    /// Lets them fight. A client that ends has seen something wrong.
    fn go_on(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let ended = self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        assert_eq!(ended, Err(RecvTimeoutError::Timeout), "a client has ended");
    }

    /// Waits until both servers answer.
    fn await_answers(&self) {
        let answered = |server: usize| self.links.answered[server].load(Ordering::Relaxed);
        let before = [answered(0), answered(1)];
        let deadline = Instant::now() + RECOVERY;
        while !(0..2).all(|server| answered(server) > before[server] + 100) {
            assert!(Instant::now() < deadline, "a server no longer answers: {before:?}, {:?}", self.links.answered);
            self.go_on(Duration::from_millis(10));
        }
    }

    fn kill(&mut self, server: usize) {
        self.servers[server].kill_9().unwrap();
        self.links.set(server, None);
        self.servers[server].restart().unwrap();
        self.connect(server);
    }

    fn crash_database(&mut self) {
        self.cluster.crash().unwrap();
        self.cluster.start_again().unwrap();
    }

    /// Ends the fight: what everybody did, and what is there when nothing is under way any more.
    fn end(mut self) -> (Vec<Vec<Operation>>, State) {
        self.links.stop.store(true, Ordering::Relaxed);
        let fighters = std::mem::take(&mut self.fighters);
        let histories = fighters.into_iter().map(|fighter| self.runtime.block_on(fighter).unwrap()).collect();
        for server in &mut self.servers {
            assert!(server.terminate().unwrap().success(), "{}", server.stderr());
        }
        drop(self.bouncer);
        (histories, final_state(&self.cluster, &self.database))
    }
}

/// One group's part of a state.
fn part(state: &State, group: i64) -> State {
    let prefix = format!("g{group}-");
    let claims = state.claims.iter().filter(|(key, _)| key.canonical.starts_with(&prefix));
    let leases = state.leases.iter().filter(|(_, lease)| group_of_cell(lease.cell) == group);
    let replays = state.replays.iter().filter(|(key, _)| group_of_cell(key.cell) == group);
    State {
        claims: claims.map(|(key, claim)| (key.clone(), claim.clone())).collect(),
        leases: leases.map(|(id, lease)| (*id, lease.clone())).collect(),
        replays: replays.map(|(key, replay)| (key.clone(), replay.clone())).collect(),
        fence: state.fence,
    }
}

/// How often each kind of answer came, so that a fight which is none is seen.
fn tally(history: &[Operation]) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for operation in history {
        let action = match &operation.action {
            Action::Command(Command::Begin(_)) => "begin",
            Action::Command(Command::Settle(_)) => "settle",
            Action::Command(Command::Forget(_)) => "forget",
            Action::Get(_) => "get",
            Action::List(_) => "list",
        };
        let answer = match &operation.answer {
            Answer::Refused(refused) => refused.reason.as_str(),
            Answer::Unknown => "unknown",
            _ => "OK",
        };
        *tally.entry(format!("{action} {answer}")).or_default() += 1;
    }
    tally
}

#[test]
fn every_answer_agrees_with_some_order() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seed = number("SEED").unwrap_or_else(rand::random);
    let seconds = number("LEASEHOLD_FIGHT_SECONDS").unwrap_or(SECONDS);
    println!("SEED={seed}");
    let mut arena = Arena::start(seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    let pause = Duration::from_secs(seconds.clamp(5, 20) / 5);
    let mut faulted = 0;
    let faults: [fn(&mut Arena); 3] = [|arena| arena.kill(0), Arena::crash_database, |arena| arena.kill(1)];
    for fault in faults.iter().cycle() {
        arena.go_on(pause);
        if Instant::now() >= end {
            break;
        }
        fault(&mut arena);
        faulted += 1;
        arena.await_answers();
    }
    let (histories, state) = arena.end();
    invariant::check(&state).unwrap();
    let all = histories.concat();
    let tally = tally(&all);
    println!("{} operations: {tally:#?}", all.len());
    println!("counts: {{\"operations\":{},\"faults\":{faulted}}}", all.len());
    for kind in ["begin OK", "begin CLAIM_BUSY", "begin CLAIM_TAKEN", "begin unknown", "settle OK", "settle unknown"] {
        assert!(tally.contains_key(kind), "there was no `{kind}`");
    }
    let all = resolve(all, &state).unwrap();
    check_leases(&all, &state).unwrap();
    check_groups(&histories, &state);
}

/// Writes a history down, one operation a line in the order of their calls, and says where.
fn kept(history: &[Operation]) -> String {
    let mut operations: Vec<_> = history.iter().collect();
    operations.sort_by_key(|operation| operation.called);
    let lines: Vec<_> = operations.iter().map(ToString::to_string).collect();
    let (_, path) = tempfile::NamedTempFile::with_prefix("fight-").unwrap().keep().unwrap();
    std::fs::write(&path, lines.join("\n")).unwrap();
    format!("the whole history: `{}`", path.display())
}

fn check_groups(histories: &[Vec<Operation>], state: &State) {
    let check = |(group, histories): (i64, &[Vec<Operation>])| {
        let part = part(state, group);
        let history = resolve(histories.concat(), &part).unwrap();
        order::check(&history, &part).map_err(|disorder| format!("group {group}: {disorder}\n{}", kept(&history)))
    };
    let started = Instant::now();
    let groups = (0..).zip(histories.chunks(usize::try_from(CLIENTS_PER_GROUP).unwrap()));
    std::thread::scope(|scope| {
        let checks: Vec<_> = groups.map(|group| scope.spawn(move || check(group))).collect();
        for checked in checks {
            if let Err(disorder) = checked.join().unwrap() {
                panic!("{disorder}");
            }
        }
    });
    println!("checked in {:?}", started.elapsed());
}
