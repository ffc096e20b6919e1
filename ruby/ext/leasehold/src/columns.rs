//! From Ruby's rows and records to the engine's columns. They are many, so nothing is allocated for a single one.
#![allow(unsafe_code, reason = "the bytes of Strings and the members of Arrays are looked at where they lie")]

use std::fmt::Write;

use leasehold_bindings::verify::{RecordRef, Records, Rows};
use leasehold_bindings::{SourceId, Timestamp};
use magnus::value::BoxValue;
use magnus::{
    Error, Fixnum, Integer, RArray, RHash, RString, RStruct, Ruby, Symbol, Time, TryConvert, Value, prelude::*,
};

use crate::errors;

/// After so many rows other threads get their turn, and interrupts are seen.
const ROWS_PER_TURN: usize = 1024;

/// Where a row has what.
pub(crate) struct Layout {
    key: Column,
    updated_at: Option<Column>,
    claims: Vec<ClaimColumns>,
}

struct ClaimColumns {
    bucket_type: i32,
    value: Column,
    subject_type: i32,
    subject: Column,
}

/// A position in an Array, or a key of a Hash.
enum Column {
    At(usize),
    Key(BoxValue<Value>),
}

impl Layout {
    /// # Errors
    /// A column is neither a position nor a key, or a claim does not have its four members.
    pub(crate) fn new(key: Value, updated_at: Value, claims: RArray) -> Result<Self, Error> {
        let claim = |claim: Value| -> Result<ClaimColumns, Error> {
            let [bucket_type, value, subject_type, subject] = RArray::try_convert(claim)?.to_value_array()?;
            Ok(ClaimColumns {
                bucket_type: i32::try_convert(bucket_type)?,
                value: Column::new(value)?,
                subject_type: i32::try_convert(subject_type)?,
                subject: Column::new(subject)?,
            })
        };
        Ok(Self {
            key: Column::new(key)?,
            updated_at: if updated_at.is_nil() { None } else { Some(Column::new(updated_at)?) },
            claims: claims.into_iter().map(claim).collect::<Result<_, Error>>()?,
        })
    }
}

impl Column {
    fn new(column: Value) -> Result<Self, Error> {
        Ok(match Integer::from_value(column) {
            Some(position) => Self::At(position.to_usize()?),
            None => Self::Key(BoxValue::new(column)),
        })
    }

    fn of(&self, ruby: &Ruby, row: Value) -> Result<Value, Error> {
        let found = match self {
            Self::At(position) => RArray::from_value(row).and_then(|row| at(row, *position)),
            Self::Key(key) => RHash::from_value(row).and_then(|row| row.get(**key)),
        };
        found.ok_or_else(|| wrong(ruby, "a row lacks one of its columns"))
    }
}

/// Rows as `[source_id, updated_at, [[bucket_type, value, subject_type, subject_id], …]]`.
///
/// # Errors
/// One of them is not, or the thread was interrupted.
pub(crate) fn rows(ruby: &Ruby, rows: RArray, now: Value) -> Result<Rows, Error> {
    let mut columns = Rows::new(time(ruby, now)?);
    each(ruby, rows, |row| {
        let row = RArray::try_convert(row)?;
        let [id, updated_at, claims] = members(ruby, row)?;
        let (id, updated_at) = (string(ruby, id)?, optional_time(ruby, updated_at)?);
        // SAFETY: the bytes are copied before Ruby runs again.
        columns.row(unsafe { id.as_slice() }, updated_at);
        let claims = RArray::try_convert(claims)?;
        for position in 0..claims.len() {
            let claim = at(claims, position).and_then(RArray::from_value);
            let claim = claim.ok_or_else(|| wrong(ruby, "a claim is not an Array"))?;
            let [bucket_type, value, subject_type, subject_id] = members(ruby, claim)?;
            let (bucket_type, value) = (integer(ruby, bucket_type)?, string(ruby, value)?);
            let (subject_type, subject_id) = (integer(ruby, subject_type)?, integer64(ruby, subject_id)?);
            // SAFETY: as above.
            columns.claim(bucket_type, unsafe { text(ruby, &value)? }, subject_type, subject_id);
        }
        Ok(())
    })?;
    Ok(columns)
}

/// Rows as a query gives them, laid out as told. Nil is no claim; an Integer is claimed in decimal.
///
/// # Errors
/// A row is not laid out so, or the thread was interrupted.
pub(crate) fn attributes(ruby: &Ruby, rows: RArray, layout: &Layout, now: Value) -> Result<Rows, Error> {
    let mut columns = Rows::new(time(ruby, now)?);
    let mut decimal = String::new();
    each(ruby, rows, |row| {
        let id = encode(ruby, layout.key.of(ruby, row)?)?;
        let updated_at = layout.updated_at.as_ref().map(|column| column.of(ruby, row)).transpose()?;
        let updated_at = updated_at.map_or(Ok(None), |value| optional_time(ruby, value))?;
        columns.row(id.as_bytes(), updated_at);
        for claim in &layout.claims {
            let value = claim.value.of(ruby, row)?;
            if value.is_nil() {
                continue;
            }
            let subject = integer64(ruby, claim.subject.of(ruby, row)?)?;
            if let Some(value) = RString::from_value(value) {
                // SAFETY: the text is copied before Ruby runs again.
                columns.claim(claim.bucket_type, unsafe { text(ruby, &value)? }, claim.subject_type, subject);
            } else {
                decimal.clear();
                let integer = integer64(ruby, value)?;
                write!(decimal, "{integer}").map_err(|_| wrong(ruby, "an integer has no decimal form"))?;
                columns.claim(claim.bucket_type, &decimal, claim.subject_type, subject);
            }
        }
        Ok(())
    })?;
    Ok(columns)
}

/// Members of `Leasehold::Record` and `Leasehold::Claim`, by position.
mod member {
    pub(super) const RECORD_CLAIM: usize = 1;
    pub(super) const RECORD_STATUS: usize = 3;
    pub(super) const RECORD_UPDATED_AT: usize = 6;
    pub(super) const CLAIM_BUCKET_TYPE: usize = 0;
    pub(super) const CLAIM_BUCKET_VALUE: usize = 1;
    pub(super) const CLAIM_SUBJECT_TYPE: usize = 2;
    pub(super) const CLAIM_SUBJECT_ID: usize = 3;
    pub(super) const CLAIM_SOURCE_ID: usize = 5;
}

/// The client's records.
///
/// # Errors
/// One is not a `Leasehold::Record`, or the thread was interrupted.
pub(crate) fn records(ruby: &Ruby, records: RArray, now: Value) -> Result<Records, Error> {
    let mut columns = Records::new(time(ruby, now)?);
    each(ruby, records, |record| {
        let record = RStruct::try_convert(record)?;
        let claim: RStruct = record.aref(member::RECORD_CLAIM)?;
        let status: Symbol = record.aref(member::RECORD_STATUS)?;
        let updated_at = time(ruby, record.aref(member::RECORD_UPDATED_AT)?)?;
        let source_id: RString = claim.aref(member::CLAIM_SOURCE_ID)?;
        let value: RString = claim.aref(member::CLAIM_BUCKET_VALUE)?;
        let (bucket_type, subject_type) =
            (claim.aref(member::CLAIM_BUCKET_TYPE)?, claim.aref(member::CLAIM_SUBJECT_TYPE)?);
        let subject_id = claim.aref(member::CLAIM_SUBJECT_ID)?;
        let held = status.name()? != "ACTIVE";
        // SAFETY: bytes and text are copied before Ruby runs again.
        let (source_id, value) = unsafe { (source_id.as_slice(), text(ruby, &value)?) };
        columns.record(RecordRef { source_id, bucket_type, value, subject_type, subject_id, updated_at, held });
        Ok(())
    })?;
    Ok(columns)
}

/// A source id from the bytes of a String.
pub(crate) fn source_id(bytes: RString) -> SourceId {
    // SAFETY: the bytes are copied before Ruby runs again.
    SourceId::from_bytes(unsafe { bytes.as_slice() })
}

fn each(ruby: &Ruby, array: RArray, mut body: impl FnMut(Value) -> Result<(), Error>) -> Result<(), Error> {
    let mut position = 0;
    // Other threads may change the Array at each turn.
    while let Some(value) = at(array, position) {
        body(value)?;
        position += 1;
        if position % ROWS_PER_TURN == 0 {
            ruby.thread_check_ints()?;
        }
    }
    Ok(())
}

fn at(array: RArray, position: usize) -> Option<Value> {
    // SAFETY: the slice is gone before Ruby runs again; the value lives on in the Array.
    unsafe { array.as_slice() }.get(position).copied()
}

fn members<const N: usize>(ruby: &Ruby, array: RArray) -> Result<[Value; N], Error> {
    // SAFETY: as in `at`.
    let members = <[Value; N]>::try_from(unsafe { array.as_slice() });
    members.map_err(|_| wrong(ruby, "a row or a claim has too many members, or too few"))
}

fn encode(ruby: &Ruby, key: Value) -> Result<SourceId, Error> {
    match RString::from_value(key) {
        // SAFETY: the text is copied before Ruby runs again.
        Some(key) => Ok(SourceId::from_text(unsafe { text(ruby, &key)? })),
        None => SourceId::from_integer(integer64(ruby, key)?).ok_or_else(|| wrong(ruby, "a key is negative")),
    }
}

fn string(ruby: &Ruby, value: Value) -> Result<RString, Error> {
    RString::from_value(value).ok_or_else(|| wrong(ruby, "a source id or a value is not a String"))
}

/// # Safety
/// Ruby must not run while the text is in use.
unsafe fn text<'a>(ruby: &Ruby, string: &'a RString) -> Result<&'a str, Error> {
    // SAFETY: as the caller promises.
    unsafe { string.test_as_str() }.ok_or_else(|| wrong(ruby, "a value is not valid UTF-8"))
}

fn integer(ruby: &Ruby, value: Value) -> Result<i32, Error> {
    i32::try_from(integer64(ruby, value)?).map_err(|_| wrong(ruby, "a type is out of range"))
}

fn integer64(ruby: &Ruby, value: Value) -> Result<i64, Error> {
    match Fixnum::from_value(value) {
        Some(small) => Ok(small.to_i64()),
        None => Integer::from_value(value).ok_or_else(|| wrong(ruby, "a type or an id is not an Integer"))?.to_i64(),
    }
}

fn optional_time(ruby: &Ruby, value: Value) -> Result<Option<Timestamp>, Error> {
    if value.is_nil() { Ok(None) } else { time(ruby, value).map(Some) }
}

/// From a Time, whatever has `to_time`, or an Integer of microseconds since 1970.
fn time(ruby: &Ruby, value: Value) -> Result<Timestamp, Error> {
    if let Some(micros) = Fixnum::from_value(value) {
        return Ok(Timestamp::from_micros(u64::try_from(micros.to_i64()).unwrap_or(0)));
    }
    let time = match Time::from_value(value) {
        Some(time) => time,
        None => Time::try_convert(value.funcall("to_time", ())?)?,
    };
    let since = time.timespec()?;
    let micros = i128::from(since.tv_sec) * 1_000_000 + i128::from(since.tv_nsec / 1000);
    u64::try_from(micros.max(0)).map(Timestamp::from_micros).map_err(|_| wrong(ruby, "a time is out of range"))
}

fn wrong(ruby: &Ruby, message: &str) -> Error {
    errors::defect(ruby, "INVALID_ROWS", message)
}
