//! The watermark of acknowledged writes: the sequence number of the last batch that is durable, in
//! the file `acknowledged` beside the journal.
//!
//! A journal that has lost its end looks like a shorter journal, and only the watermark shows the
//! loss. The watermark is written after a batch is durable, and is not synced. So after a power cut
//! it may be lower than the journal's last number, but never higher.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

/// The name of the file in the data directory.
pub(super) const FILE: &str = "acknowledged";

/// The open file with the sequence number of the last acknowledged batch and a checksum of the
/// number.
pub(super) struct AckWatermark {
    file: File,
    sequence: AtomicU64,
    is_known: bool,
}

impl AckWatermark {
    /// Opens the watermark file of a data directory, and creates an empty one if it is missing.
    ///
    /// # Errors
    /// The file can't be opened or read.
    pub(super) fn open(dir: &Path) -> std::io::Result<Self> {
        let path = dir.join(FILE);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let sequence = read(&bytes);
        if sequence.is_none() && !bytes.is_empty() {
            // The watermark only detects a loss of data, so an invalid watermark file does not stop
            // the server.
            tracing::warn!(path = %path.display(), "the file is not valid: it is written again when the store is open");
        }
        Ok(Self { file, sequence: AtomicU64::new(sequence.unwrap_or(0)), is_known: sequence.is_some() })
    }

    /// Writes the file of a store that was found to be complete up to this number.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn begin(&self, sequence: u64) -> std::io::Result<()> {
        if self.is_known {
            return self.raise(sequence);
        }
        self.file.set_len(0)?;
        self.raise(sequence)?;
        self.file.sync_all()
    }

    /// Returns the number that the file had when it was opened; `None` if it had no valid one.
    pub(super) fn known(&self) -> Option<u64> {
        self.is_known.then(|| self.sequence())
    }

    /// Returns the sequence number of the last acknowledged batch.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// Sets the watermark to the sequence number of a batch that is durable.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn raise(&self, sequence: u64) -> std::io::Result<()> {
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
