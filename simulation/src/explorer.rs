//! Every schedule of a small world, the shortest first: what users ask for and how much trouble there is at the most is
//! given, the order of everything is not. A violation that it finds comes with a shortest trace; where it finds none
//! and has finished, there is none.
//!
//! It works in slices, so that a page stays alive: call [`Explorer::explore`] until it is finished or has found
//! something.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

use crate::check::Violation;
use crate::event::{Change, Drift, Event, Process};
use crate::fingerprint;
use crate::numbers::{Numbers, from_numbers};
use crate::possible;
use crate::settings::{BadSettings, Settings};
use crate::trace::Trace;
use crate::world::World;

/// What a user asks for at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// The cell.
    pub cell: u8,
    /// Its worker; of one worker's wishes the earlier comes first.
    pub worker: u8,
    /// What to save.
    pub change: Change,
}

/// How much trouble there is at the most, and how much of everything that can be started at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Numbers")]
pub struct Allowance {
    /// Messages lost.
    pub drops: u8,
    /// Messages doubled.
    pub duplicates: u8,
    /// Answers not waited for.
    pub time_outs: u8,
    /// Processes that die.
    pub crashes: u8,
    /// Database connections lost.
    pub disconnects: u8,
    /// Stops of the service.
    pub stops: u8,
    /// Times that time passes.
    pub waits: u8,
    /// Runs of reconciliation.
    pub reconciliations: u8,
    /// Runs of verification.
    pub verifications: u8,
}

from_numbers!(
    Allowance { drops, duplicates, time_outs, crashes, disconnects, stops, waits, reconciliations, verifications },
    Some(Self::default())
);

/// A small world to explore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The world.
    pub settings: Settings,
    /// What has happened before: the schedules begin after it.
    #[serde(default)]
    pub before: Vec<Event>,
    /// What users ask for, 16 wishes at the most.
    pub wishes: Vec<Wish>,
    /// Changes past the claims, 16 at the most.
    #[serde(default)]
    pub drifts: Vec<(u8, Drift)>,
    /// How much of what.
    pub allowance: Allowance,
    /// How much time passes at a time.
    pub wait_seconds: u32,
    /// The longest schedule, in events after `before`.
    pub depth: u32,
}

/// How far an explorer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Different states that were met.
    pub states: u64,
    /// Events tried.
    pub events: u64,
    /// The length of the schedules that are looked at now.
    pub depth: u32,
    /// States that are still to be gone on from.
    pub open: u64,
    /// Whether some schedule was cut off at the greatest depth.
    pub is_cut_off: bool,
    /// Whether every schedule has been looked at, up to the depth.
    pub is_finished: bool,
}

/// A violation with one of the shortest ways to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// What does not hold.
    pub violation: Violation,
    /// How it came to that.
    pub trace: Trace,
}

/// What is left of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Left {
    allowance: Allowance,
    wishes: u16,
    drifts: u16,
}

/// Where a state came from: the state before, and the event.
type Origin = (u32, Event);

#[derive(Clone, Debug)]
struct Open {
    world: World,
    left: Left,
    depth: u32,
    at: u32,
}

/// Numbers that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().take(8).for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }
}

/// An exploration under way.
#[derive(Clone, Debug)]
pub struct Explorer {
    plan: Plan,
    open: VecDeque<Open>,
    seen: HashSet<u128, BuildHasherDefault<AsIs>>,
    origins: Vec<Origin>,
    progress: Progress,
    found: Option<Found>,
}

/// A plan that can't be explored.
#[derive(Debug, thiserror::Error)]
pub enum BadPlan {
    /// No world can be made of its settings.
    #[error("the plan has bad settings: {0}")]
    Settings(#[from] BadSettings),
    /// What is said to have happened before can't.
    #[error("{0}")]
    Before(#[from] crate::world::Impossible),
    /// There is more than can be kept track of.
    #[error("a plan has 16 wishes and 16 drifts at the most")]
    TooLong,
}

impl Explorer {
    /// Begins to explore a plan.
    ///
    /// # Errors
    /// The plan makes no world.
    pub fn new(mut plan: Plan) -> Result<Self, BadPlan> {
        if plan.wishes.len() > 16 || plan.drifts.len() > 16 {
            return Err(BadPlan::TooLong);
        }
        // Else no two ways would lead to one state.
        plan.settings.step_micros = 0;
        let mut world = World::new(plan.settings.clone())?;
        for event in &plan.before {
            world.apply(*event)?;
        }
        let left = Left { allowance: plan.allowance, wishes: 0, drifts: 0 };
        let mut explorer = Self {
            plan,
            open: VecDeque::new(),
            seen: HashSet::default(),
            origins: Vec::new(),
            progress: Progress::default(),
            found: None,
        };
        explorer.meet(world, left, 0, (0, Event::Forget));
        Ok(explorer)
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        Progress { open: self.open.len() as u64, is_finished: self.open.is_empty(), ..self.progress }
    }

    /// The shortest violation, once one is found.
    pub fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }

    /// The worlds that are still to be gone on from, the next one first.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = &World> {
        self.open.iter().map(|open| &open.world)
    }

    /// Goes on from so many states. True while there is more to do.
    pub fn explore(&mut self, states: u64) -> bool {
        for _ in 0..states {
            if self.found.is_some() {
                return false;
            }
            let Some(open) = self.open.pop_front() else { return false };
            self.progress.depth = open.depth;
            self.go_on(&open);
        }
        self.found.is_none() && !self.open.is_empty()
    }

    fn go_on(&mut self, open: &Open) {
        let events = self.plan.successors(&open.world, open.left);
        if open.depth >= self.plan.depth {
            self.progress.is_cut_off |= !events.is_empty();
            return;
        }
        for (event, left) in events {
            let mut world = open.world.clone();
            if world.apply(event).is_err() {
                continue;
            }
            self.progress.events += 1;
            if let Some(violation) = world.violation() {
                let violation = violation.clone();
                let trace = self.trace(open.at, event);
                self.found = Some(Found { violation, trace });
                return;
            }
            self.meet(world, left, open.depth + 1, (open.at, event));
        }
    }

    fn meet(&mut self, world: World, left: Left, depth: u32, origin: Origin) {
        if self.seen.insert(fingerprint::of(&world, left)) {
            let at = self.origins.len() as u32;
            self.origins.push(origin);
            self.progress.states += 1;
            self.open.push_back(Open { world, left, depth, at });
        }
    }

    fn trace(&self, mut at: u32, last: Event) -> Trace {
        let mut events = vec![last];
        while let Some((before, event)) = self.origins.get(at as usize).filter(|_| at > 0) {
            events.push(*event);
            at = *before;
        }
        events.reverse();
        let events = self.plan.before.iter().copied().chain(events).collect();
        Trace::new(self.plan.settings.clone(), events)
    }
}

impl Plan {
    /// Everything that can happen next, with what is left of the plan then.
    fn successors(&self, world: &World, left: Left) -> Vec<(Event, Left)> {
        let mut events = Vec::new();
        self.starts(left, &mut events);
        events.push((Event::Wait { seconds: self.wait_seconds }, left));
        events.extend(possible::events(world).into_iter().map(|event| (event, left)));
        events.into_iter().filter_map(|(event, left)| Some((event, left.without(event, world)?))).collect()
    }

    fn starts(&self, left: Left, events: &mut Vec<(Event, Left)>) {
        let is_open = |done: u16, at: usize| done >> at & 1 == 0;
        for (at, wish) in self.wishes.iter().enumerate().filter(|(at, _)| is_open(left.wishes, *at)) {
            let mut earlier = self.wishes.iter().take(at).enumerate();
            let waits =
                earlier.any(|(at, one)| is_open(left.wishes, at) && (one.cell, one.worker) == (wish.cell, wish.worker));
            if !waits {
                let event = Event::Save { cell: wish.cell, worker: wish.worker, change: wish.change };
                events.push((event, Left { wishes: left.wishes | 1 << at, ..left }));
            }
        }
        for (at, (cell, drift)) in self.drifts.iter().enumerate().filter(|(at, _)| is_open(left.drifts, *at)) {
            let event = Event::Drift { cell: *cell, drift: *drift };
            events.push((event, Left { drifts: left.drifts | 1 << at, ..left }));
        }
    }
}

impl Left {
    /// What is left after an event; none where there is no more of its kind.
    fn without(mut self, event: Event, world: &World) -> Option<Self> {
        let allowance = &mut self.allowance;
        let spent = match event {
            Event::Drop(_) => &mut allowance.drops,
            Event::Duplicate(_) => &mut allowance.duplicates,
            Event::TimeOut { .. } => &mut allowance.time_outs,
            Event::Crash { .. } => &mut allowance.crashes,
            Event::Disconnect { .. } => &mut allowance.disconnects,
            Event::StopService => &mut allowance.stops,
            Event::Wait { .. } => &mut allowance.waits,
            Event::Step { cell, process } if !world.is_busy(cell, process) => match process {
                Process::Reconciler(_) => &mut allowance.reconciliations,
                Process::Verifier => &mut allowance.verifications,
                Process::Worker(_) => return Some(self),
            },
            // A cell that is cut off is one whose messages come late; a database that restarts, one of which workers
            // are disconnected.
            Event::Partition { .. } | Event::Heal { .. } | Event::RestartDatabase { .. } | Event::Forget => {
                return None;
            }
            Event::Save { .. }
            | Event::Step { .. }
            | Event::FinishCommit { .. }
            | Event::LoseCommit { .. }
            | Event::Deliver(_)
            | Event::StartService
            | Event::Replicate { .. }
            | Event::Drift { .. } => return Some(self),
        };
        *spent = spent.checked_sub(1)?;
        Some(self)
    }
}
