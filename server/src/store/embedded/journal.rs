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

use super::correction::{self, correct_byte};
use super::directories::{create_private, sync};
use super::pieces;
use super::search::Search;
use crate::store::error::StoreError;

/// The key of the sequence number in the keyspace `meta`. Each batch increases the number by one.
pub(super) const SEQUENCE: &str = "sequence";

pub(super) const START: u8 = 1;
pub(super) const ITEM: u8 = 2;
pub(super) const END: u8 = 3;
const CLEAR: u8 = 4;
const MAGIC: [u8; 4] = *b"FJL\x03";
/// The largest step from fjall's number of a batch to that of the next one. fjall counts its own
/// flushes and compactions too, which are few between two batches.
const LARGEST_STEP: u64 = 4096;
/// More than fjall can have counted: a million a second for eight years.
const NUMBERS: u64 = 1 << 48;
/// The bytes before the items of a batch: a tag, and the numbers of the items and of the batch.
pub(super) const HEAD_BYTES: usize = 13;
/// The place of fjall's number in a batch.
pub(super) const NUMBER_AT: usize = 5;
/// The bytes after the items of a batch: a tag, the checksum, and the mark of its end.
pub(super) const TAIL_BYTES: usize = 13;

/// Checks all journals of the folder `dir` in order, and truncates the newest one after its last
/// complete batch. `acknowledged` is the watermark; `None` if its file was lost.
///
/// If no batch can be read, or the watermark is lost, nothing shows whether the newest journal ends
/// with a write that was cut short or with a damaged batch. Until the journals were searched for a
/// changed byte (`is_searched`), this is an error. Then the journal is truncated, and its bytes are
/// kept in the folder `kept` until [`forget_kept`], [`set_aside`] or [`put_back`]. Each batch is
/// synced before the next one is written. So a whole batch after the place shows that the batches
/// before it are damaged, which is always an error.
///
/// # Errors
/// A batch is missing, there are tables and no journal, or a file can't be read or written.
pub(super) fn recover(dir: &Path, kept: &Path, acknowledged: Option<u64>, is_searched: bool) -> Result<(), StoreError> {
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
        newest = Some((path, bytes.len() - rest.len(), rest.to_vec()));
    }
    let Some((path, end, rest)) = newest else {
        // fjall makes the journal first, so tables without one are not those of a new database.
        return match has_tables(dir).map_err(|error| failed(dir, error))? {
            true => Err(StoreError::JournalDamaged(format!("`{}` has tables and no journal", dir.display()))),
            false => Ok(()),
        };
    };
    // The watermark is not synced, so it may be older than the journal.
    if has_whole_batch(&rest) {
        return Err(lacks(&path, "a batch", end));
    }
    let has_rest = rest.iter().any(|byte| *byte != 0);
    let is_unclear = match (last.sequence, acknowledged) {
        (Some(last), Some(acknowledged)) if last < acknowledged => {
            return Err(lacks(&path, "the last acknowledged batch", end));
        }
        // A store without an acknowledged write may be left out.
        (Some(_), Some(_)) | (None, Some(0)) => false,
        (None, Some(_)) | (_, None) => has_rest,
    };
    if is_unclear && !is_searched {
        return Err(lacks(&path, "a batch", end));
    }
    if is_unclear {
        keep(&path, kept).map_err(|error| failed(&path, error))?;
    }
    // If a write was cut short, any part of it may have reached the disk. fjall does not accept
    // every such remainder, so it is removed here.
    truncate(&path, end).map_err(|error| failed(&path, error))
}

/// True if a keyspace of the database has a table.
fn has_tables(dir: &Path) -> std::io::Result<bool> {
    for keyspace in correction::entries(&dir.join("keyspaces"))? {
        if !correction::entries(&keyspace.join("tables"))?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if the bytes after an unreadable batch have a whole batch of this store.
fn has_whole_batch(rest: &[u8]) -> bool {
    let starts = rest.iter().enumerate().filter(|(_, byte)| **byte == START);
    let mut batches = starts.filter_map(|(at, _)| batch(rest.get(at..)?));
    batches.any(|(batch, _)| batch.sequence.is_some())
}

/// Keeps the bytes of a journal in a folder, before the journal is truncated.
fn keep(path: &Path, kept: &Path) -> std::io::Result<()> {
    create_private(kept)?;
    if let Some(name) = path.file_name() {
        let copy = kept.join(name);
        std::fs::copy(path, &copy)?;
        OpenOptions::new().write(true).open(copy)?.sync_all()?;
    }
    sync(kept)
}

/// Puts the journals back that an earlier start had kept, because it could not open the store.
///
/// # Errors
/// A file can't be moved.
pub(super) fn put_back(dir: &Path, kept: &Path) -> std::io::Result<()> {
    if !kept.is_dir() {
        return Ok(());
    }
    for path in journals(kept)?.into_values() {
        if let Some(name) = path.file_name() {
            std::fs::rename(&path, dir.join(name))?;
        }
    }
    sync(dir)?;
    forget_kept(kept)
}

/// Removes the journals that were kept, after the store has shown that it misses no write.
///
/// # Errors
/// The folder can't be removed.
pub(super) fn forget_kept(kept: &Path) -> std::io::Result<()> {
    if kept.is_dir() { std::fs::remove_dir_all(kept) } else { Ok(()) }
}

/// Moves the journals that were kept to another folder, for a person: without the watermark the store
/// can't show that it misses no write. Returns true if there were any.
///
/// # Errors
/// The folder can't be moved.
pub(super) fn set_aside(kept: &Path, to: &Path) -> std::io::Result<bool> {
    if !kept.is_dir() {
        return Ok(false);
    }
    std::fs::rename(kept, to)?;
    to.parent().map_or(Ok(()), sync)?;
    Ok(true)
}

/// Corrects the batches in which one byte has changed, and returns the places of these bytes.
/// `acknowledged` is the watermark: after it, a batch that can't be read and has no whole one behind
/// it is a write that was cut short, and is not searched.
pub(super) fn correct(bytes: &mut [u8], acknowledged: Option<u64>, search: &mut Search) -> Vec<usize> {
    let is_acknowledged = |last: u64| acknowledged.is_none_or(|acknowledged| acknowledged == 0 || last < acknowledged);
    let (mut at, mut last, mut changed) = (0, None, Vec::new());
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match batch(rest) {
            Some((batch, after)) => {
                last = batch.sequence.or(last);
                at += rest.len() - after.len();
            }
            None if last.is_some_and(|last| !is_acknowledged(last)) && !has_whole_batch(rest) => break,
            None => match correct_batch(bytes, at, search) {
                Some(byte) => changed.push(byte),
                None => break,
            },
        }
    }
    changed.extend(correct_numbers(bytes));
    changed
}

/// True if fjall's number of a batch may come after that of the batch before.
fn follows(seqno: u64, before: u64) -> bool {
    seqno.checked_sub(before).is_some_and(|step| (1..=LARGEST_STEP).contains(&step))
}

/// Corrects fjall's numbers of batches, which no checksum covers. A wrong number does not lie between
/// those of the batches before and after it, or is too far from one of them. Any number between them
/// has the same meaning, since only the order of the batches counts. Returns the places of the
/// changed bytes.
fn correct_numbers(bytes: &mut [u8]) -> Vec<usize> {
    let (mut numbers, mut rest) = (Vec::new(), &*bytes);
    while let Some((batch, after)) = batch(rest) {
        if !batch.is_clear {
            numbers.push((bytes.len() - rest.len() + NUMBER_AT, batch.seqno));
        }
        rest = after;
    }
    let (mut changed, mut before) = (Vec::new(), None::<u64>);
    for (index, (at, seqno)) in numbers.iter().enumerate() {
        let right = right_number(*seqno, before, next_number(&numbers, index));
        let written = bytes.get_mut(*at..).and_then(|number| number.first_chunk_mut::<8>());
        for (place, (byte, right)) in (*at..).zip(written.into_iter().flatten().zip(right.to_le_bytes())) {
            if *byte != right {
                *byte = right;
                changed.push(place);
            }
        }
        before = Some(right);
    }
    changed
}

/// Returns the number of the next batch, if it fits to that of the batch after it.
fn next_number(numbers: &[(usize, u64)], index: usize) -> Option<u64> {
    let number = |at: usize| numbers.get(at).map(|(_, seqno)| *seqno);
    let fits = |next: &u64| *next < NUMBERS && number(index + 2).is_none_or(|after| follows(after, *next));
    number(index + 1).filter(fits)
}

/// Returns the number of a batch, or one that may stand for it, by those of the batches before and
/// after it.
fn right_number(seqno: u64, before: Option<u64>, next: Option<u64>) -> u64 {
    match (before, next) {
        // The number after it is wrong, so the one before it decides.
        (Some(before), Some(next)) if next <= before => if_follows(seqno, before),
        (Some(before), Some(next)) if seqno >= next => before.saturating_add(1),
        (Some(before), _) => if_follows(seqno, before),
        (None, Some(next)) if !follows(next, seqno) => next.saturating_sub(1),
        (None, _) => seqno,
    }
}

fn if_follows(seqno: u64, before: u64) -> u64 {
    if follows(seqno, before) { seqno } else { before.saturating_add(1) }
}

/// Corrects the batch at a place, and returns the place of the changed byte. The lengths in a batch
/// tell its end, unless one of them has changed; then [`MAGIC`] tells it.
fn correct_batch(bytes: &mut [u8], at: usize, search: &mut Search) -> Option<usize> {
    let rest = bytes.get(at..)?;
    if rest.iter().all(|byte| *byte == 0) {
        return None;
    }
    let is_end = |end: &usize| rest.get(..*end).is_some_and(|part| part.ends_with(&MAGIC));
    let marked = (1..=rest.len()).filter(is_end).take(2);
    let by_lengths = end_by_lengths(rest);
    let ends: Vec<usize> = by_lengths.into_iter().chain(marked).chain([rest.len()]).collect();
    if let Some(byte) = by_lengths.and_then(|end| correct_tail(bytes.get_mut(at..at + end)?)) {
        return Some(at + byte);
    }
    if let Some(byte) = pieces::correct(bytes.get_mut(at..)?, search) {
        return Some(at + byte);
    }
    let is_right = |part: &[u8]| batch(part).is_some_and(|(_, after)| after.is_empty() || batch(after).is_some());
    ends.into_iter().find_map(|end| correct_byte(bytes.get_mut(at..at + end)?, search, is_right)).map(|byte| at + byte)
}

/// Corrects the last part of a batch: a tag, the checksum and the mark. This takes no search, because
/// the items tell what it must be.
fn correct_tail(batch: &mut [u8]) -> Option<usize> {
    let (items, tail) = batch.split_last_chunk_mut::<TAIL_BYTES>()?;
    let mut expected = vec![END];
    expected.extend(xxh3_64(items.get(HEAD_BYTES..)?).to_le_bytes());
    expected.extend(MAGIC);
    let differing = || tail.iter().zip(&expected).enumerate().filter(|(_, (found, right))| found != right);
    let (place, 1) = (differing().next()?.0, differing().count()) else { return None };
    tail.copy_from_slice(&expected);
    Some(items.len() + place)
}

/// Returns the length of the first batch, by the number and lengths of its items. The checksum and
/// the mark at its end may be wrong.
fn end_by_lengths(bytes: &[u8]) -> Option<usize> {
    let (head, items) = bytes.split_at_checked(HEAD_BYTES)?;
    let count = u32::from_le_bytes(head.get(1..)?.first_chunk().copied()?);
    let mut reader = Reader(items);
    for _ in 0..count {
        item(&mut reader)?;
    }
    reader.take(TAIL_BYTES)?;
    Some(bytes.len() - reader.0.len())
}

fn lacks(path: &Path, missing: &str, at: usize) -> StoreError {
    StoreError::JournalDamaged(format!("`{}` or the journal before it lacks {missing}, from byte {at}", path.display()))
}

fn truncate(path: &Path, end: usize) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(u64::try_from(end).unwrap_or(u64::MAX))?;
    file.sync_all()
}

/// Returns the journals of a folder, by their numbers.
pub(super) fn journals(dir: &Path) -> std::io::Result<BTreeMap<u64, PathBuf>> {
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

/// A batch of a journal: one entry, which is written as a whole.
pub(super) struct Batch {
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
pub(super) struct Last {
    seqno: Option<u64>,
    sequence: Option<u64>,
}

impl Last {
    /// Returns the numbers after `batch`, which must be the next one in the journal; `None` if a
    /// batch before it is missing.
    fn advance(&self, batch: &Batch) -> Option<Self> {
        let newer = batch.seqno < NUMBERS && self.seqno.is_none_or(|seqno| follows(batch.seqno, seqno));
        let next = match (self.sequence, batch.sequence) {
            (Some(last), Some(next)) => last.checked_add(1) == Some(next),
            _ => true,
        };
        if batch.is_clear {
            return Some(Self { ..*self });
        }
        (newer && next).then(|| Self { seqno: Some(batch.seqno), sequence: batch.sequence.or(self.sequence) })
    }

    pub(super) fn sequence(&self) -> Option<u64> {
        self.sequence
    }

    /// Goes on to a batch before which others may be missing, and returns their number; `None` if
    /// the batch can't come after this one.
    pub(super) fn pass(&mut self, batch: &Batch) -> Option<u64> {
        if batch.is_clear {
            return Some(0);
        }
        let is_newer = batch.seqno < NUMBERS && self.seqno.is_none_or(|seqno| batch.seqno > seqno);
        let steps = match (self.sequence, batch.sequence) {
            (Some(last), Some(next)) => next.checked_sub(last)?,
            _ => 1,
        };
        let missing = steps.checked_sub(1).filter(|_| is_newer)?;
        *self = Self { seqno: Some(batch.seqno), sequence: batch.sequence.or(self.sequence) };
        Some(missing)
    }

    fn is_before(&self, batch: &Batch) -> bool {
        batch.sequence.is_some() && Self { ..*self }.pass(batch).is_some()
    }
}

/// Returns the place of the next whole batch after a damaged one. The lengths in the damaged batch
/// tell it, unless one of them has changed.
pub(super) fn next_batch(rest: &[u8], last: &Last) -> Option<usize> {
    let starts = rest.iter().enumerate().skip(1).filter(|(_, byte)| **byte == START).map(|(at, _)| at);
    let is_next = |at: &usize| batch(rest.get(*at..)?).is_some_and(|(batch, _)| last.is_before(&batch)).then_some(());
    end_by_lengths(rest).into_iter().chain(starts).find(|at| is_next(at).is_some())
}

/// True if the bytes are a complete batch, and nothing else.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    batch(bytes).is_some_and(|(_, rest)| rest.is_empty())
}

/// Reads the first batch of a journal's bytes. Returns the batch and the bytes after it; `None` if
/// the bytes do not begin with a complete batch.
pub(super) fn batch(bytes: &[u8]) -> Option<(Batch, &[u8])> {
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
        recover(dir.path(), &dir.path().join("kept"), Some(acknowledged), false)?;
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
        // fjall's number of a batch must be between those of the batches before and after it. Small
        // changes of the first and last number may go unnoticed: the order is the same.
        let unchecked = |at: &usize| [begins[0], begins[4]].iter().any(|begin| (begin + 5..begin + 7).contains(at));
        for at in (0..bytes.len()).filter(|at| !unchecked(at)) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(matches!(recovered(&[&flipped], BATCHES), Err(StoreError::JournalDamaged(_))), "byte {at}");
        }
    }

    #[test]
    fn s12_a_changed_byte_of_a_batch_is_corrected() {
        let (bytes, begins) = journal();
        let correct = |bytes: &mut [u8]| correct(bytes, Some(BATCHES), &mut Search::of_command());
        assert!(correct(&mut bytes.clone()).is_empty());
        // Each place takes a search of its batch, so not every place is tried. The last four bytes
        // are the mark at the end of the last batch.
        for at in (0..bytes.len()).step_by(37).chain(bytes.len() - 4..bytes.len()) {
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

    /// After a power cut, the watermark may be older than the journal.
    #[test]
    fn s12_a_changed_byte_is_corrected_beyond_an_old_watermark() {
        let (bytes, begins) = journal();
        let mut changed = bytes.clone();
        changed[begins[3] + 50] ^= 1;
        assert_eq!(correct(&mut changed, Some(1), &mut Search::of_start()), [begins[3] + 50]);
        assert!(changed == bytes);
    }

    /// A write that was cut short is no changed byte.
    #[test]
    fn s12_an_unacknowledged_tail_is_not_searched() {
        let (bytes, begins) = journal();
        let mut torn = bytes[..begins[4] + 200].to_vec();
        let mut search = Search::of_start();
        search.end_now();
        assert!(correct(&mut torn, Some(BATCHES - 1), &mut search).is_empty() && !search.is_cut());
        assert!(correct(&mut torn, Some(BATCHES), &mut search).is_empty() && search.is_cut());
    }

    /// A journal of which no batch can be read is kept until the store has shown that no write is
    /// missing, and is put back if one is.
    #[test]
    fn s12_an_unreadable_journal_is_kept() {
        let (bytes, begins) = journal();
        let mut damaged = bytes[..begins[1]].to_vec();
        damaged[begins[1] - 30..begins[1] - 20].fill(0xff);
        let dir = TempDir::new().unwrap();
        let (path, kept) = (dir.path().join("0.jnl"), dir.path().join("kept"));
        std::fs::write(&path, &damaged).unwrap();
        for acknowledged in [Some(BATCHES), None] {
            check_kept(&path, &kept, acknowledged);
        }
    }

    /// Without the watermark too, a damaged batch before a whole one is no write that was cut short.
    #[test]
    fn s12_a_whole_batch_after_a_damaged_one_is_never_cut_off() {
        let (bytes, begins) = journal();
        let dir = TempDir::new().unwrap();
        let (path, kept) = (dir.path().join("0.jnl"), dir.path().join("kept"));
        for (begin, end) in begins.iter().zip(&begins[1..4]) {
            let mut damaged = bytes.clone();
            damaged[begin + 40..end + 20].fill(0);
            std::fs::write(&path, &damaged).unwrap();
            for acknowledged in [Some(BATCHES), Some(1), Some(0), None] {
                assert!(matches!(recover(dir.path(), &kept, acknowledged, true), Err(StoreError::JournalDamaged(_))));
                assert!(std::fs::read(&path).unwrap() == damaged && !kept.exists());
            }
        }
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        recover(dir.path(), &kept, None, true).unwrap();
        let aside = dir.path().join("aside");
        assert!(set_aside(&kept, &aside).unwrap() && !set_aside(&kept, &aside).unwrap());
        assert!(std::fs::read(aside.join("0.jnl")).unwrap() == bytes[..bytes.len() - 1]);
    }

    #[test]
    fn s12_tables_without_a_journal_are_damage() {
        let dir = TempDir::new().unwrap();
        let check = || recover(dir.path(), &dir.path().join("kept"), None, true);
        std::fs::create_dir_all(dir.path().join("keyspaces/1/tables")).unwrap();
        check().unwrap();
        std::fs::write(dir.path().join("keyspaces/1/tables/1"), "rows").unwrap();
        assert!(matches!(check(), Err(StoreError::JournalDamaged(_))));
    }

    fn check_kept(path: &Path, kept: &Path, acknowledged: Option<u64>) {
        let (dir, damaged) = (path.parent().unwrap(), std::fs::read(path).unwrap());
        assert!(matches!(recover(dir, kept, acknowledged, false), Err(StoreError::JournalDamaged(_))));
        assert!(std::fs::read(path).unwrap() == damaged);
        recover(dir, kept, acknowledged, true).unwrap();
        assert!(std::fs::read(path).unwrap().is_empty());
        put_back(dir, kept).unwrap();
        assert!(std::fs::read(path).unwrap() == damaged && !kept.exists());
        recover(dir, kept, acknowledged, true).unwrap();
        forget_kept(kept).unwrap();
        put_back(dir, kept).unwrap();
        assert!(std::fs::read(path).unwrap().is_empty());
        std::fs::write(path, &damaged).unwrap();
    }

    /// Each change of a number is corrected so that the order of the batches is as before. Changes by
    /// which the order stays may be left.
    #[test]
    fn s12_a_changed_number_of_a_batch_is_corrected() {
        let (bytes, begins) = journal();
        let mut corrected_numbers = 0;
        for begin in &begins[..5] {
            for (byte, bit) in (5..13).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
                let mut changed = bytes.clone();
                changed[begin + byte] ^= 1 << bit;
                let is_damage = matches!(recovered(&[&changed], BATCHES), Err(StoreError::JournalDamaged(_)));
                let places = correct(&mut changed, Some(BATCHES), &mut Search::of_start());
                assert_eq!(places.is_empty(), !is_damage, "bit {bit} of byte {byte} of the batch at {begin}");
                assert!(recovered(&[&changed], BATCHES).is_ok_and(|whole| whole == changed));
                corrected_numbers += usize::from(is_damage);
            }
        }
        assert!(corrected_numbers >= 5 * 64 - 2 * 12 - 10, "{corrected_numbers}");
    }

    #[test]
    fn a_missing_acknowledged_batch_is_damage() {
        let (bytes, begins) = journal();
        let lost = |journals: &[&[u8]]| matches!(recovered(journals, BATCHES), Err(StoreError::JournalDamaged(_)));
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
