//! The check of a store's keys by this program's tables of Unicode: each key must still be the
//! canonical form of its claim's spelling.
//!
//! Newer tables should never change a form, because unassigned characters are refused. If they did,
//! a claim could not be found by its spelling, and another cell could claim the same name.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::Catalogue;

use super::error::StoreError;
use super::port::{NamePart, NamePlace, StoreReader};

/// The most claims that a part of the scan reads.
const PART_CLAIMS: usize = 500;

/// The result of a check. It has counts only, because no log or metric may have a name (V09).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormCheck {
    /// The number of records that were checked.
    pub checked: u64,
    /// The number of records of each bucket type whose key is not their canonical form.
    pub differing: BTreeMap<BucketType, u64>,
    /// The number of claims that could not be read.
    pub damaged: u64,
}

impl FormCheck {
    /// True if every claim was read, and every key is the canonical form.
    pub fn passes(&self) -> bool {
        self.differing.is_empty() && self.damaged == 0
    }

    fn add(&mut self, catalogue: &Catalogue, part: &NamePart) {
        self.checked += part.names.len() as u64;
        self.damaged += part.damaged as u64;
        for (key, spelling) in &part.names {
            if !catalogue.gives_key(key, spelling.clone()) {
                *self.differing.entry(key.bucket_type).or_default() += 1;
            }
        }
    }
}

/// Shows the counts in the form `3 of 90 names differ (bucket type 4: 2, bucket type 5: 1)`.
impl fmt::Display for FormCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} names differ", self.differing.values().sum::<u64>(), self.checked)?;
        let types: Vec<_> =
            self.differing.iter().map(|(number, count)| format!("bucket type {number}: {count}")).collect();
        if !types.is_empty() {
            write!(f, " ({})", types.join(", "))?;
        }
        if self.damaged > 0 {
            write!(f, ", {} claims can't be read", self.damaged)?;
        }
        Ok(())
    }
}

/// A scan of all names in a store, which can go on after an error where it stopped.
#[derive(Debug, Default)]
pub struct FormScan {
    // The built-in rules, and those that the store keeps; `None` before they were read.
    catalogue: Option<Catalogue>,
    place: NamePlace,
    check: FormCheck,
}

impl FormScan {
    /// Checks the rest of the names in short parts, and pauses between two of them. Returns the
    /// result for all names.
    ///
    /// # Errors
    /// A part could not be read. A second call goes on with this part.
    pub async fn go_on(&mut self, store: &dyn StoreReader, pause: Duration) -> Result<FormCheck, StoreError> {
        let catalogue = match self.catalogue.take() {
            Some(catalogue) => catalogue,
            None => Catalogue::with(store.bucket_types().await?),
        };
        let catalogue = &*self.catalogue.insert(catalogue);
        loop {
            let part = store.names(self.place.clone(), PART_CLAIMS).await?;
            self.check.add(catalogue, &part);
            match part.next {
                Some(next) => self.place = next,
                None => return Ok(std::mem::take(&mut self.check)),
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Checks all names without pauses.
    ///
    /// # Errors
    /// The names could not be read.
    pub async fn check_all(store: &dyn StoreReader) -> Result<FormCheck, StoreError> {
        Self::default().go_on(store, Duration::ZERO).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v09_a_result_is_shown_as_counts() {
        let differing = [(BucketType(4), 2), (BucketType(5), 1)].into();
        let check = FormCheck { checked: 90, differing, damaged: 0 };
        assert_eq!(check.to_string(), "3 of 90 names differ (bucket type 4: 2, bucket type 5: 1)");
        assert!(!check.passes());
        let damaged = FormCheck { checked: 9, damaged: 1, ..FormCheck::default() };
        assert_eq!(damaged.to_string(), "0 of 9 names differ, 1 claims can't be read");
        assert!(!damaged.passes());
        assert!(FormCheck { checked: 9, ..FormCheck::default() }.passes());
    }
}
