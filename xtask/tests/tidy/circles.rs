//! The rule that the modules of a crate do not depend on each other in a circle. A module here is a
//! file or a folder directly below `src`, with all that lies in it.

use std::collections::{BTreeMap, BTreeSet};

use super::rust::Facts;
use super::{File, assert_none, files};

/// The crates without circles.
const CRATES: &[&str] = &["bindings", "cli", "client", "core", "server", "simulation"];

/// The modules of a crate, each with the modules whose items its code names.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Returns the path of the module that a file below `src` defines: empty for `lib.rs`.
fn module_path(path: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs").trim_end_matches("/mod");
    stem.split('/').filter(|part| !matches!(*part, "lib" | "main")).map(str::to_owned).collect()
}

/// Returns the module below the crate's root that a path names from within the module at `from`.
/// None if the path begins in another crate or in `from` itself.
fn target(from: &[String], path: &[String]) -> Option<String> {
    let ups = path.iter().take_while(|segment| *segment == "super").count();
    match path.first()?.as_str() {
        "crate" => path.get(1).cloned(),
        "super" if ups == from.len() => path.get(ups).cloned(),
        _ => None,
    }
}

/// Returns the dependencies between the modules of a crate, given its files with paths relative to
/// `src`. Test code and the crate's root are left out.
fn uses(files: &[File]) -> Uses {
    let modules: BTreeSet<_> = files.iter().filter_map(|file| module_path(&file.path).first().cloned()).collect();
    let mut uses = Uses::new();
    for file in files {
        let from = module_path(&file.path);
        let Some(own) = from.first() else { continue };
        let names = Facts::of(file).names.into_iter().filter(|name| !name.in_test);
        let targets = names.filter_map(|name| target(&from, &name.segments));
        let others = targets.filter(|other| other != own && modules.contains(other));
        uses.entry(own.clone()).or_default().extend(others);
    }
    uses
}

/// Returns the modules that are in a circle, or between two circles. Removes a module that depends
/// on no other module, or on which none depends, until there is no such module. Without circles, no
/// module remains.
fn in_circles(mut uses: Uses) -> Uses {
    loop {
        let used: BTreeSet<_> = uses.values().flatten().cloned().collect();
        let is_end = |(name, others): &(&String, &BTreeSet<String>)| others.is_empty() || !used.contains(*name);
        let ends: BTreeSet<_> = uses.iter().filter(is_end).map(|(name, _)| name.clone()).collect();
        if ends.is_empty() {
            return uses;
        }
        uses.retain(|name, _| !ends.contains(name));
        uses.values_mut().for_each(|others| others.retain(|other| !ends.contains(other)));
    }
}

#[test]
fn modules_do_not_depend_on_each_other_in_a_circle() {
    let all = files(&["rs"]);
    let complaints = CRATES.iter().flat_map(|name| {
        let source = format!("{name}/src/");
        let inside =
            |file: &File| Some(File { path: file.path.strip_prefix(&source)?.to_owned(), text: file.text.clone() });
        let uses = uses(&all.iter().filter_map(inside).collect::<Vec<_>>());
        assert!(!uses.is_empty(), "`{name}` has no modules: a rule about none holds nothing");
        let circles = in_circles(uses).into_iter();
        circles.map(move |(module, others)| format!("{name}: `{module}` is tied to {others:?} in a circle"))
    });
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn a_circle_of_modules_is_caught() {
    let circles = |files: &[(&str, &str)]| {
        let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
        in_circles(uses(&files.iter().map(file).collect::<Vec<_>>())).into_keys().collect::<Vec<_>>()
    };
    let above = ("a.rs", "use crate::b::B; pub struct A;");
    assert_eq!(circles(&[above, ("b/mod.rs", "fn b() -> super::a::A { super::a::A }")]), ["a", "b"]);
    assert_eq!(circles(&[above, ("b/c.rs", "use super::super::a::A;")]), ["a", "b"]);
    assert_eq!(circles(&[above, ("b.rs", "pub struct B;"), ("lib.rs", "mod a; pub use a::A;")]), [""; 0]);
    assert_eq!(circles(&[above, ("b.rs", "#[cfg(test)] mod tests { use crate::a::A; }")]), [""; 0]);
}
