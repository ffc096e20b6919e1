//! Makes the salvaged rows of leases and claims fit together, so that an import accepts them.
//!
//! If an entry of the journal is lost, the lease that it settled is outstanding again, but rows of
//! later entries may show that it has ended. Then the lease is left out. Whether it was committed is
//! not known, so its claims stay with their owner: a name must not be given out twice. The cells'
//! `verify` gives up what no row uses.

use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::{Claim, ClaimState};
use leasehold_core::lease::{Lease, LeaseId};
use rustc_hash::FxHashMap;

use super::Result;
use super::outstanding::Outstanding;
use super::rows::resting;
use super::salvage::Salvage;

/// A row of the keyspace `outstanding`.
pub(super) struct HeldRow {
    pub(super) id: LeaseId,
    pub(super) lease: Lease,
    pub(super) claims: Vec<(BucketKey, Claim)>,
}

/// The outstanding leases that no other row contradicts, and what the others leave.
#[derive(Default)]
pub(super) struct Agreed {
    pub(super) held: Outstanding,
    /// Claims that stay with the owner of a lease that has ended.
    pub(super) kept: FxHashMap<BucketKey, Claim>,
    /// The leases that have ended.
    pub(super) ended: Vec<LeaseId>,
}

/// Sorts out the leases that newer rows contradict. The newest lease decides first, because its
/// begin shows that every older lease of its claims had ended.
///
/// # Errors
/// A row of another keyspace can't be read.
pub(super) fn agree(mut rows: Vec<HeldRow>, others: &Salvage<'_>) -> Result<Agreed> {
    let mut agreed = Agreed::default();
    rows.sort_by_key(|row| std::cmp::Reverse(row.lease.fence));
    for row in rows {
        if has_ended(&row, &agreed.held, others)? {
            agreed.ended.push(row.id);
            agreed.keep_claims(row, others)?;
        } else {
            agreed.held.put_lease(row.id, Some(&row.lease));
            row.claims.iter().for_each(|(key, claim)| agreed.held.put_claim(key, Some(claim)));
        }
    }
    Ok(agreed)
}

/// True if a newer lease holds a claim of the lease, or a claim or the lease itself has a newer row
/// in another keyspace.
fn has_ended(row: &HeldRow, held: &Outstanding, others: &Salvage<'_>) -> Result<bool> {
    if row.claims.iter().any(|(key, _)| held.claim(key).is_some()) || others.is_settled(row.id)? {
        return Ok(true);
    }
    for (key, claim) in &row.claims {
        let Some((owner, record)) = others.at_rest(key)? else { continue };
        let is_as_before = resting(claim) == Some((owner, &record));
        if !is_as_before && record.updated_at >= row.lease.created_at {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Agreed {
    /// Keeps the claims of a lease that has ended, if no newer row has their names.
    fn keep_claims(&mut self, row: HeldRow, others: &Salvage<'_>) -> Result<()> {
        for (key, claim) in row.claims {
            let is_free = self.held.claim(&key).is_none() && !self.kept.contains_key(&key);
            if is_free && others.at_rest(&key)?.is_none() {
                let state = ClaimState::Active(claim.record().clone());
                self.kept.insert(key, Claim { owner: claim.owner, state });
            }
        }
        Ok(())
    }
}
