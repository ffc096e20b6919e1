//! A run that is watched: played, stepped back, scrubbed, and bent by what its watcher lets happen.

use crate::calm::{self, Unrest};
use crate::event::Event;
use crate::scheduler::Chance;
use crate::settings::{BadSettings, Settings};
use crate::timeline::{Beginning, Timeline};
use crate::trace::{BadTrace, Trace};
use crate::world::{Impossible, World};

/// A world is kept after every so many events: stepping back is replaying from the last one.
const KEPT_EVERY: usize = 64;

/// A run and a position in it.
#[derive(Clone, Debug)]
pub struct Player {
    settings: Settings,
    events: Vec<Event>,
    position: usize,
    world: World,
    /// The worlds after 0, 64, 128, … events.
    kept: Vec<World>,
    chance: Chance,
    timeline: Timeline,
}

impl Player {
    /// A run in which nothing has happened yet.
    ///
    /// # Errors
    /// No world can be made of these settings.
    pub fn new(settings: Settings) -> Result<Self, BadSettings> {
        let world = World::new(settings.clone())?;
        let chance = Chance::new(&settings);
        let kept = vec![world.clone()];
        Ok(Self { settings, events: Vec::new(), position: 0, kept, world, chance, timeline: Timeline::default() })
    }

    /// A run that was recorded, at its start. All of it is replayed once, so that no event is found impossible later.
    ///
    /// # Errors
    /// The trace can't be replayed.
    pub fn load(trace: Trace) -> Result<Self, BadTrace> {
        let mut player = Self::new(trace.settings)?;
        for (at, event) in trace.events.into_iter().enumerate() {
            player.apply(event).map_err(|impossible| BadTrace::Event { at, impossible })?;
        }
        player.seek(0);
        Ok(player)
    }

    /// The world at the position.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// How many events have happened at the position.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Every event of the run, those after the position too.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// What happened in the run, after the position too.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The run as a trace.
    pub fn trace(&self) -> Trace {
        Trace::new(self.settings.clone(), self.events.clone())
    }

    /// Goes one event on. False at the end.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.events.get(self.position).copied() else { return false };
        let applied = self.world.apply(event);
        debug_assert_eq!(applied, Ok(()), "it could happen when it was recorded");
        self.position += 1;
        self.keep();
        true
    }

    /// Goes one event back. False at the start.
    pub fn back(&mut self) -> bool {
        let Some(before) = self.position.checked_sub(1) else { return false };
        self.seek(before);
        true
    }

    /// Goes to a position, or to the end where it is beyond.
    pub fn seek(&mut self, position: usize) {
        let target = position.min(self.events.len());
        let nearest = (target / KEPT_EVERY).min(self.kept.len().saturating_sub(1));
        let is_nearer = self.position <= target && self.position >= nearest * KEPT_EVERY;
        if let Some(world) = self.kept.get(nearest).filter(|_| !is_nearer) {
            self.world.clone_from(world);
            self.position = nearest * KEPT_EVERY;
        }
        while self.position < target && self.step() {}
    }

    /// Lets something happen at the position. What was to happen after it is gone.
    ///
    /// # Errors
    /// It can't happen; nothing has changed.
    pub fn apply(&mut self, event: Event) -> Result<(), Impossible> {
        let beginning = Beginning::of(&self.world, event);
        self.world.apply(event)?;
        self.happened(beginning, event);
        Ok(())
    }

    /// Lets chance have something happen at the position. What was to happen after it is gone.
    ///
    /// # Errors
    /// Nothing can happen any more: the world has come to its end.
    pub fn play(&mut self) -> Result<Event, Impossible> {
        let event = self.chance.choose(&self.world);
        self.apply(event)?;
        Ok(event)
    }

    /// Lets chance have so many things happen, up to the run's first violation or the end of the world. How many have
    /// happened.
    pub fn play_on(&mut self, events: u32) -> u32 {
        let was_violated = self.world.violation().is_some();
        let mut played = 0;
        while played < events && (was_violated || self.world.violation().is_none()) && self.play().is_ok() {
            played += 1;
        }
        played
    }

    /// Ends all trouble at the position, and lets everybody come to rest. How many events that took. What was to happen
    /// after it is gone.
    ///
    /// # Errors
    /// It goes on for ever; nothing has changed.
    pub fn settle(&mut self) -> Result<usize, Unrest> {
        let events = calm::settle(&mut self.world.clone())?;
        for event in &events {
            let applied = self.apply(*event);
            debug_assert_eq!(applied, Ok(()), "it happened to the same world");
        }
        Ok(events.len())
    }

    fn happened(&mut self, beginning: Beginning, event: Event) {
        self.timeline.cut(self.position);
        self.timeline.record(beginning, &self.world, event);
        self.events.truncate(self.position);
        self.kept.truncate(self.position / KEPT_EVERY + 1);
        self.events.push(event);
        self.position += 1;
        self.keep();
    }

    fn keep(&mut self) {
        if self.position == self.kept.len() * KEPT_EVERY {
            self.kept.push(self.world.clone());
        }
    }
}
