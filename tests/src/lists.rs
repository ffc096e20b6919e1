//! Lists of records that are slow, and whose callers give up.

use std::time::Duration;

use anyhow::Result;
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{ListRecordsRequest, bucket};
use tokio::task::JoinSet;
use tonic::Request;

use crate::server::Server;

const USERS: i32 = 1;

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
