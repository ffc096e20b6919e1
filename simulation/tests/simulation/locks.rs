//! Tests of worlds of sessions and locks: random worlds with faults, and every schedule of the
//! smallest worlds.

use std::collections::BTreeMap;

use leasehold_core::table::{LOCK, LockStatus, SESSION, SessionEvent};
use leasehold_simulation::check;
use leasehold_simulation::effects::Transition;
use leasehold_simulation::event::Event;
use leasehold_simulation::explorer::{Explorer, Plan};
use leasehold_simulation::lock_client::WorkPhase;
use leasehold_simulation::plans;
use leasehold_simulation::process::Process;
use leasehold_simulation::quiescence;
use leasehold_simulation::scheduler::RandomScheduler;
use leasehold_simulation::script::Script;
use leasehold_simulation::settings::{Clock, LockSettings, Mode, Rule, RulesOff, WorldSettings};
use leasehold_simulation::trace::Trace;
use leasehold_simulation::violation::Violation;
use leasehold_simulation::world::World;

use crate::parallel;

/// The number of random worlds. WebAssembly plays fewer, because the native tests play the same
/// worlds.
const WORLDS: u64 = if cfg!(target_family = "wasm") { 1000 } else { 20_000 };
/// The number of random events of a world.
const EVENTS: u32 = 240;

/// Returns settings that vary with the seed: the size, the terms of sessions and the clocks, which
/// run up to 5 % faster or slower than the service's.
fn settings(seed: u64) -> WorldSettings {
    let pick = |shift: u32, of: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) % of;
    let clock = |fast_ppm| Clock { ahead_seconds: 0, fast_ppm };
    let terms = [(4, 2, 1000), (2, 2, 1000), (3, 1, 500)][pick(10, 3) as usize];
    let locks = LockSettings {
        count: 1 + pick(14, 2) as u8,
        lanes: 0,
        duration_seconds: terms.0,
        grace_seconds: terms.1,
        tick_millis: terms.2,
    };
    WorldSettings {
        seed,
        cells: 2 + pick(20, 2) as u8,
        workers: 1,
        clocks: [vec![clock(0)], vec![clock(-50_000), clock(50_000)]][pick(28, 2) as usize].clone(),
        locks: Some(locks),
        ..WorldSettings::default()
    }
}

/// The number of times that each thing has happened in a world.
pub(crate) type Counts = BTreeMap<String, u64>;

fn count(counts: &mut Counts, world: &World, event: Event) {
    let mut add = |name: String| *counts.entry(name).or_default() += 1;
    match event {
        Event::Pause { .. } | Event::PauseService => add("pauses".to_owned()),
        Event::Partition { .. } => add("partitions".to_owned()),
        _ => {}
    }
    for transition in &world.effects().transitions {
        match transition {
            Transition::Session { from, event, .. } => add(format!("session_{from:?}_{event:?}")),
            Transition::Lock { from, event, .. } => add(format!("lock_{from:?}_{event:?}")),
            Transition::Claim { .. } | Transition::Lease { .. } | Transition::Request { .. } => {}
        }
    }
}

/// Returns the first violation or remaining work in a world after all faults have ended, as text.
pub(crate) fn complaint(world: &World, settled: Result<(), quiescence::NotQuiescent>) -> Option<String> {
    let found = world.violation().map(ToString::to_string);
    let found = found.or_else(|| settled.err().map(|reason| reason.to_string()));
    let found = found.or_else(|| quiescence::check(world).err().map(|reason| reason.to_string()));
    found.or_else(|| check::everything(world).err().map(|violation| violation.to_string()))
}

/// Plays a random world until it had a grant, a pause and a partition, at least for [`EVENTS`]
/// events. Then ends all faults: every lock must become free.
fn play(seed: u64) -> Counts {
    let settings = settings(seed);
    let (mut scheduler, mut world) = (RandomScheduler::new(&settings), World::new(settings.clone()).unwrap());
    let (mut trace, mut counts) = (Trace::new(settings, Vec::new()), Counts::new());
    let is_rich = |counts: &Counts| {
        let has = |name: &str| counts.keys().any(|key| key.ends_with(name));
        has("Grant") && has("pauses") && has("partitions")
    };
    while world.events() < u64::from(EVENTS) || !is_rich(&counts) {
        let event = scheduler.step(&mut world);
        trace.events.push(event);
        count(&mut counts, &world, event);
    }
    let settled = quiescence::reach(&mut world).map(|last| trace.events.extend(last));
    if let Some(complaint) = complaint(&world, settled) {
        let trace = trace.minimise().unwrap_or(trace);
        panic!("seed {seed}: {complaint}\n{}", trace.to_json().unwrap());
    }
    *counts.entry("events".to_owned()).or_default() += world.events();
    counts
}

/// Returns the first seed of the random worlds. `cargo xtask test --deep locks` sets `SEED` to the
/// number of its round, so that each round plays other worlds.
pub(crate) fn first_seed() -> u64 {
    let round: u64 = std::env::var("SEED").map_or(0, |round| round.parse().unwrap());
    round * WORLDS
}

/// Returns the names under which the edges of the engine's tables are counted. A renewal is written
/// only by a session that moves to another service, and a world has one service. It reaps no namespace and
/// shares no lock: the worlds of core's tests reach the other edges.
fn edges() -> Vec<String> {
    let sessions = SESSION.iter().filter(|edge| edge.event != SessionEvent::Renew);
    let sessions = sessions.map(|edge| format!("session_{:?}_{:?}", edge.from, edge.event));
    let is_played = |status| !matches!(status, LockStatus::Orphaned | LockStatus::SetAside | LockStatus::Divided);
    let locks = LOCK.iter().filter(|edge| is_played(edge.from) && is_played(edge.to));
    sessions.chain(locks.map(|edge| format!("lock_{:?}_{:?}", edge.from, edge.event))).collect()
}

#[test]
fn k06_random_worlds_of_locks_are_sound_and_become_quiescent() {
    let first = first_seed();
    let mut sum = Counts::new();
    for (name, count) in parallel::map(first..first + WORLDS, play).into_iter().flatten() {
        *sum.entry(name).or_default() += count;
    }
    sum.insert("worlds".to_owned(), WORLDS);
    println!("counts: {}", serde_json::to_string(&sum).unwrap());
    let fewest = if cfg!(target_family = "wasm") { 20 } else { 1000 };
    for edge in edges() {
        assert!(sum.get(&edge).copied().unwrap_or(0) >= fewest, "{edge}: {sum:?}");
    }
}

/// In the first of these worlds, an acquire was repeated while the leave of its ask was being decided, so
/// its caller was told a grant that ended. In the second one, the word that an operator took a lock came
/// before the late answer with its grant. In the one of seed 894175, a late acquire of a caller that was
/// gone came after its leave, and the service stopped before it let the ask leave again.
#[test]
fn k06_worlds_in_which_answers_cross_are_sound() {
    parallel::map([241_648, 202_870, 285_193, 543_725, 667_377, 748_646, 894_175, 909_241], play);
}

/// Returns the number of random worlds, among the usual ones, that break without a rule.
fn broken_without(rule: Rule, worlds: u64) -> usize {
    let breaks = |seed| {
        let settings = WorldSettings { rules_off: RulesOff::default().with(rule), ..settings(seed) };
        let mut scheduler = RandomScheduler::new(&settings);
        let mut world = World::new(settings).unwrap();
        (0..EVENTS).for_each(|_| _ = scheduler.step(&mut world));
        world.violation().is_some()
    };
    parallel::map(0..worlds, breaks).into_iter().filter(|is_broken| *is_broken).count()
}

const RULES: [Rule; 4] = [Rule::ObservedSilence, Rule::Grace, Rule::WholeDuration, Rule::FenceCheck];

#[test]
fn random_worlds_of_locks_find_the_failure_that_a_rule_prevents() {
    for rule in RULES {
        let broken = broken_without(rule, 1000);
        assert!(broken > 0, "no world breaks without {rule:?}");
    }
}

/// Explores all schedules of a plan and returns the finished search.
fn explore(plan: Plan) -> Explorer {
    let mut explorer = Explorer::new(plan).unwrap();
    while explorer.explore(1000) {}
    explorer
}

/// Asserts that the world of the rule's plan breaks without the rule, by a schedule of `events`
/// events and by no shorter one, and is sound with the rule. The plan's events `before` do not
/// count.
pub(crate) fn is_needed(rule: Rule, events: usize, is_expected: fn(&Violation) -> bool) {
    let plan = || plans::about(rule, Mode::BeforeCommit).unwrap();
    let explorer = explore(plans::without(rule, plan()));
    let found = explorer.counterexample().unwrap_or_else(|| panic!("nothing is broken without {rule:?}"));
    assert!(is_expected(&found.violation), "{}", found.violation);
    assert_eq!(found.trace.events.len() - plan().before.len(), events, "{}", found.trace.to_json().unwrap());
    assert_eq!(found.trace.replay().unwrap().violation(), Some(&found.violation));
    let explorer = explore(plan());
    assert_eq!(explorer.counterexample(), None, "with {rule:?}");
    assert!(explorer.progress().is_finished && !explorer.progress().is_cut_off);
}

#[test]
fn k06_without_observed_silence_a_jump_of_the_clock_passes_a_lock_on() {
    is_needed(Rule::ObservedSilence, 10, |found| matches!(found, Violation::PassedOn { .. }));
}

#[test]
fn k04_without_the_grace_a_lock_passes_on_under_its_holder() {
    is_needed(Rule::Grace, 11, |found| matches!(found, Violation::PassedOn { .. }));
}

#[test]
fn k07_without_a_whole_duration_a_restart_passes_a_lock_on() {
    is_needed(Rule::WholeDuration, 16, |found| matches!(found, Violation::PassedOn { .. }));
}

#[test]
fn k18_without_the_fence_check_a_former_holder_writes_last() {
    is_needed(Rule::FenceCheck, 16, |found| matches!(found, Violation::WrittenOutOfOrder { .. }));
}

/// Explores all schedules of a plan. None may break the world, and the search must find at least
/// `fewest_states` states.
pub(crate) fn is_sound(plan: Plan, fewest_states: u64) {
    let explorer = explore(plan);
    let progress = explorer.progress();
    assert_eq!(explorer.counterexample(), None);
    assert!(progress.is_finished && !progress.is_cut_off, "{progress:?}");
    assert!(progress.states >= fewest_states, "{progress:?}");
}

#[test]
fn k06_one_client_with_every_fault_is_sound_in_every_order() {
    is_sound(plans::one_holder(), 95_000);
}

#[test]
fn k06_two_clients_that_want_one_lock_are_sound_in_every_order() {
    is_sound(plans::one_lock().unwrap(), 130_000);
}

/// K09: the late copy of an acquire, whose call is closed, does not make the holder's ask leave: the
/// holder knows of its grant by the first copy.
#[test]
fn k09_a_late_copy_of_an_acquire_takes_no_lock_from_its_holder() {
    let settings = WorldSettings { cells: 1, locks: Some(LockSettings::default()), ..WorldSettings::default() };
    let mut script = Script::new(settings).unwrap();
    script.event(Event::Work { cell: 1, lock: 0 }).run_client_until(1, WorkPhase::AwaitGrant);
    let acquire = script.request(1, Process::Client).unwrap();
    script.event(Event::Duplicate(acquire)).event(Event::Deliver(acquire));
    script.event(Event::Deliver(acquire.answer())).event(Event::Deliver(acquire.copy(1).unwrap()));
    let is_held = |script: &Script| script.world().client(1).unwrap().task.unwrap().phase == WorkPhase::Check;
    assert!(is_held(&script) && script.world().network().messages().is_empty());
    for _ in 0..15 {
        script.run(1, Process::Keepalive).event(Event::Tick).event(Event::Decide);
    }
    assert_eq!(script.world().violation(), None);
    assert!(is_held(&script));
}
