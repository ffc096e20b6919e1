//! `cargo xtask web`: the engine compiled to WebAssembly, and the npm package around it.

mod toolchain;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use wasm_bindgen_cli_support::Bindgen;

use crate::check::as_a_person;
use crate::process::Group;
use toolchain::Toolchain;

/// The package of the workspace, as its file is called.
const CRATE: &str = "leasehold_wasm";

/// Builds `wasm/pkg`: the wasm file, its JavaScript and its types.
///
/// # Errors
/// When no toolchain can be had, or the build fails.
pub(crate) async fn build() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (directory, package) = (root.join("wasm"), root.join("wasm/pkg"));
    run(as_a_person("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&directory)).await?;
    let compiled = compile(&Toolchain::find().await?, &root).await?;
    bind(&compiled, &package).context("cannot write the package's JavaScript")?;
    let file = package.join("leasehold_bg.wasm");
    // A seventh of the size, most of it runs of zeros in Unicode's tables.
    let mut optimizer = as_a_person(directory.join("node_modules/.bin/wasm-opt"));
    run(optimizer.arg("-Oz").arg(&file).arg("--output").arg(&file).current_dir(&directory)).await?;
    println!("wasm/pkg/leasehold_bg.wasm: {:.0} KB", std::fs::metadata(&file)?.len() as f64 / 1e3);
    Ok(())
}

async fn compile(toolchain: &Toolchain, root: &Path) -> Result<PathBuf> {
    // Of its own, since nothing of it serves another build, and another build need not wait for it.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("wasm");
    let mut cargo = as_a_person(toolchain.cargo());
    cargo.args([
        "build",
        "--locked",
        "--package",
        "leasehold-wasm",
        "--profile",
        "wasm",
        "--target",
        toolchain::TARGET,
    ]);
    cargo.arg("--target-dir").arg(&target).current_dir(root);
    toolchain.configure(&mut cargo);
    run(&mut cargo).await?;
    Ok(target.join(toolchain::TARGET).join("wasm").join(CRATE).with_extension("wasm"))
}

async fn run(command: &mut Command) -> Result<()> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let status = Group::start(command.stdin(Stdio::null()))?.wait().await?;
    ensure!(status.success(), "`{name}` failed: {status}");
    Ok(())
}

/// Replaces what the package had before.
fn bind(compiled: &Path, package: &Path) -> Result<()> {
    if package.exists() {
        std::fs::remove_dir_all(package)?;
    }
    let mut bindgen = Bindgen::new();
    bindgen.input_path(compiled).out_name("leasehold").web(true)?.typescript(true);
    bindgen.remove_name_section(true).remove_producers_section(true);
    bindgen.generate(package)
}
