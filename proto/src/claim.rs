//! The message `Claim`, written by hand so that it keeps claim types that the `.proto` file lacks.
//!
//! A server may have bucket types beyond those of the contract, and a client's `.proto` file may
//! name them as further fields of the `oneof`. prost drops unknown fields, so its generated type
//! would read such a claim as an empty one.

use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, int64, skip_field, string};
use prost::{DecodeError, Message, Name};

/// The largest field number that protobuf allows, 2²⁹ − 1.
const MAX_FIELD: u32 = (1 << 29) - 1;

/// A typed claim: the field of the `oneof` that is set; `None` in an empty claim.
///
/// ```
/// use leasehold_proto::gitlab::cells::topology_service::types::v1::Claim;
/// use prost::Message;
///
/// // Field 40 is unknown to the contract.
/// let claim = Claim::id(40, 7);
/// assert_eq!(Claim::decode(claim.encode_to_vec().as_slice()), Ok(claim));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Claim(Option<Field>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Field {
    // INVARIANT: the number is from 1 to `MAX_FIELD`.
    number: u32,
    value: ClaimValue,
}

/// The content of a typed claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimValue {
    /// The content of a string field.
    Text(String),
    /// The content of an int64 field.
    Id(i64),
}

impl Claim {
    /// Returns the claim with this text; an empty claim if no field can have the number.
    pub fn text(bucket_type: i32, value: impl Into<String>) -> Self {
        Self::new(bucket_type, ClaimValue::Text(value.into()))
    }

    /// Returns the claim with this id; an empty claim if no field can have the number.
    pub fn id(bucket_type: i32, id: i64) -> Self {
        Self::new(bucket_type, ClaimValue::Id(id))
    }

    fn new(bucket_type: i32, value: ClaimValue) -> Self {
        let number = u32::try_from(bucket_type).ok().filter(|number| (1..=MAX_FIELD).contains(number));
        Self(number.map(|number| Field { number, value }))
    }

    /// Returns the bucket type, which is the number of the field that is set, and the content of
    /// the field; `None` for an empty claim.
    pub fn field(&self) -> Option<(i32, &ClaimValue)> {
        let Field { number, value } = self.0.as_ref()?;
        // The conversion can't fail: the number is at most `MAX_FIELD`.
        Some((i32::try_from(*number).ok()?, value))
    }
}

impl ClaimValue {
    /// Returns the bucket's value: the text, or the id in decimal.
    pub fn to_bucket_value(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Id(id) => id.to_string(),
        }
    }
}

/// A later field replaces an earlier one, as in every `oneof`, so a claim takes no more memory than
/// its last field. A field that is neither a string nor an int64 is skipped.
impl Message for Claim {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        match &self.0 {
            Some(Field { number, value: ClaimValue::Text(text) }) => string::encode(*number, text, buf),
            Some(Field { number, value: ClaimValue::Id(id) }) => int64::encode(*number, id, buf),
            None => {}
        }
    }

    fn merge_field(
        &mut self,
        number: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        let value = match wire_type {
            WireType::LengthDelimited => {
                let mut text = String::new();
                string::merge(wire_type, &mut text, buf, ctx)?;
                ClaimValue::Text(text)
            }
            WireType::Varint => {
                let mut id = 0;
                int64::merge(wire_type, &mut id, buf, ctx)?;
                ClaimValue::Id(id)
            }
            _ => return skip_field(wire_type, number, buf, ctx),
        };
        // prost has checked that the number is from 1 to `MAX_FIELD` (prost's encoding.rs,
        // `decode_key`).
        self.0 = Some(Field { number, value });
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        match &self.0 {
            Some(Field { number, value: ClaimValue::Text(text) }) => string::encoded_len(*number, text),
            Some(Field { number, value: ClaimValue::Id(id) }) => int64::encoded_len(*number, id),
            None => 0,
        }
    }

    fn clear(&mut self) {
        self.0 = None;
    }
}

impl Name for Claim {
    const NAME: &'static str = "Claim";
    const PACKAGE: &'static str = "gitlab.cells.topology_service.types.v1";

    fn full_name() -> String {
        format!("{}.{}", Self::PACKAGE, Self::NAME)
    }

    fn type_url() -> String {
        format!("type.googleapis.com/{}", Self::full_name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;
    use prost_reflect::DynamicMessage;

    use super::*;

    fn claims() -> impl Strategy<Value = Claim> {
        let number = 1..=i32::try_from(MAX_FIELD).unwrap();
        (number, any::<Result<String, i64>>()).prop_map(|(number, value)| match value {
            Ok(text) => Claim::text(number, text),
            Err(id) => Claim::id(number, id),
        })
    }

    proptest! {
        #[test]
        fn every_claim_comes_back_as_it_was(claim in claims()) {
            let bytes = claim.encode_to_vec();
            prop_assert_eq!(bytes.len(), claim.encoded_len());
            prop_assert_eq!(Claim::decode(bytes.as_slice()).unwrap(), claim);
        }

        #[test]
        fn the_last_field_counts(claims in prop::collection::vec(claims(), 1..4)) {
            let bytes: Vec<u8> = claims.iter().flat_map(Message::encode_to_vec).collect();
            prop_assert_eq!(&Claim::decode(bytes.as_slice()).unwrap(), claims.last().unwrap());
        }

        #[test]
        fn any_bytes_are_refused_or_read_into_no_more_than_they_are(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            if let Ok(claim) = Claim::decode(bytes.as_slice()) {
                prop_assert!(claim.encoded_len() <= bytes.len());
                prop_assert_eq!(&Claim::decode(claim.encode_to_vec().as_slice()).unwrap(), &claim);
            }
        }

        #[test]
        fn a_claim_of_the_contract_is_read_as_by_its_descriptor(number in 1..=18_i32, id in any::<i64>()) {
            let pool = crate::descriptor_pool().unwrap();
            let descriptor = pool.get_message_by_name(&Claim::full_name()).unwrap();
            let field = descriptor.get_field(number.cast_unsigned()).unwrap();
            let claim = match field.kind() {
                prost_reflect::Kind::Int64 => Claim::id(number, id),
                _ => Claim::text(number, id.to_string()),
            };
            let dynamic = DynamicMessage::decode(descriptor, claim.encode_to_vec().as_slice()).unwrap();
            prop_assert!(dynamic.has_field(&field));
            prop_assert_eq!(dynamic.unknown_fields().count(), 0);
            prop_assert_eq!(dynamic.transcode_to::<Claim>().unwrap(), claim);
        }
    }

    #[test]
    fn a_number_that_no_field_can_have_gives_an_empty_claim() {
        for number in [0, -1, i32::MIN, i32::MAX, 1 << 29] {
            assert_eq!(Claim::text(number, "a"), Claim::default(), "{number}");
        }
        assert!(Claim::default().encode_to_vec().is_empty());
    }
}
