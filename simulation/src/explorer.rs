//! An exhaustive search of a small world: the explorer runs every schedule of events, the shortest
//! first. A [`Plan`] fixes the saves that users request and the largest number of faults; the
//! explorer tries every order of them. A violation comes with one of the shortest traces that lead
//! to it. If the search finishes without a violation, no schedule of the plan breaks the world.
//!
//! The search runs in slices, so that a page stays responsive: a host calls [`Explorer::explore`]
//! until the search finishes or finds a violation.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

use crate::event::{Change, Drift, Event};
use crate::fingerprint;
use crate::integer_fields::{IntegerFields, from_integer_fields};
use crate::possible;
use crate::process::Process;
use crate::settings::{InvalidSettings, WorldSettings};
use crate::trace::Trace;
use crate::violation::Violation;
use crate::world::World;

/// A save that a user requests in every schedule, at any point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// The number of the cell whose worker performs the save.
    pub cell: u8,
    /// The number of the worker that performs the save. A worker performs its saves in the order of
    /// the plan.
    pub worker: u8,
    /// The change that the user wants to save.
    pub change: Change,
}

/// The largest numbers of faults of each kind, of waits and of runs in one schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "IntegerFields")]
pub struct Allowance {
    /// The largest number of messages that are lost.
    pub drops: u8,
    /// The largest number of messages that are duplicated.
    pub duplicates: u8,
    /// The largest number of calls that the service finds cancelled before their answers leave. Only
    /// begins without an idempotency key count.
    pub cancels: u8,
    /// The largest number of calls whose process stops waiting for the answer.
    pub time_outs: u8,
    /// The largest number of processes that crash.
    pub crashes: u8,
    /// The largest number of database connections that are lost.
    pub disconnects: u8,
    /// The largest number of stops of the service.
    pub stops: u8,
    /// The largest number of waits, each of the plan's `wait_seconds`.
    pub waits: u8,
    /// The largest number of runs of reconciliation.
    pub reconciliations: u8,
    /// The largest number of runs of verification.
    pub verifications: u8,
    /// The largest number of ticks of the service.
    pub ticks: u8,
    /// The largest number of renewals that keepalives send.
    pub renewals: u8,
    /// The largest number of pauses of clients and of the service.
    pub pauses: u8,
    /// The largest number of jumps of the service's wall clock, each of the plan's `wait_seconds`.
    pub jumps: u8,
}

from_integer_fields!(
    Allowance {
        drops,
        duplicates,
        cancels,
        time_outs,
        crashes,
        disconnects,
        stops,
        waits,
        reconciliations,
        verifications,
        ticks,
        renewals,
        pauses,
        jumps
    },
    Some(Self::default())
);

/// A small world to explore, with the events that may happen in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The settings of the plan's world.
    pub settings: WorldSettings,
    /// The events that happen before every schedule.
    #[serde(default)]
    pub before: Vec<Event>,
    /// The saves that users may request. A schedule requests each at most once. At most 16.
    pub wishes: Vec<Wish>,
    /// The changes by plain SQL that may happen, each with the number of its cell. A schedule makes
    /// each at most once. At most 16.
    #[serde(default)]
    pub drifts: Vec<(u8, Drift)>,
    /// The works under locks that programs may ask for, each as cell and lock. A schedule asks for
    /// each at most once. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub works: Vec<(u8, u8)>,
    /// The submits, and the works on a queue, that programs may ask for. A schedule has each at most
    /// once. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Event>,
    /// The largest numbers of faults, waits and runs in one schedule.
    pub allowance: Allowance,
    /// The duration of each wait, in seconds.
    pub wait_seconds: u32,
    /// The largest number of events in a schedule, not counting the events of `before`.
    pub depth: u32,
}

/// The progress of an explorer's search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The number of distinct states that the search has found.
    pub states: u64,
    /// The number of events that the search has performed.
    pub events: u64,
    /// The length, in events, of the schedules that the search extends now.
    pub depth: u32,
    /// The number of states that the search has still to extend.
    pub open: u64,
    /// True if the plan's depth has cut off a schedule.
    pub is_cut_off: bool,
    /// True if the search has explored every schedule up to the plan's depth.
    pub is_finished: bool,
}

/// A violation that an explorer has found, with one of the shortest traces that lead to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counterexample {
    /// The condition that is violated.
    pub violation: Violation,
    /// The trace that leads to the violation.
    pub trace: Trace,
}

/// The progress of a schedule through its plan: the numbers of faults that it may still have, and
/// bit sets of the wishes, drifts, works and starts that have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Remaining {
    allowance: Allowance,
    wishes: u16,
    drifts: u16,
    works: u16,
    starts: u16,
}

/// The position of a state's predecessor among the states found, and the event that led from there
/// to the state.
type Predecessor = (u32, Event);

#[derive(Clone, Debug)]
struct FrontierState {
    world: World,
    left: Remaining,
    depth: u32,
    at: u32,
}

/// A hasher for keys that are hashes already: returns the key.
#[derive(Clone, Copy, Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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

/// A search of a plan, in progress or finished.
#[derive(Clone, Debug)]
pub struct Explorer {
    plan: Plan,
    frontier: VecDeque<FrontierState>,
    visited: HashSet<u128, BuildHasherDefault<IdentityHasher>>,
    predecessors: Vec<Predecessor>,
    progress: Progress,
    counterexample: Option<Counterexample>,
}

/// The reason for which a plan cannot be explored.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPlan {
    /// The plan's settings describe no valid world.
    #[error("the plan has invalid settings: {0}")]
    Settings(#[from] InvalidSettings),
    /// An event of the plan's `before` is impossible.
    #[error("{0}")]
    Before(#[from] crate::world::ImpossibleEvent),
    /// The plan has more saves, drifts, works or starts than an explorer tracks.
    #[error("the plan has too many wishes, drifts, works or starts: use at most 16 of each")]
    TooLong,
}

impl Explorer {
    /// Prepares the search of a plan. Call [`explore`](Self::explore) to run it.
    ///
    /// # Errors
    /// The plan describes no valid world, or exceeds a limit.
    pub fn new(mut plan: Plan) -> Result<Self, InvalidPlan> {
        let counts = [plan.wishes.len(), plan.drifts.len(), plan.works.len(), plan.starts.len()];
        if counts.iter().any(|count| *count > 16) {
            return Err(InvalidPlan::TooLong);
        }
        // If time passed with each event, the time would be part of the state, and two orders of
        // the same events would never lead to the same state.
        plan.settings.step_micros = 0;
        let mut world = World::new(plan.settings.clone())?;
        for event in &plan.before {
            world.apply(*event)?;
        }
        let left = Remaining { allowance: plan.allowance, wishes: 0, drifts: 0, works: 0, starts: 0 };
        let mut explorer = Self {
            plan,
            frontier: VecDeque::new(),
            visited: HashSet::default(),
            predecessors: Vec::new(),
            progress: Progress::default(),
            counterexample: None,
        };
        explorer.visit(world, left, 0, (0, Event::Forget));
        Ok(explorer)
    }

    /// Returns the progress of the search so far.
    pub fn progress(&self) -> Progress {
        Progress { open: self.frontier.len() as u64, is_finished: self.frontier.is_empty(), ..self.progress }
    }

    /// Returns the violation with one of the shortest traces, `None` if the search has found no
    /// violation so far.
    pub fn counterexample(&self) -> Option<&Counterexample> {
        self.counterexample.as_ref()
    }

    /// Returns the worlds that the search has still to extend, the next one first.
    pub fn frontier(&self) -> impl DoubleEndedIterator<Item = &World> {
        self.frontier.iter().map(|state| &state.world)
    }

    /// Extends up to `states` states. Returns true if states remain and no violation was found.
    pub fn explore(&mut self, states: u64) -> bool {
        for _ in 0..states {
            if self.counterexample.is_some() {
                return false;
            }
            let Some(state) = self.frontier.pop_front() else { return false };
            self.progress.depth = state.depth;
            self.extend(&state);
        }
        self.counterexample.is_none() && !self.frontier.is_empty()
    }

    fn extend(&mut self, state: &FrontierState) {
        let events = self.plan.successors(&state.world, state.left);
        if state.depth >= self.plan.depth {
            self.progress.is_cut_off |= !events.is_empty();
            return;
        }
        for (event, left) in events {
            let mut world = state.world.clone();
            if world.apply(event).is_err() {
                continue;
            }
            self.progress.events += 1;
            if let Some(violation) = world.violation() {
                let violation = violation.clone();
                let trace = self.trace(state.at, event);
                self.counterexample = Some(Counterexample { violation, trace });
                return;
            }
            self.visit(world, left, state.depth + 1, (state.at, event));
        }
    }

    fn visit(&mut self, world: World, left: Remaining, depth: u32, predecessor: Predecessor) {
        if self.visited.insert(fingerprint::of(&world, left)) {
            let at = self.predecessors.len() as u32;
            self.predecessors.push(predecessor);
            self.progress.states += 1;
            self.frontier.push_back(FrontierState { world, left, depth, at });
        }
    }

    fn trace(&self, mut at: u32, last: Event) -> Trace {
        let mut events = vec![last];
        while let Some((before, event)) = self.predecessors.get(at as usize).filter(|_| at > 0) {
            events.push(*event);
            at = *before;
        }
        events.reverse();
        let events = self.plan.before.iter().copied().chain(events).collect();
        Trace::new(self.plan.settings.clone(), events)
    }
}

impl Plan {
    /// Returns every event that can happen next, each with the part of the plan that remains after
    /// it.
    fn successors(&self, world: &World, left: Remaining) -> Vec<(Event, Remaining)> {
        let mut events = Vec::new();
        self.starts(left, &mut events);
        events.push((Event::Wait { seconds: self.wait_seconds }, left));
        let seconds = i32::try_from(self.wait_seconds).unwrap_or(i32::MAX);
        events.push((Event::JumpClock { seconds }, left));
        events.extend(possible::events(world).into_iter().map(|event| (event, left)));
        events.into_iter().filter_map(|(event, left)| Some((event, left.without(event, world)?))).collect()
    }

    fn starts(&self, left: Remaining, events: &mut Vec<(Event, Remaining)>) {
        let is_open = |done: u16, at: usize| done >> at & 1 == 0;
        for (at, wish) in self.wishes.iter().enumerate().filter(|(at, _)| is_open(left.wishes, *at)) {
            let mut earlier = self.wishes.iter().take(at).enumerate();
            let waits =
                earlier.any(|(at, one)| is_open(left.wishes, at) && (one.cell, one.worker) == (wish.cell, wish.worker));
            if !waits {
                let event = Event::Save { cell: wish.cell, worker: wish.worker, change: wish.change };
                events.push((event, Remaining { wishes: left.wishes | 1 << at, ..left }));
            }
        }
        for (at, (cell, drift)) in self.drifts.iter().enumerate().filter(|(at, _)| is_open(left.drifts, *at)) {
            let event = Event::Drift { cell: *cell, drift: *drift };
            events.push((event, Remaining { drifts: left.drifts | 1 << at, ..left }));
        }
        for (at, (cell, lock)) in self.works.iter().enumerate().filter(|(at, _)| is_open(left.works, *at)) {
            let event = Event::Work { cell: *cell, lock: *lock };
            events.push((event, Remaining { works: left.works | 1 << at, ..left }));
        }
        for (at, event) in self.starts.iter().enumerate().filter(|(at, _)| is_open(left.starts, *at)) {
            events.push((*event, Remaining { starts: left.starts | 1 << at, ..left }));
        }
    }
}

impl Remaining {
    /// Returns the part of the plan that remains after an event, or `None` if the plan allows no
    /// further event of this kind.
    fn without(mut self, event: Event, world: &World) -> Option<Self> {
        let allowance = &mut self.allowance;
        let spent = match event {
            Event::Drop(_) => &mut allowance.drops,
            Event::Duplicate(_) => &mut allowance.duplicates,
            Event::CancelCall(_) => &mut allowance.cancels,
            Event::TimeOut { .. } => &mut allowance.time_outs,
            Event::Crash { .. } => &mut allowance.crashes,
            Event::Disconnect { .. } => &mut allowance.disconnects,
            Event::StopService => &mut allowance.stops,
            Event::Wait { .. } => &mut allowance.waits,
            Event::Step { cell, process } if !world.is_busy(cell, process) => match process {
                Process::Reconciler(_) => &mut allowance.reconciliations,
                Process::Verifier => &mut allowance.verifications,
                Process::Keepalive => &mut allowance.renewals,
                Process::Worker(_) | Process::Client | Process::Front => return Some(self),
            },
            // The search includes partitions as messages that arrive late, and a database restart
            // as lost connections of the workers.
            Event::Partition { .. } | Event::Heal { .. } | Event::RestartDatabase { .. } | Event::Forget => {
                return None;
            }
            Event::Save { .. }
            | Event::Step { .. }
            | Event::FinishCommit { .. }
            | Event::LoseCommit { .. }
            | Event::Deliver(_)
            | Event::TakeBack
            | Event::StartService
            | Event::Replicate { .. }
            | Event::Drift { .. } => return Some(self),
            Event::Tick => &mut allowance.ticks,
            Event::Pause { .. } | Event::PauseService => &mut allowance.pauses,
            Event::JumpClock { .. } => &mut allowance.jumps,
            Event::Evict { .. } | Event::Force { .. } | Event::Close { .. } => return None,
            Event::FailWork { .. } | Event::GiveBack { .. } => return None,
            Event::Submit { .. } | Event::Serve { .. } => return Some(self),
            Event::Work { .. } | Event::Resume { .. } | Event::ResumeService | Event::Decide => return Some(self),
        };
        *spent = spent.checked_sub(1)?;
        Some(self)
    }
}
