//! `_native.Verification`: one verification run of a table.
//!
//! Rows enter as Arrow columns, and records as the server's serialized responses. Both can also
//! enter as Python objects, for small numbers. A step leaves as a tuple whose first item is the
//! step's name.

use leasehold_bindings::verify::{RecordRef, Records, Rows, VerifyStep};
use leasehold_bindings::{Catalogue, ClaimRequest, List, RefusedClaim, SourceId, Timestamp, UpdateReply, wire};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrow::{ArrowRows, Stream};
use crate::calls::ClaimArgument;
use crate::columns::Layout;
use crate::errors;
use crate::session::{Session, from_json, to_json};

#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct Verification(Session<leasehold_bindings::Verification>);

/// The creates or the destroys of an update. Python reads them as wire bytes, or as tuples of their
/// fields.
#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct Claims(Vec<ClaimRequest>);

#[pymethods]
impl Claims {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn members<'py>(&self, py: Python<'py>) -> Vec<ClaimMembers<'py>> {
        self.0.iter().map(|claim| claim_members(py, claim)).collect()
    }

    fn encoded<'py>(&self, py: Python<'py>, name: &str) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &wire::list(list_named(name), &self.0))
    }
}

/// A record argument: the attributes of a Python `leasehold.Record` that are compared. Times are
/// microseconds since 1970.
#[derive(FromPyObject)]
struct RecordArgument {
    claim: ClaimArgument,
    status: String,
    updated_micros: i64,
}

/// A row argument: a Python `leasehold.verification.Row`.
#[derive(FromPyObject)]
struct RowArgument {
    source_id: Vec<u8>,
    updated_micros: Option<i64>,
    claims: Vec<ClaimArgument>,
}

#[pymethods]
impl Verification {
    #[new]
    #[pyo3(signature = (settings, checkpoint))]
    fn new(py: Python<'_>, settings: &str, checkpoint: Option<&str>) -> PyResult<Self> {
        let settings = from_json(py, settings)?;
        let run = leasehold_bindings::Verification::new(settings, Catalogue::default(), checkpoint);
        Ok(Self(Session::new(run.map_err(|error| errors::exception(py, &error))?)))
    }

    fn step<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.with(py, |run| step(py, run.step()))
    }

    #[pyo3(signature = (bound))]
    fn bound(&self, py: Python<'_>, bound: Option<&[u8]>) -> PyResult<()> {
        self.0.work(py, |run| run.bound(bound))
    }

    fn records(&self, py: Python<'_>, records: Vec<RecordArgument>, truncated: bool, now: i64) -> PyResult<()> {
        self.0.work(py, |run| {
            let mut columns = Records::new(timestamp(now));
            records.iter().for_each(|record| add_record(record, &mut columns));
            run.records(columns, truncated)
        })
    }

    fn encoded_records(&self, py: Python<'_>, answer: &[u8], now: i64) -> PyResult<()> {
        self.0.work(py, |run| {
            let (records, truncated) = wire::records(answer, timestamp(now))?;
            run.records(records, truncated)
        })
    }

    fn rows(&self, py: Python<'_>, rows: Vec<RowArgument>, now: i64) -> PyResult<()> {
        self.0.work(py, |run| {
            let mut columns = Rows::new(timestamp(now));
            rows.iter().for_each(|row| add_row(row, &mut columns));
            run.rows(columns)
        })
    }

    fn arrow(&self, py: Python<'_>, data: &Bound<'_, PyAny>, columns: Layout, now: i64) -> PyResult<()> {
        let stream = Stream::new(py, data, columns)?;
        let rows =
            errors::catch_panic(py, || py.detach(|| stream.all(timestamp(now))).map_err(|error| error.exception(py)))?;
        self.0.work(py, |run| run.rows(rows))
    }

    fn arrow_rows(&self, py: Python<'_>, rows: &ArrowRows, now: i64) -> PyResult<()> {
        self.0.with(py, |run| rows.feed(py, run, timestamp(now)))
    }

    fn unchanged(&self, py: Python<'_>) -> PyResult<()> {
        self.0.work(py, leasehold_bindings::Verification::unchanged)
    }

    fn begun(&self, py: Python<'_>) -> PyResult<()> {
        self.0.work(py, |run| run.updated(UpdateReply::Begun))
    }

    fn settled(&self, py: Python<'_>) -> PyResult<()> {
        self.0.work(py, |run| run.updated(UpdateReply::Settled))
    }

    fn failed(&self, py: Python<'_>) -> PyResult<()> {
        self.0.work(py, |run| run.updated(UpdateReply::Failed))
    }

    fn refused(&self, py: Python<'_>, claims: Vec<(String, u32, String)>) -> PyResult<()> {
        let refused =
            |(list, position, code): (String, u32, String)| RefusedClaim { list: list_named(&list), position, code };
        let claims = claims.into_iter().map(refused).collect();
        self.0.work(py, |run| run.updated(UpdateReply::Refused(claims)))
    }

    fn proceed(&self, py: Python<'_>) -> PyResult<()> {
        self.0.work(py, leasehold_bindings::Verification::proceed)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.0.work(py, leasehold_bindings::Verification::stop)
    }

    fn checkpoint(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.0.work(py, |run| run.checkpoint())
    }

    fn report(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |run| to_json(py, run.report()))
    }

    fn take_findings(&self, py: Python<'_>) -> PyResult<String> {
        self.0.with(py, |run| to_json(py, &run.take_findings()))
    }
}

fn list_named(list: &str) -> List {
    if list == "creates" { List::Creates } else { List::Destroys }
}

fn add_record(record: &RecordArgument, records: &mut Records) {
    let claim = &record.claim;
    records.record(RecordRef {
        source_id: claim.source.as_ref().map_or(&[], |source| &source.id),
        bucket_type: claim.bucket_type,
        value: &claim.bucket_value,
        subject_type: claim.subject.as_ref().map_or(0, |subject| subject.subject_type),
        subject_id: claim.subject.as_ref().map_or(0, |subject| subject.id),
        updated_at: timestamp(record.updated_micros),
        held: record.status != "ACTIVE",
    });
}

fn add_row(row: &RowArgument, rows: &mut Rows) {
    rows.row(&row.source_id, row.updated_micros.map(timestamp));
    for claim in &row.claims {
        // A claim without a subject is invalid. With the type and id 0, the engine counts it as
        // `invalid` in its report.
        let (subject_type, subject_id) =
            claim.subject.as_ref().map_or((0, 0), |subject| (subject.subject_type, subject.id));
        rows.claim(claim.bucket_type, &claim.bucket_value, subject_type, subject_id);
    }
}

/// Returns the engine's timestamp for microseconds since 1970. A time before 1970 becomes 1970:
/// both are older than any threshold.
fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn step<'py>(py: Python<'py>, step: &VerifyStep) -> PyResult<Bound<'py, PyAny>> {
    let bytes = |id: &SourceId| PyBytes::new(py, id.as_bytes());
    let tuple = match step {
        VerifyStep::FindBound { after, rows } => ("find_bound", bytes(after), *rows).into_pyobject(py)?.into_any(),
        VerifyStep::ListRecords { after, upto } => {
            ("list_records", bytes(after), bytes(upto)).into_pyobject(py)?.into_any()
        }
        VerifyStep::ReadRows { after, upto } => ("read_rows", bytes(after), bytes(upto)).into_pyobject(py)?.into_any(),
        VerifyStep::ReadAgain { ids } => {
            ("read_again", ids.iter().map(bytes).collect::<Vec<_>>()).into_pyobject(py)?.into_any()
        }
        VerifyStep::Begin(update) => {
            ("begin", Claims(update.creates.clone()), Claims(update.destroys.clone())).into_pyobject(py)?.into_any()
        }
        VerifyStep::Commit => ("commit",).into_pyobject(py)?.into_any(),
        VerifyStep::RollBack => ("roll_back",).into_pyobject(py)?.into_any(),
        VerifyStep::PageDone => ("page_done",).into_pyobject(py)?.into_any(),
        VerifyStep::Refused(refusal) => {
            let needed_share = refusal.needed_share().as_f64();
            ("refused", refusal.destroys, refusal.claims, needed_share).into_pyobject(py)?.into_any()
        }
        VerifyStep::Done => ("done",).into_pyobject(py)?.into_any(),
    };
    Ok(tuple)
}

/// A claim in Python: its bucket type, value, subject and source.
type ClaimMembers<'py> = (i32, String, Option<(i32, i64)>, Option<(i32, Bound<'py, PyBytes>)>);

/// Returns the fields of a claim as the tuple of which Python makes a `leasehold.Claim`.
fn claim_members<'py>(py: Python<'py>, claim: &ClaimRequest) -> ClaimMembers<'py> {
    let source = claim.source.as_ref().map(|source| (source.source_type.0, PyBytes::new(py, source.id.as_bytes())));
    let subject = claim.subject.map(|subject| (subject.subject_type, subject.id));
    (claim.bucket_type.0, claim.value.to_string(), subject, source)
}
