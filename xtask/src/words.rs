//! Words that the product's code, comments, messages and documents do without: those that say less than the name of
//! who is meant ("another client", "the owner of the pool"), and those of ours where Kubernetes has one.

use std::path::Path;

use anyhow::Context as _;
use syn::visit::{self, Visit};
use syn::{Ident, ItemEnum, ItemStruct, ItemTrait, ItemType};

use crate::product;

/// Words that stand nowhere, not as a part of a name either; and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("somebody", "say who: another client, a user, an administrator"),
    ("someone", "say who: another client, a user, an administrator"),
    ("anybody", "say who: another client, a user, an administrator"),
    ("everybody", "say who: every user, all clients"),
    ("nobody", "say who does not, or use the passive"),
    ("whoever", "say who: the client that, the controller that, the provider"),
    ("ailment", "a reason of being unhealthy"),
    ("rival", "a competing pool, a concurrent writer"),
    ("sick", "unhealthy"),
    ("condemned", "pending removal"),
];

/// Names that no type has, because they mean something else to a reader, or nothing; and what to call it instead.
const TYPES: &[(&str, &str)] = &[
    ("Ailment", "the reason of being unhealthy"),
    ("Ask", "PodGroup, or what is asked for"),
    ("Bid", "ExpansionOption"),
    ("Consent", "what allows the removal"),
    ("Keepers", "BlockingPods"),
    ("Ledger", "WriteTracker, or what is recorded"),
    ("Marks", "the labels and annotations"),
    ("Procurement", "Provisioner"),
    ("Roster", "SchedulingInput, or the list it is"),
    ("Sight", "what is observed of the nodes' health"),
    ("Standard", "the current template"),
    ("Surplus", "ExcessNodes"),
    ("Told", "EventDeduplicator, or what was reported"),
    ("Twin", "the interned value"),
];

/// Documents that are held to the words beside the product's crates.
const DOCUMENTS: &[&str] = &[
    "charts/",
    "docs/adr/",
    "docs/first-aid/",
    "docs/guides/",
    "docs/providers/",
    "docs/reference/",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
];

/// Where in a file the words are, if it is one that does without them.
pub(crate) fn complaints(file: &str, text: &str) -> anyhow::Result<Vec<String>> {
    if !product::has(file) && !DOCUMENTS.iter().any(|of| file.starts_with(of)) {
        return Ok(Vec::new());
    }
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in line.split(|c: char| !c.is_alphabetic()) {
            let banned =
                |(banned, _): &&(&str, &str)| word.eq_ignore_ascii_case(banned) || is_plural(word, banned);
            if let Some((_, instead)) = WORDS.iter().find(banned) {
                complaints.push(format!("{file}:{}: \"{word}\": {instead}", number + 1));
            }
        }
    }
    if Path::new(file).extension().is_some_and(|end| end == "rs") {
        let parsed = syn::parse_file(text).with_context(|| format!("cannot parse {file}"))?;
        let mut names = Names { file, complaints: Vec::new() };
        names.visit_file(&parsed);
        complaints.extend(names.complaints);
    }
    Ok(complaints)
}

fn is_plural(word: &str, banned: &str) -> bool {
    word.strip_suffix('s').is_some_and(|one| one.eq_ignore_ascii_case(banned))
}

struct Names<'a> {
    file: &'a str,
    complaints: Vec<String>,
}

impl Names<'_> {
    fn defined(&mut self, name: &Ident) {
        if let Some((banned, instead)) = TYPES.iter().find(|(banned, _)| name == banned) {
            self.complaints.push(format!("{}: the type {banned}: {instead}", self.file));
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.defined(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.defined(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.defined(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.defined(&item.ident);
        visit::visit_item_type(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "planner/src/a.rs";

    fn of(file: &str, text: &str) -> Vec<String> {
        complaints(file, text).unwrap()
    }

    #[test]
    fn a_banned_word_is_named_in_comments_strings_names_and_documents() {
        for text in [
            "//! For whoever reads.\n",
            "fn f() -> &'static str { \"until Somebody removes them\" }\n",
            "fn nobody_waits() {}\n",
            "// The rivals' pools.\n",
        ] {
            let [complaint] = &of(CODE, text)[..] else { panic!("one complaint of {text}") };
            assert!(complaint.starts_with("planner/src/a.rs:1: "), "{complaint}");
        }
        let text = "# Nodes\n\nNodes that are sick.\n";
        for file in ["docs/guides/a.md", "charts/tandem/README.md", "first-aid/cases.toml"] {
            assert_eq!(of(file, text), [format!("{file}:3: \"sick\": unhealthy")]);
        }
        for file in ["lab/src/a.rs", "testbed/src/a.rs", "docs/notes/a.md"] {
            assert_eq!(of(file, text), [""; 0]);
        }
        assert_eq!(of(CODE, "// Arrivals of a sickle, at some body.\n"), [""; 0]);
    }

    #[test]
    fn a_type_with_a_banned_name_is_named_wherever_it_is() {
        for text in
            ["struct Sight;", "pub enum Consent {}", "mod m { trait Marks {} }", "type Standard = u8;"]
        {
            let [complaint] = &of(CODE, text)[..] else { panic!("one complaint of {text}") };
            assert!(complaint.contains("the type "), "{complaint}");
        }
        assert_eq!(of(CODE, "// Standard output marks it.\nuse other::Standard;\n"), [""; 0]);
    }
}
