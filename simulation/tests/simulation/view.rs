//! Tests of the state that a page shows and of the list of possible events.

use std::collections::BTreeSet;

use leasehold_simulation::event::{Change, Drift, Event};
use leasehold_simulation::possible;
use leasehold_simulation::process::Process;
use leasehold_simulation::scheduler::RandomScheduler;
use leasehold_simulation::script::Script;
use leasehold_simulation::settings::{Mode, Rates, Rule, RulesOff, Thresholds, WorldSettings};
use leasehold_simulation::view::View;
use leasehold_simulation::worker::{Phase, SaveResult};
use leasehold_simulation::world::World;
use serde_json::{Value, json};

fn value(world: &World) -> Value {
    serde_json::to_value(View::of(world)).unwrap()
}

#[test]
fn a_view_shows_both_sides_of_a_save_at_its_commit() {
    let mut script = Script::new(WorldSettings { cells: 1, workers: 1, ..WorldSettings::default() }).unwrap();
    script.request_save(1, 0, Change::Create(0)).run_worker_until(1, 0, Phase::AwaitCommit);
    let view = value(script.world());
    let lease = "01a20000-0000-7000-8000-000000000001";
    let claim = &view["claims"][0];
    assert_eq!((&claim["name"], &claim["status"], &claim["row"]), (&json!("alice"), &json!("Creating"), &json!(1)));
    assert_eq!((&view["leases"][0]["names"], &claim["lease"]), (&json!(["alice"]), &json!(lease)));
    let cell = &view["cells"][0];
    assert_eq!((&cell["rows"][0]["name"], &cell["lease_rows"][0]["lease"]), (&json!("alice"), &json!(lease)));
    assert_eq!(cell["workers"][0]["phase"], "await_commit");
    assert_eq!(view["messages"][0]["says"], "commit");
    let request = script.request(1, Process::Worker(0)).unwrap();
    script.event(Event::Deliver(request));
    let view = View::of(script.world());
    let fired = view.fired.iter().map(|fired| (fired.machine, fired.event.as_str(), fired.edge));
    assert_eq!(fired.collect::<Vec<_>>(), [("claim", "Commit", Some(1)), ("lease", "Commit", Some(1))]);
    assert_eq!(view.changed.names, ["alice"]);
    assert_eq!(
        (view.changed.leases[0].to_string(), &view.changed.sent[..]),
        (lease.to_owned(), &[request.answer()][..])
    );
    script.run(1, Process::Worker(0));
    let view = View::of(script.world());
    assert_eq!(view.cells[0].workers[0].told, Some(SaveResult::Saved));
    assert_eq!((view.claims[0].status.as_str(), view.claims[0].lease, view.violation), ("Active", None, None));
}

/// Plays a random world with every feature switched on, and calls `look` after each event.
fn watch(seed: u64, rules_off: RulesOff, mut look: impl FnMut(&World, Event)) {
    let rates = Rates { drift: 6, ..Rates::default() };
    let thresholds = Thresholds { replica_lag_seconds: 60, ..Thresholds::default() };
    let modes = vec![Mode::BeforeCommit, Mode::LeaseFirst];
    let settings = WorldSettings { seed, rates, thresholds, modes, rules_off, ..WorldSettings::default() };
    let mut scheduler = RandomScheduler::new(&settings);
    let mut world = World::new(settings).unwrap();
    for _ in 0..400 {
        let event = scheduler.step(&mut world);
        look(&world, event);
    }
}

/// The test asserts that the engine's tables contain every transition of claims and leases, and
/// that every edge occurs.
#[test]
fn every_edge_of_the_tables_occurs_and_no_other_transition() {
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        watch(seed, RulesOff::default(), |world, _| {
            for fired in View::of(world).fired {
                seen.insert((fired.machine, fired.edge.unwrap_or_else(|| panic!("{fired:?} is in no table"))));
            }
        });
    }
    let edges = (0..9).map(|at| ("claim", at)).chain((0..5).map(|at| ("lease", at)));
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), edges.collect::<Vec<_>>());
}

#[test]
fn a_violation_is_shown_in_words() {
    let mut shown = 0;
    for seed in 0..100 {
        watch(seed, RulesOff::default().with(Rule::SettledLeaseMemory), |world, _| {
            if let Some((violation, words)) = View::of(world).violation {
                assert_eq!((Some(&violation), &violation.to_string()), (world.violation(), &words));
                let value = &value(world)["violation"];
                assert!(value[0]["told_wrongly"]["lease"].is_string(), "{value}");
                shown += 1;
            }
        });
    }
    assert!(shown > 0);
}

/// The test asserts that every listed event is possible, and that every random event was listed
/// unless it has free parameters.
#[test]
fn the_listed_events_are_the_possible_ones() {
    let is_made_up = |event| matches!(event, Event::Save { .. } | Event::Drift { .. } | Event::Wait { .. });
    let without_keys = RulesOff::default().with(Rule::ReplayKeys);
    for (seed, rules_off) in (0..30).flat_map(|seed| [(seed, RulesOff::default()), (seed, without_keys)]) {
        let mut listed = possible::events(&World::new(WorldSettings { seed, ..WorldSettings::default() }).unwrap());
        watch(seed, rules_off, |world, event| {
            assert!(is_made_up(event) || listed.contains(&event) || world.events() == 1, "{event:?}");
            listed = possible::events(world);
            for event in &listed {
                let mut world = world.clone();
                assert_eq!(world.apply(*event), Ok(()));
            }
        });
    }
}

/// The test asserts that an impossible event leaves the world unchanged.
#[test]
fn an_impossible_event_is_refused() {
    let mut world = World::new(WorldSettings::default()).unwrap();
    let before = value(&world);
    let worker = Process::Worker(0);
    for event in [
        Event::Save { cell: 3, worker: 0, change: Change::Invalid },
        Event::Save { cell: 0, worker: 0, change: Change::Invalid },
        Event::Save { cell: 1, worker: 2, change: Change::Invalid },
        Event::Save { cell: 1, worker: 0, change: Change::Create(3) },
        Event::Step { cell: 1, process: worker },
        Event::Step { cell: 1, process: Process::Reconciler(1) },
        Event::FinishCommit { cell: 1, worker: 0 },
        Event::LoseCommit { cell: 1, worker: 0 },
        Event::TimeOut { cell: 1, process: worker },
        Event::Crash { cell: 1, process: worker },
        Event::Disconnect { cell: 1, worker: 0 },
        Event::RestartDatabase { cell: 1 },
        Event::Heal { cell: 1 },
        Event::Drift { cell: 1, drift: Drift::Insert(3) },
        Event::Drift { cell: 1, drift: Drift::Rename { row: 1, name: 0 } },
        Event::Drift { cell: 1, drift: Drift::Delete(1) },
        Event::CancelCall(24.into()),
        Event::TakeBack,
        Event::StartService,
        Event::Replicate { cell: 1 },
        Event::Wait { seconds: 0 },
        Event::Wait { seconds: u32::MAX },
    ] {
        assert!(world.apply(event).is_err_and(|impossible| impossible.0 == event), "{event:?}");
    }
    assert_eq!(value(&world), before);
}
