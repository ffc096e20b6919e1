//! The environment variables in which a command finds what it works under.

/// The fence of the lock, or of the cleanup.
pub(crate) const FENCE: &str = "LEASEHOLD_FENCE";
/// The number of the slot, if the lock is shared.
pub(crate) const SLOT: &str = "LEASEHOLD_SLOT";
/// The name of the lock.
pub(crate) const LOCK: &str = "LEASEHOLD_LOCK";
/// The session that holds the lock.
pub(crate) const SESSION: &str = "LEASEHOLD_SESSION";
/// The namespace of a lock to clean up.
pub(crate) const LOCK_NAMESPACE: &str = "LEASEHOLD_LOCK_NAMESPACE";
/// The key of a lock to clean up. `LEASEHOLD_KEY` is the path of a private key.
pub(crate) const LOCK_KEY: &str = "LEASEHOLD_LOCK_KEY";
/// The fence of the grant whose holder has died.
pub(crate) const FORMER_FENCE: &str = "LEASEHOLD_FORMER_FENCE";
/// The number of an attempt to clean up, or of the attempt of a request.
pub(crate) const ATTEMPT: &str = "LEASEHOLD_ATTEMPT";

/// The queue of a batch.
pub(crate) const QUEUE: &str = "LEASEHOLD_QUEUE";
/// The key of the requests of a batch.
pub(crate) const REQUEST_KEY: &str = "LEASEHOLD_REQUEST_KEY";
/// The ids of the requests of a batch, a line for each.
pub(crate) const REQUESTS: &str = "LEASEHOLD_REQUESTS";

/// The variables that tell a command its own lock or batch. A command finds none of a lock around its own: the
/// guard would take a foreign slot.
pub(crate) const OWN: [&str; 11] =
    [FENCE, SLOT, LOCK, SESSION, LOCK_NAMESPACE, LOCK_KEY, FORMER_FENCE, ATTEMPT, QUEUE, REQUEST_KEY, REQUESTS];

/// The locks around a command, for a `leasehold lock` within it: a line for each, with its server, its
/// slot and its name.
pub(crate) const AROUND: &str = "LEASEHOLD_LOCKS_AROUND";
