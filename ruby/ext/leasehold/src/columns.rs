//! From Ruby's rows and records to the engine's columns. They are many, so nothing is allocated for a single one.
#![allow(unsafe_code, reason = "the bytes of Strings and the members of Arrays are looked at where they lie")]

use std::fmt::Write;

use leasehold_bindings::verify::{RecordRef, Records, Rows};
use leasehold_bindings::{SourceId, Timestamp};
use magnus::encoding::EncodingCapable;
use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::value::BoxValue;
use magnus::{
    Error, Fixnum, Integer, RArray, RClass, RHash, RModule, RString, Ruby, Time, TryConvert, Value, prelude::*,
};
use rb_sys::rb_struct_aref;

use crate::errors;

/// After so many rows other threads get their turn, and interrupts are seen.
const ROWS_PER_TURN: usize = 1024;

/// The id of a subject that a row does not have: there is no such claim, and the report says so.
const NOBODY: i64 = 0;

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
            let subject = claim.subject.of(ruby, row)?;
            let subject = if subject.is_nil() { NOBODY } else { integer64(ruby, subject)? };
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

/// The client's records.
///
/// # Errors
/// One is not a `Leasehold::Record` as the client makes it, or the thread was interrupted.
pub(crate) fn records(ruby: &Ruby, records: RArray, now: Value) -> Result<Records, Error> {
    let mut columns = Records::new(time(ruby, now)?);
    let leasehold: RModule = ruby.class_object().const_get("Leasehold")?;
    let record_members = Members::of(ruby, leasehold.const_get("Record")?, ["claim", "status", "updated_at"])?;
    let names = ["bucket_type", "bucket_value", "subject_type", "subject_id", "source_id"];
    let claim_members = Members::of(ruby, leasehold.const_get("Claim")?, names)?;
    let active = ruby.sym_new("ACTIVE");
    each(ruby, records, |record| {
        let [claim, status, updated_at] = record_members.read(ruby, record)?;
        let [bucket_type, value, subject_type, subject_id, source_id] = claim_members.read(ruby, claim)?;
        let updated_at = time(ruby, updated_at)?;
        let (value, source_id) = (string(ruby, value)?, string(ruby, source_id)?);
        columns.record(RecordRef {
            // SAFETY: bytes and text are copied before Ruby runs again.
            source_id: unsafe { source_id.as_slice() },
            bucket_type: integer(ruby, bucket_type)?,
            // SAFETY: as above.
            value: unsafe { text(ruby, &value)? },
            subject_type: integer(ruby, subject_type)?,
            subject_id: integer64(ruby, subject_id)?,
            updated_at,
            held: status.as_raw() != active.as_raw(),
        });
        Ok(())
    })?;
    Ok(columns)
}

/// Where a Struct's class keeps some of its members.
struct Members<const N: usize> {
    class: RClass,
    positions: [i64; N],
}

impl<const N: usize> Members<N> {
    fn of(ruby: &Ruby, class: RClass, names: [&str; N]) -> Result<Self, Error> {
        let members: RArray = class.funcall("members", ())?;
        let members: Vec<_> = members.into_iter().map(|member| member.to_string()).collect();
        let mut positions = [0; N];
        for (position, name) in positions.iter_mut().zip(names) {
            let found = members.iter().position(|member| member == name);
            *position = found
                .and_then(|at| i64::try_from(at).ok())
                .ok_or_else(|| wrong(ruby, "a Struct of the gem lacks a member"))?;
        }
        Ok(Self { class, positions })
    }

    fn read(&self, ruby: &Ruby, value: Value) -> Result<[Value; N], Error> {
        if value.class().as_raw() != self.class.as_raw() {
            return Err(wrong(ruby, "a record or its claim is not what the client makes"));
        }
        // SAFETY: instances of the class have all its members, so nothing is raised.
        let at = |position: i64| unsafe { rb_struct_aref(value.as_raw(), ruby.integer_from_i64(position).as_raw()) };
        // SAFETY: these are values of Ruby's, and live on in the Struct.
        Ok(self.positions.map(|position| unsafe { Value::from_raw(at(position)) }))
    }
}

/// A source id from the bytes of a String.
pub(crate) fn source_id(bytes: RString) -> SourceId {
    // SAFETY: the bytes are copied before Ruby runs again.
    SourceId::from_bytes(unsafe { bytes.as_slice() })
}

/// A String's bytes, whatever Ruby does to it afterwards.
pub(crate) fn bytes(string: RString) -> Vec<u8> {
    // SAFETY: the bytes are copied before Ruby runs again.
    unsafe { string.as_slice() }.to_vec()
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
        Some(key) if key.enc_get() == ruby.ascii8bit_encindex() => Ok(source_id(key)),
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
///
/// # Errors
/// It is none of these.
pub(crate) fn time(ruby: &Ruby, value: Value) -> Result<Timestamp, Error> {
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
