//! The rules of `deny.toml` on the licences and the sources of all packages from outside.

use std::process::Command;

use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};
use toml::Table;

use super::{assert_none, root};

/// The rules of `deny.toml`.
struct Rules {
    licences: Vec<Licensee>,
    registries: Vec<String>,
}

impl Rules {
    fn read() -> Self {
        let table: Table = std::fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap();
        let list = |table_name: &str, name: &str| {
            let list = table.get(table_name).and_then(|rules| rules.get(name)).and_then(toml::Value::as_array);
            let items = list.expect(name).iter().map(|item| item.as_str().expect(name).to_owned());
            items.collect::<Vec<_>>()
        };
        let licences = list("licenses", "allow").iter().map(|licence| Licensee::parse(licence).unwrap()).collect();
        Self { licences, registries: list("sources", "allow-registry") }
    }

    /// Returns a complaint about a package of `cargo metadata`; `None` for a package of the
    /// workspace, which has no source.
    fn complaint(&self, package: &Value) -> Option<String> {
        let text = |name: &str| package.get(name).and_then(Value::as_str);
        let source = text("source")?;
        let name = format!("{} {}", text("name")?, text("version")?);
        if !self.registries.iter().any(|registry| source == format!("registry+{registry}")) {
            return Some(format!("{name} comes from `{source}`, which `deny.toml` does not allow"));
        }
        let licence = text("license").unwrap_or_default();
        // Older packages divide the alternatives by a slash.
        let is_allowed = Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|licence| {
            licence.evaluate(|needed| self.licences.iter().any(|allowed| allowed.satisfies(needed)))
        });
        (!is_allowed).then(|| format!("{name} has the licence `{licence}`, which `deny.toml` does not allow"))
    }
}

#[test]
fn licences_and_sources_are_allowed() {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--locked", "--all-features"]).current_dir(root());
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata.get("packages").and_then(Value::as_array).unwrap();
    assert!(packages.len() > 300, "{} packages", packages.len());
    let rules = Rules::read();
    let complaints: Vec<_> = packages.iter().filter_map(|package| rules.complaint(package)).collect();
    assert_none(&complaints);
}

#[test]
fn a_licence_and_a_source_that_are_not_allowed_are_caught() {
    let rules = Rules::read();
    let registry = "registry+https://github.com/rust-lang/crates.io-index";
    let complaint = |source: &str, licence: &str| {
        let package = serde_json::json!({ "name": "a", "version": "1.0.0", "source": source, "license": licence });
        rules.complaint(&package)
    };
    for licence in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "Apache-2.0 WITH LLVM-exception"] {
        assert_eq!(complaint(registry, licence), None, "{licence}");
    }
    for licence in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "", "no licence"] {
        assert!(complaint(registry, licence).is_some(), "{licence}");
    }
    assert!(complaint("git+https://example.com/a", "MIT").is_some());
}
