//! What a group may be decided on without asking the database: of leases that this server has begun the rows are known, and
//! names that begins ask for are mostly free. What was presumed is written, and the write fails where it is not so.
//!
//! A group that is decided in this way is one statement, and so one round trip instead of two. Where
//! presumptions fail, more and more groups in a row are decided on what the database says.

use leasehold_core::lease::LeaseId;
use leasehold_core::transaction::{Keys, NetChanges};

use super::recent::{Known, Recent};

/// Groups in a row that are not presumed about, at the most.
const MAX_CAUTION: u32 = 64;

#[derive(Debug)]
pub(super) struct Presumption {
    is_allowed: bool,
    // Groups that are to be decided on what the database says, before the next that is not.
    cautious_groups: u32,
    // How many there will be after the next failure.
    caution: u32,
    presumed: Option<Presumed>,
}

/// How many rows a group was decided on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Presumed {
    claims: usize,
    leases: usize,
    replays: usize,
}

impl Default for Presumption {
    fn default() -> Self {
        Self { is_allowed: false, cautious_groups: 0, caution: 1, presumed: None }
    }
}

impl Presumption {
    pub(super) fn allow(&mut self) {
        self.is_allowed = true;
    }

    /// Starts with a new group.
    pub(super) fn renew(&mut self) {
        self.presumed = None;
    }

    /// The group's leases, where its rows may be presumed: all others are absent.
    pub(super) fn leases(&mut self, keys: &Keys, recent: &Recent) -> Option<Vec<(LeaseId, Known)>> {
        if !self.is_allowed || self.presumed.is_some() {
            return None;
        }
        if self.cautious_groups > 0 {
            self.cautious_groups -= 1;
            return None;
        }
        let known: Vec<_> = keys.leases.iter().map(|id| Some((*id, recent.lease(*id)?))).collect::<Option<_>>()?;
        let held: usize = known.iter().map(|(_, known)| known.claims.len()).sum();
        self.presumed =
            Some(Presumed { claims: keys.claims.len() + held, leases: known.len(), replays: keys.replays.len() });
        Some(known)
    }

    /// What was presumed about the group, if anything was.
    pub(super) fn take(&mut self) -> Option<Presumed> {
        self.presumed.take()
    }

    /// Learns from a group's end.
    pub(super) fn learn(&mut self, was_right: bool) {
        if was_right {
            self.caution = (self.caution / 2).max(1);
        } else {
            self.cautious_groups = self.caution;
            self.caution = (self.caution * 2).min(MAX_CAUTION);
        }
    }
}

impl Presumed {
    /// Whether every row that was presumed is written, and so proved by the write.
    pub(super) fn is_proved_by(&self, changes: &NetChanges) -> bool {
        let settled = changes.leases.iter().filter(|change| change.before.is_some()).count();
        *self == Self { claims: changes.claims.len(), leases: settled, replays: changes.replays.len() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn allowed() -> Presumption {
        let mut presumption = Presumption::default();
        presumption.allow();
        presumption
    }

    /// Whether the next group is presumed about.
    fn presumes(presumption: &mut Presumption) -> bool {
        presumption.renew();
        presumption.leases(&Keys::default(), &Recent::default()).is_some()
    }

    #[test]
    fn caution_grows_with_failures_and_goes_with_success() {
        let mut presumption = allowed();
        let cautious = |presumption: &mut Presumption| (0..).find(|_| presumes(presumption)).unwrap();
        let after_failure = |presumption: &mut Presumption| {
            presumption.learn(false);
            cautious(presumption)
        };
        let groups: Vec<i32> = (0..8).map(|_| after_failure(&mut presumption)).collect();
        assert_eq!(groups, [1, 2, 4, 8, 16, 32, 64, 64]);
        (0..3).for_each(|_| presumption.learn(true));
        assert_eq!(after_failure(&mut presumption), 8);
    }

    #[test]
    fn a_lease_that_is_not_known_is_not_presumed_about() {
        let keys = Keys { leases: vec![LeaseId(uuid::Uuid::nil())], ..Keys::default() };
        assert!(allowed().leases(&keys, &Recent::default()).is_none());
    }
}
