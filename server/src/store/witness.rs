//! How much has been acknowledged, kept beside the journal: a number in a file of its own.
//!
//! A journal can't tell that its end is missing. The number is written after each group is durable and is never synced
//! by itself, so it may be behind after a power cut, and is never ahead.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

/// The file with the number of the last acknowledged group.
pub(super) struct Witness {
    file: File,
    sequence: AtomicU64,
}

impl Witness {
    /// Opens the file, made where it is missing.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn open(dir: &Path) -> std::io::Result<Self> {
        let path = dir.join("acknowledged");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let sequence = read(&bytes);
        if sequence.is_none() && !bytes.is_empty() {
            // Nothing is lost with it but the means to notice a loss.
            tracing::warn!(path = %path.display(), "the file can't be read and is written anew");
        }
        let witness = Self { file, sequence: AtomicU64::new(sequence.unwrap_or(0)) };
        if sequence.is_none() {
            witness.file.set_len(0)?;
            witness.write(0)?;
            witness.file.sync_all()?;
        }
        Ok(witness)
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// Notes that a group is durable.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn write(&self, sequence: u64) -> std::io::Result<()> {
        let number = sequence.to_be_bytes();
        self.file.write_all_at(&[number, xxh3_64(&number).to_be_bytes()].concat(), 0)?;
        self.sequence.store(sequence, Ordering::Relaxed);
        Ok(())
    }
}

fn read(bytes: &[u8]) -> Option<u64> {
    let (number, checksum) = bytes.split_first_chunk()?;
    (checksum == xxh3_64(number).to_be_bytes()).then(|| u64::from_be_bytes(*number))
}
