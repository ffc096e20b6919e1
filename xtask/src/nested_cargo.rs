//! Cargo called by a program that cargo runs.

/// The variables in which cargo tells this program about its package, and where that has a build script, about its output.
/// To build scripts they would be news, and have them run again: take them away from a cargo that is to work as a
/// person's does.
pub fn package_variables() -> impl Iterator<Item = String> {
    let told =
        |name: &String| name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(told)
}
