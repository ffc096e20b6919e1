//! `Leasehold::Native`: the engine's functions without a session.

use std::sync::LazyLock;

use leasehold_bindings::{
    Call, CallOutput, Catalogue, ClaimInput, Source, SourceKey, SourceType, Subject, call, guard, outbox,
};
use magnus::{Error, Integer, RArray, RModule, RString, Ruby, TryConvert, Value, function, prelude::*};

use crate::columns::source_id;
use crate::errors::{self, catch_panic};

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::default);

pub(crate) fn init(_: &Ruby, leasehold: RModule) -> Result<(), Error> {
    let native = leasehold.define_module("Native")?;
    native.const_set("VERSION", env!("CARGO_PKG_VERSION"))?;
    native.const_set("GUARD_SQL", guard::SQL)?;
    native.const_set("GUARD_FENCE_PASSED", guard::FENCE_PASSED)?;
    native.const_set("GUARD_SESSION_LOST", guard::SESSION_LOST)?;
    native.const_set("OUTBOX_SQL", outbox::SQL)?;
    native.const_set("CAPTURE_SQL", outbox::CAPTURE_SQL)?;
    native.const_set("CLAIMS_CAPTURE_SQL", outbox::CLAIMS_CAPTURE_SQL)?;
    native.const_set("CHANGE_NOT_CLAIMED", outbox::NOT_CLAIMED)?;
    native.define_singleton_method("canonical_form", function!(canonical_form, 2))?;
    native.define_singleton_method("check_batch", function!(check_batch, 2))?;
    native.define_singleton_method("encode_source_id", function!(encode_source_id, 1))?;
    #[cfg(feature = "test-hooks")]
    native.define_singleton_method("panic", function!(panic_on_purpose, 1))?;
    Ok(())
}

fn call_engine(ruby: &Ruby, request: Call) -> Result<CallOutput, Error> {
    call(request, &CATALOGUE).map_err(|error| errors::engine_error(ruby, &error))
}

fn canonical_form(ruby: &Ruby, bucket_type: i32, value: String) -> Result<String, Error> {
    catch_panic(ruby, || match call_engine(ruby, Call::CanonicalForm { bucket_type, value })? {
        CallOutput::CanonicalForm(form) => Ok(form),
        _ => Err(unexpected_output(ruby)),
    })
}

fn check_batch(ruby: &Ruby, creates: RArray, destroys: RArray) -> Result<(), Error> {
    catch_panic(ruby, || {
        let request = Call::CheckBatch { creates: claims(ruby, creates)?, destroys: claims(ruby, destroys)? };
        call_engine(ruby, request).map(drop)
    })
}

fn encode_source_id(ruby: &Ruby, key: Value) -> Result<RString, Error> {
    catch_panic(ruby, || {
        let key = match Integer::from_value(key) {
            Some(integer) => SourceKey::Integer(integer.to_i64()?),
            None => SourceKey::Text(String::try_convert(key)?),
        };
        match call_engine(ruby, Call::EncodeSourceId { key })? {
            CallOutput::SourceId(id) => Ok(ruby.str_from_slice(id.as_bytes())),
            _ => Err(unexpected_output(ruby)),
        }
    })
}

fn unexpected_output(ruby: &Ruby) -> Error {
    errors::internal(ruby, "PANIC", "the engine returned the output of another call: report this defect")
}

/// Reads claims that are Hashes or Structs: both have `[]` with a Symbol.
pub(crate) fn claims(ruby: &Ruby, values: RArray) -> Result<Vec<ClaimInput>, Error> {
    values.into_iter().map(|value| claim(ruby, value)).collect()
}

fn claim(ruby: &Ruby, value: Value) -> Result<ClaimInput, Error> {
    let member = |name: &str| -> Result<Value, Error> { value.funcall("[]", (ruby.to_symbol(name),)) };
    let subject = match Option::<i64>::try_convert(member("subject_id")?)? {
        Some(id) => Some(Subject { subject_type: i32::try_convert(member("subject_type")?)?, id }),
        None => None,
    };
    let source = match Option::<RString>::try_convert(member("source_id")?)? {
        Some(id) => {
            let source_type = SourceType(i32::try_convert(member("source_type")?)?);
            Some(Source { source_type, id: source_id(id) })
        }
        None => None,
    };
    Ok(ClaimInput {
        bucket_type: i32::try_convert(member("bucket_type")?)?,
        bucket_value: String::try_convert(member("bucket_value")?)?,
        subject,
        source,
    })
}

/// Panics, with or without the GVL, so that the specs can observe the exception.
#[cfg(feature = "test-hooks")]
#[allow(clippy::panic, reason = "the specs observe this panic")]
fn panic_on_purpose(ruby: &Ruby, without_gvl: bool) -> Result<(), Error> {
    catch_panic(ruby, || match without_gvl {
        true => crate::gvl::without_gvl(ruby, || panic!("on purpose")),
        false => panic!("on purpose"),
    })
}
