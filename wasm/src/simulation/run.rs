//! The `Simulation` class: one run of a simulated world, with a position that can be moved.

use leasehold_simulation::network::MessageId;
use leasehold_simulation::player::Player;
use leasehold_simulation::quiescence::{self, NotQuiescent};
use leasehold_simulation::settings::{self, InvalidSettings};
use leasehold_simulation::trace::{InvalidTrace, Trace};
use leasehold_simulation::world::ImpossibleEvent;
use leasehold_simulation::{event_text, possible, view};
use wasm_bindgen::prelude::wasm_bindgen;

use super::json;
use crate::error::Exception;

#[wasm_bindgen]
extern "C" {
    /// The settings of a world that differ from the defaults.
    #[wasm_bindgen(typescript_type = "Partial<Settings>")]
    pub type PartialSettings;

    /// The settings of a world.
    #[wasm_bindgen(typescript_type = "Settings")]
    pub type Settings;

    /// One event of a world.
    #[wasm_bindgen(typescript_type = "Event")]
    pub type Event;

    /// A list of events of a world.
    #[wasm_bindgen(typescript_type = "Event[]")]
    pub type Events;

    /// The state of a world at a position of the run.
    #[wasm_bindgen(typescript_type = "View")]
    pub type View;

    /// A list of events that have happened, each with its effects.
    #[wasm_bindgen(typescript_type = "Entry[]")]
    pub type Entries;

    /// A list of messages, each from its sending to its end.
    #[wasm_bindgen(typescript_type = "Arrow[]")]
    pub type Arrows;

    /// The positions of the faults and of the first violation in a run.
    #[wasm_bindgen(typescript_type = "Marks")]
    pub type Marks;
}

/// A run of a simulated world, and a position in the run: the number of events that have happened.
#[wasm_bindgen]
pub struct Simulation(Player);

#[wasm_bindgen]
impl Simulation {
    /// Creates a run without events. Throws if no world can have these settings.
    #[wasm_bindgen(constructor)]
    pub fn new(settings: Option<PartialSettings>) -> Result<Simulation, Exception> {
        let settings = match settings {
            Some(settings) => json::from_js(&settings)?,
            None => settings::WorldSettings::default(),
        };
        Ok(Self(Player::new(settings)?))
    }

    /// Loads a recorded run and moves the position to the run's start. Throws `NO_TRACE` if the text
    /// is not a trace, and `INVALID_TRACE` if the trace can't be replayed.
    pub fn load(trace: &str) -> Result<Simulation, Exception> {
        Ok(Self(Player::load(Trace::parse(trace)?)?))
    }

    /// The position in the run: the number of events that have happened.
    #[wasm_bindgen(getter)]
    pub fn position(&self) -> usize {
        self.0.position()
    }

    /// The number of events of the whole run, including the events after the position.
    #[wasm_bindgen(getter)]
    pub fn length(&self) -> usize {
        self.0.events().len()
    }

    /// Returns the settings of the world.
    pub fn settings(&self) -> Result<Settings, Exception> {
        json::to_js(self.0.world().settings())
    }

    /// Returns the whole run as JSON text. Equal runs have equal bytes.
    pub fn trace(&self) -> Result<String, Exception> {
        json::to_text(&self.0.trace())
    }

    /// Moves the position forward by one event. Returns false at the end of the run.
    pub fn step(&mut self) -> bool {
        self.0.step()
    }

    /// Moves the position back by one event. Returns false at the start of the run.
    pub fn back(&mut self) -> bool {
        self.0.step_back()
    }

    /// Moves the position to a number of events. If the run is shorter, moves to the end of the
    /// run.
    pub fn seek(&mut self, position: usize) {
        self.0.seek(position);
    }

    /// Applies an event at the position and drops the events after the position. Throws
    /// `IMPOSSIBLE` if the event cannot happen there; the run is then unchanged.
    pub fn apply(&mut self, event: Event) -> Result<(), Exception> {
        Ok(self.0.apply(json::from_js(&event)?)?)
    }

    /// Drops the events after the position and plays up to `events` random events from the seed.
    /// Playing ends early at the first violation. Returns the number of events played. A call may
    /// play at most 1,000,000.
    pub fn play(&mut self, events: u32) -> u32 {
        self.0.play_randomly(events)
    }

    /// Drops the events after the position, ends all faults, and plays events until every process
    /// is idle and each cell has reconciled and verified. Returns the number of events played.
    /// Throws `IMPOSSIBLE` if the processes do not finish; the run is then unchanged.
    pub fn quiesce(&mut self) -> Result<usize, Exception> {
        Ok(self.0.quiesce()?)
    }

    /// Returns the events that can happen at the position. Saves, changes by plain SQL and waits
    /// are not listed, since a caller chooses their parameters.
    pub fn possible(&self) -> Result<Events, Exception> {
        json::to_js(&possible::events(self.0.world()))
    }

    /// Returns the next event of a run without further faults, or `undefined` if every process is
    /// idle. The message with the id `except` is not delivered.
    #[wasm_bindgen(js_name = nextCalm)]
    pub fn next_calm(&self, except: Option<u32>) -> Result<Option<Event>, Exception> {
        let event = quiescence::next_event(self.0.world(), except.map(MessageId::from));
        event.as_ref().map(json::to_js).transpose()
    }

    /// Returns a sentence about an event and the effects that it would have at the position.
    pub fn describe(&self, event: Event) -> Result<String, Exception> {
        Ok(event_text::describe(self.0.world(), json::from_js(&event)?))
    }

    /// Returns the state of the world at the position.
    pub fn view(&self) -> Result<View, Exception> {
        json::to_js(&view::View::of(self.0.world()))
    }

    /// Returns the events from position `from` up to, not including, position `to`. Events after
    /// the run's own position are included.
    pub fn entries(&self, from: usize, to: usize) -> Result<Entries, Exception> {
        let entries: Vec<_> = self.0.timeline().entries(from, to).collect();
        json::to_js(&entries)
    }

    /// Returns every message that was in flight from position `from` up to, not including, position
    /// `to`.
    pub fn arrows(&self, from: usize, to: usize) -> Result<Arrows, Exception> {
        let arrows: Vec<_> = self.0.timeline().arrows(from, to).collect();
        json::to_js(&arrows)
    }

    /// Returns the positions of faults and of the first violation in the whole run.
    pub fn marks(&self) -> Result<Marks, Exception> {
        json::to_js(&self.0.timeline().marks())
    }

    /// Returns a shorter trace as JSON text that leads to a violation of the same kind, or
    /// `undefined` if the run has no violation. The search takes seconds for a long run.
    pub fn minimise(&self) -> Result<Option<String>, Exception> {
        self.0.trace().minimise().as_ref().map(json::to_text).transpose()
    }
}

impl From<InvalidSettings> for Exception {
    fn from(error: InvalidSettings) -> Self {
        Self::invalid_argument(error)
    }
}

impl From<InvalidTrace> for Exception {
    fn from(error: InvalidTrace) -> Self {
        Self::new(error.code(), &error.to_string())
    }
}

impl From<ImpossibleEvent> for Exception {
    fn from(error: ImpossibleEvent) -> Self {
        Self::new("IMPOSSIBLE", &error.to_string())
    }
}

impl From<NotQuiescent> for Exception {
    fn from(error: NotQuiescent) -> Self {
        Self::new("IMPOSSIBLE", &error.to_string())
    }
}
