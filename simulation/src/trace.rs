//! A run as data: the settings of a world, and the events that befell it. Replaying it gives the same world, anywhere.

use serde::{Deserialize, Serialize};

use crate::check::Violation;
use crate::database::find;
use crate::event::Event;
use crate::settings::{BadSettings, Settings};
use crate::world::{Impossible, World};

/// The version of the form that this program writes and reads.
pub const VERSION: u32 = 1;

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    version: u32,
    /// What the world is made of.
    pub settings: Settings,
    /// What befell it, in order.
    pub events: Vec<Event>,
}

/// A text that is no trace, or a trace that can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum BadTrace {
    /// It is of another version.
    #[error(
        "the trace is of version {0}, and this program reads version {VERSION}: open it with the program that wrote it"
    )]
    Version(u32),
    /// It has not the form of a trace.
    #[error("this is no trace: {0}")]
    Form(#[from] serde_json::Error),
    /// No world can be made of its settings.
    #[error("the trace has bad settings: {0}")]
    Settings(#[from] BadSettings),
    /// An event can't happen where it stands.
    #[error("event {at} of the trace can't be replayed: {impossible}")]
    Event {
        /// Its position, from 0.
        at: usize,
        /// The event.
        impossible: Impossible,
    },
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Trace {
    /// A run.
    pub fn new(settings: Settings, events: Vec<Event>) -> Self {
        Self { version: VERSION, settings, events }
    }

    /// Reads a trace from JSON.
    ///
    /// # Errors
    /// It is of another version, or no trace.
    pub fn parse(json: &str) -> Result<Self, BadTrace> {
        let Version { version } = serde_json::from_str(json)?;
        if version != VERSION {
            return Err(BadTrace::Version(version));
        }
        let trace: Self = serde_json::from_str(json)?;
        trace.settings.check()?;
        Ok(trace)
    }

    /// The trace as JSON: the same bytes for the same trace.
    ///
    /// # Errors
    /// Never in practice: every part of a trace has a form in JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The world that it leads to.
    ///
    /// # Errors
    /// Its settings make no world, or an event can't happen where it stands.
    pub fn replay(&self) -> Result<World, BadTrace> {
        let mut world = World::new(self.settings.clone())?;
        for (at, event) in self.events.iter().enumerate() {
            world.apply(*event).map_err(|impossible| BadTrace::Event { at, impossible })?;
        }
        Ok(world)
    }

    /// The same run up to its violation, without the events that are not needed for a violation of that kind: taking
    /// any one of them out loses it. None where nothing is violated.
    pub fn minimise(&self) -> Option<Self> {
        let recalled: Vec<_> = self.events.iter().map(|event| Recalled { event: *event, by: None }).collect();
        let (mut events, violation) = self.to_violation(recalled.into_iter())?;
        let mut size = events.len().div_ceil(2);
        loop {
            match self.without_some(&events, size, &violation) {
                Some(shorter) => {
                    events = shorter;
                    size = size.min(events.len().div_ceil(2)).max(1);
                }
                None if size <= 1 => break,
                None => size = size.div_ceil(2),
            }
        }
        Some(Self::new(self.settings.clone(), events.into_iter().map(|recalled| recalled.event).collect()))
    }

    /// The events without some that follow each other and are not needed.
    fn without_some(&self, events: &[Recalled], size: usize, violation: &Violation) -> Option<Vec<Recalled>> {
        // From the end: what comes late depends on what comes early, and seldom the other way round.
        let starts: Vec<_> = (0..events.len()).step_by(size).collect();
        starts.into_iter().rev().find_map(|start| {
            let kept = || events.iter().take(start).chain(events.iter().skip(start + size)).copied();
            let by_number = kept().map(|recalled| Recalled { by: None, ..recalled });
            self.still(kept(), violation).or_else(|| self.still(by_number, violation))
        })
    }

    fn still(&self, events: impl Iterator<Item = Recalled>, violation: &Violation) -> Option<Vec<Recalled>> {
        let (shorter, found) = self.to_violation(events)?;
        (std::mem::discriminant(&found) == std::mem::discriminant(violation)).then_some(shorter)
    }

    /// Those of some events that can happen, up to the first violation.
    fn to_violation(&self, events: impl Iterator<Item = Recalled>) -> Option<(Vec<Recalled>, Violation)> {
        let mut world = World::new(self.settings.clone()).ok()?;
        let mut applied = Vec::new();
        for recalled in events {
            let recalled = recalled.seen_from(&world);
            if world.apply(recalled.event).is_ok() {
                applied.push(recalled);
            }
            if let Some(violation) = world.violation() {
                return Some((applied, violation.clone()));
            }
        }
        None
    }
}

/// An event as it is known again in a world in which some events before it never happened: a message belongs to its
/// caller's last call, or to the one before that, and so on; a row is the one that has that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recalled {
    event: Event,
    /// None where the event is taken by its numbers, as it stands.
    by: Option<Marks>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    calls_ago: u32,
    names: [Option<u8>; 2],
}

impl Recalled {
    fn seen_from(self, world: &World) -> Self {
        let made = self.event.message().map_or(0, |id| world.calls(id.cell(), id.process()));
        match self.by {
            None => Self { by: Some(self.marks(world, made)), ..self },
            Some(marks) => Self { event: self.renumbered(marks, world, made), ..self },
        }
    }

    fn marks(self, world: &World, made: u32) -> Marks {
        let calls_ago = self.event.message().map_or(0, |id| made.saturating_sub(id.call()));
        let mut names = [None; 2];
        let mut places = names.iter_mut();
        let _ = self.event.with_rows(|cell, id| {
            let row = world.cell(cell).and_then(|cell| find(cell.database.rows(), id));
            places.next().into_iter().for_each(|name| *name = row.map(|row| row.name));
            id
        });
        Marks { calls_ago, names }
    }

    fn renumbered(self, marks: Marks, world: &World, made: u32) -> Event {
        let mut names = marks.names.into_iter();
        let event = self.event.with_rows(|cell, id| {
            let named = names.next().flatten().and_then(|name| world.cell(cell)?.database.row_named(name));
            named.map_or(id, |row| row.id)
        });
        match event.message() {
            Some(id) => event.with_message(id.of_call(made.saturating_sub(marks.calls_ago))),
            None => event,
        }
    }
}
