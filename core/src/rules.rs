//! What a service is set up with, and the one door for requests from outside.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::batch::{Batch, Fingerprint, MAX_IDEMPOTENCY_KEY_BYTES, UpdateRequest};
use crate::catalogue::Catalogue;
use crate::claim::CellId;
use crate::lease::{IdempotencyKey, LeaseId, Outcome};
use crate::rejection::{Detail, Reason, Rejection};
use crate::update::{Begin, Settle};

/// The bucket types and the cells that a service knows.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The bucket types.
    pub catalogue: Catalogue,
    /// The cells.
    pub cells: BTreeSet<CellId>,
}

impl Rules {
    /// Checks a begin before anything is read (B14). `lease` is a fresh id, minted by the host.
    ///
    /// # Errors
    /// An unknown cell (B14), a malformed idempotency key, and all that [`Batch::parse`] refuses.
    pub fn begin(
        &self,
        cell: CellId,
        request: UpdateRequest,
        idempotency_key: Option<&str>,
        lease: LeaseId,
    ) -> Result<Begin, Rejection> {
        self.check_cell(cell)?;
        let idempotency = match idempotency_key {
            Some(key) => Some((parse_idempotency_key(cell, key)?, Fingerprint::of(&request))),
            None => None,
        };
        let batch = Batch::parse(request, &self.catalogue)?;
        Ok(Begin { cell, lease, batch, idempotency, resumed: false })
    }

    /// Checks a commit or rollback; `lease` in the 36-character form.
    ///
    /// # Errors
    /// An unknown cell (B14) or a malformed uuid.
    pub fn settle(&self, cell: CellId, lease: &str, outcome: Outcome) -> Result<Settle, Rejection> {
        self.check_cell(cell)?;
        let lease = parse_lease_id(lease).ok_or_else(|| invalid("`lease_uuid` is not a uuid of 36 characters"))?;
        Ok(Settle { cell, lease, outcome })
    }

    /// Checks that a cell is known (B14).
    ///
    /// # Errors
    /// It is not.
    pub fn check_cell(&self, cell: CellId) -> Result<(), Rejection> {
        if self.cells.contains(&cell) {
            return Ok(());
        }
        Err(invalid("`cell_id` names no cell that this service knows"))
    }
}

/// A lease id in its 36-character form.
pub fn parse_lease_id(text: &str) -> Option<LeaseId> {
    // The library reads other forms too (braces, no hyphens); the wire contract has one.
    let hyphenated = text.len() == uuid::fmt::Hyphenated::LENGTH;
    Uuid::try_parse(text).ok().filter(|_| hyphenated).map(LeaseId)
}

fn parse_idempotency_key(cell: CellId, key: &str) -> Result<IdempotencyKey, Rejection> {
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("the idempotency key is empty or not printable ascii without spaces"));
    }
    if key.len() > MAX_IDEMPOTENCY_KEY_BYTES {
        let detail = Detail::Limit {
            name: "idempotency_key_bytes",
            max: MAX_IDEMPOTENCY_KEY_BYTES as u64,
            actual: key.len() as u64,
        };
        return Err(Rejection::whole(Reason::LimitExceeded, detail));
    }
    Ok(IdempotencyKey { cell, key: key.into() })
}

fn invalid(what: &'static str) -> Rejection {
    Rejection::whole(Reason::InvalidUpdate, Detail::Form(what))
}
