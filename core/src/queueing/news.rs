//! The news of saved changes, by which a host wakes its workers (Q18). Lost news cost a delay: workers also look by
//! themselves (Q04).

use crate::queue::{Lane, LanePath, Queue, QueuePath};
use crate::rows::{LaneOrder, NetChanges, RowChange, RowKind};

/// Returns the lanes that a group of commands has made ready, also if the group has taken and settled requests of
/// them. Each is work for one worker.
pub fn readied(changes: &NetChanges) -> impl Iterator<Item = &LanePath> {
    changes.lanes.iter().filter(|change| is_readied(change)).map(|change| &change.key)
}

fn is_readied(change: &RowChange<Lane>) -> bool {
    let position = |row: &Lane| Lane::position(&change.key, row);
    let is_ready = |row: &&Lane| matches!(position(row), Some(LaneOrder::Ready(..)));
    let (before, after) = (change.before.as_ref().filter(is_ready), change.after.as_ref().filter(is_ready));
    after.is_some_and(|after| before.is_none_or(|before| before.last != after.last))
}

/// Returns the queues that a group of commands has opened: resumed, or brought below their limit. Each has work for
/// workers if it has ready lanes.
pub fn opened(changes: &NetChanges) -> impl Iterator<Item = &QueuePath> {
    let is_open = |row: &Option<Queue>| row.unwrap_or_default().is_open();
    changes
        .queues
        .iter()
        .filter(move |change| !is_open(&change.before) && is_open(&change.after))
        .map(|change| &change.key)
}
