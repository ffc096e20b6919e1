//! Parses and formats the notation of golden vectors: types, texts, ids, sources and subjects.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use leasehold_core::bucket::BucketType;
use leasehold_core::claim::{Source, SourceId, SourceType, Subject};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{bucket, source, subject};

const TABLE_PREFIX: &str = "RAILS_TABLE_";

/// Splits a line into tokens at spaces; spaces within quotes do not split.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut token = String::new();
    let mut quoted = false;
    let mut escaped = false;
    for c in text.chars() {
        if c.is_whitespace() && !quoted {
            tokens.extend((!token.is_empty()).then(|| std::mem::take(&mut token)));
            continue;
        }
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = c == '\\' && !escaped;
        token.push(c);
    }
    tokens.extend((!token.is_empty()).then_some(token));
    tokens
}

/// Parses a text in the notation `"text"`, or `"text"*N` for a text repeated N times.
pub(super) fn read_text(token: &str) -> Result<String> {
    let end = token.rfind('"').filter(|end| *end > 0 && token.starts_with('"'));
    let end = end.with_context(|| format!("`{token}` is not a quoted text"))?;
    let text = unescape(token.get(1..end).unwrap_or_default())?;
    match token.get(end + 1..).unwrap_or_default() {
        "" => Ok(text),
        times => {
            let times = times.strip_prefix('*').context("after a text only `*N` can follow")?;
            Ok(text.repeat(times.parse()?))
        }
    }
}

fn unescape(text: &str) -> Result<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('0') => '\0',
            Some('u') => unicode(&mut chars)?,
            Some(c @ ('"' | '\\')) => c,
            other => bail!("there is no escape `\\{}`", other.map_or_else(String::new, String::from)),
        });
    }
    Ok(out)
}

fn unicode(chars: &mut std::str::Chars<'_>) -> Result<char> {
    let digits: String = chars.by_ref().skip_while(|c| *c == '{').take_while(|c| *c != '}').collect();
    char::from_u32(u32::from_str_radix(&digits, 16)?).with_context(|| format!("`{digits}` is no character"))
}

/// Formats a text in the notation of [`read_text`]. A text of more than 20 equal characters is
/// written as one character and the count.
pub(super) fn write_text(text: &str) -> String {
    let first = text.chars().next().unwrap_or_default();
    let count = text.chars().count();
    if count > 20 && text.chars().all(|c| c == first) {
        return format!("{}*{count}", write_text(&first.to_string()));
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\'' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    out.push('"');
    out
}

/// Parses the name of a bucket type, or `bucket#N` for the type with the wire number N.
pub(super) fn read_bucket_type(token: &str) -> Result<BucketType> {
    let number = match token.strip_prefix("bucket#") {
        Some(number) => number.parse()?,
        None => bucket::Type::from_str_name(token).with_context(|| format!("`{token}` is no bucket type"))? as i32,
    };
    Ok(BucketType(number))
}

/// Formats a bucket type in the notation of [`read_bucket_type`].
pub(super) fn write_bucket_type(bucket_type: BucketType) -> String {
    match bucket::Type::try_from(bucket_type.0) {
        Ok(known) if bucket_type.0 != 0 => known.as_str_name().to_owned(),
        _ => format!("bucket#{bucket_type}"),
    }
}

/// Parses the name of a source table, or `source#N` for the table with the wire number N.
pub(super) fn read_source_type(token: &str) -> Result<SourceType> {
    let number = match token.strip_prefix("source#") {
        Some(number) => number.parse()?,
        None => source_type_named(token).with_context(|| format!("`{token}` is no table"))?,
    };
    Ok(SourceType(number))
}

fn source_type_named(name: &str) -> Option<i32> {
    source::Type::from_str_name(&format!("{TABLE_PREFIX}{name}")).map(|known| known as i32)
}

/// Returns the wire numbers of all source tables that have a name.
pub(super) fn known_source_types() -> impl Iterator<Item = i32> {
    (1..).map_while(|number| source::Type::try_from(number).ok()).map(|known| known as i32)
}

/// True if the token is a source, such as `USERS:7`, rather than a subject, such as `USER:7`.
pub(super) fn is_source(token: &str) -> bool {
    let name = token.split(':').next().unwrap_or_default();
    name.starts_with("source#") || source_type_named(name).is_some()
}

/// Parses a source in the notation `TABLE:ID`.
pub(super) fn read_source(token: &str) -> Result<Source> {
    let (table, id) = token.split_once(':').with_context(|| format!("`{token}` is no `TABLE:ID`"))?;
    Ok(Source { source_type: read_source_type(table)?, id: SourceId::from_bytes(&read_id(id)?) })
}

/// Formats a source in the notation of [`read_source`].
pub(super) fn write_source(source: &Source) -> String {
    let number = source.source_type.0;
    let id = write_id(source.id.as_bytes());
    match source::Type::try_from(number) {
        Ok(known) if number != 0 => {
            let name = known.as_str_name();
            format!("{}:{id}", name.strip_prefix(TABLE_PREFIX).unwrap_or(name))
        }
        _ => format!("source#{number}:{id}"),
    }
}

/// Parses the id of a source into bytes. The id is a number, a quoted text, or `x` and hexadecimal
/// digits.
pub(super) fn read_id(token: &str) -> Result<Vec<u8>> {
    if token.starts_with('"') {
        return Ok(read_text(token)?.into_bytes());
    }
    let Some(digits) = token.strip_prefix('x') else {
        let number: u64 = token.parse().with_context(|| format!("`{token}` is no id"))?;
        return Ok(number.to_be_bytes().to_vec());
    };
    ensure!(digits.is_ascii() && digits.len().is_multiple_of(2), "`{token}` has half a byte");
    let byte = |at: usize| Ok(u8::from_str_radix(digits.get(at..at + 2).unwrap_or_default(), 16)?);
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Formats the id of a source in the notation of [`read_id`]. Eight bytes of which the first is
/// zero are a number: numbers in vectors are below 2^56, and texts contain no zero byte.
fn write_id(bytes: &[u8]) -> String {
    if let (Ok(number), Some(0)) = (<[u8; 8]>::try_from(bytes), bytes.first()) {
        return u64::from_be_bytes(number).to_string();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => write_text(text),
        _ => bytes.iter().fold(String::from("x"), |mut out, byte| {
            // The result is ignored: `fmt::Write` for `String` never fails.
            let _ = write!(out, "{byte:02x}");
            out
        }),
    }
}

/// Parses a subject in the notation `SUBJECT:ID`.
pub(super) fn read_subject(token: &str) -> Result<Subject> {
    let (kind, id) = token.split_once(':').with_context(|| format!("`{token}` is no `SUBJECT:ID`"))?;
    let subject_type = match kind.strip_prefix("subject#") {
        Some(number) => number.parse()?,
        None => subject::Type::from_str_name(kind).with_context(|| format!("`{kind}` is no subject"))? as i32,
    };
    Ok(Subject { subject_type, id: id.parse()? })
}

/// Formats a subject in the notation of [`read_subject`].
pub(super) fn write_subject(subject: Subject) -> String {
    match subject::Type::try_from(subject.subject_type) {
        Ok(known) if subject.subject_type != 0 => format!("{}:{}", known.as_str_name(), subject.id),
        _ => format!("subject#{}:{}", subject.subject_type, subject.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_end_at_spaces_outside_quotes() {
        assert_eq!(tokens(r#" a "b \" c"  d="e f" "#), ["a", r#""b \" c""#, r#"d="e f""#]);
    }

    #[test]
    fn texts_are_read_as_they_are_written() {
        for text in ["", "Alice", "a \"b\" \\ 'c'", "e\u{301}\u{200b}\n\t\0", &"x".repeat(1024), "ﬁ"] {
            assert_eq!(read_text(&write_text(text)).unwrap(), text);
        }
        assert_eq!(write_text(&"x".repeat(1024)), "\"x\"*1024");
        assert_eq!(write_text("e\u{301}"), "\"e\\u{301}\"");
        assert!(read_text("\"").is_err() && read_text("a").is_err() && read_text("\"a\"+1").is_err());
    }

    #[test]
    fn sources_and_subjects_are_read_as_they_are_written() {
        for token in ["USERS:7", "EMAILS:\"abc\"", "KEYS:x00ff", "source#99:1", "source#0:1", "USERS:\"a\"*128"] {
            assert!(is_source(token));
            assert_eq!(write_source(&read_source(token).unwrap()), token);
        }
        for token in ["USER:7", "subject#9:1", "subject#0:-4"] {
            assert!(!is_source(token));
            assert_eq!(write_subject(read_subject(token).unwrap()), token);
        }
        assert_eq!(known_source_types().count(), 15);
    }
}
