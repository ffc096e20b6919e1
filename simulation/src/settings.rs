//! What a world is made of, and by which rules it plays. A world is its settings and the events that befell it.

use serde::{Deserialize, Serialize};

use crate::numbers::{Numbers, from_numbers};

/// The most cells, workers of a cell, and reconcilers of a cell: a message names its caller in four bits.
pub const MAX_CELLS: u8 = 8;
/// See [`MAX_CELLS`].
pub const MAX_WORKERS: u8 = 8;
/// See [`MAX_CELLS`].
pub const MAX_RECONCILERS: u8 = 4;
/// The most names that there are to claim.
pub const MAX_NAMES: u8 = 32;

/// The largest seed: JavaScript's readers of JSON keep no larger number as it is.
pub const MAX_SEED: u64 = (1 << 53) - 1;

/// When a cell begins the lease of a save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Right before the COMMIT of the local transaction, which has written its rows by then.
    #[default]
    BeforeCommit,
    /// Before the BEGIN of the local transaction, so that no transaction waits for the network.
    LeaseFirst,
}

/// One rule of the protocol that can be switched off, to see what it is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// What is under a lease is busy for every other update (B03).
    LeaseExclusivity,
    /// A cell destroys only what is its own (B04).
    Ownership,
    /// Settled leases are remembered, so that a repeated or late settle gets the true answer (B22, B23).
    SettledLeaseMemory,
    /// A begin that is sent again under its idempotency key gets the same lease (B09).
    ReplayKeys,
    /// A local COMMIT that comes later than the lease's safe age is refused by the database (R04).
    LocalFence,
    /// Verification leaves rows alone that were changed lately (V02).
    SkipRecentRows,
    /// Verification leaves claims alone that were changed lately (V02).
    SkipRecentClaims,
}

impl Rule {
    /// Every rule that can be switched off.
    pub const ALL: [Self; 7] = [
        Self::LeaseExclusivity,
        Self::Ownership,
        Self::SettledLeaseMemory,
        Self::ReplayKeys,
        Self::LocalFence,
        Self::SkipRecentRows,
        Self::SkipRecentClaims,
    ];

    /// The rule in one sentence, for a page.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::LeaseExclusivity => "what is under a lease is busy for every other update",
            Self::Ownership => "a cell destroys only what is its own",
            Self::SettledLeaseMemory => "settled leases are remembered, so that who asks again gets the true answer",
            Self::ReplayKeys => "a begin that is sent again gets the lease of the first try",
            Self::LocalFence => "the cell's database refuses a COMMIT that comes after the lease's safe age",
            Self::SkipRecentRows => "verification leaves rows alone that were changed lately",
            Self::SkipRecentClaims => "verification leaves claims alone that were changed lately",
        }
    }
}

/// Which rules are off; none unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RulesOff(u8);

impl RulesOff {
    /// With this rule off, too.
    #[must_use]
    pub const fn with(self, rule: Rule) -> Self {
        Self(self.0 | 1 << rule as u8)
    }

    /// Whether a rule is kept.
    pub const fn keep(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u8) == 0
    }
}

impl Serialize for RulesOff {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(Rule::ALL.into_iter().filter(|rule| !self.keep(*rule)))
    }
}

impl<'de> Deserialize<'de> for RulesOff {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let rules = Vec::<Rule>::deserialize(from)?;
        Ok(rules.into_iter().fold(Self::default(), Self::with))
    }
}

/// The spans of time that the protocol goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Numbers")]
pub struct Thresholds {
    /// From this age on a lease is given up by its cell.
    pub stale_after_seconds: u32,
    /// Up to this age of the lease a cell's database commits under it.
    pub commit_within_seconds: u32,
    /// Longer than this no local transaction lives: well below what counts as recent, since its rows say when they were
    /// written, not when they were committed.
    pub transaction_within_seconds: u32,
    /// What was changed within this time verification leaves alone.
    pub recent_within_seconds: u32,
    /// For so long settled leases are remembered.
    pub remember_within_seconds: u32,
    /// By so much the replica that verification reads may lag behind its database; 0 is to read the database itself.
    pub replica_lag_seconds: u32,
}

from_numbers!(
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

/// How the clock of a cell's database differs from the service's, which is the world's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Numbers")]
pub struct Clock {
    /// By so much it is ahead at the start.
    pub ahead_seconds: i32,
    /// By so many millionths it runs faster.
    pub fast_ppm: i32,
}

from_numbers!(Clock { ahead_seconds, fast_ppm }, None);

/// How often a random world meets with what; weights of the scheduler's draw. A weight of 0 is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Numbers")]
pub struct Rates {
    /// A user asks for a save.
    pub save: u16,
    /// A process takes its next step.
    pub step: u16,
    /// A message arrives.
    pub deliver: u16,
    /// A message is lost.
    pub drop: u16,
    /// A message is doubled.
    pub duplicate: u16,
    /// Whoever waits for an answer gives up.
    pub time_out: u16,
    /// A process dies, and is there again at once with nothing in its memory.
    pub crash: u16,
    /// A worker loses its database connection, or a database restarts.
    pub disconnect: u16,
    /// A cell is cut off from the service, or is so no more.
    pub partition: u16,
    /// The service stops, or starts again.
    pub restart: u16,
    /// Time passes.
    pub wait: u16,
    /// A row is changed past the claims, by plain SQL.
    pub drift: u16,
}

from_numbers!(
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

/// A world before anything has happened in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Whence a random run draws, [`MAX_SEED`] at the most.
    pub seed: u64,
    /// How many cells there are.
    pub cells: u8,
    /// How many saves a cell can be at, at a time.
    pub workers: u8,
    /// How many reconcilers a cell runs at a time (R05).
    pub reconcilers: u8,
    /// How many names there are to claim.
    pub names: u8,
    /// The mode of each cell; the list begins again where it ends before the cells do.
    pub modes: Vec<Mode>,
    /// The clocks of the cells' databases, likewise.
    pub clocks: Vec<Clock>,
    /// The rules that are switched off.
    pub rules_off: RulesOff,
    /// The protocol's spans of time.
    pub thresholds: Thresholds,
    /// How long every event takes.
    pub step_micros: u32,
    /// What befalls a random run.
    pub rates: Rates,
}

impl Default for Settings {
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
        }
    }
}

/// Settings that make no world.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {actual}: {wanted}")]
pub struct BadSettings {
    field: &'static str,
    actual: String,
    wanted: String,
}

impl Settings {
    /// Checks that a world can be made of these.
    ///
    /// # Errors
    /// A number is out of its range, or a list is empty.
    pub fn check(&self) -> Result<(), BadSettings> {
        let ranges = [
            ("cells", self.cells, 1, MAX_CELLS),
            ("workers", self.workers, 1, MAX_WORKERS),
            ("reconcilers", self.reconcilers, 0, MAX_RECONCILERS),
            ("names", self.names, 1, MAX_NAMES),
        ];
        for (field, actual, low, high) in ranges {
            if !(low..=high).contains(&actual) {
                return Err(bad(field, actual, format!("say {low} to {high}")));
            }
        }
        if self.seed > MAX_SEED {
            return Err(bad("seed", self.seed, format!("say {MAX_SEED} at the most")));
        }
        for (field, is_empty) in [("modes", self.modes.is_empty()), ("clocks", self.clocks.is_empty())] {
            if is_empty {
                return Err(bad(field, "empty", "name one at least".to_owned()));
            }
        }
        let far =
            self.clocks.iter().find(|clock| clock.fast_ppm.abs() > 500_000 || clock.ahead_seconds.abs() > 31_536_000);
        match far {
            Some(clock) => {
                let actual = format!("{} s ahead and {} ppm fast", clock.ahead_seconds, clock.fast_ppm);
                Err(bad("clocks", actual, "say at most a year ahead or behind, and 500000 ppm".to_owned()))
            }
            None => Ok(()),
        }
    }
}

fn bad(field: &'static str, actual: impl ToString, wanted: String) -> BadSettings {
    BadSettings { field, actual: actual.to_string(), wanted }
}
