//! Lists of leases and their ages, and lists of records that are slow, and whose callers give up.

use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_client::server_time_micros;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{ListLeasesResponse, ListRecordsRequest, bucket};
use tokio::task::JoinSet;
use tonic::{Request, Response};

use crate::server::Server;

const USERS: i32 = 1;

/// Returns the ages of listed leases in seconds, by the time that the server reports (R03).
///
/// # Errors
/// The list lacks a time.
pub fn ages(listed: &Response<ListLeasesResponse>) -> Result<Vec<f64>> {
    let now = server_time_micros(listed.metadata()).context("no time of the server")? as f64 / 1e6;
    let age = |created_at: &prost_types::Timestamp| now - created_at.seconds as f64 - f64::from(created_at.nanos) / 1e9;
    let leases = listed.get_ref().leases.iter();
    leases.map(|lease| Ok(age(lease.created_at.as_ref().context("a lease without a time")?))).collect()
}

/// Returns a list that looks at every claim of cell 1 on users, and finds none.
#[must_use]
pub fn futile_list() -> ListRecordsRequest {
    let bucket_types = vec![bucket::Type::SnippetIds.into()];
    ListRecordsRequest { cell_id: 1, source_type: USERS, bucket_types, ..ListRecordsRequest::default() }
}

/// Starts many lists whose callers give up soon, and waits until all have.
///
/// # Errors
/// The server can't be reached.
pub async fn abandon_lists(server: &Server) -> Result<()> {
    let mut calls = JoinSet::new();
    for _ in 0..32 {
        let mut claims = server.claims(None).await?;
        calls.spawn(async move {
            for _ in 0..4 {
                let mut request = Request::new(futile_list());
                request.set_timeout(Duration::from_millis(20));
                let _ = claims.list_records(request).await;
            }
        });
    }
    while calls.join_next().await.is_some() {}
    Ok(())
}
