//! From JavaScript's columns to the engine's. Rows and records are many, so none of them is an object.

use js_sys::{Array, BigInt64Array, Int32Array, Uint8Array};
use leasehold_bindings::verify::{RecordRef, Records, Rows};
use leasehold_bindings::{SourceId, Timestamp};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::error::Thrown;

#[wasm_bindgen]
extern "C" {
    /// Rows of the cell's own table.
    #[wasm_bindgen(typescript_type = "RowColumns")]
    pub type RowColumns;

    #[wasm_bindgen(method, getter)]
    fn keys(this: &RowColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn updated_at(this: &RowColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn claims(this: &RowColumns) -> JsValue;

    /// What each row claims of one bucket type.
    type ClaimColumns;

    #[wasm_bindgen(method, getter)]
    fn bucket_type(this: &ClaimColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn values(this: &ClaimColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn subject_type(this: &ClaimColumns) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn subject_ids(this: &ClaimColumns) -> JsValue;

    /// Records that the server listed.
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

/// Rows, as the engine compares them.
///
/// # Errors
/// A column is missing, or of another type or length than the others.
pub(crate) fn rows(columns: &RowColumns, now: u64) -> Result<Rows, Thrown> {
    check_object(columns)?;
    let ids = Ids::new(columns.keys())?;
    let updated_at = columns.updated_at();
    let updated_at =
        if updated_at.is_undefined() { None } else { Some(integers(updated_at, "updated_at", ids.len())?) };
    let claims = array(columns.claims(), "claims", None)?;
    let claims = claims.iter().map(|claim| Claims::new(claim, ids.len())).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Rows::new(Timestamp::from_micros(now));
    for row in 0..ids.len() {
        let changed = updated_at.as_ref().and_then(|column| column.get(row)).map(|micros| time(*micros));
        rows.row(ids.get(row)?.as_bytes(), changed);
        for claim in &claims {
            claim.add(row, &mut rows)?;
        }
    }
    Ok(rows)
}

/// Records, as the engine compares them.
///
/// # Errors
/// See [`rows`].
pub(crate) fn records(columns: &RecordColumns, now: u64) -> Result<Records, Thrown> {
    check_object(columns)?;
    let ids = array(columns.source_ids(), "source_ids", None)?;
    let length = ids.length() as usize;
    let bucket_types = types(columns.bucket_types(), "bucket_types", length)?;
    let values = array(columns.record_values(), "values", Some(length))?;
    let subject_types = types(columns.subject_types(), "subject_types", length)?;
    let subject_ids = integers(columns.record_subject_ids(), "subject_ids", length)?;
    let updated_at = integers(columns.record_updated_at(), "updated_at", length)?;
    let held = array(columns.held(), "held", Some(length))?;
    let fixed = bucket_types.into_iter().zip(subject_types).zip(subject_ids.into_iter().zip(updated_at));
    let given = ids.iter().zip(values.iter()).zip(held.iter());
    let mut records = Records::new(Timestamp::from_micros(now));
    for (((bucket_type, subject_type), (subject_id, updated_at)), ((id, value), held)) in fixed.zip(given) {
        records.record(RecordRef {
            source_id: &bytes(id)?,
            bucket_type,
            value: &text(&value)?,
            subject_type,
            subject_id,
            updated_at: time(updated_at),
            held: held.is_truthy(),
        });
    }
    Ok(records)
}

/// The rows' keys: integers, or for each row a text or the bytes of an encoded id.
enum Ids {
    Integers(Vec<i64>),
    Others(Array),
}

impl Ids {
    fn new(keys: JsValue) -> Result<Self, Thrown> {
        Ok(match keys.dyn_into::<BigInt64Array>() {
            Ok(integers) => Self::Integers(integers.to_vec()),
            Err(others) => Self::Others(array(others, "keys", None)?),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Integers(keys) => keys.len(),
            Self::Others(keys) => keys.length() as usize,
        }
    }

    fn get(&self, row: usize) -> Result<SourceId, Thrown> {
        match self {
            Self::Integers(keys) => {
                let key = keys.get(row).copied().unwrap_or_default();
                SourceId::from_integer(key).ok_or_else(|| wrong("a key is negative"))
            }
            Self::Others(keys) => {
                let key = keys.get(row as u32);
                match key.as_string() {
                    Some(text) => Ok(SourceId::from_text(&text)),
                    None => Ok(SourceId::from_bytes(&bytes(key)?)),
                }
            }
        }
    }
}

/// What the rows claim of one bucket type.
struct Claims {
    bucket_type: i32,
    values: Values,
    subject_type: i32,
    subject_ids: Vec<i64>,
}

enum Values {
    /// Claimed in decimal.
    Integers(Vec<i64>),
    /// Nothing is claimed for `null` and `undefined`.
    Texts(Array),
}

impl Claims {
    fn new(columns: JsValue, length: usize) -> Result<Self, Thrown> {
        check_object(&columns)?;
        let columns: ClaimColumns = columns.unchecked_into();
        Ok(Self {
            bucket_type: number(columns.bucket_type(), "bucket_type")?,
            values: match columns.values().dyn_into::<BigInt64Array>() {
                Ok(integers) => Values::Integers(of_length(integers.to_vec(), "values", length)?),
                Err(texts) => Values::Texts(array(texts, "values", Some(length))?),
            },
            subject_type: number(columns.subject_type(), "subject_type")?,
            subject_ids: integers(columns.subject_ids(), "subject_ids", length)?,
        })
    }

    fn add(&self, row: usize, rows: &mut Rows) -> Result<(), Thrown> {
        let value = match &self.values {
            Values::Integers(integers) => integers.get(row).map(i64::to_string),
            Values::Texts(texts) => match texts.get(row as u32) {
                none if none.is_null() || none.is_undefined() => None,
                value => Some(text(&value)?),
            },
        };
        if let (Some(value), Some(subject)) = (value, self.subject_ids.get(row)) {
            rows.claim(self.bucket_type, &value, self.subject_type, *subject);
        }
        Ok(())
    }
}

/// Anything else has no columns to be asked for.
fn check_object(value: &JsValue) -> Result<(), Thrown> {
    if value.is_object() { Ok(()) } else { Err(wrong("the columns are no object")) }
}

fn array(value: JsValue, name: &str, length: Option<usize>) -> Result<Array, Thrown> {
    let array: Array = cast(value, name)?;
    match length {
        Some(length) if length != array.length() as usize => Err(uneven(name)),
        _ => Ok(array),
    }
}

fn integers(value: JsValue, name: &str, length: usize) -> Result<Vec<i64>, Thrown> {
    of_length(cast::<BigInt64Array>(value, name)?.to_vec(), name, length)
}

fn types(value: JsValue, name: &str, length: usize) -> Result<Vec<i32>, Thrown> {
    of_length(cast::<Int32Array>(value, name)?.to_vec(), name, length)
}

fn of_length<T>(column: Vec<T>, name: &str, length: usize) -> Result<Vec<T>, Thrown> {
    if column.len() == length { Ok(column) } else { Err(uneven(name)) }
}

fn cast<T: JsCast>(value: JsValue, name: &str) -> Result<T, Thrown> {
    value.dyn_into().map_err(|_| wrong(&format!("the column `{name}` is missing, or of another type")))
}

fn number(value: JsValue, name: &str) -> Result<i32, Thrown> {
    serde_wasm_bindgen::from_value(value).map_err(|_| wrong(&format!("`{name}` is no type's number")))
}

fn bytes(value: JsValue) -> Result<Vec<u8>, Thrown> {
    Ok(cast::<Uint8Array>(value, "source_ids")?.to_vec())
}

fn text(value: &JsValue) -> Result<String, Thrown> {
    value.as_string().ok_or_else(|| wrong("a value is no string"))
}

/// Before 1970 is as long ago.
fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn uneven(name: &str) -> Thrown {
    wrong(&format!("the column `{name}` has another length than the others"))
}

fn wrong(message: &str) -> Thrown {
    Thrown::new("INVALID_ROWS", message)
}
