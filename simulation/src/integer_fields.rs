//! Structs of integers that are read from JSON objects. All of them share one reader. The reader
//! that serde derives for a struct adds kilobytes of WebAssembly for each struct.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The fields of a JSON object that no struct has taken yet.
pub(crate) struct IntegerFields(Vec<(String, i64)>);

/// The reason for which a struct cannot be built from the fields of a JSON object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidField {
    #[error("missing field `{0}`")]
    Missing(&'static str),
    #[error("`{0}` is {1}, which is out of range")]
    OutOfRange(&'static str, i64),
    #[error("unknown or duplicate field `{0}`")]
    Unexpected(String),
}

impl IntegerFields {
    /// Removes a field and returns its value. Returns `default` if the field is missing.
    ///
    /// # Errors
    /// The field is missing and has no default, or its value does not fit the type.
    pub(crate) fn take<T: TryFrom<i64>>(&mut self, name: &'static str, default: Option<T>) -> Result<T, InvalidField> {
        match (self.find(name), default) {
            (Some(number), _) => T::try_from(number).map_err(|_| InvalidField::OutOfRange(name, number)),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(InvalidField::Missing(name)),
        }
    }

    fn find(&mut self, name: &str) -> Option<i64> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(place).1)
    }

    /// Checks that no field is left.
    ///
    /// # Errors
    /// A field is left: it is unknown, or the object contains it twice.
    pub(crate) fn finish(mut self) -> Result<(), InvalidField> {
        self.0.pop().map_or(Ok(()), |(name, _)| Err(InvalidField::Unexpected(name)))
    }
}

impl<'de> Deserialize<'de> for IntegerFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = IntegerFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of integers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<IntegerFields, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = map.next_entry()? {
            fields.push(entry);
        }
        Ok(IntegerFields(fields))
    }
}

/// Reads a JSON object that has exactly the two integer fields named.
///
/// # Errors
/// A field is missing, unknown, duplicated, or its value does not fit the type.
pub(crate) fn pair<'de, D: Deserializer<'de>, A: TryFrom<i64>, B: TryFrom<i64>>(
    deserializer: D,
    [one, other]: [&'static str; 2],
) -> Result<(A, B), D::Error> {
    let mut fields = IntegerFields::deserialize(deserializer)?;
    let mut taken = || Ok((fields.take(one, None)?, fields.take(other, None)?));
    let pair = taken().map_err(|error: InvalidField| D::Error::custom(error))?;
    fields.finish().map_err(D::Error::custom)?;
    Ok(pair)
}

/// Implements `TryFrom<IntegerFields>` for a struct. `$default` is an `Option` of the struct, whose
/// fields replace missing fields of the JSON object.
macro_rules! from_integer_fields {
    ($type:ident { $($name:ident),* }, $default:expr) => {
        impl TryFrom<$crate::integer_fields::IntegerFields> for $type {
            type Error = $crate::integer_fields::InvalidField;

            fn try_from(mut fields: $crate::integer_fields::IntegerFields) -> Result<Self, Self::Error> {
                let default: Option<$type> = $default;
                let read = Self { $($name: fields.take(stringify!($name), default.map(|default| default.$name))?),* };
                fields.finish()?;
                Ok(read)
            }
        }
    };
}

pub(crate) use from_integer_fields;
