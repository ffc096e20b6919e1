//! The forms that bucket types give to their values.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The form of a bucket type's values. In every form, a value is not empty and has no invisible
/// characters. Only the forms of texts, [`Block`](Self::Block) and [`Armor`](Self::Armor), allow
/// line ends and tabs; no form allows other control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// The value is a decimal id from 1 to 9,223,372,036,854,775,807, without leading zeros.
    Decimal,
    /// The value is one word, without white space.
    Word,
    /// The value is a word with one `@`, which is neither the first nor the last character.
    Email,
    /// The value is one line without white space at either end. Inside, it may have spaces, but no
    /// other white space.
    Line,
    /// The value is a text of one or more lines: line ends are allowed inside and at the end, tabs
    /// inside.
    Block,
    /// The value is a word that is a domain. Comparisons ignore a dot at its end and its case, and
    /// take Punycode as the Unicode that it encodes.
    Domain,
    /// The value is an email whose domain has the form [`Domain`](Self::Domain).
    Address,
    /// The value is a line of segments between slashes. Comparisons ignore doubled slashes and
    /// slashes at the ends, and decode percent-encoded characters.
    Path,
    /// The value is a word that is the fingerprint of a key. Comparisons ignore the name of the
    /// hash, padding, and the case and colons of hexadecimal digits.
    Fingerprint,
    /// The value is a line with the type of an SSH key, the key, and a comment. Comparisons ignore
    /// the comment.
    PublicKey,
    /// The value is a text of one or more lines. Comparisons ignore the kind of line end, and the
    /// white space before line ends.
    Armor,
}

impl Form {
    /// Every form, in the order of the declaration.
    pub const ALL: [Self; 11] = [
        Self::Decimal,
        Self::Word,
        Self::Email,
        Self::Line,
        Self::Block,
        Self::Domain,
        Self::Address,
        Self::Path,
        Self::Fingerprint,
        Self::PublicKey,
        Self::Armor,
    ];

    /// Returns the plain form that this form is a special case of: a value with this form also has
    /// the plain form. Plain forms, which the built-in types have, compare values by their
    /// characters alone.
    pub const fn base_form(self) -> Self {
        match self {
            Self::Domain | Self::Fingerprint => Self::Word,
            Self::Address => Self::Email,
            Self::Path | Self::PublicKey => Self::Line,
            Self::Armor => Self::Block,
            Self::Decimal | Self::Word | Self::Email | Self::Line | Self::Block => self,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decimal => "decimal",
            Self::Word => "word",
            Self::Email => "email",
            Self::Line => "line",
            Self::Block => "block",
            Self::Domain => "domain",
            Self::Address => "address",
            Self::Path => "path",
            Self::Fingerprint => "fingerprint",
            Self::PublicKey => "public_key",
            Self::Armor => "armor",
        })
    }
}
