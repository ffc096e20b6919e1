//! `_native.ClaimsService`: a claims service in memory. Times are microseconds since 1970; leases
//! are UUIDs as text.

use leasehold_bindings::{
    BucketType, Catalogue, ClaimInput, ClaimRecord, ClaimRequest, LeaseId, Outcome, RecordSelection, Service,
    Timestamp, UpdateRequest,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uuid::Uuid;

use crate::calls::ClaimArgument;
use crate::session::Session;

#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct ClaimsService(Session<Service>);

/// A lease in Python: its id, its organization, its creation time, and the time of its last change.
type LeaseMembers = (String, Option<i64>, u64, u64);

/// A record in Python, a `leasehold.Record`: uuid; the claim's type, value, subject and source;
/// cell, status, lease, times.
#[derive(IntoPyObject)]
pub(crate) struct RecordMembers<'py>(
    String,
    (i32, String, (i32, i64), (i32, Bound<'py, PyBytes>)),
    i64,
    &'static str,
    Option<String>,
    u64,
    u64,
);

#[pymethods]
impl ClaimsService {
    #[new]
    fn new(cells: Vec<i64>) -> Self {
        Self(Session::new(Service::new(cells, Catalogue::default())))
    }

    #[expect(clippy::too_many_arguments, reason = "a Python method takes values, not a struct")]
    fn begin(
        &self,
        py: Python<'_>,
        cell: i64,
        creates: Vec<ClaimArgument>,
        destroys: Vec<ClaimArgument>,
        organization_id: i64,
        idempotency_key: Option<&str>,
        lease: u128,
        now: u64,
    ) -> PyResult<(String, u64, bool)> {
        let requests =
            |claims: Vec<ClaimArgument>| claims.into_iter().map(ClaimInput::from).map(ClaimRequest::from).collect();
        let update = UpdateRequest { creates: requests(creates), destroys: requests(destroys) };
        let (lease, now) = (LeaseId(Uuid::from_u128(lease)), Timestamp::from_micros(now));
        let begun =
            self.0.work(py, |service| service.begin(cell, update, organization_id, idempotency_key, lease, now))?;
        Ok((begun.lease.to_string(), begun.fence.0, begun.replayed))
    }

    fn settle(&self, py: Python<'_>, cell: i64, lease: &str, commit: bool, now: u64) -> PyResult<bool> {
        let outcome = if commit { Outcome::Committed } else { Outcome::RolledBack };
        self.0.work(py, |service| service.settle(cell, lease, outcome, Timestamp::from_micros(now)))
    }

    fn record<'py>(&self, py: Python<'py>, bucket_type: i32, value: &str) -> PyResult<RecordMembers<'py>> {
        Ok(record_members(py, &self.0.work(py, |service| service.record(bucket_type, value))?))
    }

    fn leases(
        &self,
        py: Python<'_>,
        cell: i64,
        limit: Option<i32>,
        created_after: Option<u64>,
        cursor: Option<&str>,
    ) -> PyResult<(Vec<LeaseMembers>, Option<String>)> {
        let created_after = created_after.map(Timestamp::from_micros);
        let page = self.0.work(py, |service| service.leases(cell, limit, created_after, cursor))?;
        let leases = page.leases.iter().map(|lease| {
            let organization = lease.organization.map(i64::from);
            (lease.lease.to_string(), organization, lease.created_at.as_micros(), lease.updated_at.as_micros())
        });
        Ok((leases.collect(), page.cursor))
    }

    fn records<'py>(
        &self,
        py: Python<'py>,
        cell: i64,
        source_type: i32,
        bucket_types: Vec<i32>,
        after: Vec<u8>,
        upto: Vec<u8>,
    ) -> PyResult<(Vec<RecordMembers<'py>>, bool)> {
        let query = RecordSelection { cell, source_type, bucket_types, after, upto };
        let page = self.0.work(py, |service| service.records(&query))?;
        Ok((page.records.iter().map(|record| record_members(py, record)).collect(), page.truncated))
    }

    fn forget(&self, py: Python<'_>, settled_before: u64) -> PyResult<usize> {
        self.0.work(py, |service| service.forget(Timestamp::from_micros(settled_before)))
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.0.work(py, |service| service.check())
    }
}

fn record_members<'py>(py: Python<'py>, record: &ClaimRecord) -> RecordMembers<'py> {
    let BucketType(bucket_type) = record.bucket_type;
    let subject = (record.subject.subject_type, record.subject.id);
    let source = (record.source.source_type.0, PyBytes::new(py, record.source.id.as_bytes()));
    RecordMembers(
        record.uuid.to_string(),
        (bucket_type, record.value.clone(), subject, source),
        record.cell,
        record.status.name(),
        record.lease.map(|lease| lease.to_string()),
        record.created_at.as_micros(),
        record.updated_at.as_micros(),
    )
}
