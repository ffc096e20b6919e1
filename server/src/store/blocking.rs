//! An adapter that gives a backend the synchronous interface of the engine's conformance suite. As
//! in a server, groups go through one of the backend's writers, and reads through its asynchronous
//! reader. So the suite covers both.

use std::cell::RefCell;
use std::sync::Arc;

use leasehold_core::bucket::BucketKey;
use leasehold_core::claim::Claim;
use leasehold_core::command::Fences;
use leasehold_core::lease::LeaseId;
use leasehold_core::lock::{Lock, LockPath};
use leasehold_core::query::{LeaseRow, LeaseScan, RecordPart, RecordScan};
use leasehold_core::queue::{Lane, LanePath, Queue, QueuePath, Request, RequestBody, RequestId};
use leasehold_core::rows::{Keys, NetChanges, OrderedRead, State, Workspace};
use leasehold_core::session::{Session, SessionId};
use leasehold_core::store::Store;
use leasehold_core::time::Timestamp;
use tokio::runtime::Runtime;

use super::error::StoreError;
use super::port::{Backend, GroupStore, StoreReader};

type Result<T> = std::result::Result<T, StoreError>;

/// A backend's first writer and its reader, which block the calling thread.
pub struct BlockingStore {
    // [`Store::load`] takes `&self`, but [`GroupStore::load`] takes `&mut self`.
    writer: RefCell<Box<dyn GroupStore>>,
    reader: Arc<dyn StoreReader>,
    runtime: Runtime,
}

impl BlockingStore {
    /// Awaits `open` on a new runtime, which also drives the backend's connections from then on.
    ///
    /// # Errors
    /// The backend can't be opened, or the runtime or a writer can't be started.
    pub fn open<B: Backend>(open: impl Future<Output = Result<B>>) -> Result<Self> {
        let failed = |error: std::io::Error| StoreError::Failed(error.to_string());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let backend = runtime.block_on(open)?;
        let writer = backend.writers().map_err(failed)?.into_iter().next();
        let writer = writer.ok_or_else(|| StoreError::Failed("the backend has no writer".into()))?;
        Ok(Self { writer: RefCell::new(writer), reader: backend.reader(), runtime })
    }

    /// Lets the writer decide groups on assumed rows, as it does in a server. Then
    /// [`StoreError::Misspeculated`] means that the group must be decided again.
    #[must_use]
    pub fn speculating(self) -> Self {
        self.writer.borrow_mut().enable_speculation();
        self
    }
}

impl Store for BlockingStore {
    type Error = StoreError;

    fn is_shared(&self) -> bool {
        self.writer.borrow().is_shared()
    }

    fn skips_fences(&self) -> bool {
        self.writer.borrow().skips_fences()
    }

    fn workspace(&self) -> Result<Workspace> {
        self.writer.borrow_mut().begin().map_err(|failed| failed.error)
    }

    fn load(&self, keys: Keys, into: &mut Workspace) -> Result<()> {
        self.writer.borrow_mut().load(keys, into).map_err(|failed| failed.error)
    }

    fn save(&mut self, changes: &NetChanges) -> Result<Fences> {
        self.writer.borrow_mut().commit(changes).map_err(|failed| failed.error)
    }

    fn claim(&self, key: &BucketKey) -> Result<Option<Claim>> {
        let claims = self.runtime.block_on(self.reader.claims(std::slice::from_ref(key)))?;
        Ok(claims.into_iter().next().flatten())
    }

    fn leases(&self, scan: &LeaseScan) -> Result<Vec<LeaseRow>> {
        self.runtime.block_on(self.reader.leases(*scan))
    }

    fn records(&self, scan: &RecordScan) -> Result<RecordPart> {
        self.runtime.block_on(self.reader.records(scan.clone()))
    }

    fn settled(&self, before: Timestamp, limit: usize) -> Result<Vec<LeaseId>> {
        self.runtime.block_on(self.reader.settled(before, limit))
    }

    fn sessions(&self, read: &OrderedRead<Session>) -> Result<Vec<(SessionId, Session)>> {
        self.runtime.block_on(self.reader.sessions(read.clone()))
    }

    fn locks(&self, read: &OrderedRead<Lock>) -> Result<Vec<(LockPath, Lock)>> {
        self.runtime.block_on(self.reader.locks(read.clone()))
    }

    fn lock(&self, path: &LockPath) -> Result<Option<Lock>> {
        self.runtime.block_on(self.reader.lock(path))
    }

    fn queues(&self, read: &OrderedRead<Queue>) -> Result<Vec<(QueuePath, Queue)>> {
        self.runtime.block_on(self.reader.queues(read.clone()))
    }

    fn lanes(&self, read: &OrderedRead<Lane>) -> Result<Vec<(LanePath, Lane)>> {
        self.runtime.block_on(self.reader.lanes(read.clone()))
    }

    fn requests(&self, read: &OrderedRead<Request>) -> Result<Vec<(RequestId, Request)>> {
        self.runtime.block_on(self.reader.requests(read.clone()))
    }

    fn bodies(&self, requests: &[RequestId]) -> Result<Vec<Option<RequestBody>>> {
        self.runtime.block_on(self.reader.bodies(requests))
    }

    fn state(&self) -> Result<State> {
        self.runtime.block_on(self.reader.state())
    }
}
