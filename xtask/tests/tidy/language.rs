//! The rules of language that a program can check. `CONTRIBUTING.md`, "How we write", has the other
//! rules.

use std::collections::BTreeMap;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use syn::{Item, Visibility};

use super::{File, assert_none, files};

/// First words that show that a comment probably does not name its subject.
const HEADLESS: &[&str] =
    &["As", "Has", "How", "Is", "Likewise", "Nobody", "Nothing", "Of", "Those", "What", "Where", "Whether", "Who"];

/// The largest share of comments that may begin with one of these words, in percent.
const HEADLESS_PERCENT: usize = 1;

/// The most characters of a line of Markdown, unless the line can't be wrapped.
const MARKDOWN_WIDTH: usize = 100;

/// The most words of a sentence in a Markdown document.
const SENTENCE_WORDS: usize = 25;

/// Returns the first line of each comment in a file, with its line number. A comment is a run of
/// lines that begin with a comment mark.
fn comments(file: &File) -> Vec<(usize, &str)> {
    let marks: &[&str] = match file.path.rsplit_once('.') {
        Some((_, "rs")) => &["//!", "///", "//"],
        Some((_, "ts" | "tsx" | "mjs")) => &["/**", "//", "*"],
        Some((_, "sql")) => &["--"],
        _ => &["#"],
    };
    let mut found = Vec::new();
    let mut was_comment = false;
    for (number, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let rest = marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim_start);
        match rest {
            Some(rest) if !was_comment && !rest.is_empty() => found.push((number + 1, rest)),
            _ => {}
        }
        was_comment = rest.is_some_and(|rest| !rest.is_empty());
    }
    found
}

fn is_headless(comment: &str) -> bool {
    let word = comment.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    HEADLESS.contains(&word)
}

/// Returns a complaint for each line of Markdown that is too wide and can be wrapped: not code, not
/// a table, not a single word.
fn wide_lines(file: &File) -> Vec<String> {
    let mut in_code = false;
    let mut complaints = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let is_table = line.trim_start().starts_with('|');
        let width = line.chars().count();
        if width > MARKDOWN_WIDTH && !in_code && !is_table && line.trim_start().contains(' ') {
            complaints.push(format!("{}:{}: {width} characters: wrap it at {MARKDOWN_WIDTH}", file.path, number + 1));
        }
    }
    complaints
}

/// Returns a complaint for each sentence of a document's paragraphs and list items that has too
/// many words. Code in a sentence counts as one word.
fn long_sentences(file: &File) -> Vec<String> {
    let complaint = |sentence: &str| {
        let words = sentence.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
        let start: String = sentence.trim().chars().take(60).collect();
        (words > SENTENCE_WORDS).then(|| format!("{}: {words} words: divide the sentence `{start}…`", file.path))
    };
    blocks(&file.text).iter().flat_map(|block| sentences(block)).filter_map(|sentence| complaint(&sentence)).collect()
}

/// Returns the text of each paragraph and of each list item of a Markdown document.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    let mut in_code = false;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Start(Tag::Paragraph | Tag::Item | Tag::Heading { .. })
            | Event::End(TagEnd::Paragraph | TagEnd::Item) => blocks.push(String::new()),
            Event::Code(_) => blocks.last_mut().expect("never empty").push_str("code"),
            Event::Text(text) if !in_code => blocks.last_mut().expect("never empty").push_str(&text),
            Event::SoftBreak | Event::HardBreak => blocks.last_mut().expect("never empty").push(' '),
            _ => {}
        }
    }
    // Without an option, the parser reads a table as a paragraph. Such paragraphs are left out.
    blocks.into_iter().filter(|block| !block.trim_start().starts_with('|')).collect()
}

fn sentences(block: &str) -> Vec<String> {
    let marked =
        block.replace(". ", ".\n").replace("? ", "?\n").replace("! ", "!\n").replace(": ", ":\n").replace("; ", ";\n");
    marked.lines().map(str::to_owned).collect()
}

/// Returns the names of the public types that a file of Rust defines.
fn public_types(file: &File) -> Vec<String> {
    let syntax = syn::parse_file(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
    let name = |item: &Item| {
        let (visibility, ident) = match item {
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Union(item) => (&item.vis, &item.ident),
            _ => return None,
        };
        matches!(visibility, Visibility::Public(_)).then(|| ident.to_string())
    };
    syntax.items.iter().filter_map(name).collect()
}

/// Returns the folder of the crate to which a file of Rust belongs; `None` for a file outside of
/// `src`.
fn member(path: &str) -> Option<&str> {
    path.split_once("/src/").map(|(member, _)| member)
}

/// Returns a complaint for each name that several public types of one crate have.
fn doubled_names(files: &[File]) -> Vec<String> {
    let mut places: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for file in files {
        let Some(member) = member(&file.path) else { continue };
        for name in public_types(file) {
            places.entry((member, name)).or_default().push(&file.path);
        }
    }
    let doubled = places.into_iter().filter(|(_, paths)| paths.len() > 1);
    doubled.map(|((_, name), paths)| format!("`{name}` names several types: {}", paths.join(", "))).collect()
}

#[test]
fn comments_name_their_subject() {
    let files = files(&["rs", "rb", "py", "ts", "tsx", "mjs", "sql", "sh"]);
    let files = files.iter().filter(|file| !file.path.contains("_proto/") && !file.path.contains("/proto/"));
    let (mut all, mut headless) = (0, Vec::new());
    for file in files {
        let comments = comments(file);
        all += comments.len();
        let found = comments.into_iter().filter(|(_, comment)| is_headless(comment));
        headless.extend(found.map(|(line, comment)| format!("{}:{line}: {comment}", file.path)));
    }
    let (found, allowed) = (headless.len(), all * HEADLESS_PERCENT / 100);
    assert!(found <= allowed, "{found} of {all} comments lack a subject ({allowed} allowed):\n{}", headless.join("\n"));
}

#[test]
fn markdown_is_wrapped() {
    let complaints: Vec<_> = files(&["md"]).iter().flat_map(wide_lines).collect();
    assert_none(&complaints);
}

#[test]
fn sentences_are_short() {
    let complaints: Vec<_> = files(&["md"]).iter().flat_map(long_sentences).collect();
    assert_none(&complaints);
}

#[test]
fn a_name_means_one_type_of_a_crate() {
    assert_none(&doubled_names(&files(&["rs"])));
}

mod bad_examples {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_comment_without_a_subject_is_caught() {
        let text = "//! A head.\n//! What follows.\n\nfn f() {} // Not looked at.\n/// Whether it is so.\n/// Of what.\nfn g() {}";
        let file = file("a/src/b.rs", text);
        let found: Vec<_> = comments(&file).into_iter().map(|(line, comment)| (line, is_headless(comment))).collect();
        assert_eq!(found, [(1, false), (5, true)]);
        assert!(is_headless("Who, if anybody") && !is_headless("Whoever calls") && !is_headless("Assigns"));
    }

    #[test]
    fn a_wide_line_is_caught() {
        let wide = "word ".repeat(21);
        let text = format!("{wide}\n| {wide} |\n```\n{wide}\n```\n{}", "x".repeat(120));
        assert_eq!(wide_lines(&file("a.md", &text)), ["a.md:1: 105 characters: wrap it at 100"]);
    }

    #[test]
    fn a_long_sentence_is_caught() {
        let sentence = |words: usize| "word ".repeat(words) + "end. ";
        let count = |text: &str| long_sentences(&file("a.md", text)).len();
        assert_eq!(count(&sentence(24)), 0);
        assert_eq!(count(&sentence(25)), 1);
        assert_eq!(count(&format!("- {}\n- {}", sentence(20), sentence(20))), 0);
        assert_eq!(count(&format!("```\n{}\n```", sentence(40))), 0);
        assert_eq!(count(&format!("| {} | b |\n|---|---|\n| c | d |", sentence(40))), 0);
    }

    #[test]
    fn a_doubled_name_is_caught() {
        let files =
            |second: &str| [file("a/src/b.rs", "pub struct One;"), file(second, "pub enum One {}\nstruct Two;")];
        assert_eq!(doubled_names(&files("a/src/c.rs")).len(), 1);
        assert_eq!(doubled_names(&files("c/src/c.rs")).len(), 0);
    }
}
