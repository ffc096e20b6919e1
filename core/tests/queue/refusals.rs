//! Bad commands: each has its own reason, and changes nothing.

use leasehold_core::lease::Fence;
use leasehold_core::memory::MemoryStore;
use leasehold_core::queue::{BatchSize, LanePath, Priority, Progress, RequestId};
use leasehold_core::queueing::note::NoteProgress;
use leasehold_core::queueing::reclaim::Reclaim;
use leasehold_core::queueing::retry::Retry;
use leasehold_core::queueing::settle::{SettleWork, WorkOutcome};
use leasehold_core::queueing::submit::Submit;
use leasehold_core::queueing::take::Take;
use leasehold_core::queueing::{QueueCommand, QueueReply, Worker};
use leasehold_core::session::Principal;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;

use super::model::New;
use super::world::{START, lane, new_request, open, request, take_id, worker};

const NOW: Timestamp = Timestamp::from_micros(START);

fn new(id: u128) -> New {
    New { id, lane: 0, creates: false, priority: 0, delay: 0, most: 2, text: "secret" }
}

fn submit(all: &[New]) -> QueueCommand {
    QueueCommand::Submit(Submit::parse(all.iter().map(|new| new_request(new, START)).collect()).unwrap())
}

fn take(of: u128, number: u128) -> QueueCommand {
    QueueCommand::Take(Take { worker: worker(of), take: take_id(number), lane: lane(0), size: BatchSize::MAX })
}

/// Returns a store with two sessions, of which the first holds a lane under the fence 1.
fn held() -> MemoryStore {
    let mut store = MemoryStore::default();
    (0..2).for_each(|number| _ = open(number).apply(&mut store, NOW).unwrap().unwrap());
    for command in [submit(&[new(0)]), take(0, 0)] {
        command.apply(&mut store, NOW).unwrap().unwrap();
    }
    store
}

/// Runs a command that must be refused, and returns the text of the refusal.
fn refusal(store: &mut MemoryStore, command: &QueueCommand) -> String {
    let before = store.state().unwrap();
    let refusal = command.apply(store, NOW).unwrap().unwrap_err();
    assert_eq!(store.state().unwrap(), before, "a refusal changes nothing");
    format!("{} {refusal}", refusal.reason().code())
}

fn commands_of(worker: &Worker, fence: Fence) -> [QueueCommand; 4] {
    let settle =
        |outcome| QueueCommand::SettleWork(SettleWork { worker: worker.clone(), lane: lane(0), fence, outcome });
    let progress = Progress::parse(b"secret").unwrap();
    [
        settle(WorkOutcome::Completed),
        settle(WorkOutcome::Failed { retry: Retry::After(0) }),
        settle(WorkOutcome::GivenBack),
        QueueCommand::NoteProgress(NoteProgress { worker: worker.clone(), lane: lane(0), fence, progress }),
    ]
}

/// Q10: a worker whose session another service opened is refused.
#[test]
fn q10_a_session_of_another_service_is_refused() {
    let mut store = held();
    let stranger = Worker { principal: Principal::parse("stranger").unwrap(), ..worker(0) };
    let taking =
        QueueCommand::Take(Take { worker: stranger.clone(), take: take_id(1), lane: lane(1), size: BatchSize::MAX });
    for command in commands_of(&stranger, Fence(1)).into_iter().chain([taking]) {
        assert!(refusal(&mut store, &command).starts_with("SESSION_NOT_OWNED "), "{command:?}");
    }
}

/// Q10: another worker, and one with another fence, settles and notes nothing.
#[test]
fn q10_only_the_taker_with_its_fence_settles() {
    let mut store = held();
    let others = commands_of(&worker(1), Fence(1)).into_iter().chain(commands_of(&worker(0), Fence(2)));
    for command in others {
        assert!(refusal(&mut store, &command).starts_with("FENCE_PASSED "), "{command:?}");
    }
    let reclaim = Reclaim { lane: lane(0), fence: Fence(1), quiet_micros: u64::MAX, retry: Retry::After(0) };
    assert!(refusal(&mut store, &QueueCommand::Reclaim(reclaim)).starts_with("SESSION_ALIVE "));
}

/// Q09: an id that was used for another request is refused, and the refusal names the field that differs. Nothing of
/// the submit is kept.
#[test]
fn q09_a_request_is_not_submitted_again_with_other_content() {
    let mut store = held();
    let differing = [
        ("lane", New { lane: 1, ..new(0) }),
        ("kind", New { creates: true, ..new(0) }),
        ("priority", New { priority: 1, ..new(0) }),
        ("max_attempts", New { most: 3, ..new(0) }),
        ("body", New { text: "other", ..new(0) }),
    ];
    for (field, other) in differing {
        let text = refusal(&mut store, &submit(&[new(5), other]));
        assert!(text.starts_with("IDEMPOTENCY_KEY_REUSED ") && text.contains(&format!("`{field}` differs")), "{text}");
    }
    // The time before which it is not taken follows from a delay, which a repeated submit counts anew.
    let later = submit(&[New { delay: 9, ..new(0) }]);
    assert!(matches!(later.apply(&mut store, NOW).unwrap(), Ok(QueueReply::Submitted(all)) if !all[0].is_new));
}

/// Q22: no refusal and no printed command or row has a key or a body.
#[test]
fn q22_a_command_prints_no_key_and_no_body() {
    let mut store = held();
    let mut text = format!("{:?} {:?}", submit(&[new(0)]), store.state().unwrap());
    for command in commands_of(&worker(1), Fence(1)) {
        text += &format!("{} {command:?}", refusal(&mut store, &command));
    }
    assert!(!text.contains("k0") && !text.contains("secret") && text.contains("queue.0"), "{text}");
}

#[test]
fn names_are_checked_when_they_are_read_from_json() {
    let text = serde_json::to_string(&lane(0)).unwrap();
    assert_eq!(text, r#"{"queue":"queue.0","key":"k0"}"#);
    assert_eq!(serde_json::from_str::<LanePath>(&text).unwrap(), lane(0));
    assert!(serde_json::from_str::<LanePath>(r#"{"queue":"a..b","key":"7"}"#).is_err());
    assert!(serde_json::from_str::<LanePath>(r#"{"queue":"a","key":""}"#).is_err());
    assert!(serde_json::from_str::<Priority>("10").is_err());
    let id = serde_json::to_string(&request(0)).unwrap();
    assert_eq!(serde_json::from_str::<RequestId>(&id).unwrap(), request(0));
}
