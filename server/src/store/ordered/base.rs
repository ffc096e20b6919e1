//! The base row: the id of the store, the cluster that it belongs to, and the base of its fences. Each
//! group of commands is written under the guard that this row is as it was read.

use leasehold_core::lease::Fence;
use leasehold_core::unicode_version::{UNICODE_VERSION, UnicodeVersion};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::engine::{Engine, Entry, KeyRange, KeyRead, Moment, RowGuard, RowWrite};
use super::keys::Layout;
use super::state_file::Seen;
use crate::store::clock::system_time;
use crate::store::error::StoreError;
use crate::store::identity::{Creation, Identity};
use crate::store::preflight::Problem;

type Result<T> = std::result::Result<T, StoreError>;

/// The version of the layout that this program reads and writes.
const VERSION: i32 = 1;
/// The distance by which the fences of a copy are raised at least: those of 2^33 transactions, which the original may
/// have made after the copy. At 3,000 a second, these are a month of them. After 100 copies the fences are still below
/// 2^53.
pub(super) const COPY_JUMP: u64 = 1 << 45;
/// The fences of one second of time, by which the fences of an adopted copy are raised: 2^21. In 2106 they
/// are still below 2^53.
const FENCES_PER_SECOND: u64 = 1 << 21;

/// The value of the base row, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Base {
    /// The version of the layout.
    version: i32,
    /// The id of the store.
    store: Uuid,
    /// The id of the cluster in which the store was made.
    cluster: u64,
    /// The base to which the fences of new leases are added.
    pub(super) fence: u64,
    /// The number of copies that were adopted.
    #[serde(default)]
    adoptions: u64,
    /// The revision such that the rows of groups which were decided before it may be deleted.
    #[serde(default)]
    pub(super) forgotten: u64,
    /// The version of Unicode by whose tables the keys of claims are canonical forms.
    unicode: String,
    /// True until the import that makes the store has finished.
    #[serde(default)]
    is_importing: bool,
}

impl Base {
    /// Returns the base row of a new store in this cluster.
    fn new(cluster: u64) -> Self {
        let Identity { id, unicode, .. } = Identity::random();
        Self {
            version: VERSION,
            store: id,
            cluster,
            fence: 0,
            adoptions: 0,
            forgotten: 0,
            unicode: unicode.to_string(),
            is_importing: false,
        }
    }

    /// Returns the base with another version of Unicode, if it has the version `found`.
    pub(super) fn with_unicode(self, found: UnicodeVersion, version: UnicodeVersion) -> Self {
        let is_found = self.unicode == found.to_string();
        Self { unicode: if is_found { version.to_string() } else { self.unicode }, ..self }
    }

    /// Returns the base with fences that are larger by `jump`.
    pub(super) fn raised_by(self, jump: u64) -> Self {
        Self { fence: self.fence.saturating_add(jump), ..self }
    }

    /// Returns the base after the rows of groups were deleted that were decided before a revision.
    fn forgetting(self, before: u64) -> Self {
        Self { forgotten: self.forgotten.max(before), ..self }
    }

    /// Returns the base of a copy that was adopted in this cluster. Its fences are beyond those of the original.
    fn adopted(self, cluster: u64) -> Self {
        let seconds = system_time().as_micros() / 1_000_000;
        let fence = self.fence.saturating_add(COPY_JUMP).max(seconds.saturating_mul(FENCES_PER_SECOND));
        Self { cluster, fence, adoptions: self.adoptions.saturating_add(1), ..self }
    }

    fn identity(&self, is_new: bool) -> Identity {
        let unicode = UnicodeVersion::parse(&self.unicode).unwrap_or(UNICODE_VERSION);
        Identity { id: self.store, is_new, unicode }
    }
}

/// The base row with its revision.
#[derive(Clone, Debug)]
pub(super) struct KnownBase {
    /// The value of the row.
    pub(super) base: Base,
    /// The revision of the row.
    pub(super) revision: u64,
}

impl KnownBase {
    /// Decodes the base row.
    ///
    /// # Errors
    /// It is damaged.
    pub(super) fn of(entry: &Entry) -> Result<Self> {
        let base = serde_json::from_slice(&entry.value);
        let base = base.map_err(|error| StoreError::Damaged(format!("the base row can't be read: {error}")))?;
        Ok(Self { base, revision: entry.revision })
    }

    /// Returns the guard that the base row has not changed.
    pub(super) fn guard(&self, layout: &Layout) -> RowGuard {
        RowGuard::Written { key: layout.base(), revision: self.revision }
    }
}

/// Reads the base row; `None` if there is no store.
async fn find(engine: &dyn Engine, layout: &Layout) -> Result<Option<KnownBase>> {
    let revision = engine.prove(layout.absent()).await?;
    let loaded = engine.load(Moment::Revision(revision), vec![KeyRead::Row(layout.base())]).await?;
    loaded.entries.into_iter().flatten().next().map(|entry| KnownBase::of(&entry)).transpose()
}

/// Reads the base row of a store that has been opened.
///
/// # Errors
/// The row is gone, or the engine does not answer.
pub(super) async fn read(engine: &dyn Engine, layout: &Layout) -> Result<KnownBase> {
    let gone = || StoreError::Damaged("the base row of the store is gone".into());
    find(engine, layout).await?.ok_or_else(gone)
}

/// Changes the base row, and returns it as it was before.
///
/// # Errors
/// The engine does not answer, or others change the row again and again.
pub(super) async fn change(
    engine: &dyn Engine,
    layout: &Layout,
    changed: impl Fn(Base) -> Base + Send + Sync,
) -> Result<(KnownBase, Base)> {
    loop {
        let known = read(engine, layout).await?;
        let base = changed(known.base.clone());
        if base == known.base || put(engine, vec![known.guard(layout)], layout, &base).await? {
            return Ok((known, base));
        }
    }
}

async fn put(engine: &dyn Engine, guards: Vec<RowGuard>, layout: &Layout, base: &Base) -> Result<bool> {
    Ok(engine.write(guards, vec![write_of(layout, base)?]).await?.is_written)
}

fn write_of(layout: &Layout, base: &Base) -> Result<RowWrite> {
    let value = serde_json::to_vec(base).map_err(|error| StoreError::Failed(error.to_string()))?;
    Ok(RowWrite::Put { key: layout.base(), value: value.into() })
}

/// Deletes the rows of a range of groups, which were decided before a revision. The base row tells the revision.
/// So no transaction that was sent before can be made any more, and nobody takes a deleted row for one that never
/// was.
///
/// # Errors
/// The engine does not answer.
pub(super) async fn forget_groups(engine: &dyn Engine, layout: &Layout, old: KeyRange, before: u64) -> Result<()> {
    let known = read(engine, layout).await?;
    let base = write_of(layout, &known.base.clone().forgetting(before))?;
    engine.write(vec![known.guard(layout)], vec![base, RowWrite::DeleteRange(old)]).await.map(drop)
}

/// An opened store.
pub(super) struct OpenedBase {
    /// The identity of the store.
    pub(super) identity: Identity,
    /// The newest revision of the engine.
    pub(super) seen: Seen,
}

fn failed(error: StoreError) -> Problem {
    match error {
        StoreError::Unreachable(cause) => Problem::Unreachable(cause),
        error => Problem::Failed(error.to_string()),
    }
}

/// Opens the store: reads its base row, or makes a store if `creation` allows it. A store is made only
/// where no key has the prefix.
///
/// # Errors
/// The store can't be used.
pub(super) async fn open(
    engine: &dyn Engine,
    layout: &Layout,
    creation: Creation,
) -> std::result::Result<OpenedBase, Problem> {
    let cluster = engine.status().await.map_err(failed)?.cluster;
    let mut is_new = false;
    loop {
        if let Some(known) = find(engine, layout).await.map_err(failed)? {
            check(&known.base, cluster)?;
            let revision = engine.prove(layout.absent()).await.map_err(failed)?;
            let seen = Seen { adoptions: known.base.adoptions, revision };
            return Ok(OpenedBase { identity: known.base.identity(is_new), seen });
        }
        if creation == Creation::Refused {
            return Err(Problem::NoStore);
        }
        check_above(engine, layout).await?;
        let nothing = RowGuard::Unchanged { range: layout.all(), since: 0 };
        is_new = put(engine, vec![nothing], layout, &Base::new(cluster)).await.map_err(failed)?;
        if !is_new && find(engine, layout).await.map_err(failed)?.is_none() {
            return Err(Problem::Settings("other rows have this prefix: name another `prefix`".into()));
        }
    }
}

/// Reads the base row of an import that did not finish; `None` if there is none.
pub(super) async fn find_incomplete(engine: &dyn Engine, layout: &Layout) -> Result<Option<KnownBase>> {
    Ok(find(engine, layout).await?.filter(|known| known.base.is_importing))
}

/// Makes the base row of a store that an import fills, where no key has the prefix.
///
/// # Errors
/// There is a store, or other rows have the prefix.
pub(super) async fn begin_import(engine: &dyn Engine, layout: &Layout) -> std::result::Result<KnownBase, Problem> {
    let cluster = engine.status().await.map_err(failed)?.cluster;
    check_above(engine, layout).await?;
    let new = Base { is_importing: true, ..Base::new(cluster) };
    let nothing = RowGuard::Unchanged { range: layout.all(), since: 0 };
    let put = put(engine, vec![nothing], layout, &new).await;
    let found = find(engine, layout).await.map_err(failed)?;
    // A row that was put although the answer was lost is that of this import too.
    match found {
        Some(known) if known.base == new => Ok(known),
        Some(_) => Err(Problem::NotEmpty),
        None => {
            put.map_err(failed)?;
            Err(Problem::Settings("other rows have this prefix: name another `prefix`".into()))
        }
    }
}

/// Ends an import: from now on, servers may use the store. Its fences go on after the newest one of the export.
///
/// # Errors
/// The engine does not answer, or another import has begun.
pub(super) async fn end_import(engine: &dyn Engine, layout: &Layout, known: &KnownBase, newest: Fence) -> Result<()> {
    let complete = Base { is_importing: false, fence: newest.0, ..known.base.clone() };
    let put = put(engine, vec![known.guard(layout)], layout, &complete).await;
    if put.as_ref().is_ok_and(|is_written| *is_written) {
        return Ok(());
    }
    // The answer of a transaction that was made may have been lost.
    match find(engine, layout).await? {
        Some(found) if found.base == complete => Ok(()),
        _ => put.and(Err(StoreError::Conflict("another import has begun".into()))),
    }
}

/// Checks that the keys of a new store are not among those of another one.
async fn check_above(engine: &dyn Engine, layout: &Layout) -> std::result::Result<(), Problem> {
    let above = layout.bases_above().into_iter().map(KeyRead::Row).collect();
    let loaded = engine.load(Moment::Newest, above).await.map_err(failed)?;
    match loaded.entries.iter().flatten().next() {
        Some(_) => Err(Problem::Settings("a store has a part of this prefix as its own: name another `prefix`".into())),
        None => Ok(()),
    }
}

/// Makes the base row of a restored copy that of a store in this cluster. Returns the store's identity, the
/// bases of fences before and after, and the newest revision.
///
/// # Errors
/// There is no store, or the engine does not answer.
pub(super) async fn adopt(engine: &dyn Engine, layout: &Layout) -> Result<(Identity, [u64; 2], u64)> {
    let cluster = engine.status().await?.cluster;
    let (before, after) = change(engine, layout, |base| base.adopted(cluster)).await?;
    let revision = engine.prove(layout.absent()).await?;
    Ok((after.identity(false), [before.base.fence, after.fence], revision))
}

/// Checks that this program can use a store in this cluster.
fn check(base: &Base, cluster: u64) -> std::result::Result<(), Problem> {
    if base.version > VERSION {
        return Err(Problem::Newer { found: base.version, known: VERSION });
    }
    if base.is_importing {
        return Err(Problem::ImportIncomplete);
    }
    // A snapshot that is restored becomes a new cluster. It may lack changes, and the cluster that it was
    // taken from may still be used.
    if base.cluster != cluster {
        return Err(Problem::Restored { made_in: base.cluster, found_in: cluster });
    }
    Ok(())
}
