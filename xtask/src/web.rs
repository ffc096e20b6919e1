//! `cargo xtask web`: compiles the engine and the simulation to WebAssembly, and builds the npm package and the page.

pub(crate) mod suites;
mod toolchain;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toolchain::Toolchain;
use xtask::process::{as_a_person, root, run, target_directory};

use crate::check::AS_WITH_TESTS;

/// The name of the WebAssembly crate in file names.
const CRATE: &str = "leasehold_wasm";

/// The size of the WebAssembly stack in bytes. The tests use less than a quarter of it. Data is
/// placed after the stack, and the encoding of addresses below one mebibyte is one byte shorter.
const STACK: u32 = 512 * 1024;

/// One wasm file of the npm package.
struct Part {
    /// The name of the wasm file, without its ending.
    name: &'static str,
    /// The feature of the crate with which the file is compiled.
    feature: &'static str,
}

const PARTS: &[Part] =
    &[Part { name: "leasehold", feature: "engine" }, Part { name: "simulation", feature: "simulation" }];

/// Compiles the wasm files of the npm package.
///
/// # Errors
/// No toolchain is found, or a file does not compile.
pub(crate) async fn compile() -> Result<()> {
    let toolchain = Toolchain::find().await?;
    for part in PARTS {
        let compiled = compile_part(&toolchain, part).await?;
        // The next part replaces the file.
        std::fs::copy(compiled, compiled_copy(part)).context("cannot copy the wasm file")?;
    }
    Ok(())
}

/// Builds `wasm/pkg` (the wasm files of [`compile`] with their JavaScript and types, and what
/// `wasm/tools/generate.mjs` writes) and `wasm/visualiser/dist` (the page).
///
/// # Errors
/// The build fails.
pub(crate) async fn package() -> Result<()> {
    let (directory, package) = (root().join("wasm"), root().join("wasm/pkg"));
    npm(&directory, &["ci", "--no-audit", "--no-fund"]).await?;
    if package.exists() {
        std::fs::remove_dir_all(&package)?;
    }
    for part in PARTS {
        bind(&compiled_copy(part), &package, part).await?;
        optimize(&directory, &package.join(format!("{}_bg.wasm", part.name))).await?;
    }
    run(as_a_person("node").arg("tools/generate.mjs").current_dir(&directory)).await?;
    let page = directory.join("visualiser");
    npm(&page, &["ci", "--no-audit", "--no-fund"]).await?;
    npm(&page, &["run", "build"]).await?;
    println!("{}", how_to_see(&page.join("dist").canonicalize()?));
    Ok(())
}

/// Returns a text with the page's directory and two ways to serve the page.
fn how_to_see(page: &Path) -> String {
    let page = page.display();
    format!(
        "the page lies in {page}; to see it, serve that directory:
    python3 -m http.server --bind 127.0.0.1 --directory '{page}' 8000
or build it into the claims server, which tells the page's address when it starts:
    cargo build --release -p leasehold-server --features page
    target/release/leasehold serve"
    )
}

async fn npm(directory: &Path, arguments: &[&str]) -> Result<()> {
    run(as_a_person("npm").args(arguments).current_dir(directory)).await
}

async fn optimize(directory: &Path, file: &Path) -> Result<()> {
    // wasm-opt saves a tenth of the size. `--flatten` lets the later passes find more to remove. The
    // second round removes the code that the first one has made unused. At the end, constants that
    // repeat become locals. The functions keep their order, so that similar ones stay neighbours: to
    // sort them by their calls saves 3 KB, and costs 1 KB once the file is compressed.
    const ROUND: [&str; 4] = ["--flatten", "--rereloop", "-Oz", "-Oz"];
    const END: [&str; 3] = ["--generate-global-effects", "-Oz", "--const-hoisting"];
    let mut optimizer = as_a_person(directory.join("node_modules/.bin/wasm-opt"));
    // The first KB of memory is the end of the stack ([`STACK`]), which no program reaches: an address
    // plus an offset may be folded.
    optimizer.arg("--low-memory-unused").args(ROUND).args(ROUND).args(END).arg(file).arg("--output").arg(file);
    run(optimizer.current_dir(directory)).await?;
    println!("{}: {:.0} KB", file.display(), std::fs::metadata(file)?.len() as f64 / 1e3);
    Ok(())
}

/// Compiles a part, and returns the path of the wasm file. All parts have the same path.
async fn compile_part(toolchain: &Toolchain, part: &Part) -> Result<PathBuf> {
    let target = build_directory();
    let mut cargo = as_a_person(toolchain.cargo());
    cargo.args([
        "build",
        "--locked",
        "--package",
        "leasehold-wasm",
        "--no-default-features",
        "--features",
        part.feature,
        "--profile",
        "wasm",
        "--target",
        toolchain::TARGET,
    ]);
    cargo.args(["--config", &format!("target.{}.rustflags = ['-Clink-arg=-zstack-size={STACK}']", toolchain::TARGET)]);
    cargo.arg("--target-dir").arg(&target).current_dir(root());
    toolchain.configure(&mut cargo);
    run(&mut cargo).await?;
    Ok(target.join(toolchain::TARGET).join("wasm").join(CRATE).with_extension("wasm"))
}

/// Returns the target directory of WebAssembly builds. It is separate, so that these and native
/// builds do not wait for each other's lock.
fn build_directory() -> PathBuf {
    target_directory().join("wasm")
}

/// Returns the path of the copy of a part's compiled wasm file.
fn compiled_copy(part: &Part) -> PathBuf {
    build_directory().join(part.name).with_extension("wasm")
}

/// Writes the package's files for a compiled wasm file, with the program `leasehold-bindgen`: the
/// JavaScript, the types and the processed wasm file `NAME_bg.wasm`.
async fn bind(compiled: &Path, package: &Path, part: &Part) -> Result<()> {
    // `--workspace` selects the features of the whole workspace, so that dependencies which a build
    // of the workspace has compiled are used again.
    let mut cargo = as_a_person("cargo");
    cargo.args(["build", "--quiet", "--workspace", "--bin", "leasehold-bindgen"]).args(AS_WITH_TESTS);
    run(cargo.current_dir(root())).await?;
    let program = target_directory().join("debug/leasehold-bindgen");
    run(as_a_person(program).arg(compiled).arg(part.name).arg(package).current_dir(root())).await
}
