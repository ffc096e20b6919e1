//! The JSON form of an event. Variants with the same fields share a struct: the readers and writers
//! that serde derives for a struct add eight kilobytes of WebAssembly.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{Change, Drift, Event};
use crate::integer_fields::{IntegerFields, from_integer_fields};
use crate::network::MessageId;
use crate::process::Process;
use crate::queue_message::WorkKind;

/// The JSON form of an [`Event`].
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventJson {
    Save(SaveFields),
    Step(AtProcess),
    FinishCommit(AtWorker),
    LoseCommit(AtWorker),
    Deliver(MessageId),
    Drop(MessageId),
    Duplicate(MessageId),
    CancelCall(MessageId),
    TakeBack,
    TimeOut(AtProcess),
    Crash(AtProcess),
    Disconnect(AtWorker),
    RestartDatabase(AtCell),
    Partition(AtCell),
    Heal(AtCell),
    StopService,
    StartService,
    Replicate(AtCell),
    Forget,
    Drift(AtRow),
    Wait(Duration),
    Work(AtLock),
    Close(AtCell),
    Pause(AtCell),
    Resume(AtCell),
    PauseService,
    ResumeService,
    Tick,
    Decide,
    Evict(AtCell),
    Force(u8),
    JumpClock(i32),
    Submit(AtLane),
    Serve(AtCell),
    FailWork(AtCell),
    GiveBack(AtCell),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SaveFields {
    cell: u8,
    worker: u8,
    change: Change,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AtProcess {
    cell: u8,
    process: Process,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "IntegerFields")]
pub(crate) struct AtWorker {
    cell: u8,
    worker: u8,
}

from_integer_fields!(AtWorker { cell, worker }, None);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "IntegerFields")]
pub(crate) struct AtCell {
    cell: u8,
}

from_integer_fields!(AtCell { cell }, None);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AtRow {
    cell: u8,
    drift: Drift,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "IntegerFields")]
pub(crate) struct Duration {
    seconds: u32,
}

from_integer_fields!(Duration { seconds }, None);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "IntegerFields")]
pub(crate) struct AtLock {
    cell: u8,
    lock: u8,
}

from_integer_fields!(AtLock { cell, lock }, None);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AtLane {
    cell: u8,
    lane: u8,
    kind: WorkKind,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        EventJson::from(*self).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        EventJson::deserialize(from).map(Self::from)
    }
}

impl From<EventJson> for Event {
    fn from(json: EventJson) -> Self {
        match json {
            EventJson::Save(SaveFields { cell, worker, change }) => Self::Save { cell, worker, change },
            EventJson::Step(AtProcess { cell, process }) => Self::Step { cell, process },
            EventJson::FinishCommit(AtWorker { cell, worker }) => Self::FinishCommit { cell, worker },
            EventJson::LoseCommit(AtWorker { cell, worker }) => Self::LoseCommit { cell, worker },
            EventJson::Deliver(id) => Self::Deliver(id),
            EventJson::Drop(id) => Self::Drop(id),
            EventJson::Duplicate(id) => Self::Duplicate(id),
            EventJson::CancelCall(id) => Self::CancelCall(id),
            EventJson::TakeBack => Self::TakeBack,
            EventJson::TimeOut(AtProcess { cell, process }) => Self::TimeOut { cell, process },
            EventJson::Crash(AtProcess { cell, process }) => Self::Crash { cell, process },
            EventJson::Disconnect(AtWorker { cell, worker }) => Self::Disconnect { cell, worker },
            EventJson::RestartDatabase(AtCell { cell }) => Self::RestartDatabase { cell },
            EventJson::Partition(AtCell { cell }) => Self::Partition { cell },
            EventJson::Heal(AtCell { cell }) => Self::Heal { cell },
            EventJson::StopService => Self::StopService,
            EventJson::StartService => Self::StartService,
            EventJson::Replicate(AtCell { cell }) => Self::Replicate { cell },
            EventJson::Forget => Self::Forget,
            EventJson::Drift(AtRow { cell, drift }) => Self::Drift { cell, drift },
            EventJson::Wait(Duration { seconds }) => Self::Wait { seconds },
            EventJson::Work(AtLock { cell, lock }) => Self::Work { cell, lock },
            EventJson::Close(AtCell { cell }) => Self::Close { cell },
            EventJson::Pause(AtCell { cell }) => Self::Pause { cell },
            EventJson::Resume(AtCell { cell }) => Self::Resume { cell },
            EventJson::PauseService => Self::PauseService,
            EventJson::ResumeService => Self::ResumeService,
            EventJson::Tick => Self::Tick,
            EventJson::Decide => Self::Decide,
            EventJson::Evict(AtCell { cell }) => Self::Evict { cell },
            EventJson::Force(lock) => Self::Force { lock },
            EventJson::JumpClock(seconds) => Self::JumpClock { seconds },
            EventJson::Submit(AtLane { cell, lane, kind }) => Self::Submit { cell, lane, kind },
            EventJson::Serve(AtCell { cell }) => Self::Serve { cell },
            EventJson::FailWork(AtCell { cell }) => Self::FailWork { cell },
            EventJson::GiveBack(AtCell { cell }) => Self::GiveBack { cell },
        }
    }
}

impl From<Event> for EventJson {
    fn from(event: Event) -> Self {
        match event {
            Event::Save { cell, worker, change } => Self::Save(SaveFields { cell, worker, change }),
            Event::Step { cell, process } => Self::Step(AtProcess { cell, process }),
            Event::FinishCommit { cell, worker } => Self::FinishCommit(AtWorker { cell, worker }),
            Event::LoseCommit { cell, worker } => Self::LoseCommit(AtWorker { cell, worker }),
            Event::Deliver(id) => Self::Deliver(id),
            Event::Drop(id) => Self::Drop(id),
            Event::Duplicate(id) => Self::Duplicate(id),
            Event::CancelCall(id) => Self::CancelCall(id),
            Event::TakeBack => Self::TakeBack,
            Event::TimeOut { cell, process } => Self::TimeOut(AtProcess { cell, process }),
            Event::Crash { cell, process } => Self::Crash(AtProcess { cell, process }),
            Event::Disconnect { cell, worker } => Self::Disconnect(AtWorker { cell, worker }),
            Event::RestartDatabase { cell } => Self::RestartDatabase(AtCell { cell }),
            Event::Partition { cell } => Self::Partition(AtCell { cell }),
            Event::Heal { cell } => Self::Heal(AtCell { cell }),
            Event::StopService => Self::StopService,
            Event::StartService => Self::StartService,
            Event::Replicate { cell } => Self::Replicate(AtCell { cell }),
            Event::Forget => Self::Forget,
            Event::Drift { cell, drift } => Self::Drift(AtRow { cell, drift }),
            Event::Wait { seconds } => Self::Wait(Duration { seconds }),
            Event::Work { cell, lock } => Self::Work(AtLock { cell, lock }),
            Event::Close { cell } => Self::Close(AtCell { cell }),
            Event::Pause { cell } => Self::Pause(AtCell { cell }),
            Event::Resume { cell } => Self::Resume(AtCell { cell }),
            Event::PauseService => Self::PauseService,
            Event::ResumeService => Self::ResumeService,
            Event::Tick => Self::Tick,
            Event::Decide => Self::Decide,
            Event::Evict { cell } => Self::Evict(AtCell { cell }),
            Event::Force { lock } => Self::Force(lock),
            Event::JumpClock { seconds } => Self::JumpClock(seconds),
            Event::Submit { cell, lane, kind } => Self::Submit(AtLane { cell, lane, kind }),
            Event::Serve { cell } => Self::Serve(AtCell { cell }),
            Event::FailWork { cell } => Self::FailWork(AtCell { cell }),
            Event::GiveBack { cell } => Self::GiveBack(AtCell { cell }),
        }
    }
}
