//! Columns of an Arrow table, as the engine's rows need them. They are many, so nothing is made for a single row.

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
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use leasehold_bindings::verify::Rows;
use leasehold_bindings::{MAX_SOURCE_ID_BYTES, SourceId, Timestamp};
use pyo3::FromPyObject;

/// What is wrong with a column.
#[derive(Clone, Debug)]
pub(crate) struct BadColumn {
    /// Chooses the exception.
    pub(crate) code: &'static str,
    /// The column.
    pub(crate) column: String,
    /// What is wrong, for people: "the column `x` …".
    pub(crate) what: String,
}

impl BadColumn {
    fn new(code: &'static str, column: &str, what: impl Into<String>) -> Self {
        Self { code, column: column.into(), what: what.into() }
    }

    fn of_type(column: &str, wanted: &str, found: &DataType) -> Self {
        Self::new("COLUMN_TYPE", column, format!("has to hold {wanted}, not `{found}`: cast it"))
    }

    fn null(column: &str, row: usize) -> Self {
        Self::new("COLUMN_NULL", column, format!("is null in row {row}: leave that row out, or fill it"))
    }
}

/// Where a table has what: `leasehold.TableColumns`.
#[derive(Clone, Debug, FromPyObject)]
pub(crate) struct Layout {
    key: String,
    updated_at: Option<String>,
    claims: Vec<ClaimLayout>,
    assume_utc: bool,
}

/// `leasehold.ClaimColumns`.
#[derive(Clone, Debug, FromPyObject)]
struct ClaimLayout {
    bucket_type: i32,
    value: String,
    subject_type: i32,
    subject: String,
}

impl Layout {
    /// Holds a schema to what will be read, before anything is.
    ///
    /// # Errors
    /// The first column that is missing, there twice, or of a type that can't be read.
    pub(crate) fn check(&self, schema: &SchemaRef) -> Result<(), BadColumn> {
        // Columns without rows have all their types, and no values to be wrong.
        self.columns(&RecordBatch::new_empty(schema.clone()), 0).map(drop)
    }

    /// The columns of a batch whose first row is the table's row `first`.
    ///
    /// # Errors
    /// Likewise, and where values can't be read.
    pub(crate) fn columns(&self, batch: &RecordBatch, first: usize) -> Result<Columns, BadColumn> {
        let claims = self.claims.iter().map(|claim| Claims::new(claim, batch));
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

/// The columns of one batch.
pub(crate) struct Columns {
    rows: usize,
    /// Which of the table's rows is the first.
    first: usize,
    key: String,
    keys: Column,
    updated_at: Option<Int64Array>,
    claims: Vec<Claims>,
}

impl Columns {
    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// A row's key.
    ///
    /// # Errors
    /// It is negative, empty or no text.
    pub(crate) fn id(&self, row: usize) -> Result<SourceId, BadColumn> {
        let wrong =
            |what: &str| BadColumn::new("COLUMN_VALUE", &self.key, format!("{what} in row {}", self.first + row));
        let id = match &self.keys {
            Column::Integers(keys) => SourceId::from_integer(keys.value(row)).ok_or_else(|| wrong("is negative"))?,
            Column::Texts(keys) => SourceId::from_text(keys.text(row).ok_or_else(|| wrong("is not valid UTF-8"))?),
            Column::Encoded(keys) => SourceId::from_bytes(keys.get(row)),
        };
        match id.as_bytes().len() {
            0 => Err(wrong("is empty")),
            1..=MAX_SOURCE_ID_BYTES => Ok(id),
            _ => Err(wrong(&format!("is longer than the {MAX_SOURCE_ID_BYTES} bytes that a key may have"))),
        }
    }

    /// The last row's key, where all come after `before` and in their order.
    ///
    /// # Errors
    /// They don't; see also [`id`](Self::id).
    pub(crate) fn last_in_order(&self, before: &SourceId) -> Result<SourceId, BadColumn> {
        let mut last = before.clone();
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
                let what = format!(
                    "is not in order at row {}: sort the table by the encoded key, each once",
                    self.first + row
                );
                return Err(BadColumn::new("COLUMN_ORDER", &self.key, what));
            }
            last = id;
        }
        Ok(last)
    }

    /// Adds a row with what it claims. `decimal` is for scratch.
    ///
    /// # Errors
    /// See [`id`](Self::id); a value is no text.
    pub(crate) fn add(&self, row: usize, rows: &mut Rows, decimal: &mut String) -> Result<(), BadColumn> {
        let updated_at = self.updated_at.as_ref().filter(|column| column.is_valid(row));
        // Before 1970 is as long ago.
        let updated_at = updated_at.map(|at| Timestamp::from_micros(u64::try_from(at.value(row)).unwrap_or(0)));
        rows.row(self.id(row)?.as_bytes(), updated_at);
        for claim in &self.claims {
            claim.add(row, self.first, rows, decimal)?;
        }
        Ok(())
    }

    /// That no key is null, and no subject of a value that is not.
    fn check_nulls(&self, layout: &Layout) -> Result<(), BadColumn> {
        let null = self.keys.array().nulls().and_then(|nulls| (0..self.rows).find(|row| nulls.is_null(*row)));
        if let Some(row) = null {
            return Err(BadColumn::null(&layout.key, self.first + row));
        }
        for claim in self.claims.iter().filter(|claim| claim.subjects.null_count() > 0) {
            let is_bad = |row: &usize| claim.subjects.is_null(*row) && claim.values.array().is_valid(*row);
            if let Some(row) = (0..self.rows).find(is_bad) {
                return Err(BadColumn::null(&claim.layout.subject, self.first + row));
            }
        }
        Ok(())
    }
}

/// What the rows claim of one bucket type.
struct Claims {
    layout: ClaimLayout,
    values: Column,
    has_nulls: bool,
    subjects: Int64Array,
}

impl Claims {
    fn new(layout: &ClaimLayout, batch: &RecordBatch) -> Result<Self, BadColumn> {
        let values = Column::new(named(batch, &layout.value)?, &layout.value)?;
        if let Column::Encoded(bytes) = &values {
            let found = bytes.array().data_type();
            return Err(BadColumn::of_type(&layout.value, "texts or integers", found));
        }
        let subjects = named(batch, &layout.subject)?;
        let found = subjects.data_type();
        let subjects = integers(subjects, &layout.subject)?
            .ok_or_else(|| BadColumn::of_type(&layout.subject, "integers", found))?;
        let has_nulls = values.array().null_count() > 0;
        Ok(Self { layout: layout.clone(), values, has_nulls, subjects })
    }

    fn add(&self, row: usize, first: usize, rows: &mut Rows, decimal: &mut String) -> Result<(), BadColumn> {
        if self.has_nulls && self.values.array().is_null(row) {
            return Ok(());
        }
        let wrong =
            |what: &str| BadColumn::new("COLUMN_VALUE", &self.layout.value, format!("{what} in row {}", first + row));
        let value = match &self.values {
            Column::Integers(values) => {
                decimal.clear();
                write!(decimal, "{}", values.value(row)).map_err(|_| wrong("has no decimal form"))?;
                decimal.as_str()
            }
            Column::Texts(values) | Column::Encoded(values) => {
                values.text(row).ok_or_else(|| wrong("is not valid UTF-8"))?
            }
        };
        rows.claim(self.layout.bucket_type, value, self.layout.subject_type, self.subjects.value(row));
        Ok(())
    }
}

/// A column of keys or values.
enum Column {
    Integers(Int64Array),
    Texts(Strings),
    /// Keys as the engine encodes them.
    Encoded(Strings),
}

impl Column {
    fn new(array: &dyn Array, column: &str) -> Result<Self, BadColumn> {
        if let Some(integers) = integers(array, column)? {
            return Ok(Self::Integers(integers));
        }
        if let Some(dictionary) = array.as_any_dictionary_opt() {
            return Ok(match Self::new(dictionary.values(), column)? {
                Self::Integers(_) => return Err(BadColumn::of_type(column, "integers or texts", array.data_type())),
                Self::Texts(values) => Self::Texts(Strings::Large(rows_of(dictionary, |at| values.get(at)))),
                Self::Encoded(values) => Self::Encoded(Strings::Large(rows_of(dictionary, |at| values.get(at)))),
            });
        }
        Ok(match array.data_type() {
            // As bytes: nobody has promised that they are texts.
            DataType::Utf8 => Self::Texts(Strings::Small(array.as_string::<i32>().clone().into())),
            DataType::LargeUtf8 => Self::Texts(Strings::Large(array.as_string::<i64>().clone().into())),
            DataType::Utf8View => Self::Texts(Strings::View(array.as_string_view().clone().to_binary_view())),
            DataType::Binary => Self::Encoded(Strings::Small(array.as_binary::<i32>().clone())),
            DataType::LargeBinary => Self::Encoded(Strings::Large(array.as_binary::<i64>().clone())),
            DataType::BinaryView => Self::Encoded(Strings::View(array.as_binary_view().clone())),
            DataType::FixedSizeBinary(_) => Self::Encoded(Strings::Fixed(array.as_fixed_size_binary().clone())),
            found => return Err(BadColumn::of_type(column, "integers or texts", found)),
        })
    }

    fn array(&self) -> &dyn Array {
        match self {
            Self::Integers(integers) => integers,
            Self::Texts(strings) | Self::Encoded(strings) => strings.array(),
        }
    }
}

/// Strings of bytes in any layout.
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

fn named<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a dyn Array, BadColumn> {
    let schema = batch.schema_ref();
    let mut found = (0..batch.num_columns()).filter(|at| schema.field(*at).name() == name);
    let Some(position) = found.next() else {
        return Err(BadColumn::new("COLUMN_MISSING", name, "is missing"));
    };
    if found.next().is_some() {
        return Err(BadColumn::new("COLUMN_MISSING", name, "is there twice: which one is meant?"));
    }
    Ok(batch.column(position).as_ref())
}

/// The value of each row of a dictionary, which has each value once.
fn rows_of<T, A: FromIterator<Option<T>>>(dictionary: &dyn AnyDictionaryArray, value: impl Fn(usize) -> T) -> A {
    if dictionary.values().is_empty() {
        return (0..dictionary.len()).map(|_| None).collect();
    }
    let nulls = dictionary.logical_nulls();
    let is_valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let places = dictionary.normalized_keys();
    places.into_iter().enumerate().map(|(row, at)| is_valid(row).then(|| value(at))).collect()
}

/// Integers of any size; none where the column holds something else.
fn integers(array: &dyn Array, column: &str) -> Result<Option<Int64Array>, BadColumn> {
    fn widened<T: ArrowPrimitiveType>(array: &dyn Array) -> Int64Array
    where
        i64: From<T::Native>,
    {
        array.as_primitive::<T>().unary(i64::from)
    }
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        let values = integers(dictionary.values(), column)?;
        return Ok(values.map(|values| rows_of(dictionary, |at| values.value(at))));
    }
    Ok(Some(match array.data_type() {
        DataType::Int8 => widened::<Int8Type>(array),
        DataType::Int16 => widened::<Int16Type>(array),
        DataType::Int32 => widened::<Int32Type>(array),
        DataType::Int64 => array.as_primitive::<Int64Type>().clone(),
        DataType::UInt8 => widened::<UInt8Type>(array),
        DataType::UInt16 => widened::<UInt16Type>(array),
        DataType::UInt32 => widened::<UInt32Type>(array),
        DataType::UInt64 => {
            let narrowed = array.as_primitive::<UInt64Type>().try_unary::<_, Int64Type, _>(i64::try_from);
            narrowed.map_err(|_| BadColumn::new("COLUMN_VALUE", column, "has an integer over 63 bits"))?
        }
        _ => return Ok(None),
    }))
}

/// Times in microseconds since 1970.
fn times(array: &dyn Array, column: &str, assume_utc: bool) -> Result<Int64Array, BadColumn> {
    let DataType::Timestamp(unit, zone) = array.data_type() else {
        return Err(BadColumn::of_type(column, "times", array.data_type()));
    };
    if zone.is_none() && !assume_utc {
        let what = "has no time zone: give it one, or say `assume_utc=True` where its times are UTC";
        return Err(BadColumn::new("COLUMN_TIME_ZONE", column, what));
    }
    Ok(match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().unary(|at| at.saturating_mul(1_000_000)),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().unary(|at| at.saturating_mul(1000)),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().unary(|at| at),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().unary(|at| at.div_euclid(1000)),
    })
}
