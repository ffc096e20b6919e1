//! The settings of a world: its size, its clocks, the fault rates and the rules in force. The
//! settings and the events together determine a world.

use serde::{Deserialize, Serialize};

use crate::integer_fields::{IntegerFields, from_integer_fields};
use crate::variant_names::variant_names;

/// The largest number of cells of a world. A message id stores the cell's number in four bits.
pub const MAX_CELLS: u8 = 8;
/// The largest number of workers of a cell. A message id stores the process in four bits: eight
/// workers, four reconcilers and the verifier fit.
pub const MAX_WORKERS: u8 = 8;
/// The largest number of reconcilers of a cell. A message id stores the process in four bits: eight
/// workers, four reconcilers and the verifier fit.
pub const MAX_RECONCILERS: u8 = 4;
/// The largest number of names of a world.
pub const MAX_NAMES: u8 = 32;
/// The largest number of locks of a world.
pub const MAX_LOCKS: u8 = 4;
/// The largest number of lanes of a world's queue.
pub const MAX_LANES: u8 = 3;

/// The largest seed of a world. JavaScript reads JSON numbers as doubles, which are exact up to
/// 2^53 - 1.
pub const MAX_SEED: u64 = (1 << 53) - 1;

/// The point of a save at which a cell begins the save's lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The lease begins after the local transaction has written its rows, immediately before the
    /// COMMIT.
    #[default]
    BeforeCommit,
    /// The lease begins before the local BEGIN, so no transaction stays open during a network call.
    LeaseFirst,
}

variant_names!(Mode { BeforeCommit: "before_commit", LeaseFirst: "lease_first" });

/// A rule of the protocol that can be switched off to show which failure it prevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A claim under a lease is busy for every other update (B03).
    LeaseExclusivity,
    /// A cell can only destroy its own claims (B04).
    Ownership,
    /// Settled leases are remembered, so a repeated or late settle gets the true answer (B22, B23).
    SettledLeaseMemory,
    /// A repeated begin with the same idempotency key gets the same lease (B09).
    ReplayKeys,
    /// The database refuses a local COMMIT after the lease's safe age (R04).
    CommitGuard,
    /// Verification leaves recently changed rows alone (V02).
    SkipRecentRows,
    /// Verification leaves recently changed claims alone (V02).
    SkipRecentClaims,
    /// A session ends by its observed silence, not by a date on a wall clock (K06).
    ObservedSilence,
    /// The service waits for the grace beyond a session's duration before it expires the session
    /// (K04).
    Grace,
    /// After a restart of the service, each session has its whole duration again (K07).
    WholeDuration,
    /// The resource refuses a write under a fence below the newest that it has seen (K05, K18).
    FenceCheck,
    /// A lane of a queue has at most one worker at a time (Q01, Q07).
    OneWorker,
    /// All requests of a resource share a lane, so an update waits for the create before it (Q02).
    SharedLane,
    /// An attempt counts when the request is taken (Q03).
    EarlyCount,
    /// Only the worker with the current fence of a lane settles (Q10).
    SettleFence,
    /// A lane remembers how its last worker has settled, so a repeated settle gets the true answer (Q10).
    SettleMemory,
    /// A repeated submit has the id of the first one (Q09).
    RequestIds,
}

variant_names!(Rule {
    LeaseExclusivity: "lease_exclusivity",
    Ownership: "ownership",
    SettledLeaseMemory: "settled_lease_memory",
    ReplayKeys: "replay_keys",
    CommitGuard: "commit_guard",
    SkipRecentRows: "skip_recent_rows",
    SkipRecentClaims: "skip_recent_claims",
    ObservedSilence: "observed_silence",
    Grace: "grace",
    WholeDuration: "whole_duration",
    FenceCheck: "fence_check",
    OneWorker: "one_worker",
    SharedLane: "shared_lane",
    EarlyCount: "early_count",
    SettleFence: "settle_fence",
    SettleMemory: "settle_memory",
    RequestIds: "request_ids",
});

impl Rule {
    /// Every rule that can be switched off.
    pub const ALL: [Self; 17] = [
        Self::LeaseExclusivity,
        Self::Ownership,
        Self::SettledLeaseMemory,
        Self::ReplayKeys,
        Self::CommitGuard,
        Self::SkipRecentRows,
        Self::SkipRecentClaims,
        Self::ObservedSilence,
        Self::Grace,
        Self::WholeDuration,
        Self::FenceCheck,
        Self::OneWorker,
        Self::SharedLane,
        Self::EarlyCount,
        Self::SettleFence,
        Self::SettleMemory,
        Self::RequestIds,
    ];

    /// Returns true if the rule concerns sessions and locks.
    pub const fn concerns_locks(self) -> bool {
        matches!(self, Self::ObservedSilence | Self::Grace | Self::WholeDuration | Self::FenceCheck)
    }

    /// Returns the rule as a sentence, for a page.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::LeaseExclusivity => "a claim under a lease is busy for every other update",
            Self::Ownership => "a cell can destroy only its own claims",
            Self::SettledLeaseMemory => "settled leases are remembered, so a repeated settle gets the true answer",
            Self::ReplayKeys => "a repeated begin with the same idempotency key gets the same lease",
            Self::CommitGuard => "the cell's database refuses a COMMIT after the lease's safe age",
            Self::SkipRecentRows => "verification leaves recently changed rows alone",
            Self::SkipRecentClaims => "verification leaves recently changed claims alone",
            Self::ObservedSilence => "a session ends by its observed silence, not by a date on a wall clock",
            Self::Grace => "the service waits for a grace beyond the session's duration before it expires the session",
            Self::WholeDuration => "after a restart of the service, each session has its whole duration again",
            Self::FenceCheck => "the resource refuses a write under a fence below the newest that it has seen",
            Self::OneWorker => "a lane of a queue has at most one worker at a time",
            Self::SharedLane => "all requests of a resource share a lane, so an update waits for the create before it",
            Self::EarlyCount => "an attempt counts when the request is taken, not when it is settled",
            Self::SettleFence => "only the worker with the current fence of a lane settles",
            Self::SettleMemory => "a lane remembers its last settle, so a repeated settle gets the true answer",
            Self::RequestIds => "a repeated submit has the id of the first one, and makes no second request",
        }
    }
}

/// The set of rules that are switched off, by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RulesOff(u32);

impl RulesOff {
    /// Returns the set with this rule added: the rule is switched off.
    #[must_use]
    pub const fn with(self, rule: Rule) -> Self {
        Self(self.0 | 1 << rule as u8)
    }

    /// Returns true if the rule is in force.
    pub const fn is_on(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u8) == 0
    }
}

impl Serialize for RulesOff {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(Rule::ALL.into_iter().filter(|rule| !self.is_on(*rule)))
    }
}

impl<'de> Deserialize<'de> for RulesOff {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let rules = Vec::<Rule>::deserialize(from)?;
        Ok(rules.into_iter().fold(Self::default(), Self::with))
    }
}

/// The time limits of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "IntegerFields")]
pub struct Thresholds {
    /// The age from which on reconciliation treats an outstanding lease as stale, in seconds.
    pub stale_after_seconds: u32,
    /// The age of a lease up to which the cell's database accepts a COMMIT under this lease, in
    /// seconds.
    pub commit_within_seconds: u32,
    /// The longest life of a local transaction, in seconds. It must be well below
    /// `recent_within_seconds`: a row records the time of its write, and the COMMIT that makes the
    /// row visible comes later.
    pub transaction_within_seconds: u32,
    /// The time for which verification leaves rows and claims alone after a change, in seconds.
    pub recent_within_seconds: u32,
    /// The time for which the service remembers settled leases, in seconds.
    pub remember_within_seconds: u32,
    /// The largest lag of the replica that verification reads, in seconds. 0 means that
    /// verification reads the database itself.
    pub replica_lag_seconds: u32,
}

from_integer_fields!(
    Thresholds {
        stale_after_seconds,
        commit_within_seconds,
        transaction_within_seconds,
        recent_within_seconds,
        remember_within_seconds,
        replica_lag_seconds
    },
    None
);

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            stale_after_seconds: 600,
            commit_within_seconds: 300,
            transaction_within_seconds: 1800,
            recent_within_seconds: 3600,
            remember_within_seconds: 86_400,
            replica_lag_seconds: 0,
        }
    }
}

/// The difference between the clock of a cell's database and the service's clock, which is the
/// world's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "IntegerFields")]
pub struct Clock {
    /// The number of seconds that the database's clock is ahead at the start of the world, negative
    /// if it is behind.
    pub ahead_seconds: i32,
    /// The number of parts per million that the database's clock runs fast, negative if it runs
    /// slow.
    pub fast_ppm: i32,
}

from_integer_fields!(Clock { ahead_seconds, fast_ppm }, None);

// serde calls the function with a reference to the field.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde prescribes the signature")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// The locks of a world or the lanes of its queue, and the terms of every session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "IntegerFields")]
pub struct LockSettings {
    /// The number of locks.
    pub count: u8,
    /// The number of lanes of the world's queue, 0 in a world of locks. A world of a queue has no locks.
    #[serde(skip_serializing_if = "is_zero")]
    pub lanes: u8,
    /// The time after its last renewal for which a client may work, in seconds.
    pub duration_seconds: u32,
    /// The time from the end of the duration until the service expires the session, in seconds.
    pub grace_seconds: u32,
    /// The least time between two ticks of the service, in milliseconds.
    pub tick_millis: u32,
}

from_integer_fields!(
    LockSettings { count, lanes, duration_seconds, grace_seconds, tick_millis },
    Some(Self::default())
);

impl Default for LockSettings {
    fn default() -> Self {
        Self { count: 1, lanes: 0, duration_seconds: 4, grace_seconds: 2, tick_millis: 1000 }
    }
}

/// The relative frequency of each kind of event in a random run. An event with the weight 0 never
/// happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "IntegerFields")]
pub struct Rates {
    /// The weight of the event that a user asks for a save.
    pub save: u16,
    /// The weight of the event that a process takes its next step.
    pub step: u16,
    /// The weight of the event that a message arrives.
    pub deliver: u16,
    /// The weight of the event that a message is lost. If the message is an answer that has not left
    /// the service, half of these events cancel its call instead.
    pub drop: u16,
    /// The weight of the event that a message is duplicated.
    pub duplicate: u16,
    /// The weight of the event that a process stops waiting for an answer.
    pub time_out: u16,
    /// The weight of the event that a process crashes and restarts at once with empty memory.
    pub crash: u16,
    /// The weight of the event that a worker loses its database connection, or that a database
    /// restarts.
    pub disconnect: u16,
    /// The weight of the event that a cell is cut off from the service, or connected again.
    pub partition: u16,
    /// The weight of the event that the service stops, or starts again.
    pub restart: u16,
    /// The weight of the event that time passes, or that the service forgets leases settled long
    /// ago.
    pub wait: u16,
    /// The weight of the event that plain SQL changes a row and bypasses the claims.
    pub drift: u16,
}

from_integer_fields!(
    Rates { save, step, deliver, drop, duplicate, time_out, crash, disconnect, partition, restart, wait, drift },
    None
);

impl Default for Rates {
    fn default() -> Self {
        Self {
            save: 60,
            step: 480,
            deliver: 300,
            drop: 8,
            duplicate: 8,
            time_out: 10,
            crash: 8,
            disconnect: 6,
            partition: 4,
            restart: 4,
            wait: 16,
            drift: 0,
        }
    }
}

/// The settings of a world before its first event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorldSettings {
    /// The seed of a random run of the world, at most [`MAX_SEED`].
    pub seed: u64,
    /// The number of cells in the world.
    pub cells: u8,
    /// The number of workers of each cell, which is also the number of saves that a cell can run at
    /// once.
    pub workers: u8,
    /// The number of reconcilers that each cell runs at once (R05).
    pub reconcilers: u8,
    /// The number of names that cells can claim.
    pub names: u8,
    /// The mode of each cell: the point at which its saves begin their leases. If the list is
    /// shorter than the number of cells, it repeats from its start.
    pub modes: Vec<Mode>,
    /// The clock of each cell's database. If the list is shorter than the number of cells, it
    /// repeats from its start.
    pub clocks: Vec<Clock>,
    /// The rules of the protocol that are switched off.
    pub rules_off: RulesOff,
    /// The time limits of the protocol.
    pub thresholds: Thresholds,
    /// The time that passes with every event, in microseconds.
    pub step_micros: u32,
    /// The relative frequencies of events in a random run.
    pub rates: Rates,
    /// The locks of the world, `None` in a world of claims. In a world of locks, random events
    /// concern sessions and locks only, and each cell has one client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<LockSettings>,
}

impl Default for WorldSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            cells: 2,
            workers: 2,
            reconcilers: 1,
            names: 3,
            modes: vec![Mode::BeforeCommit],
            clocks: vec![Clock::default()],
            rules_off: RulesOff::default(),
            thresholds: Thresholds::default(),
            step_micros: 1000,
            rates: Rates::default(),
            locks: None,
        }
    }
}

/// The error of a setting that no world can have, with the values that are allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {actual}: {wanted}")]
pub struct InvalidSettings {
    field: &'static str,
    actual: String,
    wanted: String,
}

impl WorldSettings {
    /// Checks that a world can have these settings.
    ///
    /// # Errors
    /// A number is out of its range, or a list is empty.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        let ranges = [
            ("cells", self.cells, 1, MAX_CELLS),
            ("workers", self.workers, 1, MAX_WORKERS),
            ("reconcilers", self.reconcilers, 0, MAX_RECONCILERS),
            ("names", self.names, 1, MAX_NAMES),
        ];
        for (field, actual, low, high) in ranges {
            if !(low..=high).contains(&actual) {
                return Err(bad(field, actual, format!("use {low} to {high}")));
            }
        }
        if self.seed > MAX_SEED {
            return Err(bad("seed", self.seed, format!("use at most {MAX_SEED}")));
        }
        self.locks.map_or(Ok(()), check_locks)?;
        for (field, is_empty) in [("modes", self.modes.is_empty()), ("clocks", self.clocks.is_empty())] {
            if is_empty {
                return Err(bad(field, "empty", "list at least one".to_owned()));
            }
        }
        let far =
            self.clocks.iter().find(|clock| clock.fast_ppm.abs() > 500_000 || clock.ahead_seconds.abs() > 31_536_000);
        match far {
            Some(clock) => {
                let actual = format!("{} s ahead and {} ppm fast", clock.ahead_seconds, clock.fast_ppm);
                Err(bad("clocks", actual, "use at most a year and 500000 ppm, ahead or behind".to_owned()))
            }
            None => Ok(()),
        }
    }
}

fn check_locks(locks: LockSettings) -> Result<(), InvalidSettings> {
    let (low, high) = if locks.lanes > 0 { (0, 0) } else { (1, u32::from(MAX_LOCKS)) };
    let ranges = [
        ("locks.count", u32::from(locks.count), low, high),
        ("locks.lanes", u32::from(locks.lanes), 0, u32::from(MAX_LANES)),
        ("locks.duration_seconds", locks.duration_seconds, 1, 3600),
        ("locks.grace_seconds", locks.grace_seconds, 1, 3600),
        ("locks.tick_millis", locks.tick_millis, 100, 10_000),
    ];
    let wrong = ranges.into_iter().find(|(_, actual, low, high)| !(low..=high).contains(&actual));
    wrong.map_or(Ok(()), |(field, actual, low, high)| Err(bad(field, actual, format!("use {low} to {high}"))))
}

fn bad(field: &'static str, actual: impl ToString, wanted: String) -> InvalidSettings {
    InvalidSettings { field, actual: actual.to_string(), wanted }
}
