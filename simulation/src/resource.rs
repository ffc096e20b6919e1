//! The resources that the locks guard, one for each lock: each keeps the newest fence that it has
//! seen, and refuses a write under an older one (K18).

use leasehold_core::lease::Fence;

/// A write that a resource has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AcceptedWrite {
    /// The fence of the grant under which the write was made.
    pub fence: Fence,
    /// The number of the cell whose client made the write.
    pub cell: u8,
}

/// The outcome of a write to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    /// The resource has accepted the write.
    Accepted {
        /// The accepted write of another holder with a newer fence, `None` if the writes are in the
        /// order of their fences.
        after: Option<AcceptedWrite>,
    },
    /// The resource has refused the write.
    Refused,
}

/// A resource that one lock guards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The accepted write with the newest fence, `None` before the first write.
    pub newest: Option<AcceptedWrite>,
    /// The last accepted write, `None` before the first one.
    pub last: Option<AcceptedWrite>,
    /// The number of accepted writes.
    pub writes: u32,
    /// The number of refused writes.
    pub refused: u32,
}

/// The resources of a world, in the order of their locks' numbers.
#[derive(Clone, Debug, Default, Hash)]
pub struct Resources {
    resources: Vec<Resource>,
    checks_fences: bool,
}

impl Resources {
    /// Creates as many resources as `count` says. If `checks_fences` is false, they accept every
    /// write.
    pub fn new(count: u8, checks_fences: bool) -> Self {
        Self { resources: vec![Resource::default(); usize::from(count)], checks_fences }
    }

    /// Returns the resources, in the order of their locks' numbers.
    pub fn all(&self) -> &[Resource] {
        &self.resources
    }

    /// Writes to the resource of a lock under a fence.
    pub fn write(&mut self, lock: u8, fence: Fence, cell: u8) -> WriteOutcome {
        let Some(resource) = self.resources.get_mut(usize::from(lock)) else { return WriteOutcome::Refused };
        let newer = resource.newest.filter(|newest| newest.fence > fence);
        if self.checks_fences && newer.is_some() {
            resource.refused += 1;
            return WriteOutcome::Refused;
        }
        let write = AcceptedWrite { fence, cell };
        resource.last = Some(write);
        resource.newest = newer.or(Some(write));
        resource.writes += 1;
        WriteOutcome::Accepted { after: newer }
    }
}
