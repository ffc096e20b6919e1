//! Tests of random worlds with faults. With all rules on, no world breaks. With a rule off, some
//! random runs find the failure that the rule prevents.

use leasehold_simulation::check;
use leasehold_simulation::event::{Change, Event};
use leasehold_simulation::process::Process;
use leasehold_simulation::quiescence::{self, NotQuiescent};
use leasehold_simulation::scheduler::RandomScheduler;
use leasehold_simulation::script::Script;
use leasehold_simulation::settings::{Clock, Mode, Rates, Rule, RulesOff, Thresholds, WorldSettings};
use leasehold_simulation::trace::Trace;
use leasehold_simulation::violation::Violation;
use leasehold_simulation::worker::Phase;
use leasehold_simulation::world::World;

use crate::parallel;

/// The number of random worlds. WebAssembly plays fewer, because the native tests play the same
/// worlds.
const WORLDS: u64 = if cfg!(target_family = "wasm") { 5000 } else { 100_000 };

/// Returns settings that vary with the seed: the size, the modes, the clocks, the replica's lag and
/// the changes by plain SQL.
fn settings(seed: u64) -> WorldSettings {
    use Mode::{BeforeCommit, LeaseFirst};
    let pick = |shift: u32, of: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) % of;
    let slow = Clock { ahead_seconds: -90, fast_ppm: -150_000 };
    let fast = Clock { ahead_seconds: 7000, fast_ppm: 150_000 };
    WorldSettings {
        seed,
        cells: 1 + pick(10, 3) as u8,
        workers: 1 + pick(16, 3) as u8,
        reconcilers: 1 + pick(20, 2) as u8,
        names: 1 + pick(24, 4) as u8,
        modes: [vec![BeforeCommit], vec![LeaseFirst], vec![BeforeCommit, LeaseFirst]][pick(28, 3) as usize].clone(),
        clocks: [vec![Clock::default()], vec![slow, fast]][pick(32, 2) as usize].clone(),
        thresholds: Thresholds { replica_lag_seconds: [0, 60][pick(36, 2) as usize], ..Thresholds::default() },
        rates: Rates { drift: [0, 6][pick(40, 2) as usize], ..Rates::default() },
        ..WorldSettings::default()
    }
}

/// Returns the first violation or remaining work in a world after all faults have ended, as text.
/// Returns `None` if the world is sound.
fn complaint(world: &World, settled: Result<(), NotQuiescent>) -> Option<String> {
    let found = world.violation().map(ToString::to_string);
    let found = found.or_else(|| settled.err().map(|reason| reason.to_string()));
    let found = found.or_else(|| quiescence::check(world).err().map(|reason| reason.to_string()));
    found.or_else(|| check::everything(world).err().map(|violation| violation.to_string()))
}

/// Plays a random world for some events, then ends all faults. The world must become quiescent, and
/// rows and claims must agree. Returns the number of leases.
fn play(seed: u64, events: u32) -> u64 {
    let settings = settings(seed);
    let mut scheduler = RandomScheduler::new(&settings);
    let mut world = World::new(settings.clone()).unwrap();
    let mut trace = Trace::new(settings, Vec::new());
    for _ in 0..events {
        trace.events.push(scheduler.step(&mut world));
    }
    let settled = quiescence::reach(&mut world).map(|last| trace.events.extend(last));
    if let Some(complaint) = complaint(&world, settled) {
        let trace = trace.minimise().unwrap_or(trace);
        panic!("seed {seed}: {complaint}\n{}", trace.to_json().unwrap());
    }
    world.ground_truth().len().into()
}

/// Returns the first seed of the random worlds. `cargo xtask test --deep worlds` sets `SEED` to the
/// number of its round, so that each round plays other worlds.
fn first_seed() -> u64 {
    let round: u64 = std::env::var("SEED").map_or(0, |round| round.parse().unwrap());
    round * WORLDS
}

#[test]
fn random_worlds_with_faults_are_sound_and_become_quiescent() {
    let first = first_seed();
    let played = parallel::map(first..first + WORLDS, |seed| play(seed, 100 + (seed % 300) as u32));
    let leases: u64 = played.into_iter().sum();
    println!("counts: {{\"worlds\":{WORLDS},\"leases\":{leases}}}");
    assert!(leases > 2 * WORLDS, "{leases} leases in {WORLDS} worlds are too few");
}

/// Returns true if the violated condition concerns the state of the world. The other conditions
/// concern one event, so a check of the whole state cannot find their violations.
fn is_of_state(violation: &Violation) -> bool {
    !matches!(violation, Violation::ToldWrongly { .. } | Violation::OwnObstacle)
}

/// Plays a random world and compares the check of each event's changes with the check of the whole
/// world. Returns true if both found a violation.
fn both_checks_agree(rule: Option<Rule>, seed: u64) -> bool {
    let rules_off = rule.map_or(RulesOff::default(), |rule| RulesOff::default().with(rule));
    let settings = WorldSettings { rules_off, ..settings(seed) };
    let mut scheduler = RandomScheduler::new(&settings);
    let mut world = World::new(settings).unwrap();
    for _ in 0..250 {
        scheduler.step(&mut world);
        let (found, everything) = (world.violation(), check::everything(&world));
        match found {
            None => assert_eq!(everything, Ok(()), "{rule:?} off, seed {seed}, event {}", world.events()),
            Some(found) => {
                assert_eq!(everything.is_err(), is_of_state(found), "{rule:?} off, seed {seed}: {found}");
                return is_of_state(found);
            }
        }
    }
    false
}

#[test]
fn checking_changes_finds_what_checking_the_whole_world_finds() {
    let rules = Rule::ALL.into_iter().map(Some).chain([None]);
    let worlds = rules.flat_map(|rule| (0..600).map(move |seed| (rule, seed)));
    let violated = parallel::map(worlds, |(rule, seed)| both_checks_agree(rule, seed));
    let violations = violated.into_iter().filter(|is_violated| *is_violated).count();
    assert!(violations > 50, "{violations} violations are too few");
}

/// Returns the number of random worlds that break without a rule.
fn broken_without(rule: Rule, worlds: u64) -> usize {
    let breaks = |seed| {
        let rates = Rates { drift: 6, ..Rates::default() };
        let thresholds = Thresholds { replica_lag_seconds: 60, ..Thresholds::default() };
        let rules_off = RulesOff::default().with(rule);
        let settings = WorldSettings { seed, rules_off, rates, thresholds, ..WorldSettings::default() };
        let mut scheduler = RandomScheduler::new(&settings);
        let mut world = World::new(settings).unwrap();
        (0..400).for_each(|_| _ = scheduler.step(&mut world));
        world.violation().is_some()
    };
    parallel::map(0..worlds, breaks).into_iter().filter(|is_broken| *is_broken).count()
}

#[test]
fn random_runs_find_the_failure_that_a_rule_prevents() {
    for (rule, worlds) in [
        (Rule::LeaseExclusivity, 100),
        (Rule::Ownership, 1000),
        (Rule::SettledLeaseMemory, 100),
        (Rule::ReplayKeys, 100),
        (Rule::CommitGuard, 2000),
        (Rule::SkipRecentClaims, 10_000),
    ] {
        let broken = broken_without(rule, worlds);
        assert!(broken > 0, "none of {worlds} worlds breaks without {rule:?}");
    }
}

#[test]
fn a_world_with_unfinished_work_is_not_quiescent() {
    let world = |phase| {
        let mut script = Script::new(WorldSettings::default()).unwrap();
        script.request_save(1, 0, Change::Create(0)).run_worker_until(1, 0, phase);
        script.event(Event::Crash { cell: 1, process: Process::Worker(0) });
        script.world().clone()
    };
    let left = |what| Err(NotQuiescent::Remaining { what, cell: 1 });
    assert_eq!(quiescence::check(&world(Phase::WriteLease)), left("outstanding leases"));
    assert_eq!(quiescence::check(&world(Phase::DeleteRow)), left("lease rows"));
    assert_eq!(quiescence::check(&world(Phase::AwaitDatabase)), left("outstanding leases"));
    assert_eq!(quiescence::check(&world(Phase::AwaitBegin)), left("messages"));
    let drifted = |events: &[Event]| {
        let mut script = Script::new(WorldSettings::default()).unwrap();
        script.save(1, 0, Change::Create(0));
        events.iter().for_each(|event| _ = script.event(*event));
        quiescence::check(script.world())
    };
    use leasehold_simulation::event::Drift;
    let drift = |drift| Event::Drift { cell: 1, drift };
    assert_eq!(drifted(&[]), Ok(()));
    assert_eq!(drifted(&[drift(Drift::Insert(1))]), Err(NotQuiescent::Unclaimed { cell: 1, row: 2 }));
    let renamed = drifted(&[drift(Drift::Rename { row: 1, name: 1 })]);
    assert_eq!(renamed, Err(NotQuiescent::Extra { name: "alice".to_owned() }));
    assert_eq!(drifted(&[drift(Drift::Delete(1))]), Err(NotQuiescent::Extra { name: "alice".to_owned() }));
}

#[test]
fn the_service_and_the_network_recover_last_and_one_message_can_be_held_back() {
    let mut script = Script::new(WorldSettings::default()).unwrap();
    script.request_save(1, 0, Change::Create(0)).run_worker_until(1, 0, Phase::AwaitBegin);
    let message = script.world().network().messages()[0].id;
    let waits = Event::TimeOut { cell: 1, process: Process::Worker(0) };
    assert_eq!(quiescence::next_event(script.world(), None), Some(Event::Deliver(message)));
    assert_eq!(quiescence::next_event(script.world(), Some(message)), Some(waits));
    script.event(Event::Partition { cell: 1 }).event(Event::StopService);
    assert_eq!(quiescence::next_event(script.world(), None), Some(waits));
    script.event(Event::Crash { cell: 1, process: Process::Worker(0) });
    assert_eq!(quiescence::next_event(script.world(), None), Some(Event::StartService));
    script.event(Event::StartService);
    assert_eq!(quiescence::next_event(script.world(), None), Some(Event::Heal { cell: 1 }));
}
