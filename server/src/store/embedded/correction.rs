//! Corrects a changed byte in a file of the store.
//!
//! fjall keeps a checksum of 128 bits with each block of a table and with each manifest, and one of
//! 64 bits with each batch of a journal. If one byte has changed, a search over all places and
//! values finds the byte with which the checksum is right again. A wrong correction would need a
//! collision of the checksum. So the corrected data is the data that was written.
//!
//! | file | parts with a checksum |
//! |---|---|
//! | `keyspaces/N/tables/N` | blocks, each with a header; a table of contents with a trailer |
//! | `keyspaces/N/vN` | the manifest, whose checksum is in `current` |
//! | `N.jnl` | batches |
//! | `version` | the whole file, which always has the same bytes |

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use super::search::Search;
use super::{journal, manifest, row_sums};

/// The longest part in which the search tries all values of a byte. In a longer one it tries each
/// bit.
pub(super) const ALL_VALUES_BYTES: usize = 8 * 1024;
/// The longest part that is searched. The time grows with the square of the length.
const SEARCHED_BYTES: usize = 256 * 1024;

/// The header of a block: a magic number, a type, the checksum and length of the data, the length
/// before compression, and a checksum of the header (lsm-tree 3.1, `src/table/block/header.rs`).
const HEADER_BYTES: usize = 33;
const BLOCK_MAGIC: [u8; 4] = *b"LSM\x03";
/// The trailer of a table: a magic number and two bytes, the checksum, position and length of the
/// table of contents (sfa 1.0, `src/trailer/writer.rs`).
const TRAILER_BYTES: usize = 38;
/// The checksum of the table of contents in the trailer.
const TRAILER_SUM: Range<usize> = 6..22;
const TRAILER_START: [u8; 6] = *b"SFA!\x01\x00";
const CONTENTS_MAGIC: [u8; 4] = *b"TOC!";
/// The content of fjall's file `version` (fjall 3.1, `src/version.rs`).
const VERSION: [u8; 4] = *b"FJL\x03";
const VERSION_FILE: &str = "version";
/// A number that no version of fjall will have soon.
const NEWEST_VERSION: u8 = 16;

/// A byte that had changed and was written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrectedByte {
    /// The file.
    pub path: PathBuf,
    /// The place of the byte in the file.
    pub at: usize,
}

/// Searches all files of the database folder for changed bytes, and writes the right ones. The
/// caller must have locked the database. `acknowledged` is the watermark of acknowledged writes, if
/// it is known.
///
/// # Errors
/// A file can't be read or written.
pub(super) fn correct(database: &Path, acknowledged: Option<u64>, search: &mut Search) -> Result<Vec<CorrectedByte>> {
    let mut corrected = Vec::new();
    for keyspace in entries(&database.join("keyspaces"))? {
        corrected.extend(correct_manifest(&keyspace, search)?);
        for table in entries(&keyspace.join("tables"))? {
            corrected.extend(correct_file(&table, search, correct_table)?);
        }
    }
    for file in entries(database)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "jnl")) {
        corrected.extend(correct_file(&file, search, |bytes, search| journal::correct(bytes, acknowledged, search))?);
    }
    corrected.extend(correct_version(database)?);
    Ok(corrected)
}

/// True if fjall's file `version` is the one that was written.
pub(super) fn is_version_right(database: &Path) -> Result<bool> {
    match std::fs::read(database.join(VERSION_FILE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        version => Ok(version?.starts_with(&VERSION)),
    }
}

/// Writes the file `version` again if it is missing or one byte of it has changed. A last byte that
/// may be the number of another version stays, unless one bit differs.
fn correct_version(database: &Path) -> Result<Option<CorrectedByte>> {
    let path = database.join(VERSION_FILE);
    let found = if path.exists() { std::fs::read(&path)? } else { Vec::new() };
    let differing = || VERSION.iter().zip(&found).enumerate().filter(|(_, (right, found))| right != found);
    let is_damaged = match (found.len(), differing().count(), differing().next()) {
        (0, ..) => true,
        (4, 1, Some((3, (right, found)))) => (right ^ found).count_ones() == 1 || *found > NEWEST_VERSION,
        (4, 1, Some(_)) => true,
        _ => false,
    };
    let at = differing().next().map_or(0, |(at, _)| at);
    if !is_damaged || !entries(&database.join("keyspaces"))?.iter().any(|keyspace| keyspace.join("current").exists()) {
        return Ok(None);
    }
    let mut file = File::create(&path)?;
    file.write_all(&VERSION)?;
    file.sync_all()?;
    File::open(database)?.sync_all()?;
    Ok(Some(CorrectedByte { path, at }))
}

/// Returns the paths in a directory; none if it does not exist.
pub(super) fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

/// Corrects the bytes of a file, and writes those that `correct` has changed. `correct` returns
/// their places.
fn correct_file(
    path: &Path,
    search: &mut Search,
    correct: impl FnOnce(&mut [u8], &mut Search) -> Vec<usize>,
) -> Result<Vec<CorrectedByte>> {
    let mut bytes = std::fs::read(path)?;
    search.enter(path);
    let places = correct(&mut bytes, search);
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let file = OpenOptions::new().write(true).open(path)?;
    for at in &places {
        if let Some(byte) = bytes.get(*at) {
            file.write_all_at(&[*byte], *at as u64)?;
        }
    }
    file.sync_all()?;
    Ok(places.into_iter().map(|at| CorrectedByte { path: path.to_owned(), at }).collect())
}

/// Changes the one byte with which `is_right` accepts the part, and returns its place. `None` if
/// there is no such byte, if the part is too long to be searched, or if the search is at its bound.
pub(super) fn correct_byte(part: &mut [u8], search: &mut Search, is_right: impl Fn(&[u8]) -> bool) -> Option<usize> {
    if part.len() > SEARCHED_BYTES {
        return None;
    }
    let bits = (0..8).map(|bit| 1 << bit);
    let masks: Vec<u8> = if part.len() > ALL_VALUES_BYTES { bits.collect() } else { (1..=u8::MAX).collect() };
    for at in 0..part.len() {
        let byte = *part.get(at)?;
        if !search.goes_on(at, part.len()) {
            return None;
        }
        for mask in &masks {
            *part.get_mut(at)? = byte ^ mask;
            if is_right(part) {
                return Some(at);
            }
        }
        *part.get_mut(at)? = byte;
    }
    None
}

/// Corrects a keyspace's newest manifest, or the file `current`, which has its number and checksum.
fn correct_manifest(keyspace: &Path, search: &mut Search) -> Result<Vec<CorrectedByte>> {
    let path = keyspace.join("current");
    let Ok(current) = std::fs::read(&path) else { return Ok(Vec::new()) };
    let file_of = |version| keyspace.join(format!("v{version}"));
    let is_right = |current: &[u8]| {
        manifest::parse(current)
            .is_some_and(|(version, sum)| std::fs::read(file_of(version)).is_ok_and(|bytes| xxh3_128(&bytes) == sum))
    };
    if is_right(&current) {
        return Ok(Vec::new());
    }
    let corrected = correct_file(&path, search, |bytes, search| Vec::from_iter(correct_byte(bytes, search, is_right)))?;
    match manifest::parse(&current) {
        Some((version, sum)) if corrected.is_empty() && file_of(version).is_file() => {
            correct_file(&file_of(version), search, |bytes, search| {
                Vec::from_iter(correct_byte(bytes, search, |bytes| xxh3_128(bytes) == sum))
            })
        }
        _ => Ok(corrected),
    }
}

/// Returns the checksum and length of a block's data; `None` if the bytes begin with no header.
fn read_header(bytes: &[u8]) -> Option<(u128, usize)> {
    let (header, checksum) = bytes.get(..HEADER_BYTES)?.split_last_chunk::<4>()?;
    let is_right = header.starts_with(&BLOCK_MAGIC) && (xxh3_128(header) as u32).to_le_bytes() == *checksum;
    let (sum, lengths) = header.get(5..)?.split_first_chunk()?;
    let (length, _) = lengths.split_first_chunk()?;
    is_right.then_some((u128::from_le_bytes(*sum), usize::try_from(u32::from_le_bytes(*length)).ok()?))
}

/// Corrects the blocks of a table, and then its table of contents. Stops at the first header that
/// can't be corrected. Returns the places of the changed bytes.
fn correct_table(bytes: &mut [u8], search: &mut Search) -> Vec<usize> {
    let (mut at, mut changed) = (0, Vec::new());
    while let Some(block) = next_block(bytes, at, search, &mut changed) {
        at = block;
    }
    changed.extend(correct_contents(bytes, at, search));
    changed
}

/// Corrects the block at a place, and returns the place after it; `None` if there is no block.
fn next_block(bytes: &mut [u8], at: usize, search: &mut Search, changed: &mut Vec<usize>) -> Option<usize> {
    // A section of one byte, the version, is between two blocks.
    let found = [at, at + 1].into_iter().find(|at| bytes.get(*at..).and_then(read_header).is_some());
    let at = match found {
        Some(at) => at,
        None => {
            let (start, byte) =
                [at, at + 1].into_iter().find_map(|at| Some((at, correct_header(bytes, at, search)?)))?;
            changed.push(start + byte);
            start
        }
    };
    let (sum, length) = read_header(bytes.get(at..)?)?;
    let start = at + HEADER_BYTES;
    let data = bytes.get_mut(start..start.checked_add(length)?)?;
    if xxh3_128(data) != sum {
        let is_right = |data: &[u8]| xxh3_128(data) == sum;
        let corrected = row_sums::correct(data, search, is_right);
        changed.extend(corrected.unwrap_or_else(|| correct_byte(data, search, is_right)).map(|byte| start + byte));
    }
    Some(start + length)
}

/// Corrects the header at a place, if the data after it is intact. Returns the byte's place in the
/// header.
fn correct_header(bytes: &mut [u8], at: usize, search: &mut Search) -> Option<usize> {
    let (header, data) = bytes.get_mut(at..)?.split_at_mut_checked(HEADER_BYTES)?;
    if header.starts_with(&CONTENTS_MAGIC) {
        return None;
    }
    correct_byte(header, search, |header| {
        read_header(header).is_some_and(|(sum, length)| data.get(..length).is_some_and(|data| xxh3_128(data) == sum))
    })
}

/// Corrects the table of contents at a place, or the trailer after it.
fn correct_contents(bytes: &mut [u8], at: usize, search: &mut Search) -> Option<usize> {
    let end = bytes.len().checked_sub(TRAILER_BYTES)?;
    let (contents, trailer) = bytes.get_mut(at..)?.split_at_mut_checked(end.checked_sub(at)?)?;
    let trailer_of = |contents: &[u8]| {
        let [position, length] = [at, contents.len()].map(|number| (number as u64).to_le_bytes());
        [&TRAILER_START[..], &xxh3_128(contents).to_le_bytes(), &position, &length].concat()
    };
    let expected = trailer_of(contents);
    let differing = || trailer.iter().zip(&expected).enumerate().filter(|(_, (found, right))| found != right);
    match differing().count() {
        0 => None,
        1 => {
            let place = differing().next().map(|(place, _)| place)?;
            trailer.copy_from_slice(&expected);
            Some(end + place)
        }
        // The contents decide only the checksum. A table that was never written whole has no trailer at all, and a
        // search would be in vain.
        _ if differing().any(|(place, _)| !TRAILER_SUM.contains(&place)) => None,
        _ => correct_byte(contents, search, |contents| trailer_of(contents) == *trailer).map(|byte| at + byte),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at what it does not expect")]

    use std::collections::BTreeMap;

    use fjall::{Database, KeyspaceCreateOptions, PersistMode};
    use tempfile::TempDir;

    use super::*;

    /// Returns a database with a table, and the files whose bytes have checksums.
    fn database() -> (TempDir, BTreeMap<PathBuf, Vec<u8>>) {
        let dir = TempDir::new().unwrap();
        let database = Database::builder(dir.path()).open().unwrap();
        let keyspace = database.keyspace("rows", KeyspaceCreateOptions::default).unwrap();
        (0..100).for_each(|row| keyspace.insert(format!("row {row}"), [7; 100]).unwrap());
        keyspace.rotate_memtable_and_wait().unwrap();
        let mut batch = database.batch().durability(Some(PersistMode::SyncAll));
        (0..3).for_each(|row| batch.insert(&keyspace, format!("late {row}"), [8; 30]));
        batch.commit().unwrap();
        let folder = keyspace.path().to_owned();
        drop((keyspace, database));
        let number = |path: &Path| path.file_name().unwrap().to_str().unwrap().trim_start_matches('v').to_owned();
        let version = manifest::parse(&std::fs::read(folder.join("current")).unwrap()).unwrap().0;
        let mut files = entries(&folder.join("tables")).unwrap();
        files.extend([folder.join("current"), folder.join(format!("v{version}"))]);
        files.sort_by_key(|path| number(path));
        (dir, files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect())
    }

    fn correct_all(database: &Path) -> Vec<CorrectedByte> {
        correct(database, Some(0), &mut Search::of_command()).unwrap()
    }

    #[test]
    fn s12_the_file_of_the_version_is_written_again() {
        let (dir, _) = database();
        let path = dir.path().join(VERSION_FILE);
        assert!(is_version_right(dir.path()).unwrap());
        for (at, mask) in
            (0..3).flat_map(|at| [(at, 1), (at, 0xff)]).chain((0..8).map(|bit| (3, 1 << bit))).chain([(3, 0xff)])
        {
            let mut changed = VERSION;
            changed[at] ^= mask;
            std::fs::write(&path, changed).unwrap();
            assert!(!is_version_right(dir.path()).unwrap());
            assert_eq!(correct_all(dir.path()), [CorrectedByte { path: path.clone(), at }]);
            assert!(is_version_right(dir.path()).unwrap());
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(correct_all(dir.path()).len(), 1);
        assert!(is_version_right(dir.path()).unwrap());
        for other in [*b"FJL\x04", *b"XXL\x03"] {
            std::fs::write(&path, other).unwrap();
            assert!(correct_all(dir.path()).is_empty());
        }
    }

    /// A search at its bound changes nothing and says that it was cut.
    #[test]
    fn s12_a_search_ends_at_its_bound() {
        let mut part = [7; 1000];
        let mut search = Search::of_start();
        assert_eq!(correct_byte(&mut part, &mut search, |part| part[999] == 8), Some(999));
        assert!(!search.is_cut());
        search.end_now();
        assert_eq!(correct_byte(&mut part, &mut search, |part| part[999] == 7), None);
        assert!(search.is_cut() && part[999] == 8);
    }

    #[test]
    fn s12_a_changed_byte_of_a_table_or_manifest_is_corrected() {
        let (dir, files) = database();
        assert!(correct_all(dir.path()).is_empty() && files.len() == 3);
        for (path, whole) in files {
            let is_table = path.parent().unwrap().ends_with("tables");
            // The byte of the section `table_version` has no checksum, and lsm-tree does not read it.
            let unread = |at: usize| is_table && at > 0 && whole[at] == 3 && whole[at + 1..].starts_with(&BLOCK_MAGIC);
            // A search takes long in a debug build, so not every place is tried: some of each part.
            let end = whole.len().saturating_sub(60);
            for at in (0..end).step_by(whole.len() / 8 + 1).chain((end..whole.len()).step_by(9)) {
                let mut changed = whole.clone();
                changed[at] ^= 0x41;
                if unread(at) {
                    continue;
                }
                std::fs::write(&path, &changed).unwrap();
                let corrected = correct_all(dir.path());
                assert_eq!(corrected, [CorrectedByte { path: path.clone(), at }]);
                assert!(std::fs::read(&path).unwrap() == whole, "byte {at} of {}", path.display());
            }
        }
    }

    /// A full disk or a crash leaves the first part of a table, of which fjall knows nothing yet. A search would take
    /// up to its bound.
    #[test]
    fn s12_a_table_that_was_not_written_whole_is_not_searched() {
        let (_dir, files) = database();
        let (_, whole) = files.iter().find(|(path, _)| path.parent().unwrap().ends_with("tables")).unwrap();
        for length in 0..whole.len() {
            let mut search = Search::of_start();
            assert!(correct_table(&mut whole[..length].to_vec(), &mut search).is_empty());
            assert!(search.longest_part <= HEADER_BYTES, "the first {length} bytes are searched");
        }
    }

    #[test]
    fn more_changed_bytes_of_a_block_are_left_alone() {
        let (dir, files) = database();
        for (path, whole) in files {
            let mut changed = whole.clone();
            changed[whole.len() / 3] ^= 1;
            changed[whole.len() / 3 + 1] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert!(correct_all(dir.path()).is_empty());
            assert!(std::fs::read(&path).unwrap() == changed);
            std::fs::write(&path, &whole).unwrap();
        }
    }
}
