//! The names that there are to claim, and how rows and names look to the engine.

use std::sync::Arc;

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::catalogue::{BucketRule, Catalogue, Form};
use leasehold_core::claim::{CellId, Source, SourceId, SourceType, Subject};
use leasehold_core::lease::LeaseId;
use leasehold_core::rules::Rules;
use uuid::Uuid;

use crate::database::Write;

/// The wire's `USERNAMES`.
pub const BUCKET_TYPE: BucketType = BucketType(4);
/// The wire's `RAILS_TABLE_USERS`.
pub const TABLE: SourceType = SourceType(1);
/// The wire's `USER`.
const SUBJECT_TYPE: i32 = 4;

const PEOPLE: [&str; 8] = ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"];

/// Leases are numbered from 1; this is what their ids look like beside the number.
const LEASE: u128 = 0x01a2_0000_0000_7000_8000_0000_0000_0000;

/// The id of the lease with a number.
pub fn lease_id(number: u32) -> LeaseId {
    LeaseId(Uuid::from_u128(LEASE | u128::from(number)))
}

/// The number of a lease.
pub fn lease_number(lease: LeaseId) -> u32 {
    (lease.0.as_u128() & u128::from(u32::MAX)) as u32
}

/// A row's primary key as the engine has it.
pub fn source_id(row: u32) -> SourceId {
    SourceId::from(u64::from(row))
}

/// The row that a primary key is of.
pub fn row_of(id: &SourceId) -> Option<u32> {
    let bytes = <[u8; 8]>::try_from(id.as_bytes()).ok()?;
    u32::try_from(u64::from_be_bytes(bytes)).ok()
}

/// The names by number, and what the service is set up with.
#[derive(Debug)]
pub struct Names {
    keys: Vec<BucketKey>,
    /// What the service goes by.
    pub rules: Rules,
}

impl Names {
    /// So many names, and so many cells.
    pub fn new(names: u8, cells: u8) -> Self {
        let rule = BucketRule { number: BUCKET_TYPE, name: "USERNAMES".into(), form: Form::Word, fold_case: true };
        let spelling = |number: u8| match PEOPLE.get(usize::from(number)) {
            Some(person) => Arc::from(*person),
            None => Arc::from(format!("user{number}")),
        };
        let key = |number| BucketKey { bucket_type: BUCKET_TYPE, canonical: spelling(number) };
        let mut rules = Rules { catalogue: Catalogue::new([rule]), ..Rules::default() };
        rules.cells.extend((1..=cells).map(|cell| CellId(cell.into())));
        Self { keys: (0..names).map(key).collect(), rules }
    }

    /// How many there are.
    pub fn len(&self) -> u8 {
        self.keys.len() as u8
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The bucket of a name.
    pub fn key(&self, name: u8) -> Option<&BucketKey> {
        self.keys.get(usize::from(name))
    }

    /// The name as people spell it.
    pub fn spelling(&self, name: u8) -> &str {
        self.key(name).map_or("", |key| &key.canonical)
    }

    /// The name of a bucket.
    pub fn name(&self, key: &BucketKey) -> Option<u8> {
        self.keys.iter().position(|own| own == key).map(|at| at as u8)
    }

    /// The update that some writes call for. Destroys at `gone` positions are left out.
    pub fn update(&self, writes: &[Write], gone: u8) -> UpdateRequest {
        let changed = || writes.iter().filter(|write| write.before != write.after);
        let creates = changed().filter_map(|write| self.claim(write.row, write.after?));
        let destroys = changed().filter_map(|write| self.claim(write.row, write.before?));
        let destroys = destroys.enumerate().filter(|(at, _)| gone >> at & 1 == 0).map(|(_, claim)| claim);
        UpdateRequest { creates: creates.collect(), destroys: destroys.collect() }
    }

    fn claim(&self, row: u32, name: u8) -> Option<ClaimRequest> {
        Some(ClaimRequest {
            bucket_type: BUCKET_TYPE,
            value: self.key(name)?.canonical.clone(),
            subject: Some(Subject { subject_type: SUBJECT_TYPE, id: i64::from(row) }),
            source: Some(Source { source_type: TABLE, id: source_id(row) }),
            user_data: None,
        })
    }

    /// What a row calls for, as verification wants to be told: bucket type, value, subject type, subject.
    pub fn called_for(&self, row: u32, name: u8) -> (i32, &str, i32, i64) {
        (BUCKET_TYPE.0, self.spelling(name), SUBJECT_TYPE, i64::from(row))
    }
}
