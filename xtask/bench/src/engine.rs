//! The row `engine-saves`: saves of the engine alone, with begin and commit on the reference store
//! in memory, on one thread.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::bucket::BucketType;
use leasehold_core::cell::CellId;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rules::Rules;
use leasehold_core::time::Timestamp;
use leasehold_core::update::{Settle, begin, settle};
use uuid::Uuid;

use super::load::CLAIMS;
use super::row::{Better, Heading, Row};

const HEADING: Heading = Heading { name: "engine-saves", unit: "saves/s", better: Better::Higher, target: 1.0 };
/// The required rate in saves a second, which stands in the table in place of a peer.
const ASKED_FOR: f64 = 300_000.0;
/// The number of saves in one round. Each round starts with an empty store.
const SAVES: u64 = 100_000;
const ROUNDS: usize = 9;
const CELL: CellId = CellId(1);

/// Measures the row `engine-saves`.
///
/// # Errors
/// The engine refuses a save, which is a defect, because the names are distinct.
pub(crate) fn row() -> Result<Row> {
    let mut rounds = (0..ROUNDS).map(|_| round()).collect::<Result<Vec<_>>>()?;
    rounds.sort();
    let median = rounds.get(ROUNDS / 2).copied().unwrap_or_default();
    Ok(HEADING.row(SAVES as f64 / median.as_secs_f64(), ASKED_FOR))
}

/// Measures the time of one round of saves: for each, the check of the request, begin and commit.
/// The requests are made before the time starts.
fn round() -> Result<Duration> {
    let rules = Rules { cells: [CELL].into(), ..Rules::default() };
    let mut store = MemoryStore::default();
    let requests: Vec<_> = (0..SAVES).map(request).collect();
    let started = Instant::now();
    for (number, request) in (1..).zip(requests) {
        let lease = LeaseId(Uuid::from_u128(scattered(number).into()));
        let now = Timestamp::from_micros(number);
        let command = rules.begin(CELL, request, None, lease).map_err(|refused| anyhow::anyhow!("{refused}"))?;
        ensure!(begin(&mut store, &command, now)?.is_ok(), "a begin was refused");
        let command = Settle { cell: CELL, lease, outcome: Outcome::Committed };
        ensure!(settle(&mut store, &command, now)? == Ok(true), "a commit was refused");
    }
    Ok(started.elapsed())
}

fn request(number: u64) -> UpdateRequest {
    let claim = |claim: u64| {
        let id = scattered(number * CLAIMS as u64 + claim);
        ClaimRequest {
            bucket_type: BucketType(4),
            value: format!("user-{id:016x}").into(),
            subject: Some(Subject { subject_type: 4, id: 7 }),
            source: Some(Source { source_type: SourceType(1), id: SourceId::from(id) }),
            user_data: None,
        }
    };
    UpdateRequest { creates: (0..CLAIMS as u64).map(claim).collect(), destroys: Vec::new() }
}

/// Returns a number that looks random, and is distinct for each `number`: multiplication by an odd
/// number is a permutation.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
