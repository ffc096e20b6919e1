//! Runs the gem's specs on the Rails of Debian's next release: with this machine's Ruby, or in a
//! chroot with that release.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use xtask::needs;
use xtask::process::{as_a_person, root, run};

use crate::debian::{Chroot, NEXT, Unpacked};

/// The version of Rails in Debian's next release.
const VERSION: &str = "7.2";

/// The Debian packages of Rails that differ from this machine's. They contain only Ruby code, so
/// any Ruby can load them.
const PACKAGES: &[&str] = &[
    "ruby-actionpack",
    "ruby-actionview",
    "ruby-activejob",
    "ruby-activemodel",
    "ruby-activerecord",
    "ruby-activesupport",
    "ruby-rails-dom-testing",
    "ruby-rails-html-sanitizer",
    "ruby-railties",
];

/// The Debian packages that the chroot needs in addition to those of the gem's specs.
const CHROOT_PACKAGES: &[&str] =
    &["build-essential", "ca-certificates", "libclang-dev", "postgresql", "ruby", "ruby-dev"];

/// Downloads and unpacks Rails of Debian's next release, unless this was done before.
///
/// # Errors
/// A package cannot be downloaded or unpacked.
pub(crate) async fn prepare() -> Result<()> {
    Unpacked::new("rails")?.prepare(PACKAGES).await
}

/// Runs the specs that depend on Rails, with the Rails of Debian's next release.
///
/// # Errors
/// A spec failed.
pub(crate) async fn test() -> Result<()> {
    let mut rake = as_a_person("rake");
    rake.arg("spec:rails").current_dir(root().join("ruby"));
    rake.env("RUBYLIB", load_path(&Unpacked::new("rails")?.root())?).env("LEASEHOLD_RAILS", VERSION);
    run(&mut rake).await
}

/// Returns the `lib` directories of all gems below `root`, in the form of the variable `RUBYLIB`.
/// Ruby loads them instead of the versions that RubyGems would find.
fn load_path(root: &Path) -> Result<String> {
    let gems = root.join("usr/share/rubygems-integration/all/gems");
    let gems = std::fs::read_dir(&gems).with_context(|| format!("no gems in `{}`", gems.display()))?;
    let mut paths = gems.map(|gem| Ok(gem?.path().join("lib").display().to_string())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths.join(":"))
}

/// The name of the file in the chroot's copy of the project into which the specs write their
/// summary.
const SUMMARY: &str = "summary.json";

#[derive(Deserialize)]
struct Results {
    summary: Summary,
}

/// The numbers of examples and failures, as RSpec's JSON formatter writes them.
#[derive(Deserialize)]
pub(crate) struct Summary {
    pub(crate) example_count: u64,
    failure_count: u64,
    errors_outside_of_examples_count: u64,
}

impl Summary {
    /// True if no example failed, and every file of examples could be loaded.
    pub(crate) const fn passed(&self) -> bool {
        self.failure_count == 0 && self.errors_outside_of_examples_count == 0
    }
}

/// Installs Debian's next release in a chroot, builds the extension there for its Ruby, and runs
/// all of the gem's specs against the program `server`. Returns the specs' summary. The
/// installation and the build are kept, so that a later run continues from them.
///
/// # Errors
/// The release cannot be installed, or the specs cannot be run.
pub(crate) async fn test_in_chroot(server: &Path, seed: u64) -> Result<Summary> {
    needs::install(needs::FOR_CHROOT)?;
    let chroot = Chroot::new("debian-next", NEXT)?;
    let mut packages = needs::packages(needs::FOR_GEM);
    packages.extend(CHROOT_PACKAGES);
    let start = Instant::now();
    chroot.prepare(&packages).await?;
    copy_project(&chroot.root().join("project")).await?;
    let copy = chroot.root().join("usr/local/bin/leasehold");
    // The old copy is removed first, because a server of an interrupted run may still have it open.
    let _ = std::fs::remove_file(&copy);
    std::fs::copy(server, copy).context("cannot copy the server")?;
    eprintln!("the root is prepared after {} s", start.elapsed().as_secs());
    let mut rake = chroot.command("env");
    rake.args(["CARGO_TARGET_DIR=/target", "LEASEHOLD_BINARY=/usr/local/bin/leasehold"]);
    rake.arg(format!("LEASEHOLD_RAILS={VERSION}"));
    rake.arg(format!("SPEC_OPTS=--seed {seed} --format progress --format json --out /project/{SUMMARY}"));
    rake.args(["sh", "-c", "cd /project/ruby && exec rake spec"]);
    let ended = run(&mut rake).await;
    let Ok(text) = std::fs::read(chroot.root().join("project").join(SUMMARY)) else {
        return ended.and_then(|()| bail!("the specs left no summary"));
    };
    let summary = serde_json::from_slice::<Results>(&text).context("the summary of the specs is damaged")?.summary;
    // If examples failed, the command has failed too, and the summary tells more than the command's
    // error.
    if summary.passed() { ended.map(|()| summary) } else { Ok(summary) }
}

/// Copies the project's files into the chroot, without those that git ignores. The specs write into
/// the directory, and must not replace files that were built for this machine's Ruby.
pub(crate) async fn copy_project(into: &Path) -> Result<()> {
    if into.exists() {
        std::fs::remove_dir_all(into)?;
    }
    std::fs::create_dir_all(into)?;
    let script = "git ls-files -z --cached --others --exclude-standard --deduplicate \
                  | tar --create --null --ignore-failed-read --files-from=- | tar --extract --directory=\"$1\"";
    run(as_a_person("sh").args(["-euc", script, "copy"]).arg(into).current_dir(root())).await
}
