//! A server's wall clock that a test sets, by libfaketime (Debian's package `faketime`).

use std::path::{Path, PathBuf};

use anyhow::Result;
use xtask::cluster::faketime_library;

use crate::server::Builder;

/// The wall clock of a server, which a test sets while the server runs. The server's monotonic
/// clock stays right.
#[derive(Debug)]
pub struct FalseClock {
    library: PathBuf,
    file: PathBuf,
}

impl FalseClock {
    /// Makes a clock that is `ahead` seconds ahead of this machine's; below 0 it is behind. The
    /// clock's file is in `directory`, which must outlive the server.
    ///
    /// # Errors
    /// The library is not installed, or the file can't be written.
    pub fn new(directory: &Path, ahead: i64) -> Result<Self> {
        let clock = Self { library: faketime_library()?, file: directory.join("clock") };
        clock.set(ahead)?;
        Ok(clock)
    }

    /// Sets the clock `ahead` seconds ahead of this machine's. The server reads it within a second.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn set(&self, ahead: i64) -> Result<()> {
        // A rename replaces the file, because the server must not read half of the number.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{ahead:+}"))?;
        Ok(std::fs::rename(&new, &self.file)?)
    }

    /// Gives this clock to a server that is started.
    #[must_use]
    pub fn given_to(&self, server: Builder) -> Builder {
        let server = server.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", &self.file);
        server.env("FAKETIME_CACHE_DURATION", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }
}
