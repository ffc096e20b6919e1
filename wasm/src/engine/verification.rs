//! `Verification`: the claims of one table compared with its rows, and corrected.

use leasehold_bindings::verify::Step;
use leasehold_bindings::{Catalogue, ClaimRequest, List, Refused, Updated, verify};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::wasm_bindgen;

use super::claims::{ClaimObject, source_bytes};
use super::columns::{self, RecordColumns, RowColumns};
use super::value;
use crate::error::Thrown;

#[wasm_bindgen]
extern "C" {
    /// What a run goes by.
    #[wasm_bindgen(typescript_type = "VerificationSettings")]
    pub type VerificationSettings;

    /// What to do next.
    #[wasm_bindgen(typescript_type = "VerificationStep")]
    pub type VerificationStep;

    /// What was seen and done.
    #[wasm_bindgen(typescript_type = "VerificationReport")]
    pub type VerificationReport;

    /// What became of single claims.
    #[wasm_bindgen(typescript_type = "Finding[]")]
    pub type Findings;

    /// Because of which claims an update was refused.
    #[wasm_bindgen(typescript_type = "RefusedClaim[]")]
    pub type RefusedClaims;
}

/// A run that compares one table with its claims, page by page. It never calls out: take the step that it asks for, hand
/// in what came of it, until the step is `done`.
#[wasm_bindgen]
pub struct Verification(leasehold_bindings::Verification);

#[wasm_bindgen]
impl Verification {
    /// A new run, or one that goes on from a checkpoint. Throws where the text is no checkpoint.
    #[wasm_bindgen(constructor)]
    pub fn new(settings: VerificationSettings, checkpoint: Option<String>) -> Result<Verification, Thrown> {
        let settings: verify::Settings = value::read(settings.unchecked_into())?;
        let run = leasehold_bindings::Verification::new(settings, Catalogue::default(), checkpoint.as_deref())?;
        Ok(Self(run))
    }

    /// What to do next: the same until it is answered.
    pub fn step(&self) -> Result<VerificationStep, Thrown> {
        Ok(value::write(&StepObject::from(self.0.step()))?.unchecked_into())
    }

    /// Answers `find_bound`: the source id of the row that ends the page, none where no row does.
    pub fn bound(&mut self, id: Option<Vec<u8>>) -> Result<(), Thrown> {
        Ok(self.0.bound(id.as_deref())?)
    }

    /// Answers `list_records`: the records as the server lists them, whether it said that more remain, and its time when
    /// it answered, in microseconds since 1970.
    pub fn records(&mut self, records: RecordColumns, truncated: bool, now: u64) -> Result<(), Thrown> {
        Ok(self.0.records(columns::records(&records, now)?, truncated)?)
    }

    /// Answers `read_rows` and `read_again`: the rows in the order of their encoded ids, and the database's time when it
    /// answered, in microseconds since 1970.
    pub fn rows(&mut self, rows: RowColumns, now: u64) -> Result<(), Thrown> {
        Ok(self.0.rows(columns::rows(&rows, now)?)?)
    }

    /// Answers `read_again` under a lease: the rows are those of a dump, which nobody changes.
    pub fn unchanged(&mut self) -> Result<(), Thrown> {
        Ok(self.0.unchanged()?)
    }

    /// Answers `begin`: it is begun.
    pub fn begun(&mut self) -> Result<(), Thrown> {
        Ok(self.0.updated(Updated::Begun)?)
    }

    /// Answers `commit` and `roll_back`: that is done.
    pub fn settled(&mut self) -> Result<(), Thrown> {
        Ok(self.0.updated(Updated::Settled)?)
    }

    /// Answers `begin`: it was refused, because of these claims.
    pub fn refused(&mut self, claims: RefusedClaims) -> Result<(), Thrown> {
        let claims: Vec<RefusedObject> = value::read(claims.unchecked_into())?;
        Ok(self.0.updated(Updated::Refused(claims.into_iter().map(Refused::from).collect()))?)
    }

    /// Answers `begin`, `commit` and `roll_back`: it failed otherwise, or nobody knows what came of it.
    pub fn failed(&mut self) -> Result<(), Thrown> {
        Ok(self.0.updated(Updated::Failed)?)
    }

    /// Goes on after `page_done`.
    pub fn proceed(&mut self) -> Result<(), Thrown> {
        Ok(self.0.proceed()?)
    }

    /// Ends the run after `page_done`, its time being over: go on until it is `done`, then keep the checkpoint.
    pub fn stop(&mut self) -> Result<(), Thrown> {
        Ok(self.0.stop()?)
    }

    /// Where a run could go on, none where nothing is left to do. Ask at `page_done` and `done`. It holds values of
    /// claims: keep it as user data.
    pub fn checkpoint(&self) -> Result<Option<String>, Thrown> {
        Ok(self.0.checkpoint()?)
    }

    /// What was seen and done so far.
    pub fn report(&self) -> Result<VerificationReport, Thrown> {
        Ok(value::write_counts(self.0.report())?.unchecked_into())
    }

    /// What became of single claims since the last call.
    #[wasm_bindgen(js_name = takeFindings)]
    pub fn take_findings(&mut self) -> Result<Findings, Thrown> {
        Ok(value::write(&self.0.take_findings())?.unchecked_into())
    }
}

/// `VerificationStep` in TypeScript.
#[derive(Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
enum StepObject {
    FindBound { after: ByteBuf, rows: u32 },
    ListRecords { after: ByteBuf, upto: ByteBuf },
    ReadRows { after: ByteBuf, upto: ByteBuf },
    ReadAgain { ids: Vec<ByteBuf> },
    Begin { creates: Vec<ClaimObject>, destroys: Vec<ClaimObject> },
    Commit,
    RollBack,
    PageDone,
    Done,
}

impl From<&Step> for StepObject {
    fn from(step: &Step) -> Self {
        let claims = |claims: &[ClaimRequest]| claims.iter().map(ClaimObject::from).collect();
        match step {
            Step::FindBound { after, rows } => {
                Self::FindBound { after: source_bytes(after), rows: u32::try_from(*rows).unwrap_or(u32::MAX) }
            }
            Step::ListRecords { after, upto } => {
                Self::ListRecords { after: source_bytes(after), upto: source_bytes(upto) }
            }
            Step::ReadRows { after, upto } => Self::ReadRows { after: source_bytes(after), upto: source_bytes(upto) },
            Step::ReadAgain { ids } => Self::ReadAgain { ids: ids.iter().map(source_bytes).collect() },
            Step::Begin(update) => Self::Begin { creates: claims(&update.creates), destroys: claims(&update.destroys) },
            Step::Commit => Self::Commit,
            Step::RollBack => Self::RollBack,
            Step::PageDone => Self::PageDone,
            Step::Done => Self::Done,
        }
    }
}

/// `RefusedClaim` in TypeScript.
#[derive(Deserialize)]
struct RefusedObject {
    list: ListName,
    position: u32,
    code: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ListName {
    Creates,
    Destroys,
}

impl From<RefusedObject> for Refused {
    fn from(refused: RefusedObject) -> Self {
        let list = match refused.list {
            ListName::Creates => List::Creates,
            ListName::Destroys => List::Destroys,
        };
        Self { list, position: refused.position, code: refused.code }
    }
}
