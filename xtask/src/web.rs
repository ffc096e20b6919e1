//! `cargo xtask web`: the engine and the simulation compiled to WebAssembly, the npm package around them, and the page.

pub(crate) mod suites;
mod toolchain;

use std::path::{Path, PathBuf};

use anyhow::Result;
use toolchain::Toolchain;
use xtask::process::{as_a_person, root, run, target_directory};

/// The package of the workspace, as its file is called.
const CRATE: &str = "leasehold_wasm";

/// The stack's bytes, a quarter of which no test needs. Data comes after it, and every address below a mebibyte is a
/// byte shorter in the file.
const STACK: u32 = 512 * 1024;

/// A wasm file of the package.
struct Part {
    /// As the file is called.
    name: &'static str,
    /// The feature of the crate that makes it.
    feature: &'static str,
}

const PARTS: &[Part] =
    &[Part { name: "leasehold", feature: "engine" }, Part { name: "simulation", feature: "simulation" }];

/// Builds `wasm/pkg`, the wasm files with their JavaScript and types, and `wasm/visualiser/dist`, the page.
///
/// # Errors
/// When no toolchain can be had, or the build fails.
pub(crate) async fn build() -> Result<()> {
    let (directory, package) = (root().join("wasm"), root().join("wasm/pkg"));
    npm(&directory, &["ci", "--no-audit", "--no-fund"]).await?;
    let toolchain = Toolchain::find().await?;
    if package.exists() {
        std::fs::remove_dir_all(&package)?;
    }
    for part in PARTS {
        let compiled = compile(&toolchain, part).await?;
        bind(&compiled, &package, part).await?;
        optimize(&directory, &package.join(format!("{}_bg.wasm", part.name))).await?;
    }
    let page = directory.join("visualiser");
    npm(&page, &["ci", "--no-audit", "--no-fund"]).await?;
    npm(&page, &["run", "build"]).await?;
    println!("{}", how_to_see(&page.join("dist").canonicalize()?));
    Ok(())
}

/// Where the page lies, and two ways to see it.
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
    // A tenth of the size. What is flattened first has more for the rest to find.
    let mut optimizer = as_a_person(directory.join("node_modules/.bin/wasm-opt"));
    optimizer.args(["--flatten", "--rereloop", "-Oz", "-Oz"]).arg(file).arg("--output").arg(file);
    run(optimizer.current_dir(directory)).await?;
    println!("{}: {:.0} KB", file.display(), std::fs::metadata(file)?.len() as f64 / 1e3);
    Ok(())
}

async fn compile(toolchain: &Toolchain, part: &Part) -> Result<PathBuf> {
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

/// Of its own, since nothing of it serves another build, and another build need not wait for it.
fn build_directory() -> PathBuf {
    target_directory().join("wasm")
}

/// Writes the JavaScript around a wasm file, with the program `leasehold-bindgen`.
async fn bind(compiled: &Path, package: &Path, part: &Part) -> Result<()> {
    // The features are those of the whole workspace, so that a build of the workspace has compiled all of it.
    let mut cargo = as_a_person("cargo");
    cargo.args(["build", "--quiet", "--workspace", "--bin", "leasehold-bindgen"]);
    run(cargo.current_dir(root())).await?;
    let program = target_directory().join("debug/leasehold-bindgen");
    run(as_a_person(program).arg(compiled).arg(part.name).arg(package).current_dir(root())).await
}
