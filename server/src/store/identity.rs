//! The identity of a store, the permission to make a new one, and a summary of its contents.

use std::fmt;

use leasehold_core::lease::Fence;
use leasehold_core::unicode_version::{UNICODE_VERSION, UnicodeVersion};
use uuid::{Builder, Uuid};

/// The permission to make a store in a place that holds none.
///
/// A path or URL with a typo names such a place. If a server made a store there, it would give out
/// every name a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// A store is made if there is none.
    Allowed,
    /// A place without a store is an error.
    Refused,
}

/// The identity of a store, whose id never changes. A copy, such as a restored backup, has the
/// identity of its original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The random id.
    pub id: Uuid,
    /// True if the store was made when it was opened.
    pub is_new: bool,
    /// The version of Unicode by whose tables the store's keys are canonical forms, when the store
    /// was opened. A store that does not tell it counts as one of this program's version.
    pub unicode: UnicodeVersion,
}

impl Identity {
    /// Returns a random identity for a new store.
    pub(super) fn random() -> Self {
        Self { id: Builder::from_random_bytes(rand::random()).into_uuid(), is_new: true, unicode: UNICODE_VERSION }
    }
}

/// Up to this number, claims are counted one by one, which takes some milliseconds. A larger number
/// is estimated.
pub(super) const COUNTED_CLAIMS: usize = 10_000;

/// The distance by which the fences of a restored copy are raised.
///
/// A copy does not know the fences that its original gave out after the backup. Even at 10,000
/// leases a second, the original needs three years to give out this many fences. After 8,000
/// restores the fences are still below 2^53, up to which readers of JSON represent integers exactly
/// (RFC 8259, section 6).
pub const RESTORE_JUMP: u64 = 1 << 40;

/// The fences of a restored copy: before they were raised, and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaisedFences {
    /// The newest fence of the copy.
    pub from: Fence,
    /// The fence after which the copy goes on.
    pub to: Fence,
}

/// The contents of a store, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The number of claims.
    pub claims: Count,
    /// The number of outstanding leases.
    pub leases: usize,
    /// The newest fence; 0 if no lease was begun. If the store skips fences, the largest one that it can
    /// have given out.
    pub fence: Fence,
}

/// A number of rows, which is estimated if there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The number, or the estimate.
    pub number: usize,
    /// True if all rows were counted.
    pub is_exact: bool,
}

impl Count {
    /// Returns a count. `counted` is the number of rows that were counted, where counting stopped
    /// at [`COUNTED_CLAIMS`] + 1. If it is larger than [`COUNTED_CLAIMS`], the result is
    /// `estimate`.
    pub(super) fn of(counted: usize, estimate: usize) -> Self {
        let is_exact = counted <= COUNTED_CLAIMS;
        Self { number: if is_exact { counted } else { estimate.max(counted) }, is_exact }
    }
}

/// Shows the contents in the form `2 claims, 1 lease, fence 17`.
impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = if self.claims.is_exact { "" } else { "about " };
        let plural = |number: usize| if number == 1 { "" } else { "s" };
        let (claims, leases) = (self.claims.number, self.leases);
        write!(f, "{about}{claims} claim{}, {leases} lease{}", plural(claims), plural(leases))?;
        write!(f, ", fence {}", self.fence.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_numbers_and_units() {
        let contents = |counted, estimate, leases| {
            Contents { claims: Count::of(counted, estimate), leases, fence: Fence(17) }.to_string()
        };
        assert_eq!(contents(0, 9, 1), "0 claims, 1 lease, fence 17");
        assert_eq!(contents(1, 9, 2), "1 claim, 2 leases, fence 17");
        assert_eq!(contents(10_001, 20_000, 0), "about 20000 claims, 0 leases, fence 17");
        assert_eq!(contents(10_001, 0, 0), "about 10001 claims, 0 leases, fence 17");
    }

    #[test]
    fn no_two_stores_have_one_identity() {
        assert_ne!(Identity::random().id, Identity::random().id);
    }
}
