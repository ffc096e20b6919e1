//! Reads every row of the embedded store, for `leasehold doctor --deep`.

use std::collections::BTreeSet;

use super::locks::Locks;
use super::queues::Queues;
use super::rows::Keyspace;
use super::{EmbeddedStore, Inner, Result};
use crate::store::error::StoreError;

/// The number of rows between two reports of progress.
const PROGRESS_ROWS: u64 = 1_000_000;

/// The result of a read of every row of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeepCheck {
    /// The number of rows that can be read.
    pub rows: u64,
    /// The keyspaces with a fault.
    pub damaged: BTreeSet<&'static str>,
    /// The faults: the keyspaces with a damaged block, and claims that are damaged or not listed.
    pub faults: Vec<String>,
}

impl Inner {
    fn keyspaces(&self) -> [&Keyspace; 19] {
        let Locks { sessions, session_order, locks, lock_order, asks, turns, .. } = &self.locks;
        let Queues { queues, lanes, lane_order, requests, request_order, bodies, .. } = &self.queues;
        let Self { claims, sources, outstanding, settled, settled_order, replays, meta, .. } = self;
        [
            claims,
            sources,
            outstanding,
            settled,
            settled_order,
            replays,
            meta,
            sessions,
            session_order,
            locks,
            lock_order,
            asks,
            turns,
            queues,
            lanes,
            lane_order,
            requests,
            request_order,
            bodies,
        ]
    }

    /// Counts the rows of a keyspace up to the first damaged block, and checks their values.
    fn check_keyspace(
        &self,
        keyspace: &Keyspace,
        check: &mut DeepCheck,
        progress: &mut impl FnMut(u64),
    ) -> Result<u64> {
        let (snapshot, mut rows, mut undecodable) = (self.database.snapshot(), 0, 0);
        for row in keyspace.range::<&[u8]>(&snapshot, ..) {
            let value = match row {
                Ok((_, value)) => value,
                Err(StoreError::Damaged(error)) => {
                    check.damaged.insert(keyspace.name);
                    check.faults.push(format!("{error} (after {rows} rows)"));
                    break;
                }
                Err(error) => return Err(error),
            };
            rows += 1;
            check.rows += 1;
            if check.rows.is_multiple_of(PROGRESS_ROWS) {
                progress(check.rows);
            }
            let is_claim = keyspace.name == self.claims.name;
            undecodable += u64::from(is_claim && self.decode_claim(&value).is_err());
        }
        if undecodable > 0 {
            check.damaged.insert(keyspace.name);
            check.faults.push(format!("`{}`: {undecodable} damaged rows", keyspace.name));
        }
        Ok(rows)
    }
}

impl EmbeddedStore {
    /// Reads every row, and passes the number of rows so far to `progress` now and then.
    ///
    /// # Errors
    /// The disk failed.
    pub fn check_deeply(&self, mut progress: impl FnMut(u64)) -> Result<DeepCheck> {
        let inner = &*self.inner;
        let (mut check, mut claims, mut listed) = (DeepCheck::default(), 0, 0);
        for keyspace in inner.keyspaces() {
            let rows = inner.check_keyspace(keyspace, &mut check, &mut progress)?;
            match keyspace.name {
                name if name == inner.claims.name => claims = rows,
                name if name == inner.sources.name => listed = rows,
                _ => {}
            }
        }
        if check.faults.is_empty() && claims != listed {
            check.damaged.insert(inner.sources.name);
            check.faults.push(format!("`{}`: {listed} of {claims} claims", inner.sources.name));
        }
        Ok(check)
    }
}
