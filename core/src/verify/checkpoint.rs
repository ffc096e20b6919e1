//! The checkpoint of a run of verification: the point from which another run can go on (V07).

use serde::{Deserialize, Serialize};

use super::correction::{PendingCreate, PendingDestroy};
use super::destroy_limit::ClaimCount;
use super::scan::{Scan, Span};

/// The point from which another run of verification can go on: the progress of the scan, the
/// deferred corrections, and the spans to compare once more. A checkpoint holds values of claims,
/// so hosts must protect it like users' data.
///
/// The serialized names of the fields are those of version 1, even where the code has other names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    pub(super) scan: Scan,
    #[serde(rename = "takes")]
    pub(super) creates: Vec<PendingCreate>,
    #[serde(rename = "frees")]
    pub(super) destroys: Vec<PendingDestroy>,
    /// The spans to compare once more. An empty list is not stored: versions that compared no span
    /// again refuse the field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) again: Vec<Span>,
    /// The count of claims, `None` in a checkpoint of a version without a limit on destroys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<ClaimCount>,
    /// The checkpoint of the survey in progress, a dry run over the whole table; `None` if there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) survey: Option<Box<Checkpoint>>,
}

impl Default for Checkpoint {
    /// Returns the checkpoint from which a run scans the whole table.
    fn default() -> Self {
        Self {
            scan: Scan::After(Default::default()),
            creates: Vec::new(),
            destroys: Vec::new(),
            again: Vec::new(),
            count: Some(ClaimCount::default()),
            survey: None,
        }
    }
}

impl Checkpoint {
    /// Returns true if a run that goes on from this checkpoint has nothing to do.
    pub fn is_done(&self) -> bool {
        self.scan == Scan::Finished && self.creates.is_empty() && self.destroys.is_empty() && self.again.is_empty()
    }
}
