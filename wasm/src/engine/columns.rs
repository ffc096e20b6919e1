//! Conversion of columns: from JavaScript's arrays of rows and records to the engine's columns.
//!
//! A table has millions of rows. So rows pass from JavaScript to Rust as one array for each column,
//! not as one object for each row.

use js_sys::{Array, BigInt64Array, Int32Array, Uint8Array};
use leasehold_bindings::verify::{RecordRef, Records, Rows};
use leasehold_bindings::{SourceId, Timestamp};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::error::Exception;

#[wasm_bindgen]
extern "C" {
    /// Rows of the cell's table, as one array for each column.
    #[wasm_bindgen(typescript_type = "RowColumns")]
    pub type RowColumns;

    #[wasm_bindgen(method, getter)]
    fn keys(this: &RowColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn updated_at(this: &RowColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn claims(this: &RowColumns) -> JsValue;

    /// The claims of one bucket type that the rows call for, with one entry for each row.
    type ClaimColumns;

    #[wasm_bindgen(method, getter)]
    fn bucket_type(this: &ClaimColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn values(this: &ClaimColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn subject_type(this: &ClaimColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn subject_ids(this: &ClaimColumns) -> JsValue;

    /// Records of the server, as one array for each column.
    #[wasm_bindgen(typescript_type = "RecordColumns")]
    pub type RecordColumns;

    #[wasm_bindgen(method, getter)]
    fn source_ids(this: &RecordColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn bucket_types(this: &RecordColumns) -> JsValue;
    #[wasm_bindgen(method, getter, js_name = values)]
    fn record_values(this: &RecordColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn subject_types(this: &RecordColumns) -> JsValue;
    #[wasm_bindgen(method, getter, js_name = subject_ids)]
    fn record_subject_ids(this: &RecordColumns) -> JsValue;
    #[wasm_bindgen(method, getter, js_name = updated_at)]
    fn record_updated_at(this: &RecordColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn held(this: &RecordColumns) -> JsValue;
}

/// Converts columns of rows. `now` is the database's time before the page's records were listed, or
/// before the rows were read again.
///
/// # Errors
/// A column is missing, has the wrong type, or differs in length from the others.
pub(crate) fn rows(columns: &RowColumns, now: u64) -> Result<Rows, Exception> {
    check_object(columns)?;
    let keys = KeyColumn::new(columns.keys())?;
    let updated_at = columns.updated_at();
    let updated_at =
        if updated_at.is_undefined() { None } else { Some(integers(updated_at, "updated_at", keys.len())?) };
    let claims = array(columns.claims(), "claims", None)?;
    let claims = claims.iter().map(|claim| ClaimColumn::new(claim, keys.len())).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Rows::new(Timestamp::from_micros(now));
    for row in 0..keys.len() {
        let changed = updated_at.as_ref().and_then(|column| column.get(row)).map(|micros| timestamp(*micros));
        rows.row(keys.source_id(row)?.as_bytes(), changed);
        for claim in &claims {
            claim.add_to(&mut rows, row)?;
        }
    }
    Ok(rows)
}

/// Converts columns of records. `now` is the server's time when it listed the records.
///
/// # Errors
/// A column is missing, has the wrong type, or differs in length from the others.
pub(crate) fn records(columns: &RecordColumns, now: u64) -> Result<Records, Exception> {
    check_object(columns)?;
    let ids = array(columns.source_ids(), "source_ids", None)?;
    let length = ids.length() as usize;
    let bucket_types = types(columns.bucket_types(), "bucket_types", length)?;
    let values = array(columns.record_values(), "values", Some(length))?;
    let subject_types = types(columns.subject_types(), "subject_types", length)?;
    let subject_ids = integers(columns.record_subject_ids(), "subject_ids", length)?;
    let updated_at = integers(columns.record_updated_at(), "updated_at", length)?;
    let held = array(columns.held(), "held", Some(length))?;
    let numbers = bucket_types.into_iter().zip(subject_types).zip(subject_ids.into_iter().zip(updated_at));
    let objects = ids.iter().zip(values.iter()).zip(held.iter());
    let mut records = Records::new(Timestamp::from_micros(now));
    for (((bucket_type, subject_type), (subject_id, updated_at)), ((id, value), held)) in numbers.zip(objects) {
        records.record(RecordRef {
            source_id: &bytes(id, "source_ids")?,
            bucket_type,
            value: &text(&value)?,
            subject_type,
            subject_id,
            updated_at: timestamp(updated_at),
            held: held.is_truthy(),
        });
    }
    Ok(records)
}

/// The column of the rows' primary keys.
enum KeyColumn {
    Integers(Vec<i64>),
    /// Each entry is a text key, or a `Uint8Array` with the bytes of an encoded source id.
    TextsOrBytes(Array),
}

impl KeyColumn {
    fn new(keys: JsValue) -> Result<Self, Exception> {
        Ok(match keys.dyn_into::<BigInt64Array>() {
            Ok(integers) => Self::Integers(integers.to_vec()),
            Err(others) => Self::TextsOrBytes(array(others, "keys", None)?),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Integers(keys) => keys.len(),
            Self::TextsOrBytes(keys) => keys.length() as usize,
        }
    }

    fn source_id(&self, row: usize) -> Result<SourceId, Exception> {
        match self {
            Self::Integers(keys) => {
                let key = keys.get(row).copied().unwrap_or_default();
                SourceId::from_integer(key)
                    .ok_or_else(|| invalid_rows("column `keys` has a negative key: pass keys from 0 on"))
            }
            Self::TextsOrBytes(keys) => {
                let key = keys.get(row as u32);
                match key.as_string() {
                    Some(text) => Ok(SourceId::from_text(&text)),
                    None => Ok(SourceId::from_bytes(&bytes(key, "keys")?)),
                }
            }
        }
    }
}

/// The columns of the claims of one bucket type that the rows call for.
struct ClaimColumn {
    bucket_type: i32,
    values: ValueColumn,
    subject_type: i32,
    subject_ids: Vec<i64>,
}

enum ValueColumn {
    /// Each entry is an integer, which the row claims as decimal text.
    Integers(Vec<i64>),
    /// Each entry is the text that the row claims. A row with `null` or `undefined` claims nothing.
    Texts(Array),
}

impl ClaimColumn {
    fn new(columns: JsValue, length: usize) -> Result<Self, Exception> {
        check_object(&columns)?;
        let columns: ClaimColumns = columns.unchecked_into();
        Ok(Self {
            bucket_type: type_number(columns.bucket_type(), "bucket_type")?,
            values: match columns.values().dyn_into::<BigInt64Array>() {
                Ok(integers) => ValueColumn::Integers(of_length(integers.to_vec(), "values", length)?),
                Err(texts) => ValueColumn::Texts(array(texts, "values", Some(length))?),
            },
            subject_type: type_number(columns.subject_type(), "subject_type")?,
            subject_ids: integers(columns.subject_ids(), "subject_ids", length)?,
        })
    }

    /// Adds the claim of the row at this position, if the row has a value.
    fn add_to(&self, rows: &mut Rows, row: usize) -> Result<(), Exception> {
        let value = match &self.values {
            ValueColumn::Integers(integers) => integers.get(row).map(i64::to_string),
            ValueColumn::Texts(texts) => match texts.get(row as u32) {
                absent if absent.is_null() || absent.is_undefined() => None,
                value => Some(text(&value)?),
            },
        };
        if let (Some(value), Some(subject)) = (value, self.subject_ids.get(row)) {
            rows.claim(self.bucket_type, &value, self.subject_type, *subject);
        }
        Ok(())
    }
}

/// Returns an error for `null`, `undefined` and primitives. A getter called on one of these would
/// throw JavaScript's `TypeError` instead of a `LeaseholdError`.
fn check_object(value: &JsValue) -> Result<(), Exception> {
    if value.is_object() {
        Ok(())
    } else {
        Err(invalid_rows("the columns are not an object: pass an object with an array for each column"))
    }
}

fn array(value: JsValue, column: &str, length: Option<usize>) -> Result<Array, Exception> {
    let array: Array = cast(value, column, "an array")?;
    match length {
        Some(length) if length != array.length() as usize => Err(length_mismatch(column)),
        _ => Ok(array),
    }
}

fn integers(value: JsValue, column: &str, length: usize) -> Result<Vec<i64>, Exception> {
    of_length(cast::<BigInt64Array>(value, column, "a `BigInt64Array`")?.to_vec(), column, length)
}

fn types(value: JsValue, column: &str, length: usize) -> Result<Vec<i32>, Exception> {
    of_length(cast::<Int32Array>(value, column, "an `Int32Array`")?.to_vec(), column, length)
}

fn of_length<T>(values: Vec<T>, column: &str, length: usize) -> Result<Vec<T>, Exception> {
    if values.len() == length { Ok(values) } else { Err(length_mismatch(column)) }
}

fn cast<T: JsCast>(value: JsValue, column: &str, expected: &str) -> Result<T, Exception> {
    value.dyn_into().map_err(|_| invalid_rows(&format!("column `{column}` has another type: pass {expected}")))
}

fn type_number(value: JsValue, member: &str) -> Result<i32, Exception> {
    serde_wasm_bindgen::from_value(value)
        .map_err(|_| invalid_rows(&format!("`{member}` is not a type's number: pass an integer of 32 bits")))
}

fn bytes(value: JsValue, column: &str) -> Result<Vec<u8>, Exception> {
    let expected = if column == "keys" { "strings or `Uint8Array`s" } else { "`Uint8Array`s" };
    Ok(cast::<Uint8Array>(value, column, expected)?.to_vec())
}

fn text(value: &JsValue) -> Result<String, Exception> {
    value.as_string().ok_or_else(|| invalid_rows("column `values` has an entry that is not a string: pass strings"))
}

/// Converts microseconds since 1970 to a time. A time before 1970 becomes 1970, since both are long
/// ago.
fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn length_mismatch(column: &str) -> Exception {
    invalid_rows(&format!("column `{column}` has another length than the others: pass one entry for each row"))
}

fn invalid_rows(message: &str) -> Exception {
    Exception::new("INVALID_ROWS", message)
}
