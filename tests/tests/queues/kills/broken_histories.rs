//! Tests of the checker: it accepts a sound history, and finds the fault of each broken one.

use uuid::Uuid;

use super::checker::{Counts, check};
use super::history::{
    Answer, EXACT, Effect, End, History, LIMITED, Lane, LaneChange, Outcome, Settled, Source, Submitted, Taken,
};

const COMPLETED: End = End::Settled(Outcome::Completed);

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn lane(key: &str) -> Lane {
    (LIMITED.to_owned(), key.to_owned())
}

fn exact_lane() -> Lane {
    (EXACT.to_owned(), "a".to_owned())
}

fn submitted(number: u64, lane: Lane, source: Source, answer: Answer) -> Submitted {
    let (id, called, answered) = (id(number.into()), 10 * number, 10 * number + 5);
    Submitted { id, lane, source, called, answered, answer }
}

fn settled(of: u128, lane: Lane, number: u64, attempts: u32) -> Settled {
    Settled { id: id(of), lane, number, is_create: false, is_complete: true, attempts, max_attempts: 2 }
}

fn taken(fence: u64, lane: Lane, requests: &[(u128, u32)], took: u64, settling: Option<u64>) -> Taken {
    let requests = requests.iter().map(|(number, attempt)| (id(*number), *attempt)).collect();
    let outcome = Outcome::Completed;
    Taken { lane, fence, requests, took, settling: settling.map(|at| (at, outcome)), is_settled: settling.is_some() }
}

fn change(number: u64, lane: Lane, fence: Option<u64>, last: Option<(u64, End)>) -> LaneChange {
    LaneChange { transaction: number.to_string(), lane, fence, last }
}

/// The worker of the first hold dies after its work. Its request and the next one are completed as one. Two other
/// lanes of the queue with a limit and one of the outbox follow; a transaction is rolled back.
fn sound() -> History {
    let effects = [(1, 1, lane("a")), (1, 2, lane("a")), (2, 2, lane("a")), (3, 3, lane("b")), (4, 4, lane("c"))];
    let effects = effects.into_iter().chain([(5, 5, exact_lane())]).zip(1..);
    let accepted = |number: u64, lane| submitted(number, lane, Source::Call, Answer::Accepted(id(number.into())));
    History {
        submitted: vec![
            accepted(1, lane("a")),
            accepted(2, lane("a")),
            accepted(3, lane("b")),
            accepted(4, lane("c")),
            submitted(5, exact_lane(), Source::Outbox, Answer::Accepted(id(5))),
            submitted(6, exact_lane(), Source::Outbox, Answer::RolledBack),
        ],
        settled: vec![
            settled(1, lane("a"), 1, 2),
            settled(2, lane("a"), 2, 1),
            settled(3, lane("b"), 1, 1),
            settled(4, lane("c"), 1, 1),
            settled(5, exact_lane(), 1, 1),
        ],
        orders: [id(5)].into(),
        effects: effects.map(|((of, fence, lane), number)| Effect { number, id: id(of), lane, fence }).collect(),
        taken: vec![
            taken(1, lane("a"), &[(1, 1)], 100, None),
            taken(2, lane("a"), &[(1, 2), (2, 1)], 200, Some(300)),
            taken(3, lane("b"), &[(3, 1)], 210, Some(310)),
            taken(4, lane("c"), &[(4, 1)], 320, Some(330)),
            taken(5, exact_lane(), &[(5, 1)], 400, Some(410)),
        ],
        contradicted: Vec::new(),
        changes: Some(sound_changes()),
    }
}

fn sound_changes() -> Vec<LaneChange> {
    vec![
        change(1, lane("a"), Some(1), None),
        change(2, lane("a"), None, Some((1, End::Lost))),
        change(3, lane("a"), Some(2), Some((1, End::Lost))),
        change(4, lane("b"), Some(3), None),
        change(5, lane("a"), None, Some((2, COMPLETED))),
        change(6, lane("c"), Some(4), None),
        change(7, lane("b"), None, Some((3, COMPLETED))),
        change(8, lane("c"), None, Some((4, COMPLETED))),
        change(9, exact_lane(), Some(5), None),
        change(10, exact_lane(), None, Some((5, COMPLETED))),
    ]
}

fn changes(history: &mut History) -> &mut Vec<LaneChange> {
    history.changes.as_mut().unwrap()
}

fn effect(number: i64, of: u128, lane: Lane, fence: u64) -> Effect {
    Effect { number, id: id(of), lane, fence }
}

#[test]
fn a_sound_history_is_accepted() {
    let expected = Counts {
        requests: 5,
        redone: 1,
        batches: 5,
        lost: 1,
        committed: 1,
        rolled_back: 1,
        limited: 2,
        ..Counts::default()
    };
    assert_eq!(check(&sound()), Ok(expected));
    // The embedded store has no changes, and its ends are those that workers know.
    let embedded = History { changes: None, ..sound() };
    assert_eq!(check(&embedded), Ok(Counts { lost: 0, ..expected }));
}

#[test]
fn a_transaction_may_take_before_it_settles_while_another_queue_changes() {
    let mut history = sound();
    *changes(&mut history) = vec![
        change(1, lane("a"), Some(1), None),
        change(2, lane("a"), None, Some((1, End::Lost))),
        change(3, lane("a"), Some(2), Some((1, End::Lost))),
        change(4, lane("b"), Some(3), None),
        change(5, lane("c"), Some(4), None),
        change(6, exact_lane(), Some(5), None),
        change(5, lane("a"), None, Some((2, COMPLETED))),
        change(7, lane("b"), None, Some((3, COMPLETED))),
        change(8, lane("c"), None, Some((4, COMPLETED))),
        change(9, exact_lane(), None, Some((5, COMPLETED))),
    ];
    check(&history).unwrap();
}

/// A way to break a history, and a part of the fault that the checker then finds.
type Break = (&'static str, fn(&mut History));

fn assert_found(breaks: &[Break]) {
    for (expected, spoil) in breaks {
        let mut history = sound();
        spoil(&mut history);
        let found = check(&history).map(|_| "no fault".to_owned()).unwrap_or_else(|fault| fault);
        assert!(found.contains(expected), "`{expected}` is expected: {found}");
    }
}

#[test]
fn q09_q14_lost_and_doubled_requests_are_found() {
    assert_found(&[
        ("lost: the accepted request", |history| drop(history.settled.remove(3))),
        ("lost: the accepted request", |history| history.settled[3].lane = lane("d")),
        ("nobody has submitted", |history| drop(history.submitted.remove(3))),
        ("doubled: 6 settled requests have", |history| history.settled.push(settled(1, lane("a"), 1, 2))),
        ("doubled: 00000000-0000-0000-0000-000000000002 is there", |history| {
            history.submitted[1].answer = Answer::Accepted(id(1));
        }),
        ("has a number twice", |history| history.settled[1].number = 1),
        ("has 2 creates", |history| history.settled.iter_mut().for_each(|settled| settled.is_create = true)),
        ("its transaction was rolled back", |history| history.submitted[4].answer = Answer::RolledBack),
        ("submitted or in the user's table, not both", |history| history.orders.clear()),
        ("submitted or in the user's table, not both", |history| {
            history.submitted[5].answer = Answer::Unknown;
            history.orders.insert(id(6));
        }),
        ("lost: the accepted request", |history| history.submitted[5].answer = Answer::Accepted(id(6))),
    ]);
}

#[test]
fn q03_q10_work_that_is_lost_doubled_or_under_a_passed_fence_is_found() {
    assert_found(&[
        ("nobody did its work", |history| drop(history.effects.remove(3))),
        ("was done 2 times", |history| history.effects.push(effect(7, 5, exact_lane(), 6))),
        ("was done twice under 3", |history| history.effects.push(effect(7, 3, lane("b"), 3))),
        ("is no request of it", |history| history.effects[3].lane = lane("c")),
        ("K18", |history| history.effects.push(effect(7, 2, lane("a"), 1))),
        ("Q10: 00000000-0000-0000-0000-000000000003 was settled under 3, and done last under 6", |history| {
            history.effects.push(effect(7, 3, lane("b"), 6));
        }),
        ("has 3 of 2 attempts", |history| history.settled[0].attempts = 3),
        ("ended in error after 1 of 2 attempts", |history| history.settled[3].is_complete = false),
        ("has the attempt 1, 2 at least are due", |history| history.taken[1].requests[0].1 = 1),
        ("has 1 attempts, fewer than a worker saw", |history| history.settled[0].attempts = 1),
        ("was completed in attempt 1, and has 2", |history| history.settled[3].attempts = 2),
        ("and then settled otherwise", |history| history.contradicted.push(2)),
    ]);
}

#[test]
fn q07_q15_what_is_out_of_order_is_found() {
    assert_found(&[
        ("behind a later submit", |history| {
            history.settled[0].number = 2;
            history.settled[1].number = 1;
        }),
        ("out of order", |history| {
            history.effects[1].number = 3;
            history.effects[2].number = 2;
        }),
    ]);
}

#[test]
fn q10_q17_holds_that_break_a_rule_are_found() {
    assert_found(&[
        ("Q17: workers had 3 lanes at a time", |history| history.taken[3].took = 250),
        ("Q17: a transaction left 3 lanes taken", |history| changes(history).swap(4, 5)),
        ("the hold 2 of", |history| changes(history)[4].last = Some((1, End::Lost))),
        ("the hold 2 of", |history| {
            changes(history)[4].fence = Some(6);
            changes(history)[4].last = Some((1, End::Lost));
        }),
        ("tells another end of its last hold", |history| changes(history)[2].last = Some((1, COMPLETED))),
        ("is taken under 1 after 1", |history| changes(history)[2].fence = Some(1)),
        ("a lane is taken at the end", |history| drop(changes(history).pop())),
        ("was confirmed, and the store has Some(Lost)", |history| changes(history)[6].last = Some((3, End::Lost))),
        ("was completed under {}", |history| {
            changes(history)[6].last = Some((3, End::Lost));
            history.taken[2].is_settled = false;
        }),
        ("have the fence 3", |history| history.taken[3].fence = 3),
    ]);
}
