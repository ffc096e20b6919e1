//! Reads and writes verification's messages in their wire form: answers to ListRecords, and
//! updates. Converting them through objects of a language would cost many times the engine's own
//! work.

use leasehold_core::batch::{ClaimRequest, UpdateRequest};
use leasehold_core::rejection::List;
use leasehold_core::time::Timestamp;
use leasehold_core::verify::{RecordRef, Records};
use prost::encoding::{DecodeContext, WireType, decode_varint, encode_key, encode_varint, skip_field};

use crate::error::DetailedError;

/// The number of `Record.Status.ACTIVE` on the wire.
const ACTIVE: u64 = 1;

/// Encodes an update as a BeginUpdateRequest without the field `cell_id`. In protobuf, concatenated
/// messages merge into one, so the caller appends this field.
pub fn update(update: &UpdateRequest) -> Vec<u8> {
    let mut request = list(List::Creates, &update.creates);
    request.extend(list(List::Destroys, &update.destroys));
    request
}

/// Encodes the creates or the destroys of an update, as a part of a BeginUpdateRequest.
pub fn list(list: List, claims: &[ClaimRequest]) -> Vec<u8> {
    let field = match list {
        List::Creates => 1,
        List::Destroys => 2,
    };
    let mut request = Vec::new();
    claims.iter().for_each(|claim| message(&mut request, field, |to| claim_request(to, claim)));
    request
}

/// Writes the message `Metadata`. Its field numbers: 1 bucket (1 type, 2 value), 2 subject (1 type,
/// 2 id), 3 source (1 type, 2 primary key), 4 user data (1 type URL, 2 value).
fn claim_request(to: &mut Vec<u8>, claim: &ClaimRequest) {
    message(to, 1, |to| {
        number(to, 1, claim.bucket_type.0.into());
        bytes(to, 2, claim.value.as_bytes());
    });
    if let Some(subject) = &claim.subject {
        message(to, 2, |to| {
            number(to, 1, subject.subject_type.into());
            number(to, 2, subject.id);
        });
    }
    if let Some(source) = &claim.source {
        message(to, 3, |to| {
            number(to, 1, source.source_type.0.into());
            bytes(to, 2, source.id.as_bytes());
        });
    }
    if let Some(data) = &claim.user_data {
        message(to, 4, |to| {
            bytes(to, 1, data.type_url.as_bytes());
            bytes(to, 2, &data.value);
        });
    }
}

/// Writes an embedded message. The length must come before the message, but is known only after it.
/// So the length is written last and rotated to the front; messages are short.
fn message(to: &mut Vec<u8>, field: u32, body: impl FnOnce(&mut Vec<u8>)) {
    encode_key(field, WireType::LengthDelimited, to);
    let start = to.len();
    body(to);
    let end = to.len();
    encode_varint((end - start) as u64, to);
    let length = to.len() - end;
    if let Some(message) = to.get_mut(start..) {
        message.rotate_right(length);
    }
}

fn number(to: &mut Vec<u8>, field: u32, value: i64) {
    encode_key(field, WireType::Varint, to);
    encode_varint(value as u64, to);
}

fn bytes(to: &mut Vec<u8>, field: u32, value: &[u8]) {
    encode_key(field, WireType::LengthDelimited, to);
    encode_varint(value.len() as u64, to);
    to.extend_from_slice(value);
}

/// Decodes an answer to ListRecords. Returns its records, and true if there are more records after
/// this page.
///
/// # Errors
/// The bytes are not an answer to ListRecords.
pub fn records(answer: &[u8], now: Timestamp) -> Result<(Records, bool), DetailedError> {
    read(answer, now).map_err(|Malformed| {
        DetailedError::new(
            "INVALID_ROWS",
            "the server's records cannot be read: the bytes are not an answer to ListRecords",
        )
    })
}

/// Reads the message `ListRecordsResponse`. Its field numbers: 1 records, 2 truncated.
fn read(answer: &[u8], now: Timestamp) -> Result<(Records, bool), Malformed> {
    let mut records = Records::new(now);
    let mut truncated = false;
    for field in Fields(answer) {
        match field? {
            (1, Field::Bytes(message)) => records.record(record(message)?),
            (2, Field::Varint(value)) => truncated = value != 0,
            _ => {}
        }
    }
    Ok((records, truncated))
}

/// Reads the message `Record`. The field numbers that are read: 2 metadata, 4 status, 7 updated_at.
fn record(message: &[u8]) -> Result<RecordRef<'_>, Malformed> {
    let mut record = RecordRef {
        source_id: &[],
        bucket_type: 0,
        value: "",
        subject_type: 0,
        subject_id: 0,
        updated_at: Timestamp::MIN,
        held: true,
    };
    for field in Fields(message) {
        match field? {
            (2, Field::Bytes(message)) => metadata(message, &mut record)?,
            (4, Field::Varint(status)) => record.held = status != ACTIVE,
            (7, Field::Bytes(message)) => record.updated_at = timestamp(message)?,
            _ => {}
        }
    }
    Ok(record)
}

/// Reads the message `Metadata` into `record`. The field numbers that are read: 1 bucket (1 type, 2
/// value), 2 subject (1 type, 2 id), 3 source (2 primary key).
fn metadata<'a>(message: &'a [u8], record: &mut RecordRef<'a>) -> Result<(), Malformed> {
    for field in Fields(message) {
        let (number, Field::Bytes(message)) = field? else { continue };
        for field in Fields(message) {
            match (number, field?) {
                (1, (1, Field::Varint(number))) => record.bucket_type = number as i32,
                (1, (2, Field::Bytes(value))) => record.value = text(value)?,
                (2, (1, Field::Varint(number))) => record.subject_type = number as i32,
                (2, (2, Field::Varint(id))) => record.subject_id = id as i64,
                (3, (2, Field::Bytes(id))) => record.source_id = id,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Reads the message `google.protobuf.Timestamp`. Its field numbers: 1 seconds, 2 nanos.
fn timestamp(message: &[u8]) -> Result<Timestamp, Malformed> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields(message) {
        match field? {
            (1, Field::Varint(value)) => seconds = value as i64,
            (2, Field::Varint(value)) => nanos = value as i64,
            _ => {}
        }
    }
    let micros = seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000);
    Ok(Timestamp::from_micros(u64::try_from(micros).unwrap_or(0)))
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

/// The error for bytes that are not the expected message.
struct Malformed;

impl From<prost::DecodeError> for Malformed {
    fn from(_: prost::DecodeError) -> Self {
        Self
    }
}

/// An iterator over the fields of an encoded message, without copies.
struct Fields<'a>(&'a [u8]);

enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Fields<'a> {
    // The function is inlined because a record has about twenty fields, and a call for each field
    // would cost more than reading the field.
    #[inline(always)]
    fn field(&mut self) -> Result<(u32, Field<'a>), Malformed> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        let field = match key & 7 {
            0 => Field::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                let split = self.0.split_at_checked(length);
                let (bytes, rest) = split.ok_or(Malformed)?;
                self.0 = rest;
                Field::Bytes(bytes)
            }
            other => self.skip(other, number)?,
        };
        Ok((number, field))
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, Malformed> {
        match self.0 {
            // Nearly all varints are one byte long.
            [byte @ 0..0x80, rest @ ..] => {
                self.0 = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        Ok(decode_varint(&mut self.0)?)
    }

    #[cold]
    fn skip(&mut self, wire_type: u64, number: u32) -> Result<Field<'a>, Malformed> {
        skip_field(WireType::try_from(wire_type)?, number, &mut self.0, DecodeContext::default())?;
        Ok(Field::Other)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Field<'a>), Malformed>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}
