//! Tests of begins without an idempotency key whose answers never leave the service (B25).

use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::reconcile::Settled;
use leasehold_simulation::check;
use leasehold_simulation::effects::Effects;
use leasehold_simulation::event::{Change, Event};
use leasehold_simulation::event_text;
use leasehold_simulation::names::lease_id;
use leasehold_simulation::network::{MessageId, Request, Response};
use leasehold_simulation::possible;
use leasehold_simulation::process::Process;
use leasehold_simulation::quiescence;
use leasehold_simulation::scheduler::RandomScheduler;
use leasehold_simulation::script::Script;
use leasehold_simulation::service::CallContext;
use leasehold_simulation::settings::{Mode, Rates, Rule, RulesOff, WorldSettings};
use leasehold_simulation::view::View;
use leasehold_simulation::violation::Violation;
use leasehold_simulation::worker::{Phase, SaveResult};
use leasehold_simulation::world::World;

use crate::parallel;

const WORKER: Process = Process::Worker(0);
const TIME_OUT: Event = Event::TimeOut { cell: 1, process: WORKER };

/// The number of random worlds of each kind.
const WORLDS: u64 = if cfg!(target_family = "wasm") { 500 } else { 3000 };

fn without_keys(seed: u64) -> WorldSettings {
    let rules_off = RulesOff::default().with(Rule::ReplayKeys);
    let modes = vec![Mode::BeforeCommit, Mode::LeaseFirst];
    let rates = Rates { drop: 60, restart: 24, drift: [0, 6][seed as usize % 2], ..Rates::default() };
    WorldSettings { seed, rules_off, modes, rates, ..WorldSettings::default() }
}

/// Returns a world in which the answer to a worker's begin is in flight, and the id of the answer.
fn begun(settings: WorldSettings) -> (Script, MessageId) {
    let mut script = Script::new(settings).unwrap();
    script.request_save(1, 0, Change::Create(0)).run_worker_until(1, 0, Phase::AwaitBegin).deliver_request(1, WORKER);
    let answer = script.answer(1, WORKER).unwrap();
    (script, answer)
}

fn settled(world: &World, lease: u32) -> Option<Outcome> {
    world.ground_truth().lease(lease_id(lease)).unwrap().settled.map(|(outcome, _)| outcome)
}

fn result(world: &World) -> Option<SaveResult> {
    world.cell(1).unwrap().workers[0].last_result
}

#[test]
fn b25_a_repeated_begin_takes_the_lease_of_a_cancelled_call_back() {
    let (mut script, answer) = begun(without_keys(0));
    let says = event_text::describe(script.world(), Event::CancelCall(answer));
    let expected = "the service finds the call of cell 1's worker 0 cancelled before its answer leaves: begun, fence 1";
    assert_eq!(says, expected);
    script.event(Event::CancelCall(answer));
    assert_eq!(View::of(script.world()).take_backs, [lease_id(1)]);
    script.event(TIME_OUT).event(Event::Step { cell: 1, process: WORKER });
    let says = event_text::describe(script.world(), Event::Deliver(script.request(1, WORKER).unwrap()));
    assert!(says.ends_with(", rolls back lease 1, which no caller can know, and answers: begun, fence 2"), "{says}");
    script.run(1, WORKER);
    assert_eq!(result(script.world()), Some(SaveResult::Saved));
    let outcomes = [1, 2].map(|lease| settled(script.world(), lease));
    assert_eq!(outcomes, [Some(Outcome::RolledBack), Some(Outcome::Committed)]);
    assert_eq!((script.world().violation(), quiescence::check(script.world())), (None, Ok(())));
}

/// An answer that is lost in the network has left the service, which then keeps the lease.
#[test]
fn b09_b25_a_begin_whose_answer_is_lost_in_the_network_is_not_taken_back() {
    let (mut script, _) = begun(without_keys(0));
    script.lose_answer(1, WORKER).run(1, WORKER);
    assert_eq!(script.world().violation(), Some(&Violation::OwnObstacle));
    assert_eq!(settled(script.world(), 1), None);
}

/// Returns the service's answer to a commit of a lease by cell 1.
fn commit(world: &World, lease: LeaseId) -> Response {
    let (mut ground_truth, mut effects) = (world.ground_truth().clone(), Effects::default());
    let mut call = CallContext {
        cell: 1,
        now: world.service_now(),
        rules_off: world.settings().rules_off,
        names: world.names(),
        ground_truth: &mut ground_truth,
        effects: &mut effects,
    };
    world.service().clone().answer(&Request::Settle { lease, outcome: Outcome::Committed }, &mut call)
}

#[test]
fn b25_a_lease_that_was_taken_back_is_remembered_as_rolled_back() {
    let (mut script, answer) = begun(without_keys(0));
    script.event(Event::CancelCall(answer));
    assert!(possible::events(script.world()).contains(&Event::TakeBack));
    assert_eq!(quiescence::next_event(script.world(), None), Some(Event::TakeBack));
    let says = event_text::describe(script.world(), Event::TakeBack);
    assert_eq!(says, "the service rolls back lease 1, which no caller can know");
    script.event(Event::TakeBack);
    assert_eq!(commit(script.world(), lease_id(1)), Response::Settled(Settled::RolledBack));
    assert!(!script.world().is_possible(Event::TakeBack));
}

#[test]
fn b25_an_answer_that_has_left_or_has_a_key_is_not_cancelled() {
    let (script, answer) = begun(WorldSettings::default());
    assert!(!script.world().is_possible(Event::CancelCall(answer)), "its caller has a key");
    let (mut script, answer) = begun(without_keys(0));
    assert!(script.world().is_possible(Event::CancelCall(answer)));
    script.event(Event::Duplicate(answer));
    for id in [answer, answer.copy(1).unwrap()] {
        assert!(!script.world().is_possible(Event::CancelCall(id)), "{id} has left the service");
    }
    let (mut script, answer) = begun(without_keys(0));
    script.event(Event::StopService).event(Event::StartService);
    assert!(!script.world().is_possible(Event::CancelCall(answer)), "the service has forgotten it");
}

#[test]
fn b25_a_stop_of_the_service_leaves_the_lease_to_reconciliation() {
    let (mut script, answer) = begun(without_keys(0));
    script.event(Event::CancelCall(answer)).event(Event::StopService).event(Event::StartService);
    assert!(!script.world().is_possible(Event::TakeBack));
    script.event(Event::Crash { cell: 1, process: WORKER }).wait(700).run(1, Process::Reconciler(0));
    assert_eq!(settled(script.world(), 1), Some(Outcome::RolledBack));
}

/// The numbers of events in random worlds.
#[derive(Debug, Default)]
struct Counts {
    cancels: u32,
    take_backs: u32,
    take_backs_by_begins: u32,
    duplicates: u32,
    forgotten: u32,
    obstacles: u32,
}

impl Counts {
    fn add(&mut self, event: Event, before: &World, after: &World) {
        let undelivered = before.service().undelivered();
        let cancels = |id: MessageId| before.is_possible(Event::CancelCall(id));
        let taken_back = after.effects().taken_back.len() as u32;
        match event {
            Event::CancelCall(_) => self.cancels += 1,
            Event::TakeBack => self.take_backs += taken_back,
            Event::Deliver(_) => self.take_backs_by_begins += taken_back,
            Event::Duplicate(id) => self.duplicates += u32::from(cancels(id)),
            Event::StopService => self.forgotten += undelivered.take_backs().len() as u32,
            _ => {}
        }
    }

    fn sum(mut self, other: Self) -> Self {
        self.cancels += other.cancels;
        self.take_backs += other.take_backs;
        self.take_backs_by_begins += other.take_backs_by_begins;
        self.duplicates += other.duplicates;
        self.forgotten += other.forgotten;
        self.obstacles += other.obstacles;
        self
    }
}

/// Plays a random world without keys. After each event, the world's state must be sound. Only one
/// violation may occur, because keys would prevent it: a save is refused because of its own first
/// attempt.
fn play(seed: u64) -> Counts {
    let settings = without_keys(seed);
    let mut scheduler = RandomScheduler::new(&settings);
    let mut world = World::new(settings).unwrap();
    let mut counts = Counts::default();
    for _ in 0..300 {
        let before = world.clone();
        let event = scheduler.step(&mut world);
        counts.add(event, &before, &world);
        assert_eq!(check::everything(&world), Ok(()), "seed {seed}, event {}", world.events());
    }
    quiescence::reach(&mut world).unwrap();
    assert_eq!(quiescence::check(&world), Ok(()), "seed {seed}");
    assert!(matches!(world.violation(), None | Some(Violation::OwnObstacle)), "seed {seed}: {:?}", world.violation());
    counts.obstacles = world.violation().is_some().into();
    counts
}

#[test]
fn b25_random_worlds_without_keys_break_no_other_promise() {
    let counts = parallel::map(0..WORLDS, play).into_iter().fold(Counts::default(), Counts::sum);
    println!("counts: {counts:?}");
    let Counts { cancels, take_backs, take_backs_by_begins, duplicates, forgotten, obstacles } = counts;
    let seen = [cancels, take_backs, take_backs_by_begins, duplicates, forgotten, obstacles];
    assert!(seen.into_iter().all(|count| u64::from(count) >= WORLDS / 100), "{counts:?}");
}

/// Returns the events that happen in place of `event` if the service notices every caller that
/// stops waiting for the answer to its begin. If the begin is undecided, its request is dropped. If
/// it is decided, its answer is cancelled.
fn noticed(world: &World, event: Event) -> Vec<Event> {
    let (cell, process) = match event {
        Event::TimeOut { cell, process } => (cell, process),
        Event::Drop(id) if world.is_possible(Event::CancelCall(id)) => return vec![Event::CancelCall(id)],
        _ => return vec![event],
    };
    let messages = world.network().messages().iter().map(|message| message.id);
    let own = messages.filter(|id| (id.cell(), id.process()) == (cell, process));
    let lost =
        own.map(|id| if world.is_possible(Event::CancelCall(id)) { Event::CancelCall(id) } else { Event::Drop(id) });
    lost.chain([event]).collect()
}

/// Plays a random world without keys in which the service notices every caller that has gone, and
/// neither stops nor gets a request twice. Returns the number of leases taken back.
fn play_noticed(seed: u64) -> u32 {
    let settings = without_keys(seed);
    let settings = WorldSettings { rates: Rates { restart: 0, duplicate: 0, ..settings.rates }, ..settings };
    let mut scheduler = RandomScheduler::new(&settings);
    let mut world = World::new(settings).unwrap();
    let mut taken_back = 0;
    for _ in 0..300 {
        for event in noticed(&world, scheduler.choose(&world)) {
            world.apply(event).unwrap();
            taken_back += world.effects().taken_back.len() as u32;
        }
    }
    quiescence::reach(&mut world).unwrap();
    assert_eq!((world.violation(), quiescence::check(&world)), (None, Ok(())), "seed {seed}");
    taken_back
}

#[test]
fn b25_no_save_meets_its_own_lease_if_the_service_notices_every_caller_that_has_gone() {
    let taken_back: u32 = parallel::map(0..WORLDS, play_noticed).into_iter().sum();
    println!("counts: {{\"worlds\":{WORLDS},\"taken_back\":{taken_back}}}");
    assert!(u64::from(taken_back) > WORLDS / 4, "{taken_back} leases taken back are too few");
}
