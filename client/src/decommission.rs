//! The data of a decommissioned cell: counted, and dropped in steps (B26).

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::rejection::Reason;
use leasehold_proto::leasehold::v1::{DropClaimsRequest, DropClaimsResponse, ListTablesRequest};
use tonic::transport::Channel;

use crate::client::{CallIdentity, Client};
use crate::error::Error;
use crate::page::LeaseQuery;
use crate::refusal::RefusalKind;
use crate::stub::Stub;

/// The most claims that one update gives up.
const STEP: i32 = 1_000;
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

    fn count(&mut self, table: i32, claims: i64) {
        if claims > 0 {
            *self.claims.entry(table).or_default() += claims.unsigned_abs();
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
            let mut request =
                DropClaimsRequest { cell_id, source_type: table, limit: STEP, after: None, dry_run: true };
            loop {
                let answer = self.drop_claims(request.clone()).await?;
                data.count(table, answer.claims);
                progress(&data);
                let Some(next) = answer.next else { break };
                request.after = Some(next);
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

    /// Gives up all claims of one table that are at rest. If a step is over a limit of the server, or
    /// the server stays overloaded, the next steps are smaller.
    async fn drop_table(
        &self,
        cell_id: i64,
        table: i32,
        dropped: &mut CellData,
        progress: &mut impl FnMut(&CellData),
    ) -> Result<(), Error> {
        let (mut after, mut limit) = (None, STEP);
        loop {
            let request =
                DropClaimsRequest { cell_id, source_type: table, limit, after: after.clone(), dry_run: false };
            match self.drop_claims(request).await {
                Ok(answer) => {
                    dropped.count(table, answer.claims);
                    progress(dropped);
                    if answer.next.is_none() {
                        return Ok(());
                    }
                    after = answer.next;
                }
                Err(error) if limit > 1 && (is_over_limit(&error) || is(&error, &[RefusalKind::Overloaded])) => {
                    limit /= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts or drops the next claims of one table.
    async fn drop_claims(&self, request: DropClaimsRequest) -> Result<DropClaimsResponse, Error> {
        let send = |mut stub: Stub<Channel>| {
            let request = request.clone();
            async move { stub.drop_claims(request).await }
        };
        Ok(self.call(CallIdentity::default(), send).await?.into_inner())
    }
}

fn is_over_limit(error: &Error) -> bool {
    matches!(error, Error::Refused(refusal) if refusal.engine_reason() == Some(Reason::LimitExceeded))
}

fn is(error: &Error, kinds: &[RefusalKind]) -> bool {
    matches!(error, Error::Refused(refusal) if kinds.contains(&refusal.kind()))
}
