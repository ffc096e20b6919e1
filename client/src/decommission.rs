//! The data of a decommissioned cell: counted, and dropped in steps (B26).

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::rejection::Reason;
use leasehold_proto::leasehold::v1::ListTablesRequest;
use tonic::transport::Channel;

use crate::claim::Claim;
use crate::client::{CallIdentity, Client};
use crate::error::Error;
use crate::page::{LeaseQuery, RecordQuery};
use crate::refusal::RefusalKind;
use crate::stub::Stub;

/// The most claims that one update gives up.
const STEP: usize = 1_000;
/// The number of successive passes that drop nothing after which the call fails, since data is
/// still left.
const FRUITLESS_PASSES: u32 = 3;

/// An amount of a cell's data: all that the cell has, or all that a call has dropped so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellData {
    /// The number of outstanding leases.
    pub leases: u64,
    /// The number of claims by the number of their table.
    pub claims: BTreeMap<i32, u64>,
    /// The time since the newest outstanding lease was begun, by the server's clock; `None` if no
    /// lease is outstanding.
    pub newest_lease_age: Option<Duration>,
}

impl CellData {
    /// Returns true if the cell has neither leases nor claims.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases == 0 && self.claims.is_empty()
    }

    fn count(&mut self, table: i32, claims: usize) {
        if claims > 0 {
            *self.claims.entry(table).or_default() += claims as u64;
        }
    }
}

/// The failure to drop the data of a cell. The part that was dropped stays dropped, and a repeated
/// call goes on from there.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DropError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Error),
    /// Claims are left that can't be dropped: the cell is still running and makes new ones, or they
    /// are damaged.
    #[error("claims are left that can't be dropped: stop the cell, then look for damaged rows in the server's log")]
    ClaimsLeft,
}

impl Client {
    /// Returns the numbers of the tables from which a cell has claims, ascending.
    ///
    /// # Errors
    /// The caller is no administrator, or the server does not know the cell; or no answer came.
    pub async fn tables(&self, cell_id: i64) -> Result<Vec<i32>, Error> {
        let send = |mut stub: Stub<Channel>| async move { stub.list_tables(ListTablesRequest { cell_id }).await };
        Ok(self.call(CallIdentity::default(), send).await?.into_inner().source_types)
    }

    /// Counts the leases and claims of a cell, and passes the sums so far to `progress` after each
    /// page. A claim whose source a lease changes counts for both tables.
    ///
    /// # Errors
    /// See [`tables`](Self::tables).
    pub async fn count_cell_data(&self, cell_id: i64, mut progress: impl FnMut(&CellData)) -> Result<CellData, Error> {
        let mut data = CellData::default();
        let mut leases = self.lease_pages(cell_id, LeaseQuery { limit: Some(1000), ..LeaseQuery::default() });
        while let Some(page) = leases.next().await? {
            data.leases += page.leases.len() as u64;
            let newest = page.leases.iter().map(|lease| lease.created_at).max();
            let age = newest.map(|newest| page.server_time.duration_since(newest).unwrap_or_default());
            data.newest_lease_age = age.or(data.newest_lease_age);
            progress(&data);
        }
        for table in self.tables(cell_id).await? {
            let mut records = self.record_pages(cell_id, RecordQuery { source_type: table, ..RecordQuery::default() });
            while let Some(page) = records.next().await? {
                data.count(table, page.records.len());
                progress(&data);
            }
        }
        Ok(data)
    }

    /// Drops all data of a decommissioned cell: rolls its leases back, and gives up its claims.
    /// Passes the sums so far to `progress` after each step. Each step is an ordinary update, which
    /// the server writes to its audit trail. The call may be repeated at any time.
    ///
    /// The cell must have stopped: its database still has the rows whose names this call gives up.
    ///
    /// # Errors
    /// A call failed, or claims are left that can't be dropped.
    pub async fn drop_cell_data(
        &self,
        cell_id: i64,
        mut progress: impl FnMut(&CellData),
    ) -> Result<CellData, DropError> {
        let mut dropped = CellData::default();
        let mut fruitless = 0;
        while fruitless < FRUITLESS_PASSES {
            let before = dropped.clone();
            self.roll_back_all(cell_id, &mut dropped, &mut progress).await?;
            let tables = self.tables(cell_id).await?;
            if tables.is_empty() {
                return Ok(dropped);
            }
            for table in tables {
                self.drop_table(cell_id, table, &mut dropped, &mut progress).await?;
            }
            fruitless = if dropped == before { fruitless + 1 } else { 0 };
        }
        Err(DropError::ClaimsLeft)
    }

    async fn roll_back_all(
        &self,
        cell_id: i64,
        dropped: &mut CellData,
        progress: &mut impl FnMut(&CellData),
    ) -> Result<(), Error> {
        let mut leases = self.lease_pages(cell_id, LeaseQuery { limit: Some(1000), ..LeaseQuery::default() });
        while let Some(page) = leases.next().await? {
            for lease in page.leases {
                match self.rollback(cell_id, lease.uuid).await {
                    Ok(()) => dropped.leases += 1,
                    // The cell has settled the lease meanwhile.
                    Err(error) if is(&error, &[RefusalKind::Committed, RefusalKind::NotFound]) => {}
                    Err(error) => return Err(error),
                }
            }
            progress(dropped);
        }
        Ok(())
    }

    /// Gives up all claims of one table that are at rest.
    async fn drop_table(
        &self,
        cell_id: i64,
        table: i32,
        dropped: &mut CellData,
        progress: &mut impl FnMut(&CellData),
    ) -> Result<(), Error> {
        let mut records = self.record_pages(cell_id, RecordQuery { source_type: table, ..RecordQuery::default() });
        let mut size = STEP;
        while let Some(page) = records.next().await? {
            let resting = page.records.into_iter().filter(|record| record.lease_uuid.is_none());
            let claims: Vec<_> = resting.map(|record| record.claim).collect();
            let mut rest = claims.as_slice();
            while !rest.is_empty() {
                let (step, later) = rest.split_at(size.min(rest.len()));
                match self.give_up(cell_id, step).await {
                    Ok(claims) => dropped.count(table, claims),
                    // The server's limits may allow fewer claims in one update.
                    Err(error) if step.len() > 1 && is_over_limit(&error) => {
                        size = step.len() / 2;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                rest = later;
                progress(dropped);
            }
        }
        Ok(())
    }

    /// Gives up claims in one update, and returns their number: 0 if the cell has changed one of
    /// them since they were listed.
    async fn give_up(&self, cell_id: i64, claims: &[Claim]) -> Result<usize, Error> {
        let lease = match self.update(cell_id).destroys(claims.iter().cloned()).begin().await {
            Ok(lease) => lease,
            Err(error) if is(&error, &[RefusalKind::Busy, RefusalKind::Changed, RefusalKind::NotFound]) => {
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        self.commit(cell_id, lease.uuid).await?;
        Ok(claims.len())
    }
}

fn is_over_limit(error: &Error) -> bool {
    matches!(error, Error::Refused(refusal) if refusal.engine_reason() == Some(Reason::LimitExceeded))
}

fn is(error: &Error, kinds: &[RefusalKind]) -> bool {
    matches!(error, Error::Refused(refusal) if kinds.contains(&refusal.kind()))
}
