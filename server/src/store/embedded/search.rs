//! The bound of a search for a changed byte, and its signs of progress.
//!
//! The time of a search grows with the square of a part's length. A part of 256 KiB takes up to a
//! minute, and a damaged store may have many parts. So a start ends its search at a bound. A person
//! who salvages a store may wait, and stops the command at will.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time for which a start searches.
pub(super) const SEARCH_TIME: Duration = Duration::from_secs(60);
const BETWEEN_SIGNS: Duration = Duration::from_secs(5);

/// A search for changed bytes in the files of a store.
pub(super) struct Search {
    until: Option<Instant>,
    next_sign: Instant,
    file: PathBuf,
    tell: fn(&Path, usize, usize),
    is_cut: bool,
    /// The length of the longest part that was searched.
    #[cfg(test)]
    pub(super) longest_part: usize,
}

impl Search {
    /// Begins the search of a start, which lasts at most [`SEARCH_TIME`].
    pub(super) fn of_start() -> Self {
        let tell = |file: &Path, byte, of| {
            tracing::info!(file = %file.display(), byte, of, "a changed byte is searched in a damaged part of the file");
        };
        Self::until(Instant::now().checked_add(SEARCH_TIME), tell)
    }

    /// Begins a search without a bound, and prints its progress to standard error.
    pub(super) fn of_command() -> Self {
        Self::until(None, |file, byte, of| {
            eprintln!("searching a changed byte in `{}`: {byte} of the {of} bytes of a damaged part", file.display());
        })
    }

    fn until(until: Option<Instant>, tell: fn(&Path, usize, usize)) -> Self {
        Self {
            until,
            next_sign: Instant::now() + BETWEEN_SIGNS,
            file: PathBuf::new(),
            tell,
            is_cut: false,
            #[cfg(test)]
            longest_part: 0,
        }
    }

    /// Names the file that is searched next.
    pub(super) fn enter(&mut self, file: &Path) {
        self.file = file.to_owned();
    }

    /// True if the search may go on, at byte `at` of a part of `length` bytes. Now and then tells
    /// the progress.
    pub(super) fn goes_on(&mut self, at: usize, length: usize) -> bool {
        #[cfg(test)]
        {
            self.longest_part = self.longest_part.max(length);
        }
        let now = Instant::now();
        if now >= self.next_sign {
            (self.tell)(&self.file, at, length);
            self.next_sign = now + BETWEEN_SIGNS;
        }
        self.is_cut = self.until.is_some_and(|until| now >= until);
        !self.is_cut
    }

    /// Moves the bound to this moment.
    #[cfg(test)]
    pub(super) fn end_now(&mut self) {
        self.until = Some(Instant::now());
    }

    /// True if the search ended at its bound.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }
}
