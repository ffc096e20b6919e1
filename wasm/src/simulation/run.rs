//! `Simulation`: a run that is played, stepped back, scrubbed and bent.

use leasehold_simulation::calm::{self, Unrest};
use leasehold_simulation::network::MessageId;
use leasehold_simulation::player::Player;
use leasehold_simulation::settings::{self, BadSettings};
use leasehold_simulation::trace::{BadTrace, Trace};
use leasehold_simulation::world::Impossible;
use leasehold_simulation::{possible, view, words};
use wasm_bindgen::prelude::wasm_bindgen;

use super::json;
use crate::error::Thrown;

#[wasm_bindgen]
extern "C" {
    /// What a world is made of, as far as it is not the usual.
    #[wasm_bindgen(typescript_type = "Partial<Settings>")]
    pub type SomeSettings;

    /// What a world is made of.
    #[wasm_bindgen(typescript_type = "Settings")]
    pub type Settings;

    /// What can befall a world.
    #[wasm_bindgen(typescript_type = "Event")]
    pub type Event;

    /// Likewise.
    #[wasm_bindgen(typescript_type = "Event[]")]
    pub type Events;

    /// A world.
    #[wasm_bindgen(typescript_type = "View")]
    pub type View;

    /// What happened.
    #[wasm_bindgen(typescript_type = "Entry[]")]
    pub type Entries;

    /// Messages on their way.
    #[wasm_bindgen(typescript_type = "Arrow[]")]
    pub type Arrows;

    /// Where a run is worth looking at.
    #[wasm_bindgen(typescript_type = "Marks")]
    pub type Marks;
}

/// A run of a simulated world, and a position in it.
#[wasm_bindgen]
pub struct Simulation(Player);

#[wasm_bindgen]
impl Simulation {
    /// A run in which nothing has happened yet. Throws where no world can be made of the settings.
    #[wasm_bindgen(constructor)]
    pub fn new(settings: Option<SomeSettings>) -> Result<Simulation, Thrown> {
        let settings = match settings {
            Some(settings) => json::read(&settings)?,
            None => settings::Settings::default(),
        };
        Ok(Self(Player::new(settings)?))
    }

    /// A run that was recorded, at its start. Throws where the text is no trace, or can't be replayed.
    pub fn load(trace: &str) -> Result<Simulation, Thrown> {
        Ok(Self(Player::load(Trace::parse(trace)?)?))
    }

    /// How many events have happened at the position.
    #[wasm_bindgen(getter)]
    pub fn position(&self) -> usize {
        self.0.position()
    }

    /// How many events the run has, those after the position too.
    #[wasm_bindgen(getter)]
    pub fn length(&self) -> usize {
        self.0.events().len()
    }

    /// What the world is made of.
    pub fn settings(&self) -> Result<Settings, Thrown> {
        json::write(self.0.world().settings())
    }

    /// The whole run as JSON: the same bytes for the same run.
    pub fn trace(&self) -> Result<String, Thrown> {
        json::text(&self.0.trace())
    }

    /// Goes one event on. False at the end.
    pub fn step(&mut self) -> bool {
        self.0.step()
    }

    /// Goes one event back. False at the start.
    pub fn back(&mut self) -> bool {
        self.0.back()
    }

    /// Goes to a position, or to the end where it is beyond.
    pub fn seek(&mut self, position: usize) {
        self.0.seek(position);
    }

    /// Lets something happen at the position: what was to happen after it is gone. Throws where it can't happen; nothing
    /// has changed then.
    pub fn apply(&mut self, event: Event) -> Result<(), Thrown> {
        Ok(self.0.apply(json::read(&event)?)?)
    }

    /// Lets so many events happen by chance at the position, up to the first violation: what was to happen after it is
    /// gone. How many have happened.
    pub fn play(&mut self, events: u32) -> u32 {
        self.0.play_on(events)
    }

    /// Ends all trouble at the position, and lets everybody come to rest: what was to happen after it is gone. How many
    /// events have happened.
    pub fn settle(&mut self) -> Result<usize, Thrown> {
        Ok(self.0.settle()?)
    }

    /// What can happen at the position, beside what somebody has to make up: saves, changes past the claims, and time.
    pub fn possible(&self) -> Result<Events, Thrown> {
        json::write(&possible::events(self.0.world()))
    }

    /// What happens next where nothing more goes wrong, until nobody is at anything; `except` is a message that is to
    /// wait.
    #[wasm_bindgen(js_name = nextCalm)]
    pub fn next_calm(&self, except: Option<u32>) -> Result<Option<Event>, Thrown> {
        let event = calm::next(self.0.world(), except.map(MessageId::from));
        event.as_ref().map(json::write).transpose()
    }

    /// What would happen at the position, in words.
    pub fn describe(&self, event: Event) -> Result<String, Thrown> {
        Ok(words::describe(self.0.world(), json::read(&event)?))
    }

    /// The world at the position.
    pub fn view(&self) -> Result<View, Thrown> {
        json::write(&view::View::of(self.0.world()))
    }

    /// What happened from one position up to another, as far as the run goes, beyond its position too.
    pub fn entries(&self, from: usize, to: usize) -> Result<Entries, Thrown> {
        let entries: Vec<_> = self.0.timeline().entries(from, to).collect();
        json::write(&entries)
    }

    /// Every message that was under way between the same.
    pub fn arrows(&self, from: usize, to: usize) -> Result<Arrows, Thrown> {
        let arrows: Vec<_> = self.0.timeline().arrows(from, to).collect();
        json::write(&arrows)
    }

    /// Where the whole run is worth looking at.
    pub fn marks(&self) -> Result<Marks, Thrown> {
        json::write(&self.0.timeline().marks())
    }

    /// A shorter run to a violation of the same kind, as JSON; none where nothing is violated. It takes a while.
    pub fn minimise(&self) -> Result<Option<String>, Thrown> {
        self.0.trace().minimise().as_ref().map(json::text).transpose()
    }
}

impl From<BadSettings> for Thrown {
    fn from(error: BadSettings) -> Self {
        Self::invalid(error)
    }
}

impl From<BadTrace> for Thrown {
    fn from(error: BadTrace) -> Self {
        Self::new("INVALID_TRACE", &error.to_string())
    }
}

impl From<Impossible> for Thrown {
    fn from(error: Impossible) -> Self {
        Self::new("IMPOSSIBLE", &error.to_string())
    }
}

impl From<Unrest> for Thrown {
    fn from(error: Unrest) -> Self {
        Self::new("IMPOSSIBLE", &error.to_string())
    }
}
