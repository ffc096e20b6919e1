//! Verification as a session for other languages: source ids are bytes, reasons are codes, and the
//! checkpoint is text.

use leasehold_core::catalogue::Catalogue;
use leasehold_core::claim::SourceId;
use leasehold_core::rejection::{List, Place};
use leasehold_core::verify;
use leasehold_core::verify::{
    Checkpoint, Finding, Misuse, Records, Report, Rows, UpdateResult, VerifySettings, VerifyStep,
};

use crate::error::{DetailedError, reason_by_code};

/// A claim of an update that the server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedClaim {
    /// The list of the update that has the claim.
    pub list: List,
    /// The position of the claim in its list, from 0.
    pub position: u32,
    /// The code of the reason, such as `CLAIM_TAKEN`.
    pub code: String,
}

/// The result of a begin, commit or rollback that the session asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateReply {
    /// The update has begun.
    Begun,
    /// The begin was refused because of these claims.
    Refused(Vec<RefusedClaim>),
    /// The lease is committed or rolled back as requested.
    Settled,
    /// The begin, commit or rollback failed in another way, or its outcome is unknown.
    Failed,
}

impl From<UpdateReply> for UpdateResult {
    fn from(updated: UpdateReply) -> Self {
        match updated {
            UpdateReply::Begun => Self::Begun,
            UpdateReply::Settled => Self::Settled,
            UpdateReply::Failed => Self::Failed,
            UpdateReply::Refused(claims) => {
                let known = |claim: &RefusedClaim| {
                    let place = Place { list: claim.list, position: claim.position };
                    Some((place, reason_by_code(&claim.code)?))
                };
                // A reason that this version does not know cannot be interpreted, so the update
                // counts as failed.
                claims.iter().map(known).collect::<Option<_>>().map_or(Self::Failed, Self::Refused)
            }
        }
    }
}

/// A run of verification. See [`leasehold_core::verify`] for the order of calls.
#[derive(Clone, Debug)]
pub struct Verification(verify::Verification);

impl Verification {
    /// Starts a run, or resumes one from a checkpoint.
    ///
    /// # Errors
    /// - `INVALID_ARGUMENT`: the settings have no bucket type (V11).
    /// - `INVALID_CHECKPOINT`: the text is not a checkpoint.
    pub fn new(
        settings: VerifySettings,
        catalogue: Catalogue,
        checkpoint: Option<&str>,
    ) -> Result<Self, DetailedError> {
        if settings.bucket_types.is_empty() {
            return Err(Misuse::NoBucketTypes.into());
        }
        let checkpoint = checkpoint.map(serde_json::from_str::<Checkpoint>).transpose();
        // V09: serde's message may quote values of claims.
        let checkpoint = checkpoint.map_err(|_| {
            DetailedError::new("INVALID_CHECKPOINT", "the checkpoint is invalid: discard it to start a new run")
        })?;
        Ok(Self(verify::Verification::new(settings, catalogue, checkpoint)))
    }

    /// Returns the next step. It stays the same until the caller answers it.
    pub fn step(&self) -> &VerifyStep {
        self.0.step()
    }

    /// Answers [`VerifyStep::FindBound`].
    ///
    /// # Errors
    /// The current step is not [`VerifyStep::FindBound`], or the bound is out of range.
    pub fn bound(&mut self, bound: Option<&[u8]>) -> Result<(), DetailedError> {
        Ok(self.0.bound(bound.map(SourceId::from_bytes))?)
    }

    /// Answers [`VerifyStep::ListRecords`].
    ///
    /// # Errors
    /// The current step is not [`VerifyStep::ListRecords`], or the records are out of order or
    /// range.
    pub fn records(&mut self, records: Records, truncated: bool) -> Result<(), DetailedError> {
        Ok(self.0.records(records, truncated)?)
    }

    /// Answers [`VerifyStep::ReadRows`] and [`VerifyStep::ReadAgain`].
    ///
    /// # Errors
    /// The current step does not ask for rows, the rows are out of order or range, or a bucket type
    /// is not in the settings.
    pub fn rows(&mut self, rows: Rows) -> Result<(), DetailedError> {
        Ok(self.0.rows(rows)?)
    }

    /// Answers a [`VerifyStep::ReadAgain`] that follows a begin, if the rows cannot change, such as
    /// those of a dump.
    ///
    /// # Errors
    /// The current step does not ask for the rows of a begun update.
    pub fn unchanged(&mut self) -> Result<(), DetailedError> {
        Ok(self.0.unchanged()?)
    }

    /// Answers [`VerifyStep::Begin`], [`VerifyStep::Commit`] and [`VerifyStep::RollBack`].
    ///
    /// # Errors
    /// No update is in progress.
    pub fn updated(&mut self, updated: UpdateReply) -> Result<(), DetailedError> {
        Ok(self.0.updated(updated.into())?)
    }

    /// Continues after [`VerifyStep::PageDone`].
    ///
    /// # Errors
    /// The current step is not [`VerifyStep::PageDone`].
    pub fn proceed(&mut self) -> Result<(), DetailedError> {
        Ok(self.0.proceed()?)
    }

    /// Ends the run after [`VerifyStep::PageDone`], for example at the end of its time budget. Continue
    /// until [`VerifyStep::Done`], then store the checkpoint.
    ///
    /// # Errors
    /// The current step is not [`VerifyStep::PageDone`].
    pub fn stop(&mut self) -> Result<(), DetailedError> {
        Ok(self.0.stop()?)
    }

    /// Returns the checkpoint of the run as text; `None` if the run has nothing left to do. Call it
    /// at [`VerifyStep::PageDone`], [`VerifyStep::Refused`] and [`VerifyStep::Done`]. The text
    /// contains values of claims, so it must be protected like user data.
    ///
    /// # Errors
    /// The checkpoint cannot be written as text.
    pub fn checkpoint(&self) -> Result<Option<String>, DetailedError> {
        let checkpoint = self.0.checkpoint();
        if checkpoint.is_done() {
            return Ok(None);
        }
        let text = serde_json::to_string(&checkpoint);
        text.map(Some).map_err(|_| DetailedError::new("INVALID_CHECKPOINT", "the checkpoint cannot be written as text"))
    }

    /// Returns the counts of the run so far.
    pub fn report(&self) -> &Report {
        self.0.report()
    }

    /// Takes the findings about single claims that were added since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        self.0.take_findings()
    }
}

impl From<Misuse> for DetailedError {
    fn from(misuse: Misuse) -> Self {
        let code = match misuse {
            Misuse::NoBucketTypes => "INVALID_ARGUMENT",
            Misuse::OutOfTurn => "OUT_OF_TURN",
            Misuse::OutOfOrder | Misuse::ForeignBucketType => "INVALID_ROWS",
        };
        Self::new(code, misuse)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;

    use leasehold_core::bucket::BucketType;
    use leasehold_core::claim::SourceType;
    use leasehold_core::time::Timestamp;
    use leasehold_core::verify::Share;

    use super::*;

    fn settings() -> VerifySettings {
        VerifySettings {
            source_type: SourceType(1),
            bucket_types: BTreeSet::from([BucketType(4)]),
            recent_within_micros: 1,
            rows_per_page: 10,
            dry_run: false,
            max_destroy_share: Share::default(),
            hash_seed: 0,
        }
    }

    fn session(checkpoint: Option<&str>) -> Result<Verification, DetailedError> {
        Verification::new(settings(), Catalogue::default(), checkpoint)
    }

    fn rows(value: &str) -> Rows {
        let mut rows = Rows::new(Timestamp::MAX);
        rows.row(&7_u64.to_be_bytes(), None);
        rows.claim(4, value, 4, 7);
        rows
    }

    /// Returns a run whose first update, which creates the claim of one row, was refused with each
    /// of these codes in turn.
    fn run_refused_with(codes: &[&str]) -> Verification {
        let mut run = session(None).unwrap();
        run.bound(None).unwrap();
        run.records(Records::new(Timestamp::MAX), false).unwrap();
        run.rows(rows("Alice")).unwrap();
        for code in codes {
            let VerifyStep::Begin(update) = run.step() else { unreachable!("{:?}", run.step()) };
            let list = if update.destroys.is_empty() { List::Creates } else { List::Destroys };
            let claim = RefusedClaim { list, position: 0, code: (*code).into() };
            run.updated(UpdateReply::Refused(vec![claim])).unwrap();
        }
        run
    }

    #[test]
    fn v05_v07_a_checkpoint_is_text_and_contains_deferred_creates() {
        let run = run_refused_with(&["CLAIM_TAKEN", "CLAIM_CHANGED"]);
        assert_eq!(run.step(), &VerifyStep::PageDone);
        let text = run.checkpoint().unwrap().unwrap();
        let mut again = session(Some(&text)).unwrap();
        assert!(
            matches!(again.step(), VerifyStep::ReadAgain { .. }),
            "the scan is finished, and one create is deferred"
        );
        again.rows(rows("alice")).unwrap();
        let VerifyStep::Begin(update) = again.step() else { unreachable!() };
        assert_eq!(update.creates.first().map(|claim| &*claim.value), Some("alice"), "the row's present value");
        again.updated(UpdateReply::Begun).unwrap();
        again.rows(rows("alice")).unwrap();
        assert_eq!(again.step(), &VerifyStep::Commit);
        again.updated(UpdateReply::Settled).unwrap();
        assert_eq!((again.step(), again.checkpoint()), (&VerifyStep::Done, Ok(None)));
        assert_eq!(again.report().created, 1);
    }

    /// Adds a count of claims to the text of a checkpoint.
    fn counted(text: &str, coverage: &str) -> String {
        let count = format!(r#""count":{{"listed":0,"destroyed":0,"coverage":"{coverage}"}}}}"#);
        format!("{},{count}", text.trim_end_matches('}'))
    }

    #[test]
    fn v07_checkpoints_without_ranges_to_recheck_are_read_and_written() {
        let text = r#"{"scan":{"after":"0000000000000007"},"takes":[],"frees":[]}"#;
        let run = session(Some(text)).unwrap();
        assert_eq!(run.step(), &VerifyStep::FindBound { after: SourceId::from(7), rows: 10 });
        assert_eq!(run.checkpoint().unwrap(), Some(counted(text, "partial")));
    }

    #[test]
    fn v05_v07_a_checkpoint_contains_the_ranges_to_recheck() {
        let span = r#""again":[{"after":"0000000000000003","upto":"0000000000000007"}]"#;
        let text = counted(&format!(r#"{{"scan":"finished","takes":[],"frees":[],{span}}}"#), "whole");
        let mut run = session(Some(&text)).unwrap();
        assert_eq!(run.step(), &VerifyStep::FindBound { after: SourceId::from(3), rows: 10 });
        run.bound(None).unwrap();
        assert_eq!(run.step(), &VerifyStep::ListRecords { after: SourceId::from(3), upto: SourceId::from(7) });
        assert_eq!(run.checkpoint().unwrap().as_deref(), Some(&*text));
        run.records(Records::new(Timestamp::MAX), false).unwrap();
        run.rows(Rows::new(Timestamp::MAX)).unwrap();
        assert_eq!((run.step(), run.checkpoint()), (&VerifyStep::PageDone, Ok(None)));
        run.proceed().unwrap();
        assert_eq!(run.step(), &VerifyStep::Done);
    }

    #[test]
    fn refusal_codes_are_interpreted_and_unknown_ones_count_as_failures() {
        assert_eq!(run_refused_with(&["CLAIM_TAKEN", "NOT_OWNER"]).report().other_cell, 1);
        assert_eq!(run_refused_with(&["VALUE_NOT_ALLOWED"]).report().invalid, 1);
        assert_eq!(run_refused_with(&["OF_TOMORROW"]).report().failed, 1);
    }

    #[test]
    fn v11_a_run_without_bucket_types_is_refused() {
        let settings = VerifySettings { bucket_types: BTreeSet::new(), ..settings() };
        let refused = Verification::new(settings, Catalogue::default(), None).unwrap_err();
        assert_eq!(refused.code, "INVALID_ARGUMENT");
    }

    #[test]
    fn v09_misuse_has_a_code_and_shows_no_value() {
        let code = |result: Result<(), DetailedError>| result.unwrap_err().code;
        let mut run = session(None).unwrap();
        assert_eq!(code(run.proceed()), "OUT_OF_TURN");
        assert_eq!(code(run.stop()), "OUT_OF_TURN");
        run.bound(None).unwrap();
        run.records(Records::new(Timestamp::MAX), false).unwrap();
        let mut stray = Rows::new(Timestamp::MAX);
        stray.claim(4, "secret", 4, 7);
        assert_eq!(code(run.rows(stray)), "INVALID_ROWS");
        let error = session(Some(r#"{"scan":"secret"}"#)).unwrap_err();
        assert_eq!((error.code, error.message.contains("secret")), ("INVALID_CHECKPOINT", false));
    }
}
