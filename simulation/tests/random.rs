//! Random worlds with faults: nothing is broken while the rules are on, and what breaks without one is found by chance,
//! too.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use leasehold_simulation::calm::{self, Unrest};
use leasehold_simulation::check::{self, Violation};
use leasehold_simulation::event::{Change, Event, Process};
use leasehold_simulation::scheduler::Chance;
use leasehold_simulation::script::Script;
use leasehold_simulation::settings::{Clock, Mode, Rates, Rule, RulesOff, Settings, Thresholds};
use leasehold_simulation::trace::Trace;
use leasehold_simulation::worker::Phase;
use leasehold_simulation::world::World;

/// How many worlds there are in a test run; as WebAssembly fewer, since the same ones were played natively.
const WORLDS: u64 = if cfg!(target_family = "wasm") { 5000 } else { 100_000 };

/// Worlds of all kinds: sizes, modes, clocks, replicas, changes past the claims.
fn settings(seed: u64) -> Settings {
    use Mode::{BeforeCommit, LeaseFirst};
    let pick = |shift: u32, of: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) % of;
    let slow = Clock { ahead_seconds: -90, fast_ppm: -150_000 };
    let fast = Clock { ahead_seconds: 7000, fast_ppm: 150_000 };
    Settings {
        seed,
        cells: 1 + pick(10, 3) as u8,
        workers: 1 + pick(16, 3) as u8,
        reconcilers: 1 + pick(20, 2) as u8,
        names: 1 + pick(24, 4) as u8,
        modes: [vec![BeforeCommit], vec![LeaseFirst], vec![BeforeCommit, LeaseFirst]][pick(28, 3) as usize].clone(),
        clocks: [vec![Clock::default()], vec![slow, fast]][pick(32, 2) as usize].clone(),
        thresholds: Thresholds { replica_lag_seconds: [0, 60][pick(36, 2) as usize], ..Thresholds::default() },
        rates: Rates { drift: [0, 6][pick(40, 2) as usize], ..Rates::default() },
        ..Settings::default()
    }
}

/// What is wrong with a world after all trouble has ended.
fn complaint(world: &World, settled: Result<(), Unrest>) -> Option<String> {
    let found = world.violation().map(ToString::to_string);
    let found = found.or_else(|| settled.err().map(|unrest| unrest.to_string()));
    let found = found.or_else(|| calm::at_rest(world).err().map(|unrest| unrest.to_string()));
    found.or_else(|| check::everything(world).err().map(|violation| violation.to_string()))
}

/// Plays a world of chance for some events, then ends all trouble: it must come to rest, and both sides must agree.
/// Returns how many leases there were.
fn play(seed: u64, events: u32) -> u64 {
    let settings = settings(seed);
    let mut chance = Chance::new(&settings);
    let mut world = World::new(settings.clone()).unwrap();
    let mut trace = Trace::new(settings, Vec::new());
    for _ in 0..events {
        trace.events.push(chance.step(&mut world));
    }
    let settled = calm::settle(&mut world).map(|calming| trace.events.extend(calming));
    if let Some(complaint) = complaint(&world, settled) {
        let trace = trace.minimise().unwrap_or(trace);
        panic!("seed {seed}: {complaint}\n{}", trace.to_json().unwrap());
    }
    world.ghosts().len().into()
}

#[test]
fn worlds_with_faults_break_nothing_and_come_to_rest() {
    let leases: u64 = (0..WORLDS).map(|seed| play(seed, 100 + (seed % 300) as u32)).sum();
    assert!(leases > 2 * WORLDS, "{leases} leases in {WORLDS} worlds are few");
}

/// The violations that are of a state, not of an event: those that a look at everything finds, too.
fn is_of_state(violation: &Violation) -> bool {
    !matches!(violation, Violation::ToldWrongly { .. } | Violation::OwnObstacle)
}

/// What is checked after every event is only what it has touched: nothing else may have broken.
#[test]
fn looking_at_what_was_touched_finds_what_looking_at_everything_finds() {
    let mut violations = 0;
    for rule in Rule::ALL.into_iter().map(Some).chain([None]) {
        for seed in 0..600 {
            let rules_off = rule.map_or(RulesOff::default(), |rule| RulesOff::default().with(rule));
            let settings = Settings { rules_off, ..settings(seed) };
            let mut chance = Chance::new(&settings);
            let mut world = World::new(settings).unwrap();
            for _ in 0..250 {
                chance.step(&mut world);
                let (touched, everything) = (world.violation(), check::everything(&world));
                match touched {
                    None => assert_eq!(everything, Ok(()), "{rule:?} off, seed {seed}, event {}", world.events()),
                    Some(touched) => {
                        violations += u32::from(is_of_state(touched));
                        assert_eq!(everything.is_err(), is_of_state(touched), "{rule:?} off, seed {seed}: {touched}");
                        break;
                    }
                }
            }
        }
    }
    assert!(violations > 50, "{violations} violations are few");
}

/// How many of some random worlds break without a rule.
fn broken_without(rule: Rule, worlds: u64) -> usize {
    let breaks = |seed: &u64| {
        let rates = Rates { drift: 6, ..Rates::default() };
        let thresholds = Thresholds { replica_lag_seconds: 60, ..Thresholds::default() };
        let rules_off = RulesOff::default().with(rule);
        let settings = Settings { seed: *seed, rules_off, rates, thresholds, ..Settings::default() };
        let mut chance = Chance::new(&settings);
        let mut world = World::new(settings).unwrap();
        (0..400).for_each(|_| _ = chance.step(&mut world));
        world.violation().is_some()
    };
    (0..worlds).filter(breaks).count()
}

#[test]
fn chance_finds_what_breaks_without_a_rule() {
    for (rule, worlds) in [
        (Rule::LeaseExclusivity, 100),
        (Rule::Ownership, 1000),
        (Rule::SettledLeaseMemory, 100),
        (Rule::ReplayKeys, 100),
        (Rule::LocalFence, 2000),
        (Rule::SkipRecentClaims, 10_000),
    ] {
        let broken = broken_without(rule, worlds);
        assert!(broken > 0, "none of {worlds} worlds breaks without {rule:?}");
    }
}

#[test]
fn a_world_with_something_left_is_not_at_rest() {
    let world = |phase| {
        let mut script = Script::new(Settings::default()).unwrap();
        script.ask(1, 0, Change::Create(0)).until(1, 0, phase);
        script.event(Event::Crash { cell: 1, process: Process::Worker(0) });
        script.world().clone()
    };
    let left = |what| Err(Unrest::Left { what, cell: 1 });
    assert_eq!(calm::at_rest(&world(Phase::WriteLease)), left("outstanding leases"));
    assert_eq!(calm::at_rest(&world(Phase::DeleteRow)), left("lease rows"));
    assert_eq!(calm::at_rest(&world(Phase::AwaitDatabase)), left("outstanding leases"));
    assert_eq!(calm::at_rest(&world(Phase::AwaitBegin)), left("messages"));
    let drifted = |events: &[Event]| {
        let mut script = Script::new(Settings::default()).unwrap();
        script.save(1, 0, Change::Create(0));
        events.iter().for_each(|event| _ = script.event(*event));
        calm::at_rest(script.world())
    };
    use leasehold_simulation::event::Drift;
    let drift = |drift| Event::Drift { cell: 1, drift };
    assert_eq!(drifted(&[]), Ok(()));
    assert_eq!(drifted(&[drift(Drift::Insert(1))]), Err(Unrest::Unclaimed { cell: 1, row: 2 }));
    let renamed = drifted(&[drift(Drift::Rename { row: 1, name: 1 })]);
    assert_eq!(renamed, Err(Unrest::Extra { name: "alice".to_owned() }));
    assert_eq!(drifted(&[drift(Drift::Delete(1))]), Err(Unrest::Extra { name: "alice".to_owned() }));
}

#[test]
fn what_is_down_or_cut_off_comes_back_last_and_a_message_can_be_kept_waiting() {
    let mut script = Script::new(Settings::default()).unwrap();
    script.ask(1, 0, Change::Create(0)).until(1, 0, Phase::AwaitBegin);
    let message = script.world().network().messages()[0].id;
    let waits = Event::TimeOut { cell: 1, process: Process::Worker(0) };
    assert_eq!(calm::next(script.world(), None), Some(Event::Deliver(message)));
    assert_eq!(calm::next(script.world(), Some(message)), Some(waits));
    script.event(Event::Partition { cell: 1 }).event(Event::StopService);
    assert_eq!(calm::next(script.world(), None), Some(waits));
    script.event(Event::Crash { cell: 1, process: Process::Worker(0) });
    assert_eq!(calm::next(script.world(), None), Some(Event::StartService));
    script.event(Event::StartService);
    assert_eq!(calm::next(script.world(), None), Some(Event::Heal { cell: 1 }));
}
