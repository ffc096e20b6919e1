//! The rules of a service: the bucket types and the cells that the service knows. Each request from
//! outside is parsed here first, so that a malformed request is refused before any row is read.
//!
//! ```
//! use leasehold_core::batch::UpdateRequest;
//! use leasehold_core::cell::CellId;
//! use leasehold_core::lease::LeaseId;
//! use leasehold_core::rejection::Reason;
//! use leasehold_core::rules::Rules;
//!
//! let rules = Rules { cells: [CellId(1)].into(), ..Rules::default() };
//! let lease = LeaseId(uuid::Uuid::from_u128(1));
//! let refused = rules.begin(CellId(1), UpdateRequest::default(), None, lease).unwrap_err();
//! assert_eq!(refused.reason(), Reason::InvalidUpdate);
//! assert_eq!(refused.to_string(), "the request is not valid: the update is empty: give at least one create or destroy");
//! ```

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::batch::{Batch, MAX_IDEMPOTENCY_KEY_BYTES, UpdateRequest};
use crate::bucket::BucketKey;
use crate::catalogue::Catalogue;
use crate::cell::CellId;
use crate::lease::{IdempotencyKey, LeaseId, Outcome};
use crate::rejection::{Detail, Reason, Rejection};
use crate::update::{Begin, Settle};

/// The bucket types and the cells of a service.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The bucket types of the service.
    pub catalogue: Catalogue,
    /// The cells that the service knows.
    pub cells: BTreeSet<CellId>,
}

impl Rules {
    /// Parses a request to begin an update (B14). `lease` is a new id that the host has generated.
    /// [`Begin::for_organization`] adds the organization, if the request names one.
    ///
    /// # Errors
    /// The cell is unknown (B14), the idempotency key is malformed, or [`Batch::parse`] refuses the
    /// update.
    pub fn begin(
        &self,
        cell: CellId,
        request: UpdateRequest,
        idempotency_key: Option<&str>,
        lease: LeaseId,
    ) -> Result<Begin, Rejection> {
        self.check_cell(cell)?;
        let idempotency = match idempotency_key {
            Some(key) => Some((parse_idempotency_key(cell, key)?, request.fingerprint())),
            None => None,
        };
        let batch = Batch::parse(request, &self.catalogue)?;
        Ok(Begin { cell, lease, batch, idempotency, organization: None, resumed: false })
    }

    /// Returns the command of a host that begins an update which gives up existing claims of a cell.
    /// It needs no catalogue, so it can drop claims of a bucket type that is not configured any more
    /// (B26).
    ///
    /// # Errors
    /// The cell is unknown (B14), or [`Batch::destroying`] refuses the keys.
    pub fn drop_claims(
        &self,
        cell: CellId,
        keys: impl IntoIterator<Item = BucketKey>,
        lease: LeaseId,
    ) -> Result<Begin, Rejection> {
        self.check_cell(cell)?;
        let batch = Batch::destroying(keys)?;
        Ok(Begin { cell, lease, batch, idempotency: None, organization: None, resumed: false })
    }

    /// Parses a request to commit a lease or to roll it back. `lease` is a uuid of 36 characters.
    ///
    /// # Errors
    /// The cell is unknown (B14), or the uuid is malformed.
    pub fn settle(&self, cell: CellId, lease: &str, outcome: Outcome) -> Result<Settle, Rejection> {
        self.check_cell(cell)?;
        let lease = parse_lease_id(lease).ok_or_else(|| invalid("`lease_uuid` is not a uuid of 36 characters"))?;
        Ok(Settle { cell, lease, outcome })
    }

    /// Checks that the service knows a cell (B14).
    ///
    /// # Errors
    /// The service does not know the cell.
    pub fn check_cell(&self, cell: CellId) -> Result<(), Rejection> {
        if self.cells.contains(&cell) {
            return Ok(());
        }
        Err(invalid("`cell_id` names no cell that this service knows"))
    }
}

/// Returns the lease id that a uuid of 36 characters stands for, `None` for any other text.
pub fn parse_lease_id(text: &str) -> Option<LeaseId> {
    // `Uuid::try_parse` also reads uuids in braces and without hyphens. The wire contract only has
    // the hyphenated form of 36 characters.
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
