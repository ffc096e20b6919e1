//! The version of Unicode whose tables this build has.

use std::fmt;

/// The version of Unicode whose tables this build has, for invisible characters, for canonical forms
/// and for the looks of values.
pub const UNICODE_VERSION: UnicodeVersion = UnicodeVersion { major: 18, minor: 0 };

/// A version of Unicode. A later version is the larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnicodeVersion {
    /// The number that grows with each yearly version.
    pub major: u16,
    /// The number of an update of that version.
    pub minor: u16,
}

impl UnicodeVersion {
    /// Reads a version in the form of its text, such as `18.0`; `None` for another text.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for UnicodeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn versions_have_the_order_of_their_numbers() {
        let version = |text| UnicodeVersion::parse(text).unwrap();
        assert!(version("9.0") < version("18.0") && version("18.0") < version("18.1"));
        assert_eq!(UnicodeVersion::parse(&UNICODE_VERSION.to_string()), Some(UNICODE_VERSION));
        for text in ["", "18", "18.", "18.0.0", "18.x", "-1.0"] {
            assert_eq!(UnicodeVersion::parse(text), None, "{text}");
        }
    }
}
