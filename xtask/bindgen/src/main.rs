//! `leasehold-bindgen INPUT NAME DIRECTORY`: writes the JavaScript and the TypeScript types for a
//! compiled WebAssembly file.
//!
//! This is a separate program because its dependencies take a minute to compile, and only `cargo
//! xtask web` needs them.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use wasm_bindgen_cli_support::Bindgen;

/// The member of each class that only programs with recent types can declare.
const DISPOSE: &str = "    [Symbol.dispose](): void;";

fn main() -> Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [input, name, directory] = arguments.as_slice() else { bail!("usage: leasehold-bindgen INPUT NAME DIRECTORY") };
    let name = name.to_str().context("the name is not UTF-8")?;
    bind(Path::new(input), name, Path::new(directory)).context("cannot write the package's JavaScript")
}

fn bind(input: &Path, name: &str, directory: &Path) -> Result<()> {
    let mut bindgen = Bindgen::new();
    // This form of the JavaScript does not load the wasm file: the package does that itself (`wasm/js/wasm_file.js`).
    bindgen.input_path(input).out_name(name).bundler(true)?.typescript(true);
    bindgen.remove_name_section(true).remove_producers_section(true);
    bindgen.generate(directory)?;
    // The script of this name imports the wasm file as a module, which few bundlers and no browser can.
    fs::rename(directory.join(format!("{name}_bg.js")), directory.join(format!("{name}.js")))?;
    fs::remove_file(directory.join(format!("{name}_bg.wasm.d.ts")))?;
    let types = directory.join(format!("{name}.d.ts"));
    let portable = with_portable_disposal(&fs::read_to_string(&types)?)?;
    fs::write(types, portable).context("cannot write the types")
}

/// Returns the types with `Disposal` in place of each member `[Symbol.dispose]`. A program without the
/// newest library of types has no such symbol, and its compiler would refuse the package.
fn with_portable_disposal(types: &str) -> Result<String> {
    let mut portable = String::from("import type { Disposal } from \"../js/disposal.js\";\n");
    let mut disposals = String::new();
    for line in types.lines().filter(|line| *line != DISPOSE) {
        if let Some(class) = line.strip_prefix("export class ").and_then(|rest| rest.strip_suffix(" {")) {
            disposals += &format!("export interface {class} extends Disposal {{}}\n");
        }
        portable = portable + line + "\n";
    }
    let is_known = types.contains(DISPOSE) && !portable.contains("Symbol.dispose");
    ensure!(is_known, "wasm-bindgen writes `[Symbol.dispose]` in another form");
    Ok(portable + &disposals)
}
