//! Rules for Markdown documents: the target of every link and every named file must exist.

use std::collections::HashSet;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::{File, assert_none, files, paths};

/// File name endings. A word in code type with such an ending is taken for the name of a file.
const NAMED_FILES: &[&str] = &[".md", ".proto", ".rs"];

/// The changelog describes the past, so files that it names may no longer exist.
const CHANGELOG: &str = "CHANGELOG.md";

/// All paths of the repository, folders included, and the anchors of its documents' headings.
#[derive(Default)]
struct Repository {
    paths: HashSet<String>,
    anchors: HashSet<(String, String)>,
}

impl Repository {
    fn new(paths: &[String], documents: &[File]) -> Self {
        let parents =
            |path: &String| path.match_indices('/').map(|(at, _)| path.split_at(at).0.to_owned()).collect::<Vec<_>>();
        let folders = paths.iter().flat_map(parents);
        let anchors = |file: &File| {
            headings(&file.text).iter().map(|(_, text)| (file.path.clone(), slug(text))).collect::<Vec<_>>()
        };
        Self {
            paths: folders.chain(paths.iter().cloned()).chain([String::new()]).collect(),
            anchors: documents.iter().flat_map(anchors).collect(),
        }
    }

    /// True if a path of the repository equals `name`, or ends in `/` and `name`.
    fn has_some(&self, name: &str) -> bool {
        let name = name.trim_end_matches('/');
        self.paths
            .iter()
            .any(|path| path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/')))
    }

    fn top_folders(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().filter_map(|path| path.split_once('/')).map(|(top, _)| top)
    }
}

fn events(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Returns the level and the plain text of each heading of a document.
fn headings(text: &str) -> Vec<(HeadingLevel, String)> {
    let mut headings: Vec<(HeadingLevel, String)> = Vec::new();
    let mut within = false;
    for event in events(text) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                within = true;
                headings.push((level, String::new()));
            }
            Event::End(TagEnd::Heading(_)) => within = false,
            Event::Text(part) | Event::Code(part) if within => {
                headings.last_mut().expect("within one").1.push_str(&part)
            }
            _ => {}
        }
    }
    headings
}

/// Returns the anchor that Markdown renderers give to a heading.
fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Returns the path of the link target `target` in the document `from`, relative to the project's
/// root; `None` if it is outside of the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn is_alive(file: &File, target: &str, repository: &Repository) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let resolved = if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
    resolved.is_some_and(|path| {
        let is_there = repository.paths.contains(&path);
        is_there && (anchor.is_empty() || repository.anchors.contains(&(path, anchor.to_owned())))
    })
}

/// Returns a complaint for each relative link and image whose target does not exist.
fn dead_links(file: &File, repository: &Repository) -> Vec<String> {
    let target = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url),
        _ => None,
    };
    let relative = events(&file.text)
        .filter_map(target)
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    let dead = relative.filter(|target| !is_alive(file, target, repository));
    dead.map(|target| format!("{}: the link `{target}` leads nowhere", file.path)).collect()
}

/// True if a word in code type looks like the name of a file or folder of the repository.
fn is_file_name(word: &str, repository: &Repository) -> bool {
    let is_plain = word.chars().all(|letter| letter.is_ascii_alphanumeric() || "./_-".contains(letter));
    let is_ours = word.split_once('/').is_some_and(|(top, _)| repository.top_folders().any(|folder| folder == top));
    let is_named = NAMED_FILES.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending));
    is_plain && !word.starts_with('/') && !word.starts_with("target/") && (is_ours || is_named)
}

/// Returns a complaint for each file name in code type for which there is no file.
fn dead_names(file: &File, repository: &Repository) -> Vec<String> {
    let word = |event| match event {
        Event::Code(word) => Some(word),
        _ => None,
    };
    let is_there = |word: &str| repository.has_some(word) || is_alive(file, word, repository);
    let dead = events(&file.text).filter_map(word).filter(|word| is_file_name(word, repository) && !is_there(word));
    dead.map(|word| format!("{}: there is no file `{word}`", file.path)).collect()
}

/// True if the changelog has the heading "Unreleased".
fn has_unreleased(changelog: &str) -> bool {
    let is_it = |(level, text): &(HeadingLevel, String)| {
        *level == HeadingLevel::H2 && text.trim_matches(['[', ']']).eq_ignore_ascii_case("unreleased")
    };
    headings(changelog).iter().any(is_it)
}

fn repository() -> (Vec<File>, Repository) {
    let documents = files(&["md"]);
    let repository = Repository::new(&paths(), &documents);
    (documents, repository)
}

#[test]
fn links_lead_somewhere() {
    let (documents, repository) = repository();
    let complaints: Vec<_> = documents.iter().flat_map(|file| dead_links(file, &repository)).collect();
    assert_none(&complaints);
}

#[test]
fn named_files_are_there() {
    let (documents, repository) = repository();
    let present = documents.iter().filter(|file| !file.path.ends_with(CHANGELOG));
    let complaints: Vec<_> = present.flat_map(|file| dead_names(file, &repository)).collect();
    assert_none(&complaints);
}

#[test]
fn the_changelog_takes_the_next_change() {
    let documents = files(&["md"]);
    let changelog = documents.iter().find(|file| file.path == CHANGELOG).expect("there is a CHANGELOG.md");
    assert!(has_unreleased(&changelog.text), "CHANGELOG.md: add a heading `## Unreleased`");
}

mod bad_examples {
    use super::*;

    fn example(text: &str) -> (File, Repository) {
        let file = File { path: "docs/a.md".into(), text: format!("# The `one` heading!\n\n{text}") };
        let paths = ["docs/a.md", "core/src/lib.rs", "README.md"].map(str::to_owned);
        let repository = Repository::new(&paths, std::slice::from_ref(&file));
        (file, repository)
    }

    #[test]
    fn a_dead_link_is_caught() {
        for (text, complaints) in [
            ("[a](b.md)", 1),
            ("![a](../picture.png)", 1),
            ("[a](../../README.md)", 1),
            ("[a](#no-heading)", 1),
            ("| [a](b.md) |\n|---|", 1),
            ("[a][b]\n\n[b]: b.md", 1),
            ("[a](a.md) [b](../README.md) [c](../core/) [d](#the-one-heading) [e](a.md#the-one-heading)", 0),
            ("[a](https://example.org/b.md) [b](mailto:a@example.org) `[c](d.md)`", 0),
        ] {
            let (file, repository) = example(text);
            assert_eq!(dead_links(&file, &repository).len(), complaints, "{text}");
        }
    }

    #[test]
    fn a_dead_file_name_is_caught() {
        for (text, complaints) in [
            ("`core/src/main.rs`", 1),
            ("`nowhere.rs`", 1),
            ("`core/tests/`", 1),
            ("`b.rs`", 1),
            ("`core/src/lib.rs` `src/lib.rs` `lib.rs` `core/src/` `core/` `../README.md`", 0),
            ("`/etc/a.md` `.rs` `*.rs` `cargo.toml` `target/release/a.rs` `POST /v1/classify`", 0),
        ] {
            let (file, repository) = example(text);
            assert_eq!(dead_names(&file, &repository).len(), complaints, "{text}");
        }
    }

    #[test]
    fn a_changelog_without_unreleased_is_caught() {
        assert!(has_unreleased("# Changelog\n\n## [Unreleased]\n") && has_unreleased("## Unreleased\n"));
        assert!(!has_unreleased("# Unreleased\n\n## 0.1.0\n\nUnreleased\n"));
    }
}
