//! The list calls: a cell's leases and records, page by page.

use std::time::SystemTime;

use leasehold_core::claim::SourceId;
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use prost_types::{Any, Timestamp};
use tonic::transport::Channel;

use crate::claim::{OutstandingLease, Record};
use crate::client::{CallIdentity, Client};
use crate::convert;
use crate::error::Error;
use crate::stub::Stub;

impl Client {
    /// Returns one page of a cell's outstanding leases, the oldest first.
    ///
    /// # Errors
    /// The cursor is of another cell's list, or the caller may not list the cell's leases; or no
    /// answer came.
    pub async fn list_leases(&self, cell_id: i64, query: &LeaseQuery) -> Result<LeasePage, Error> {
        let message = query.message(cell_id);
        let send = |mut stub: Stub<Channel>| {
            let message = message.clone();
            async move { stub.list_leases(message).await }
        };
        let answer = self.call(CallIdentity::default(), send).await?;
        let server_time = convert::server_time(answer.metadata())?;
        let page = answer.into_inner();
        let leases = page.leases.into_iter().map(convert::outstanding_lease).collect::<Result<_, _>>()?;
        Ok(LeasePage { leases, cursor: page.next.map(Cursor), server_time })
    }

    /// Returns a reader of all outstanding leases of a cell, page by page. It starts at the query's
    /// cursor.
    #[must_use]
    pub fn lease_pages(&self, cell_id: i64, query: LeaseQuery) -> LeasePages {
        LeasePages { client: self.clone(), cell_id, query: Some(query) }
    }

    /// Returns one page of a cell's records whose sources are in one table, in the order of their
    /// source ids.
    ///
    /// # Errors
    /// The caller may not list the cell's records; or no answer came.
    pub async fn list_records(&self, cell_id: i64, query: &RecordQuery) -> Result<RecordPage, Error> {
        let message = query.message(cell_id);
        let send = |mut stub: Stub<Channel>| {
            let message = message.clone();
            async move { stub.list_records(message).await }
        };
        let answer = self.call(CallIdentity::default(), send).await?;
        let server_time = convert::server_time(answer.metadata())?;
        let page = answer.into_inner();
        let records = page.records.into_iter().map(convert::record).collect::<Result<_, _>>()?;
        Ok(RecordPage { records, is_truncated: page.truncated, server_time })
    }

    /// Returns a reader of all records of a cell that the query selects, page by page.
    #[must_use]
    pub fn record_pages(&self, cell_id: i64, query: RecordQuery) -> RecordPages {
        RecordPages { client: self.clone(), cell_id, query: Some(query) }
    }
}

/// Position in a list of leases, from which the next page starts. Its content is opaque to clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor(Any);

/// The selection of leases to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseQuery {
    /// Selects only leases begun at this time or later, by the server's clock; `None` selects all.
    pub created_after: Option<SystemTime>,
    /// Cursor of the previous page; `None` for the first page.
    pub cursor: Option<Cursor>,
    /// The most leases of a page: 100 if not set, at most 1000.
    pub limit: Option<i32>,
}

impl LeaseQuery {
    fn message(&self, cell_id: i64) -> wire::ListLeasesRequest {
        wire::ListLeasesRequest {
            cell_id,
            next: self.cursor.clone().map(|Cursor(next)| next),
            limit: self.limit,
            created_after: self.created_after.map(Timestamp::from),
        }
    }
}

/// One page of a cell's outstanding leases, the oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct LeasePage {
    /// The leases of this page.
    pub leases: Vec<OutstandingLease>,
    /// Cursor of the next page; `None` on the last page.
    pub cursor: Option<Cursor>,
    /// The server's time before it read the leases. The age of a lease is this time minus the time
    /// of the lease's begin (R03).
    pub server_time: SystemTime,
}

/// Reader of all outstanding leases of a cell, page by page. Made by [`Client::lease_pages`].
#[derive(Clone, Debug)]
pub struct LeasePages {
    client: Client,
    cell_id: i64,
    /// The query for the next page; `None` after the last page.
    query: Option<LeaseQuery>,
}

impl LeasePages {
    /// Returns the next page, or `None` after the last one. A failed call may be repeated.
    ///
    /// # Errors
    /// See [`Client::list_leases`].
    pub async fn next(&mut self) -> Result<Option<LeasePage>, Error> {
        let Some(query) = &mut self.query else { return Ok(None) };
        let page = self.client.list_leases(self.cell_id, query).await?;
        query.cursor = page.cursor.clone();
        // The list ends with the first page without a cursor. A page may be empty and still have a
        // next one (B31).
        if page.cursor.is_none() {
            self.query = None;
        }
        Ok(Some(page))
    }
}

/// The selection of records to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordQuery {
    /// Number of the table of the records' sources. A [`SourceType`](crate::SourceType) converts to
    /// this number.
    pub source_type: i32,
    /// Numbers of the bucket types to list; empty means all.
    pub bucket_types: Vec<i32>,
    /// Exclusive lower bound of the source ids; the empty id means no bound.
    pub after: SourceId,
    /// Inclusive upper bound of the source ids; the empty id means no bound.
    pub up_to: SourceId,
}

impl RecordQuery {
    fn message(&self, cell_id: i64) -> wire::ListRecordsRequest {
        wire::ListRecordsRequest {
            cell_id,
            source_type: self.source_type,
            bucket_types: self.bucket_types.clone(),
            source_id_gt: self.after.as_bytes().to_vec(),
            source_id_lte: self.up_to.as_bytes().to_vec(),
            claim_types: Vec::new(),
        }
    }
}

/// One page of a cell's records whose sources are in one table, in the order of their source ids.
/// All records of one source id are on the same page.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordPage {
    /// The records of this page.
    pub records: Vec<Record>,
    /// True if there are more records, with source ids after the last one of this page.
    pub is_truncated: bool,
    /// The server's time before it read the records.
    pub server_time: SystemTime,
}

/// Reader of all records of a query, page by page. Made by [`Client::record_pages`].
#[derive(Clone, Debug)]
pub struct RecordPages {
    client: Client,
    cell_id: i64,
    /// The query for the next page; `None` after the last page.
    query: Option<RecordQuery>,
}

impl RecordPages {
    /// Returns the next page, or `None` after the last one. A failed call may be repeated.
    ///
    /// # Errors
    /// The errors of [`Client::list_records`]. The call also fails if a truncated page ends with no
    /// later source id than the page before.
    pub async fn next(&mut self) -> Result<Option<RecordPage>, Error> {
        let Some(query) = &mut self.query else { return Ok(None) };
        let page = self.client.list_records(self.cell_id, query).await?;
        if page.is_truncated {
            query.after = next_bound(&page, &query.after)?;
        } else {
            self.query = None;
        }
        Ok(Some(page))
    }
}

/// Returns the source id of the page's last record, after which the next page starts. It is an
/// error if this id does not exceed `bound`, because the same page would then be read for ever.
fn next_bound(page: &RecordPage, bound: &SourceId) -> Result<SourceId, Error> {
    let last = page.records.last().and_then(|record| record.claim.source.as_ref()).map(|source| source.id.clone());
    last.filter(|id| id > bound).ok_or(Error::BadAnswer("a truncated page does not get past the page before"))
}
