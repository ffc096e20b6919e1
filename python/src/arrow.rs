//! `_native.ArrowRows`: the rows of a table as an Arrow stream brings them, a page at a time.
#![allow(unsafe_code, reason = "an Arrow stream crosses from one library to another as a bare pointer")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchReader};
use leasehold_bindings::verify::{Rows, Step};
use leasehold_bindings::{DetailedError, SourceId, Timestamp, Verification};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::columns::{BadColumn, Columns, Layout};
use crate::errors;
use crate::session::Session;

/// Why rows can't be had.
pub(crate) enum Failure {
    /// A column is not as it should be.
    Column(BadColumn),
    /// The engine refuses them, or whoever streams them fails.
    Engine(DetailedError),
}

impl Failure {
    /// The exception that tells of it.
    pub(crate) fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Column(bad) => errors::column(py, bad),
            Self::Engine(error) => errors::refusal(py, error),
        }
    }
}

impl From<BadColumn> for Failure {
    fn from(bad: BadColumn) -> Self {
        Self::Column(bad)
    }
}

impl From<DetailedError> for Failure {
    fn from(error: DetailedError) -> Self {
        Self::Engine(error)
    }
}

/// A stream of a table's rows, in the order of their encoded keys.
#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct ArrowRows(Session<Stream>);

#[pymethods]
impl ArrowRows {
    #[new]
    fn new(py: Python<'_>, data: &Bound<'_, PyAny>, columns: Layout) -> PyResult<Self> {
        Ok(Self(Session::new(Stream::new(py, data, columns)?)))
    }

    /// Answers `find_bound`.
    fn bound<'py>(&self, py: Python<'py>, after: &[u8], rows: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let after = SourceId::from_bytes(after);
        let found = self.work(py, Some(&after), |stream| stream.bound(&after, rows))?;
        Ok(found.map(|id| PyBytes::new(py, id.as_bytes())))
    }
}

impl ArrowRows {
    /// Feeds a run that asks for rows the next ones.
    pub(crate) fn feed(&self, py: Python<'_>, run: &mut Verification, now: Timestamp) -> PyResult<()> {
        let after = if let Step::ReadRows { after, .. } = run.step() { Some(after.clone()) } else { None };
        self.work(py, after.as_ref(), |stream| stream.feed(run, now))
    }

    /// Works on the stream, at the rows beyond a source id, while other threads run.
    fn work<T: Send>(
        &self,
        py: Python<'_>,
        after: Option<&SourceId>,
        work: impl FnOnce(&mut Stream) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        self.0.with(py, |stream| {
            if after.is_some_and(|after| *after < stream.passed) {
                *stream = stream.again(py)?;
            }
            py.detach(|| work(stream)).map_err(|failure| failure.raise(py))
        })
    }
}

/// Rows that are read from first to last; and from the first one again, where a run looks at some of them again.
pub(crate) struct Stream {
    /// Whose rows they are.
    data: Py<PyAny>,
    reader: RecordBatchStreamReader,
    layout: Layout,
    /// What was read and not yet taken.
    parts: VecDeque<Part>,
    /// How many rows those are.
    waiting: usize,
    /// How many rows were read.
    read: usize,
    /// The last row that was read.
    last: SourceId,
    /// Up to where rows were taken or passed over: they are gone.
    passed: SourceId,
    is_over: bool,
}

/// The rows of a batch that are not yet taken.
struct Part {
    columns: Columns,
    from: usize,
}

impl Part {
    fn len(&self) -> usize {
        self.columns.len() - self.from
    }

    /// The first row that comes after a key; the empty one bounds nothing.
    fn end(&self, upto: &SourceId) -> Result<usize, BadColumn> {
        let (mut low, mut high) = (self.from, self.columns.len());
        if upto.is_empty() {
            return Ok(high);
        }
        while low < high {
            let middle = low.midpoint(high);
            if self.columns.id(middle)? <= *upto { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

impl Stream {
    /// # Errors
    /// The data is no stream, or its columns are not what the layout says.
    pub(crate) fn new(py: Python<'_>, data: &Bound<'_, PyAny>, layout: Layout) -> PyResult<Self> {
        let reader = reader(data)?;
        layout.check(&reader.schema()).map_err(|bad| errors::column(py, &bad))?;
        Ok(Self {
            data: data.clone().unbind(),
            reader,
            layout,
            parts: VecDeque::new(),
            waiting: 0,
            read: 0,
            last: SourceId::default(),
            passed: SourceId::default(),
            is_over: false,
        })
    }

    /// The rows from the first one on.
    ///
    /// # Errors
    /// They can be read only once: nothing comes where rows were.
    fn again(&self, py: Python<'_>) -> PyResult<Self> {
        let mut again = Self::new(py, self.data.bind(py), self.layout.clone())?;
        let once = "the run looks at rows again, and these can be read only once: hand in a table, or what gives a new stream each time that it is asked";
        match py.detach(|| again.pull()) {
            Ok(true) => Ok(again),
            Ok(false) => Err(errors::refusal(py, &DetailedError::new("INVALID_ROWS", once))),
            Err(failure) => Err(failure.raise(py)),
        }
    }

    /// The key of the row that is so many rows on, none where fewer are left.
    fn bound(&mut self, after: &SourceId, rows: usize) -> Result<Option<SourceId>, Failure> {
        self.pass_over(after)?;
        while self.waiting < rows && self.pull()? {}
        let mut left = rows.max(1);
        for part in &self.parts {
            if left <= part.len() {
                return Ok(Some(part.columns.id(part.from + left - 1)?));
            }
            left -= part.len();
        }
        Ok(None)
    }

    /// Hands on the rows that the run asks for. They are taken only if it takes them.
    fn feed(&mut self, run: &mut Verification, now: Timestamp) -> Result<(), Failure> {
        let Step::ReadRows { after, upto } = run.step() else {
            return Err(DetailedError::new("OUT_OF_TURN", "a stream answers `ReadRows` only: it is read once").into());
        };
        let (after, upto) = (after.clone(), upto.clone());
        self.pass_over(&after)?;
        let (mut rows, mut taken, mut decimal) = (Rows::new(now), 0, String::new());
        let mut at = 0;
        loop {
            while at == self.parts.len() && self.pull()? {}
            let Some(part) = self.parts.get(at) else { break };
            let end = part.end(&upto)?;
            for row in part.from..end {
                part.columns.add(row, &mut rows, &mut decimal)?;
            }
            taken += end - part.from;
            if end < part.columns.len() {
                break;
            }
            at += 1;
        }
        run.rows(rows)?;
        self.take(taken);
        if taken > 0 {
            self.passed = if upto.is_empty() { self.last.clone() } else { upto };
        }
        Ok(())
    }

    /// Everything that there is, as one answer.
    ///
    /// # Errors
    /// A column is not as it should be, or the stream fails.
    pub(crate) fn all(mut self, now: Timestamp) -> Result<Rows, Failure> {
        let (mut rows, mut decimal) = (Rows::new(now), String::new());
        while self.pull()? {
            while let Some(part) = self.parts.pop_front() {
                for row in 0..part.columns.len() {
                    part.columns.add(row, &mut rows, &mut decimal)?;
                }
            }
        }
        Ok(rows)
    }

    /// Drops the rows that nobody asks for: those before the place where a run goes on, and between what it looks at again.
    fn pass_over(&mut self, after: &SourceId) -> Result<(), Failure> {
        while !after.is_empty() && (!self.parts.is_empty() || self.pull()?) {
            let Some(part) = self.parts.front() else { break };
            let (dropped, left) = (part.end(after)? - part.from, part.len());
            if dropped > 0 {
                self.take(dropped);
                self.passed = after.clone();
            }
            if dropped < left {
                break;
            }
        }
        Ok(())
    }

    /// Reads a batch that has rows. False at the end.
    fn pull(&mut self) -> Result<bool, Failure> {
        while !self.is_over {
            let Some(batch) = self.next()? else {
                self.is_over = true;
                break;
            };
            let columns = self.layout.columns(&batch, self.read)?;
            if columns.len() > 0 {
                self.last = columns.last_in_order(&self.last)?;
                self.read += columns.len();
                self.waiting += columns.len();
                self.parts.push_back(Part { columns, from: 0 });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads a batch.
    fn next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        let unreadable = |what: &str| DetailedError::new("INVALID_ROWS", format!("the stream can't be read: {what}"));
        // Arrow asserts that a batch is such as the schema says, which is for its producer to keep.
        let next = catch_unwind(AssertUnwindSafe(|| self.reader.next()));
        let next = next.map_err(|_| unreadable("a batch has other columns than the stream's schema"))?;
        Ok(next.transpose().map_err(|error| unreadable(&error.to_string()))?)
    }

    fn take(&mut self, mut rows: usize) {
        self.waiting -= rows;
        while let Some(part) = self.parts.front_mut() {
            if rows < part.len() {
                part.from += rows;
                return;
            }
            rows -= part.len();
            self.parts.pop_front();
        }
    }
}

/// Takes over an Arrow stream.
fn reader(data: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let export = data.getattr("__arrow_c_stream__").map_err(|_| {
        PyTypeError::new_err("the data is no Arrow stream: it has to have `__arrow_c_stream__`, as tables of polars, pandas, pyarrow and duckdb do")
    })?;
    let capsule = export.call0()?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of that name points to such a stream, which the capsule outlives; it is moved out of there, so
    // that it is released once.
    let reader = unsafe { RecordBatchStreamReader::from_raw(stream.as_ptr().cast::<FFI_ArrowArrayStream>()) };
    reader.map_err(|error| PyTypeError::new_err(format!("the data is no table: {error}")))
}
