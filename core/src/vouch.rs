//! The rules by which hosts of one store share sessions. A host *vouches*: once a second it writes a
//! row of its own, and reads the news of its sessions in the same transaction. The *home* of a
//! session is the host that wrote the session's last counted renewal. Only the home observes the
//! session's silence.
//!
//! **Why no session is renewed at one host and expires at another (K06).** Only the home answers
//! renewals from memory, and only while its last vouch was sent less than a *window* ago: half of
//! the session's grace. All other renewals are written, which moves the session to the host that
//! writes. A session that moves away is in the news of the former home's next vouch. So an answer
//! from memory is less than a window later than the move. The new home observes a window, and after
//! it the duration and the grace. The client counts both from its last answered renewal, so it knows
//! of the loss before the session expires.
//!
//! No wall clocks are compared. A host is gone if another has seen several answers in a row in which
//! the number of the first one's vouches stood still. Adopted sessions move as by a renewal (K07).
//!
//! ```
//! use leasehold_core::session::Terms;
//! use leasehold_core::vouch::{Peers, may_renew};
//!
//! let terms = Terms::parse(15_000_000, 5_000_000).unwrap();
//! assert!(may_renew(2_499_999, terms) && !may_renew(2_500_000, terms));
//!
//! let mut peers = Peers::default();
//! let mut answers = (0..6).map(|_| peers.gone([("a", 7, false)]));
//! assert!(answers.by_ref().take(5).all(|gone| gone.is_empty()));
//! assert_eq!(answers.next(), Some(vec!["a"]));
//! ```

use std::collections::BTreeMap;

use crate::session::Terms;

/// The microseconds between two vouches of a host.
pub const INTERVAL_MICROS: u64 = 1_000_000;
/// The age of a host's last vouch, in microseconds, from which on the host's ticks do not count:
/// renewals may have failed.
pub const STALE_MICROS: u64 = 3_000_000;
/// The number of answers in a row with the same number of vouches after which a host is gone.
const GONE_AFTER: u32 = 5;

/// Returns true if the home of a session may answer its renewal from memory, `age_micros` after the
/// home sent the last vouch that was answered (K06).
pub fn may_renew(age_micros: u64, terms: Terms) -> bool {
    age_micros < terms.window_micros()
}

/// Returns true if a host's ticks count, `age_micros` after it sent the last vouch that was answered.
/// While the store answers no vouches, sessions can't renew, so each gets its whole duration again
/// (K07).
pub fn counts_ticks(age_micros: u64) -> bool {
    age_micros < STALE_MICROS
}

/// The vouches of other hosts, as one host has seen them in the answers to its own.
#[derive(Clone, Debug)]
pub struct Peers<Id> {
    // The number of vouches, and the number of answers in a row that had this number.
    seen: BTreeMap<Id, (i64, u32)>,
}

impl<Id> Default for Peers<Id> {
    fn default() -> Self {
        Self { seen: BTreeMap::new() }
    }
}

impl<Id: Copy + Ord> Peers<Id> {
    /// Learns from one answer, which has for each other host the number of its vouches, and true if it
    /// has stopped. Returns the hosts that are gone: their sessions may be adopted.
    pub fn gone(&mut self, others: impl IntoIterator<Item = (Id, i64, bool)>) -> Vec<Id> {
        let mut seen = BTreeMap::new();
        let mut gone = Vec::new();
        for (id, vouches, is_stopped) in others {
            let before = self.seen.get(&id).filter(|(known, _)| *known == vouches);
            let answers = before.map_or(1, |(_, answers)| answers.saturating_add(1));
            seen.insert(id, (vouches, answers));
            gone.extend((is_stopped || answers > GONE_AFTER).then_some(id));
        }
        self.seen = seen;
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k07_a_host_whose_vouches_stand_still_is_gone_and_one_that_stopped_is_gone_at_once() {
        let mut peers = Peers::default();
        for vouches in [1, 1, 1, 1, 1, 2, 2, 2, 2, 2] {
            assert_eq!(peers.gone([(1, vouches, false)]), []);
        }
        assert_eq!(peers.gone([(1, 2, false), (2, 9, true)]), [1, 2]);
        // A host that was away is new.
        assert_eq!(peers.gone([]), []);
        assert_eq!(peers.gone([(1, 2, false)]), []);
    }
}
