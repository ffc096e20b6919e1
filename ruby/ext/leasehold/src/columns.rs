//! Converts Ruby's rows and records to the engine's columns. A page has thousands of rows, so the
//! conversion allocates no memory per row or claim.
#![allow(unsafe_code, reason = "reads bytes of Strings and elements of Arrays in place")]

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

/// Number of rows after which other Ruby threads may run and interrupts are handled.
const ROWS_PER_TURN: usize = 1024;

/// Subject id of a row that has none. No claim has this subject, and the report counts such rows.
const NO_SUBJECT: i64 = 0;

/// The columns of key, change time and claims in a row.
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

/// A column: a position in an Array, or a key of a Hash.
enum Column {
    Position(usize),
    Key(BoxValue<Value>),
}

impl Layout {
    /// Reads the layout from the arguments of `Leasehold::Verification#attributes`.
    ///
    /// # Errors
    /// Fails if a column is neither a position nor a key, or a claim does not have four members.
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
            Some(position) => Self::Position(position.to_usize()?),
            None => Self::Key(BoxValue::new(column)),
        })
    }

    fn read(&self, ruby: &Ruby, row: Value) -> Result<Value, Error> {
        let found = match self {
            Self::Position(position) => RArray::from_value(row).and_then(|row| element(row, *position)),
            Self::Key(key) => RHash::from_value(row).map(|row| member(row, **key)).transpose()?.flatten(),
        };
        found.ok_or_else(|| invalid_rows(ruby, "a row lacks a column of the layout: pass rows with all columns"))
    }
}

/// Converts rows of the form `[source_id, updated_at, [[bucket_type, value, subject_type,
/// subject_id], …]]`.
///
/// # Errors
/// Fails if a row has another form, or the thread is interrupted.
pub(crate) fn rows(ruby: &Ruby, rows: RArray, now: Value) -> Result<Rows, Error> {
    let mut columns = Rows::new(time(ruby, now)?);
    for_each(ruby, rows, |row| {
        let row = RArray::try_convert(row)?;
        let [id, updated_at, claims] = elements(ruby, row)?;
        let (id, updated_at) = (string(ruby, id)?, optional_time(ruby, updated_at)?);
        // SAFETY: `row` copies the bytes before Ruby code runs again.
        columns.row(unsafe { id.as_slice() }, updated_at);
        let claims = RArray::try_convert(claims)?;
        for position in 0..claims.len() {
            let claim = element(claims, position).and_then(RArray::from_value);
            let claim = claim.ok_or_else(|| {
                invalid_rows(ruby, "a claim is not an Array: pass `[bucket_type, value, subject_type, subject_id]`")
            })?;
            let [bucket_type, value, subject_type, subject_id] = elements(ruby, claim)?;
            let (bucket_type, value) = (integer(ruby, bucket_type)?, string(ruby, value)?);
            let (subject_type, subject_id) = (integer(ruby, subject_type)?, integer64(ruby, subject_id)?);
            // SAFETY: `claim` copies the text before Ruby code runs again.
            columns.claim(bucket_type, unsafe { text(ruby, &value)? }, subject_type, subject_id);
        }
        Ok(())
    })?;
    Ok(columns)
}

/// Converts rows as a query returns them, with their claims at the layout's columns. A nil value is
/// no claim; an Integer is claimed in decimal.
///
/// # Errors
/// Fails if a row does not fit the layout, or the thread is interrupted.
pub(crate) fn attributes(ruby: &Ruby, rows: RArray, layout: &Layout, now: Value) -> Result<Rows, Error> {
    let mut columns = Rows::new(time(ruby, now)?);
    let mut decimal = String::new();
    for_each(ruby, rows, |row| {
        let id = source_id_of_key(ruby, layout.key.read(ruby, row)?)?;
        let updated_at = layout.updated_at.as_ref().map(|column| column.read(ruby, row)).transpose()?;
        let updated_at = updated_at.map_or(Ok(None), |value| optional_time(ruby, value))?;
        columns.row(id.as_bytes(), updated_at);
        for claim in &layout.claims {
            let value = claim.value.read(ruby, row)?;
            if value.is_nil() {
                continue;
            }
            let subject = claim.subject.read(ruby, row)?;
            let subject = if subject.is_nil() { NO_SUBJECT } else { integer64(ruby, subject)? };
            if let Some(value) = RString::from_value(value) {
                // SAFETY: `claim` copies the text before Ruby code runs again.
                columns.claim(claim.bucket_type, unsafe { text(ruby, &value)? }, claim.subject_type, subject);
            } else {
                decimal.clear();
                let integer = integer64(ruby, value)?;
                write!(decimal, "{integer}").map_err(|_| invalid_rows(ruby, "an Integer has no decimal form"))?;
                columns.claim(claim.bucket_type, &decimal, claim.subject_type, subject);
            }
        }
        Ok(())
    })?;
    Ok(columns)
}

/// Converts the client's records.
///
/// # Errors
/// Fails if an object is not a `Leasehold::Record` with a `Leasehold::Claim`, or the thread is
/// interrupted.
pub(crate) fn records(ruby: &Ruby, records: RArray, now: Value) -> Result<Records, Error> {
    let mut columns = Records::new(time(ruby, now)?);
    let leasehold: RModule = ruby.class_object().const_get("Leasehold")?;
    let record_members = Members::of(ruby, leasehold.const_get("Record")?, ["claim", "status", "updated_at"])?;
    let names = ["bucket_type", "bucket_value", "subject_type", "subject_id", "source_id"];
    let claim_members = Members::of(ruby, leasehold.const_get("Claim")?, names)?;
    let active = ruby.sym_new("ACTIVE");
    for_each(ruby, records, |record| {
        let [claim, status, updated_at] = record_members.read(ruby, record)?;
        let [bucket_type, value, subject_type, subject_id, source_id] = claim_members.read(ruby, claim)?;
        let updated_at = time(ruby, updated_at)?;
        let (value, source_id) = (string(ruby, value)?, string(ruby, source_id)?);
        columns.record(RecordRef {
            // SAFETY: `record` copies the bytes before Ruby code runs again.
            source_id: unsafe { source_id.as_slice() },
            bucket_type: integer(ruby, bucket_type)?,
            // SAFETY: `record` copies the text before Ruby code runs again.
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

/// The positions of some members in a class of Structs. Reading by position avoids a method call
/// per member.
struct Members<const N: usize> {
    class: RClass,
    positions: [i64; N],
}

impl<const N: usize> Members<N> {
    fn of(ruby: &Ruby, class: RClass, names: [&str; N]) -> Result<Self, Error> {
        let members: RArray = class.funcall("members", ())?;
        let mut positions = [0; N];
        for (position, name) in positions.iter_mut().zip(names) {
            // Symbols are compared, not their texts: magnus' `Display` calls `to_s`, and drops what interrupts it.
            let name = ruby.to_symbol(name);
            let found = members.into_iter().position(|member| member.as_raw() == name.as_raw());
            *position = found
                .and_then(|position| i64::try_from(position).ok())
                .ok_or_else(|| invalid_rows(ruby, "a Struct of the gem lacks a member: report this defect"))?;
        }
        Ok(Self { class, positions })
    }

    fn read(&self, ruby: &Ruby, value: Value) -> Result<[Value; N], Error> {
        if value.class().as_raw() != self.class.as_raw() {
            return Err(invalid_rows(
                ruby,
                "a record is not a `Leasehold::Record` with a `Leasehold::Claim`: pass the client's records",
            ));
        }
        // SAFETY: `value` is an instance of the class, which has all of these members, so Ruby
        // raises no exception.
        let member =
            |position: i64| unsafe { rb_struct_aref(value.as_raw(), ruby.integer_from_i64(position).as_raw()) };
        // SAFETY: `rb_struct_aref` returned a Ruby value, which the Struct keeps alive.
        Ok(self.positions.map(|position| unsafe { Value::from_raw(member(position)) }))
    }
}

/// Builds a source id from the bytes of a String.
pub(crate) fn source_id(bytes: RString) -> SourceId {
    // SAFETY: `from_bytes` copies the bytes before Ruby code runs again.
    SourceId::from_bytes(unsafe { bytes.as_slice() })
}

/// Copies the bytes of a String, which Ruby may change or free afterwards.
pub(crate) fn bytes(string: RString) -> Vec<u8> {
    // SAFETY: `to_vec` copies the bytes before Ruby code runs again.
    unsafe { string.as_slice() }.to_vec()
}

fn for_each(ruby: &Ruby, array: RArray, mut body: impl FnMut(Value) -> Result<(), Error>) -> Result<(), Error> {
    let mut position = 0;
    // The length is read anew in each iteration: other threads may change the Array while they run.
    while let Some(value) = element(array, position) {
        body(value)?;
        position += 1;
        if position % ROWS_PER_TURN == 0 {
            ruby.thread_check_ints()?;
        }
    }
    Ok(())
}

fn element(array: RArray, position: usize) -> Option<Value> {
    // SAFETY: the slice is dropped before Ruby code runs again, and the Array keeps the value
    // alive.
    unsafe { array.as_slice() }.get(position).copied()
}

/// Returns the value under `key`. The key's methods `hash` and `eql?` may raise, and magnus' `get` would drop that.
///
/// # Errors
/// Fails if a method of the key raises, or the thread is interrupted in it.
fn member(hash: RHash, key: Value) -> Result<Option<Value>, Error> {
    // The hash itself stands for a missing value, since it is no value of a column.
    let found: Value = hash.lookup2(key, hash)?;
    Ok((found.as_raw() != hash.as_raw()).then_some(found))
}

fn elements<const N: usize>(ruby: &Ruby, array: RArray) -> Result<[Value; N], Error> {
    // SAFETY: the slice is dropped before Ruby code runs again, and the Array keeps the values
    // alive.
    let members = <[Value; N]>::try_from(unsafe { array.as_slice() });
    members.map_err(|_| {
        invalid_rows(ruby, "a row or a claim has the wrong number of members: pass 3 for a row, 4 for a claim")
    })
}

fn source_id_of_key(ruby: &Ruby, key: Value) -> Result<SourceId, Error> {
    match RString::from_value(key) {
        Some(key) if key.enc_get() == ruby.ascii8bit_encindex() => Ok(source_id(key)),
        // SAFETY: `from_text` copies the text before Ruby code runs again.
        Some(key) => Ok(SourceId::from_text(unsafe { text(ruby, &key)? })),
        None => SourceId::from_integer(integer64(ruby, key)?)
            .ok_or_else(|| invalid_rows(ruby, "a key is negative: leave out rows with negative keys")),
    }
}

fn string(ruby: &Ruby, value: Value) -> Result<RString, Error> {
    RString::from_value(value).ok_or_else(|| invalid_rows(ruby, "a source id or a value is not a String: pass Strings"))
}

/// # Safety
/// Ruby code must not run while the text is in use.
unsafe fn text<'a>(ruby: &Ruby, string: &'a RString) -> Result<&'a str, Error> {
    // SAFETY: the caller guarantees that no Ruby code runs while the text is in use.
    unsafe { string.test_as_str() }.ok_or_else(|| invalid_rows(ruby, "a value is not valid UTF-8: pass valid text"))
}

fn integer(ruby: &Ruby, value: Value) -> Result<i32, Error> {
    i32::try_from(integer64(ruby, value)?)
        .map_err(|_| invalid_rows(ruby, "a type is out of range: pass a 32-bit Integer"))
}

fn integer64(ruby: &Ruby, value: Value) -> Result<i64, Error> {
    match Fixnum::from_value(value) {
        Some(small) => Ok(small.to_i64()),
        None => Integer::from_value(value)
            .ok_or_else(|| invalid_rows(ruby, "a type or an id is not an Integer: pass Integers"))?
            .to_i64(),
    }
}

fn optional_time(ruby: &Ruby, value: Value) -> Result<Option<Timestamp>, Error> {
    if value.is_nil() { Ok(None) } else { time(ruby, value).map(Some) }
}

/// Converts a `Time`, an object with `to_time`, or an Integer of microseconds since 1970.
///
/// # Errors
/// Fails if the value is none of these.
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
    u64::try_from(micros.max(0)).map(Timestamp::from_micros).map_err(|_| {
        invalid_rows(ruby, "a time is out of range: pass a time whose microseconds since 1970 fit into 64 bits")
    })
}

fn invalid_rows(ruby: &Ruby, message: &str) -> Error {
    errors::internal(ruby, "INVALID_ROWS", message)
}
