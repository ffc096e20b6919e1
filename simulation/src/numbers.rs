//! Numbers by name, as they are read: with one reader for all that consists of nothing else, since one each, as serde
//! derives it, is kilobytes of WebAssembly.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What was read and is not taken yet.
pub(crate) struct Numbers(Vec<(String, i64)>);

/// A number that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadNumber {
    #[error("missing field `{0}`")]
    Missing(&'static str),
    #[error("`{0}` is {1}, which is out of its range")]
    OutOfRange(&'static str, i64),
    #[error("unknown field `{0}`, or there twice")]
    Left(String),
}

impl Numbers {
    /// Takes a number.
    ///
    /// # Errors
    /// It is not there and nothing stands for it, or it is too small or too large.
    pub(crate) fn take<T: TryFrom<i64>>(&mut self, name: &'static str, usual: Option<T>) -> Result<T, BadNumber> {
        match (self.find(name), usual) {
            (Some(number), _) => T::try_from(number).map_err(|_| BadNumber::OutOfRange(name, number)),
            (None, Some(usual)) => Ok(usual),
            (None, None) => Err(BadNumber::Missing(name)),
        }
    }

    fn find(&mut self, name: &str) -> Option<i64> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(place).1)
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// Something is left.
    pub(crate) fn end(mut self) -> Result<(), BadNumber> {
        self.0.pop().map_or(Ok(()), |(name, _)| Err(BadNumber::Left(name)))
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Numbers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Numbers, A::Error> {
        let mut numbers = Vec::new();
        while let Some(entry) = map.next_entry()? {
            numbers.push(entry);
        }
        Ok(Numbers(numbers))
    }
}

/// Reads two numbers, and nothing else.
///
/// # Errors
/// One is missing or out of its range, or there is more.
pub(crate) fn pair<'de, D: Deserializer<'de>, A: TryFrom<i64>, B: TryFrom<i64>>(
    deserializer: D,
    [one, other]: [&'static str; 2],
) -> Result<(A, B), D::Error> {
    let mut numbers = Numbers::deserialize(deserializer)?;
    let mut taken = || Ok((numbers.take(one, None)?, numbers.take(other, None)?));
    let pair = taken().map_err(|error: BadNumber| D::Error::custom(error))?;
    numbers.end().map_err(D::Error::custom)?;
    Ok(pair)
}

/// Has a struct read from [`Numbers`]: `usual` is what stands for those that are not there, an `Option` of the struct.
macro_rules! from_numbers {
    ($type:ident { $($name:ident),* }, $usual:expr) => {
        impl TryFrom<$crate::numbers::Numbers> for $type {
            type Error = $crate::numbers::BadNumber;

            fn try_from(mut numbers: $crate::numbers::Numbers) -> Result<Self, Self::Error> {
                let usual: Option<$type> = $usual;
                let read = Self { $($name: numbers.take(stringify!($name), usual.map(|usual| usual.$name))?),* };
                numbers.end()?;
                Ok(read)
            }
        }
    };
}

pub(crate) use from_numbers;
