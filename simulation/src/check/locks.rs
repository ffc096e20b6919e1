//! The conditions of sessions and locks: the engine's own invariants, and two conditions that span
//! the clients and the resources.

use leasehold_core::invariant::{self, FenceCheck};
use leasehold_core::lease::Fence;
use leasehold_core::lock::{Lock, LockState};

use crate::lock_names::lock_key;
use crate::resource::WriteOutcome;
use crate::violation::Violation;
use crate::world::World;

/// Checks the changes that the last event made to sessions, locks and resources.
pub(super) fn after_event(world: &World) -> Result<(), Violation> {
    if let Some(WriteOutcome::Accepted { after: Some(newer) }) = world.effects().write {
        let newer = newer.fence.0;
        return Err(Violation::WrittenOutOfOrder { newer });
    }
    if world.effects().has_lock_changes {
        let rows = world.service().lock_rows();
        invariant::check_locks(&rows, &FenceCheck::default()).map_err(Violation::Engine)?;
    }
    check_holders(world)
}

/// Checks that no lock has passed on while its holder may still work by its own clock (K06).
///
/// The clock of a client that is paused runs on, so a pause needs no exception. A lock that was
/// withheld is not granted before the former holder's time is over. A holder from which an operator
/// took the lock learns it with its next renewal (K20).
pub(super) fn check_holders(world: &World) -> Result<(), Violation> {
    let Some(locks) = world.locks() else { return Ok(()) };
    for cell in 1..=world.settings().cells {
        let client = world.client(cell);
        let hold = client.and_then(|client| client.hold(world.client_clock(cell), locks.terms));
        let Some((lock, fence)) = hold else { continue };
        let row = locks.names.path(lock).and_then(|path| world.service().lock(path));
        if !row.is_some_and(|row| is_kept(row, fence)) {
            return Err(Violation::PassedOn { lock: lock_key(lock).to_owned(), cell, fence: fence.0 });
        }
    }
    Ok(())
}

/// Returns true if a lock is held under the fence, or withheld from others because of it.
fn is_kept(lock: &Lock, fence: Fence) -> bool {
    match lock.state {
        LockState::Held(grant) => grant.fence == fence,
        LockState::Withheld(withholding) => withholding.fence == fence,
        LockState::Free | LockState::Orphaned | LockState::Divided(_) => false,
    }
}
