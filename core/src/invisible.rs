//! The characters that no value may have, because readers can't see them or tell them from others.
//!
//! | characters | example |
//! |---|---|
//! | default ignorable ([UAX #44](https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point)) | U+200B zero width space |
//! | format (Cf), line and paragraph separators | U+FFF9 interlinear annotation |
//! | blank, although their category is visible | U+2800 blank Braille pattern |
//! | private use (Co) | U+E000 |
//! | unassigned (Cn), non-characters among them | U+0378 |
//!
//! **A newer version of Unicode changes no claim.** Unicode never changes the normal form and the
//! case folding of assigned characters ([stability
//! policies](https://www.unicode.org/policies/stability_policy.html)). An unassigned character may
//! later fold into another one, and make two names one. So unassigned characters are refused.

use crate::invisible_table;
pub use invisible_table::TABLE;

/// The version of Unicode whose tables this build has, for invisible characters and for canonical
/// forms.
pub const UNICODE_VERSION: &str = "18.0";

/// Returns true if no value may have the character.
pub fn is_invisible(c: char) -> bool {
    // Runs of visible and invisible characters alternate, and the first run is visible.
    TABLE.partition_point(|&first| first <= u32::from(c)) % 2 == 1
}
