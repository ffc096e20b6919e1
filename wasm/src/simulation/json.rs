//! Values cross the border as JSON, in which traces are written anyway: the file has one form for each, not two.

use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::error::Thrown;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = JSON, catch)]
    fn stringify(value: &JsValue) -> Result<Option<String>, JsValue>;

    #[wasm_bindgen(js_namespace = JSON)]
    fn parse(text: &str) -> JsValue;
}

/// From JavaScript.
///
/// # Errors
/// The value does not have the form that its type says.
pub(super) fn read<T: DeserializeOwned>(value: &JsValue) -> Result<T, Thrown> {
    let text = stringify(value).map_err(|_| Thrown::invalid("the value has no form in JSON"))?;
    serde_json::from_str(&text.unwrap_or_default()).map_err(Thrown::invalid)
}

/// To JavaScript.
///
/// # Errors
/// The value has no form there, which none of ours lacks.
pub(super) fn write<T: JsCast>(value: &impl Serialize) -> Result<T, Thrown> {
    Ok(parse(&text(value)?).unchecked_into())
}

/// To JSON.
///
/// # Errors
/// See [`write`].
pub(super) fn text(value: &impl Serialize) -> Result<String, Thrown> {
    serde_json::to_string(value).map_err(Thrown::invalid)
}
