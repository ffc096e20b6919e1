//! A check of the journal files before fjall opens them.
//!
//! If fjall can't read a batch of a journal, it treats the rest of the file as a write that was cut
//! short. It truncates the file at this place and reports no error (fjall 3.1,
//! `src/journal/batch_reader.rs`, `truncate_to`). All later batches are lost.
//!
//! This check therefore reads the journals before fjall does. Each batch has a sequence number, and
//! no number may be missing. The last number must not be below the watermark of acknowledged
//! writes.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::correction::correct_byte;
use crate::store::error::StoreError;

/// The key of the sequence number in the keyspace `meta`. Each batch increases the number by one.
pub(super) const SEQUENCE: &str = "sequence";

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const MAGIC: [u8; 4] = *b"FJL\x03";

/// Checks all journals of the folder `dir` in order, and truncates the newest one after its last
/// complete batch. `acknowledged` is the watermark.
///
/// # Errors
/// A batch is missing, or a file can't be read or written.
pub(super) fn recover(dir: &Path, acknowledged: u64) -> Result<(), StoreError> {
    let failed = |path: &Path, error: std::io::Error| StoreError::Failed(format!("`{}`: {error}", path.display()));
    let mut last = Last::default();
    let mut newest = None;
    for path in journals(dir).map_err(|error| failed(dir, error))?.into_values() {
        let bytes = std::fs::read(&path).map_err(|error| failed(&path, error))?;
        let mut rest = bytes.as_slice();
        while let Some((batch, after)) = batch(rest) {
            last = last.advance(&batch).ok_or_else(|| lacks(&path, "a batch", bytes.len() - rest.len()))?;
            rest = after;
        }
        newest = Some((path, bytes.len() - rest.len()));
    }
    let Some((path, end)) = newest else { return Ok(()) };
    if last.sequence.is_some_and(|last| last < acknowledged) {
        return Err(lacks(&path, "the last acknowledged batch", end));
    }
    // If a write was cut short, any part of it may have reached the disk. fjall does not accept
    // every such remainder, so it is removed here.
    truncate(&path, end).map_err(|error| failed(&path, error))
}

/// Corrects the batches in which one byte has changed, and returns the places of these bytes.
pub(super) fn correct(bytes: &mut [u8]) -> Vec<usize> {
    let (mut at, mut changed) = (0, Vec::new());
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match batch(rest) {
            Some((_, after)) => at += rest.len() - after.len(),
            None => match correct_batch(bytes, at) {
                Some(byte) => changed.push(byte),
                None => return changed,
            },
        }
    }
}

/// Corrects the batch at a place, and returns the place of the changed byte. The end of a batch is
/// [`MAGIC`], which may be the changed part, so two ends are tried.
fn correct_batch(bytes: &mut [u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let is_end = |end: &usize| rest.get(..*end).is_some_and(|part| part.ends_with(&MAGIC));
    let ends: Vec<usize> = (1..=rest.len()).filter(is_end).take(2).chain([rest.len()]).collect();
    let is_right = |part: &[u8]| batch(part).is_some_and(|(_, after)| after.is_empty() || batch(after).is_some());
    ends.into_iter().find_map(|end| correct_byte(bytes.get_mut(at..at + end)?, is_right)).map(|byte| at + byte)
}

fn lacks(path: &Path, missing: &str, at: usize) -> StoreError {
    StoreError::Damaged(format!("`{}` or the journal before it lacks {missing}, from byte {at}", path.display()))
}

fn truncate(path: &Path, end: usize) -> std::io::Result<()> {
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
    /// The number that fjall gave the batch, which the batch's checksum does not cover. If the
    /// number were too low, older rows would win over the rows of this batch.
    seqno: u64,
    /// True if the batch empties a keyspace. No row has its number then, so after a restart fjall may
    /// give the number to the next batch too.
    is_clear: bool,
    /// The value of [`SEQUENCE`] in the batch; `None` if the batch has none.
    sequence: Option<u64>,
}

/// Both numbers of the newest batch read so far.
#[derive(Default)]
struct Last {
    seqno: Option<u64>,
    sequence: Option<u64>,
}

impl Last {
    /// Returns the numbers after `batch`, which must be the next one in the journal; `None` if a
    /// batch before it is missing.
    fn advance(&self, batch: &Batch) -> Option<Self> {
        let newer = self.seqno.is_none_or(|seqno| batch.seqno > seqno);
        let next = match (self.sequence, batch.sequence) {
            (Some(last), Some(next)) => last.checked_add(1) == Some(next),
            _ => true,
        };
        if batch.is_clear {
            return Some(Self { ..*self });
        }
        (newer && next).then(|| Self { seqno: Some(batch.seqno), sequence: batch.sequence.or(self.sequence) })
    }
}

/// Reads the first batch of a journal's bytes. Returns the batch and the bytes after it; `None` if
/// the bytes do not begin with a complete batch.
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
    let is_clear = body.first() == Some(&CLEAR);
    reader.tag(END)?;
    let checksum = u64::from_le_bytes(reader.array()?);
    let whole = reader.array() == Some(MAGIC) && checksum == xxh3_64(body);
    whole.then_some((Batch { seqno, is_clear, sequence }, reader.0))
}

/// Skips one item of a batch; `None` if the item is incomplete. If the item is the row
/// [`SEQUENCE`], the inner value is the sequence number, else `None`.
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

    /// Returns a journal that fjall wrote, and the offset of each batch in it.
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

    /// Returns the concatenated bytes of these journals after [`recover`].
    fn recovered(journals: &[&[u8]], acknowledged: u64) -> Result<Vec<u8>, StoreError> {
        let dir = TempDir::new().unwrap();
        let path = |id| dir.path().join(format!("{id}.jnl"));
        journals.iter().zip(9..).for_each(|(bytes, id)| std::fs::write(path(id), bytes).unwrap());
        recover(dir.path(), acknowledged)?;
        Ok(journals.iter().zip(9..).flat_map(|(_, id)| std::fs::read(path(id)).unwrap()).collect())
    }

    #[test]
    fn whole_journals_are_left_unchanged() {
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
    fn a_changed_acknowledged_byte_is_damage() {
        let (bytes, begins) = journal();
        // fjall's number of a batch must be between those of the batches before and after it. No
        // batch follows the last one, so a change of its number may go unnoticed.
        let unchecked = |at: &usize| (begins[4] + 5..begins[4] + 13).contains(at);
        // Bytes of the first batch are not changed here. A journal without a valid first batch
        // looks like a new journal, which another check of the store detects.
        for at in (begins[1]..bytes.len()).filter(|at| !unchecked(at)) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(matches!(recovered(&[&flipped], BATCHES), Err(StoreError::Damaged(_))), "byte {at}");
        }
    }

    #[test]
    fn s12_a_changed_byte_of_a_batch_is_corrected() {
        let (bytes, begins) = journal();
        assert!(correct(&mut bytes.clone()).is_empty());
        // Each place takes a search of its batch, so not every place is tried.
        for at in (0..bytes.len()).step_by(37) {
            let begin = *begins.iter().rfind(|begin| **begin <= at).unwrap();
            // The checksum of a batch does not cover its number.
            if (begin + 5..begin + 13).contains(&at) {
                continue;
            }
            let mut changed = bytes.clone();
            changed[at] ^= 0x41;
            assert_eq!(correct(&mut changed), [at]);
            assert!(changed == bytes, "byte {at}");
        }
        let mut changed = bytes.clone();
        changed[begins[2] + 40] ^= 1;
        changed[begins[2] + 41] ^= 1;
        assert!(correct(&mut changed).is_empty());
    }

    #[test]
    fn a_missing_acknowledged_batch_is_damage() {
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
    fn an_unacknowledged_tail_is_truncated() {
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
