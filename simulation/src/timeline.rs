//! The history of a run, for a diagram with one lane for each participant. The timeline grows as
//! the run is played. It is truncated if the run is changed.

use leasehold_core::lease::LeaseId;
use serde::Serialize;
use smallvec::SmallVec;

use crate::event::Event;
use crate::event_text::EventText;
use crate::message_text;
use crate::network::{Message, MessageId, Payload, Request, Response};
use crate::process::Process;
use crate::resource::WriteOutcome;
use crate::view::{self, TransitionView};
use crate::world::{START, World};

/// The participant at which an event happens, drawn as a lane of the diagram. An event of a whole
/// cell belongs to the cell's users; the passing of time belongs to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// The users of the cell with this number.
    User(u8),
    /// A process of the cell with this number.
    Process(u8, Process),
    /// The database of the cell with this number.
    Database(u8),
    /// The claims service.
    Service,
}

/// The fate of a message that is no longer in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The message arrived.
    Arrived,
    /// The message was lost.
    Lost,
    /// The message arrived after its receiver had stopped waiting.
    Ignored,
}

/// A message, drawn as an arrow from its sender to its receiver. Positions count the events of the
/// run from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arrow {
    /// The id of the arrow's message.
    pub id: MessageId,
    /// The sender of the message.
    pub from: Lane,
    /// The receiver of the message.
    pub to: Lane,
    /// The content of the message in a few words.
    pub says: String,
    /// The lease that the message is about, `None` if it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// The position of the event that sent the message.
    pub sent: usize,
    /// The position of the event that ended the message's flight; `None` while the message is in
    /// flight at the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<usize>,
    /// The fate of the message, `None` while it is in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<Delivery>,
    /// True if the message refuses its request.
    #[serde(skip_serializing_if = "is_false")]
    pub refused: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// One event of a run with its effects, as a page lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry<'a> {
    /// The position of the event in the run, counted from 0.
    pub position: usize,
    /// The event that happened.
    pub event: Event,
    /// The world's clock after the event, in microseconds since the start.
    pub at_micros: u64,
    /// The event and its consequences in words.
    pub says: &'a str,
    /// The participant at which the event happened.
    pub lane: Lane,
    /// The messages that the event sent, including a copy by duplication.
    pub sent: &'a [Arrow],
    /// The message that arrived, `None` if the event delivered none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrived: Option<MessageId>,
    /// The messages that the event lost.
    pub lost: &'a [MessageId],
    /// The transitions of claims and leases that the event caused, as the engine's tables name
    /// them.
    pub fired: &'a [TransitionView],
    /// True if the event is a fault.
    pub fault: bool,
    /// True if the service, a database or a resource refused something in the event.
    #[serde(skip_serializing_if = "is_false")]
    pub refused: bool,
    /// The text of the violation, if the event caused the first violation of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<&'a str>,
}

/// The positions of the events that a reader should look at first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Marks {
    /// The positions of the faults.
    pub faults: Vec<usize>,
    /// The position of the first violation, `None` if the run has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<usize>,
}

/// One event of a run as the timeline stores it.
#[derive(Clone, Debug)]
struct RecordedEvent {
    event: Event,
    at_micros: u64,
    says: Box<str>,
    lane: Lane,
    /// The number of messages that were sent before the event.
    sent_before: usize,
    arrived: Option<MessageId>,
    lost: SmallVec<[MessageId; 2]>,
    fired: Box<[TransitionView]>,
    refused: bool,
    violation: Option<Box<str>>,
}

/// Every event and every message of a run, in order.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    events: Vec<RecordedEvent>,
    arrows: Vec<Arrow>,
    /// The positions in `arrows` of the messages that are in flight at the end of the run.
    in_flight: Vec<usize>,
}

/// The facts about an event that must be recorded before it happens.
pub(crate) struct BeforeEvent {
    text: EventText,
    is_violated: bool,
}

impl BeforeEvent {
    pub(crate) fn of(world: &World, event: Event) -> Self {
        Self { text: EventText::before(world, event), is_violated: world.violation().is_some() }
    }
}

impl Timeline {
    /// Returns the events from position `from` up to, not including, position `to`.
    pub fn entries(&self, from: usize, to: usize) -> impl Iterator<Item = Entry<'_>> {
        let events = self.events.iter().enumerate().take(to).skip(from);
        events.map(|(position, recorded)| self.entry(position, recorded))
    }

    fn entry<'a>(&'a self, position: usize, recorded: &'a RecordedEvent) -> Entry<'a> {
        let sent_after = self.events.get(position + 1).map_or(self.arrows.len(), |next| next.sent_before);
        Entry {
            position,
            event: recorded.event,
            at_micros: recorded.at_micros,
            says: &recorded.says,
            lane: recorded.lane,
            sent: self.arrows.get(recorded.sent_before..sent_after).unwrap_or_default(),
            arrived: recorded.arrived,
            lost: &recorded.lost,
            fired: &recorded.fired,
            fault: recorded.event.is_fault(),
            refused: recorded.refused,
            violation: recorded.violation.as_deref(),
        }
    }

    /// Returns the messages that were in flight at some position from `from` up to, not including,
    /// `to`.
    pub fn arrows(&self, from: usize, to: usize) -> impl Iterator<Item = &Arrow> {
        let sent = self.arrows.iter().take_while(move |arrow| arrow.sent < to);
        sent.filter(move |arrow| arrow.ended.is_none_or(|ended| ended >= from))
    }

    /// Returns the positions of the faults and of the first violation.
    pub fn marks(&self) -> Marks {
        let positions = || self.events.iter().enumerate();
        Marks {
            faults: positions().filter(|(_, recorded)| recorded.event.is_fault()).map(|(at, _)| at).collect(),
            violation: positions().find(|(_, recorded)| recorded.violation.is_some()).map(|(at, _)| at),
        }
    }

    /// Removes the events from `position` on, with the messages that they sent.
    pub(crate) fn truncate(&mut self, position: usize) {
        let Some(recorded) = self.events.get(position) else { return };
        self.arrows.truncate(recorded.sent_before);
        self.events.truncate(position);
        for arrow in self.arrows.iter_mut().filter(|arrow| arrow.ended.is_some_and(|ended| ended >= position)) {
            (arrow.ended, arrow.how) = (None, None);
        }
        let open = self.arrows.iter().enumerate().filter(|(_, arrow)| arrow.ended.is_none());
        self.in_flight = open.map(|(at, _)| at).collect();
    }

    /// Adds an event that has just happened. `before` holds the facts from before the event.
    pub(crate) fn record(&mut self, before: BeforeEvent, world: &World, event: Event) {
        let sent_before = self.arrows.len();
        let (arrived, lost) = self.end_arrows(world, event, before.text.is_awaited);
        self.send(world, event);
        let fired = world.effects().transitions.iter().map(|transition| view::transition(world, transition));
        let violation = world.violation().filter(|_| !before.is_violated);
        self.events.push(RecordedEvent {
            event,
            at_micros: world.now() - START,
            says: before.text.after(world).into(),
            lane: lane(event),
            sent_before,
            arrived,
            lost,
            fired: fired.collect(),
            refused: is_refused(world, event),
            violation: violation.map(|violation| violation.to_string().into()),
        });
    }

    /// Ends the arrows of all messages that are no longer in flight. Returns the id of the message
    /// that arrived, if one did, and the ids of the messages that were lost.
    fn end_arrows(
        &mut self,
        world: &World,
        event: Event,
        is_awaited: bool,
    ) -> (Option<MessageId>, SmallVec<[MessageId; 2]>) {
        let position = self.events.len();
        let (mut arrived, mut lost) = (None, SmallVec::new());
        let arrows = &mut self.arrows;
        self.in_flight.retain(|at| {
            let Some(arrow) = arrows.get_mut(*at) else { return false };
            if message_in_flight(world, arrow.id).is_some() {
                return true;
            }
            let how = match event {
                Event::Deliver(id) if id == arrow.id && (is_awaited || !id.is_answer()) => Delivery::Arrived,
                Event::Deliver(id) if id == arrow.id => Delivery::Ignored,
                _ => Delivery::Lost,
            };
            (arrow.ended, arrow.how) = (Some(position), Some(how));
            match how {
                Delivery::Lost => lost.push(arrow.id),
                Delivery::Arrived | Delivery::Ignored => arrived = Some(arrow.id),
            }
            false
        });
        (arrived, lost)
    }

    /// Adds an arrow for the message that the event sent, if it sent one.
    fn send(&mut self, world: &World, event: Event) {
        for message in world.effects().sent.iter().filter_map(|id| message_in_flight(world, *id)) {
            if self.open_arrow(message.id).is_none() {
                let lease = lease(&message.payload).or_else(|| self.lease_of_request(event));
                self.in_flight.push(self.arrows.len());
                self.arrows.push(Arrow::new(message, lease, self.events.len()));
            }
        }
    }

    fn open_arrow(&self, id: MessageId) -> Option<&Arrow> {
        self.in_flight.iter().filter_map(|at| self.arrows.get(*at)).find(|arrow| arrow.id == id)
    }

    /// Returns the lease of the request that the event delivered, which is also the lease of the
    /// answer.
    fn lease_of_request(&self, event: Event) -> Option<LeaseId> {
        self.arrows.iter().rfind(|arrow| Some(arrow.id) == event.message())?.lease
    }
}

impl Arrow {
    fn new(message: &Message, lease: Option<LeaseId>, sent: usize) -> Self {
        let (from, to) = endpoints(message.id);
        let says = message_text::payload_text(&message.payload);
        let refused = message.payload.is_refusal();
        Self { id: message.id, from, to, says, lease, sent, ended: None, how: None, refused }
    }
}

/// Returns true if the event, which has just happened, was refused or has refused a request. The
/// copy of a refusal refuses nothing.
fn is_refused(world: &World, event: Event) -> bool {
    let effects = world.effects();
    let is_local = effects.commit_refusal.is_some() || effects.row_refusal.is_some();
    let answers = effects.sent.iter().filter_map(|id| message_in_flight(world, *id));
    let has_answer = !matches!(event, Event::Duplicate(_)) && answers.map(|it| &it.payload).any(Payload::is_refusal);
    is_local || effects.write == Some(WriteOutcome::Refused) || has_answer
}

fn message_in_flight(world: &World, id: MessageId) -> Option<&Message> {
    world.network().messages().iter().find(|message| message.id == id)
}

fn lease(payload: &Payload) -> Option<LeaseId> {
    match payload {
        Payload::Request(Request::Settle { lease, .. }) | Payload::Response(Response::Begun { lease, .. }) => {
            Some(*lease)
        }
        _ => None,
    }
}

/// Returns the sender and the receiver of a message.
fn endpoints(id: MessageId) -> (Lane, Lane) {
    let caller = Lane::Process(id.cell(), id.process());
    if id.is_answer() { (Lane::Service, caller) } else { (caller, Lane::Service) }
}

fn lane(event: Event) -> Lane {
    match event {
        Event::Save { cell, .. } | Event::Partition { cell } | Event::Heal { cell } => Lane::User(cell),
        Event::Step { cell, process } | Event::TimeOut { cell, process } | Event::Crash { cell, process } => {
            Lane::Process(cell, process)
        }
        Event::Disconnect { cell, worker } => Lane::Process(cell, Process::Worker(worker)),
        Event::FinishCommit { cell, .. }
        | Event::LoseCommit { cell, .. }
        | Event::RestartDatabase { cell }
        | Event::Replicate { cell }
        | Event::Drift { cell, .. } => Lane::Database(cell),
        Event::Deliver(id) | Event::Drop(id) => endpoints(id).1,
        Event::Duplicate(id) | Event::CancelCall(id) => endpoints(id).0,
        Event::Work { cell, .. } | Event::Close { cell } => Lane::User(cell),
        Event::Submit { cell, .. } | Event::Serve { cell } => Lane::User(cell),
        Event::Pause { cell } | Event::Resume { cell } => Lane::Process(cell, Process::Client),
        Event::FailWork { cell } | Event::GiveBack { cell } => Lane::Process(cell, Process::Client),
        Event::PauseService
        | Event::ResumeService
        | Event::Tick
        | Event::Decide
        | Event::Evict { .. }
        | Event::Force { .. }
        | Event::JumpClock { .. } => Lane::Service,
        Event::TakeBack | Event::StopService | Event::StartService | Event::Forget | Event::Wait { .. } => {
            Lane::Service
        }
    }
}
