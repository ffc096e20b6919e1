//! The values that each form treats as the same, treats as different, or refuses (B12).

#![cfg(feature = "unicode")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use leasehold_core::bucket::BucketType;
use leasehold_core::catalogue::{BucketRule, Catalogue, Form};
use leasehold_core::unicode_version::UNICODE_VERSION;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[path = "../src/properties.rs"]
mod properties;

use properties::config;

const CASES: &str = include_str!("normal_forms.txt");

/// Returns the canonical form of a value under a rule with this form; `None` if the form refuses
/// the value.
fn canonical(form: Form, fold_case: bool, value: &str) -> Option<String> {
    let number = BucketType(100);
    let rule = BucketRule { number, name: "T".into(), form, fold_case, refuse_confusables: false };
    let bucket = Catalogue::new([rule]).bucket(number, value.into());
    bucket.ok().map(|bucket| bucket.key.canonical.to_string())
}

/// Returns true if values of this form are tested with case folding, as in the built-in types.
fn folds_case(form: Form) -> bool {
    !matches!(form, Form::Block | Form::Armor | Form::PublicKey | Form::Fingerprint)
}

#[test]
fn b12_each_form_takes_the_listed_spellings_for_the_same() {
    let lines = CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let [name, relation, values] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let form: Form = serde_json::from_str(&format!("\"{name}\"")).unwrap();
        let values: Vec<String> = serde_json::from_str(values).unwrap();
        let forms: Vec<_> = values.iter().map(|value| canonical(form, folds_case(form), value)).collect();
        let different = forms.iter().flatten().collect::<BTreeSet<_>>().len();
        let is_as_listed = match relation {
            "same" => different == 1 && forms.iter().all(Option::is_some),
            "differ" => different == values.len(),
            "refused" => different == 0,
            other => panic!("`{other}` in {line}"),
        };
        assert!(is_as_listed, "{line}\n{forms:?}");
    }
}

/// The tables of the case folding and of the normal form are of the version that core names. Both
/// characters are new in 18.0.
#[test]
fn b12_canonical_forms_are_of_the_version_that_core_names() {
    assert_eq!(UNICODE_VERSION.to_string(), "18.0");
    assert_eq!(canonical(Form::Word, true, "\u{a7dd}"), Some("\u{277}".into()));
    assert_eq!(canonical(Form::Word, false, "\u{1dfd0}"), Some("\u{263}".into()));
}

#[test]
fn b12_the_cases_have_every_form_but_ids() {
    for form in Form::ALL.iter().filter(|form| **form != Form::Decimal) {
        assert!(CASES.contains(&format!("\n{form} ")), "{form}");
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn b12_a_canonical_form_is_its_own_canonical_form_in_every_form(
        value in prop_oneof![
            "[a-zA-Z0-9%/.:@ =ßς\u{ff0f}\u{3002}éÉxn-]{1,24}",
            "(xn--[a-z0-9-]{1,12}[.@]?){1,3}",
            "(%[0-9a-fA-F]{2}|[/a.]){1,12}",
            "\\PC{1,24}",
        ],
        at in 0..Form::ALL.len(),
        fold_case: bool,
    ) {
        let form = Form::ALL[at];
        if let Some(once) = canonical(form, fold_case, &value) {
            prop_assert_eq!(canonical(form, fold_case, &once), Some(once));
        }
    }
}
