//! What happened, as lanes are drawn from it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use leasehold_simulation::calm;
use leasehold_simulation::event::{Change, Event, Process};
use leasehold_simulation::network::MessageId;
use leasehold_simulation::player::Player;
use leasehold_simulation::scenarios;
use leasehold_simulation::settings::{Mode, Rates, Rule, RulesOff, Settings, Thresholds};
use leasehold_simulation::timeline::{Arrow, Ending, Entry, Lane};
use leasehold_simulation::trace::Trace;
use leasehold_simulation::words;

fn settings(seed: u64) -> Settings {
    let rates = Rates { drift: 6, ..Rates::default() };
    Settings { seed, modes: vec![Mode::BeforeCommit, Mode::LeaseFirst], rates, ..Settings::default() }
}

fn played(settings: Settings, events: u32) -> Player {
    let mut player = Player::new(settings).unwrap();
    assert_eq!(player.play_on(events), events);
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
fn a_save_with_a_lost_answer_is_told_in_words() {
    let player = scenario("2b");
    let expected = [
        "a user of cell 1 asks worker 0 to create alice",
        "cell 1's worker 0 checks what it is to save",
        "cell 1's worker 0 begins its local transaction",
        "cell 1's worker 0 writes its rows",
        "cell 1's worker 0 sends begin: create alice",
        "the service gets from cell 1's worker 0: begin: create alice, and answers: begun, fence 1",
        "the network loses a message to cell 1's worker 0: begun, fence 1",
        "cell 1's worker 0 waits no longer for its answer",
        "cell 1's worker 0 sends begin: create alice",
        "the service gets from cell 1's worker 0: begin: create alice, and answers: begun, fence 1",
        "cell 1's worker 0 gets the answer: begun, fence 1",
        "cell 1's worker 0 writes the row of its lease",
        "cell 1's worker 0 sends COMMIT to its database",
        "in cell 1's database the transaction of worker 0 is committed",
        "cell 1's worker 0 sends commit of lease 1",
        "the service gets from cell 1's worker 0: commit of lease 1, and answers: done",
        "cell 1's worker 0 gets the answer: done",
        "cell 1's worker 0 deletes the row of its lease; the user is told: saved",
    ];
    assert_eq!(says(&player), expected);
    assert_eq!(player.timeline().marks().faults, [6, 7]);
}

#[test]
fn a_refused_commit_and_a_death_are_told_with_what_comes_of_them() {
    let race = scenario("staleness-race");
    let race = says(&race);
    assert!(race.contains(&"time passes: 11 minutes"));
    assert!(race.contains(&"in cell 1's database the transaction of worker 0 is refused: its lease is too old"));
    assert!(race.contains(&"cell 1's reconciler 0 sends rollback of lease 1"));
    assert_eq!(race.last(), Some(&"cell 1's worker 0 gets the answer: done; the user is told: too late, try again"));
    let death = scenario("3b");
    let told = "cell 1's worker 0 dies, and starts again knowing nothing; the user is told: nobody knows, look whether it is there";
    assert!(says(&death).contains(&told));
}

#[test]
fn a_lost_message_ends_where_it_was_lost() {
    let player = scenario("2b");
    let (entries, arrows) = (entries(&player), arrows(&player));
    let worker = Lane::Process(1, Process::Worker(0));
    let lost = &arrows[1];
    assert_eq!(
        (lost.from, lost.to, lost.sent, lost.ended, lost.how),
        (Lane::Service, worker, 5, Some(6), Some(Ending::Lost))
    );
    assert_eq!((entries[6].lost, entries[6].lane, entries[6].fault), (&[lost.id][..], worker, true));
    assert_eq!((entries[5].arrived, entries[5].sent), (Some(arrows[0].id), &arrows[1..2]));
    assert_eq!((entries[5].lane, entries[13].lane, entries[0].lane), (Lane::Service, Lane::Database(1), Lane::User(1)));
    // The answer to a commit is about the lease that was to be committed.
    let leases: Vec<_> = arrows.iter().map(|arrow| arrow.lease.is_some()).collect();
    assert_eq!(leases, [false, true, false, true, true, true]);
    let fired = entries[15].fired.iter().map(|fired| (fired.machine, fired.event.as_str()));
    assert_eq!(fired.collect::<Vec<_>>(), [("claim", "Commit"), ("lease", "Commit")]);
}

/// Messages under way, by what the timeline says and by what the world says.
#[test]
fn every_message_of_a_long_run_is_sent_once_and_ends_once() {
    for seed in 0..20 {
        let mut player = played(settings(seed), 1500);
        let mut under_way: BTreeMap<MessageId, usize> = BTreeMap::new();
        let mut endings = BTreeMap::new();
        for entry in entries(&player) {
            for id in entry.arrived.iter().chain(entry.lost) {
                assert!(under_way.remove(id).is_some(), "{id} ends, and was not under way");
            }
            for arrow in entry.sent {
                assert_eq!(arrow.sent, entry.position);
                assert_eq!(under_way.insert(arrow.id, entry.position), None, "{} is under way twice", arrow.id);
            }
        }
        let messages = player.world().network().messages();
        assert_eq!(under_way.keys().copied().collect::<Vec<_>>(), {
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
fn what_is_drawn_for_a_screen_is_every_message_that_crosses_it() {
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

/// A timeline that was cut and played on is that of the same run played at once.
#[test]
fn a_bent_run_is_told_as_if_it_had_always_been_so() {
    let mut player = played(settings(2), 600);
    for position in [599, 433, 64, 1, 0] {
        player.seek(position);
        player.apply(Event::Wait { seconds: 7 }).unwrap();
        player.play_on(300);
        let again = Player::load(player.trace()).unwrap();
        assert_eq!((entries(&player), arrows(&player)), (entries(&again), arrows(&again)));
        assert_eq!(player.timeline().marks(), again.timeline().marks());
        assert_eq!(entries(&player).len(), player.events().len());
    }
}

#[test]
fn the_first_violation_is_marked_where_it_happened() {
    let rules_off = RulesOff::default().with(Rule::SettledLeaseMemory);
    let mut player = (0..).find_map(|seed| {
        let mut player = Player::new(Settings { rules_off, ..settings(seed) }).unwrap();
        (player.play_on(1000) < 1000).then_some(player)
    });
    let player = player.as_mut().unwrap();
    let last = player.events().len() - 1;
    let violation = player.world().violation().unwrap().to_string();
    assert_eq!(player.timeline().marks().violation, Some(last));
    assert_eq!(entries(player)[last].violation, Some(violation.as_str()));
    // Whoever has seen it may go on.
    assert_eq!(player.play_on(100), 100);
    assert_eq!(entries(player).iter().filter(|entry| entry.violation.is_some()).count(), 1);
}

/// What is told before something happens is what is told once it has.
#[test]
fn what_is_foretold_happens() {
    let player = played(settings(3), 1000);
    let mut again = Player::load(player.trace()).unwrap();
    for entry in player.timeline().entries(0, 1000) {
        assert_eq!(words::describe(again.world(), entry.event), entry.says);
        assert!(!entry.says.ends_with(' ') && !entry.says.contains("  "), "{:?}", entry.says);
        assert!(again.step());
    }
    let impossible = Event::Deliver(MessageId::request(1, Process::Worker(0), 1));
    let words = words::describe(Player::new(settings(0)).unwrap().world(), impossible);
    assert_eq!(words, "the service gets from cell 1's worker 0: it is not under way");
}

#[test]
fn settling_leaves_everything_at_rest_and_is_told_as_well() {
    let mut player = played(settings(4), 700);
    player.seek(500);
    let settled = player.settle().unwrap();
    assert_eq!((player.position(), player.events().len()), (500 + settled, 500 + settled));
    assert_eq!(calm::at_rest(player.world()), Ok(()));
    assert!(arrows(&player).iter().all(|arrow| arrow.ended.is_some()));
}

/// Longer than there are seconds is as long as there are.
#[test]
fn settling_a_world_with_endless_thresholds_does_no_harm() {
    let thresholds = Thresholds { recent_within_seconds: u32::MAX, ..Thresholds::default() };
    let mut player = Player::new(Settings { thresholds, ..settings(0) }).unwrap();
    player.apply(Event::Save { cell: 1, worker: 0, change: Change::Create(0) }).unwrap();
    assert!(player.settle().unwrap() > 0);
}

#[test]
fn chance_stops_at_the_end_of_the_world() {
    let [save, step, deliver, drop, duplicate, time_out] = [0; 6];
    let [crash, disconnect, partition, restart, wait, drift] = [0; 6];
    let rates =
        Rates { save, step, deliver, drop, duplicate, time_out, crash, disconnect, partition, restart, wait, drift };
    let nearly_over = vec![Event::Wait { seconds: 2_302_444_798 }];
    let mut player = Player::load(Trace::new(Settings { rates, ..Settings::default() }, nearly_over)).unwrap();
    player.seek(1);
    assert_eq!((player.play_on(10), player.play_on(10)), (1, 0));
}
