//! The canonical form of a bucket value: two spellings with the same canonical form are one name
//! (B12).
//!
//! Values in ASCII need no Unicode tables. The feature `unicode` adds the tables, which would be
//! most of a small WebAssembly file.

use std::borrow::Cow;

/// Returns the canonical form of a value: Unicode NFKC, and case-folded if `fold_case`.
///
/// # Errors
/// The value is not in ASCII, and this build has no Unicode tables.
#[inline]
pub(crate) fn canonical(value: &str, fold_case: bool) -> Result<Cow<'_, str>, &'static str> {
    if !value.is_ascii() {
        return beyond_ascii(value, fold_case);
    }
    Ok(if fold_case && value.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(value.to_ascii_lowercase())
    } else {
        Cow::Borrowed(value)
    })
}

/// Returns the canonical form of a domain: NFKC and case-folded, except for the letters `ß` and
/// `ς`. Domains may contain these two letters, which a fold would replace by `ss` and `σ` (UTS 46,
/// section 7, deviation characters).
///
/// # Errors
/// The value is not in ASCII, and this build has no Unicode tables.
pub(crate) fn folded_domain(value: &str) -> Result<Cow<'_, str>, &'static str> {
    if value.is_ascii() {
        return canonical(value, true);
    }
    // In a domain, the capital letter U+1E9E also stands for `ß` (UTS 46, revision 31).
    let value = value.replace('\u{1e9e}', "ß");
    let mut folded = String::with_capacity(value.len());
    for part in value.split_inclusive(['ß', 'ς']) {
        let kept = part.chars().next_back().filter(|last| matches!(last, 'ß' | 'ς'));
        let before = part.strip_suffix(['ß', 'ς']).unwrap_or(part);
        folded.push_str(&canonical(before, true)?);
        folded.extend(kept);
    }
    // A mark at the start of a part may combine with the `ß` or `ς` before it, so the joined parts
    // are normalised again.
    canonical(&folded, false).map(|form| Cow::Owned(form.into_owned()))
}

/// Returns the canonical form of a value that is not ASCII: NFKC, also case-folded if `fold_case`
/// (Unicode standard, section 3.13, definition D147). The fold runs twice, since folding can undo a
/// normalisation and a normalisation can produce capitals.
#[cfg(feature = "unicode")]
#[expect(clippy::unnecessary_wraps, reason = "without the tables it fails")]
fn beyond_ascii(value: &str, fold_case: bool) -> Result<Cow<'_, str>, &'static str> {
    use icu_casemap::{CaseMapper, CaseMapperBorrowed};
    use icu_normalizer::{
        ComposingNormalizer, ComposingNormalizerBorrowed, DecomposingNormalizer, DecomposingNormalizerBorrowed,
    };
    const CASE: CaseMapperBorrowed<'static> = CaseMapper::new();
    const NFKC: ComposingNormalizerBorrowed<'static> = ComposingNormalizer::new_nfkc();
    const NFD: DecomposingNormalizerBorrowed<'static> = DecomposingNormalizer::new_nfd();

    let fold = |value: &str| NFKC.normalize(&CASE.fold_string(&NFD.normalize(value))).into_owned();
    let canonical = if fold_case { fold(&fold(value)) } else { NFKC.normalize(value).into_owned() };
    Ok(if canonical == value { Cow::Borrowed(value) } else { Cow::Owned(canonical) })
}

#[cfg(not(feature = "unicode"))]
fn beyond_ascii(_value: &str, _fold_case: bool) -> Result<Cow<'_, str>, &'static str> {
    Err("this build of the engine has no tables of Unicode, and takes values in ASCII only: use one with them")
}

#[cfg(all(test, feature = "unicode"))]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::properties::config;
    use proptest::prelude::*;

    #[test]
    fn b12_case_and_compatibility_forms_are_one_name() {
        for (one, other) in [
            ("Alice", "alice"),
            ("STRASSE", "straße"),
            ("ﬁona", "FIONA"),
            ("Ａｌｉｃｅ", "alice"),
            ("e\u{301}lan", "Élan"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ] {
            assert_eq!(canonical(one, true).unwrap(), canonical(other, true).unwrap(), "{one} {other}");
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn b12_a_canonical_form_is_its_own_canonical_form(value in "\\PC{1,40}", fold_case: bool) {
            let once = canonical(&value, fold_case).unwrap().into_owned();
            prop_assert_eq!(canonical(&once, fold_case).unwrap(), once.as_str());
        }

        #[test]
        fn b12_folded_values_that_differ_in_case_are_one_name(value in "\\PC{1,20}") {
            let folded = canonical(&value, true).unwrap().into_owned();
            // `to_lowercase` differs from case folding for the final sigma and the dotted capital
            // I.
            prop_assume!(!value.contains(['Σ', 'İ', 'ς']));
            let lower = value.to_lowercase();
            prop_assert_eq!(canonical(&lower, true).unwrap(), folded);
        }
    }
}

#[cfg(all(test, not(feature = "unicode")))]
mod tests {
    use super::*;

    #[test]
    fn b12_a_value_beyond_ascii_is_refused_without_the_tables() {
        assert_eq!(canonical("Alice", true), Ok(Cow::Borrowed("alice")));
        for fold_case in [false, true] {
            assert!(canonical("straße", fold_case).is_err_and(|why| why.contains("ASCII only")));
        }
    }
}
