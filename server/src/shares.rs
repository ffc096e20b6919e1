//! The shares of cells, or of all callers, in a limit of the whole server, so that one cannot use up
//! a limit for all others.
//!
//! All cells share one half of the limit, first come, first served. The other half is divided
//! equally among the configured cells, and each part is kept for its cell. If only one cell is
//! configured, it may use the whole limit.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::cell::CellId;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::Config;
use crate::identity::{Caller, Role};

/// The caller whose share of a limit a call uses: a cell, a service, or all callers of another kind
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sharer(pub(crate) CellId);

impl Sharer {
    // No cell has these numbers, since the numbers of cells are positive.
    pub(crate) const ADMINS: Self = Self(CellId(-1));
    pub(crate) const SERVICES: Self = Self(CellId(-2));
    const ROUTERS: Self = Self(CellId(-3));
    pub(crate) const ANONYMOUS: Self = Self(CellId(-4));
    const PLAINTEXT: Self = Self(CellId(-5));
    const BALANCERS: Self = Self(CellId(-6));
    const SERVERS: Self = Self(CellId(-7));
    #[cfg(test)]
    pub(crate) const CELL_ONE: Self = Self(CellId(1));

    /// The sharer of a call of this caller.
    pub(crate) fn of(caller: &Caller) -> Self {
        match caller {
            Caller::Authenticated(Role::Cell(cell)) => Self(*cell),
            Caller::Authenticated(Role::Admin) => Self::ADMINS,
            Caller::Authenticated(Role::Service(principal)) => Self::of_service(principal.as_str()),
            Caller::Authenticated(Role::Router) => Self::ROUTERS,
            Caller::Authenticated(Role::Server) => Self::SERVERS,
            Caller::Trusted | Caller::Server => Self::PLAINTEXT,
            Caller::Balancer | Caller::Unrecognised | Caller::Anonymous => Self::ANONYMOUS,
        }
    }

    /// The sharer of a service, by its name `service/NAME`. Its number comes from a hash of the name,
    /// and is far below those of the kinds. Two services with the same hash would share one part.
    fn of_service(name: &str) -> Self {
        Self(CellId(i64::MIN + (xxh3_64(name.as_bytes()) >> 2).cast_signed()))
    }

    /// The sharers of the services that the configuration names. Another service has no right to
    /// any lock, and uses the part that all share.
    pub(crate) fn services(config: &Config) -> impl Iterator<Item = CellId> {
        let callers = config.locks.access.iter().map(|access| access.caller.as_str());
        callers.filter(|caller| caller.starts_with("service/")).map(|caller| Self::of_service(caller).0)
    }

    /// The sharer of a connection of this caller.
    pub(crate) fn of_connection(caller: &Caller) -> Self {
        match caller {
            Caller::Balancer => Self::BALANCERS,
            caller => Self::of(caller),
        }
    }

    /// All sharers of the connections of a server with TLS. Callers without an identity have no
    /// share, because their connections give way.
    pub(crate) fn of_connections(config: &Config) -> BTreeSet<CellId> {
        let mut sharers = Self::all(config);
        sharers.remove(&Self::ANONYMOUS.0);
        if !sharers.is_empty() && !config.subjects.balancers.is_empty() {
            sharers.insert(Self::BALANCERS.0);
        }
        sharers
    }

    /// All sharers of a limit. A server that can't tell its callers apart has none, so that any
    /// caller may use the whole limit.
    pub(crate) fn all(config: &Config) -> BTreeSet<CellId> {
        if config.tls.is_none() && !config.subjects.loopback_balancer {
            return Self::nobody();
        }
        let kinds = [Self::ADMINS, Self::ROUTERS, Self::ANONYMOUS].map(|kind| kind.0);
        config.cells.iter().map(|cell| CellId(cell.id)).chain(kinds).chain(Self::services(config)).collect()
    }

    /// No sharers.
    pub(crate) fn nobody() -> BTreeSet<CellId> {
        BTreeSet::new()
    }
}

/// The use of one limit by all cells.
#[derive(Debug)]
pub(crate) struct LimitShares {
    setting: &'static str,
    max: usize,
    cells: BTreeSet<CellId>,
    // The part of the limit that is kept for each configured cell.
    kept: usize,
    used: FxHashMap<CellId, usize>,
    // The sum of `used`.
    total: usize,
    // The sum of the amounts that configured cells use, where each cell counts up to the part that
    // is kept for it.
    used_of_kept: usize,
}

/// A limit that would be exceeded. Its text names the limit and its setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitReached {
    /// The limit of the server is used up.
    #[error("the server is overloaded: `{setting}` = {max} is reached: try again")]
    OfServer {
        /// The setting of the limit.
        setting: &'static str,
        /// The limit.
        max: usize,
    },
    /// One cell has used up its share of the limit. Other cells may still have room.
    #[error(
        "the cell has used up its share of `{setting}` = {max}, and the rest is kept for other cells: settle its leases, or try again"
    )]
    OfCell {
        /// The setting of the limit.
        setting: &'static str,
        /// The limit.
        max: usize,
    },
    /// One caller has used up its share of the list calls that may wait.
    #[error("the caller has used up its share of `{setting}` = {max}, and the rest is kept for others: try again")]
    ListsOfCaller {
        /// The setting of the limit.
        setting: &'static str,
        /// The limit.
        max: usize,
    },
    /// One cell has as many claims under leases as it may have.
    #[error(
        "the cell may have {max} claims under leases (`held_claims` of its `[[cells]]`, or `limits.cell_held_claims`): settle its leases, or try again"
    )]
    ClaimsOfCell {
        /// The limit of this cell.
        max: usize,
    },
    /// One service has as many live sessions as it may.
    #[error("the service may have {max} live sessions (`limits.sessions_per_service`): close some, or try again")]
    SessionsOfService {
        /// The limit of each service.
        max: usize,
    },
    /// One cell begins more updates than it may.
    #[error(
        "the cell may begin {max} updates a second (`begins_per_second` of its `[[cells]]`, or `limits.cell_begins_per_second`): try again more slowly"
    )]
    RateOfCell {
        /// The limit of this cell.
        max: usize,
    },
}

impl LimitReached {
    /// The setting of the limit, and its value.
    pub fn setting(self) -> (&'static str, usize) {
        match self {
            Self::OfServer { setting, max } | Self::OfCell { setting, max } | Self::ListsOfCaller { setting, max } => {
                (setting, max)
            }
            Self::ClaimsOfCell { max } => ("cells.held_claims", max),
            Self::SessionsOfService { max } => ("limits.sessions_per_service", max),
            Self::RateOfCell { max } => ("cells.begins_per_second", max),
        }
    }
}

impl LimitShares {
    /// The shares of `cells` in the limit `max`, with nothing used yet.
    pub(crate) fn new(setting: &'static str, max: usize, cells: BTreeSet<CellId>) -> Self {
        let kept = max / 2 / cells.len().max(1);
        Self { setting, max, cells, kept, used: FxHashMap::default(), total: 0, used_of_kept: 0 }
    }

    /// Checks that a cell may use `amount` more of the limit.
    ///
    /// # Errors
    /// The limit, or the cell's share of it, is used up.
    pub(crate) fn check(&self, cell: CellId, amount: usize) -> Result<(), LimitReached> {
        let free = self.max.saturating_sub(self.total);
        if amount <= free.saturating_sub(self.kept_for_others(cell)) {
            return Ok(());
        }
        let (setting, max) = (self.setting, self.max);
        Err(if amount > free { LimitReached::OfServer { setting, max } } else { LimitReached::OfCell { setting, max } })
    }

    /// The unused amount that is kept for the other cells.
    fn kept_for_others(&self, cell: CellId) -> usize {
        let unused = (self.kept * self.cells.len()).saturating_sub(self.used_of_kept);
        let own = self.kept_of(cell).saturating_sub(self.used(cell));
        unused.saturating_sub(own)
    }

    fn kept_of(&self, cell: CellId) -> usize {
        if self.cells.contains(&cell) { self.kept } else { 0 }
    }

    /// Counts `amount` more as used by a cell.
    pub(crate) fn add(&mut self, cell: CellId, amount: usize) {
        self.change(cell, |used| used.saturating_add(amount));
    }

    /// Counts `amount` less as used by a cell.
    pub(crate) fn subtract(&mut self, cell: CellId, amount: usize) {
        self.change(cell, |used| used.saturating_sub(amount));
    }

    fn change(&mut self, cell: CellId, changed: impl FnOnce(usize) -> usize) {
        let kept = self.kept_of(cell);
        let before = self.used(cell);
        let after = changed(before);
        self.total = self.total.saturating_sub(before).saturating_add(after);
        self.used_of_kept = self.used_of_kept.saturating_sub(before.min(kept)) + after.min(kept);
        if after == 0 {
            self.used.remove(&cell);
        } else {
            self.used.insert(cell, after);
        }
    }

    /// Changes the limit and the cells that share it. The counts stay, even if their sum exceeds
    /// the new limit.
    pub(crate) fn resize(&mut self, max: usize, cells: BTreeSet<CellId>) {
        let used = self.used.iter().map(|(cell, used)| (*cell, *used)).collect();
        *self = Self::new(self.setting, max, cells);
        self.replace(used);
    }

    /// Replaces all counts.
    pub(crate) fn replace(&mut self, used: BTreeMap<CellId, usize>) {
        (self.total, self.used_of_kept) = (0, 0);
        self.used.clear();
        used.into_iter().for_each(|(cell, amount)| self.add(cell, amount));
    }

    /// The amount that all cells use.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The amount that a cell uses.
    pub(crate) fn used(&self, cell: CellId) -> usize {
        self.used.get(&cell).copied().unwrap_or(0)
    }

    /// The most that a cell can use while no other cell uses anything.
    pub(crate) fn largest_share(&self, cell: CellId) -> usize {
        self.max - (self.kept * self.cells.len() - self.kept_of(cell))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

    use leasehold_core::session::Principal;

    use super::*;

    const SETTING: &str = "limits.held_claims";

    fn shares(max: usize, cells: i64) -> LimitShares {
        LimitShares::new(SETTING, max, (1..=cells).map(CellId).collect())
    }

    /// The amount that a cell can still add before the limit refuses more.
    fn room(shares: &LimitShares, cell: i64) -> usize {
        (0..=shares.max).rev().find(|amount| shares.check(CellId(cell), *amount).is_ok()).unwrap_or(0)
    }

    #[test]
    fn one_cell_leaves_every_other_its_part() {
        let mut shares = shares(100, 5);
        assert_eq!(room(&shares, 1), 60);
        shares.add(CellId(1), 60);
        assert_eq!([room(&shares, 1), room(&shares, 2)], [0, 10]);
        shares.add(CellId(2), 4);
        assert_eq!([room(&shares, 1), room(&shares, 2), room(&shares, 3)], [0, 6, 10]);
        shares.subtract(CellId(1), 20);
        assert_eq!([room(&shares, 1), room(&shares, 2), room(&shares, 3)], [20, 26, 30]);
    }

    /// One service can't use up the part of another one.
    #[test]
    fn each_service_of_the_configuration_has_a_part() {
        let access = |name: &str| format!("[[locks.access]]\ncaller = \"{name}\"\nnamespaces = [\"jobs\"]\n");
        let text = ["service/billing", "service/mail", "cell/1", "service/mail"].map(access).concat();
        let config: Config = toml::from_str(&text).unwrap();
        let service = |name| Sharer::of(&Caller::Authenticated(Role::Service(Principal::parse(name).unwrap())));
        let (billing, mail) = (service("service/billing"), service("service/mail"));
        let sharers: BTreeSet<_> = Sharer::services(&config).collect();
        assert_eq!(sharers, [billing.0, mail.0].into());
        let mut shares = LimitShares::new(SETTING, 100, sharers);
        shares.add(billing.0, room(&shares, billing.0.0));
        assert_eq!([room(&shares, billing.0.0), room(&shares, mail.0.0)], [0, 25]);
    }

    #[test]
    fn several_greedy_cells_leave_the_others_their_part() {
        let mut shares = shares(100, 5);
        for cell in [1, 2, 3, 4, 1, 2] {
            shares.add(CellId(cell), room(&shares, cell));
        }
        assert_eq!([1, 2, 3, 4, 5].map(|cell| room(&shares, cell)), [0, 0, 0, 0, 10]);
        let max = 100;
        assert_eq!(shares.check(CellId(4), 1), Err(LimitReached::OfCell { setting: SETTING, max }));
        shares.add(CellId(5), 10);
        assert_eq!(shares.check(CellId(5), 1), Err(LimitReached::OfServer { setting: SETTING, max }));
    }

    #[test]
    fn a_changed_limit_keeps_the_counts() {
        let mut shares = shares(100, 2);
        shares.add(CellId(1), 60);
        shares.resize(40, [CellId(2), CellId(3)].into());
        assert_eq!([1, 2, 3].map(|cell| room(&shares, cell)), [0, 0, 0]);
        shares.subtract(CellId(1), 55);
        assert_eq!([1, 2, 3].map(|cell| room(&shares, cell)), [15, 25, 25]);
    }

    #[test]
    fn a_lone_cell_has_the_whole_limit_and_a_removed_one_has_no_part() {
        assert_eq!(room(&shares(100, 1), 1), 100);
        assert_eq!([1, 9].map(|cell| shares(100, 5).largest_share(CellId(cell))), [60, 50]);
        let mut two = shares(100, 2);
        two.add(CellId(9), 30);
        assert_eq!([1, 2, 9].map(|cell| room(&two, cell)), [45, 45, 20]);
        two.replace([(CellId(1), 10)].into());
        assert_eq!([1, 2, 9].map(|cell| room(&two, cell)), [65, 75, 50]);
    }
}
