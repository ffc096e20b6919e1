//! Converts Arrow columns to the engine's rows without a memory allocation per row.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    AnyDictionaryArray, Array, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, Int64Array, LargeBinaryArray,
    RecordBatch,
};
use arrow_schema::{DataType, Schema, SchemaRef, TimeUnit};
use leasehold_bindings::verify::Rows;
use leasehold_bindings::{MAX_SOURCE_ID_BYTES, SourceId, Timestamp};
use pyo3::FromPyObject;

/// The types that key and value columns can have, as error messages name them.
const KEYS_OR_VALUES: &str = "integers or strings";

/// The most columns that the error of a missing column lists, as in `leasehold/tables/_table.py`.
const MAX_LISTED_COLUMNS: usize = 20;

/// The error of a table's column that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct ColumnError {
    /// The error code, which selects the exception class: a key of `COLUMN_ERRORS` in
    /// `leasehold/errors.py`.
    pub(crate) code: &'static str,
    /// The name of the unreadable column.
    pub(crate) column: String,
    /// The second part of the error message, which follows "the column `NAME` ".
    pub(crate) problem: String,
}

impl ColumnError {
    fn new(code: &'static str, column: &str, problem: impl Into<String>) -> Self {
        Self { code, column: column.into(), problem: problem.into() }
    }

    fn wrong_type(column: &str, expected: &str, found: &DataType) -> Self {
        Self::new("COLUMN_TYPE", column, format!("must contain {expected}, not `{found}`: cast it"))
    }

    fn null(column: &str, row: usize) -> Self {
        Self::new("COLUMN_NULL", column, format!("is null in row {row}: omit the row, or fill the column"))
    }

    fn missing(column: &str, schema: &Schema) -> Self {
        let fields = schema.fields();
        let names = fields.iter().take(MAX_LISTED_COLUMNS).map(|field| format!("`{}`", field.name()));
        let listed = names.collect::<Vec<_>>().join(", ");
        let found = match fields.len() {
            0 => "no columns".to_owned(),
            1..=MAX_LISTED_COLUMNS => format!("the columns {listed}"),
            all => format!("the columns {listed} and {} more", all - MAX_LISTED_COLUMNS),
        };
        Self::new("COLUMN_MISSING", column, format!("is missing: the table has {found}"))
    }
}

/// The names of the table's columns to read, from a Python `leasehold.verification.TableColumns`.
#[derive(Clone, Debug, FromPyObject)]
pub(crate) struct Layout {
    key: String,
    updated_at: Option<String>,
    claims: Vec<ClaimLayout>,
    assume_utc: bool,
}

/// The columns that make the claims of one bucket type, from a Python
/// `leasehold.verification.ClaimColumns`.
#[derive(Clone, Debug, FromPyObject)]
struct ClaimLayout {
    bucket_type: i32,
    value: String,
    subject_type: i32,
    subject: String,
}

impl Layout {
    /// Checks the types of the columns in a stream's schema, before any row is read.
    ///
    /// # Errors
    /// The first column that is missing, duplicated or of an unsupported type.
    pub(crate) fn check(&self, schema: &SchemaRef) -> Result<(), ColumnError> {
        // An empty batch has the types of the schema but no values, so `columns` checks only the
        // types.
        self.columns(&RecordBatch::new_empty(schema.clone()), 0).map(drop)
    }

    /// Returns the read columns of a batch. `first` is the number of the batch's first row in the
    /// whole table.
    ///
    /// # Errors
    /// A column is missing, duplicated, of an unsupported type, or null in a row that needs a
    /// value.
    pub(crate) fn columns(&self, batch: &RecordBatch, first: usize) -> Result<Columns, ColumnError> {
        let claims = self.claims.iter().map(|claim| ClaimsOfType::new(claim, batch));
        let updated_at = self.updated_at.as_deref().map(|name| times(named(batch, name)?, name, self.assume_utc));
        let columns = Columns {
            rows: batch.num_rows(),
            first,
            keys: Column::new(named(batch, &self.key)?, &self.key)?,
            key: self.key.clone(),
            updated_at: updated_at.transpose()?,
            claims: claims.collect::<Result<_, _>>()?,
        };
        columns.check_nulls(self)?;
        Ok(columns)
    }
}

/// The columns of one batch that verification reads.
pub(crate) struct Columns {
    rows: usize,
    /// The number of the batch's first row in the whole table, for error messages.
    first: usize,
    key: String,
    keys: Column,
    updated_at: Option<Int64Array>,
    claims: Vec<ClaimsOfType>,
}

impl Columns {
    /// Returns the number of rows in the batch.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Returns the encoded key of the row with this index.
    ///
    /// # Errors
    /// The key is negative, empty, too long, or not valid UTF-8.
    pub(crate) fn id(&self, row: usize) -> Result<SourceId, ColumnError> {
        let invalid = |problem: &str| {
            ColumnError::new("COLUMN_VALUE", &self.key, format!("{problem} in row {}", self.first + row))
        };
        let id = match &self.keys {
            Column::Integers(keys) => SourceId::from_integer(keys.value(row)).ok_or_else(|| invalid("is negative"))?,
            Column::Texts(keys) => SourceId::from_text(keys.text(row).ok_or_else(|| invalid("is not valid UTF-8"))?),
            Column::Encoded(keys) => SourceId::from_bytes(keys.get(row)),
        };
        match id.as_bytes().len() {
            0 => Err(invalid("is empty")),
            1..=MAX_SOURCE_ID_BYTES => Ok(id),
            _ => Err(invalid(&format!("is longer than {MAX_SOURCE_ID_BYTES} bytes"))),
        }
    }

    /// Checks that the batch's encoded keys ascend, beginning above `before`. Returns the last key.
    ///
    /// # Errors
    /// The keys do not ascend, or a key is invalid; see [`id`](Self::id).
    pub(crate) fn last_in_order(&self, before: &SourceId) -> Result<SourceId, ColumnError> {
        let mut last = before.clone();
        // Encoded integers sort like the integers, so compare the integers and save the encoding of
        // each key.
        if let Column::Integers(keys) = &self.keys
            && keys.values().is_sorted_by(|one, other| one < other)
            && self.rows > 0
            && self.id(0)? > last
        {
            return self.id(self.rows - 1);
        }
        for row in 0..self.rows {
            let id = self.id(row)?;
            if id <= last {
                let row = self.first + row;
                // Before the first row there is none, but the position from which a run goes on.
                let problem = match id == last && row > 0 {
                    true => format!(
                        "has the same value in row {row} and in the one before it: choose a key column whose values are unique"
                    ),
                    false => format!("is not in order at row {row}: sort the table by the encoded key"),
                };
                return Err(ColumnError::new("COLUMN_ORDER", &self.key, problem));
            }
            last = id;
        }
        Ok(last)
    }

    /// Appends the row with this index and its claims to `rows`. All calls share the buffer
    /// `decimal`, which saves an allocation per integer value.
    ///
    /// # Errors
    /// The key is invalid, see [`id`](Self::id), or a value is not valid UTF-8.
    pub(crate) fn add(&self, row: usize, rows: &mut Rows, decimal: &mut String) -> Result<(), ColumnError> {
        let updated_at = self.updated_at.as_ref().filter(|column| column.is_valid(row));
        // A time before 1970 becomes 1970. Both are older than any threshold for recent changes.
        let updated_at = updated_at.map(|times| Timestamp::from_micros(u64::try_from(times.value(row)).unwrap_or(0)));
        rows.row(self.id(row)?.as_bytes(), updated_at);
        for claim in &self.claims {
            claim.add(row, self.first, rows, decimal)?;
        }
        Ok(())
    }

    /// Checks that no key is null, and that each row with a value has a subject.
    ///
    /// # Errors
    /// A key is null, or a row has a value and a null subject.
    fn check_nulls(&self, layout: &Layout) -> Result<(), ColumnError> {
        let null = self.keys.array().nulls().and_then(|nulls| (0..self.rows).find(|row| nulls.is_null(*row)));
        if let Some(row) = null {
            return Err(ColumnError::null(&layout.key, self.first + row));
        }
        for claim in self.claims.iter().filter(|claim| claim.subjects.null_count() > 0) {
            let lacks_subject = |row: &usize| claim.subjects.is_null(*row) && claim.values.array().is_valid(*row);
            if let Some(row) = (0..self.rows).find(lacks_subject) {
                return Err(ColumnError::null(&claim.layout.subject, self.first + row));
            }
        }
        Ok(())
    }
}

/// The columns of one batch that make the claims of one bucket type.
struct ClaimsOfType {
    layout: ClaimLayout,
    values: Column,
    has_nulls: bool,
    subjects: Int64Array,
}

impl ClaimsOfType {
    fn new(layout: &ClaimLayout, batch: &RecordBatch) -> Result<Self, ColumnError> {
        let values = Column::new(named(batch, &layout.value)?, &layout.value)?;
        if let Column::Encoded(bytes) = &values {
            let found = bytes.array().data_type();
            return Err(ColumnError::wrong_type(&layout.value, "strings or integers", found));
        }
        let subjects = named(batch, &layout.subject)?;
        let found = subjects.data_type();
        let subjects = integers(subjects, &layout.subject)?
            .ok_or_else(|| ColumnError::wrong_type(&layout.subject, "integers", found))?;
        let has_nulls = values.array().null_count() > 0;
        Ok(Self { layout: layout.clone(), values, has_nulls, subjects })
    }

    fn add(&self, row: usize, first: usize, rows: &mut Rows, decimal: &mut String) -> Result<(), ColumnError> {
        if self.has_nulls && self.values.array().is_null(row) {
            return Ok(());
        }
        let invalid = |problem: &str| {
            ColumnError::new("COLUMN_VALUE", &self.layout.value, format!("{problem} in row {}", first + row))
        };
        let value = match &self.values {
            Column::Integers(values) => {
                decimal.clear();
                write!(decimal, "{}", values.value(row)).map_err(|_| invalid("has no decimal form"))?;
                decimal.as_str()
            }
            Column::Texts(values) | Column::Encoded(values) => {
                values.text(row).ok_or_else(|| invalid("is not valid UTF-8"))?
            }
        };
        rows.claim(self.layout.bucket_type, value, self.layout.subject_type, self.subjects.value(row));
        Ok(())
    }
}

/// A column of keys or of claimed values.
enum Column {
    Integers(Int64Array),
    Texts(Strings),
    /// Keys as bytes, which are encoded source ids already.
    Encoded(Strings),
}

impl Column {
    fn new(array: &dyn Array, column: &str) -> Result<Self, ColumnError> {
        if let Some(integers) = integers(array, column)? {
            return Ok(Self::Integers(integers));
        }
        if let Some(dictionary) = array.as_any_dictionary_opt() {
            return Ok(match Self::new(dictionary.values(), column)? {
                // Unreachable, because `integers` has converted dictionaries of integers. The error
                // makes the match complete.
                Self::Integers(_) => return Err(ColumnError::wrong_type(column, KEYS_OR_VALUES, array.data_type())),
                Self::Texts(values) => {
                    Self::Texts(Strings::Large(decode_dictionary(dictionary, |key| values.get(key))))
                }
                Self::Encoded(values) => {
                    Self::Encoded(Strings::Large(decode_dictionary(dictionary, |key| values.get(key))))
                }
            });
        }
        Ok(match array.data_type() {
            // Read texts as bytes: another library may have exported invalid UTF-8, and a `&str` to
            // it would be undefined behaviour. `Strings::text` validates each value.
            DataType::Utf8 => Self::Texts(Strings::Small(array.as_string::<i32>().clone().into())),
            DataType::LargeUtf8 => Self::Texts(Strings::Large(array.as_string::<i64>().clone().into())),
            DataType::Utf8View => Self::Texts(Strings::View(array.as_string_view().clone().to_binary_view())),
            DataType::Binary => Self::Encoded(Strings::Small(array.as_binary::<i32>().clone())),
            DataType::LargeBinary => Self::Encoded(Strings::Large(array.as_binary::<i64>().clone())),
            DataType::BinaryView => Self::Encoded(Strings::View(array.as_binary_view().clone())),
            DataType::FixedSizeBinary(_) => Self::Encoded(Strings::Fixed(array.as_fixed_size_binary().clone())),
            found => return Err(ColumnError::wrong_type(column, KEYS_OR_VALUES, found)),
        })
    }

    fn array(&self) -> &dyn Array {
        match self {
            Self::Integers(integers) => integers,
            Self::Texts(strings) | Self::Encoded(strings) => strings.array(),
        }
    }
}

/// A column of byte strings, in one of Arrow's memory layouts.
enum Strings {
    Small(BinaryArray),
    Large(LargeBinaryArray),
    View(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
}

impl Strings {
    fn array(&self) -> &dyn Array {
        match self {
            Self::Small(array) => array,
            Self::Large(array) => array,
            Self::View(array) => array,
            Self::Fixed(array) => array,
        }
    }

    fn get(&self, row: usize) -> &[u8] {
        match self {
            Self::Small(array) => array.value(row),
            Self::Large(array) => array.value(row),
            Self::View(array) => array.value(row),
            Self::Fixed(array) => array.value(row),
        }
    }

    fn text(&self, row: usize) -> Option<&str> {
        std::str::from_utf8(self.get(row)).ok()
    }
}

/// Returns the column of a batch that has this name.
///
/// # Errors
/// No column has this name, or two columns have it.
fn named<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a dyn Array, ColumnError> {
    let schema = batch.schema_ref();
    let mut indices = (0..batch.num_columns()).filter(|index| schema.field(*index).name() == name);
    let Some(index) = indices.next() else {
        return Err(ColumnError::missing(name, schema));
    };
    if indices.next().is_some() {
        return Err(ColumnError::new("COLUMN_MISSING", name, "is duplicated: rename one of them"));
    }
    Ok(batch.column(index).as_ref())
}

/// Decodes a dictionary-encoded column: returns an array with the value of each row.
fn decode_dictionary<T, A: FromIterator<Option<T>>>(
    dictionary: &dyn AnyDictionaryArray,
    value: impl Fn(usize) -> T,
) -> A {
    // All rows of a dictionary without values are null. `normalized_keys` would panic here, because
    // it asserts that values exist (arrow-array, `AnyDictionaryArray::normalized_keys`).
    if dictionary.values().is_empty() {
        return (0..dictionary.len()).map(|_| None).collect();
    }
    let nulls = dictionary.logical_nulls();
    let is_valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let keys = dictionary.normalized_keys();
    keys.into_iter().enumerate().map(|(row, key)| is_valid(row).then(|| value(key))).collect()
}

/// Returns an integer column as 64-bit integers; `None` if the column has another type.
///
/// # Errors
/// An unsigned integer needs more than 63 bits.
fn integers(array: &dyn Array, column: &str) -> Result<Option<Int64Array>, ColumnError> {
    fn widened<T: ArrowPrimitiveType>(array: &dyn Array) -> Int64Array
    where
        i64: From<T::Native>,
    {
        array.as_primitive::<T>().unary(i64::from)
    }
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        let values = integers(dictionary.values(), column)?;
        return Ok(values.map(|values| decode_dictionary(dictionary, |key| values.value(key))));
    }
    Ok(Some(match array.data_type() {
        DataType::Int8 => widened::<Int8Type>(array),
        DataType::Int16 => widened::<Int16Type>(array),
        DataType::Int32 => widened::<Int32Type>(array),
        DataType::Int64 => array.as_primitive::<Int64Type>().clone(),
        // A column of the type `Null` has no values: pandas and pyarrow give it to lists of `None`.
        DataType::Null => Int64Array::new_null(array.len()),
        DataType::UInt8 => widened::<UInt8Type>(array),
        DataType::UInt16 => widened::<UInt16Type>(array),
        DataType::UInt32 => widened::<UInt32Type>(array),
        DataType::UInt64 => {
            let narrowed = array.as_primitive::<UInt64Type>().try_unary::<_, Int64Type, _>(i64::try_from);
            narrowed.map_err(|_| {
                ColumnError::new("COLUMN_VALUE", column, "has an integer over 63 bits: use smaller keys")
            })?
        }
        _ => return Ok(None),
    }))
}

/// Returns a column of timestamps as microseconds since 1970.
///
/// # Errors
/// The column has another type, or it has no time zone and `assume_utc` is false.
fn times(array: &dyn Array, column: &str, assume_utc: bool) -> Result<Int64Array, ColumnError> {
    if array.data_type() == &DataType::Null {
        return Ok(Int64Array::new_null(array.len()));
    }
    let DataType::Timestamp(unit, zone) = array.data_type() else {
        return Err(ColumnError::wrong_type(column, "timestamps", array.data_type()));
    };
    if zone.is_none() && !assume_utc {
        let problem = "has no time zone: add one, or set `assume_utc=True` if its times are UTC";
        return Err(ColumnError::new("COLUMN_TIME_ZONE", column, problem));
    }
    Ok(match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().unary(|time| time.saturating_mul(1_000_000)),
        TimeUnit::Millisecond => {
            array.as_primitive::<TimestampMillisecondType>().unary(|time| time.saturating_mul(1000))
        }
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().unary(|time| time),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().unary(|time| time.div_euclid(1000)),
    })
}
