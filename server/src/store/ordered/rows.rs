//! The values of rows. Claims, leases and replays have the stored forms of [`stored`], in the binary
//! form of the embedded store.
//!
//! **Fences.** No counter gives them out. A begin writes its lease before it can know the fence,
//! because the fence follows from the revision of the transaction that writes it:
//!
//! ```text
//! fence = base + revision × 4,096 + place in the group
//! ```
//!
//! The stored fence of such a row is base + place, marked by the highest bit. The revision is that of
//! the row itself: any later write of the row has the fence itself.

use bytes::Bytes;
use leasehold_core::claim::Claim;
use leasehold_core::lease::{Fence, Lease, Replay};
use leasehold_core::organization::OrganizationId;
use leasehold_core::query::{LeasePosition, LeaseRow};
use leasehold_core::rows::{Keys, Workspace};
use leasehold_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::engine::Entry;
use crate::store::error::StoreError;
use crate::store::stored;

type Result<T> = std::result::Result<T, StoreError>;

/// The number of fences of one revision, which is more than the begins of a group.
pub(super) const FENCES_PER_REVISION: u64 = 4_096;
/// The bit of a stored fence to which the revision of its row is to be added. No fence is as large.
const BY_REVISION: u64 = Fence::PLACEHOLDER.0;

/// Returns the stored form of a fence. A placeholder becomes `base` and its place in the group.
pub(super) fn stored_fence(fence: Fence, base: u64) -> u64 {
    match fence.0.checked_sub(BY_REVISION) {
        Some(place) => BY_REVISION.saturating_add(base).saturating_add(place),
        None => fence.0,
    }
}

/// Returns the fence that a row with this revision has stored.
pub(super) fn read_fence(stored: u64, revision: u64) -> Fence {
    match stored.checked_sub(BY_REVISION) {
        Some(offset) => Fence(offset.saturating_add(revision.saturating_mul(FENCES_PER_REVISION))),
        None => Fence(stored),
    }
}

/// Returns the largest fence that can have been given out up to a revision.
pub(super) fn newest_fence(base: u64, revision: u64) -> Fence {
    let beyond = revision.saturating_add(1).saturating_mul(FENCES_PER_REVISION);
    Fence(base.saturating_add(beyond.saturating_sub(1)))
}

/// Encodes a value in the binary form of rows.
pub(super) fn encode(value: &impl Serialize) -> Result<Bytes> {
    postcard::to_stdvec(value).map(Bytes::from).map_err(|error| StoreError::Failed(error.to_string()))
}

/// Decodes a value from a row.
pub(super) fn decode<'a, T: Deserialize<'a>>(entry: &'a Entry) -> Result<T> {
    postcard::from_bytes(&entry.value).map_err(|_| damaged(entry))
}

/// Returns the error for a row that can't be read. The key may have a name of a user, so only its revision
/// is named.
pub(super) fn damaged(entry: &Entry) -> StoreError {
    StoreError::Damaged(format!("a row of revision {} can't be read", entry.revision))
}

/// Encodes a claim.
pub(super) fn encode_claim(claim: &Claim) -> Result<Bytes> {
    encode(&stored::Claim::from(claim))
}

/// Decodes a claim from its row.
pub(super) fn claim(entry: &Entry) -> Result<Claim> {
    decode::<stored::Claim<'_>>(entry).map(Into::into)
}

/// Encodes a lease. The fence of a new one is stored with `base`.
pub(super) fn encode_lease(lease: &Lease, base: u64) -> Result<Bytes> {
    let fence = stored_fence(lease.fence, base);
    encode(&stored::Lease { fence, ..stored::Lease::from(lease) })
}

/// Decodes a lease from its row.
pub(super) fn lease(entry: &Entry) -> Result<Lease> {
    let lease: Lease = decode::<stored::Lease<'_>>(entry)?.into();
    Ok(Lease { fence: read_fence(lease.fence.0, entry.revision), ..lease })
}

/// Encodes a replay. The fence of a new one is stored with `base`.
pub(super) fn encode_replay(replay: &Replay, base: u64) -> Result<Bytes> {
    let fence = stored_fence(replay.fence, base);
    encode(&stored::Replay { fence, ..stored::Replay::from(replay) })
}

/// Decodes a replay from its row.
pub(super) fn replay(entry: &Entry) -> Result<Replay> {
    let replay: Replay = decode::<stored::Replay<'_>>(entry)?.into();
    Ok(Replay { fence: read_fence(replay.fence.0, entry.revision), ..replay })
}

/// Loads rows into a workspace. `found` has them in the order of claims, leases and replays; `None` for an absent one.
pub(super) fn put_into(workspace: &mut Workspace, found: Vec<Option<Entry>>, keys: Keys) -> Result<()> {
    let Keys { claims, leases, replays, .. } = keys;
    let mut found = found.into_iter();
    for key in claims {
        let claim = found.next().flatten().as_ref().map(claim).transpose()?;
        workspace.load(key, claim);
    }
    for id in leases {
        let lease = found.next().flatten().as_ref().map(lease).transpose()?;
        workspace.load(id, lease);
    }
    for key in replays {
        let replay = found.next().flatten().as_ref().map(replay).transpose()?;
        workspace.load(key, replay);
    }
    Ok(())
}

/// The stored form of an outstanding lease's place in its list.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OutstandingPlace {
    updated_at: u64,
    organization: Option<i64>,
    /// The number of claims that the lease holds.
    pub(super) claims: u32,
}

impl OutstandingPlace {
    /// Returns the place of a lease.
    pub(super) fn of(lease: &Lease) -> Self {
        Self {
            updated_at: lease.updated_at.as_micros(),
            organization: lease.organization.map(OrganizationId::get),
            // INVARIANT: an update has at most 2,000 claims.
            claims: u32::try_from(lease.claims().len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns the row of the list of leases for the lease at a position.
    pub(super) fn row(&self, position: LeasePosition) -> LeaseRow {
        let organization = self.organization.and_then(|id| OrganizationId::try_from(id).ok());
        LeaseRow { position, updated_at: Timestamp::from_micros(self.updated_at), organization }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b13_the_fence_of_a_new_lease_follows_from_its_revision() {
        let (first, second) = (Fence::PLACEHOLDER.next(), Fence::PLACEHOLDER.next().next());
        let at = |fence, revision| read_fence(stored_fence(fence, 1_000), revision);
        assert_eq!(at(first, 3), Fence(1_000 + 3 * 4_096 + 1));
        assert!(at(first, 3) < at(second, 3) && at(second, 3) < at(first, 4));
        assert!(at(second, 3) <= newest_fence(1_000, 3) && newest_fence(1_000, 3) < at(first, 4));
    }

    #[test]
    fn b13_a_fence_that_was_given_out_stays() {
        assert_eq!(read_fence(stored_fence(Fence(17), 1_000), 9), Fence(17));
    }
}
