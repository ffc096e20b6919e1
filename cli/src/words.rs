//! Conversions of values as users type them, such as `USERNAMES:alice`, to values of the wire
//! contract, and back.

use std::str::FromStr;

use leasehold_proto::gitlab::cells::topology_service::claims::v1::{Bucket, Metadata, Source, Subject};
use leasehold_proto::gitlab::cells::topology_service::claims::v1::{bucket, record, source, subject};
use leasehold_proto::gitlab::cells::topology_service::types::v1::ClaimType;
use leasehold_proto::gitlab::cells::topology_service::{ClassifyAction, ClassifyType};
use uuid::Uuid;

/// Numbers that are searched for values of an enum. Every enum of the contract ends below 128.
const ENUM_NUMBERS: std::ops::Range<i32> = 0..128;

/// An enum of the wire contract, whose names come from the generated code.
pub(crate) trait WireEnum: Copy + TryFrom<i32> + Into<i32> {
    /// Name of the enum in error messages.
    const WHAT: &'static str;
    /// Prefix of all names of the enum in the contract. The command line leaves it out.
    const PREFIX: &'static str = "";
    /// Returns the name of the enum's value in the contract.
    fn name(self) -> &'static str;
}

macro_rules! wire_enum {
    ($type:ty, $what:literal $(, $prefix:literal)?) => {
        impl WireEnum for $type {
            const WHAT: &'static str = $what;
            $(const PREFIX: &'static str = $prefix;)?
            fn name(self) -> &'static str {
                self.as_str_name()
            }
        }
    };
}

wire_enum!(bucket::Type, "bucket type");
wire_enum!(subject::Type, "subject type");
wire_enum!(source::Type, "source type", "RAILS_TABLE_");
wire_enum!(record::Status, "status");
wire_enum!(ClaimType, "claim type", "CLAIM_TYPE_");
wire_enum!(ClassifyType, "classify type");
wire_enum!(ClassifyAction, "action");

fn short<E: WireEnum>(value: E) -> &'static str {
    value.name().strip_prefix(E::PREFIX).unwrap_or(value.name())
}

/// Returns the numbers of an enum, without 0, and the names that users type for them.
fn named<E: WireEnum>() -> impl Iterator<Item = (i32, &'static str)> {
    ENUM_NUMBERS
        .filter_map(|number| E::try_from(number).ok())
        .map(|value| (value.into(), short(value)))
        .filter(|(number, _)| *number != 0)
}

/// Returns the names of an enum as a comma-separated list, for help and messages.
pub(crate) fn names<E: WireEnum>() -> String {
    named::<E>().map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

/// Returns the name for a number of an enum, or the number as text if the contract has no name for
/// it.
pub(crate) fn name_of<E: WireEnum>(number: i32) -> String {
    E::try_from(number).map_or_else(|_| number.to_string(), |value| short(value).to_owned())
}

/// Returns the number for a typed name of an enum, in upper or lower case. A typed number is
/// returned as it is, because the server decides which numbers it knows.
pub(crate) fn number_of<E: WireEnum>(text: &str) -> Result<i32, String> {
    find::<E>(text)
        .or_else(|| text.parse().ok())
        .ok_or_else(|| format!("no {} `{text}`: use its number, or one of {}", E::WHAT, names::<E>()))
}

fn find<E: WireEnum>(text: &str) -> Option<i32> {
    let bare = text.get(..E::PREFIX.len()).filter(|start| start.eq_ignore_ascii_case(E::PREFIX));
    let text = bare.and_then(|_| text.get(E::PREFIX.len()..)).unwrap_or(text);
    named::<E>().find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(number, _)| number)
}

/// Returns the number of a bucket type. `text` is its name, the name of its claim type
/// (`username`), or its number.
pub(crate) fn bucket_type(text: &str) -> Result<i32, String> {
    find::<ClaimType>(text).map_or_else(|| number_of::<bucket::Type>(text), Ok)
}

pub(crate) fn source_type(text: &str) -> Result<i32, String> {
    number_of::<source::Type>(text)
}

pub(crate) fn classify_type(text: &str) -> Result<i32, String> {
    number_of::<ClassifyType>(text)
}

fn split<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str), String> {
    match text.split_once(':') {
        Some((kind, value)) if !kind.is_empty() && !value.is_empty() => Ok((kind, value)),
        _ => Err(format!("write it as {form}")),
    }
}

/// A bucket that is typed in the form `USERNAMES:alice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketArg(pub(crate) Bucket);

impl FromStr for BucketArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, value) = split(text, "TYPE:VALUE, such as `USERNAMES:alice`")?;
        Ok(Self(Bucket { r#type: bucket_type(kind)?, value: value.to_owned() }))
    }
}

/// A subject that is typed in the form `USER:7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectArg(pub(crate) Subject);

impl FromStr for SubjectArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, id) = split(text, "TYPE:ID, such as `USER:7`")?;
        let id = id.parse().map_err(|_| format!("`{id}` is no subject id: use a whole number"))?;
        Ok(Self(Subject { r#type: number_of::<subject::Type>(kind)?, id }))
    }
}

/// A source row that is typed in the form `USERS:7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceArg(pub(crate) Source);

impl FromStr for SourceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, id) = split(text, "TABLE:ID, such as `USERS:7`")?;
        Ok(Self(Source { r#type: source_type(kind)?, rails_primary_key_id: source_id(id)? }))
    }
}

/// The bytes of a typed source id, for a bound of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceIdArg(pub(crate) Vec<u8>);

impl FromStr for SourceIdArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        source_id(text).map(Self)
    }
}

/// Returns the bytes of a typed source id: 8 bytes for a decimal number, 16 for a UUID, the bytes
/// after `0x`, or else the bytes of the text.
pub(crate) fn source_id(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => hex_bytes(digits).ok_or_else(|| {
            format!("`{text}` is no source id: after 0x, use two hexadecimal digits for each byte, also for text")
        }),
        None => Ok(decimal(text).or_else(|| uuid_bytes(text)).unwrap_or_else(|| text.as_bytes().to_vec())),
    }
}

fn decimal(text: &str) -> Option<Vec<u8>> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then(|| number.to_be_bytes().to_vec())
}

fn uuid_bytes(text: &str) -> Option<Vec<u8>> {
    let uuid = Uuid::try_parse(text).ok()?;
    text.eq_ignore_ascii_case(&uuid.to_string()).then(|| uuid.as_bytes().to_vec())
}

fn hex_bytes(digits: &str) -> Option<Vec<u8>> {
    // `from_str_radix` also accepts a sign, as in `+f`, so the digits are checked first.
    let whole = !digits.is_empty() && digits.len().is_multiple_of(2) && digits.bytes().all(|c| c.is_ascii_hexdigit());
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect::<Option<_>>().filter(|_| whole)
}

/// Returns the text that a user types for a source id: [`source_id`] converts it to the same bytes.
pub(crate) fn show_source_id(bytes: &[u8]) -> String {
    if let Ok(number) = bytes.try_into() {
        return u64::from_be_bytes(number).to_string();
    }
    if let Ok(uuid) = Uuid::from_slice(bytes) {
        return uuid.to_string();
    }
    match str::from_utf8(bytes) {
        Ok(text) if source_id(text).as_deref() == Ok(bytes) && !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.iter().fold("0x".to_owned(), |hex, byte| hex + &format!("{byte:02x}")),
    }
}

/// Returns a text with escaped control characters, so that stored data cannot control the terminal, and
/// with escaped line separators and marks of direction, so that it cannot change the order of what is read.
pub(crate) fn printable(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let escape = |c: char| if c.is_control() || turns(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

pub(crate) fn show_bucket(bucket: &Bucket) -> String {
    format!("{}:{}", name_of::<bucket::Type>(bucket.r#type), printable(&bucket.value))
}

pub(crate) fn show_subject(metadata: &Metadata) -> String {
    let show = |subject: Subject| format!("{}:{}", name_of::<subject::Type>(subject.r#type), subject.id);
    metadata.subject.map(show).unwrap_or_default()
}

pub(crate) fn show_source(metadata: &Metadata) -> String {
    let show = |source: &Source| {
        format!("{}:{}", name_of::<source::Type>(source.r#type), show_source_id(&source.rails_primary_key_id))
    };
    metadata.source.as_ref().map(show).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(text: &str) -> Result<(i32, String), String> {
        text.parse().map(|BucketArg(bucket)| (bucket.r#type, bucket.value))
    }

    #[test]
    fn buckets_are_typed_by_name_claim_name_or_number() {
        for text in ["USERNAMES:alice", "usernames:alice", "username:alice", "CLAIM_TYPE_USERNAME:alice", "4:alice"] {
            assert_eq!(bucket(text), Ok((4, "alice".to_owned())), "{text}");
        }
        assert_eq!(bucket("SSH_KEYS:ssh-rsa a:b"), Ok((9, "ssh-rsa a:b".to_owned())));
        assert_eq!(bucket("99:x"), Ok((99, "x".to_owned())));
    }

    #[test]
    fn malformed_buckets_say_what_to_type() {
        for text in ["alice", ":alice", "USERNAMES:", ""] {
            assert!(bucket(text).unwrap_err().contains("TYPE:VALUE"), "{text}");
        }
        let unknown = bucket("PEOPLE:alice").unwrap_err();
        assert!(
            unknown.contains("`PEOPLE`") && unknown.contains("ROUTES, ") && unknown.contains("PAGES_UNIQUE_DOMAINS")
        );
        assert!(!unknown.contains("UNSPECIFIED"));
    }

    #[test]
    fn subjects_and_sources_are_typed() {
        assert_eq!("USER:7".parse(), Ok(SubjectArg(Subject { r#type: 4, id: 7 })));
        assert!("USER:seven".parse::<SubjectArg>().unwrap_err().contains("`seven`"));
        let users_7 = Ok(SourceArg(Source { r#type: 1, rails_primary_key_id: vec![0, 0, 0, 0, 0, 0, 0, 7] }));
        assert_eq!("USERS:7".parse(), users_7);
        assert_eq!("rails_table_users:7".parse(), users_7);
        assert!("PEOPLE:7".parse::<SourceArg>().unwrap_err().contains("source type `PEOPLE`"));
    }

    #[test]
    fn source_ids_become_bytes_in_the_order_of_keys() {
        let source_id = |text| source_id(text).unwrap();
        assert_eq!(source_id("7"), [0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(source_id("18446744073709551615"), [0xff; 8]);
        assert_eq!(source_id("007"), b"007");
        assert_eq!(source_id("-7"), b"-7");
        assert_eq!(source_id("00000000-0000-0000-0000-0000000000FF").last(), Some(&0xff));
        assert_eq!(source_id("00000000-0000-0000-0000-0000000000ff").len(), 16);
        assert_eq!(source_id("000000000000000000000000000000ff").len(), 32);
        assert_eq!(source_id("0x00ff"), [0, 0xff]);
        assert_eq!(source_id("en-GB"), b"en-GB");
    }

    #[test]
    fn malformed_hexadecimal_is_no_text() {
        for text in ["0xzz", "0xf", "0x", "0X0", "0xé", "0x+f", "0x0g"] {
            assert!(source_id(text).unwrap_err().contains(&format!("`{text}`")), "{text}");
        }
        assert_eq!(source_id("0Xff"), Ok(vec![0xff]));
    }

    #[test]
    fn shown_source_ids_name_the_same_bytes() {
        let shown: [(&[u8], &str); 9] = [
            (&[0, 0, 0, 0, 0, 0, 0, 7], "7"),
            (&[0; 16], "00000000-0000-0000-0000-000000000000"),
            (b"en-GB", "en-GB"),
            (b"123", "0x313233"),
            (b"0xff", "0x30786666"),
            (b"0xzz", "0x30787a7a"),
            (b"0Xzz", "0x30587a7a"),
            (&[0xff, 0], "0xff00"),
            (b"a\nb", "0x610a62"),
        ];
        for (bytes, text) in shown {
            assert_eq!(show_source_id(bytes), text);
            assert_eq!(source_id(text).as_deref(), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn names_come_without_prefix_and_unknown_numbers_stay() {
        assert_eq!(name_of::<source::Type>(1), "USERS");
        assert_eq!(name_of::<bucket::Type>(19), "19");
        assert!(names::<bucket::Type>().starts_with("ROUTES, "));
        assert_eq!(classify_type("first_cell"), Ok(1));
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jé\n"), "a\\u{1b}[2Jé\\n");
        assert_eq!(printable("\u{202e}gnp"), "\\u{202e}gnp");
    }
}
