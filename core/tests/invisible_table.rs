//! The table of invisible characters agrees with Unicode's own data, character by character.
//! `UPDATE_UNICODE=1` rewrites the table.

#![cfg(feature = "unicode")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and may write its table"
)]

use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory};
use icu_properties::{CodePointMapData, CodePointSetData};
use leasehold_core::invisible::{self, TABLE};
use leasehold_core::unicode_version::UNICODE_VERSION;

/// Characters of visible categories that leave no mark: U+2800 is the blank Braille pattern, and
/// U+13441 and U+13442 are blanks of Egyptian quadrats. U+16FE4 fills a cell of Khitan, and U+1D159
/// is a note without a head. U+FFFC stands for an object that a text has lost.
const BLANK: [char; 6] = ['\u{2800}', '\u{fffc}', '\u{13441}', '\u{13442}', '\u{16fe4}', '\u{1d159}'];

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/invisible_table.rs");

fn is_invisible(c: char) -> bool {
    use GeneralCategory as Category;
    let category = CodePointMapData::<GeneralCategory>::new().get(c);
    let is_unseen = matches!(
        category,
        Category::Unassigned
            | Category::PrivateUse
            | Category::Format
            | Category::LineSeparator
            | Category::ParagraphSeparator
    );
    is_unseen || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c) || BLANK.contains(&c)
}

/// Returns the characters at which visibility changes: the first character of an invisible run, the
/// first of the next visible run, and so on.
fn boundaries() -> Vec<u32> {
    let mut last = false;
    let turn = |c: &char| std::mem::replace(&mut last, is_invisible(*c)) != is_invisible(*c);
    ('\0'..=char::MAX).filter(turn).map(u32::from).collect()
}

fn source(boundaries: &[u32]) -> String {
    let version = UNICODE_VERSION;
    let mut text = format!(
        "//! The characters that no value may have, by Unicode {version}: made by `tests/invisible_table.rs`.\n\n\
         /// The first character of an invisible run, the first of the next visible run, and so on.\n#[rustfmt::skip]\n\
         pub const TABLE: [u32; {}] = [\n",
        boundaries.len()
    );
    for line in boundaries.chunks(12) {
        let numbers: Vec<_> = line.iter().map(|number| format!("{number:#x}")).collect();
        text += &format!("    {},\n", numbers.join(", "));
    }
    text + "];\n"
}

#[test]
fn b12_the_table_is_that_of_unicode() {
    let boundaries = boundaries();
    if std::env::var_os("UPDATE_UNICODE").is_some() {
        std::fs::write(PATH, source(&boundaries)).unwrap();
        return;
    }
    assert!(TABLE[..] == boundaries, "the table differs from Unicode's data: run this test with UPDATE_UNICODE=1");
    for c in '\0'..=char::MAX {
        assert_eq!(invisible::is_invisible(c), is_invisible(c), "{c:?}");
    }
}

#[test]
fn b12_the_tables_name_their_version() {
    // ICU4X does not say its version, but its characters do.
    let is_assigned = |c| CodePointMapData::<GeneralCategory>::new().get(c) != GeneralCategory::Unassigned;
    assert_eq!(UNICODE_VERSION.to_string(), "18.0");
    // Unicode 18.0 added U+10ED9, and left U+0378 unassigned.
    assert!(is_assigned('\u{10ed9}'));
    assert!(!is_assigned('\u{378}'));
}
