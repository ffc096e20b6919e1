//! The rule that dependencies between members of the workspace go in one direction: each member
//! depends only on the members that are listed here.

use toml::{Table, Value};

use super::{File, assert_none, files};

/// Each member of the workspace, and the other members that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("bindings", &["core"]),
    ("cli", &["client", "proto"]),
    ("client", &["core", "proto"]),
    ("core", &[]),
    ("fuzz", &["server"]),
    ("proto", &[]),
    ("python", &["bindings", "client", "simulation"]),
    ("ruby/ext/leasehold", &["bindings"]),
    ("server", &["cli", "core", "proto"]),
    ("simulation", &["core"]),
    ("tests", &["client", "core", "proto", "server", "xtask"]),
    ("tests/model", &["core"]),
    ("wasm", &["bindings", "simulation"]),
    ("xtask", &[]),
    ("xtask/bench", &["client", "core", "proto", "tests", "xtask"]),
    ("xtask/bindgen", &[]),
];

/// The prefix of the names of the workspace's packages, except that of `xtask`.
const PREFIX: &str = "leasehold-";

/// The names of the tables of a Cargo manifest with dependencies. Each can also be below `target`.
const KINDS: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

/// Returns the members on which a manifest depends, from all of its tables.
fn members(manifest: &Table) -> Vec<String> {
    let own = KINDS.iter().filter_map(|kind| manifest.get(*kind)?.as_table());
    let own = own.flatten().filter_map(|(name, value)| {
        let package = value.get("package").and_then(Value::as_str).unwrap_or(name);
        (package == "xtask").then_some(package).or_else(|| package.strip_prefix(PREFIX)).map(str::to_owned)
    });
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    own.chain(targets.flat_map(members)).collect()
}

/// Returns a complaint for each forbidden dependency in the manifest of a member. The member's name
/// is its folder.
fn wrong_way(file: &File) -> Vec<String> {
    let manifest: Table = file.text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.path));
    let member = file.path.trim_end_matches("/Cargo.toml");
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == member) else {
        return vec![format!("{}: say in tidy's `ALLOWED` which members it may depend on", file.path)];
    };
    let wrong = members(&manifest).into_iter().filter(|other| !allowed.contains(&other.as_str()));
    wrong.map(|other| format!("{}: `{member}` must not depend on `{other}`: layers point one way", file.path)).collect()
}

#[test]
fn layers_point_one_way() {
    let manifests = files(&["toml"]).into_iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let complaints: Vec<_> = manifests.flat_map(|manifest| wrong_way(&manifest)).collect();
    assert_none(&complaints);
}

#[test]
fn a_dependency_against_the_layers_is_caught() {
    let complaints = |member: &str, text: &str| {
        wrong_way(&File { path: format!("{member}/Cargo.toml"), text: text.to_owned() }).len()
    };
    for text in [
        "[dependencies]\nleasehold-server = { workspace = true }",
        "[dev-dependencies]\nleasehold-proto.workspace = true",
        "[build-dependencies]\nwire = { path = \"../proto\", package = \"leasehold-proto\" }",
        "[target.'cfg(unix)'.dependencies]\nleasehold-proto = { path = \"../proto\" }",
        "[dependencies.leasehold-proto]\nworkspace = true",
        "[dev-dependencies]\nxtask = { path = \"../xtask\" }",
    ] {
        assert_eq!(complaints("core", text), 1, "{text}");
        assert_eq!(complaints("tests", text), 0, "{text}");
    }
    assert_eq!(complaints("core", "[dependencies]\nserde.workspace = true"), 0);
    assert_eq!(complaints("unheard-of", ""), 1);
}
