//! The packages from which the program, or another package of a release, is built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::cargo;
use crate::process::root;

/// The package of the program.
pub const PROGRAM: &str = "leasehold-server";
/// The package of Python's extension.
pub(super) const PYTHON: &str = "leasehold-python";

/// A package from which another one is built.
#[derive(Debug, Clone)]
pub struct Component {
    /// The package's name.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// The licences as an SPDX expression, as far as the package says them.
    pub licence: Option<String>,
    /// The address of the source code.
    pub repository: Option<String>,
    /// The SHA-256 of the package's archive; `None` for a member of the workspace.
    pub checksum: Option<String>,
    /// True if code of the package is in the result; false if it only runs during the build.
    pub is_linked: bool,
    /// The directory with the package's files.
    pub directory: PathBuf,
    /// The names and versions of the packages that this one depends on.
    pub dependencies: BTreeSet<(String, String)>,
}

/// All packages from which one is built, sorted by name and version.
#[derive(Debug)]
pub struct Inventory {
    /// The packages.
    pub components: Vec<Component>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

impl Inventory {
    /// Reads the packages of the locked build of `package`.
    ///
    /// # Errors
    /// cargo fails, for example because `Cargo.lock` is out of date.
    pub fn of(package: &str) -> Result<Self> {
        let built = tree(package, "normal,build")?;
        let linked = tree(package, "normal,no-proc-macro")?;
        let sums = checksums(&std::fs::read_to_string(root().join("Cargo.lock")).context("cannot read `Cargo.lock`")?);
        let text = cargo(&["metadata", "--locked", "--format-version", "1"])?;
        let metadata: Metadata = serde_json::from_str(&text).context("cannot read the output of `cargo metadata`")?;
        let keys: BTreeMap<_, _> =
            metadata.packages.iter().map(|package| (package.id.as_str(), package.key())).collect();
        let mut edges = BTreeMap::<_, BTreeSet<_>>::new();
        for node in &metadata.resolve.nodes {
            let targets = node.dependencies.iter().filter_map(|id| keys.get(id.as_str()).cloned());
            edges.insert(node.id.as_str(), targets.filter(|key| built.contains(key)).collect());
        }
        let is_built = |package: &&Package| built.contains(&package.key());
        let component = |package: &Package| Component {
            name: package.name.clone(),
            version: package.version.clone(),
            // Older packages divide alternatives by a slash.
            licence: package.license.as_ref().map(|licence| licence.replace('/', " OR ")),
            repository: package.repository.clone(),
            checksum: sums.get(&package.key()).cloned(),
            is_linked: linked.contains(&package.key()),
            directory: package.manifest_path.parent().map(PathBuf::from).unwrap_or_default(),
            dependencies: edges.get(package.id.as_str()).cloned().unwrap_or_default(),
        };
        let mut components: Vec<_> = metadata.packages.iter().filter(is_built).map(component).collect();
        components.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(Self { components })
    }

    /// Returns the packages of others, of which code is in the result.
    pub fn linked_dependencies(&self) -> impl Iterator<Item = &Component> {
        self.components.iter().filter(|component| component.is_linked && component.checksum.is_some())
    }
}

impl Package {
    fn key(&self) -> (String, String) {
        (self.name.clone(), self.version.clone())
    }
}

/// Returns the names and versions of the packages that cargo's tree of `package` has along these kinds of edges.
fn tree(package: &str, edges: &str) -> Result<BTreeSet<(String, String)>> {
    let arguments = ["tree", "--locked", "--package", package, "--edges", edges, "--prefix", "none", "--format", "{p}"];
    Ok(cargo(&arguments)?.lines().filter_map(name_and_version).collect())
}

/// Returns the name and version of a line such as `serde v1.0.229 (*)`.
fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let version = words.next()?.strip_prefix('v')?;
    Some((name.to_owned(), version.to_owned()))
}

/// Returns the checksums of a `Cargo.lock`. Cargo writes each entry's name, version and checksum in
/// this order, on a line each.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value =
        |line: &str, key: &str| Some(line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned());
    let mut sums = BTreeMap::new();
    let (mut name, mut version) = (String::new(), String::new());
    for line in lock.lines() {
        if let Some(found) = value(line, "name") {
            name = found;
        } else if let Some(found) = value(line, "version") {
            version = found;
        } else if let Some(sum) = value(line, "checksum") {
            sums.insert((name.clone(), version.clone()), sum);
        }
    }
    sums
}
