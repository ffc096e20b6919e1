//! Punycode: Unicode in the letters, digits and hyphens of a domain's label (RFC 3492).

const BASE: u32 = 36;
const TMIN: u32 = 1;
const TMAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const INITIAL_BIAS: u32 = 72;
const INITIAL_CODE: u32 = 128;

/// Returns the text that a label after its prefix `xn--` encodes (RFC 3492, section 6.2); `None` if
/// the label is not valid, or encodes a text in ASCII.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    let (basic, digits) = encoded.rsplit_once('-').unwrap_or(("", encoded));
    if digits.is_empty() || !basic.is_ascii() {
        return None;
    }
    let mut text: Vec<char> = basic.chars().collect();
    let (mut code, mut bias, mut at) = (INITIAL_CODE, INITIAL_BIAS, 0_u32);
    let mut digits = digits.bytes();
    while digits.len() > 0 {
        let start = at;
        at = start.checked_add(variable_length_number(&mut digits, bias)?)?;
        let length = u32::try_from(text.len()).ok()?.checked_add(1)?;
        bias = adapt(at - start, length, start == 0);
        code = code.checked_add(at / length)?;
        at %= length;
        // `at` is below the new length, so it is a position of the text or its end.
        text.insert(at as usize, char::from_u32(code)?);
        at += 1;
    }
    Some(text.into_iter().collect())
}

fn variable_length_number(digits: &mut impl Iterator<Item = u8>, bias: u32) -> Option<u32> {
    let (mut number, mut weight, mut position) = (0_u32, 1_u32, BASE);
    loop {
        let digit = value_of(digits.next()?)?;
        number = number.checked_add(digit.checked_mul(weight)?)?;
        let threshold = position.saturating_sub(bias).clamp(TMIN, TMAX);
        if digit < threshold {
            return Some(number);
        }
        weight = weight.checked_mul(BASE - threshold)?;
        position = position.checked_add(BASE)?;
    }
}

fn value_of(digit: u8) -> Option<u32> {
    match digit {
        b'a'..=b'z' => Some(u32::from(digit - b'a')),
        b'A'..=b'Z' => Some(u32::from(digit - b'A')),
        b'0'..=b'9' => Some(u32::from(digit - b'0') + 26),
        _ => None,
    }
}

/// Returns the bias for the next number (RFC 3492, section 6.1).
fn adapt(delta: u32, length: u32, is_first: bool) -> u32 {
    let mut delta = if is_first { delta / DAMP } else { delta / 2 };
    delta += delta / length;
    let mut steps = 0;
    while delta > (BASE - TMIN) * TMAX / 2 {
        delta /= BASE - TMIN;
        steps += BASE;
    }
    steps + (BASE - TMIN + 1) * delta / (delta + SKEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_rfc_3492_and_of_registries_are_decoded() {
        for (encoded, text) in [
            ("bcher-kva", "bücher"),
            ("fa-hia", "faß"),
            ("mnchen-3ya", "münchen"),
            ("80ak6aa92e", "аррӏе"),
            ("r8jz45g", "例え"),
            ("egbpdaj6bu4bxfgehfvwxn", "ليهمابتكلموشعربي؟"),
            ("ihqwcrb4cv8a8dqg056pqjye", "他们为什么不说中文"),
            ("-> $1.00 <--", "-> $1.00 <-"),
        ] {
            let expected = (!text.is_ascii()).then(|| text.to_owned());
            assert_eq!(decode(encoded), expected, "{encoded}");
        }
    }

    #[test]
    fn a_label_that_is_not_punycode_is_refused() {
        for encoded in ["", "a-", "ü", "a b", "99999999", "-", &"9".repeat(1000)] {
            assert_eq!(decode(encoded), None, "{encoded:?}");
        }
    }
}
