//! Fills a server with claims over the wire contract: a few concurrent clients send large updates.

use anyhow::{Context, Result};
use leasehold_client::Stub;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{BeginUpdateRequest, CommitUpdateRequest};
use tokio::task::JoinSet;

use super::connection::Channel;
use super::load::random_name;
use super::ours::{CELL_ID, metadata, next_id};

/// The number of concurrent clients that fill the server.
const CLIENTS: u64 = 8;

/// Begins and commits `leases` updates, each of which claims `claims_each` random names.
///
/// # Errors
/// The server refuses a begin or commit.
pub(crate) async fn fill(stub: &Stub<Channel>, leases: u64, claims_each: u64) -> Result<()> {
    let share = |client| leases / CLIENTS + u64::from(client < leases % CLIENTS);
    let mut clients: JoinSet<_> = (0..CLIENTS).map(|client| save(stub.clone(), share(client), claims_each)).collect();
    while let Some(saved) = clients.join_next().await {
        saved.context("a client ended early")??;
    }
    Ok(())
}

async fn save(mut stub: Stub<Channel>, leases: u64, claims_each: u64) -> Result<()> {
    for _ in 0..leases {
        let lease = begin(&mut stub, claims_each).await?;
        stub.commit(CommitUpdateRequest { cell_id: CELL_ID, lease_uuid: lease }).await?;
    }
    Ok(())
}

/// Begins an update that claims `claims_each` random names, and leaves its lease outstanding.
/// Returns the lease's id.
///
/// # Errors
/// The server refuses the begin.
pub(crate) async fn begin(
    stub: &mut Stub<Channel>,
    claims_each: u64,
) -> Result<Option<leasehold_proto::gitlab::cells::topology_service::types::v1::Uuid>> {
    let create_records = (0..claims_each).map(|_| metadata(&random_name(), next_id())).collect();
    let request = BeginUpdateRequest { create_records, cell_id: CELL_ID, ..BeginUpdateRequest::default() };
    Ok(stub.begin(request, None).await.context("a begin was refused")?.into_inner().lease_uuid)
}
