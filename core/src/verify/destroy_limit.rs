//! The limit on the claims that a run destroys (V11): a share of the table's claims.

use serde::{Deserialize, Serialize};

/// The number of claims that a run may destroy in any table, whatever the share. Without this
/// number, a run with the default share could destroy no claim in a table of fewer than ten claims.
const ALWAYS_PERMITTED: u64 = 10;

const MILLION: u64 = 1_000_000;

/// A share from 0 to 1, in millionths. Integers make every host decide alike.
///
/// ```
/// use leasehold_core::verify::Share;
///
/// assert_eq!(Share::new(0.25).map(|share| share.of(1000)), Some(250));
/// assert_eq!(Share::new(1.5), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(u32);

impl Share {
    /// The share 1: all claims.
    pub const ALL: Self = Self(1_000_000);

    /// Returns the share, rounded to millionths, `None` if it is not from 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        // The product is from 0 to a million, so it fits.
        (0.0..=1.0).contains(&share).then(|| Self((share * 1e6).round() as u32))
    }

    /// Returns the share as a number from 0 to 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// Returns this share of a number of claims, rounded down.
    pub fn of(self, claims: u64) -> u64 {
        claims.saturating_mul(u64::from(self.0)) / MILLION
    }
}

impl Default for Share {
    /// Returns a tenth.
    fn default() -> Self {
        Self(100_000)
    }
}

impl TryFrom<f64> for Share {
    type Error = ShareError;

    fn try_from(share: f64) -> Result<Self, ShareError> {
        Self::new(share).ok_or(ShareError)
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        share.as_f64()
    }
}

/// The error of a number that is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`max_destroy_share` is no share: set it to a number from 0 to 1")]
pub struct ShareError;

/// The refusal of a run that would destroy more of the table's claims than
/// [`max_destroy_share`](super::VerifySettings::max_destroy_share) permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TooManyDestroys {
    /// The number of claims that the whole run would destroy, those destroyed so far among them.
    pub destroys: u64,
    /// The number of the table's claims before the first destroy.
    pub claims: u64,
}

impl TooManyDestroys {
    /// Returns the smallest share, in whole percents, that permits the run.
    pub fn needed_share(self) -> Share {
        let percents = self.destroys.saturating_mul(100).div_ceil(self.claims.max(1)).min(100);
        // The number is at most 100, so it fits.
        Share(percents as u32 * 10_000)
    }
}

/// The part of the table's claims that a run has listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Coverage {
    /// The claims from the beginning of the table up to the progress of the scan.
    #[default]
    FromBegin,
    /// The claims after a checkpoint of a version that did not count claims.
    Partial,
    /// Every claim of the table.
    Whole,
}

/// The numbers of claims that a run has listed and destroyed, also before the checkpoint from which
/// it goes on. Sums saturate, since a checkpoint from outside may hold any numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimCount {
    /// The number of claims that were listed up to the progress of the scan. A run that goes on
    /// from a checkpoint lists only the claims after it.
    listed: u64,
    /// The number of claims that were listed beyond the progress of the scan. A run that goes on
    /// from the checkpoint lists them again, so the number is not stored.
    #[serde(skip)]
    listed_past: u64,
    destroyed: u64,
    coverage: Coverage,
}

impl ClaimCount {
    /// Returns the count of a run that goes on from a checkpoint without a count.
    pub(super) fn partial() -> Self {
        Self { coverage: Coverage::Partial, ..Self::default() }
    }

    /// Adds the claims of a page of the scan.
    pub(super) fn list(&mut self, claims: u64) {
        if self.coverage != Coverage::Whole {
            self.listed_past = self.listed_past.saturating_add(claims);
        }
    }

    /// Notes that the scan's progress has passed all listed claims but the last `rest`.
    pub(super) fn pass_before(&mut self, rest: u64) {
        let passed = self.listed_past.saturating_sub(rest);
        self.listed = self.listed.saturating_add(passed);
        self.listed_past -= passed;
    }

    /// Notes that the scan has reached the end of the table.
    pub(super) fn end(&mut self) {
        if self.coverage == Coverage::FromBegin {
            self.coverage = Coverage::Whole;
        }
    }

    pub(super) fn destroy(&mut self, claims: u64) {
        self.destroyed = self.destroyed.saturating_add(claims);
    }

    fn listed(&self) -> u64 {
        self.listed.saturating_add(self.listed_past)
    }

    /// Returns true if every claim of the table is counted.
    pub(super) fn is_whole(&self) -> bool {
        self.coverage == Coverage::Whole
    }

    /// Checks that the run may destroy `planned` more claims. Until every claim is counted, the
    /// share is taken of the listed claims, since the table has at least these.
    ///
    /// # Errors
    /// The run would exceed the limit.
    pub(super) fn check(&self, planned: u64, max_share: Share) -> Result<(), TooManyDestroys> {
        let found = TooManyDestroys { destroys: self.destroyed.saturating_add(planned), claims: self.listed() };
        let permitted = max_share.of(found.claims).max(ALWAYS_PERMITTED);
        if found.destroys <= permitted { Ok(()) } else { Err(found) }
    }

    /// Replaces this count with the count of a survey, a dry run over the whole table.
    ///
    /// # Errors
    /// The run would exceed the limit, by the count of the survey.
    pub(super) fn take_survey(&mut self, survey: &Self, max_share: Share) -> Result<(), TooManyDestroys> {
        // The claims that the run has already destroyed are no longer in the table, so the survey
        // did not list them.
        let listed = survey.listed().saturating_add(self.destroyed);
        let table = Self { listed, listed_past: 0, destroyed: self.destroyed, coverage: Coverage::Whole };
        table.check(survey.destroyed, max_share)?;
        *self = table;
        Ok(())
    }
}
