//! `cargo xtask docs`: builds the book with mdBook.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::process::{as_a_person, root, run, target_directory};

/// The version of mdBook that is installed.
const MDBOOK: &str = "~0.5";

/// The npm package, with its version, that draws the book's diagrams.
const MERMAID: &str = "mermaid@~12.3";

/// Builds the book into `docs` in the build directory, and prints its path. The first run also
/// installs mdBook into the build directory.
///
/// # Errors
/// A tool cannot be installed, or the book does not build.
pub(crate) async fn build() -> Result<()> {
    let tools = std::path::absolute(target_directory().join("tools")).context("the build directory is unknown")?;
    let mdbook = mdbook(&tools).await?;
    let mermaid = mermaid(&tools).await?;
    let book = root().join("docs");
    let output = std::path::absolute(target_directory().join("docs")).context("the build directory is unknown")?;
    std::fs::copy(mermaid, book.join("mermaid.min.js")).context("cannot copy the script that draws diagrams")?;
    run(as_a_person(mdbook).arg("build").arg(&book).arg("--dest-dir").arg(&output)).await?;
    println!("the book is {}", output.join("index.html").display());
    Ok(())
}

/// Returns the path of the program mdBook, which is compiled if it is missing.
async fn mdbook(tools: &Path) -> Result<PathBuf> {
    let program = tools.join("bin/mdbook");
    if !program.exists() {
        eprintln!("installing mdBook, which takes some minutes once");
        let mut cargo = as_a_person("cargo");
        cargo.args(["install", "--quiet", "--locked", "mdbook", "--version", MDBOOK, "--root"]).arg(tools);
        run(&mut cargo).await?;
    }
    Ok(program)
}

/// Returns the path of the script that draws diagrams, which is installed if it is missing.
async fn mermaid(tools: &Path) -> Result<PathBuf> {
    let script = tools.join("node_modules/mermaid/dist/mermaid.min.js");
    if !script.exists() {
        let mut npm = as_a_person("npm");
        run(npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(tools).arg(MERMAID)).await?;
    }
    Ok(script)
}
