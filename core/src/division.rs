//! The division of a lock into slots, for asks that share the lock (K13).
//!
//! Each slot is a lock of its own, with its own row, holder and fence. So a holder's death, an operator
//! and a cleanup concern one slot, by the rules of any lock. The lock itself keeps which slots are
//! taken, and the one queue of all asks.
//!
//! ```
//! use std::num::NonZeroU32;
//!
//! use leasehold_core::division::{Division, ShareMode};
//!
//! let mut division = Division::new(ShareMode::permits(2).unwrap());
//! assert_eq!((division.take(), division.take(), division.take()), (Some(1), Some(2), None));
//! division.give_back(1);
//! assert_eq!((division.taken(), division.take()), (1, Some(1)));
//! assert_eq!(ShareMode::permits(2), Ok(ShareMode::Permits(NonZeroU32::new(2).unwrap())));
//! ```

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::rejection::{Detail, Reason, Rejection};
use crate::session::check_limit;

/// The largest number of slots of a lock: of permits, and of shared holds at a time (K21).
pub const MAX_SLOTS: u32 = 256;

/// The way in which an ask shares its lock with other asks of the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ShareMode {
    /// The ask shares the lock with all other shared asks, as readers do.
    Shared,
    /// The ask wants one of this many permits.
    Permits(NonZeroU32),
}

impl ShareMode {
    /// Parses the way in which an ask shares its lock: as readers do, or as one of a number of permits. `None`
    /// if it wants the lock alone, because `shared` is false and `permits` is 0.
    ///
    /// # Errors
    /// Both are set, or the number is above [`MAX_SLOTS`] (K21).
    pub fn parse(shared: bool, permits: u32) -> Result<Option<Self>, Rejection> {
        match (shared, permits) {
            (false, 0) => Ok(None),
            (true, 0) => Ok(Some(Self::Shared)),
            (false, permits) => Self::permits(permits).map(Some),
            (true, _) => Err(Rejection::whole(
                Reason::InvalidUpdate,
                Detail::Form("both `shared` and `permits` are set: set one"),
            )),
        }
    }

    /// Parses a number of permits.
    ///
    /// # Errors
    /// The number is 0 or above [`MAX_SLOTS`] (K21).
    pub fn permits(permits: u32) -> Result<Self, Rejection> {
        check_limit("permits", MAX_SLOTS.into(), permits.into())?;
        let permits = NonZeroU32::new(permits);
        permits.map(Self::Permits).ok_or(Rejection::whole(Reason::InvalidUpdate, Detail::Form("`permits` is 0")))
    }

    /// Returns the number that stands for the way in stores and messages: 0 for shared asks, else the number
    /// of permits.
    pub fn number(self) -> u16 {
        match self {
            Self::Shared => 0,
            Self::Permits(permits) => u16::try_from(permits.get()).unwrap_or(u16::MAX),
        }
    }

    /// Parses the number of [`number`](Self::number).
    ///
    /// # Errors
    /// The number is above [`MAX_SLOTS`] (K21).
    pub fn numbered(number: u16) -> Result<Self, Rejection> {
        if number == 0 { Ok(Self::Shared) } else { Self::permits(number.into()) }
    }

    /// Returns the number of slots of a lock that is shared in this way.
    pub fn slots(self) -> u32 {
        match self {
            Self::Shared => MAX_SLOTS,
            Self::Permits(permits) => permits.get().min(MAX_SLOTS),
        }
    }
}

/// The number of bits in a word of [`Division`].
const WORD: u32 = u64::BITS;

/// The slots of a lock that is shared. Slots have the numbers from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Division {
    /// The way in which the lock is shared.
    pub share: ShareMode,
    taken: [u64; 4],
}

impl Division {
    /// Returns a division without a taken slot.
    pub fn new(share: ShareMode) -> Self {
        Self { share, taken: Default::default() }
    }

    /// Returns the division with these taken slots, as [`words`](Self::words) returned them; `None` if one of
    /// them is no slot of a lock that is shared in this way, or none is taken.
    pub fn from_words(share: ShareMode, taken: [u64; 4]) -> Option<Self> {
        let division = Self { share, taken };
        let is_fit = division.slots().all(|slot| slot <= share.slots()) && division.taken() > 0;
        is_fit.then_some(division)
    }

    /// Returns the taken slots as bits: the lowest bit of the first word is slot 1.
    pub fn words(&self) -> [u64; 4] {
        self.taken
    }

    /// Takes the first free slot, and returns its number; `None` if none is free.
    pub fn take(&mut self) -> Option<u32> {
        let slot = self.free()?;
        self.set(slot, true);
        Some(slot)
    }

    /// Returns the number of the first free slot; `None` if none is free.
    pub fn free(&self) -> Option<u32> {
        (1..=self.share.slots()).find(|slot| !self.is_taken(*slot))
    }

    /// Notes that a slot is free.
    pub fn give_back(&mut self, slot: u32) {
        self.set(slot, false);
    }

    /// Notes that a slot is taken.
    pub fn mark(&mut self, slot: u32) {
        self.set(slot, true);
    }

    /// True if a slot is taken.
    pub fn is_taken(&self, slot: u32) -> bool {
        let (word, bit) = place(slot);
        self.taken.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Returns the number of taken slots.
    pub fn taken(&self) -> u32 {
        self.taken.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the numbers of the taken slots.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (1..=MAX_SLOTS).filter(|slot| self.is_taken(*slot))
    }

    fn set(&mut self, slot: u32, is_taken: bool) {
        let (word, bit) = place(slot);
        if let Some(word) = self.taken.get_mut(word) {
            *word = if is_taken { *word | bit } else { *word & !bit };
        }
    }
}

/// Returns the word and the bit of a slot. A slot that no lock has lies behind the last word.
fn place(slot: u32) -> (usize, u64) {
    let index = slot.wrapping_sub(1);
    ((index / WORD) as usize, 1 << (index % WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k13_as_many_slots_are_taken_as_there_are() {
        let mut shared = Division::new(ShareMode::Shared);
        let taken: Vec<_> = std::iter::from_fn(|| shared.take()).collect();
        assert_eq!(taken, (1..=MAX_SLOTS).collect::<Vec<_>>());
        assert_eq!((shared.taken(), shared.slots().count()), (MAX_SLOTS, MAX_SLOTS as usize));
        [64, 65, MAX_SLOTS].into_iter().for_each(|slot| shared.give_back(slot));
        assert_eq!((shared.take(), shared.take(), shared.taken()), (Some(64), Some(65), MAX_SLOTS - 1));
        // Numbers of no slot change nothing.
        [0, MAX_SLOTS + 1].into_iter().for_each(|slot| shared.give_back(slot));
        assert_eq!((shared.taken(), shared.is_taken(0)), (MAX_SLOTS - 1, false));
    }

    #[test]
    fn k21_the_number_of_permits_is_bounded() {
        assert!(ShareMode::permits(0).is_err() && ShareMode::permits(MAX_SLOTS + 1).is_err());
        assert_eq!(ShareMode::permits(MAX_SLOTS).map(ShareMode::slots), Ok(MAX_SLOTS));
    }
}
