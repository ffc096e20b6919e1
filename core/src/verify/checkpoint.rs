//! The point from which another run can go on (V07).

use serde::{Deserialize, Serialize};

use super::correction::{PendingCreate, PendingDestroy};
use super::scan::{Scan, Span};

/// The point from which another run can go on: the progress of the scan, the deferred corrections,
/// and the spans to look at again. A checkpoint holds values of claims, so hosts keep it as they
/// keep users' data.
///
/// The names of its serialized fields are those of version 1, whatever the code calls them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    pub(super) scan: Scan,
    #[serde(rename = "takes")]
    pub(super) creates: Vec<PendingCreate>,
    #[serde(rename = "frees")]
    pub(super) destroys: Vec<PendingDestroy>,
    /// Left out if it is empty, which is how versions without a second look write and read a
    /// checkpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) again: Vec<Span>,
}

impl Default for Checkpoint {
    /// The start of a table.
    fn default() -> Self {
        Self { scan: Scan::After(Default::default()), creates: Vec::new(), destroys: Vec::new(), again: Vec::new() }
    }
}

impl Checkpoint {
    /// Returns true if a run from here would have nothing to do.
    pub fn is_done(&self) -> bool {
        self.scan == Scan::Finished && self.creates.is_empty() && self.destroys.is_empty() && self.again.is_empty()
    }
}
