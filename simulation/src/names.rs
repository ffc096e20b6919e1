//! The names that cells can claim, and the conversion of rows and names to the engine's types.

use std::sync::Arc;

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::{BucketKey, BucketType};
use leasehold_core::catalogue::{BucketRule, Catalogue, Form};
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
use leasehold_core::lease::LeaseId;
use leasehold_core::rules::Rules;
use uuid::Uuid;

use crate::database::Write;

/// The number of `USERNAMES` on the wire.
pub const BUCKET_TYPE: BucketType = BucketType(4);
/// The number of `RAILS_TABLE_USERS` on the wire.
pub const TABLE: SourceType = SourceType(1);
/// The number of `USER` on the wire.
const SUBJECT_TYPE: i32 = 4;

const PEOPLE: [&str; 8] = ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"];

/// The id of a lease without its number. Leases are numbered from 1, in the last 32 bits.
const LEASE: u128 = 0x01a2_0000_0000_7000_8000_0000_0000_0000;

/// The id of the lease with this number.
pub fn lease_id(number: u32) -> LeaseId {
    LeaseId(Uuid::from_u128(LEASE | u128::from(number)))
}

/// The number of the lease with this id.
pub fn lease_number(lease: LeaseId) -> u32 {
    (lease.0.as_u128() & u128::from(u32::MAX)) as u32
}

/// Converts a row's primary key to the engine's source id.
pub fn source_id(row: u32) -> SourceId {
    SourceId::from(u64::from(row))
}

/// Converts a source id to the primary key of a row.
pub fn row_id(id: &SourceId) -> Option<u32> {
    let bytes = <[u8; 8]>::try_from(id.as_bytes()).ok()?;
    u32::try_from(u64::from_be_bytes(bytes)).ok()
}

/// The names, by number, and the rules of the service.
#[derive(Debug)]
pub struct Names {
    keys: Vec<BucketKey>,
    /// The catalogue and the cells that the service knows.
    pub rules: Rules,
}

impl Names {
    /// Creates `names` names and the rules for cells 1 to `cells`.
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

    /// The number of names.
    pub fn len(&self) -> u8 {
        self.keys.len() as u8
    }

    /// True if there are no names.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The bucket of a name.
    pub fn key(&self, name: u8) -> Option<&BucketKey> {
        self.keys.get(usize::from(name))
    }

    /// The text of a name.
    pub fn spelling(&self, name: u8) -> &str {
        self.key(name).map_or("", |key| &key.canonical)
    }

    /// The name of a bucket.
    pub fn name(&self, key: &BucketKey) -> Option<u8> {
        self.keys.iter().position(|own| own == key).map(|at| at as u8)
    }

    /// Returns the update that some writes need. `gone` is a bit set: destroys at these positions
    /// are left out.
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

    /// The claim that a row needs, in the form that verification reads: bucket type, value, subject
    /// type, subject id.
    pub fn expected_claim(&self, row: u32, name: u8) -> (i32, &str, i32, i64) {
        (BUCKET_TYPE.0, self.spelling(name), SUBJECT_TYPE, i64::from(row))
    }
}
