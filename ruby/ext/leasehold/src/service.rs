//! `Leasehold::Native::Service`: a claims service in memory, for an application's tests. Times are
//! microseconds since 1970; leases are UUIDs as text.

use std::sync::Mutex;

use leasehold_bindings::{
    BucketType, Catalogue, ClaimRecord, ClaimRequest, DetailedError, LeaseId, Outcome, RecordSelection, Service,
    Timestamp, UpdateRequest,
};
use magnus::{Error, IntoValue, RArray, RModule, RString, Ruby, Value, function, method, prelude::*};
use uuid::Uuid;

use crate::columns;
use crate::errors::{self, catch_panic};
use crate::native::claims;

#[magnus::wrap(class = "Leasehold::Native::Service", free_immediately, size)]
struct ClaimsService(Mutex<Service>);

pub(crate) fn init(ruby: &Ruby, leasehold: RModule) -> Result<(), Error> {
    let native: RModule = leasehold.const_get("Native")?;
    let class = native.define_class("Service", ruby.class_object())?;
    class.define_singleton_method("new", function!(ClaimsService::new, 1))?;
    class.define_method("copy", method!(ClaimsService::copy, 0))?;
    class.define_method("begin", method!(ClaimsService::begin, 7))?;
    class.define_method("settle", method!(ClaimsService::settle, 4))?;
    class.define_method("record", method!(ClaimsService::record, 2))?;
    class.define_method("leases", method!(ClaimsService::leases, 4))?;
    class.define_method("records", method!(ClaimsService::records, 5))?;
    Ok(())
}

impl ClaimsService {
    /// Creates a service without claims for these cells.
    fn new(ruby: &Ruby, cells: Vec<i64>) -> Result<Self, Error> {
        catch_panic(ruby, || Ok(Self(Mutex::new(Service::new(cells, Catalogue::default())))))
    }

    /// Returns another service with the same claims and leases.
    fn copy(ruby: &Ruby, service: &Self) -> Result<Self, Error> {
        service.with(ruby, |service| Ok(Self(Mutex::new(service.clone()))))
    }

    /// Begins an update for an organization, 0 for none, under `lease`, a fresh UUID as two integers.
    /// Returns the lease and its fence, and true if an earlier call with the same idempotency key has
    /// begun the update.
    #[expect(clippy::too_many_arguments, reason = "a Ruby method takes values, not a struct")]
    fn begin(
        ruby: &Ruby,
        service: &Self,
        cell: i64,
        creates: RArray,
        destroys: RArray,
        organization_id: i64,
        key: Option<String>,
        lease: (u64, u64),
        now: u64,
    ) -> Result<(String, u64, bool), Error> {
        let requests =
            |list| -> Result<Vec<_>, Error> { Ok(claims(ruby, list)?.into_iter().map(ClaimRequest::from).collect()) };
        let update =
            catch_panic(ruby, || Ok(UpdateRequest { creates: requests(creates)?, destroys: requests(destroys)? }))?;
        let lease = LeaseId(Uuid::from_u64_pair(lease.0, lease.1));
        let now = Timestamp::from_micros(now);
        let begun =
            service.call(ruby, |service| service.begin(cell, update, organization_id, key.as_deref(), lease, now))?;
        Ok((begun.lease.to_string(), begun.fence.0, begun.replayed))
    }

    /// Settles the lease. Returns false if the lease already had that outcome.
    fn settle(ruby: &Ruby, service: &Self, cell: i64, lease: String, commit: bool, now: u64) -> Result<bool, Error> {
        let outcome = if commit { Outcome::Committed } else { Outcome::RolledBack };
        service.call(ruby, |service| service.settle(cell, &lease, outcome, Timestamp::from_micros(now)))
    }

    fn record(ruby: &Ruby, service: &Self, bucket_type: i32, value: String) -> Result<Value, Error> {
        let record = service.call(ruby, |service| service.record(bucket_type, &value))?;
        Ok(members(ruby, &record))
    }

    /// Returns a page of leases, each with its times, and the cursor of the next page.
    fn leases(
        ruby: &Ruby,
        service: &Self,
        cell: i64,
        limit: Option<i32>,
        created_after: Option<u64>,
        cursor: Option<String>,
    ) -> Result<(RArray, Option<String>), Error> {
        let created_after = created_after.map(Timestamp::from_micros);
        let page = service.call(ruby, |service| service.leases(cell, limit, created_after, cursor.as_deref()))?;
        let leases = page
            .leases
            .iter()
            .map(|lease| (lease.lease.to_string(), lease.created_at.as_micros(), lease.updated_at.as_micros()));
        Ok((ruby.ary_from_iter(leases), page.cursor))
    }

    /// Returns a page of records, and true if more remain.
    fn records(
        ruby: &Ruby,
        service: &Self,
        cell: i64,
        source_type: i32,
        bucket_types: Vec<i32>,
        after: RString,
        upto: RString,
    ) -> Result<(RArray, bool), Error> {
        let (after, upto) = (columns::bytes(after), columns::bytes(upto));
        let selection = RecordSelection { cell, source_type, bucket_types, after, upto };
        let page = service.call(ruby, |service| service.records(&selection))?;
        Ok((ruby.ary_from_iter(page.records.iter().map(|record| members(ruby, record))), page.truncated))
    }

    fn call<T>(&self, ruby: &Ruby, body: impl FnOnce(&mut Service) -> Result<T, DetailedError>) -> Result<T, Error> {
        self.with(ruby, |service| body(service).map_err(|error| errors::engine_error(ruby, &error)))
    }

    /// Runs the body under the lock. A call keeps Ruby's lock until it ends, so another thread never
    /// waits for this one.
    fn with<T>(&self, ruby: &Ruby, body: impl FnOnce(&mut Service) -> Result<T, Error>) -> Result<T, Error> {
        catch_panic(ruby, || match self.0.try_lock() {
            Ok(mut service) => body(&mut service),
            Err(_) => Err(errors::session_in_use(ruby)),
        })
    }
}

/// Returns the members of a record: uuid; bucket type, value, subject type and id, source type and
/// id; cell, status, lease; the times of its begin and of its last change.
fn members(ruby: &Ruby, record: &ClaimRecord) -> Value {
    let BucketType(bucket_type) = record.bucket_type;
    let source_id = ruby.str_from_slice(record.source.id.as_bytes());
    let claim = (
        bucket_type,
        record.value.as_str(),
        record.subject.subject_type,
        record.subject.id,
        record.source.source_type.0,
        source_id,
    );
    (
        record.uuid.to_string(),
        claim,
        record.cell,
        record.status.name(),
        record.lease.map(|lease| lease.to_string()),
        record.created_at.as_micros(),
        record.updated_at.as_micros(),
    )
        .into_value_with(ruby)
}
