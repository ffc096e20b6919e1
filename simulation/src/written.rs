//! Events as JSON has them. Those that say the same of what they are about share its reader and its writer: one for each
//! would be eight kilobytes more of WebAssembly.

use serde::{Deserialize, Serialize};

use crate::event::{Change, Drift, Event, Process};
use crate::network::MessageId;
use crate::numbers::{Numbers, from_numbers};

/// An [`Event`].
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Written {
    Save(Save),
    Step(AtProcess),
    FinishCommit(AtWorker),
    LoseCommit(AtWorker),
    Deliver(MessageId),
    Drop(MessageId),
    Duplicate(MessageId),
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
    Wait(Span),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Save {
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
#[serde(try_from = "Numbers")]
pub(crate) struct AtWorker {
    cell: u8,
    worker: u8,
}

from_numbers!(AtWorker { cell, worker }, None);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "Numbers")]
pub(crate) struct AtCell {
    cell: u8,
}

from_numbers!(AtCell { cell }, None);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AtRow {
    cell: u8,
    drift: Drift,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "Numbers")]
pub(crate) struct Span {
    seconds: u32,
}

from_numbers!(Span { seconds }, None);

impl From<Written> for Event {
    fn from(written: Written) -> Self {
        match written {
            Written::Save(Save { cell, worker, change }) => Self::Save { cell, worker, change },
            Written::Step(AtProcess { cell, process }) => Self::Step { cell, process },
            Written::FinishCommit(AtWorker { cell, worker }) => Self::FinishCommit { cell, worker },
            Written::LoseCommit(AtWorker { cell, worker }) => Self::LoseCommit { cell, worker },
            Written::Deliver(id) => Self::Deliver(id),
            Written::Drop(id) => Self::Drop(id),
            Written::Duplicate(id) => Self::Duplicate(id),
            Written::TimeOut(AtProcess { cell, process }) => Self::TimeOut { cell, process },
            Written::Crash(AtProcess { cell, process }) => Self::Crash { cell, process },
            Written::Disconnect(AtWorker { cell, worker }) => Self::Disconnect { cell, worker },
            Written::RestartDatabase(AtCell { cell }) => Self::RestartDatabase { cell },
            Written::Partition(AtCell { cell }) => Self::Partition { cell },
            Written::Heal(AtCell { cell }) => Self::Heal { cell },
            Written::StopService => Self::StopService,
            Written::StartService => Self::StartService,
            Written::Replicate(AtCell { cell }) => Self::Replicate { cell },
            Written::Forget => Self::Forget,
            Written::Drift(AtRow { cell, drift }) => Self::Drift { cell, drift },
            Written::Wait(Span { seconds }) => Self::Wait { seconds },
        }
    }
}

impl From<Event> for Written {
    fn from(event: Event) -> Self {
        match event {
            Event::Save { cell, worker, change } => Self::Save(Save { cell, worker, change }),
            Event::Step { cell, process } => Self::Step(AtProcess { cell, process }),
            Event::FinishCommit { cell, worker } => Self::FinishCommit(AtWorker { cell, worker }),
            Event::LoseCommit { cell, worker } => Self::LoseCommit(AtWorker { cell, worker }),
            Event::Deliver(id) => Self::Deliver(id),
            Event::Drop(id) => Self::Drop(id),
            Event::Duplicate(id) => Self::Duplicate(id),
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
            Event::Wait { seconds } => Self::Wait(Span { seconds }),
        }
    }
}
