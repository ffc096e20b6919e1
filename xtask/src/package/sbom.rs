//! The bill of materials, in the format CycloneDX 1.5
//! (<https://cyclonedx.org/docs/1.5/json/>).

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::inventory::{Component, Inventory};
use super::{VERSION, output};

/// Returns the bill of materials as JSON. `time` is its date in seconds since 1970.
pub(super) fn document(inventory: &Inventory, time: &str) -> Result<String> {
    let date = output(std::process::Command::new("date").args(["--utc", "--date", &format!("@{time}"), "+%FT%TZ"]))?;
    let program = reference("leasehold-server", VERSION);
    let is_part = |component: &&Component| component.name != "leasehold-server";
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": date.trim(),
            "component": {
                "type": "application",
                "bom-ref": program,
                "name": "leasehold",
                "version": VERSION,
                "licenses": [{ "expression": "MIT" }],
                "purl": program,
            },
        },
        "components": inventory.components.iter().filter(is_part).map(part).collect::<Vec<_>>(),
        "dependencies": inventory.components.iter().map(dependencies).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&document).map(|text| text + "\n").context("cannot write the bill of materials")
}

/// Returns a package's URL (<https://github.com/package-url/purl-spec>).
fn reference(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn part(component: &Component) -> Value {
    let reference = reference(&component.name, &component.version);
    let mut part = json!({
        "type": "library",
        "bom-ref": reference,
        "name": component.name,
        "version": component.version,
        // In CycloneDX, the scope `excluded` is for components that are used but not delivered.
        "scope": if component.is_linked { "required" } else { "excluded" },
        "purl": reference,
    });
    let optional = [
        ("licenses", component.licence.as_ref().map(|licence| json!([{ "expression": licence }]))),
        ("hashes", component.checksum.as_ref().map(|sum| json!([{ "alg": "SHA-256", "content": sum }]))),
        ("externalReferences", component.repository.as_ref().map(|url| json!([{ "type": "vcs", "url": url }]))),
    ];
    if let Some(members) = part.as_object_mut() {
        members.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
    part
}

fn dependencies(component: &Component) -> Value {
    let targets: Vec<_> = component.dependencies.iter().map(|(name, version)| reference(name, version)).collect();
    json!({ "ref": reference(&component.name, &component.version), "dependsOn": targets })
}
