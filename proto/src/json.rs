//! Conversions between messages and the JSON form that proto3 defines for them.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage, Value};
use prost_types::{Any, Timestamp};
use serde_json::{Map, Value as Json, json};

/// The reason why a message could not be read from JSON or written as JSON.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The pool has no message with this name.
    #[error("no message `{0}` in the contract: use the full name of a message, with its package")]
    UnknownMessage(String),
    /// The text is not JSON, or not the JSON form of the message.
    #[error("not the JSON of the message: {0}")]
    Json(#[from] serde_json::Error),
    /// The name and the Rust type belong to different messages.
    #[error("the name and the type are different messages: {0}")]
    Mismatch(#[from] prost::DecodeError),
}

/// Reads the message `full_name`, whose Rust type is `M`, from JSON. Unknown fields are an error.
///
/// # Errors
/// The text is not the JSON form of the message, or the pool has no such message.
pub fn from_json<M: Message + Default>(pool: &DescriptorPool, full_name: &str, json: &[u8]) -> Result<M, JsonError> {
    let mut input = serde_json::Deserializer::from_slice(json);
    let message = DynamicMessage::deserialize(descriptor(pool, full_name)?, &mut input)?;
    input.end()?;
    Ok(message.transcode_to()?)
}

/// Writes `message`, whose full name is `full_name`, as JSON. Fields with their default value are
/// omitted.
///
/// # Errors
/// The pool has no such message, or a part of the message has no JSON form: an `Any` of a message
/// that the pool does not know, or a time before year 1 or after year 9999.
pub fn to_json<M: Message>(pool: &DescriptorPool, full_name: &str, message: &M) -> Result<Vec<u8>, JsonError> {
    Ok(serde_json::to_vec(&dynamic(pool, full_name, message)?)?)
}

/// Writes `message` as JSON for display. Parts without a JSON form are shown too: an `Any` as its
/// `@type` with its `value` in base64, and a time as its `seconds` and `nanos`. Everything else
/// equals [`to_json`]. [`from_json`] does not read such parts.
///
/// # Errors
/// The pool has no such message.
pub fn show_json<M: Message>(pool: &DescriptorPool, full_name: &str, message: &M) -> Result<Json, JsonError> {
    show(&dynamic(pool, full_name, message)?)
}

/// Converts a message to JSON. Only messages without a JSON form are converted field by field, so
/// that everything else equals [`to_json`].
fn show(message: &DynamicMessage) -> Result<Json, JsonError> {
    match (serde_json::to_value(message), message.descriptor().full_name()) {
        (Ok(json), _) => Ok(json),
        (Err(_), "google.protobuf.Any") => {
            let any: Any = message.transcode_to()?;
            // The bytes become a `BytesValue`, whose JSON form is base64.
            let value = serde_json::to_value(any.value.transcode_to_dynamic())?;
            Ok(json!({ "@type": any.type_url, "value": value }))
        }
        (Err(_), "google.protobuf.Timestamp") => {
            let time: Timestamp = message.transcode_to()?;
            Ok(json!({ "seconds": time.seconds.to_string(), "nanos": time.nanos }))
        }
        (Err(_), _) => show_fields(message),
    }
}

fn show_fields(message: &DynamicMessage) -> Result<Json, JsonError> {
    let mut rest = message.clone();
    let mut shown = Map::new();
    for (field, value) in message.fields() {
        if let Some(json) = show_messages(value) {
            rest.clear_field(&field);
            shown.insert(field.json_name().to_owned(), json?);
        }
    }
    let rest: Map<_, _> = serde_json::from_value(serde_json::to_value(&rest)?)?;
    Ok(rest.into_iter().chain(shown).collect())
}

fn show_messages(value: &Value) -> Option<Result<Json, JsonError>> {
    match value {
        Value::Message(message) => Some(show(message)),
        Value::List(values) => values.iter().map(Value::as_message).collect::<Option<Vec<_>>>().map(show_all),
        _ => None,
    }
}

fn show_all(messages: Vec<&DynamicMessage>) -> Result<Json, JsonError> {
    messages.into_iter().map(show).collect()
}

fn dynamic<M: Message>(pool: &DescriptorPool, full_name: &str, message: &M) -> Result<DynamicMessage, JsonError> {
    let mut dynamic = DynamicMessage::new(descriptor(pool, full_name)?);
    dynamic.transcode_from(message)?;
    Ok(dynamic)
}

fn descriptor(pool: &DescriptorPool, full_name: &str) -> Result<MessageDescriptor, JsonError> {
    pool.get_message_by_name(full_name).ok_or_else(|| JsonError::UnknownMessage(full_name.to_owned()))
}

#[cfg(test)]
mod tests {
    use prost::Name;

    use super::*;
    use crate::gitlab::cells::topology_service::claims::v1::{
        Bucket, ListRecordsResponse, Metadata, Record, Source, record,
    };
    use crate::leasehold::v1::LeaseCursor;

    const YEAR_10000: Timestamp = Timestamp { seconds: 253_402_300_800, nanos: 5 };

    fn any(type_url: &str, value: &[u8]) -> Any {
        Any { type_url: type_url.to_owned(), value: value.to_vec() }
    }

    fn record(user_data: Any) -> Record {
        let metadata = Metadata {
            bucket: Some(Bucket { r#type: 4, value: "alice".to_owned() }),
            source: Some(Source { r#type: 1, rails_primary_key_id: vec![0, 7] }),
            user_data: Some(user_data),
            ..Metadata::default()
        };
        let status = record::Status::Active.into();
        Record { metadata: Some(metadata), cell_id: 1, status, ..Record::default() }
    }

    fn shown<M: Message + Name>(message: &M) -> Json {
        show_json(&crate::descriptor_pool().unwrap(), &M::full_name(), message).unwrap()
    }

    fn strict<M: Message + Name>(message: &M) -> Result<Json, JsonError> {
        let json = to_json(&crate::descriptor_pool().unwrap(), &M::full_name(), message)?;
        Ok(serde_json::from_slice(&json)?)
    }

    #[test]
    fn a_message_with_a_json_form_is_shown_in_it() {
        let cursor = Any::from_msg(&LeaseCursor { cell_id: 1, ..LeaseCursor::default() }).unwrap();
        let record = record(cursor);
        assert_eq!(shown(&record), strict(&record).unwrap());
        let user_data = json!({ "@type": "type.googleapis.com/leasehold.v1.LeaseCursor", "cellId": "1" });
        assert_eq!(shown(&record)["metadata"]["userData"], user_data);
    }

    #[test]
    fn an_any_of_an_unknown_message_is_shown_as_base64() {
        let mut known = strict(&record(Any::from_msg(&LeaseCursor::default()).unwrap())).unwrap();
        for (type_url, value, base64) in [
            ("type.googleapis.com/my.app.UserExtra", &[0xfb, 0xff][..], "+/8="),
            ("", &[1], "AQ=="),
            ("no slash", &[], ""),
            ("type.googleapis.com/leasehold.v1.LeaseCursor", &[0xff], "/w=="),
            ("type.googleapis.com/google.protobuf.Timestamp", &YEAR_10000.encode_to_vec(), "CICD0f+vBxAF"),
        ] {
            let record = record(any(type_url, value));
            assert!(strict(&record).is_err(), "{type_url}");
            known["metadata"]["userData"] = json!({ "@type": type_url, "value": base64 });
            assert_eq!(shown(&record), known);
            let page = ListRecordsResponse { records: vec![record.clone(), record], truncated: true };
            assert_eq!(shown(&page), json!({ "records": [known, known], "truncated": true }));
        }
    }

    #[test]
    fn a_time_out_of_range_is_shown_as_seconds_and_nanos() {
        let record =
            Record { created_at: Some(YEAR_10000), updated_at: Some(Timestamp::default()), ..Record::default() };
        assert!(strict(&record).is_err());
        let times = json!({
            "createdAt": { "seconds": "253402300800", "nanos": 5 },
            "updatedAt": "1970-01-01T00:00:00Z",
        });
        assert_eq!(shown(&record), times);
    }
}
