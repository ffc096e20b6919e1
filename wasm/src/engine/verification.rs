//! The `Verification` session: compares the rows of one table with the table's claims and corrects
//! the claims.

use leasehold_bindings::verify::VerifyStep;
use leasehold_bindings::{Catalogue, ClaimRequest, List, RefusedClaim, UpdateReply, verify};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::wasm_bindgen;

use super::claims::{ClaimObject, source_bytes};
use super::columns::{self, RecordColumns, RowColumns};
use super::value;
use crate::error::Exception;

#[wasm_bindgen]
extern "C" {
    /// The settings of a run of verification.
    #[wasm_bindgen(typescript_type = "VerificationSettings")]
    pub type VerificationSettings;

    /// The step that the host of a run of verification must take.
    #[wasm_bindgen(typescript_type = "VerificationStep")]
    pub type VerificationStep;

    /// The counts of a run of verification.
    #[wasm_bindgen(typescript_type = "VerificationReport")]
    pub type VerificationReport;

    /// A list of outcomes, one for each claim that a run has corrected, could not correct or left
    /// alone.
    #[wasm_bindgen(typescript_type = "Finding[]")]
    pub type Findings;

    /// A list of the claims because of which the server refused an update.
    #[wasm_bindgen(typescript_type = "RefusedClaim[]")]
    pub type RefusedClaims;
}

/// A run that compares one table with its claims, page by page. The run makes no call itself: the
/// host takes the step that `step` returns, answers with the method that belongs to the step, and
/// repeats this until the step is `done` or `refused`.
///
/// If an answer does not belong to the present step, its method throws `OUT_OF_TURN` and the run is
/// unchanged.
#[wasm_bindgen]
pub struct Verification(leasehold_bindings::Verification);

#[wasm_bindgen]
impl Verification {
    /// Creates a run, or resumes one from a checkpoint. Throws `INVALID_CHECKPOINT` if the text is
    /// not a checkpoint.
    #[wasm_bindgen(constructor)]
    pub fn new(settings: VerificationSettings, checkpoint: Option<String>) -> Result<Verification, Exception> {
        let settings: verify::VerifySettings = value::from_js(settings.unchecked_into())?;
        let run = leasehold_bindings::Verification::new(settings, Catalogue::default(), checkpoint.as_deref())?;
        Ok(Self(run))
    }

    /// Returns the step that the host must take. The step stays the same until the host answers it.
    pub fn step(&self) -> Result<VerificationStep, Exception> {
        Ok(value::to_js(&StepObject::from(self.0.step()))?.unchecked_into())
    }

    /// Answers the step `find_bound`. Pass the source id of the row that ends the page, or
    /// `undefined` if fewer rows remain.
    pub fn bound(
        &mut self,
        #[wasm_bindgen(unchecked_optional_param_type = "Uint8Array | undefined")] id: Option<Vec<u8>>,
    ) -> Result<(), Exception> {
        Ok(self.0.bound(id.as_deref())?)
    }

    /// Answers the step `list_records`. Pass the records in the server's order. `truncated` is true
    /// if the server has more records in the range. `now` is the server's time when it answered, in
    /// microseconds since 1970.
    pub fn records(&mut self, records: RecordColumns, truncated: bool, now: u64) -> Result<(), Exception> {
        Ok(self.0.records(columns::records(&records, now)?, truncated)?)
    }

    /// Answers the steps `read_rows` and `read_again`. Pass the rows in the order of their encoded
    /// source ids. `now` is the database's time before the page's records were listed, or before
    /// the rows were read again, in microseconds since 1970.
    pub fn rows(&mut self, rows: RowColumns, now: u64) -> Result<(), Exception> {
        Ok(self.0.rows(columns::rows(&rows, now)?)?)
    }

    /// Answers the step `read_again` under a lease, if the rows cannot have changed: for example
    /// rows of a dump.
    pub fn unchanged(&mut self) -> Result<(), Exception> {
        Ok(self.0.unchanged()?)
    }

    /// Answers the step `begin`: the server has begun the update.
    pub fn begun(&mut self) -> Result<(), Exception> {
        Ok(self.0.updated(UpdateReply::Begun)?)
    }

    /// Answers the steps `commit` and `roll_back`: the lease is settled as the step asked.
    pub fn settled(&mut self) -> Result<(), Exception> {
        Ok(self.0.updated(UpdateReply::Settled)?)
    }

    /// Answers the step `begin`: the server refused the update because of these claims.
    pub fn refused(&mut self, claims: RefusedClaims) -> Result<(), Exception> {
        let claims: Vec<RefusedObject> = value::from_js(claims.unchecked_into())?;
        Ok(self.0.updated(UpdateReply::Refused(claims.into_iter().map(RefusedClaim::from).collect()))?)
    }

    /// Answers the steps `begin`, `commit` and `roll_back`: the call failed for another reason, or
    /// its outcome is unknown.
    pub fn failed(&mut self) -> Result<(), Exception> {
        Ok(self.0.updated(UpdateReply::Failed)?)
    }

    /// Answers the step `page_done`: the run continues with the next page.
    pub fn proceed(&mut self) -> Result<(), Exception> {
        Ok(self.0.proceed()?)
    }

    /// Answers the step `page_done`: the run ends, because its time is over. Take the remaining
    /// steps until `done`, then store the checkpoint.
    pub fn stop(&mut self) -> Result<(), Exception> {
        Ok(self.0.stop()?)
    }

    /// Returns the checkpoint from which another run can continue, or `undefined` if this run has
    /// compared everything. Call this method at `page_done` and `done`. The checkpoint contains
    /// claimed values: protect it like user data.
    pub fn checkpoint(&self) -> Result<Option<String>, Exception> {
        Ok(self.0.checkpoint()?)
    }

    /// Returns the counts of this run of verification so far.
    pub fn report(&self) -> Result<VerificationReport, Exception> {
        Ok(value::counts_to_js(self.0.report())?.unchecked_into())
    }

    /// Returns the outcomes of single claims since the last call.
    #[wasm_bindgen(js_name = takeFindings)]
    pub fn take_findings(&mut self) -> Result<Findings, Exception> {
        Ok(value::to_js(&self.0.take_findings())?.unchecked_into())
    }
}

/// The JavaScript object `VerificationStep` of `types.d.ts`.
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
    Refused { destroys: f64, claims: f64, needed_share: f64 },
    Done,
}

impl From<&VerifyStep> for StepObject {
    fn from(step: &VerifyStep) -> Self {
        let claims = |claims: &[ClaimRequest]| claims.iter().map(ClaimObject::from).collect();
        match step {
            VerifyStep::FindBound { after, rows } => {
                Self::FindBound { after: source_bytes(after), rows: u32::try_from(*rows).unwrap_or(u32::MAX) }
            }
            VerifyStep::ListRecords { after, upto } => {
                Self::ListRecords { after: source_bytes(after), upto: source_bytes(upto) }
            }
            VerifyStep::ReadRows { after, upto } => {
                Self::ReadRows { after: source_bytes(after), upto: source_bytes(upto) }
            }
            VerifyStep::ReadAgain { ids } => Self::ReadAgain { ids: ids.iter().map(source_bytes).collect() },
            VerifyStep::Begin(update) => {
                Self::Begin { creates: claims(&update.creates), destroys: claims(&update.destroys) }
            }
            VerifyStep::Commit => Self::Commit,
            VerifyStep::RollBack => Self::RollBack,
            VerifyStep::PageDone => Self::PageDone,
            // The counts become JavaScript's `number`, like those of the report. They stay below 2^53.
            VerifyStep::Refused(refusal) => Self::Refused {
                destroys: refusal.destroys as f64,
                claims: refusal.claims as f64,
                needed_share: refusal.needed_share().as_f64(),
            },
            VerifyStep::Done => Self::Done,
        }
    }
}

/// The JavaScript object `RefusedClaim` of `types.d.ts`.
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

impl From<RefusedObject> for RefusedClaim {
    fn from(refused: RefusedObject) -> Self {
        let list = match refused.list {
            ListName::Creates => List::Creates,
            ListName::Destroys => List::Destroys,
        };
        Self { list, position: refused.position, code: refused.code }
    }
}
