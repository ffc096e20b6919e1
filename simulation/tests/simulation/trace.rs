//! Tests of traces: they are equal on every platform, and can be replayed, stepped back and
//! minimised.

use leasehold_simulation::event::Event;
use leasehold_simulation::player::Player;
use leasehold_simulation::scheduler::RandomScheduler;
use leasehold_simulation::settings::{Mode, Rates, Rule, RulesOff, WorldSettings};
use leasehold_simulation::trace::{InvalidTrace, Trace};
use leasehold_simulation::view::View;
use leasehold_simulation::world::World;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::parallel;

fn settings(seed: u64) -> WorldSettings {
    let rates = Rates { drift: 6, ..Rates::default() };
    WorldSettings { seed, modes: vec![Mode::BeforeCommit, Mode::LeaseFirst], rates, ..WorldSettings::default() }
}

/// Plays a random run and returns its trace and its final world.
fn run(settings: WorldSettings, events: usize) -> (Trace, World) {
    let mut scheduler = RandomScheduler::new(&settings);
    let mut world = World::new(settings.clone()).unwrap();
    let events = (0..events).map(|_| scheduler.step(&mut world)).collect();
    (Trace::new(settings, events), world)
}

fn text(world: &World) -> String {
    serde_json::to_string(&View::of(world)).unwrap()
}

/// The golden file of the simulation: settings, and the hashes of the traces and worlds that they
/// must give on every platform. The npm package's tests read the same file. Change the file only if
/// the world or its JSON form changes on purpose.
#[derive(Deserialize)]
struct Golden {
    settings: WorldSettings,
    events: usize,
    runs: Vec<GoldenRun>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct GoldenRun {
    seed: u64,
    trace: String,
    world: String,
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn one_seed_gives_one_trace_and_one_world_byte_for_byte() {
    let golden: Golden = serde_json::from_str(include_str!("../golden.json")).unwrap();
    let again = |GoldenRun { seed, .. }: &GoldenRun| {
        let (trace, world) = run(WorldSettings { seed: *seed, ..golden.settings.clone() }, golden.events);
        GoldenRun { seed: *seed, trace: sha256(&trace.to_json().unwrap()), world: sha256(&text(&world)) }
    };
    assert_eq!(golden.runs.iter().map(again).collect::<Vec<_>>(), golden.runs);
    assert_eq!(golden.runs.len(), 3);
    assert_eq!(run(settings(7), 300).0.to_json().unwrap(), run(settings(7), 300).0.to_json().unwrap());
}

#[test]
fn a_replay_leads_to_the_same_world_at_every_step() {
    let (trace, _) = run(settings(3), 400);
    let (mut one, mut scheduler) = (World::new(settings(3)).unwrap(), RandomScheduler::new(&settings(3)));
    let mut other = World::new(settings(3)).unwrap();
    for event in &trace.events {
        scheduler.step(&mut one);
        other.apply(*event).unwrap();
        assert_eq!(text(&one), text(&other));
    }
}

#[test]
fn a_trace_survives_json_and_its_format_is_fixed() {
    let (trace, _) = run(settings(4), 300);
    let json = trace.to_json().unwrap();
    let read = Trace::parse(&json).unwrap();
    assert_eq!((&read, read.to_json().unwrap()), (&trace, json));
    let small = Trace::new(WorldSettings::default(), vec![Event::StopService, Event::Wait { seconds: 5 }]);
    let form = r#"{"version":1,"settings":{"seed":0,"cells":2,"workers":2,"reconcilers":1,"names":3,"modes":["before_commit"],"#;
    let json = small.to_json().unwrap();
    assert!(json.starts_with(form), "{json}");
    assert!(json.ends_with(r#""events":["stop_service",{"wait":{"seconds":5}}]}"#), "{json}");
    let cancelled = Trace::new(WorldSettings::default(), vec![Event::CancelCall(24.into()), Event::TakeBack]);
    let json = cancelled.to_json().unwrap();
    assert!(json.ends_with(r#""events":[{"cancel_call":24},"take_back"]}"#), "{json}");
    assert_eq!(Trace::parse(&json).unwrap(), cancelled);
}

#[test]
fn an_invalid_trace_is_refused_with_the_offending_field() {
    let json = Trace::new(WorldSettings::default(), vec![]).to_json().unwrap();
    let error = |json: &str| Trace::parse(json).unwrap_err().to_string();
    let newer = json.replace(r#""version":1"#, r#""version":7,"beyond":[]"#);
    assert!(matches!(Trace::parse(&newer), Err(InvalidTrace::Version(7))));
    assert!(error(&newer).starts_with("the trace has version 7, but this program reads version 1"));
    assert!(error("{}").contains("missing field `version`"));
    assert!(error(&json.replace(r#""cells":2"#, r#""cells":99"#)).contains("`cells` is 99: use 1 to 8"));
    assert!(error(&json.replace(r#""names":3"#, r#""names":3,"beyond":1"#)).contains("unknown field `beyond`"));
    assert!(error(&json.replace(r#""save":60"#, r#""save":70000"#)).contains("`save` is 70000, which is out of range"));
    assert!(error(&json.replace(r#""save":60,"#, "")).contains("missing field `save`"));
    assert!(
        error(&json.replace(r#""save":60"#, r#""save":60,"safe":1"#)).contains("unknown or duplicate field `safe`")
    );
    assert!(
        error(&json.replace(r#""save":60"#, r#""save":60,"save":60"#)).contains("unknown or duplicate field `save`")
    );
    let with = |event: &str| error(&json.replace(r#""events":[]"#, &format!(r#""events":[{event}]"#)));
    assert!(with(r#"{"finish_commit":{"cell":1}}"#).contains("missing field `worker`"));
    let drift = |drift: &str| with(&format!(r#"{{"drift":{{"cell":1,"drift":{{"rename":{drift}}}}}}}"#));
    assert!(drift(r#"{"row":1}"#).contains("missing field `name`"));
    assert!(drift(r#"{"row":1,"name":256}"#).contains("`name` is 256, which is out of range"));
    assert!(drift(r#"{"row":1,"name":0,"what":1}"#).contains("unknown or duplicate field `what`"));
    let impossible = Trace::new(WorldSettings::default(), vec![Event::StopService, Event::StopService]);
    assert!(impossible.replay().unwrap_err().to_string().starts_with("`events[1]` of the trace can't be replayed: "));
}

#[test]
fn every_invalid_setting_is_refused() {
    let good = WorldSettings::default();
    let bad = [
        WorldSettings { seed: 1 << 53, ..good.clone() },
        WorldSettings { cells: 0, ..good.clone() },
        WorldSettings { workers: 9, ..good.clone() },
        WorldSettings { reconcilers: 5, ..good.clone() },
        WorldSettings { names: 33, ..good.clone() },
        WorldSettings { modes: vec![], ..good.clone() },
        WorldSettings { clocks: vec![], ..good.clone() },
    ];
    bad.into_iter().for_each(|settings| assert!(World::new(settings).is_err()));
    assert!(World::new(good).is_ok());
}

#[test]
fn a_player_steps_back_and_forth_to_the_same_worlds() {
    let (trace, _) = run(settings(5), 500);
    let mut world = World::new(trace.settings.clone()).unwrap();
    let mut texts = vec![text(&world)];
    for event in &trace.events {
        world.apply(*event).unwrap();
        texts.push(text(&world));
    }
    let mut player = Player::load(trace.clone()).unwrap();
    for position in [0, 500, 1, 63, 64, 65, 499, 128, 127, 500, 300, 9999] {
        player.seek(position);
        let position = position.min(500);
        assert_eq!((player.position(), text(player.world())), (position, texts[position].clone()));
    }
    while player.step_back() {
        assert_eq!(text(player.world()), texts[player.position()]);
    }
    assert!(!player.step_back());
    while player.step() {}
    assert_eq!((player.position(), player.step(), player.trace()), (500, false, trace));
}

#[test]
fn an_event_in_the_middle_of_a_run_removes_the_later_events() {
    let (trace, _) = run(settings(6), 200);
    let mut player = Player::load(trace.clone()).unwrap();
    player.seek(130);
    player.apply(Event::Wait { seconds: 7 }).unwrap();
    assert_eq!((player.events().len(), player.position()), (131, 131));
    (0..80).for_each(|_| _ = player.step_randomly());
    let bent = player.trace();
    assert_eq!(bent.events[..130], trace.events[..130]);
    assert_eq!(text(&bent.replay().unwrap()), text(player.world()));
    player.seek(64);
    player.seek(131);
    assert_eq!(player.events()[130], Event::Wait { seconds: 7 });
    let before = text(player.world());
    let impossible = Event::FinishCommit { cell: 9, worker: 0 };
    assert!(player.apply(impossible).is_err() && text(player.world()) == before && player.events().len() == 211);
}

/// Plays the random run of a seed without the memory of settled leases, and minimises the run.
/// Returns false if the run has no violation.
fn is_minimised(seed: u64) -> bool {
    let settings = WorldSettings { rules_off: RulesOff::default().with(Rule::SettledLeaseMemory), ..settings(seed) };
    let (trace, world) = run(settings, 300);
    let Some(violation) = world.violation() else { return false };
    let minimal = trace.minimise().unwrap();
    let found = minimal.replay().unwrap().violation().unwrap().clone();
    assert_eq!(std::mem::discriminant(&found), std::mem::discriminant(violation));
    let length = minimal.events.len();
    assert!(length <= 40, "seed {seed}: {length} events: {}", minimal.to_json().unwrap());
    for without in 0..length {
        let mut events = minimal.events.clone();
        events.remove(without);
        let needed = Trace::new(minimal.settings.clone(), events).replay();
        assert!(needed.is_err() || needed.unwrap().violation().is_none(), "event {without} is not needed");
    }
    true
}

#[test]
fn a_long_random_run_is_minimised_to_a_few_events() {
    let minimised = parallel::map(0..400, is_minimised).into_iter().filter(|is_minimised| *is_minimised).count();
    assert!(minimised >= 20, "{minimised} violations are few");
    assert_eq!(run(settings(0), 300).0.minimise(), None);
}
