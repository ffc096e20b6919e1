//! The names that cells can claim, and the conversion of names and rows to the engine's types.

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

/// The number of the bucket type `USERNAMES` on the wire.
pub const BUCKET_TYPE: BucketType = BucketType(4);
/// The number of the source type `RAILS_TABLE_USERS` on the wire.
pub const TABLE: SourceType = SourceType(1);
/// The number of the subject type `USER` on the wire.
const SUBJECT_TYPE: i32 = 4;

const PEOPLE: [&str; 8] = ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"];

/// The lease id with number 0. Leases are numbered from 1, in the last 32 bits of their ids.
const LEASE: u128 = 0x01a2_0000_0000_7000_8000_0000_0000_0000;

/// Returns the id of the lease with this number.
pub fn lease_id(number: u32) -> LeaseId {
    LeaseId(Uuid::from_u128(LEASE | u128::from(number)))
}

/// Returns the number of the lease with this id.
pub fn lease_number(lease: LeaseId) -> u32 {
    (lease.0.as_u128() & u128::from(u32::MAX)) as u32
}

/// Converts the primary key of a row to the engine's source id.
pub fn source_id(row: u32) -> SourceId {
    SourceId::from(u64::from(row))
}

/// Converts the engine's source id to the primary key of a row. Returns `None` if no row can have
/// this source id.
pub fn row_id(id: &SourceId) -> Option<u32> {
    let bytes = <[u8; 8]>::try_from(id.as_bytes()).ok()?;
    u32::try_from(u64::from_be_bytes(bytes)).ok()
}

/// The names that cells can claim, by number, and the rules of the service.
#[derive(Debug)]
pub struct Names {
    keys: Vec<BucketKey>,
    /// The rules of the service: the catalogue of bucket types and the cells.
    pub rules: Rules,
}

impl Names {
    /// Creates as many names as `names` says, and the rules for cells 1 to `cells`.
    pub fn new(names: u8, cells: u8) -> Self {
        let rule = BucketRule {
            number: BUCKET_TYPE,
            name: "USERNAMES".into(),
            form: Form::Word,
            fold_case: true,
            refuse_confusables: false,
        };
        let spelling = |number: u8| match PEOPLE.get(usize::from(number)) {
            Some(person) => Arc::from(*person),
            None => Arc::from(format!("user{number}")),
        };
        let key = |number| BucketKey { bucket_type: BUCKET_TYPE, canonical: spelling(number) };
        let mut rules = Rules { catalogue: Catalogue::new([rule]), ..Rules::default() };
        rules.cells.extend((1..=cells).map(|cell| CellId(cell.into())));
        Self { keys: (0..names).map(key).collect(), rules }
    }

    /// Returns the number of names.
    pub fn len(&self) -> u8 {
        self.keys.len() as u8
    }

    /// Returns true if there are no names.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the bucket key of the name with this number, `None` if there is no such name.
    pub fn key(&self, name: u8) -> Option<&BucketKey> {
        self.keys.get(usize::from(name))
    }

    /// Returns the text of the name with this number, an empty text if there is no such name.
    pub fn spelling(&self, name: u8) -> &str {
        self.key(name).map_or("", |key| &key.canonical)
    }

    /// Returns the number of the name that has this bucket key, `None` if no name has it.
    pub fn name(&self, key: &BucketKey) -> Option<u8> {
        self.keys.iter().position(|own| own == key).map(|at| at as u8)
    }

    /// Returns the update for these writes: it creates the claims of their new names and destroys
    /// those of their old names. `gone` is a bit set of positions in the list of destroys; the
    /// update omits the destroys at these positions.
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

    /// Returns the claim that a row calls for, as a tuple of bucket type, value, subject type and
    /// subject id.
    pub fn expected_claim(&self, row: u32, name: u8) -> (i32, &str, i32, i64) {
        (BUCKET_TYPE.0, self.spelling(name), SUBJECT_TYPE, i64::from(row))
    }
}
