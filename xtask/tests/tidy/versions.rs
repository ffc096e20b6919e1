//! The version of the project: every package and every document says the same one.

use toml::Table;

use super::{assert_none, root};

/// The places that say the version: a file, and the text before each version in it.
const PLACES: &[(&str, &str)] = &[
    ("README.md", "leasehold "),
    ("deploy/container/Containerfile", "leasehold:"),
    ("deploy/kubernetes/leasehold.yaml", "leasehold:"),
    ("docs/src/deploy/systemd.md", "./leasehold_"),
    ("docs/src/deploy/systemd.md", "leasehold:"),
    ("docs/src/guides/rails.md", "pkg/leasehold-"),
    ("docs/src/tutorial.md", "leasehold "),
    ("python/pyproject.toml", "\nversion = \""),
    ("ruby/lib/leasehold/version.rb", "VERSION = \""),
    ("wasm/package.json", "\n    \"version\": \""),
    ("wasm/package-lock.json", "\n    \"version\": \""),
    ("wasm/visualiser/package.json", "\n    \"version\": \""),
    ("wasm/visualiser/package-lock.json", "\n    \"version\": \""),
];

/// Returns the version of the workspace, which all crates inherit.
fn version() -> String {
    let manifest: Table = std::fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let package = manifest.get("workspace").and_then(|workspace| workspace.get("package")).expect("a workspace");
    package.get("version").and_then(toml::Value::as_str).expect("a version").to_owned()
}

/// Returns the versions that stand after `before`, as far as digits and dots go.
fn versions_after(text: &str, before: &str) -> Vec<String> {
    let rests = text.split(before).skip(1);
    let versions = rests.map(|rest| rest.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.'));
    let versions = versions.map(|letters| letters.collect::<String>().trim_end_matches('.').to_owned());
    versions.filter(|version| version.contains('.')).collect()
}

/// Returns complaints about a text that has no version after `before`, or another version than
/// `version`.
fn complaints(path: &str, text: &str, before: &str, version: &str) -> Vec<String> {
    let found = versions_after(text, before);
    let missing = found.is_empty().then(|| format!("{path}: no version after {before:?}"));
    let others = found.iter().filter(|found| *found != version);
    let others = others.map(|found| format!("{path}: the version {found}, but `Cargo.toml` has {version}"));
    missing.into_iter().chain(others).collect()
}

/// True if the changelog has a heading with the version and a date, such as `## 0.1.0 (2026-11-26)`.
fn has_release(changelog: &str, version: &str) -> bool {
    let dates =
        changelog.lines().filter_map(|line| line.strip_prefix("## ")?.strip_prefix(version)?.strip_prefix(" ("));
    let is_date = |date: &str| {
        let parts: Vec<_> = date.split('-').map(|part| (part.len(), part.parse::<u16>().is_ok())).collect();
        parts == [(4, true), (2, true), (2, true)]
    };
    dates.filter_map(|date| date.strip_suffix(')')).any(is_date)
}

#[test]
fn every_package_has_the_version_of_the_workspace() {
    let version = version();
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let complaints = PLACES.iter().flat_map(|(path, before)| complaints(path, &read(path), before, &version));
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn the_changelog_has_the_version_of_the_workspace() {
    let changelog = std::fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(has_release(&changelog, &version()), "CHANGELOG.md: add a heading `## {} (DATE)`", version());
}

#[test]
fn another_version_and_none_are_caught() {
    let complaints = |text: &str| complaints("a", text, "leasehold ", "0.1.0").len();
    assert_eq!(complaints("leasehold 0.1.0. The leasehold server, leasehold 0.1.0"), 0);
    assert_eq!(complaints("leasehold 0.1.0 leasehold 0.1.1"), 1);
    assert_eq!(complaints("leasehold serve"), 1);
}

#[test]
fn a_release_without_a_date_is_caught() {
    assert!(has_release("# Changelog\n\n## Unreleased\n\n## 0.1.0 (2026-11-26)\n", "0.1.0"));
    for heading in ["## 0.1.0", "## 0.1.0 (soon)", "## 0.1.1 (2026-11-26)", "### 0.1.0 (2026-11-26)"] {
        assert!(!has_release(heading, "0.1.0"), "{heading}");
    }
}
