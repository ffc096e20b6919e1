//! The bodies of the fuzz targets of messages: see [`crate::fuzzing`].

use leasehold_core::catalogue::Catalogue;
use leasehold_core::cell::CellId;
use leasehold_core::invariant;
use leasehold_core::lease::{LeaseId, Outcome};
use leasehold_core::memory::MemoryStore;
use leasehold_core::rows::State;
use leasehold_core::rules::Rules;
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use leasehold_core::update::{Settle, begin, settle};
use leasehold_proto::gitlab::cells::topology_service::claims::v1 as wire;
use leasehold_proto::gitlab::cells::topology_service::types::v1 as types;
use prost::Message;
use prost_types::Any;
use uuid::Uuid;

use super::{convert, errors};

const CELL: CellId = CellId(1);
/// The most bytes of a refusal's message and details together. Clients read 8 KiB of trailers
/// (grpc-java and grpc-go by default), and base64 takes a third more.
const MAX_STATUS_BYTES: usize = 6 * 1024;

/// Begins the update of a message twice under one idempotency key, and settles it. The state's
/// invariants must hold after each step, and a read must return each claim as it was sent.
pub fn wire(bytes: &[u8]) {
    let Ok(message) = wire::BeginUpdateRequest::decode(bytes) else { return };
    let rules = Rules { cells: [CELL].into(), ..Rules::default() };
    let mut store = MemoryStore::default();
    // The first update only creates, so that later destroys of the same claims find them.
    let creates = wire::BeginUpdateRequest { destroy_records: vec![], ..message.clone() };
    if let Some(lease) = play(&mut store, &rules, creates, 1) {
        finish(&mut store, lease, Outcome::Committed);
    }
    for (number, outcome) in [(2, Outcome::RolledBack), (3, Outcome::Committed)] {
        if let Some(lease) = play(&mut store, &rules, message.clone(), number) {
            finish(&mut store, lease, outcome);
        }
    }
}

/// Begins an update under a new idempotency key, then repeats the begin. Returns the lease; `None`
/// if the update is refused.
fn play(store: &mut MemoryStore, rules: &Rules, message: wire::BeginUpdateRequest, number: u128) -> Option<LeaseId> {
    let (now, key) = (Timestamp::from_micros(1), number.to_string());
    let lease = LeaseId(Uuid::from_u128(number));
    let command = convert::begin(message, rules, CELL, Some(&key), lease);
    let begun = command.as_ref().map_err(Clone::clone).and_then(|command| {
        // The reference store fails only if its rows contradict each other.
        begin(store, command, now).unwrap_or_else(|error| unreachable!("{error}"))
    });
    let state = checked(store);
    show(&state, rules);
    match (begun, command) {
        (Ok(begun), Ok(command)) => {
            let again = begin(store, &command, now);
            assert!(matches!(again, Ok(Ok(again)) if again.replayed && again.lease == begun.lease));
            Some(begun.lease)
        }
        (Err(rejection), _) => {
            let status = errors::rejected(&rejection);
            assert!(status.message().len() + status.details().len() <= MAX_STATUS_BYTES, "{status:?}");
            None
        }
        (Ok(_), Err(_)) => None,
    }
}

fn finish(store: &mut MemoryStore, lease: LeaseId, outcome: Outcome) {
    let settled = settle(store, &Settle { cell: CELL, lease, outcome }, Timestamp::from_micros(2));
    assert!(matches!(settled, Ok(Ok(true))), "{settled:?}");
    checked(store);
}

fn checked(store: &MemoryStore) -> State {
    let state = store.state().unwrap_or_default();
    assert_eq!(invariant::check(&state), Ok(()));
    state
}

/// Checks that the record of each claim names the claim's bucket both as `bucket` and as `claim`.
fn show(state: &State, rules: &Rules) {
    for (key, claim) in &state.claims {
        let record = convert::record(key, claim.clone(), &rules.catalogue);
        let record = wire::Record::decode(record.encode_to_vec().as_slice()).ok().and_then(|record| record.metadata);
        let named = record.map(|shown| convert::bucket(shown.bucket, shown.claim.as_ref(), &rules.catalogue));
        let (bucket_type, value) = (key.bucket_type, claim.record().spelling.to_string());
        assert_eq!(named, Some(Ok((bucket_type, value))));
    }
}

/// Decodes a `Claim`, whose field may be missing in the protos, and encodes it again.
pub fn claim_fields(bytes: &[u8]) {
    let Ok(claim) = types::Claim::decode(bytes) else { return };
    let written = claim.encode_to_vec();
    let again = types::Claim::decode(written.as_slice());
    assert_eq!(again.as_ref().map(types::Claim::field), Ok(claim.field()));
    assert_eq!(claim.encoded_len(), written.len());
    let catalogue = Catalogue::default();
    if let Ok((bucket_type, value)) = convert::bucket(None, Some(&claim), &catalogue) {
        let bucket = catalogue.bucket(bucket_type, value.as_str().into());
        assert!(bucket.is_err() || bucket.is_ok_and(|bucket| *bucket.spelling == *value));
    }
}

/// Decodes the cursor of a list, and encodes the position again.
pub fn cursor(bytes: &[u8]) {
    let Ok(any) = Any::decode(bytes) else { return };
    let Ok(position) = convert::read_cursor(CELL.0, &any) else { return };
    assert_eq!(convert::read_cursor(CELL.0, &convert::cursor(CELL.0, position)), Ok(position));
    assert!(convert::read_cursor(2, &any).is_err(), "another cell's cursor");
}
