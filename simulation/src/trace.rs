//! A run as data: the settings of a world, and the events that befell it. Replaying it gives the same world, anywhere.

use serde::{Deserialize, Serialize};

use crate::check::Violation;
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
    #[error("the trace is of version {0}, and this program reads version {VERSION}: open it with the program that wrote it")]
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

    /// The same run up to its violation, without the events that are not needed for a violation of that kind: taking any
    /// one of them out loses it. None where nothing is violated.
    pub fn minimise(&self) -> Option<Self> {
        let (mut events, violation) = self.to_violation(&self.events)?;
        let mut size = events.len().div_ceil(2);
        loop {
            let shorter = self.without_one(&events, size, &violation);
            match shorter {
                Some(shorter) => {
                    events = shorter;
                    size = size.min(events.len().div_ceil(2)).max(1);
                }
                None if size <= 1 => return Some(Self::new(self.settings.clone(), events)),
                None => size = size.div_ceil(2),
            }
        }
    }

    /// The events without one run of so many that is not needed.
    fn without_one(&self, events: &[Event], size: usize, violation: &Violation) -> Option<Vec<Event>> {
        // From the end: what comes late depends on what comes early, and seldom the other way round.
        let starts: Vec<_> = (0..events.len()).step_by(size).collect();
        starts.into_iter().rev().find_map(|start| {
            let kept: Vec<_> = events.iter().take(start).chain(events.iter().skip(start + size)).copied().collect();
            let (shorter, found) = self.to_violation(&kept)?;
            let is_same = std::mem::discriminant(&found) == std::mem::discriminant(violation);
            (is_same && shorter.len() < events.len()).then_some(shorter)
        })
    }

    /// Those of some events that can happen, up to the first violation.
    fn to_violation(&self, events: &[Event]) -> Option<(Vec<Event>, Violation)> {
        let mut world = World::new(self.settings.clone()).ok()?;
        let mut applied = Vec::new();
        for event in events {
            if world.apply(*event).is_ok() {
                applied.push(*event);
            }
            if let Some(violation) = world.violation() {
                return Some((applied, violation.clone()));
            }
        }
        None
    }
}
