//! A run that is watched: played, stepped back, scrubbed, and bent by what its watcher lets happen.

use crate::event::Event;
use crate::scheduler::Chance;
use crate::settings::{BadSettings, Settings};
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
}

impl Player {
    /// A run in which nothing has happened yet.
    ///
    /// # Errors
    /// No world can be made of these settings.
    pub fn new(settings: Settings) -> Result<Self, BadSettings> {
        let world = World::new(settings.clone())?;
        let chance = Chance::new(&settings);
        Ok(Self { settings, events: Vec::new(), position: 0, kept: vec![world.clone()], world, chance })
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
        self.world.apply(event)?;
        self.happened(event);
        Ok(())
    }

    /// Lets chance have something happen at the position. What was to happen after it is gone.
    pub fn play(&mut self) -> Event {
        let event = self.chance.step(&mut self.world);
        self.happened(event);
        event
    }

    fn happened(&mut self, event: Event) {
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
