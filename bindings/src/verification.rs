//! Verification as a session: source ids as bytes, refusals by their code, the checkpoint as text.

use leasehold_core::catalogue::Catalogue;
use leasehold_core::claim::SourceId;
use leasehold_core::rejection::{List, Place};
use leasehold_core::verify;
use leasehold_core::verify::{Checkpoint, Finding, Misuse, Records, Report, Rows, Settings, Step, UpdateResult};

use crate::error::{DetailedError, reason};

/// A claim because of which an update was refused, as the server names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which list of the update.
    pub list: List,
    /// The position there, from 0.
    pub position: u32,
    /// The reason's code on the wire.
    pub code: String,
}

/// What came of a step of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Updated {
    /// It is begun.
    Begun,
    /// Its begin was refused, because of these claims.
    Refused(Vec<Refused>),
    /// It is committed, or rolled back, as was asked for.
    Settled,
    /// It failed otherwise, or nobody knows what came of it.
    Failed,
}

impl From<Updated> for UpdateResult {
    fn from(updated: Updated) -> Self {
        match updated {
            Updated::Begun => Self::Begun,
            Updated::Settled => Self::Settled,
            Updated::Failed => Self::Failed,
            Updated::Refused(claims) => {
                let known = |claim: &Refused| {
                    let place = Place { list: claim.list, position: claim.position };
                    Some((place, reason(&claim.code)?))
                };
                // A reason of a later version says nothing here: the update has failed.
                claims.iter().map(known).collect::<Option<_>>().map_or(Self::Failed, Self::Refused)
            }
        }
    }
}

/// A run of verification: see [`leasehold_core::verify`] for the order of calls.
#[derive(Clone, Debug)]
pub struct Verification(verify::Verification);

impl Verification {
    /// A new run, or one that goes on from a checkpoint.
    ///
    /// # Errors
    /// `INVALID_CHECKPOINT`: the text is none.
    pub fn new(settings: Settings, catalogue: Catalogue, checkpoint: Option<&str>) -> Result<Self, DetailedError> {
        let checkpoint = checkpoint.map(serde_json::from_str::<Checkpoint>).transpose();
        // What serde says may show values.
        let checkpoint = checkpoint.map_err(|_| {
            DetailedError::new("INVALID_CHECKPOINT", "the checkpoint is none: drop it, and the run begins anew")
        })?;
        Ok(Self(verify::Verification::new(settings, catalogue, checkpoint)))
    }

    /// What to do next: the same until it is answered.
    pub fn step(&self) -> &Step {
        self.0.step()
    }

    /// Answers [`Step::FindBound`].
    ///
    /// # Errors
    /// Out of turn or range.
    pub fn bound(&mut self, bound: Option<&[u8]>) -> Result<(), DetailedError> {
        Ok(self.0.bound(bound.map(SourceId::from_bytes))?)
    }

    /// Answers [`Step::ListRecords`].
    ///
    /// # Errors
    /// Out of turn, order or range.
    pub fn records(&mut self, records: Records, truncated: bool) -> Result<(), DetailedError> {
        Ok(self.0.records(records, truncated)?)
    }

    /// Answers [`Step::ReadRows`] and [`Step::ReadAgain`].
    ///
    /// # Errors
    /// Out of turn, order or range, or of a bucket type that the settings lack.
    pub fn rows(&mut self, rows: Rows) -> Result<(), DetailedError> {
        Ok(self.0.rows(rows)?)
    }

    /// Answers [`Step::ReadAgain`] under a lease: the rows are those of a dump, which nobody changes.
    ///
    /// # Errors
    /// Out of turn.
    pub fn unchanged(&mut self) -> Result<(), DetailedError> {
        Ok(self.0.unchanged()?)
    }

    /// Answers [`Step::Begin`], [`Step::Commit`] and [`Step::RollBack`].
    ///
    /// # Errors
    /// Out of turn.
    pub fn updated(&mut self, updated: Updated) -> Result<(), DetailedError> {
        Ok(self.0.updated(updated.into())?)
    }

    /// Goes on after [`Step::PageDone`].
    ///
    /// # Errors
    /// Out of turn.
    pub fn proceed(&mut self) -> Result<(), DetailedError> {
        Ok(self.0.proceed()?)
    }

    /// Ends the run after [`Step::PageDone`], its time being over: go on until it is done, then keep the checkpoint.
    ///
    /// # Errors
    /// Out of turn.
    pub fn stop(&mut self) -> Result<(), DetailedError> {
        Ok(self.0.stop()?)
    }

    /// Where a run could go on, as text; none where nothing is left to do. To be asked for at [`Step::PageDone`] and
    /// [`Step::Done`]. Holds values of claims: keep it as user data.
    ///
    /// # Errors
    /// It can't be written as text.
    pub fn checkpoint(&self) -> Result<Option<String>, DetailedError> {
        let checkpoint = self.0.checkpoint();
        if checkpoint.is_done() {
            return Ok(None);
        }
        let text = serde_json::to_string(&checkpoint);
        text.map(Some).map_err(|_| DetailedError::new("INVALID_CHECKPOINT", "the checkpoint can't be written"))
    }

    /// What was seen and done so far.
    pub fn report(&self) -> &Report {
        self.0.report()
    }

    /// What became of single claims since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        self.0.take_findings()
    }
}

impl From<Misuse> for DetailedError {
    fn from(misuse: Misuse) -> Self {
        let code = match misuse {
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

    use super::*;

    fn settings() -> Settings {
        Settings {
            source_type: SourceType(1),
            bucket_types: BTreeSet::from([BucketType(4)]),
            recent_within_micros: 1,
            rows_per_page: 10,
            dry_run: false,
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

    /// To the update that creates a row's claim, which is refused with each of these codes in turn.
    fn refused(codes: &[&str]) -> Verification {
        let mut run = session(None).unwrap();
        run.bound(None).unwrap();
        run.records(Records::new(Timestamp::MAX), false).unwrap();
        run.rows(rows("Alice")).unwrap();
        for code in codes {
            let Step::Begin(update) = run.step() else { unreachable!("{:?}", run.step()) };
            let list = if update.destroys.is_empty() { List::Creates } else { List::Destroys };
            let claim = Refused { list, position: 0, code: (*code).into() };
            run.updated(Updated::Refused(vec![claim])).unwrap();
        }
        run
    }

    #[test]
    fn v05_v07_a_checkpoint_is_text_and_carries_what_waits() {
        let run = refused(&["CLAIM_TAKEN", "CLAIM_CHANGED"]);
        assert_eq!(run.step(), &Step::PageDone);
        let text = run.checkpoint().unwrap().unwrap();
        let mut again = session(Some(&text)).unwrap();
        assert!(matches!(again.step(), Step::ReadAgain { .. }), "nothing is left to scan, but one take waits");
        again.rows(rows("alice")).unwrap();
        let Step::Begin(update) = again.step() else { unreachable!() };
        assert_eq!(update.creates.first().map(|claim| &*claim.value), Some("alice"), "as the row is now");
        again.updated(Updated::Begun).unwrap();
        again.rows(rows("alice")).unwrap();
        assert_eq!(again.step(), &Step::Commit);
        again.updated(Updated::Settled).unwrap();
        assert_eq!((again.step(), again.checkpoint()), (&Step::Done, Ok(None)));
        assert_eq!(again.report().created, 1);
    }

    #[test]
    fn v07_checkpoints_of_versions_without_a_second_look_are_read_and_written() {
        let text = r#"{"scan":{"after":"0000000000000007"},"takes":[],"frees":[]}"#;
        let run = session(Some(text)).unwrap();
        assert_eq!(run.step(), &Step::FindBound { after: SourceId::from(7), rows: 10 });
        assert_eq!(run.checkpoint().unwrap().as_deref(), Some(text));
    }

    #[test]
    fn v05_v07_a_checkpoint_carries_what_is_to_be_looked_at_again() {
        let span = r#""again":[{"after":"0000000000000003","upto":"0000000000000007"}]"#;
        let text = format!(r#"{{"scan":"finished","takes":[],"frees":[],{span}}}"#);
        let mut run = session(Some(&text)).unwrap();
        assert_eq!(run.step(), &Step::FindBound { after: SourceId::from(3), rows: 10 });
        run.bound(None).unwrap();
        assert_eq!(run.step(), &Step::ListRecords { after: SourceId::from(3), upto: SourceId::from(7) });
        assert_eq!(run.checkpoint().unwrap().as_deref(), Some(&*text));
        run.records(Records::new(Timestamp::MAX), false).unwrap();
        run.rows(Rows::new(Timestamp::MAX)).unwrap();
        assert_eq!((run.step(), run.checkpoint()), (&Step::PageDone, Ok(None)));
        run.proceed().unwrap();
        assert_eq!(run.step(), &Step::Done);
    }

    #[test]
    fn codes_become_reasons_and_unknown_ones_a_failure() {
        assert_eq!(refused(&["CLAIM_TAKEN", "NOT_OWNER"]).report().other_cell, 1);
        assert_eq!(refused(&["VALUE_NOT_ALLOWED"]).report().invalid, 1);
        assert_eq!(refused(&["OF_TOMORROW"]).report().failed, 1);
    }

    #[test]
    fn misuse_has_a_code_and_shows_no_value() {
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
