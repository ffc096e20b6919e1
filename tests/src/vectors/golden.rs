//! Reads the files of golden vectors.

use anyhow::{Context, Result};

/// The directory that contains the files of golden vectors.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors");

macro_rules! embedded {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../../vectors/", $name)))),*] };
}

/// The names and texts of the files at compile time, for WebAssembly, which cannot read files at
/// run time.
const EMBEDDED: &[(&str, &str)] = embedded![
    "begin.txt"
    "busy_and_taken.txt"
    "canonical_forms.txt"
    "get_and_classify.txt"
    "idempotency.txt"
    "invalid.txt"
    "limits.txt"
    "list_leases.txt"
    "list_records.txt"
    "ownership_and_source.txt"
    "precedence.txt"
    "reconcile.txt"
    "replace.txt"
    "settle.txt"
    "verify.txt"
];

/// Returns the name and the text of every file of golden vectors, sorted by name.
///
/// # Errors
/// A file cannot be read.
pub fn golden_files() -> Result<Vec<(String, String)>> {
    if cfg!(target_family = "wasm") {
        return Ok(EMBEDDED.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect());
    }
    let entries = std::fs::read_dir(DIRECTORY).context("the golden vectors cannot be listed")?;
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(entry.path()).with_context(|| format!("`{name}` cannot be read"))?;
        Ok((name, text))
    };
    let mut files = entries.map(read).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_embedded() {
        let files = golden_files().unwrap();
        assert!(files.iter().map(|(name, _)| name.as_str()).eq(EMBEDDED.iter().map(|(name, _)| *name)));
    }
}
