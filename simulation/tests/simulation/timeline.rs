//! Tests of the timeline: the history of a run for a diagram with lanes.

use std::collections::BTreeMap;

use leasehold_simulation::event::{Change, Event};
use leasehold_simulation::event_text;
use leasehold_simulation::network::MessageId;
use leasehold_simulation::player::Player;
use leasehold_simulation::process::Process;
use leasehold_simulation::quiescence;
use leasehold_simulation::scenarios;
use leasehold_simulation::settings::{Mode, Rates, Rule, RulesOff, Thresholds, WorldSettings};
use leasehold_simulation::timeline::{Arrow, Delivery, Entry, Lane};
use leasehold_simulation::trace::Trace;

fn settings(seed: u64) -> WorldSettings {
    let rates = Rates { drift: 6, ..Rates::default() };
    WorldSettings { seed, modes: vec![Mode::BeforeCommit, Mode::LeaseFirst], rates, ..WorldSettings::default() }
}

fn played(settings: WorldSettings, events: u32) -> Player {
    let mut player = Player::new(settings).unwrap();
    assert_eq!(player.play_randomly(events), events);
    player
}

fn entries(player: &Player) -> Vec<Entry<'_>> {
    player.timeline().entries(0, usize::MAX).collect()
}

fn arrows(player: &Player) -> Vec<Arrow> {
    player.timeline().arrows(0, usize::MAX).cloned().collect()
}

fn scenario(id: &str) -> Player {
    let mut all = scenarios::all().unwrap().into_iter();
    Player::load(all.find(|scenario| scenario.id == id).unwrap().trace).unwrap()
}

fn says(player: &Player) -> Vec<&str> {
    player.timeline().entries(0, usize::MAX).map(|entry| entry.says).collect()
}

#[test]
fn a_save_with_a_lost_answer_is_described_event_by_event() {
    let player = scenario("2b");
    let expected = [
        "a user of cell 1 asks worker 0 to create alice",
        "cell 1's worker 0 validates its change",
        "cell 1's worker 0 begins its local transaction",
        "cell 1's worker 0 writes its rows",
        "cell 1's worker 0 sends begin: create alice",
        "the service receives from cell 1's worker 0: begin: create alice, and answers: begun, fence 1",
        "the network loses a message to cell 1's worker 0: begun, fence 1",
        "cell 1's worker 0 stops waiting for its answer",
        "cell 1's worker 0 sends begin: create alice",
        "the service receives from cell 1's worker 0: begin: create alice, and answers: begun, fence 1",
        "cell 1's worker 0 receives the answer: begun, fence 1",
        "cell 1's worker 0 writes its lease row",
        "cell 1's worker 0 sends COMMIT to its database",
        "in cell 1's database the transaction of worker 0 is committed",
        "cell 1's worker 0 sends commit of lease 1",
        "the service receives from cell 1's worker 0: commit of lease 1, and answers: done",
        "cell 1's worker 0 receives the answer: done",
        "cell 1's worker 0 deletes its lease row; the user is told: saved",
    ];
    assert_eq!(says(&player), expected);
    assert_eq!(player.timeline().marks().faults, [6, 7]);
}

#[test]
fn a_refused_commit_and_a_crash_are_described_with_their_consequences() {
    let race = scenario("staleness-race");
    let race = says(&race);
    assert!(race.contains(&"time passes: 11 minutes"));
    assert!(race.contains(&"in cell 1's database the transaction of worker 0 is refused: its lease is too old"));
    assert!(race.contains(&"cell 1's reconciler 0 sends rollback of lease 1"));
    assert_eq!(
        race.last(),
        Some(&"cell 1's worker 0 receives the answer: done; the user is told: too late, try again")
    );
    let crash = scenario("3b");
    let expected = "cell 1's worker 0 crashes and restarts with empty memory; the user is told: outcome unknown, check whether the row exists";
    assert!(says(&crash).contains(&expected));
}

/// The pairs of a scenario's id and an event, counted from 1, with the end of its sentence.
const REFUSALS: [(&str, usize, &str); 5] = [
    ("2a", 20, "and answers: refused: the bucket is taken"),
    ("3a", 22, "writes its rows, which its database refuses: two rows would have one name"),
    ("4b", 13, "receives nothing from cell 1's worker 0: commit of lease 1; the caller learns: unavailable"),
    ("staleness-race", 20, "is refused: its lease is too old"),
    ("lock-holder-sleeps", 0, "which has seen a newer fence and refuses"),
];

#[test]
fn a_refusal_is_told_and_marked_where_it_happens() {
    for (id, event, end) in REFUSALS {
        let player = scenario(id);
        let refused: Vec<_> = entries(&player).into_iter().filter(|entry| entry.refused).collect();
        let told = refused.iter().find(|entry| event == 0 || entry.position + 1 == event);
        assert!(told.is_some_and(|entry| entry.says.contains(end)), "{id}: {:?}", refused);
    }
    let player = scenario("happy-path");
    assert!(entries(&player).iter().all(|entry| !entry.refused) && arrows(&player).iter().all(|arrow| !arrow.refused));
    let taken = scenario("2a");
    assert_eq!(arrows(&taken).iter().filter(|arrow| arrow.refused).map(|arrow| arrow.sent).collect::<Vec<_>>(), [19]);
}

#[test]
fn a_save_that_ends_before_its_local_transaction_rolls_none_back() {
    let player = scenario("2b-twice");
    assert_eq!(says(&player)[10], "cell 1's worker 0 gives its save up, before it has begun a local transaction");
}

#[test]
fn each_step_is_described_by_a_verb() {
    for seed in 0..8 {
        let player = played(settings(seed), 2000);
        let process = |says: &str| {
            says.ends_with(char::is_numeric) && says.split(' ').count() == 4 || says.ends_with("'s verifier")
        };
        assert_eq!(entries(&player).iter().find(|entry| process(entry.says)), None, "seed {seed}");
    }
}

#[test]
fn a_lost_message_ends_where_it_was_lost() {
    let player = scenario("2b");
    let (entries, arrows) = (entries(&player), arrows(&player));
    let worker = Lane::Process(1, Process::Worker(0));
    let lost = &arrows[1];
    assert_eq!(
        (lost.from, lost.to, lost.sent, lost.ended, lost.how),
        (Lane::Service, worker, 5, Some(6), Some(Delivery::Lost))
    );
    assert_eq!((entries[6].lost, entries[6].lane, entries[6].fault), (&[lost.id][..], worker, true));
    assert_eq!((entries[5].arrived, entries[5].sent), (Some(arrows[0].id), &arrows[1..2]));
    assert_eq!((entries[5].lane, entries[13].lane, entries[0].lane), (Lane::Service, Lane::Database(1), Lane::User(1)));
    // The last answer settles a lease, so its arrow has the lease of the request.
    let leases: Vec<_> = arrows.iter().map(|arrow| arrow.lease.is_some()).collect();
    assert_eq!(leases, [false, true, false, true, true, true]);
    let fired = entries[15].fired.iter().map(|fired| (fired.machine, fired.event.as_str()));
    assert_eq!(fired.collect::<Vec<_>>(), [("claim", "Commit"), ("lease", "Commit")]);
}

/// The test compares the messages in flight of the timeline with those of the world.
#[test]
fn every_message_of_a_long_run_is_sent_once_and_ends_once() {
    for seed in 0..20 {
        let mut player = played(settings(seed), 1500);
        let mut in_flight: BTreeMap<MessageId, usize> = BTreeMap::new();
        let mut endings = BTreeMap::new();
        for entry in entries(&player) {
            for id in entry.arrived.iter().chain(entry.lost) {
                assert!(in_flight.remove(id).is_some(), "{id} ends, but was not in flight");
            }
            for arrow in entry.sent {
                assert_eq!(arrow.sent, entry.position);
                assert_eq!(in_flight.insert(arrow.id, entry.position), None, "{} is in flight twice", arrow.id);
            }
        }
        let messages = player.world().network().messages();
        assert_eq!(in_flight.keys().copied().collect::<Vec<_>>(), {
            let mut ids: Vec<_> = messages.iter().map(|message| message.id).collect();
            ids.sort();
            ids
        });
        for arrow in arrows(&player) {
            *endings.entry(format!("{:?}", arrow.how)).or_insert(0) += 1;
            assert_eq!(arrow.ended.is_some(), arrow.how.is_some());
            assert!(arrow.ended.is_none_or(|ended| ended > arrow.sent));
        }
        assert!(endings.len() >= 3, "seed {seed}: {endings:?}");
        player.seek(0);
        assert_eq!(entries(&player).len(), 1500);
    }
}

#[test]
fn a_range_of_positions_has_every_message_in_flight_within_it() {
    let player = played(settings(1), 1500);
    for from in (0..1500).step_by(70) {
        let to = from + 60;
        let crossing = |arrow: &&Arrow| arrow.sent < to && arrow.ended.is_none_or(|ended| ended >= from);
        let expected: Vec<_> = arrows(&player).iter().filter(crossing).cloned().collect();
        assert_eq!(player.timeline().arrows(from, to).cloned().collect::<Vec<_>>(), expected);
        let positions = player.timeline().entries(from, to).map(|entry| entry.position);
        assert!(positions.eq(from..to.min(1500)));
    }
}

/// The test compares a timeline that was truncated and extended with the timeline of the same run
/// played at once.
#[test]
fn a_run_changed_in_the_middle_has_the_timeline_of_a_run_played_at_once() {
    let mut player = played(settings(2), 600);
    for position in [599, 433, 64, 1, 0] {
        player.seek(position);
        player.apply(Event::Wait { seconds: 7 }).unwrap();
        player.play_randomly(300);
        let again = Player::load(player.trace()).unwrap();
        assert_eq!((entries(&player), arrows(&player)), (entries(&again), arrows(&again)));
        assert_eq!(player.timeline().marks(), again.timeline().marks());
        assert_eq!(entries(&player).len(), player.events().len());
    }
}

#[test]
fn the_first_violation_is_marked_at_its_event() {
    let rules_off = RulesOff::default().with(Rule::SettledLeaseMemory);
    let mut player = (0..).find_map(|seed| {
        let mut player = Player::new(WorldSettings { rules_off, ..settings(seed) }).unwrap();
        (player.play_randomly(1000) < 1000).then_some(player)
    });
    let player = player.as_mut().unwrap();
    let last = player.events().len() - 1;
    let violation = player.world().violation().unwrap().to_string();
    assert_eq!(player.timeline().marks().violation, Some(last));
    assert_eq!(entries(player)[last].violation, Some(violation.as_str()));
    // After the first violation, a run can be played further.
    assert_eq!(player.play_randomly(100), 100);
    assert_eq!(entries(player).iter().filter(|entry| entry.violation.is_some()).count(), 1);
}

/// The test compares the description of each event before it happens with the recorded description.
#[test]
fn an_event_is_described_alike_before_and_after_it_happens() {
    let player = played(settings(3), 1000);
    let mut again = Player::load(player.trace()).unwrap();
    for entry in player.timeline().entries(0, 1000) {
        assert_eq!(event_text::describe(again.world(), entry.event), entry.says);
        assert!(!entry.says.ends_with(' ') && !entry.says.contains("  "), "{:?}", entry.says);
        assert!(again.step());
    }
    let impossible = Event::Deliver(MessageId::request(1, Process::Worker(0), 1));
    let described = event_text::describe(Player::new(settings(0)).unwrap().world(), impossible);
    assert_eq!(described, "the service receives from cell 1's worker 0: it is not in flight");
}

#[test]
fn ending_all_faults_makes_the_world_quiescent_and_is_recorded() {
    let mut player = played(settings(4), 700);
    player.seek(500);
    let settled = player.quiesce().unwrap();
    assert_eq!((player.position(), player.events().len()), (500 + settled, 500 + settled));
    assert_eq!(quiescence::check(player.world()), Ok(()));
    assert!(arrows(&player).iter().all(|arrow| arrow.ended.is_some()));
}

/// Quiescence multiplies the longest threshold by three. The product is limited to the largest
/// `u32`, so the wait stays possible.
#[test]
fn ending_all_faults_works_with_the_largest_thresholds() {
    let thresholds = Thresholds { recent_within_seconds: u32::MAX, ..Thresholds::default() };
    let mut player = Player::new(WorldSettings { thresholds, ..settings(0) }).unwrap();
    player.apply(Event::Save { cell: 1, worker: 0, change: Change::Create(0) }).unwrap();
    assert!(player.quiesce().unwrap() > 0);
}

#[test]
fn random_play_stops_at_the_end_of_the_clock() {
    let [save, step, deliver, drop, duplicate, time_out] = [0; 6];
    let [crash, disconnect, partition, restart, wait, drift] = [0; 6];
    let rates =
        Rates { save, step, deliver, drop, duplicate, time_out, crash, disconnect, partition, restart, wait, drift };
    let nearly_over = vec![Event::Wait { seconds: 2_302_444_798 }];
    let mut player =
        Player::load(Trace::new(WorldSettings { rates, ..WorldSettings::default() }, nearly_over)).unwrap();
    player.seek(1);
    assert_eq!((player.play_randomly(10), player.play_randomly(10)), (1, 0));
}
