//! The bodies that this server has saved last, so that a take which follows soon reads none.

use std::mem::take;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::queue::{BodyDigest, RequestBody, RequestId};
use leasehold_core::rows::{NetChanges, RowChange};
use rustc_hash::FxHashMap;

/// The bytes of bodies after which a generation is complete. Two generations are kept.
const GENERATION_BYTES: usize = 8 * 1024 * 1024;
/// The bytes that a body takes up beside its own.
const OVERHEAD_BYTES: usize = 64;

/// The bodies of the requests that were submitted here last.
#[derive(Default)]
pub struct RecentBodies(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    newer: FxHashMap<RequestId, RequestBody>,
    newer_bytes: usize,
    older: FxHashMap<RequestId, RequestBody>,
}

impl RecentBodies {
    fn lock(&self) -> MutexGuard<'_, Generations> {
        // INVARIANT: no code panics while it has locked this mutex.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bodies of all these requests; `None` if one is not in memory. A request that was withdrawn elsewhere
    /// and submitted again has another digest.
    pub fn all(&self, requests: impl Iterator<Item = (RequestId, BodyDigest)>) -> Option<Vec<RequestBody>> {
        let bodies = self.lock();
        let body = |(id, digest)| {
            let body = bodies.newer.get(&id).or_else(|| bodies.older.get(&id))?;
            (body.digest() == digest).then(|| body.clone())
        };
        requests.map(body).collect()
    }

    /// Follows the saved changes of a group.
    pub(super) fn saved(&self, changes: &NetChanges) {
        if !changes.bodies.is_empty() {
            let mut bodies = self.lock();
            changes.bodies.iter().for_each(|change| bodies.follow(change));
        }
    }
}

impl Generations {
    fn follow(&mut self, RowChange { key, after, .. }: &RowChange<RequestBody>) {
        self.older.remove(key);
        let Some(body) = after else {
            self.newer.remove(key);
            return;
        };
        if self.newer_bytes >= GENERATION_BYTES {
            (self.older, self.newer_bytes) = (take(&mut self.newer), 0);
        }
        self.newer_bytes += body.as_bytes().len() + OVERHEAD_BYTES;
        self.newer.insert(*key, body.clone());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use leasehold_core::queue::MAX_BODY_BYTES;
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> RequestId {
        RequestId(Uuid::from_u128(number))
    }

    fn saved(bodies: &RecentBodies, number: u128, body: Option<&RequestBody>) {
        let change = RowChange { key: id(number), before: None, after: body.cloned() };
        bodies.saved(&NetChanges { bodies: vec![change], ..NetChanges::default() });
    }

    #[test]
    fn a_body_is_found_by_its_digest_until_it_is_removed() {
        let bodies = RecentBodies::default();
        let [one, other] = [b"1", b"2"].map(|bytes| RequestBody::parse(bytes).unwrap());
        saved(&bodies, 1, Some(&one));
        saved(&bodies, 2, Some(&other));
        let find = |requests: [(u128, &RequestBody); 2]| {
            bodies.all(requests.into_iter().map(|(number, body)| (id(number), body.digest())))
        };
        assert_eq!(find([(1, &one), (2, &other)]), Some(vec![one.clone(), other.clone()]));
        assert_eq!(find([(1, &other), (2, &other)]), None);
        saved(&bodies, 1, None);
        assert_eq!(find([(1, &one), (2, &other)]), None);
    }

    #[test]
    fn the_bytes_have_a_bound() {
        let bodies = RecentBodies::default();
        let body = RequestBody::parse(&vec![7; MAX_BODY_BYTES]).unwrap();
        let count = 3 * GENERATION_BYTES as u128 / MAX_BODY_BYTES as u128;
        (0..count).for_each(|number| saved(&bodies, number, Some(&body)));
        let generations = bodies.lock();
        let kept = generations.newer.len() + generations.older.len();
        assert!(kept * MAX_BODY_BYTES <= 2 * (GENERATION_BYTES + MAX_BODY_BYTES), "{kept} bodies");
        assert!(generations.newer.contains_key(&id(count - 1)) && !generations.older.contains_key(&id(0)));
    }
}
