//! The sequence of fences. Its last value must never be smaller than the fence of a lease (B13) or
//! of a grant (K05).
//!
//! The last value can be too small if rows were copied without their sequence. Logical replication
//! copies no sequence (https://www.postgresql.org/docs/15/logical-replication-restrictions.html),
//! and a restore may leave it out. So the sequence is compared with the leases at the start, and on
//! each new connection of a writer, which may lead to another host.

use leasehold_core::lease::Fence;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::preflight;
use crate::store::identity::RaisedFences;
use crate::store::preflight::Problem;

/// A query for the sequence's last fence, and for the largest fence among the outstanding and the
/// most recently settled leases, and among the locks and lanes that are held or were changed last. The
/// snapshot of the rows is taken before the sequence is read. So
/// a lease that is begun in between never makes the sequence look too small.
const COMPARE: &str = "
    SELECT coalesce(pg_sequence_last_value('lease_fences'::regclass), 0), greatest(
        (SELECT max(fence) FROM claim_leases),
        (SELECT max(fence) FROM (
            SELECT fence FROM settled_leases ORDER BY settled_at DESC, uuid DESC LIMIT 1000
        ) AS last),
        (SELECT max(fence) FROM lock_asks), (SELECT max(greatest(fence, last_fence)) FROM (
            SELECT fence, last_fence FROM locks ORDER BY updated_hour DESC LIMIT 1000
        ) AS last),
        (SELECT max(fence) FROM request_lanes WHERE list = 3), (SELECT max(last_fence) FROM (
            SELECT last_fence FROM request_lanes WHERE list = 5 ORDER BY updated_at DESC LIMIT 1000
        ) AS last), 0)";

/// A query for the largest fence of all leases, locks and lanes. It reads all settled leases, which takes
/// seconds if there are millions.
const LARGEST: &str = "
    SELECT greatest((SELECT max(fence) FROM claim_leases), (SELECT max(fence) FROM settled_leases),
                    (SELECT max(greatest(fence, last_fence)) FROM locks),
                    (SELECT max(greatest(fence, last_fence)) FROM request_lanes), 0)";

/// A query that draws `$1` fences. Unlike `setval`, it can't set the sequence back below a fence
/// that another server draws at the same time. It needs no right that a begin does not need.
const DRAW: &str = "SELECT count(nextval('lease_fences')) FROM generate_series(1, $1::bigint)";

/// A query that sets the sequence beyond `$1`, and never back: behind a pooler, the transaction may be on another host than
/// the one before, whose sequence stands higher. Other servers may draw fences between the read of the last value and the
/// set, but not 2^20; the lock, which `begin_epoch` takes too, lets no other one set it. Returns the new last value.
const SET: &str = "
    WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock(7221046915238467001))
    SELECT setval('lease_fences', greatest($1, pg_sequence_last_value('lease_fences'::regclass)) + (1::bigint << 20))
    FROM locked";

/// The distance by which the fences of a restored copy are raised: more than the 2^42 of an adoption, which the copy may not
/// know. After 500 restores the fences are still below 2^53.
const JUMP: i64 = 1 << 43;

/// The most fences that are drawn one by one, which takes less than a second. For a larger
/// difference `setval` is safe: no other server draws so many fences at the same time.
const MAX_DRAWN: i64 = 1_000_000;

/// If the last value of the sequence is smaller than the largest fence of a lease or lock, raises the
/// sequence to that fence.
///
/// # Errors
/// The database can't be reached, or the difference is larger than [`MAX_DRAWN`] and the role may
/// not set the sequence.
pub(super) async fn raise(client: &Client) -> Result<(), Error> {
    let row = client.query_typed_one(COMPARE, &[]).await?;
    let (last, seen): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    if seen <= last {
        return Ok(());
    }
    let largest: i64 = client.query_typed_one(LARGEST, &[]).await?.try_get(0)?;
    raise_from(client, last, largest).await?;
    tracing::warn!(
        "the sequence `lease_fences` stood at {last}, behind the fence {largest} of a lease or lock, and was raised: \
         was the database restored from a dump, or replicated without its sequences?"
    );
    Ok(())
}

/// Raises the sequence to the newest fence of an imported store.
///
/// # Errors
/// The errors of [`raise`].
pub(super) async fn raise_to(client: &Client, newest: Fence) -> Result<(), Error> {
    let last: i64 = client.query_typed_one(COMPARE, &[]).await?.try_get(0)?;
    raise_from(client, last, newest.0.cast_signed()).await
}

/// Raises the sequence from `last` to `largest`, unless it stands there already.
async fn raise_from(client: &Client, last: i64, largest: i64) -> Result<(), Error> {
    let behind = largest.saturating_sub(last);
    if behind > MAX_DRAWN {
        client.query_typed_one(SET, &[(&largest, Type::INT8)]).await?;
    } else if behind > 0 {
        client.query_typed_one(DRAW, &[(&behind, Type::INT8)]).await?;
    }
    Ok(())
}

/// Raises the sequence by [`JUMP`]. Another server may already be running and drawing
/// fences. Its fences stay below the new value, unless it draws [`JUMP`] fences between the
/// two statements.
///
/// # Errors
/// The database can't be reached, or the role may not set the sequence.
pub(super) async fn jump(client: &Client) -> Result<RaisedFences, Problem> {
    preflight::check_right_to_set_fences(client).await?;
    let from: i64 = client.query_typed_one("SELECT nextval('lease_fences')", &[]).await?.try_get(0)?;
    let jumped = from.saturating_add(JUMP);
    let to: i64 = client.query_typed_one(SET, &[(&jumped, Type::INT8)]).await?.try_get(0)?;
    Ok(RaisedFences { from: Fence(from.cast_unsigned()), to: Fence(to.cast_unsigned()) })
}
