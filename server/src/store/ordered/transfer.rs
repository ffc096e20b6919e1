//! The export and the import of a whole store. An export reads one revision, while servers use the store. An import
//! is many transactions: until the last one, the base row says that it has not finished, and no server starts.

use std::sync::Arc;

use bytes::Bytes;
use leasehold_core::catalogue::BucketRule;
use leasehold_core::lease::Fence;
use leasehold_core::rows::{AnyRow, Keys, NetChanges, Workspace};

use super::base::{self, KnownBase};
use super::engine::{Engine, KeyRead, MAX_OPERATIONS, MAX_TRANSACTION_BYTES, Moment, RowWrite};
use super::keys::{self, Layout};
use super::writer::{GroupTransaction, bytes_of};
use super::{OrderedStore, preflight, rows};
use crate::store::error::StoreError;
use crate::store::port::ImportTarget;
use crate::store::stored;

type Result<T> = std::result::Result<T, StoreError>;

/// The most attempts of a transaction of an import that gets no answer. A repetition writes the same rows again.
const ATTEMPTS: usize = 3;

/// The most rows that one transaction of a cleanup deletes.
const CLEANED_ROWS: usize = 4_096;

impl OrderedStore {
    /// Passes every row of the store to `visit`, as all were at one revision, and returns the newest fence. Claims and
    /// leases come in the order of their keys.
    ///
    /// # Errors
    /// The revision was compacted meanwhile, a row could not be read, or `visit` failed.
    pub async fn export<E: From<StoreError>>(
        &self,
        visit: impl FnMut(AnyRow) -> std::result::Result<(), E> + Send,
    ) -> std::result::Result<Fence, E> {
        self.inner.snapshot().await?.each_row(visit).await
    }
}

/// The import into an ordered engine, where no store has the prefix.
pub struct OrderedImport {
    engine: Arc<dyn Engine>,
    layout: Layout,
    base: KnownBase,
    is_complete: bool,
}

impl OrderedImport {
    /// Begins an import. What is left of one that did not finish is deleted first.
    ///
    /// # Errors
    /// There is a store, or the engine can't be used; [`StoreError::Preflight`] has the problem.
    pub(in crate::store) fn begin(engine: Arc<dyn Engine>, prefix: &str) -> Result<Self> {
        let layout = Layout::new(prefix);
        let begun = engine.handle().block_on(async {
            if let Some(rest) = base::find_incomplete(&*engine, &layout).await? {
                clean(&*engine, &layout, &rest).await?;
            }
            base::begin_import(&*engine, &layout).await.map_err(|problem| preflight(&*engine, problem))
        });
        let base = begun?;
        Ok(Self { engine, layout, base, is_complete: false })
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.engine.handle().block_on(call)
    }

    /// Writes rows in as few transactions as the engine takes.
    fn write(&self, writes: Vec<RowWrite>) -> Result<()> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for write in writes {
            let added = bytes_of(&write);
            if part.len() + 1 >= MAX_OPERATIONS || bytes + added > MAX_TRANSACTION_BYTES / 2 {
                self.send(&std::mem::take(&mut part))?;
                bytes = 0;
            }
            bytes += added;
            part.push(write);
        }
        if part.is_empty() { Ok(()) } else { self.send(&part) }
    }

    fn send(&self, part: &[RowWrite]) -> Result<()> {
        let send = || self.wait(self.engine.write(vec![self.base.guard(&self.layout)], part.to_vec()));
        let mut sent = send();
        for _ in 1..ATTEMPTS {
            if !sent.as_ref().is_err_and(StoreError::is_away) {
                break;
            }
            sent = send();
        }
        match sent?.is_written {
            true => Ok(()),
            false => Err(StoreError::Conflict("another import has begun, or the rows were deleted".into())),
        }
    }
}

impl Drop for OrderedImport {
    fn drop(&mut self) {
        if !self.is_complete
            && let Err(error) = self.wait(clean(&*self.engine, &self.layout, &self.base))
        {
            tracing::warn!(%error, "the rows of the failed import are left: the next import deletes them");
        }
    }
}

impl ImportTarget for OrderedImport {
    fn keeps_claims_only(&self) -> bool {
        true
    }

    fn load(&mut self, keys: Keys, into: &mut Workspace) -> Result<()> {
        let names = self.layout.rows(&keys);
        let mut found = Vec::with_capacity(names.len());
        for part in names.chunks(MAX_OPERATIONS) {
            let reads = part.iter().cloned().map(KeyRead::Row).collect();
            let loaded = self.wait(self.engine.load(Moment::Newest, reads))?;
            found.extend(loaded.entries.into_iter().map(|entries| entries.into_iter().next()));
        }
        rows::put_into(into, found, keys)
    }

    fn save(&mut self, rows: &NetChanges) -> Result<()> {
        let GroupTransaction { writes, .. } = GroupTransaction::of(rows, &self.layout, 0)?;
        self.write(writes)
    }

    fn complete(mut self, newest: Fence, rules: &[BucketRule]) -> Result<()> {
        let rules = stored::bucket_rules_to_json(rules).map_err(|error| StoreError::Failed(error.to_string()))?;
        self.write(vec![RowWrite::Put { key: self.layout.bucket_types(), value: rules.into() }])?;
        self.wait(base::end_import(&*self.engine, &self.layout, &self.base, newest))?;
        self.is_complete = true;
        Ok(())
    }
}

/// Deletes all rows of an import that did not finish, the base row last. If it has finished after all, nothing is
/// deleted.
async fn clean(engine: &dyn Engine, layout: &Layout, base: &KnownBase) -> Result<()> {
    let delete = async |keys: Vec<Bytes>| {
        let writes = keys.into_iter().map(RowWrite::Delete).collect();
        engine.write(vec![base.guard(layout)], writes).await.map(|guarded| guarded.is_written)
    };
    let mut range = layout.all();
    loop {
        let read = KeyRead::Range { range: range.clone(), limit: CLEANED_ROWS, keys_only: true };
        let loaded = engine.load(Moment::Newest, vec![read]).await?;
        let entries: Vec<_> = loaded.entries.into_iter().flatten().collect();
        let Some(last) = entries.last() else { break };
        range.from = keys::next(&last.key);
        let keys: Vec<_> = entries.into_iter().map(|entry| entry.key).filter(|key| *key != layout.base()).collect();
        if !keys.is_empty() && !delete(keys).await? {
            return Ok(());
        }
    }
    delete(vec![layout.base()]).await.map(drop)
}
