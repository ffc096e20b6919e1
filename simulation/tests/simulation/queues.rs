//! Tests of worlds of a queue: random worlds with faults, and every schedule of the smallest worlds.

use leasehold_core::table::{REQUEST, RequestEvent};
use leasehold_simulation::effects::Transition;
use leasehold_simulation::event::Event;
use leasehold_simulation::lock_client::{WorkPhase, WorkResult};
use leasehold_simulation::plans;
use leasehold_simulation::process::Process;
use leasehold_simulation::queue_message::WorkKind;
use leasehold_simulation::quiescence;
use leasehold_simulation::scheduler::RandomScheduler;
use leasehold_simulation::script::Script;
use leasehold_simulation::settings::{LockSettings, Rule, RulesOff, WorldSettings};
use leasehold_simulation::trace::Trace;
use leasehold_simulation::violation::Violation;
use leasehold_simulation::world::World;

use crate::locks::{Counts, complaint, first_seed, is_needed, is_sound};
use crate::parallel;

/// The number of random worlds. WebAssembly plays fewer, because the native tests play the same
/// worlds.
const WORLDS: u64 = if cfg!(target_family = "wasm") { 500 } else { 10_000 };
/// The number of random events of a world.
const EVENTS: u32 = 300;
const BLUE: u8 = 0;

/// Returns settings that vary with the seed: the number of cells and lanes, and the terms of sessions.
fn settings(seed: u64) -> WorldSettings {
    let pick = |shift: u32, of: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) % of;
    let terms = [(4, 2, 1000), (2, 2, 1000), (3, 1, 500)][pick(10, 3) as usize];
    let locks = LockSettings {
        count: 0,
        lanes: 1 + pick(14, 3) as u8,
        duration_seconds: terms.0,
        grace_seconds: terms.1,
        tick_millis: terms.2,
    };
    WorldSettings { seed, cells: 2 + pick(20, 2) as u8, workers: 1, locks: Some(locks), ..WorldSettings::default() }
}

/// Plays a random world, then ends all faults: every request must be settled.
fn play(seed: u64) -> Counts {
    let settings = settings(seed);
    let (mut scheduler, mut world) = (RandomScheduler::new(&settings), World::new(settings.clone()).unwrap());
    let (mut trace, mut counts) = (Trace::new(settings, Vec::new()), Counts::new());
    for _ in 0..EVENTS {
        trace.events.push(scheduler.step(&mut world));
        count(&mut counts, &world);
    }
    let settled = quiescence::reach(&mut world).map(|last| trace.events.extend(last));
    if let Some(complaint) = complaint(&world, settled) {
        let trace = trace.minimise().unwrap_or(trace);
        panic!("seed {seed}: {complaint}\n{}", trace.to_json().unwrap());
    }
    *counts.entry("events".to_owned()).or_default() += world.events();
    counts
}

fn count(counts: &mut Counts, world: &World) {
    let mut add = |name: String| *counts.entry(name).or_default() += 1;
    for transition in &world.effects().transitions {
        if let Transition::Request { from, event, .. } = transition {
            add(format!("request_{from:?}_{event:?}"));
        }
    }
    if world.effects().deadly_batch.is_some() {
        add("deaths".to_owned());
    }
    if world.effects().settle_reply.is_some_and(|reply| reply.is_refused) {
        add("refused_settles".to_owned());
    }
}

/// Returns the names under which the edges of the engine's table are counted. The world withdraws,
/// resubmits and forgets no request: core's tests reach these edges.
fn edges() -> impl Iterator<Item = String> {
    use RequestEvent::{Forget, Resubmit, Withdraw};
    let edges = REQUEST.iter().filter(|edge| !matches!(edge.event, Withdraw | Resubmit | Forget));
    edges.map(|edge| format!("request_{:?}_{:?}", edge.from, edge.event))
}

#[test]
fn q01_q03_q11_random_worlds_of_a_queue_are_sound_and_settle_every_request() {
    let first = first_seed();
    let mut sum = Counts::new();
    for (name, count) in parallel::map(first..first + WORLDS, play).into_iter().flatten() {
        *sum.entry(name).or_default() += count;
    }
    println!("counts: {}", serde_json::to_string(&sum).unwrap());
    let fewest = if cfg!(target_family = "wasm") { 10 } else { 200 };
    for edge in edges().chain(["deaths".to_owned()]) {
        assert!(sum.get(&edge).copied().unwrap_or(0) >= fewest, "{edge}: {sum:?}");
    }
}

#[test]
fn random_worlds_of_a_queue_find_the_failure_that_a_rule_prevents() {
    for rule in
        [Rule::OneWorker, Rule::SharedLane, Rule::EarlyCount, Rule::SettleFence, Rule::SettleMemory, Rule::RequestIds]
    {
        let breaks = |seed| {
            let settings = WorldSettings { rules_off: RulesOff::default().with(rule), ..settings(seed) };
            let mut scheduler = RandomScheduler::new(&settings);
            let mut world = World::new(settings).unwrap();
            (0..EVENTS).for_each(|_| _ = scheduler.step(&mut world));
            world.violation().is_some()
        };
        let broken = parallel::map(0..1000, breaks).into_iter().filter(|is_broken| *is_broken).count();
        assert!(broken > 0, "no world breaks without {rule:?}");
    }
}

#[test]
fn q01_without_one_worker_a_lane_passes_on_under_its_worker() {
    is_needed(Rule::OneWorker, 13, |found| matches!(found, Violation::LanePassedOn { .. }));
}

#[test]
fn q02_without_a_shared_lane_an_update_comes_before_its_create() {
    is_needed(Rule::SharedLane, 15, |found| matches!(found, Violation::UpdatedTooEarly { .. }));
}

#[test]
fn q03_without_the_early_count_a_poison_ends_workers_for_ever() {
    is_needed(Rule::EarlyCount, 25, |found| matches!(found, Violation::DeadlyTooOften { .. }));
}

#[test]
fn q10_without_the_settles_fence_work_is_complete_that_nobody_has_done() {
    is_needed(Rule::SettleFence, 14, |found| matches!(found, Violation::NotDone { .. }));
}

#[test]
fn q10_without_the_settles_memory_a_worker_is_told_that_another_has_its_lane() {
    is_needed(Rule::SettleMemory, 14, |found| matches!(found, Violation::SettleDenied { .. }));
}

#[test]
fn q09_without_request_ids_a_repeated_submit_is_worked_on_twice() {
    is_needed(Rule::RequestIds, 6, |found| matches!(found, Violation::SubmittedTwice { .. }));
}

#[test]
fn q03_q09_q10_one_create_with_every_fault_is_sound_in_every_order() {
    is_sound(plans::one_create().unwrap(), 1_000);
}

#[test]
fn q01_q02_q03_two_workers_with_a_crash_at_every_step_are_sound_in_every_order() {
    is_sound(plans::two_workers().unwrap(), 1_000);
}

/// Returns a script in which the front of cell 1 has submitted requests of the blue sheet.
fn submitted(kinds: &[WorkKind]) -> Script {
    let locks = LockSettings { count: 0, lanes: 2, ..LockSettings::default() };
    let mut script = Script::new(WorldSettings { locks: Some(locks), ..WorldSettings::default() }).unwrap();
    for kind in kinds {
        script.event(Event::Submit { cell: 1, lane: BLUE, kind: *kind }).run(1, Process::Front);
    }
    script
}

#[test]
fn q11_what_is_given_back_counts_no_attempt_and_is_ready_at_once() {
    let mut script = submitted(&[WorkKind::Update]);
    for _ in 0..5 {
        script.event(Event::Serve { cell: 1 }).run_client_until(1, WorkPhase::Check);
        script.event(Event::GiveBack { cell: 1 }).run(1, Process::Client);
        assert_eq!(script.world().client(1).unwrap().last_result, Some(WorkResult::GivenBack));
    }
    script.event(Event::Serve { cell: 2 }).run(2, Process::Client);
    assert_eq!(script.world().client(2).unwrap().last_result, Some(WorkResult::Done));
    let (_, request) = script.world().service().requests()[0];
    assert_eq!((request.attempts, script.world().violation()), (1, None));
}

#[test]
fn q13_what_fails_is_tried_again_after_its_backoff_and_ends_in_error() {
    let mut script = submitted(&[WorkKind::Update]);
    for attempt in 1..=2 {
        script.event(Event::Serve { cell: 1 }).run_client_until(1, WorkPhase::AwaitTake);
        script.deliver_request(1, Process::Client);
        for _ in 0..attempt {
            script.run(1, Process::Keepalive).event(Event::Tick);
        }
        script.run_client_until(1, WorkPhase::Check).event(Event::FailWork { cell: 1 }).run(1, Process::Client);
        assert_eq!(script.world().client(1).unwrap().last_result, Some(WorkResult::Failed), "attempt {attempt}");
    }
    let (_, request) = script.world().service().requests()[0];
    assert!(request.is_settled() && request.attempts == 2);
}

#[test]
fn q04_a_worker_that_nobody_wakes_finds_its_work_by_polling() {
    let mut script = submitted(&[]);
    script.event(Event::Serve { cell: 2 }).run_client_until(2, WorkPhase::AwaitTake);
    script.deliver_request(2, Process::Client).event(Event::Submit { cell: 1, lane: BLUE, kind: WorkKind::Update });
    script.run(1, Process::Front).lose_answer(2, Process::Client).run(2, Process::Client);
    assert_eq!(script.world().client(2).unwrap().last_result, Some(WorkResult::Done));
    assert_eq!(script.world().violation(), None);
}
