//! The npm package in new programs, with more bundlers and versions of Node than a usual run has.

use std::collections::BTreeMap;

use anyhow::Result;
use xtask::needs;
use xtask::process::{self, as_a_person, root};

use crate::{deep, web};

/// Builds the package, and a program with each bundler. Returns true if all of them work, and their number.
///
/// # Errors
/// The package does not build, or the tests can't be started.
pub(crate) async fn test() -> Result<(bool, BTreeMap<String, u64>)> {
    needs::install(&[needs::FOR_NPM, needs::FOR_PAGE].concat())?;
    web::compile().await?;
    web::package().await?;
    let mut npm = as_a_person("npm");
    npm.args(["run", "--silent", "bundlers"]).current_dir(root().join("wasm"));
    let output = process::output(&mut npm).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    Ok((output.status.success(), deep::counts(&text)?))
}
