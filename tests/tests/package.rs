//! Tests of the packages that `cargo xtask package` writes. `cargo xtask test --deep package`
//! installs them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use leasehold_tests::server::binary;
use serde_json::Value;
use tempfile::TempDir;
use xtask::package::{self, CHECKSUMS, Inventory, PROGRAM, VERSION};
use xtask::process::root;

/// The packages of the tests' server, and the unpacked tarball. Packing takes long, so one test
/// makes them and looks at all of them.
struct Packages {
    directory: TempDir,
}

impl Packages {
    fn write() -> Self {
        let directory = TempDir::new().unwrap();
        let this = Self { directory };
        package::write(binary().unwrap(), &this.archives()).unwrap();
        output(
            Command::new("tar").arg("--extract").arg("--file").arg(this.path(".tar.gz")).current_dir(&this.directory),
        );
        this
    }

    /// Returns the directory with the packages.
    fn archives(&self) -> PathBuf {
        self.directory.path().join("package")
    }

    /// Returns the path of the package whose name has this ending.
    fn path(&self, ending: &str) -> PathBuf {
        let mut paths = std::fs::read_dir(self.archives()).unwrap().map(|entry| entry.unwrap().path());
        paths.find(|path| path.to_str().unwrap().ends_with(ending)).expect(ending)
    }

    /// Returns a path in the unpacked tarball.
    fn unpacked(&self, file: &str) -> PathBuf {
        let top = format!("leasehold-{VERSION}-{}-linux", std::env::consts::ARCH);
        self.directory.path().join(top).join(file)
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the checksums of `Cargo.lock` by name and version; members of the workspace have none.
fn locked() -> BTreeMap<(String, String), Option<String>> {
    let metadata =
        output(Command::new("cargo").args(["metadata", "--locked", "--format-version", "1"]).current_dir(root()));
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let sum = |name: &str, version: &str| {
        let entry = lock.split("[[package]]").find(|entry| {
            entry.contains(&format!("\nname = \"{name}\"\n")) && entry.contains(&format!("\nversion = \"{version}\"\n"))
        });
        let sum = entry.expect(name).lines().find_map(|line| line.strip_prefix("checksum = \"")?.strip_suffix('"'));
        sum.map(str::to_owned)
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let (name, version) = (package["name"].as_str().unwrap(), package["version"].as_str().unwrap());
            ((name.to_owned(), version.to_owned()), sum(name, version))
        })
        .collect()
}

#[test]
fn the_packages_of_a_release_are_whole() {
    let packages = Packages::write();
    checksums_name_every_package(&packages);
    the_tarball_has_a_program_that_runs(&packages);
    the_debian_package_says_what_dpkg_needs(&packages);
    the_bill_of_materials_agrees_with_the_locked_build(&packages);
    the_notice_has_the_licence_of_every_linked_package(&packages);
}

fn checksums_name_every_package(packages: &Packages) {
    let said =
        output(Command::new("sha256sum").args(["--check", "--strict", CHECKSUMS]).current_dir(packages.archives()));
    let checked: BTreeSet<_> = said.lines().filter_map(|line| line.strip_suffix(": OK")).collect();
    let files =
        std::fs::read_dir(packages.archives()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: Vec<_> = files.filter(|name| name != CHECKSUMS).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    assert_eq!(files.iter().map(String::as_str).collect::<BTreeSet<_>>(), checked);
}

fn the_tarball_has_a_program_that_runs(packages: &Packages) {
    let version = output(Command::new(packages.unpacked("leasehold")).arg("--version"));
    assert_eq!(version, format!("leasehold {VERSION}\n"));
    let listing = output(Command::new("tar").args(["--list", "--verbose", "--file"]).arg(packages.path(".tar.gz")));
    assert!(listing.lines().all(|line| line.split_whitespace().nth(1) == Some("root/root")), "{listing}");
    for file in [
        "CHANGELOG.md",
        "LICENSE",
        "THIRD-PARTY-LICENCES",
        "completions/bash/leasehold",
        "completions/zsh/_leasehold",
        "deploy/leasehold.toml",
        "deploy/systemd/leasehold.service",
        "docs/src/tutorial.md",
    ] {
        assert!(packages.unpacked(file).is_file(), "the tarball lacks `{file}`");
    }
}

fn the_debian_package_says_what_dpkg_needs(packages: &Packages) {
    let package = packages.path(".deb");
    let field = |name: &str| output(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name)).trim().to_owned();
    assert_eq!([field("Package"), field("Version"), field("Depends")], ["leasehold", VERSION, "adduser"]);
    assert_eq!(field("Architecture"), output(Command::new("dpkg").arg("--print-architecture")).trim());
    assert!(field("Installed-Size").parse::<u64>().unwrap() > 5_000);
    let directory = TempDir::new().unwrap();
    output(Command::new("dpkg-deb").arg("--raw-extract").arg(&package).arg(directory.path()));
    let sums = directory.path().join("DEBIAN/md5sums");
    output(Command::new("md5sum").args(["--check", "--strict"]).arg(sums).current_dir(&directory));
    for script in ["postinst", "postrm", "prerm"] {
        output(Command::new("sh").arg("-n").arg(directory.path().join("DEBIAN").join(script)));
    }
    let conffiles = std::fs::read_to_string(directory.path().join("DEBIAN/conffiles")).unwrap();
    let configuration = directory.path().join("etc/leasehold/leasehold.toml");
    assert_eq!(conffiles, "/etc/leasehold/leasehold.toml\n");
    leasehold_server::config::Config::read(&configuration).unwrap().checked().unwrap();
}

fn the_bill_of_materials_agrees_with_the_locked_build(packages: &Packages) {
    let bill: Value = serde_json::from_slice(&std::fs::read(packages.path(".cdx.json")).unwrap()).unwrap();
    let locked = locked();
    assert_eq!([bill["bomFormat"].as_str(), bill["specVersion"].as_str()], [Some("CycloneDX"), Some("1.5")]);
    let components = bill["components"].as_array().unwrap();
    assert!(components.len() > 250, "{} components", components.len());
    for component in components {
        let key = (component["name"].as_str().unwrap().to_owned(), component["version"].as_str().unwrap().to_owned());
        let sum = locked.get(&key).unwrap_or_else(|| panic!("{key:?} is not in Cargo.lock"));
        assert_eq!(component["hashes"][0]["content"].as_str(), sum.as_deref(), "{key:?}");
        assert!(component["licenses"][0]["expression"].is_string(), "{key:?}");
    }
    let scope = |name: &str| {
        let found = components.iter().find(|component| component["name"] == name).expect(name);
        found["scope"].as_str().unwrap().to_owned()
    };
    let scopes = ["tokio", "rustls", "leasehold-core", "serde_derive", "clap_derive"].map(scope);
    assert_eq!(scopes, ["required", "required", "required", "excluded", "excluded"]);
    let names: BTreeSet<_> = components.iter().map(|component| component["name"].as_str().unwrap()).collect();
    let others: Vec<_> =
        ["proptest", "protox", "pyo3", "magnus", "wasm-bindgen", "leasehold-tests"].into_iter().collect();
    assert!(others.iter().all(|name| !names.contains(name)), "the program has nothing of {others:?}");
    let references: BTreeSet<_> = components.iter().map(|component| component["bom-ref"].as_str().unwrap()).collect();
    assert_eq!(references.len(), components.len());
    let edges = bill["dependencies"].as_array().unwrap().iter().flat_map(|edge| edge["dependsOn"].as_array().unwrap());
    assert!(edges.map(|target| target.as_str().unwrap()).all(|target| references.contains(target)));
}

fn the_notice_has_the_licence_of_every_linked_package(packages: &Packages) {
    // The archives of these packages have no licence text. The list has their licence expressions
    // only.
    const WITHOUT_A_TEXT: [&str; 7] = [
        "governor",
        "opentelemetry",
        "opentelemetry-otlp",
        "opentelemetry-proto",
        "opentelemetry_sdk",
        "tonic-prost",
        "varint-rs",
    ];
    let notice = std::fs::read_to_string(packages.unpacked("THIRD-PARTY-LICENCES")).unwrap();
    let inventory = Inventory::of(PROGRAM).unwrap();
    assert!(inventory.linked_dependencies().count() > 150);
    for component in inventory.linked_dependencies() {
        let name = format!("{} {}", component.name, component.version);
        let licence = component.licence.as_deref().unwrap();
        assert!(notice.contains(&format!("\n{name}: {licence}")), "{name} is not listed");
        let is_exempt = WITHOUT_A_TEXT.contains(&component.name.as_str());
        assert_eq!(notice.matches(&name).count() > 1, !is_exempt, "the text of {name}");
    }
}
