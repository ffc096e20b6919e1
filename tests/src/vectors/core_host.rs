//! A host of golden vectors that runs the engine on a memory store. Each step advances its clock by
//! a second.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use leasehold_core::batch::UpdateRequest;
use leasehold_core::bucket::BucketType;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Claim, ClaimState, SourceId, SourceType};
use leasehold_core::invariant;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::memory::MemoryStore;
use leasehold_core::organization::OrganizationId;
use leasehold_core::query::{LeasePosition, LeaseQuery, LeaseRow, RecordQuery};
use leasehold_core::rejection::{Reason, Rejection};
use leasehold_core::rules::Rules;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::transaction::Transaction;
use leasehold_core::update::{Forget, begin, forget, settle};
use uuid::Uuid;

use super::host::{BegunLease, BucketName, Host, HostRefusal, HostResult, ObservedRecord, RecordsQuery, Since};

const TICK_MICROS: u64 = 1_000_000;

/// The engine on a memory store, as a host that golden vectors are played on.
#[derive(Debug)]
pub struct CoreHost {
    rules: Rules,
    store: MemoryStore,
    now_micros: u64,
    minted: u128,
}

impl Default for CoreHost {
    fn default() -> Self {
        let rules = Rules { cells: (1..=3).map(CellId).collect(), ..Rules::default() };
        Self { rules, store: MemoryStore::default(), now_micros: TICK_MICROS, minted: 0 }
    }
}

impl CoreHost {
    fn tick(&mut self) -> Timestamp {
        self.now_micros += TICK_MICROS;
        Timestamp::from_micros(self.now_micros)
    }

    fn mint(&mut self) -> LeaseId {
        self.minted += 1;
        // The multiplication scatters the lease ids. A real host's ids are not in the order of the
        // begins either.
        LeaseId(Uuid::from_u128(self.minted.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)))
    }

    fn checked<T>(&self, answer: T) -> Result<T> {
        invariant::check(&self.store.state()?)?;
        Ok(answer)
    }

    fn claim(&self, bucket: &BucketName) -> Result<Result<Option<Claim>, Rejection>> {
        let checked = self.rules.catalogue.bucket(bucket.bucket_type, bucket.value.clone());
        match checked {
            Ok(bucket) => Ok(Ok(Store::claim(&self.store, &bucket.key)?)),
            Err(error) => Ok(Err(Rejection::whole(error.reason, error.detail))),
        }
    }

    fn lease_query(
        &self,
        cell: i64,
        limit: Option<i32>,
        since: Option<Since>,
        after: Option<&LeasePosition>,
    ) -> Result<Result<LeaseQuery, Rejection>> {
        let created_after = match since {
            Some(Since::Future) => Some(Timestamp::from_micros(self.now_micros + 3600 * TICK_MICROS)),
            Some(Since::Lease(lease)) => {
                let lease = self.store.lease(LeaseId(lease))?.context("the lease is unknown")?;
                Some(lease.created_at)
            }
            None => None,
        };
        let cell = CellId(cell);
        let known = self.rules.check_cell(cell);
        Ok(known.and_then(|()| LeaseQuery::parse(cell, limit, created_after, after.copied())))
    }

    fn record_query(&self, query: &RecordsQuery) -> Result<RecordQuery, Rejection> {
        let cell = CellId(query.cell);
        self.rules.check_cell(cell)?;
        RecordQuery::parse(
            cell,
            SourceType(query.source_type),
            query.bucket_types.iter().copied().map(BucketType).collect::<BTreeSet<_>>(),
            SourceId::from_bytes(&query.source_id_gt),
            SourceId::from_bytes(&query.source_id_lte),
        )
    }
}

impl Host for CoreHost {
    type Cursor = LeasePosition;

    const NAME: &'static str = "core";

    fn begin(
        &mut self,
        cell: i64,
        update: UpdateRequest,
        organization: i64,
        key: Option<&str>,
    ) -> HostResult<BegunLease> {
        let (lease, now) = (self.mint(), self.tick());
        let command = OrganizationId::parse(organization).and_then(|organization| {
            Ok(self.rules.begin(CellId(cell), update, key, lease)?.for_organization(organization))
        });
        let command = match command {
            Ok(command) => command,
            Err(rejection) => return Ok(Err(refusal(&rejection))),
        };
        let begun = begin(&mut self.store, &command, now)?;
        let begun = begun.map(|begun| BegunLease { lease: begun.lease.0, fence: begun.fence.0 });
        self.checked(begun.map_err(|rejection| refusal(&rejection)))
    }

    fn settle(&mut self, cell: i64, lease: &str, outcome: Outcome) -> HostResult<()> {
        let now = self.tick();
        let command = match self.rules.settle(CellId(cell), lease, outcome) {
            Ok(command) => command,
            Err(rejection) => return Ok(Err(refusal(&rejection))),
        };
        let settled = settle(&mut self.store, &command, now)?;
        self.checked(settled.map(|_| ()).map_err(|rejection| refusal(&rejection)))
    }

    fn record(&mut self, bucket: &BucketName) -> HostResult<ObservedRecord> {
        let claim = self.claim(bucket)?;
        let found = claim.map_err(|rejection| refusal(&rejection)).and_then(|claim| claim.ok_or_else(not_found));
        Ok(found.map(|claim| observed_record(bucket.bucket_type, &claim)))
    }

    fn classify(&mut self, buckets: &[BucketName]) -> HostResult<(i64, BucketName)> {
        for bucket in buckets {
            match self.claim(bucket)? {
                Ok(Some(claim)) => return Ok(Ok((claim.owner.0, bucket.clone()))),
                Ok(None) => {}
                Err(rejection) => return Ok(Err(refusal(&rejection))),
            }
        }
        Ok(Err(not_found()))
    }

    fn leases(
        &mut self,
        cell: i64,
        limit: Option<i32>,
        since: Option<Since>,
        after: Option<&LeasePosition>,
    ) -> HostResult<(Vec<Uuid>, Option<LeasePosition>)> {
        let query = match self.lease_query(cell, limit, since, after)? {
            Ok(query) => query,
            Err(rejection) => return Ok(Err(refusal(&rejection))),
        };
        let page = query.page(self.store.leases(&query.scan())?);
        Ok(Ok((page.leases.iter().map(|row| row.position.lease.0).collect(), page.next)))
    }

    fn outstanding(&mut self, cell: i64) -> HostResult<Vec<(Uuid, i64)>> {
        let query = match self.lease_query(cell, None, None, None)? {
            Ok(query) => query,
            Err(rejection) => return Ok(Err(refusal(&rejection))),
        };
        let page = query.page(self.store.leases(&query.scan())?);
        let lease = |row: &LeaseRow| (row.position.lease.0, row.organization.map_or(0, i64::from));
        Ok(Ok(page.leases.iter().map(lease).collect()))
    }

    fn records(&mut self, query: &RecordsQuery) -> HostResult<(Vec<ObservedRecord>, bool)> {
        let query = match self.record_query(query) {
            Ok(query) => query,
            Err(rejection) => return Ok(Err(refusal(&rejection))),
        };
        let mut list = query.list();
        loop {
            match list.add(self.store.records(list.scan())?) {
                Ok(None) => {}
                Ok(Some(page)) => {
                    let records =
                        page.records.iter().map(|row| observed_record(row.key.bucket_type, &row.claim)).collect();
                    return Ok(Ok((records, page.truncated)));
                }
                Err(rejection) => return Ok(Err(refusal(&rejection))),
            }
        }
    }

    fn restart(&mut self) -> Result<()> {
        // A restart does nothing here, because the memory store has no process and no cache.
        Ok(())
    }

    fn pass(&mut self, seconds: u64) -> Result<()> {
        self.now_micros += seconds * 1_000_000;
        Ok(())
    }

    fn forget(&mut self) -> Result<usize> {
        let settled_before = self.tick();
        let settled = self.store.settled(settled_before, usize::MAX)?;
        for lease in &settled {
            let forgotten = forget(&mut self.store, &Forget { lease: *lease, settled_before })?;
            ensure!(forgotten, "the settled lease {lease} cannot be forgotten");
        }
        self.checked(settled.len())
    }
}

fn refusal(rejection: &Rejection) -> HostRefusal {
    let offences = rejection.offences().iter().filter_map(|offence| {
        let code = offence.reason.code().to_owned();
        Some((offence.place?, offence.bucket_type?, code))
    });
    HostRefusal {
        reason: rejection.reason().code().to_owned(),
        retry: rejection.retry_after_micros().is_some(),
        offences: offences.collect(),
        message: rejection.to_string(),
    }
}

fn not_found() -> HostRefusal {
    refusal(&Rejection::whole(Reason::ClaimNotFound, leasehold_core::rejection::Detail::None))
}

fn observed_record(bucket_type: BucketType, claim: &Claim) -> ObservedRecord {
    let record = claim.record();
    let status = match claim.state {
        ClaimState::Active(_) => "ACTIVE",
        ClaimState::Creating(..) | ClaimState::Replacing(..) => "LEASE_CREATING",
        ClaimState::Destroying(..) => "LEASE_DESTROYING",
    };
    ObservedRecord {
        bucket_type,
        spelling: record.spelling.clone(),
        cell: claim.owner.0,
        status,
        subject: record.subject,
        source: record.source.clone(),
        user_data: record.user_data.as_deref().cloned(),
        lease: claim.hold().map(|hold| hold.lease.0),
    }
}
