//! The licences of the packages whose code is in a package of a release.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::inventory::{Component, Inventory};

/// The starts of the names of files with licences, in lower case.
const NAMES: [&str; 5] = ["licence", "license", "copying", "notice", "unlicense"];

const RULE: &str = "------------------------------------------------------------------------------";

/// Returns the list of the packages with their licences, then each text of a licence once.
pub(super) fn notice(inventory: &Inventory) -> Result<String> {
    let mut texts = BTreeMap::<String, Vec<String>>::new();
    let mut notice = String::from("This package has code of these others, under these licences:\n\n");
    for component in inventory.linked_dependencies() {
        let name = format!("{} {}", component.name, component.version);
        let licence = component.licence.as_deref().unwrap_or("see its text");
        let address = component.repository.as_deref().unwrap_or_default();
        writeln!(notice, "{}", format!("{name}: {licence} {address}").trim_end())?;
        for text in texts_of(component)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, names) in texts {
        write!(notice, "\n{RULE}\n{}\n{RULE}\n\n{text}\n", names.join(", "))?;
    }
    Ok(notice)
}

/// Returns the texts of a package's licences. A few packages have none in their archive.
fn texts_of(component: &Component) -> Result<Vec<String>> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()));
    let directory = std::fs::read_dir(&component.directory)
        .with_context(|| format!("the files of `{}` are absent", component.name))?;
    let mut paths = directory.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.is_file() && is_licence(path));
    paths.sort();
    let text = |path| Ok(String::from_utf8_lossy(&read(path)?).replace('\r', "").trim().to_owned());
    paths.iter().map(|path| text(path)).collect()
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    NAMES.iter().any(|start| name.starts_with(start))
}
