//! Whether the journals are whole, asked before fjall opens them.
//!
//! Where fjall can't read on in a journal it takes the rest for a write that was cut short, cuts it off and says nothing,
//! wherever that is, and what follows is lost. So the journals are read here first: each batch has a number, none may be
//! missing, and the last may not be below the one that was acknowledged last.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::error::StoreError;

/// The key, in any keyspace, of a number that each batch has one higher than the batch before.
pub(super) const SEQUENCE: &str = "sequence";

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const MAGIC: [u8; 4] = *b"FJL\x03";

/// Reads all journals in order, and ends the newest after its last batch.
///
/// # Errors
/// A batch is missing, or the disk failed.
pub(super) fn recover(dir: &Path, acknowledged: u64) -> Result<(), StoreError> {
    let failed = |path: &Path, error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", path.display()));
    let mut last = Last::default();
    let mut newest = None;
    for path in journals(dir).map_err(|error| failed(dir, error))?.into_values() {
        let bytes = std::fs::read(&path).map_err(|error| failed(&path, error))?;
        let mut rest = bytes.as_slice();
        while let Some((batch, after)) = batch(rest) {
            last = last.then(&batch).ok_or_else(|| lacks(&path, "a batch", bytes.len() - rest.len()))?;
            rest = after;
        }
        newest = Some((path, bytes.len() - rest.len()));
    }
    let Some((path, end)) = newest else { return Ok(()) };
    if last.sequence.is_some_and(|last| last < acknowledged) {
        return Err(lacks(&path, "what was acknowledged last", end));
    }
    // Of a write that was cut short anything may have reached the disk, and fjall does not take all of that.
    cut(&path, end).map_err(|error| failed(&path, error))
}

fn lacks(path: &Path, what: &str, at: usize) -> StoreError {
    StoreError::Damaged(format!("`{}` or the journal before it lacks {what}, from byte {at}", path.display()))
}

fn cut(path: &Path, end: usize) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(u64::try_from(end).unwrap_or(u64::MAX))?;
    file.sync_all()
}

fn journals(dir: &Path) -> std::io::Result<BTreeMap<u64, PathBuf>> {
    let mut journals = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let id = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let (Some(id), Some("jnl")) = (id, path.extension().and_then(|extension| extension.to_str())) {
            journals.insert(id, path);
        }
    }
    Ok(journals)
}

struct Batch {
    /// fjall's own number, which its checksum does not cover: an older one would lose to what it replaces.
    seqno: u64,
    sequence: Option<u64>,
}

/// The newest batch so far.
#[derive(Default)]
struct Last {
    seqno: Option<u64>,
    sequence: Option<u64>,
}

impl Last {
    fn then(&self, batch: &Batch) -> Option<Self> {
        let newer = self.seqno.is_none_or(|seqno| batch.seqno > seqno);
        let next = match (self.sequence, batch.sequence) {
            (Some(last), Some(next)) => last.checked_add(1) == Some(next),
            _ => true,
        };
        (newer && next).then(|| Self { seqno: Some(batch.seqno), sequence: batch.sequence.or(self.sequence) })
    }
}

/// The batch that begins here, where a whole one does, and what comes after it.
fn batch(bytes: &[u8]) -> Option<(Batch, &[u8])> {
    let mut reader = Reader(bytes);
    reader.tag(START)?;
    let items = u32::from_le_bytes(reader.array()?);
    let seqno = u64::from_le_bytes(reader.array()?);
    let body = reader.0;
    let mut sequence = None;
    for _ in 0..items {
        sequence = item(&mut reader)?.or(sequence);
    }
    let body = body.get(..body.len() - reader.0.len())?;
    reader.tag(END)?;
    let checksum = u64::from_le_bytes(reader.array()?);
    let whole = reader.array() == Some(MAGIC) && checksum == xxh3_64(body);
    whole.then_some((Batch { seqno, sequence }, reader.0))
}

/// Reads over an item; the number that it gives the batch, where it does.
fn item(reader: &mut Reader<'_>) -> Option<Option<u64>> {
    let [tag] = reader.array()?;
    if tag == CLEAR {
        return reader.array::<8>().map(|_keyspace| None);
    }
    let [_value_type, _compression] = reader.array().filter(|_| tag == ITEM)?;
    let _keyspace: [u8; 8] = reader.array()?;
    let key_bytes = u16::from_le_bytes(reader.array()?);
    let _value_bytes: [u8; 4] = reader.array()?;
    let stored_bytes = u32::from_le_bytes(reader.array()?);
    let key = reader.take(key_bytes.into())?;
    let value = reader.take(usize::try_from(stored_bytes).ok()?)?;
    let number = value.try_into().ok().map(u64::from_be_bytes);
    Some(number.filter(|_| key == SEQUENCE.as_bytes()))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn tag(&mut self, tag: u8) -> Option<()> {
        (self.array()? == [tag]).then_some(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at what it does not expect")]

    use fjall::{Database, KeyspaceCreateOptions, PersistMode};
    use tempfile::TempDir;

    use super::*;

    const BATCHES: u64 = 5;

    /// A journal as fjall writes it, and where each batch begins.
    fn journal() -> (Vec<u8>, Vec<usize>) {
        let dir = TempDir::new().unwrap();
        let database = Database::builder(dir.path()).open().unwrap();
        let keyspace = database.keyspace("rows", KeyspaceCreateOptions::default).unwrap();
        for sequence in 1..=BATCHES {
            let mut batch = database.batch().durability(Some(PersistMode::Buffer));
            batch.insert(&keyspace, sequence.to_string(), vec![START; 30]);
            batch.insert(&keyspace, "long", vec![7; 300]);
            batch.remove(&keyspace, "gone");
            batch.insert(&keyspace, SEQUENCE, sequence.to_be_bytes());
            batch.commit().unwrap();
        }
        let bytes = std::fs::read(journals(dir.path()).unwrap().pop_first().unwrap().1).unwrap();
        let (mut begins, mut rest) = (vec![0], bytes.as_slice());
        while let Some((_, after)) = batch(rest) {
            begins.push(bytes.len() - after.len());
            rest = after;
        }
        assert_eq!(begins.len(), 6);
        (bytes[..begins[5]].to_vec(), begins)
    }

    /// What becomes of these journals.
    fn recovered(journals: &[&[u8]], acknowledged: u64) -> Result<Vec<u8>, StoreError> {
        let dir = TempDir::new().unwrap();
        let path = |id| dir.path().join(format!("{id}.jnl"));
        journals.iter().zip(9..).for_each(|(bytes, id)| std::fs::write(path(id), bytes).unwrap());
        recover(dir.path(), acknowledged)?;
        Ok(journals.iter().zip(9..).flat_map(|(_, id)| std::fs::read(path(id)).unwrap()).collect())
    }

    #[test]
    fn whole_journals_stay() {
        let (bytes, begins) = journal();
        assert!(recovered(&[], 0).unwrap().is_empty());
        assert_eq!(recovered(&[&bytes], BATCHES).unwrap(), bytes);
        for begin in begins {
            let (one, two) = bytes.split_at(begin);
            assert_eq!(recovered(&[one, two], BATCHES).unwrap(), bytes);
            assert_eq!(recovered(&[one, &[0; 9], two], BATCHES).unwrap().len(), bytes.len() + 9);
        }
    }

    #[test]
    fn no_acknowledged_byte_can_change() {
        let (bytes, begins) = journal();
        // fjall's number of a batch has to be between its neighbours', and the last has but one.
        let unbound = |at: &usize| (begins[4] + 5..begins[4] + 13).contains(at);
        // Without its first batch a journal is like one that was just begun, which the store notices.
        for at in (begins[1]..bytes.len()).filter(|at| !unbound(at)) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(matches!(recovered(&[&flipped], BATCHES), Err(StoreError::Damaged(_))), "byte {at}");
        }
    }

    #[test]
    fn nothing_acknowledged_can_be_missing() {
        let (bytes, begins) = journal();
        let lost = |journals: &[&[u8]]| matches!(recovered(journals, BATCHES), Err(StoreError::Damaged(_)));
        assert!((begins[1]..bytes.len()).step_by(7).all(|end| lost(&[&bytes[..end]])));
        let (one, two) = bytes.split_at(begins[3]);
        assert!(lost(&[&one[..one.len() - 1], two]));
        assert!(lost(&[&one[..begins[2]], two]));
        assert!(lost(&[two, one]));
        assert!(lost(&[&two[..begins[4] - begins[3]], &[]]));
    }

    #[test]
    fn what_was_never_acknowledged_is_cut_off() {
        let (bytes, begins) = journal();
        let whole = &bytes[..begins[4]];
        for at in (begins[4]..bytes.len()).step_by(7) {
            assert_eq!(recovered(&[&bytes[..at]], BATCHES - 1).unwrap(), whole);
            let mut torn = bytes.clone();
            torn[at..].fill(0);
            assert_eq!(recovered(&[&torn], BATCHES - 1).unwrap(), whole);
        }
        let mut hole = bytes.clone();
        hole[begins[4] + 100..begins[4] + 300].fill(0);
        assert_eq!(recovered(&[&hole], BATCHES - 1).unwrap(), whole);
    }
}
