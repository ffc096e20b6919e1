//! `_native.ArrowRows`: the rows of a table, read from an Arrow stream one page at a time.
#![allow(unsafe_code, reason = "the Arrow C stream interface passes a raw pointer between libraries")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchReader};
use leasehold_bindings::verify::{Rows, VerifyStep};
use leasehold_bindings::{DetailedError, SourceId, Timestamp, Verification};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::columns::{ColumnError, Columns, Layout};
use crate::errors;
use crate::session::Session;

/// The reason why the rows of an Arrow stream cannot be read or used.
pub(crate) enum RowsError {
    /// A column of the table is unreadable.
    Column(ColumnError),
    /// The engine refuses the rows, or the Arrow stream fails.
    Engine(DetailedError),
}

impl RowsError {
    /// Returns the Python exception for this error.
    pub(crate) fn exception(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Column(error) => errors::column(py, error),
            Self::Engine(error) => errors::exception(py, error),
        }
    }
}

impl From<ColumnError> for RowsError {
    fn from(error: ColumnError) -> Self {
        Self::Column(error)
    }
}

impl From<DetailedError> for RowsError {
    fn from(error: DetailedError) -> Self {
        Self::Engine(error)
    }
}

/// The rows of a table from an Arrow stream, sorted by their encoded keys. One thread may use them
/// at a time.
#[pyclass(frozen, module = "leasehold._native")]
pub(crate) struct ArrowRows(Session<Stream>);

#[pymethods]
impl ArrowRows {
    #[new]
    fn new(py: Python<'_>, data: &Bound<'_, PyAny>, columns: Layout) -> PyResult<Self> {
        Ok(Self(Session::new(Stream::new(py, data, columns)?)))
    }

    /// Returns the answer to the step `find_bound`: the key of the row that is `rows` rows after
    /// `after`; `None` if fewer rows follow.
    fn bound<'py>(&self, py: Python<'py>, after: &[u8], rows: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let after = SourceId::from_bytes(after);
        let found = self.work(py, Some(&after), |stream| stream.bound(&after, rows))?;
        Ok(found.map(|id| PyBytes::new(py, id.as_bytes())))
    }
}

impl ArrowRows {
    /// Answers the run's current step `read_rows` with the requested rows.
    pub(crate) fn feed(&self, py: Python<'_>, run: &mut Verification, now: Timestamp) -> PyResult<()> {
        let after = if let VerifyStep::ReadRows { after, .. } = run.step() { Some(after.clone()) } else { None };
        self.work(py, after.as_ref(), |stream| stream.feed(run, now))
    }

    /// Runs `work` on the stream without the global interpreter lock. `work` needs rows after
    /// `after`. If the stream is past `after`, it is opened again from its first row.
    fn work<T: Send>(
        &self,
        py: Python<'_>,
        after: Option<&SourceId>,
        work: impl FnOnce(&mut Stream) -> Result<T, RowsError> + Send,
    ) -> PyResult<T> {
        self.0.with(py, |stream| {
            if after.is_some_and(|after| *after < stream.passed) {
                *stream = stream.reopened(py)?;
            }
            py.detach(|| work(stream)).map_err(|error| error.exception(py))
        })
    }
}

/// A table that is read from an Arrow stream, from the first row to the last. A second scan opens a
/// new stream.
pub(crate) struct Stream {
    /// The Python object that exports the Arrow stream.
    data: Py<PyAny>,
    reader: RecordBatchStreamReader,
    layout: Layout,
    /// The batches that were read from the stream and still have unused rows.
    parts: VecDeque<Part>,
    /// The number of unused rows in all of `parts`.
    unused: usize,
    /// The number of rows read from the stream so far.
    read: usize,
    /// The encoded key of the last row read from the stream.
    last: SourceId,
    /// The key up to which rows were used or skipped. The stream cannot return these rows a second
    /// time.
    passed: SourceId,
    is_exhausted: bool,
}

/// One batch of the stream, of which some rows are unused.
struct Part {
    columns: Columns,
    /// The index of the batch's first unused row.
    start: usize,
}

impl Part {
    fn len(&self) -> usize {
        self.columns.len() - self.start
    }

    /// Returns the index of the batch's first row with a key above `upto`, or the number of rows if
    /// `upto` is empty.
    ///
    /// # Errors
    /// A key of the batch is invalid.
    fn end(&self, upto: &SourceId) -> Result<usize, ColumnError> {
        let (mut low, mut high) = (self.start, self.columns.len());
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
    /// Opens the Arrow stream that `data` exports, and checks the types of its columns.
    ///
    /// # Errors
    /// `data` exports no Arrow stream, or a column is missing or has an unsupported type.
    pub(crate) fn new(py: Python<'_>, data: &Bound<'_, PyAny>, layout: Layout) -> PyResult<Self> {
        let reader = reader(data)?;
        layout.check(&reader.schema()).map_err(|error| errors::column(py, &error))?;
        Ok(Self {
            data: data.clone().unbind(),
            reader,
            layout,
            parts: VecDeque::new(),
            unused: 0,
            read: 0,
            last: SourceId::default(),
            passed: SourceId::default(),
            is_exhausted: false,
        })
    }

    /// Opens a new stream of the same data, at the first row.
    ///
    /// # Errors
    /// The data exports its rows only once, so the new stream is empty. An empty stream must not be
    /// taken for a table without rows: the run would destroy every claim of the second scan.
    fn reopened(&self, py: Python<'_>) -> PyResult<Self> {
        let mut stream = Self::new(py, self.data.bind(py), self.layout.clone())?;
        let message = "the run needs a second scan, but the rows can be read only once: pass a table, or an object that \
                       exports a new stream with each call";
        match py.detach(|| stream.pull()) {
            Ok(true) => Ok(stream),
            Ok(false) => Err(errors::exception(py, &DetailedError::new("INVALID_ROWS", message))),
            Err(error) => Err(error.exception(py)),
        }
    }

    /// Returns the encoded key of the row that is `rows` rows after `after`; `None` if fewer rows
    /// follow.
    ///
    /// # Errors
    /// A column is unreadable, or the stream fails.
    fn bound(&mut self, after: &SourceId, rows: usize) -> Result<Option<SourceId>, RowsError> {
        self.skip(after)?;
        while self.unused < rows && self.pull()? {}
        let mut left = rows.max(1);
        for part in &self.parts {
            if left <= part.len() {
                return Ok(Some(part.columns.id(part.start + left - 1)?));
            }
            left -= part.len();
        }
        Ok(None)
    }

    /// Answers the run's step `read_rows` with the requested rows. The rows count as used only if
    /// the run accepts them.
    ///
    /// # Errors
    /// The current step is not `read_rows`, a column is unreadable, the stream fails, or the run
    /// refuses the rows.
    fn feed(&mut self, run: &mut Verification, now: Timestamp) -> Result<(), RowsError> {
        let VerifyStep::ReadRows { after, upto } = run.step() else {
            return Err(DetailedError::new(
                "OUT_OF_TURN",
                "an `ArrowRows` answers `ReadRows` only: use `arrow` or `rows`",
            )
            .into());
        };
        let (after, upto) = (after.clone(), upto.clone());
        self.skip(&after)?;
        let (mut rows, mut used, mut decimal) = (Rows::new(now), 0, String::new());
        let mut index = 0;
        loop {
            while index == self.parts.len() && self.pull()? {}
            let Some(part) = self.parts.get(index) else { break };
            let end = part.end(&upto)?;
            for row in part.start..end {
                part.columns.add(row, &mut rows, &mut decimal)?;
            }
            used += end - part.start;
            if end < part.columns.len() {
                break;
            }
            index += 1;
        }
        // Drop the rows only after the run has accepted them. Refused rows stay unused, for another
        // answer.
        run.rows(rows)?;
        self.drop_rows(used);
        if used > 0 {
            self.passed = if upto.is_empty() { self.last.clone() } else { upto };
        }
        Ok(())
    }

    /// Reads all rows of the stream. Returns them as one answer to a step of a run.
    ///
    /// # Errors
    /// A column is unreadable, or the stream fails.
    pub(crate) fn all(mut self, now: Timestamp) -> Result<Rows, RowsError> {
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

    /// Drops the rows with keys up to `after`. These lie before the checkpoint of a continued run,
    /// or between two key ranges of a second scan.
    ///
    /// # Errors
    /// A column is unreadable, or the stream fails.
    fn skip(&mut self, after: &SourceId) -> Result<(), RowsError> {
        while !after.is_empty() && (!self.parts.is_empty() || self.pull()?) {
            let Some(part) = self.parts.front() else { break };
            let (dropped, left) = (part.end(after)? - part.start, part.len());
            if dropped > 0 {
                self.drop_rows(dropped);
                self.passed = after.clone();
            }
            if dropped < left {
                break;
            }
        }
        Ok(())
    }

    /// Reads batches up to the next one with rows, and appends it to `parts`. Returns false at the
    /// end of the stream.
    ///
    /// # Errors
    /// A column is unreadable, or the stream fails.
    fn pull(&mut self) -> Result<bool, RowsError> {
        while !self.is_exhausted {
            let Some(batch) = self.next()? else {
                self.is_exhausted = true;
                break;
            };
            let columns = self.layout.columns(&batch, self.read)?;
            if columns.len() > 0 {
                self.last = columns.last_in_order(&self.last)?;
                self.read += columns.len();
                self.unused += columns.len();
                self.parts.push_back(Part { columns, start: 0 });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the next batch of the stream; `None` at its end.
    ///
    /// # Errors
    /// The stream fails, or a batch has other columns than the schema.
    fn next(&mut self) -> Result<Option<RecordBatch>, RowsError> {
        let unreadable = |cause: &str| {
            DetailedError::new("INVALID_ROWS", format!("the stream cannot be read: {}", producer_message(cause)))
        };
        // arrow-rs panics if a batch's columns differ from the schema (arrow-array,
        // `ffi_stream.rs`, `next`). The C interface makes the producer of the stream responsible
        // for this.
        let next = catch_unwind(AssertUnwindSafe(|| self.reader.next()));
        let next = next.map_err(|_| unreadable("a batch has other columns than the schema of the stream"))?;
        Ok(next.transpose().map_err(|error| unreadable(&error.to_string()))?)
    }

    /// Drops the first `rows` unused rows of the stream. `rows` is at most `unused`.
    fn drop_rows(&mut self, mut rows: usize) {
        self.unused -= rows;
        while let Some(part) = self.parts.front_mut() {
            if rows < part.len() {
                part.start += rows;
                return;
            }
            rows -= part.len();
            self.parts.pop_front();
        }
    }
}

/// Returns the message of a stream's producer, from the error text that arrow-rs and pyarrow wrap
/// it in. pyarrow appends a Python traceback (`arrow/python/common.cc`, `PythonErrorDetail`).
fn producer_message(error: &str) -> &str {
    let message = error.split_once("Producer error: ").map_or(error, |(_, message)| message);
    message.split_once(". Detail: Python exception:").map_or(message, |(message, _)| message).trim()
}

/// Returns a reader of the Arrow stream that `data` exports. The reader owns the stream.
///
/// # Errors
/// `data` exports no Arrow stream, or the stream is not a table.
fn reader(data: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let export = data.getattr("__arrow_c_stream__").map_err(|_| {
        PyTypeError::new_err(
            "the data is not an Arrow stream: pass an object with `__arrow_c_stream__`, such as a table of polars, pandas, \
             pyarrow or duckdb",
        )
    })?;
    let capsule = export.call0()?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: `pointer_checked` compares the name, and a capsule named `arrow_array_stream` points to an `ArrowArrayStream`
    // (Arrow, "The Arrow PyCapsule Interface"). The capsule is alive until the end of this function. `from_raw` moves the
    // stream out and marks the original as released, so the capsule's destructor does not release it a second time.
    let reader = unsafe { RecordBatchStreamReader::from_raw(stream.as_ptr().cast::<FFI_ArrowArrayStream>()) };
    reader.map_err(|error| PyTypeError::new_err(format!("the data is not a table: {error}")))
}
