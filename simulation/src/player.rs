//! A run that a person watches. The person can play it, step back, move to any position, and change
//! the run from there.

use crate::event::Event;
use crate::quiescence::{self, NotQuiescent};
use crate::scheduler::RandomScheduler;
use crate::settings::{InvalidSettings, WorldSettings};
use crate::timeline::{BeforeEvent, Timeline};
use crate::trace::{InvalidTrace, Trace};
use crate::world::{ImpossibleEvent, World};

/// The number of events between two snapshots of the world in a run that is not long. To step back, a
/// player replays the run from the last snapshot before the target.
const SNAPSHOT_INTERVAL: usize = 64;

/// The most snapshots of a run. The worlds of a long run are large, and a WebAssembly module has four
/// gigabytes: a longer run has longer intervals.
const MAX_SNAPSHOTS: usize = 1024;

/// A run with a current position.
#[derive(Clone, Debug)]
pub struct Player {
    settings: WorldSettings,
    events: Vec<Event>,
    position: usize,
    world: World,
    /// The worlds after 0, `interval`, 2 × `interval`, … events of the run.
    snapshots: Vec<World>,
    interval: usize,
    scheduler: RandomScheduler,
    timeline: Timeline,
}

impl Player {
    /// Creates a run without events.
    ///
    /// # Errors
    /// The settings describe no valid world.
    pub fn new(settings: WorldSettings) -> Result<Self, InvalidSettings> {
        let world = World::new(settings.clone())?;
        let scheduler = RandomScheduler::new(&settings);
        let snapshots = vec![world.clone()];
        Ok(Self {
            settings,
            events: Vec::new(),
            position: 0,
            snapshots,
            interval: SNAPSHOT_INTERVAL,
            world,
            scheduler,
            timeline: Timeline::default(),
        })
    }

    /// Loads a recorded run and moves to the run's start. The whole run is replayed once, so that
    /// an impossible event is found now and not while a person watches.
    ///
    /// # Errors
    /// The trace cannot be replayed.
    pub fn load(trace: Trace) -> Result<Self, InvalidTrace> {
        let mut player = Self::new(trace.settings)?;
        for (at, event) in trace.events.into_iter().enumerate() {
            player.apply(event).map_err(|impossible| InvalidTrace::Event { at, impossible })?;
        }
        player.seek(0);
        Ok(player)
    }

    /// Returns the world at the current position.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the number of events before the current position.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns every event of the run, including the events after the current position.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the timeline of the whole run, including the events after the current position.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the whole run as a trace.
    pub fn trace(&self) -> Trace {
        Trace::new(self.settings.clone(), self.events.clone())
    }

    /// Moves one event forward. Returns false at the end of the run.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.events.get(self.position).copied() else { return false };
        let applied = self.world.apply(event);
        debug_assert_eq!(applied, Ok(()), "it could happen when it was recorded");
        self.position += 1;
        self.take_snapshot();
        true
    }

    /// Moves one event back. Returns false at the start of the run.
    pub fn step_back(&mut self) -> bool {
        let Some(before) = self.position.checked_sub(1) else { return false };
        self.seek(before);
        true
    }

    /// Moves to a position: the number of events before it. If the run is shorter, moves to the end
    /// of the run.
    pub fn seek(&mut self, position: usize) {
        let target = position.min(self.events.len());
        let nearest = (target / self.interval).min(self.snapshots.len().saturating_sub(1));
        let is_nearer = self.position <= target && self.position >= nearest * self.interval;
        if let Some(world) = self.snapshots.get(nearest).filter(|_| !is_nearer) {
            self.world.clone_from(world);
            self.position = nearest * self.interval;
        }
        while self.position < target && self.step() {}
    }

    /// Performs an event at the current position and removes all later events from the run.
    ///
    /// # Errors
    /// The event is impossible, and nothing has changed.
    pub fn apply(&mut self, event: Event) -> Result<(), ImpossibleEvent> {
        let before = BeforeEvent::of(&self.world, event);
        self.world.apply(event)?;
        self.record(before, event);
        Ok(())
    }

    /// Performs a random event at the current position, removes all later events from the run and
    /// returns the event.
    ///
    /// # Errors
    /// No event is possible, because the world's clock has reached its end.
    pub fn step_randomly(&mut self) -> Result<Event, ImpossibleEvent> {
        let event = self.scheduler.choose(&self.world);
        self.apply(event)?;
        Ok(event)
    }

    /// Performs up to `events` random events from the current position on and returns their number.
    /// Stops earlier at the first violation of the run and at the end of the world's clock.
    pub fn play_randomly(&mut self, events: u32) -> u32 {
        let was_violated = self.world.violation().is_some();
        let mut played = 0;
        while played < events && (was_violated || self.world.violation().is_none()) && self.step_randomly().is_ok() {
            played += 1;
        }
        played
    }

    /// Ends all faults at the current position and performs events until every process has
    /// finished. Returns the number of these events. All later events are removed from the run.
    ///
    /// # Errors
    /// The processes do not finish, and nothing has changed.
    pub fn quiesce(&mut self) -> Result<usize, NotQuiescent> {
        let events = quiescence::reach(&mut self.world.clone())?;
        for event in &events {
            let applied = self.apply(*event);
            debug_assert_eq!(applied, Ok(()), "it happened to the same world");
        }
        Ok(events.len())
    }

    fn record(&mut self, before: BeforeEvent, event: Event) {
        self.timeline.truncate(self.position);
        self.timeline.record(before, &self.world, event);
        self.events.truncate(self.position);
        self.snapshots.truncate(self.position / self.interval + 1);
        self.events.push(event);
        self.position += 1;
        self.take_snapshot();
    }

    fn take_snapshot(&mut self) {
        if self.position == self.snapshots.len() * self.interval {
            self.snapshots.push(self.world.clone());
            self.thin_snapshots();
        }
    }

    /// Drops every second snapshot of a run that has too many, which doubles the interval.
    fn thin_snapshots(&mut self) {
        if self.snapshots.len() > MAX_SNAPSHOTS {
            let mut is_dropped = true;
            self.snapshots.retain(|_| {
                is_dropped = !is_dropped;
                !is_dropped
            });
            self.interval *= 2;
        }
    }
}
