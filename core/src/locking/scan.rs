//! The list of the locks of a namespace and of the namespaces in it, without the free ones (K16).
//!
//! ```
//! use leasehold_core::lock::LockPath;
//! use leasehold_core::locking::scan::LockScan;
//!
//! let scan = LockScan::parse("user", 0, None).unwrap();
//! assert!(scan.contains(&LockPath::parse(&["user", "update"], "7").unwrap()));
//! assert!(!scan.contains(&LockPath::parse(&["user-2"], "7").unwrap()));
//! ```

use std::ops::Bound;
use std::sync::Arc;

use crate::lock::{Lock, LockPath, SEPARATOR, check_namespace};
use crate::rejection::Rejection;
use crate::rows::{LockOrder, OrderedRead};
use crate::session::check_limit;
use crate::time::Timestamp;

/// The number of locks of a page whose caller names none.
const DEFAULT_PAGE: u32 = 100;
/// The largest number of locks of a page (K21).
pub const MAX_PAGE: u32 = 1_000;

/// The character after [`SEPARATOR`]. A namespace and those in it come before the namespace with
/// this character at its end.
const AFTER_SEPARATOR: char = '/';

/// A page of a list of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockScan {
    namespace: Arc<str>,
    after: Option<LockPath>,
    limit: usize,
}

/// One of the lists that a store keeps in the order of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockList {
    /// The locks that are held.
    Held,
    /// The locks that are withheld.
    Withheld,
    /// The locks that wait for a cleanup.
    Orphaned,
    /// The orphaned locks that wait for an operator.
    SetAside,
}

impl LockList {
    /// All lists: every lock that is not free is in one of them.
    pub const ALL: [Self; 4] = [Self::Held, Self::Withheld, Self::Orphaned, Self::SetAside];

    fn at(self, path: LockPath) -> LockOrder {
        match self {
            Self::Held => LockOrder::Held(path),
            Self::Withheld => LockOrder::Withheld(path),
            Self::Orphaned => LockOrder::Orphaned(path),
            Self::SetAside => LockOrder::SetAside(path),
        }
    }
}

impl LockScan {
    /// Parses a request for a page. An empty namespace stands for all, and a limit of 0 for the
    /// default.
    ///
    /// # Errors
    /// The namespace is malformed (K16), or the limit is too large (K21).
    pub fn parse(namespace: &str, limit: u32, after: Option<LockPath>) -> Result<Self, Rejection> {
        if !namespace.is_empty() {
            check_namespace(namespace)?;
        }
        check_limit("page_locks", MAX_PAGE.into(), limit.into())?;
        let limit = if limit == 0 { DEFAULT_PAGE } else { limit };
        Ok(Self { namespace: namespace.into(), after, limit: limit as usize })
    }

    /// Returns a scan of all locks, with the largest pages.
    pub fn all() -> Self {
        Self { namespace: "".into(), after: None, limit: MAX_PAGE as usize }
    }

    /// Returns the read of the first locks that became free before a time, the oldest first.
    pub fn free_before(before: Timestamp, limit: usize) -> OrderedRead<Lock> {
        let at = |time| LockOrder::Free(time, LockPath::first_of(""));
        OrderedRead { from: Bound::Included(at(Timestamp::MIN)), to: Bound::Excluded(at(before)), limit }
    }

    /// Returns the most locks of the page.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// True if a lock is in the namespace, or in a namespace in it.
    pub fn contains(&self, path: &LockPath) -> bool {
        is_within(path.namespace(), &self.namespace)
    }

    /// Returns the read of the next part of one list: at most one lock more than the page has. The
    /// part may have locks that the scan does not [contain](Self::contains). `after` is the last
    /// lock of the part before.
    pub fn read(&self, list: LockList, after: Option<&LockPath>) -> OrderedRead<Lock> {
        let from = match after.or(self.after.as_ref()) {
            Some(after) => Bound::Excluded(list.at(after.clone())),
            None => Bound::Included(list.at(LockPath::first_of(&self.namespace))),
        };
        let to = if self.namespace.is_empty() {
            // No character of a namespace is above this one.
            LockPath::first_of(char::MAX.encode_utf8(&mut [0; 4]))
        } else {
            LockPath::first_of(&format!("{}{AFTER_SEPARATOR}", self.namespace))
        };
        OrderedRead { from, to: Bound::Excluded(list.at(to)), limit: self.limit + 1 }
    }
}

/// True if a namespace is `outer`, or is in it. Every namespace is in the empty one.
pub fn is_within(namespace: &str, outer: &str) -> bool {
    let rest = namespace.strip_prefix(outer);
    outer.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(SEPARATOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(namespace: &str) -> LockPath {
        LockPath::parse_joined(namespace, "k").unwrap()
    }

    fn is_read(namespace: &str, of: &str) -> bool {
        let read = LockScan::parse(of, 0, None).unwrap().read(LockList::Held, None);
        let at = LockOrder::Held(path(namespace));
        (match &read.from {
            Bound::Included(from) => at >= *from,
            Bound::Excluded(from) => at > *from,
            Bound::Unbounded => true,
        }) && (match &read.to {
            Bound::Included(to) => at <= *to,
            Bound::Excluded(to) => at < *to,
            Bound::Unbounded => true,
        })
    }

    #[test]
    fn k16_the_read_of_a_namespace_has_every_lock_in_it() {
        for namespace in ["user", "user.update", "user.z", "user.\u{10ffff}.a", "user. "] {
            assert!(is_read(namespace, "user") && is_within(namespace, "user"), "{namespace}");
            assert!(is_read(namespace, ""), "{namespace}");
        }
        for namespace in ["use", "user0", "uses"] {
            assert!(!is_read(namespace, "user") && !is_within(namespace, "user"), "{namespace}");
        }
        // A part may have this one, and `contains` leaves it out.
        assert!(is_read("user-2", "user") && !is_within("user-2", "user"));
    }

    #[test]
    fn k21_pages_are_bounded() {
        assert_eq!(LockScan::parse("a", 0, None).unwrap().limit(), 100);
        assert!(LockScan::parse("a", 1_001, None).is_err());
        assert!(LockScan::parse("a..b", 1, None).is_err());
    }
}
