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
//! **A newer version of Unicode should change no claim.** Unicode never changes the normal form and
//! the case folding of assigned characters ([stability
//! policies](https://www.unicode.org/policies/stability_policy.html)). An unassigned character may
//! later fold into another character, so that two different names become the same. So unassigned
//! characters are refused. A server with newer tables checks the stored claims nevertheless.

use crate::invisible_table;
pub use invisible_table::TABLE;

/// Returns true if no value may have the character.
pub fn is_invisible(c: char) -> bool {
    // The table has the characters at which visibility changes, and U+0000 counts as visible. So a
    // character is invisible after an odd number of changes.
    TABLE.partition_point(|&first| first <= u32::from(c)) % 2 == 1
}
