//! The types of all commands and all replies, for hosts that queue commands and run them in groups.

use crate::lease::{IdempotencyKey, Lease, LeaseId, Replay};
use crate::locking::{LockCommand, LockReads, LockReply};
use crate::queueing::{QueueCommand, QueueReads, QueueReply};
use crate::rows::{Keys, Workspace};
use crate::time::Timestamp;
use crate::transaction::Transaction;
use crate::update::{Answer, Begin, Begun, Forget, Settle, begin, forget, settle};

pub use crate::lease::Fences;

/// One command: a begin, a settle or a forget, or a command of locks or queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begins an update: run by [`begin`].
    Begin(Begin),
    /// Commits or rolls back a lease: run by [`settle`].
    Settle(Settle),
    /// Forgets a settled lease: run by [`forget`].
    Forget(Forget),
    /// A command of sessions and locks: run by [`LockCommand::apply`].
    Lock(LockCommand),
    /// A command of queues: run by [`QueueCommand::apply`].
    Queue(QueueCommand),
}

/// The reply to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The reply to [`Command::Begin`].
    Begun(Begun),
    /// The reply to [`Command::Settle`]: true if the settle changed the lease, false if the lease
    /// had been settled in the same way before (B22).
    Settled(bool),
    /// The reply to [`Command::Forget`]: true if the lease was forgotten.
    Forgotten(bool),
    /// The reply to [`Command::Lock`].
    Lock(LockReply),
    /// The reply to [`Command::Queue`].
    Queue(QueueReply),
}

impl Reply {
    /// Returns the reply with the fence that the store has assigned to the begun lease or to the
    /// grant. A reply whose fence is not in `fences`, and any reply without a fence, comes back
    /// unchanged.
    #[must_use]
    pub fn with_fences(self, fences: &Fences) -> Self {
        match self {
            Self::Begun(begun) => {
                let fence = fences.leases.get(&begun.lease).copied().unwrap_or(begun.fence);
                Self::Begun(Begun { fence, ..begun })
            }
            Self::Lock(reply) => Self::Lock(reply.with_fences(fences)),
            Self::Queue(reply) => Self::Queue(reply.with_fences(fences)),
            reply => reply,
        }
    }
}

impl Command {
    /// Runs the command over a transaction and returns the reply.
    ///
    /// # Errors
    /// The outer error means that the store failed and nothing was changed. The inner error is a
    /// refusal.
    pub fn apply<T: Transaction>(&self, tx: &mut T, now: Timestamp) -> Answer<Reply, T::Error> {
        Ok(match self {
            Self::Begin(command) => begin(tx, command, now)?.map(Reply::Begun),
            Self::Settle(command) => settle(tx, command, now)?.map(Reply::Settled),
            Self::Forget(command) => Ok(Reply::Forgotten(forget(tx, command)?)),
            Self::Lock(command) => command.apply(tx, now)?.map(Reply::Lock),
            Self::Queue(command) => command.apply(tx, now)?.map(Reply::Queue),
        })
    }

    /// Adds to `keys` the keys of the rows that the command reads, as far as they are known. Some
    /// keys stand in a row that is read first: the replay of a begin names its lease, the lease of
    /// a settle lists its claims, and the lease of a forget names its replay.
    fn add_keys(&self, workspace: &Workspace, keys: &mut Keys, reads: &mut Reads) {
        match self {
            Self::Begin(begin) => {
                keys.claims.extend(begin.batch.keys().cloned());
                keys.leases.extend(begin.resumed.then_some(begin.lease));
                if let Some((key, _)) = &begin.idempotency {
                    keys.replays.push(key.clone());
                    keys.leases.extend(loaded_replay(workspace, key).map(|replay| replay.lease));
                }
            }
            Self::Settle(Settle { lease, .. }) => {
                keys.leases.push(*lease);
                let claims = loaded_lease(workspace, lease).map_or(&[][..], Lease::claims);
                keys.claims.extend(claims.iter().cloned());
            }
            Self::Forget(Forget { lease, .. }) => {
                keys.leases.push(*lease);
                let lease = loaded_lease(workspace, lease);
                keys.replays.extend(lease.and_then(|lease| lease.idempotency_key.clone()));
            }
            Self::Lock(command) => reads.locks.add(command, workspace, keys),
            Self::Queue(command) => reads.queues.add(command, workspace, keys),
        }
    }
}

/// The ordered reads of a group of commands: each depends on all commands of the group.
#[derive(Default)]
struct Reads {
    locks: LockReads,
    queues: QueueReads,
}

fn loaded_lease<'a>(workspace: &'a Workspace, id: &LeaseId) -> Option<&'a Lease> {
    workspace.row(id).ok().flatten()
}

fn loaded_replay<'a>(workspace: &'a Workspace, key: &IdempotencyKey) -> Option<&'a Replay> {
    workspace.row(key).ok().flatten()
}

impl Workspace {
    /// Returns the keys of the rows that `commands` read and that are not loaded yet.
    ///
    /// A host loads these rows and calls this method again until no key is missing. A few rounds
    /// suffice: the rows that one round loads name those of the next.
    pub fn missing<'a>(&self, commands: impl IntoIterator<Item = &'a Command>) -> Keys {
        let mut keys = self.keys(commands);
        self.retain_missing(&mut keys);
        keys
    }

    /// Returns the keys of the rows that `commands` read, as far as they are known.
    fn keys<'a>(&self, commands: impl IntoIterator<Item = &'a Command>) -> Keys {
        let (mut keys, mut reads) = (Keys::default(), Reads::default());
        commands.into_iter().for_each(|command| command.add_keys(self, &mut keys, &mut reads));
        reads.locks.finish(self, &mut keys);
        reads.queues.finish(&mut keys);
        keys
    }

    /// Returns true if an earlier command of the group has written a row that `command` reads.
    pub fn has_changed(&self, command: &Command) -> bool {
        self.has_written(&self.keys([command]))
    }
}
