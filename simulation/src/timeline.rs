//! What happened in a run, event by event, as lanes are drawn from it: kept as the run is played, cut where it is bent.

use leasehold_core::lease::LeaseId;
use serde::Serialize;
use smallvec::SmallVec;

use crate::event::{Event, Process};
use crate::network::{Answer, Message, MessageId, Payload, Request};
use crate::view::{self, FiredView};
use crate::words::Story;
use crate::world::{START, World};

/// Where something happens. What happens to a cell as a whole happens to its users; time passes by the service's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// The users of a cell.
    User(u8),
    /// A process of a cell.
    Process(u8, Process),
    /// A cell's database.
    Database(u8),
    /// The service.
    Service,
}

/// How a message's way ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It arrived.
    Arrived,
    /// It was lost.
    Lost,
    /// It arrived, and nobody waited for it any more.
    Ignored,
}

/// A message on its way. Positions are those of events, from 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arrow {
    /// Its name.
    pub id: MessageId,
    /// Whence.
    pub from: Lane,
    /// Whither.
    pub to: Lane,
    /// What it says, in a few words.
    pub says: String,
    /// The lease that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// Where it was sent.
    pub sent: usize,
    /// Where its way ended; none while it is under way at the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<usize>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<Ending>,
}

/// What happened by one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry<'a> {
    /// The event's position, from 0.
    pub position: usize,
    /// The event.
    pub event: Event,
    /// The clock after it, in microseconds since the start.
    pub at_micros: u64,
    /// What happened, in words.
    pub says: &'a str,
    /// Where it happened.
    pub lane: Lane,
    /// The messages that it sent, a copy by duplication too.
    pub sent: &'a [Arrow],
    /// The message that arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrived: Option<MessageId>,
    /// The messages that were lost by it.
    pub lost: &'a [MessageId],
    /// The edges of the engine's tables that fired.
    pub fired: &'a [FiredView],
    /// Whether it is trouble.
    pub fault: bool,
    /// What does not hold since then, where that is the run's first violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<&'a str>,
}

/// Where a run is worth looking at: positions of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Marks {
    /// Trouble.
    pub faults: Vec<usize>,
    /// The first violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<usize>,
}

/// One event, as it is kept.
#[derive(Clone, Debug)]
struct Moment {
    event: Event,
    at_micros: u64,
    says: Box<str>,
    lane: Lane,
    /// How many messages had been sent before it.
    sent_before: usize,
    arrived: Option<MessageId>,
    lost: SmallVec<[MessageId; 2]>,
    fired: Box<[FiredView]>,
    violation: Option<Box<str>>,
}

/// Every event of a run, and every message, in order.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    moments: Vec<Moment>,
    arrows: Vec<Arrow>,
    /// The messages that are under way at the end, by their places in `arrows`.
    under_way: Vec<usize>,
}

/// What has to be known of an event before it happens.
pub(crate) struct Beginning {
    story: Story,
    is_violated: bool,
}

impl Beginning {
    pub(crate) fn of(world: &World, event: Event) -> Self {
        Self { story: Story::begin(world, event), is_violated: world.violation().is_some() }
    }
}

impl Timeline {
    /// The events at some positions, as far as there are any.
    pub fn entries(&self, from: usize, to: usize) -> impl Iterator<Item = Entry<'_>> {
        let moments = self.moments.iter().enumerate().take(to).skip(from);
        moments.map(|(position, moment)| self.entry(position, moment))
    }

    fn entry<'a>(&'a self, position: usize, moment: &'a Moment) -> Entry<'a> {
        let sent_after = self.moments.get(position + 1).map_or(self.arrows.len(), |next| next.sent_before);
        Entry {
            position,
            event: moment.event,
            at_micros: moment.at_micros,
            says: &moment.says,
            lane: moment.lane,
            sent: self.arrows.get(moment.sent_before..sent_after).unwrap_or_default(),
            arrived: moment.arrived,
            lost: &moment.lost,
            fired: &moment.fired,
            fault: moment.event.is_fault(),
            violation: moment.violation.as_deref(),
        }
    }

    /// The messages that were under way at some of these positions.
    pub fn arrows(&self, from: usize, to: usize) -> impl Iterator<Item = &Arrow> {
        let sent = self.arrows.iter().take_while(move |arrow| arrow.sent < to);
        sent.filter(move |arrow| arrow.ended.is_none_or(|ended| ended >= from))
    }

    /// Where the run is worth looking at.
    pub fn marks(&self) -> Marks {
        let positions = || self.moments.iter().enumerate();
        Marks {
            faults: positions().filter(|(_, moment)| moment.event.is_fault()).map(|(at, _)| at).collect(),
            violation: positions().find(|(_, moment)| moment.violation.is_some()).map(|(at, _)| at),
        }
    }

    /// Forgets what is at a position and after it.
    pub(crate) fn cut(&mut self, position: usize) {
        let Some(moment) = self.moments.get(position) else { return };
        self.arrows.truncate(moment.sent_before);
        self.moments.truncate(position);
        for arrow in self.arrows.iter_mut().filter(|arrow| arrow.ended.is_some_and(|ended| ended >= position)) {
            (arrow.ended, arrow.how) = (None, None);
        }
        let open = self.arrows.iter().enumerate().filter(|(_, arrow)| arrow.ended.is_none());
        self.under_way = open.map(|(at, _)| at).collect();
    }

    /// Adds an event that has just happened.
    pub(crate) fn record(&mut self, beginning: Beginning, world: &World, event: Event) {
        let sent_before = self.arrows.len();
        let (arrived, lost) = self.end_ways(world, event, beginning.story.is_awaited);
        self.send(world, event);
        let fired = world.touched().fired.iter().map(|fired| view::fired(world, fired));
        let violation = world.violation().filter(|_| !beginning.is_violated);
        self.moments.push(Moment {
            event,
            at_micros: world.now() - START,
            says: beginning.story.end(world).into(),
            lane: lane(event),
            sent_before,
            arrived,
            lost,
            fired: fired.collect(),
            violation: violation.map(|violation| violation.to_string().into()),
        });
    }

    /// Ends the way of every message that is under way no more: what arrived, and what was lost.
    fn end_ways(
        &mut self,
        world: &World,
        event: Event,
        is_awaited: bool,
    ) -> (Option<MessageId>, SmallVec<[MessageId; 2]>) {
        let position = self.moments.len();
        let (mut arrived, mut lost) = (None, SmallVec::new());
        let arrows = &mut self.arrows;
        self.under_way.retain(|at| {
            let Some(arrow) = arrows.get_mut(*at) else { return false };
            if find(world, arrow.id).is_some() {
                return true;
            }
            let how = match event {
                Event::Deliver(id) if id == arrow.id && (is_awaited || !id.is_answer()) => Ending::Arrived,
                Event::Deliver(id) if id == arrow.id => Ending::Ignored,
                _ => Ending::Lost,
            };
            (arrow.ended, arrow.how) = (Some(position), Some(how));
            match how {
                Ending::Lost => lost.push(arrow.id),
                Ending::Arrived | Ending::Ignored => arrived = Some(arrow.id),
            }
            false
        });
        (arrived, lost)
    }

    /// Starts the way of every message that is under way now and was not before.
    fn send(&mut self, world: &World, event: Event) {
        for message in world.touched().sent.into_iter().filter_map(|id| find(world, id)) {
            if self.open(message.id).is_none() {
                let lease = lease(&message.payload).or_else(|| self.lease_of_request(event));
                self.under_way.push(self.arrows.len());
                self.arrows.push(Arrow::new(message, lease, self.moments.len()));
            }
        }
    }

    fn open(&self, id: MessageId) -> Option<&Arrow> {
        self.under_way.iter().filter_map(|at| self.arrows.get(*at)).find(|arrow| arrow.id == id)
    }

    /// The lease that the request is about which an event has brought: its answer is about the same.
    fn lease_of_request(&self, event: Event) -> Option<LeaseId> {
        self.arrows.iter().rfind(|arrow| Some(arrow.id) == event.message())?.lease
    }
}

impl Arrow {
    fn new(message: &Message, lease: Option<LeaseId>, sent: usize) -> Self {
        let (from, to) = way(message.id);
        let says = view::says(&message.payload);
        Self { id: message.id, from, to, says, lease, sent, ended: None, how: None }
    }
}

fn find(world: &World, id: MessageId) -> Option<&Message> {
    world.network().messages().iter().find(|message| message.id == id)
}

fn lease(payload: &Payload) -> Option<LeaseId> {
    match payload {
        Payload::Request(Request::Settle { lease, .. }) | Payload::Answer(Answer::Begun { lease, .. }) => Some(*lease),
        _ => None,
    }
}

/// Whence and whither a message goes.
fn way(id: MessageId) -> (Lane, Lane) {
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
        Event::Deliver(id) | Event::Drop(id) => way(id).1,
        Event::Duplicate(id) => way(id).0,
        Event::StopService | Event::StartService | Event::Forget | Event::Wait { .. } => Lane::Service,
    }
}
