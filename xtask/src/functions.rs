//! How long a function of the product may be, and that its inputs have names: several are not passed as the parts of a
//! tuple. Tests are left out.

use anyhow::Context as _;
use proc_macro2::TokenStream;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, FnArg, ImplItemFn, ItemFn, ItemImpl, ItemMod, Meta, Pat, Signature, TraitItemFn,
};

/// Maximum number of lines of a function's body, without empty lines and comments. A function inside another one counts
/// for both.
const MAX_LINES: usize = 70;

/// The functions of `file` that are too long, and those that take a tuple apart in their signature.
pub(crate) fn complaints(file: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let parsed = syn::parse_file(text).with_context(|| format!("cannot parse {file}"))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut reader = Reader { file, lines: &lines, is_of_trait: false, complaints: Vec::new() };
    reader.visit_file(&parsed);
    Ok(reader.complaints)
}

struct Reader<'a> {
    file: &'a str,
    lines: &'a [&'a str],
    /// Whether the signatures are those of a trait, which its implementation cannot choose.
    is_of_trait: bool,
    complaints: Vec<String>,
}

impl Reader<'_> {
    fn function(&mut self, signature: &Signature, body: Option<&Block>) {
        let name = &signature.ident;
        let first = name.span().start().line;
        let length = body.map_or(0, |body| self.length(body));
        if length > MAX_LINES {
            self.complaints.push(format!(
                "{}:{first}: {name} has {length} lines, {MAX_LINES} are the most; split it by what it does",
                self.file
            ));
        }
        let takes_tuple =
            |input: &FnArg| matches!(input, FnArg::Typed(input) if matches!(*input.pat, Pat::Tuple(_)));
        if !self.is_of_trait && signature.inputs.iter().any(takes_tuple) {
            self.complaints.push(format!(
                "{}:{first}: {name} takes several inputs as a tuple; give each a parameter, or all a struct",
                self.file
            ));
        }
    }

    /// The lines between the braces that hold code.
    fn length(&self, body: &Block) -> usize {
        let braces = body.brace_token.span;
        // Lines are numbered from one: this is the line after the one with the first brace, up to that with the last.
        let (first, last) = (braces.open().start().line, braces.close().start().line.saturating_sub(1));
        let inside = self.lines.get(first..last).unwrap_or_default();
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        inside.iter().filter(is_code).count()
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => list.path.is_ident("cfg") && names_test(&list.tokens),
        Meta::NameValue(_) => false,
    })
}

/// Whether a condition is `test`, or one of several that may be met is.
fn names_test(condition: &TokenStream) -> bool {
    let text = condition.to_string();
    !text.contains("not") && text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        self.is_of_trait = item.trait_.is_some();
        visit::visit_item_impl(self, item);
        self.is_of_trait = false;
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, Some(&item.block));
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, Some(&item.block));
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.function(&item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        complaints("a.rs", text).unwrap()
    }

    fn body(lines: usize) -> String {
        "    let x = 1;\n".repeat(lines)
    }

    #[test]
    fn a_function_of_more_than_seventy_lines_is_named() {
        let (most, more) = (body(MAX_LINES), body(MAX_LINES + 1));
        for (before, after) in [
            ("async fn f(\n    a: u8,\n) {\n", "}\n"),
            ("impl A {\n    pub(crate) fn f() {\n", "}}\n"),
            ("trait A {\n    fn f() {\n", "}}\n"),
            ("mod m {\n    fn f() {\n        let g = async || {\n", "        };\n}}\n"),
        ] {
            // The closure's own two lines count.
            let most = if before.contains("async ||") { body(MAX_LINES - 2) } else { most.clone() };
            assert_eq!(of(&format!("{before}{most}{after}")), [""; 0], "{before}");
            let [complaint] = &of(&format!("{before}{more}{after}"))[..] else { panic!("one complaint") };
            assert!(complaint.starts_with("a.rs:") && complaint.contains("f has 7"), "{complaint}");
        }
    }

    #[test]
    fn comments_empty_lines_and_tests_do_not_count() {
        let most = body(MAX_LINES);
        assert_eq!(of(&format!("fn f() {{\n    // Why.\n\n{most}}}\n")), [""; 0]);
        let more = body(MAX_LINES + 1);
        assert_eq!(of(&format!("#[cfg(test)]\nmod tests {{\nfn f() {{\n{more}}}\n}}\n")), [""; 0]);
        assert_eq!(of(&format!("#[test]\nfn f() {{\n{more}}}\n")), [""; 0]);
        assert_eq!(of(&format!("#[cfg(not(test))]\nfn f() {{\n{more}}}\n")).len(), 1);
    }

    #[test]
    fn a_parameter_that_is_taken_apart_as_a_tuple_is_named() {
        for text in ["fn f((a, b): (u8, u8)) {}", "fn f(&self, of: u8, (a, b): &(u8, u8)) {}"] {
            let text = format!("impl A {{ {text} }}");
            let [complaint] = &of(&text)[..] else { panic!("one complaint") };
            assert!(complaint.contains("f takes several inputs as a tuple"), "{complaint}");
        }
        // What has a name of its own, what a closure takes, what comes back and what a trait says are not meant.
        for text in [
            "fn f(name: (&str, &str), all: &[(u8, u8)]) -> (u8, u8) { all.map(|(a, b)| (b, a)) }",
            "impl From<(u8, u8)> for A { fn from((a, b): (u8, u8)) -> Self {} }",
        ] {
            assert_eq!(of(text), [""; 0]);
        }
    }
}
