//! `leasehold-bindgen INPUT NAME DIRECTORY`: writes the JavaScript and the TypeScript types for a
//! compiled WebAssembly file.
//!
//! This is a separate program because its dependencies take a minute to compile, and only `cargo
//! xtask web` needs them.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [input, name, directory] = arguments.as_slice() else { bail!("usage: leasehold-bindgen INPUT NAME DIRECTORY") };
    let name = name.to_str().context("the name is not UTF-8")?;
    bind(Path::new(input), name, Path::new(directory)).context("cannot write the package's JavaScript")
}

fn bind(input: &Path, name: &str, directory: &Path) -> Result<()> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(input).out_name(name).web(true)?.typescript(true);
    // The default module path is kept: by it, browsers and bundlers find the WebAssembly file.
    bindgen.omit_default_module_path(false);
    bindgen.remove_name_section(true).remove_producers_section(true);
    bindgen.generate(directory)
}
