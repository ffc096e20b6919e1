//! A run as data: the settings of a world and the events of the run. Replaying it gives the same
//! world on every platform.

use serde::{Deserialize, Serialize};

use crate::database::row_by_id;
use crate::event::Event;
use crate::settings::{InvalidSettings, WorldSettings};
use crate::violation::Violation;
use crate::world::{ImpossibleEvent, World};

/// The version of the trace format that this program writes and reads.
pub const VERSION: u32 = 1;

/// A recorded run: its settings and events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    version: u32,
    /// The settings of the run's world.
    pub settings: WorldSettings,
    /// The events of the run, in order.
    pub events: Vec<Event>,
}

/// The reason for which a text is not a trace, or a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTrace {
    /// The trace has another version than this program reads.
    #[error(
        "the trace has version {0}, but this program reads version {VERSION}: open it with the program that wrote it"
    )]
    Version(u32),
    /// The text does not have the form of a trace.
    #[error("the text is not a trace: {0}")]
    Form(#[from] serde_json::Error),
    /// The settings of the trace describe no valid world.
    #[error("the trace has invalid settings: {0}")]
    Settings(#[from] InvalidSettings),
    /// An event is impossible at its position.
    #[error("`events[{at}]` of the trace can't be replayed: {impossible}")]
    Event {
        /// The position of the event in the trace, counted from 0.
        at: usize,
        /// The error of the impossible event.
        impossible: ImpossibleEvent,
    },
}

impl InvalidTrace {
    /// Returns the reason code of the packages for Python and JavaScript. They name the wrong member of a text that is no
    /// trace, because the error of the JSON parser names types of Rust.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Form(_) => "NO_TRACE",
            Self::Version(_) | Self::Settings(_) | Self::Event { .. } => "INVALID_TRACE",
        }
    }
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Trace {
    /// Creates a trace of the current version.
    pub fn new(settings: WorldSettings, events: Vec<Event>) -> Self {
        Self { version: VERSION, settings, events }
    }

    /// Reads a trace from JSON.
    ///
    /// # Errors
    /// The text is not a trace of the current version, or its settings are invalid.
    pub fn parse(json: &str) -> Result<Self, InvalidTrace> {
        let Version { version } = serde_json::from_str(json)?;
        if version != VERSION {
            return Err(InvalidTrace::Version(version));
        }
        let trace: Self = serde_json::from_str(json)?;
        trace.settings.check()?;
        Ok(trace)
    }

    /// Returns the trace as JSON. Equal traces give equal bytes.
    ///
    /// # Errors
    /// Never in practice: every part of a trace has a JSON form.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Replays the trace and returns the final world.
    ///
    /// # Errors
    /// The settings describe no valid world, or an event is impossible at its position.
    pub fn replay(&self) -> Result<World, InvalidTrace> {
        let mut world = World::new(self.settings.clone())?;
        for (at, event) in self.events.iter().enumerate() {
            world.apply(*event).map_err(|impossible| InvalidTrace::Event { at, impossible })?;
        }
        Ok(world)
    }

    /// Returns a minimal part of the run that still leads to a violation of the same kind: without
    /// any one of its events, the violation does not happen. Returns `None` if the run has no
    /// violation.
    pub fn minimise(&self) -> Option<Self> {
        let original = self.events.iter().map(|event| PortableEvent { event: *event, references: None });
        let (mut events, violation) = self.to_violation(original)?;
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
        Some(Self::new(self.settings.clone(), events.into_iter().map(|portable| portable.event).collect()))
    }

    /// Returns the events without a block of `size` events that the violation does not need.
    /// Returns `None` if the violation needs every block.
    fn without_some(&self, events: &[PortableEvent], size: usize, violation: &Violation) -> Option<Vec<PortableEvent>> {
        // Without an early event, many later events become impossible. So blocks at the end, on
        // which few events depend, are tried first.
        let starts: Vec<_> = (0..events.len()).step_by(size).collect();
        starts.into_iter().rev().find_map(|start| {
            let kept = || events.iter().take(start).chain(events.iter().skip(start + size)).copied();
            let by_number = kept().map(|event| PortableEvent { references: None, ..event });
            self.if_still_violated(kept(), violation).or_else(|| self.if_still_violated(by_number, violation))
        })
    }

    fn if_still_violated(
        &self,
        events: impl Iterator<Item = PortableEvent>,
        violation: &Violation,
    ) -> Option<Vec<PortableEvent>> {
        let (shorter, found) = self.to_violation(events)?;
        (std::mem::discriminant(&found) == std::mem::discriminant(violation)).then_some(shorter)
    }

    /// Performs those of the events that are possible, up to the first violation. Returns the
    /// performed events and the violation, `None` if there was no violation.
    fn to_violation(&self, events: impl Iterator<Item = PortableEvent>) -> Option<(Vec<PortableEvent>, Violation)> {
        let mut world = World::new(self.settings.clone()).ok()?;
        let mut applied = Vec::new();
        for event in events {
            let resolved = event.resolved_in(&world);
            if world.apply(resolved.event).is_ok() {
                applied.push(resolved);
            }
            if let Some(violation) = world.violation() {
                return Some((applied, violation.clone()));
            }
        }
        None
    }
}

/// An event that still finds its message and its rows after earlier events were removed from the
/// run. It refers to a message by the number of calls that the process has made since, and to a row
/// by the row's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PortableEvent {
    event: Event,
    /// The description of the event's message and rows. `None` until the event is performed for the
    /// first time with its original numbers.
    references: Option<References>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct References {
    calls_ago: u32,
    names: [Option<u8>; 2],
}

impl PortableEvent {
    fn resolved_in(self, world: &World) -> Self {
        let made = self.event.message().map_or(0, |id| world.calls(id.cell(), id.process()));
        match self.references {
            None => Self { references: Some(self.references(world, made)), ..self },
            Some(references) => Self { event: self.renumbered(references, world, made), ..self },
        }
    }

    fn references(self, world: &World, made: u32) -> References {
        let calls_ago = self.event.message().map_or(0, |id| made.saturating_sub(id.call()));
        let mut names = [None; 2];
        let mut places = names.iter_mut();
        let _ = self.event.with_rows(|cell, id| {
            let row = world.cell(cell).and_then(|cell| row_by_id(cell.database.rows(), id));
            places.next().into_iter().for_each(|name| *name = row.map(|row| row.name));
            id
        });
        References { calls_ago, names }
    }

    fn renumbered(self, references: References, world: &World, made: u32) -> Event {
        let mut names = references.names.into_iter();
        let event = self.event.with_rows(|cell, id| {
            let named = names.next().flatten().and_then(|name| world.cell(cell)?.database.row_by_name(name));
            named.map_or(id, |row| row.id)
        });
        match event.message() {
            Some(id) => event.with_message(id.with_call(made.saturating_sub(references.calls_ago))),
            None => event,
        }
    }
}
