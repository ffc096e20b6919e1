//! The canonical forms of values that have several spellings by their own rules: domains, email
//! addresses, paths, fingerprints and keys.
//!
//! | form | differences that the canonical form removes |
//! |---|---|
//! | [`Form::Domain`] | a dot at the end; Punycode in place of Unicode (RFC 3492); case |
//! | [`Form::Address`] | the domain after the `@`, as above |
//! | [`Form::Path`] | slashes that are doubled or at an end; percent-encoding of characters (RFC 3986) |
//! | [`Form::Fingerprint`] | the prefix `SHA256:`, padding; case, colons and prefixes of hexadecimal digits |
//! | [`Form::PublicKey`] | the comment after type and key |
//! | [`Form::Armor`] | CR LF in place of LF; white space at the end of lines |
//!
//! The other forms have the canonical form of Unicode alone (see [`canonical`]).

use std::borrow::Cow;

use crate::canonical::{canonical, folded_domain};
use crate::form::Form;
use crate::punycode;

/// The most times that the step towards the canonical form is repeated. One step can make another
/// one necessary: NFKC turns U+FF0F into a slash, for example. Each step but the last shortens or
/// folds the value, and real values need two.
const STEPS: usize = 4;

/// Returns the canonical form of a value of this form.
///
/// # Errors
/// The fault of the value, as text: it has no canonical form.
pub(crate) fn normal_form(form: Form, value: &str, fold_case: bool) -> Result<Cow<'_, str>, &'static str> {
    let step: fn(&str, bool) -> Result<String, &'static str> = match form {
        Form::Decimal | Form::Word | Form::Email | Form::Line | Form::Block => return canonical(value, fold_case),
        Form::Domain => |value, _| domain(value),
        Form::Address => address,
        Form::Path => path,
        Form::Fingerprint => fingerprint,
        Form::PublicKey => public_key,
        Form::Armor => armor,
    };
    let mut form = step(value, fold_case)?;
    // The result must be its own canonical form, so that a canonical form can be looked up.
    for _ in 0..STEPS {
        let next = step(&form, fold_case)?;
        if next == form {
            return Ok(if form == value { Cow::Borrowed(value) } else { Cow::Owned(form) });
        }
        form = next;
    }
    Err("the value is encoded too many times")
}

/// Returns a domain without the dot of the root, with Unicode in place of Punycode. The domain is
/// folded, since its case has no meaning (RFC 4343).
fn domain(value: &str) -> Result<String, &'static str> {
    let folded = folded_domain(value)?;
    // UTS 46 treats the ideographic full stop as a dot, but NFKC does not change it.
    let dotted = folded.replace('\u{3002}', ".");
    let labels = dotted.strip_suffix('.').unwrap_or(&dotted).split('.').map(|label| match label.strip_prefix("xn--") {
        _ if label.is_empty() => Err("the domain has an empty label"),
        None => Ok(Cow::Borrowed(label)),
        Some(encoded) => {
            punycode::decode(encoded).map(Cow::Owned).ok_or("the domain has a label `xn--` that is not Punycode")
        }
    });
    Ok(labels.collect::<Result<Vec<_>, _>>()?.join("."))
}

fn address(value: &str, fold_case: bool) -> Result<String, &'static str> {
    let (local, host) = value.rsplit_once('@').ok_or("an email has one `@` between two parts")?;
    Ok(format!("{}@{}", canonical(local, fold_case)?, domain(host)?))
}

fn path(value: &str, fold_case: bool) -> Result<String, &'static str> {
    let decoded = percent_decoded(value)?;
    let folded = canonical(&decoded, fold_case)?;
    let segments: Vec<_> = folded.split('/').filter(|segment| !segment.is_empty()).collect();
    if segments.iter().any(|segment| matches!(*segment, "." | "..")) {
        return Err("the path has a segment `.` or `..`");
    }
    Ok(segments.join("/"))
}

/// Returns the value with its percent-encoded characters decoded. Refuses an encoded slash, which
/// would then divide the path, and an encoded percent sign, which would be decoded a second time.
fn percent_decoded(value: &str) -> Result<Cow<'_, str>, &'static str> {
    let Some((before, mut rest)) = value.split_once('%') else { return Ok(Cow::Borrowed(value)) };
    let mut bytes = before.as_bytes().to_vec();
    loop {
        let byte = rest.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            None => return Err("the path has a `%` without two hexadecimal digits"),
            Some(b'/' | b'%') => return Err("the path has an encoded `/` or `%`"),
            Some(byte) => bytes.push(byte),
        }
        rest = rest.get(2..).unwrap_or_default();
        let (plain, next) = rest.split_once('%').unwrap_or((rest, ""));
        bytes.extend_from_slice(plain.as_bytes());
        if plain.len() == rest.len() {
            break;
        }
        rest = next;
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| "the path has encoded bytes that are not UTF-8")
}

/// Returns a fingerprint as `ssh-keygen -l` and `gpg --fingerprint` print it, without prefix,
/// padding and colons. Hexadecimal digits are in lower case; base64 keeps its case.
fn fingerprint(value: &str, fold_case: bool) -> Result<String, &'static str> {
    let bare = ["SHA256:", "MD5:", "0x", "0X"].iter().find_map(|prefix| value.strip_prefix(prefix)).unwrap_or(value);
    let bare = bare.trim_end_matches('=');
    let digits = bare.replace(':', "");
    // The lengths of a long key id, MD5, SHA-1 and SHA-256. In base64, SHA-256 has 43 characters.
    let is_hexadecimal =
        matches!(digits.len(), 16 | 32 | 40 | 64) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_hexadecimal { Ok(digits.to_ascii_lowercase()) } else { canonical(bare, fold_case).map(Cow::into_owned) }
}

/// Returns the type and the key of a line of `authorized_keys` without its comment (sshd(8)).
fn public_key(value: &str, fold_case: bool) -> Result<String, &'static str> {
    let words: Vec<_> = value.split(' ').filter(|word| !word.is_empty()).take(2).collect();
    canonical(&words.join(" "), fold_case).map(Cow::into_owned)
}

/// Returns a text with LF as line end, without white space before line ends. OpenPGP ignores both
/// differences (RFC 9580, section 6.2).
fn armor(value: &str, fold_case: bool) -> Result<String, &'static str> {
    let lines: Vec<_> = value.lines().flat_map(|line| line.split('\r')).map(str::trim_end).collect();
    canonical(lines.join("\n").trim_end(), fold_case).map(Cow::into_owned)
}
