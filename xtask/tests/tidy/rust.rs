//! Rules for files of Rust. They read the syntax tree, so that text in strings and comments does
//! not break a rule.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, ImplItemFn, ItemFn, ItemMod, ItemUse, Macro, Meta, Path, Signature, TraitItemFn, UseTree};

use super::{File, assert_none, files};

/// The most lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;

/// A banned path and its replacement. The pattern matches consecutive path segments.
type Ban = (&'static [&'static str], &'static str);

/// Bans in the crate `core`. It has no clock, randomness, threads or I/O, so that the same input
/// gives the same output everywhere.
const BANNED_IN_CORE: &[Ban] = &[
    (&["SystemTime", "now"], "take `now` as an argument"),
    (&["Instant", "now"], "take `now` as an argument"),
    (&["std", "thread"], "leave threads to the host"),
    (&["std", "fs"], "ask the `Transaction`; files are the host's"),
    (&["std", "net"], "leave the network to the host"),
    (&["rand"], "take ids and randomness as arguments"),
    (&["getrandom"], "take ids and randomness as arguments"),
    (&["Uuid", "new_v4"], "take the id as an argument"),
    (&["Uuid", "now_v7"], "take the id as an argument"),
    (&["RandomState"], "use `BTreeMap`, or a hasher without a seed"),
    (&["HashMap", "new"], "use `BTreeMap`, or a hasher without a seed"),
    (&["HashMap", "with_capacity"], "use `BTreeMap`, or a hasher without a seed"),
    (&["HashMap", "from"], "use `BTreeMap`, or a hasher without a seed"),
    (&["HashSet", "new"], "use `BTreeSet`, or a hasher without a seed"),
    (&["HashSet", "with_capacity"], "use `BTreeSet`, or a hasher without a seed"),
    (&["HashSet", "from"], "use `BTreeSet`, or a hasher without a seed"),
];

/// Types whose default hasher is seeded at random: each with its number of generic parameters, the
/// hasher included.
const HASHED: &[(&str, usize)] = &[("HashMap", 3), ("HashSet", 2)];

/// Bans in test code.
const BANNED_IN_TESTS: &[Ban] = &[
    (&["thread", "sleep"], "wait for a condition, with a deadline"),
    (&["time", "sleep"], "wait for a condition, with a deadline"),
];

/// Macros that stand for missing code.
const BANNED_MACROS: &[&str] = &["todo", "unimplemented"];

/// A path that a file of Rust names, with its line.
pub(super) struct Named {
    pub(super) segments: Vec<String>,
    /// The number of generic arguments of the path's last segment; `None` if it has no list of
    /// arguments.
    arguments: Option<usize>,
    line: usize,
    pub(super) in_test: bool,
}

/// The facts about a file of Rust that the rules check.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) names: Vec<Named>,
    functions: Vec<(String, usize, usize)>,
    attributes: Vec<Attribute>,
    /// The number of `#[cfg(test)]` modules and test functions around the visited item.
    test_depth: usize,
}

impl Facts {
    pub(super) fn of(file: &File) -> Self {
        let syntax = syn::parse_file(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
        let mut facts = Self { test_depth: usize::from(is_test_file(&file.path)), ..Self::default() };
        facts.visit_file(&syntax);
        facts
    }

    fn name(&mut self, segments: Vec<String>, arguments: Option<usize>, line: usize) {
        self.names.push(Named { segments, arguments, line, in_test: self.test_depth > 0 });
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let first = signature.fn_token.span.start().line;
        let last = block.brace_token.span.close().end().line;
        self.functions.push((signature.ident.to_string(), first, last - first + 1));
    }

    /// Adds the names of a `use` declaration, each with its whole path.
    fn use_tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |segment: String| [before, &[segment]].concat();
        match tree {
            UseTree::Path(path) => self.use_tree(&path.tree, &with(path.ident.to_string())),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.use_tree(item, before)),
            UseTree::Name(name) => self.name(with(name.ident.to_string()), None, name.ident.span().start().line),
            UseTree::Rename(name) => self.name(with(name.ident.to_string()), None, name.ident.span().start().line),
            UseTree::Glob(glob) => self.name(before.to_vec(), None, glob.span().start().line),
        }
    }

    /// Adds the paths in the arguments of a macro, which syn does not parse.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut joined = false;
        let mut line = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if !joined && !path.is_empty() {
                        self.name(std::mem::take(&mut path), None, line);
                    }
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                    joined = false;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => joined = true,
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => joined = false,
            }
        }
        if !path.is_empty() {
            self.name(path, None, line);
        }
    }

    fn within(&mut self, is_test: bool, visit: impl FnOnce(&mut Self)) {
        self.test_depth += usize::from(is_test);
        visit(self);
        self.test_depth -= usize::from(is_test);
    }
}

impl<'ast> Visit<'ast> for Facts {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.function(&function.sig, &function.block);
        self.within(is_test(&function.attrs), |facts| visit::visit_item_fn(facts, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.within(is_test(&module.attrs), |facts| visit::visit_item_mod(facts, module));
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.use_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let arguments = path.segments.last().and_then(|last| match &last.arguments {
            syn::PathArguments::AngleBracketed(list) => Some(list.args.len()),
            _ => None,
        });
        self.name(segments, arguments, path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        let last = called.path.segments.last().map_or_else(String::new, |last| last.ident.to_string());
        self.name(vec![format!("{last}!")], None, called.path.span().start().line);
        self.tokens(called.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        self.attributes.push(attribute.clone());
    }
}

/// True if all code of the file at this path is test code.
fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// True if an attribute marks test code: `#[test]`, `#[tokio::test]` or `#[cfg(test)]`.
fn is_test(attributes: &[Attribute]) -> bool {
    let is_named = |attribute: &Attribute| attribute.path().segments.last().is_some_and(|last| last.ident == "test");
    let is_cfg = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    };
    attributes.iter().any(|attribute| is_named(attribute) || is_cfg(attribute))
}

fn long_functions(file: &File) -> Vec<String> {
    let long = |(name, line, lines): &(String, usize, usize)| {
        let complaint =
            || format!("{}:{line}: `{name}` has {lines} lines: split it ({FUNCTION_LINES} at most)", file.path);
        (*lines > FUNCTION_LINES).then(complaint)
    };
    Facts::of(file).functions.iter().filter_map(long).collect()
}

/// Returns the first ban that applies to a path; `None` if there is none.
fn ban<'bans>(named: &Named, bans: &'bans [Ban]) -> Option<&'bans Ban> {
    let matches = |pattern: &[&str]| named.segments.windows(pattern.len()).any(|window| window == pattern);
    bans.iter().find(|(pattern, _)| matches(pattern))
}

fn banned(file: &File, bans: &[Ban], concerns: impl Fn(&Named) -> bool) -> Vec<String> {
    let complaint = |named: &Named| {
        let (pattern, instead) = ban(named, bans)?;
        Some(format!("{}:{}: `{}`: {instead}", file.path, named.line, pattern.join("::")))
    };
    Facts::of(file).names.iter().filter(|named| concerns(named)).filter_map(complaint).collect()
}

fn banned_in_core(file: &File) -> Vec<String> {
    let mut complaints = banned(file, BANNED_IN_CORE, |_| true);
    complaints.extend(random_hashers(file));
    complaints
}

/// Returns a complaint for each type of [`HASHED`] that is used with its default hasher.
fn random_hashers(file: &File) -> Vec<String> {
    let is_random = |named: &&Named| {
        let is_short = |(name, full): &(&str, usize)| {
            named.segments.last().is_some_and(|last| last == name) && named.arguments.is_some_and(|own| own < *full)
        };
        HASHED.iter().any(is_short)
    };
    let complaint = |named: &Named| {
        let name = named.segments.join("::");
        format!(
            "{}:{}: `{name}` with its default hasher: use a B-tree, or a hasher without a seed",
            file.path, named.line
        )
    };
    Facts::of(file).names.iter().filter(is_random).map(complaint).collect()
}

fn banned_in_tests(file: &File) -> Vec<String> {
    banned(file, BANNED_IN_TESTS, |named| named.in_test)
}

/// Returns a complaint for each `todo!`, `unimplemented!` and `#[ignore]`. Missing code must not
/// look like finished code.
fn placeholders(file: &File) -> Vec<String> {
    let facts = Facts::of(file);
    let is_banned = |named: &&Named| matches!(named.segments.as_slice(), [only] if BANNED_MACROS.iter().any(|name| only == &format!("{name}!")));
    let macros = facts.names.iter().filter(is_banned);
    let macros = macros.map(|named| format!("{}:{}: `{}`: write it", file.path, named.line, named.segments.join("")));
    let ignored = facts.attributes.iter().filter(|attribute| attribute.path().is_ident("ignore"));
    let ignored = ignored.map(|attribute| {
        format!("{}:{}: `#[ignore]`: make the test pass, or remove it", file.path, attribute.span().start().line)
    });
    macros.chain(ignored).collect()
}

/// Returns a complaint for each attribute `allow` or `expect` without a reason, also within
/// `cfg_attr`.
fn without_reason(file: &File) -> Vec<String> {
    let lacks = |attribute: &&Attribute| match &attribute.meta {
        Meta::List(list) if is_lint(&list.path) => !has_reason(list.tokens.clone()),
        Meta::List(list) if list.path.is_ident("cfg_attr") => nested_without_reason(list.tokens.clone()),
        _ => false,
    };
    let complaint = |attribute: &Attribute| {
        format!(
            "{}:{}: a lint is switched off without saying why: add `reason = \"...\"`",
            file.path,
            attribute.span().start().line
        )
    };
    Facts::of(file).attributes.iter().filter(lacks).map(complaint).collect()
}

fn is_lint(path: &Path) -> bool {
    path.is_ident("allow") || path.is_ident("expect")
}

fn has_reason(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "reason"))
}

fn nested_without_reason(tokens: TokenStream) -> bool {
    let tokens: Vec<_> = tokens.into_iter().collect();
    tokens.windows(2).any(|pair| match pair {
        [TokenTree::Ident(ident), TokenTree::Group(group)] => {
            (ident == "allow" || ident == "expect")
                && group.delimiter() == Delimiter::Parenthesis
                && !has_reason(group.stream())
        }
        _ => false,
    })
}

fn assert_holds(rule: fn(&File) -> Vec<String>, concerns: fn(&str) -> bool) {
    let files: Vec<_> = files(&["rs"]).into_iter().filter(|file| concerns(&file.path)).collect();
    assert!(!files.is_empty(), "the rule concerns no file: it holds nothing");
    let complaints: Vec<_> = files.iter().flat_map(rule).collect();
    assert_none(&complaints);
}

#[test]
fn functions_are_short() {
    assert_holds(long_functions, |_| true);
}

#[test]
fn the_core_is_pure() {
    assert_holds(banned_in_core, |path| path.starts_with("core/src/"));
}

#[test]
fn tests_do_not_sleep() {
    assert_holds(banned_in_tests, |_| true);
}

#[test]
fn nothing_is_a_placeholder() {
    assert_holds(placeholders, |_| true);
}

#[test]
fn every_lint_switched_off_says_why() {
    assert_holds(without_reason, |_| true);
}

mod bad_examples {
    use super::*;

    fn file(text: &str) -> File {
        File { path: "a/src/b.rs".into(), text: text.into() }
    }

    #[test]
    fn a_long_function_is_caught_wherever_it_stands() {
        let body = |lines: usize| format!("{{{}}}", "\n".repeat(lines));
        assert_eq!(long_functions(&file(&format!("fn f() {}", body(69)))), [""; 0]);
        let at =
            |before: &str, after: &str| long_functions(&file(&format!("{before}fn f() {}{after}", body(70)))).len();
        assert_eq!([at("", ""), at("impl A {", "}"), at("trait A {", "}"), at("fn g() {", "}")], [1, 1, 1, 2]);
    }

    #[test]
    fn each_banned_path_is_caught_and_its_replacement_named() {
        for (pattern, instead) in BANNED_IN_CORE {
            let complaints = banned_in_core(&file(&format!("fn f() {{\n{}::x(); }}", pattern.join("::"))));
            assert!(
                complaints.iter().any(|text| text.starts_with("a/src/b.rs:2:") && text.ends_with(instead)),
                "{pattern:?}"
            );
        }
    }

    #[test]
    fn a_banned_path_does_not_hide() {
        for hidden in [
            "use std::{fmt, thread};",
            "use std::fs as files;",
            "use std::net::*;",
            "fn f() { assert!(g(std::time::Instant::now())); }",
            "fn f() { log!(x, SystemTime::now()) }",
            "fn f() -> std::collections::HashMap<u8, u8> { g() }",
            "fn f() { x.collect::<HashSet<_>>(); }",
            "#[cfg(test)] mod tests { use rand::Rng; }",
        ] {
            assert_eq!(banned_in_core(&file(hidden)).len(), 1, "{hidden}");
        }
    }

    #[test]
    fn what_only_looks_banned_is_let_be() {
        for fine in [
            "use std::collections::HashMap; fn f(map: HashMap<u8, u8, Fixed>) {}",
            "fn f() { let brand = operand; }",
            "/// `std::fs` is banned.\nfn f() { g(\"Instant::now\"); }",
            "use std::time::Duration;",
        ] {
            assert_eq!(banned_in_core(&file(fine)), [""; 0], "{fine}");
        }
    }

    #[test]
    fn a_sleep_is_caught_in_tests_alone() {
        let call = "{ std::thread::sleep(x); tokio::time::sleep(x); }";
        assert_eq!(banned_in_tests(&file(&format!("fn f() {call}"))), [""; 0]);
        for test in ["#[test] fn f()", "#[tokio::test] async fn f()", "#[cfg(test)] mod tests { fn f()"] {
            let closing = if test.contains("mod") { "}" } else { "" };
            assert_eq!(banned_in_tests(&file(&format!("{test} {call}{closing}"))).len(), 2, "{test}");
        }
        let helper = File { path: "tests/src/lib.rs".into(), text: format!("fn f() {call}") };
        assert_eq!(banned_in_tests(&helper).len(), 2);
    }

    #[test]
    fn a_placeholder_is_caught() {
        let text = "#[test]\n#[ignore = \"slow\"]\nfn f() {\ntodo!();\nunimplemented!(\"x\") }";
        let lines: Vec<_> =
            placeholders(&file(text)).iter().map(|text| text.split(": `").next().unwrap().to_owned()).collect();
        assert_eq!(lines, ["a/src/b.rs:4", "a/src/b.rs:5", "a/src/b.rs:2"]);
    }

    #[test]
    fn a_lint_switched_off_without_a_reason_is_caught() {
        for (text, complaints) in [
            ("#[allow(dead_code)] fn f() {}", 1),
            ("#![expect(dead_code)]", 1),
            ("#[cfg_attr(test, allow(dead_code))] fn f() {}", 1),
            ("#[allow(dead_code, reason = \"why\")] fn f() {}", 0),
            ("#[cfg_attr(test, expect(dead_code, reason = \"why\"))] fn f() {}", 0),
        ] {
            assert_eq!(without_reason(&file(text)).len(), complaints, "{text}");
        }
    }
}
