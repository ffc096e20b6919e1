//! Messages in the JSON form that proto3 defines for them.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

/// Why a message could not be read from JSON or written as JSON.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The pool has no message of that name.
    #[error("no message `{0}` in the contract: use the full name of a message, with its package")]
    UnknownMessage(String),
    /// The text is not JSON, or not that of the message.
    #[error("not the JSON of the message: {0}")]
    Json(#[from] serde_json::Error),
    /// The name and the Rust type are not the same message.
    #[error("the name and the type are different messages: {0}")]
    Mismatch(#[from] prost::DecodeError),
}

/// Reads the message `full_name`, whose Rust type is `M`, from JSON. Fields that it does not have are an error.
///
/// # Errors
/// When the JSON is not that of the message, or the pool has no such message.
pub fn from_json<M: Message + Default>(pool: &DescriptorPool, full_name: &str, json: &[u8]) -> Result<M, JsonError> {
    let mut input = serde_json::Deserializer::from_slice(json);
    let message = DynamicMessage::deserialize(descriptor(pool, full_name)?, &mut input)?;
    input.end()?;
    Ok(message.transcode_to()?)
}

/// Writes `message`, which is the message `full_name`, as JSON. Fields with their default value are left out.
///
/// # Errors
/// When the pool has no such message, or an `Any` in the message holds one that the pool does not know.
pub fn to_json<M: Message>(pool: &DescriptorPool, full_name: &str, message: &M) -> Result<Vec<u8>, JsonError> {
    let mut dynamic = DynamicMessage::new(descriptor(pool, full_name)?);
    dynamic.transcode_from(message)?;
    Ok(serde_json::to_vec(&dynamic)?)
}

fn descriptor(pool: &DescriptorPool, full_name: &str) -> Result<MessageDescriptor, JsonError> {
    pool.get_message_by_name(full_name).ok_or_else(|| JsonError::UnknownMessage(full_name.to_owned()))
}
