//! The catalogue of bucket types: the values that each type allows, and the canonical form that
//! decides which of these values are the same (B12).
//!
//! ```
//! use leasehold_core::bucket::BucketType;
//! use leasehold_core::catalogue::Catalogue;
//!
//! let catalogue = Catalogue::default();
//! let usernames = BucketType(4);
//! let (one, other) = (catalogue.bucket(usernames, "Alice".into()), catalogue.bucket(usernames, "alice".into()));
//! assert_eq!(one.unwrap().key, other.unwrap().key);
//! let refused = catalogue.bucket(usernames, "al ice".into()).unwrap_err();
//! assert_eq!(refused.detail.to_string(), "the value has white space where its type allows none");
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bucket::{Bucket, BucketKey, BucketType};
use crate::normal_form::normal_form;
use crate::rejection::{Detail, Reason};

pub use crate::form::Form;

/// The longest value of a bucket, in bytes of UTF-8 (B11).
pub const MAX_VALUE_BYTES: usize = 1024;
/// The most bytes of data that a cell may attach to a claim, unless a service sets another limit
/// (B11).
pub const MAX_USER_DATA_BYTES: usize = 4096;

/// The rule of one bucket type: number, name, form and case folding.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketRule {
    /// The bucket type's number on the wire: the number of its field in the message `Claim`.
    pub number: BucketType,
    /// The bucket type's name on the wire.
    pub name: Cow<'static, str>,
    /// The form that the bucket type's values must have.
    pub form: Form,
    /// True if values of the bucket type that differ only in case are the same.
    pub fold_case: bool,
    /// True if a create is refused whose value mixes scripts or looks like a value in ASCII ([UTS
    /// 39](https://www.unicode.org/reports/tr39/)). Only a build with the feature `confusables`
    /// checks this.
    #[serde(default)]
    pub refuse_confusables: bool,
}

impl BucketRule {
    /// Returns true if both rules allow the same values and give them the same canonical forms.
    /// `refuse_confusables` is not compared, since it concerns new claims only.
    fn has_same_rules(&self, other: &Self) -> bool {
        (self.number, self.form, self.fold_case) == (other.number, other.form, other.fold_case)
    }
}

const fn rule(number: i32, name: &'static str, form: Form, fold_case: bool) -> BucketRule {
    BucketRule { number: BucketType(number), name: Cow::Borrowed(name), form, fold_case, refuse_confusables: false }
}

/// The rules of the bucket types that the wire contract names.
const BUILT_IN: [BucketRule; 18] = [
    rule(1, "ROUTES", Form::Line, true),
    rule(2, "ORGANIZATION_PATH", Form::Word, true),
    rule(3, "REDIRECT_ROUTES", Form::Line, true),
    rule(4, "USERNAMES", Form::Word, true),
    rule(5, "EMAILS", Form::Email, true),
    rule(6, "PROJECT_IDS", Form::Decimal, false),
    rule(7, "NAMESPACE_IDS", Form::Decimal, false),
    rule(8, "GPG_KEYS", Form::Block, false),
    rule(9, "SSH_KEYS", Form::Line, false),
    rule(10, "USER_IDS", Form::Decimal, false),
    rule(11, "ORGANIZATION_IDS", Form::Decimal, false),
    rule(12, "SERVICE_DESK_CUSTOM_EMAILS", Form::Email, true),
    rule(13, "GPG_KEY_FINGERPRINTS", Form::Word, true),
    rule(14, "SERVICE_DESK_PROJECT_KEY_ADDRESS_SLUGS", Form::Word, true),
    rule(15, "SSH_KEY_FINGERPRINTS", Form::Word, false),
    rule(16, "SNIPPET_IDS", Form::Decimal, false),
    rule(17, "PAGES_DOMAINS", Form::Word, true),
    rule(18, "PAGES_UNIQUE_DOMAINS", Form::Word, true),
];

/// The difference between the catalogue and the rules under which a store's claims were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Bucket types whose form or case folding has changed. Under the changed rule, one name could
    /// be claimed twice, or an existing claim not be found again.
    pub changed: Vec<RuleChange>,
    /// Bucket types that the store's claims were made under and that the catalogue lacks.
    pub missing: Vec<BucketType>,
    /// Rules of the catalogue under which no claim of the store was made. Unchanged built-in rules
    /// are left out.
    pub added: Vec<BucketRule>,
}

impl Difference {
    /// Returns the first added rule that replaces a built-in rule, together with the built-in rule.
    /// A store whose claims were made under the built-in rule cannot be served with the added one.
    pub fn replaced_built_in(&self) -> Option<RuleChange> {
        let replaced = |rule: &BucketRule| {
            let served = BUILT_IN.into_iter().find(|known| known.number == rule.number)?;
            Some(RuleChange { served, configured: rule.clone() })
        };
        self.added.iter().find_map(replaced)
    }
}

/// The two rules of a bucket type whose rule has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChange {
    /// The rule under which the store's claims were made.
    pub served: BucketRule,
    /// The rule in the present catalogue.
    pub configured: BucketRule,
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = |rule: &BucketRule| format!("form `{}` and `fold_case` {}", rule.form, rule.fold_case);
        let Self { served, configured } = self;
        write!(f, "bucket type {} (`{}`) has been served with {}", served.number, served.name, rule(served))?;
        write!(f, ", and is configured with {}", rule(configured))
    }
}

/// The rules of all bucket types of a service, by number, and the limit on the data that a cell
/// attaches to a claim.
#[derive(Clone, Debug, Hash)]
pub struct Catalogue {
    rules: BTreeMap<BucketType, BucketRule>,
    max_user_data_bytes: usize,
}

/// The error of a value that its bucket type does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// The reason of the error: `InvalidUpdate`, `LimitExceeded` or `ValueNotAllowed`.
    pub reason: Reason,
    /// The fault of the value, for messages.
    pub detail: Detail,
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::new(BUILT_IN)
    }
}

impl Catalogue {
    /// Makes a catalogue of these rules. If two rules have the same number, the later one counts.
    pub fn new(rules: impl IntoIterator<Item = BucketRule>) -> Self {
        // `collect` would compile a sort for this type, which takes more code than the map itself
        // (see `order.rs`).
        let mut by_number = BTreeMap::new();
        by_number.extend(rules.into_iter().map(|rule| (rule.number, rule)));
        Self { rules: by_number, max_user_data_bytes: MAX_USER_DATA_BYTES }
    }

    /// Makes a catalogue of the built-in rules and these rules. A given rule replaces the built-in
    /// rule with the same number.
    pub fn with(rules: impl IntoIterator<Item = BucketRule>) -> Self {
        Self::new(BUILT_IN.into_iter().chain(rules))
    }

    /// Returns the catalogue with another limit on attached data, in bytes (B11).
    #[must_use]
    pub fn with_user_data_bytes(self, max_user_data_bytes: usize) -> Self {
        Self { max_user_data_bytes, ..self }
    }

    /// Returns the most bytes of data that a cell may attach to a claim: type URL and value (B11).
    pub fn max_user_data_bytes(&self) -> usize {
        self.max_user_data_bytes
    }

    /// Returns the rule of a bucket type, `None` if the catalogue lacks the type.
    pub fn rule(&self, bucket_type: BucketType) -> Option<&BucketRule> {
        self.rules.get(&bucket_type)
    }

    /// Returns every rule, in the order of numbers.
    pub fn rules(&self) -> impl Iterator<Item = &BucketRule> {
        self.rules.values()
    }

    /// Returns the difference between this catalogue and `served`, the rules under which a store's
    /// claims were made. A change of a type's rule would make the canonical forms of these claims
    /// wrong.
    pub fn differs_from(&self, served: &[BucketRule]) -> Difference {
        let mut difference = Difference::default();
        for served in served {
            match self.rule(served.number) {
                None => difference.missing.push(served.number),
                Some(rule) if rule.has_same_rules(served) => {}
                Some(rule) => {
                    difference.changed.push(RuleChange { served: served.clone(), configured: rule.clone() });
                }
            }
        }
        let is_known = |rule: &BucketRule| {
            served.iter().any(|known| known.number == rule.number)
                || BUILT_IN.iter().any(|known| known.has_same_rules(rule))
        };
        let is_new = |rule: &&BucketRule| !is_known(rule);
        difference.added = self.rules().filter(is_new).cloned().collect();
        difference
    }

    /// Returns the bucket of a type and of a value that a cell wants to claim. `spelling` is the
    /// value as the caller spelled it (B12).
    ///
    /// # Errors
    /// [`Catalogue::bucket_of_existing`] refuses the value, or the value has an invisible or
    /// unassigned character.
    pub fn bucket(&self, bucket_type: BucketType, spelling: Arc<str>) -> Result<Bucket, ValueError> {
        let bucket = self.bucket_of_existing(bucket_type, spelling)?;
        check_visible(&bucket.spelling).and_then(|()| check_visible(&bucket.key.canonical)).map_err(not_allowed)?;
        Ok(bucket)
    }

    /// Returns the bucket of a claim that may exist already, for a read or a destroy. Characters
    /// that only creates refuse are allowed here: an earlier version may have allowed them, and its
    /// claims can still be read and given up.
    ///
    /// # Errors
    /// The type is unspecified or unknown (B14), the value is too long (B11), or the type's form
    /// excludes it (B12).
    pub fn bucket_of_existing(&self, bucket_type: BucketType, spelling: Arc<str>) -> Result<Bucket, ValueError> {
        let rule = self.rule(bucket_type).ok_or_else(|| unknown_type(bucket_type))?;
        check_length(&spelling)?;
        rule.form.check(&spelling).map_err(not_allowed)?;
        let canonical = match normal_form(rule.form, &spelling, rule.fold_case).map_err(not_allowed)? {
            Cow::Borrowed(_) => spelling.clone(),
            Cow::Owned(canonical) => {
                // NFKC can turn one character into several, or into characters that the form
                // excludes. So the canonical form is checked as well.
                rule.form.check(&canonical).map_err(not_allowed)?;
                check_length(&canonical)?;
                canonical.into()
            }
        };
        Ok(Bucket { key: BucketKey { bucket_type, canonical }, spelling })
    }

    /// True if a claim's record gives the claim's key. This is false for a claim that was made by
    /// tables of Unicode with another canonical form, or under another rule.
    pub fn gives_key(&self, key: &BucketKey, spelling: Arc<str>) -> bool {
        self.bucket_of_existing(key.bucket_type, spelling).is_ok_and(|bucket| bucket.key == *key)
    }

    /// Checks that the value of a create does not look like another value, if the bucket type's
    /// rule has `refuse_confusables`. Claims that exist already are not checked.
    ///
    /// # Errors
    /// The value mixes scripts, or looks like a value in ASCII.
    pub(crate) fn check_confusable(&self, bucket: &Bucket) -> Result<(), ValueError> {
        match self.rule(bucket.key.bucket_type) {
            Some(rule) if rule.refuse_confusables => check_confusable(&bucket.key.canonical).map_err(not_allowed),
            _ => Ok(()),
        }
    }
}

/// Checks the looks of each part of a value on its own. Spaces and ASCII punctuation divide the
/// parts, since a domain may have labels in two scripts.
#[cfg(feature = "confusables")]
fn check_confusable(value: &str) -> Result<(), &'static str> {
    use unicode_security::MixedScript;
    use unicode_security::confusable_detection::skeleton;

    for part in value.split(|c: char| c.is_ascii_punctuation() || c == ' ').filter(|part| !part.is_ascii()) {
        if skeleton(part).all(|c| c.is_ascii()) {
            return Err("the value looks like another one in ASCII");
        }
        if !part.is_single_script() {
            return Err("the value mixes scripts");
        }
    }
    Ok(())
}

#[cfg(not(feature = "confusables"))]
#[expect(clippy::unnecessary_wraps, reason = "with the tables it fails")]
fn check_confusable(_value: &str) -> Result<(), &'static str> {
    Ok(())
}

fn unknown_type(bucket_type: BucketType) -> ValueError {
    let what =
        if bucket_type.0 == 0 { "`bucket.type` is unspecified" } else { "`bucket.type` is not in the catalogue" };
    ValueError { reason: Reason::InvalidUpdate, detail: Detail::Form(what) }
}

fn not_allowed(what: &'static str) -> ValueError {
    ValueError { reason: Reason::ValueNotAllowed, detail: Detail::Form(what) }
}

fn check_length(value: &str) -> Result<(), ValueError> {
    if value.len() <= MAX_VALUE_BYTES {
        return Ok(());
    }
    let detail = Detail::Limit { name: "bucket_value_bytes", max: MAX_VALUE_BYTES as u64, actual: value.len() as u64 };
    Err(ValueError { reason: Reason::LimitExceeded, detail })
}

impl Form {
    /// Checks that a value has this form.
    ///
    /// # Errors
    /// The fault of the value, as text.
    pub fn check(self, value: &str) -> Result<(), &'static str> {
        if value.is_empty() {
            return Err("the value is empty");
        }
        match self.base_form() {
            Self::Decimal => check_decimal(value),
            Self::Word => check_characters(value, char::is_whitespace),
            Self::Email => check_characters(value, char::is_whitespace).and_then(|()| check_email(value)),
            Self::Line => check_characters(value, |c| c.is_whitespace() && c != ' ').and_then(|()| check_ends(value)),
            _ => check_characters(value, |_| false).and_then(|()| check_ends(value)),
        }
        .and_then(|()| match self.base_form() {
            Self::Block => check_controls(value, |c| matches!(c, '\n' | '\r' | '\t')),
            _ => check_controls(value, |_| false),
        })
    }
}

fn check_decimal(value: &str) -> Result<(), &'static str> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit()) && !value.starts_with('0');
    match value.parse::<i64>() {
        Ok(_) if digits => Ok(()),
        _ => Err("an id is a decimal number from 1 to 9223372036854775807, without leading zeros"),
    }
}

fn check_email(value: &str) -> Result<(), &'static str> {
    match value.split_once('@') {
        Some((local, domain)) if !local.is_empty() && !domain.is_empty() && !domain.contains('@') => Ok(()),
        _ => Err("an email has one `@` between two parts"),
    }
}

fn check_characters(value: &str, space: impl Fn(char) -> bool) -> Result<(), &'static str> {
    if value.chars().any(space) {
        return Err("the value has white space where its type allows none");
    }
    Ok(())
}

#[cfg(feature = "unicode")]
fn check_visible(value: &str) -> Result<(), &'static str> {
    if !value.is_ascii() && value.chars().any(crate::invisible::is_invisible) {
        return Err("the value has an invisible or unassigned character");
    }
    Ok(())
}

/// Accepts every value. Without Unicode's tables, values that are not ASCII were refused before
/// this check, because they have no canonical form.
#[cfg(not(feature = "unicode"))]
#[expect(clippy::unnecessary_wraps, reason = "with the tables it fails")]
fn check_visible(_value: &str) -> Result<(), &'static str> {
    Ok(())
}

fn check_controls(value: &str, allowed: impl Fn(char) -> bool) -> Result<(), &'static str> {
    if value.chars().any(|c| c.is_control() && !allowed(c)) {
        return Err("the value has a control character");
    }
    Ok(())
}

fn check_ends(value: &str) -> Result<(), &'static str> {
    if value.starts_with(char::is_whitespace) {
        return Err("the value begins with white space");
    }
    // Keys are often pasted with the line end that follows them, so line ends at the end are
    // allowed.
    if value.trim_end_matches(['\n', '\r']).ends_with(char::is_whitespace) {
        return Err("the value ends with white space");
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn key(number: i32, value: &str) -> Result<BucketKey, ValueError> {
        Catalogue::default().bucket(BucketType(number), value.into()).map(|bucket| bucket.key)
    }

    #[test]
    fn b12_a_types_rule_decides_which_values_are_the_same() {
        for (number, one, other) in [(4, "Alice", "alice"), (5, "A@Example.org", "a@example.ORG")] {
            assert_eq!(key(number, one).unwrap(), key(number, other).unwrap(), "{one} {other}");
        }
        assert_ne!(key(9, "ssh-rsa AAAA").unwrap(), key(9, "ssh-rsa aaaa").unwrap());
        assert_ne!(key(4, "alice").unwrap(), key(1, "alice").unwrap());
    }

    #[cfg(feature = "unicode")]
    #[test]
    fn b12_a_key_that_another_version_of_unicode_gave_is_found() {
        let gives_key = |canonical: &str| {
            let key = BucketKey { bucket_type: BucketType(4), canonical: canonical.into() };
            Catalogue::default().gives_key(&key, "A\u{a7dd}".into())
        };
        assert!(gives_key("a\u{277}"));
        assert!(!gives_key("a\u{a7dd}"), "before 18.0, no table folded U+A7DD");
        let unknown = BucketKey { bucket_type: BucketType(999), canonical: "a".into() };
        assert!(!Catalogue::default().gives_key(&unknown, "a".into()));
    }

    #[cfg(feature = "confusables")]
    #[test]
    fn the_tables_of_looks_are_of_the_version_that_core_names() {
        let (major, minor, _) = unicode_security::UNICODE_VERSION;
        let named = crate::unicode_version::UNICODE_VERSION;
        assert_eq!((u64::from(named.major), u64::from(named.minor)), (major, minor));
    }

    #[test]
    fn b12_the_spelling_is_kept() {
        let bucket = Catalogue::default().bucket(BucketType(4), "Alice".into()).unwrap();
        assert_eq!((&*bucket.spelling, &*bucket.key.canonical), ("Alice", "alice"));
    }

    #[cfg(feature = "unicode")]
    #[test]
    fn b12_a_claim_with_a_character_that_is_refused_today_can_still_be_found() {
        let catalogue = Catalogue::default();
        let (usernames, value) = (BucketType(4), "Al\u{2800}ice");
        assert_eq!(catalogue.bucket(usernames, value.into()).unwrap_err().reason, Reason::ValueNotAllowed);
        let bucket = catalogue.bucket_of_existing(usernames, value.into()).unwrap();
        assert_eq!((&*bucket.spelling, &*bucket.key.canonical), (value, "al\u{2800}ice"));
        assert!(catalogue.bucket_of_existing(usernames, "al ice".into()).is_err());
    }

    #[test]
    fn b12_a_form_refuses_the_values_that_it_excludes() {
        for (number, value) in [
            (4, ""),
            (4, "al ice"),
            (4, "al\u{0}ice"),
            (4, "al\u{200b}ice"),
            (4, "alice\n"),
            (4, "a\u{202e}b"),
            (5, "alice"),
            (5, "@b"),
            (5, "a@"),
            (5, "a@b@c"),
            (1, " a"),
            (1, "a "),
            (1, "a\tb"),
            (8, "a\u{7}b"),
            (6, "0"),
            (6, "01"),
            (6, "-1"),
            (6, "+1"),
            (6, "9223372036854775808"),
            (6, "１"),
            (4, "\u{a0}"),
            (4, "a\u{e000}"),
            (8, "\n"),
            // Marks of annotations, controls of Egyptian hieroglyphs and music, and blanks.
            (4, "alice\u{fff9}"),
            (4, "alice\u{fffb}"),
            (4, "alice\u{13430}"),
            (4, "alice\u{2800}"),
            (4, "alice\u{16fe4}"),
            (4, "alice\u{1d159}"),
            (8, "-----BEGIN\u{13441}"),
            // An unassigned character could fold into another one in a later version of Unicode.
            (4, "alice\u{378}"),
            (5, "a@b.example\u{2fffe}"),
        ] {
            let error = key(number, value).unwrap_err();
            assert_eq!(error.reason, Reason::ValueNotAllowed, "{number} {value:?}");
        }
        for (number, value) in [
            (6, "9223372036854775807"),
            (1, "group/sub group"),
            (8, "-----BEGIN\nx\n-----END\n"),
            (9, "ssh-rsa A b c"),
            (4, "Ålice\u{1f600}"),
        ] {
            key(number, value).unwrap();
        }
    }

    #[test]
    fn b11_b14_a_long_value_and_an_unknown_type_are_refused() {
        assert_eq!(key(4, &"a".repeat(1024)).unwrap().canonical.len(), 1024);
        let long = key(4, &"a".repeat(1025)).unwrap_err();
        assert_eq!(long.detail, Detail::Limit { name: "bucket_value_bytes", max: 1024, actual: 1025 });
        for number in [0, 19, 99, -1] {
            assert_eq!(key(number, "a").unwrap_err().reason, Reason::InvalidUpdate);
        }
    }

    #[test]
    fn a_catalogue_can_be_extended() {
        let extra = rule(40, "TEAMS", Form::Word, false);
        let catalogue = Catalogue::with([extra]);
        assert!(catalogue.bucket(BucketType(40), "x".into()).is_ok());
        assert_eq!(catalogue.rules().count(), 19);
    }

    #[test]
    fn b12_a_built_in_rule_can_be_replaced_and_kept() {
        let domains = rule(17, "PAGES_DOMAINS", Form::Domain, true);
        let catalogue = Catalogue::with([domains.clone()]);
        let difference = catalogue.differs_from(&[]);
        let change = RuleChange { served: BUILT_IN[16].clone(), configured: domains.clone() };
        assert_eq!(difference.replaced_built_in(), Some(change.clone()));
        assert_eq!(difference.added, std::slice::from_ref(&domains));
        assert_eq!(catalogue.differs_from(std::slice::from_ref(&domains)), Difference::default());
        // A store that was served with the new rule is refused under the built-in rule.
        let back = RuleChange { served: change.configured, configured: change.served };
        let changed = Catalogue::default().differs_from(&[domains]).changed;
        assert_eq!(changed, [back]);
    }

    #[test]
    fn b12_a_rule_may_look_at_new_values_at_any_time() {
        let looking = BucketRule { refuse_confusables: true, ..BUILT_IN[3].clone() };
        assert_eq!(Catalogue::with([looking]).differs_from(&[]), Difference::default());
    }

    #[cfg(feature = "confusables")]
    #[test]
    fn b12_a_new_value_that_looks_like_another_is_refused_if_its_type_says_so() {
        use crate::batch::{Batch, ClaimRequest, UpdateRequest};
        use crate::claim::{Source, SourceId, SourceType, Subject};

        let looking = Catalogue::with([BucketRule { refuse_confusables: true, ..BUILT_IN[3].clone() }]);
        let claim = |value: &str| ClaimRequest {
            bucket_type: BucketType(4),
            value: value.into(),
            subject: Some(Subject { subject_type: 4, id: 7 }),
            source: Some(Source { source_type: SourceType(1), id: SourceId::from(7) }),
            user_data: None,
        };
        let create = |value: &str| UpdateRequest { creates: vec![claim(value)], destroys: vec![] };
        for (value, why) in [
            ("p\u{430}ypal", "looks like another one in ASCII"),
            ("\u{440}\u{430}\u{443}\u{440}\u{430}l", "looks like another one in ASCII"),
            ("\u{441}\u{43e}\u{440}\u{430}", "looks like another one in ASCII"),
            ("x-p\u{430}ypal", "looks like another one in ASCII"),
            ("do\u{436}ro", "mixes scripts"),
        ] {
            let refused = Batch::parse(create(value), &looking).unwrap_err();
            assert_eq!(refused.reason(), Reason::ValueNotAllowed, "{value}");
            assert!(refused.to_string().contains(why), "{value}: {refused}");
            Batch::parse(create(value), &Catalogue::default()).unwrap();
            // A claim that was made before the check can be given up.
            let destroy = UpdateRequest { creates: vec![], destroys: vec![claim(value)] };
            Batch::parse(destroy, &looking).unwrap();
        }
        for value in ["alice", "\u{e9}lan", "\u{434}\u{43e}\u{431}\u{440}\u{43e}", "名前", "あ漢ア"] {
            Batch::parse(create(value), &looking).unwrap();
        }
    }

    #[test]
    fn b12_a_changed_rule_is_reported() {
        let rule = |number, form, fold_case| rule(number, "TEAMS", form, fold_case);
        let served = [rule(40, Form::Word, false), rule(41, Form::Line, true)];
        let against = |configured: &[BucketRule]| Catalogue::with(configured.iter().cloned()).differs_from(&served);
        assert_eq!(against(&served), Difference::default());
        let renamed = BucketRule { name: "CREWS".into(), ..served[0].clone() };
        assert_eq!(against(&[renamed, served[1].clone()]), Difference::default());
        for changed in [rule(40, Form::Word, true), rule(40, Form::Line, false)] {
            let change = RuleChange { served: served[0].clone(), configured: changed.clone() };
            let difference = against(&[changed, served[1].clone()]);
            assert_eq!(difference, Difference { changed: vec![change], ..Difference::default() });
        }
        let added = rule(42, Form::Word, true);
        let difference = against(&[served[0].clone(), added.clone()]);
        let expected = Difference { missing: vec![BucketType(41)], added: vec![added], ..Difference::default() };
        assert_eq!(difference, expected);
        let change = RuleChange { served: rule(40, Form::Word, false), configured: rule(40, Form::Line, true) };
        assert_eq!(
            change.to_string(),
            "bucket type 40 (`TEAMS`) has been served with form `word` and `fold_case` false, \
             and is configured with form `line` and `fold_case` true"
        );
    }
}
