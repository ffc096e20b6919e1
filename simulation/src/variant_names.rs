//! Enums without fields that are read from JSON by the names of their variants. All of them share one
//! reader. The reader that serde derives for an enum adds a kilobyte of WebAssembly for each enum.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Reads the name of a variant, and returns the variant.
///
/// # Errors
/// The value is no string, or no variant has this name.
pub(crate) fn read<'de, D: Deserializer<'de>, T: Copy>(from: D, variants: &[(&str, T)]) -> Result<T, D::Error> {
    let name = String::deserialize(from)?;
    let found = variants.iter().find(|(known, _)| *known == name);
    found.map(|(_, variant)| *variant).ok_or_else(|| D::Error::custom(format_args!("unknown variant `{name}`")))
}

/// Implements `Serialize` and `Deserialize` for an enum without fields.
macro_rules! variant_names {
    ($type:ident { $($variant:ident: $name:literal),* $(,)? }) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(match self { $(Self::$variant => $name),* })
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::variant_names::read(from, &[$(($name, Self::$variant)),*])
            }
        }
    };
}

pub(crate) use variant_names;
