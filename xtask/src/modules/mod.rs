//! Checks that the modules of a crate have no cycle of uses, and that those of the crates which only compute use only
//! earlier ones.
//!
//! The uses are read from the sources with `syn`, without tests. A re-exported name counts as a use of the module that
//! defines it. A directory counts as one module among its siblings, and its children are checked among themselves. In a
//! crate whose modules have an order, a directory's `mod.rs` is checked with its children: it calls them, or has what they
//! share, and not both. Elsewhere uses between the two are not a cycle.

mod graph;
mod module;
mod references;
mod tree;

use std::path::Path;

use anyhow::Context as _;

use self::graph::Own;
use crate::workspace;

/// The crates whose modules have an order, and the order: their `src/lib.rs` and `ARCHITECTURE.md` describe it.
const ORDERED: &[(&str, &[&str])] = &[
    ("planner", PLANNER),
    ("node-lifecycle", &["input", "template", "assess", "remove", "count", "drain", "plan", "after"]),
];

const PLANNER: &[&str] = &[
    "index",
    "steps",
    "numbers",
    "time",
    "reasons",
    "resources",
    "requirements",
    "input",
    "limits",
    "pools",
    "demand",
    "snapshot",
    "scale_up",
    "scale_down",
    "decision",
    "pass",
];

/// The cycles of all crates of the workspace, and what breaks the order of one, a line each.
pub(crate) fn circles() -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for name in workspace::members()? {
        let src = workspace::root().join(&name).join("src");
        let roots = ["lib.rs", "main.rs"].map(|root| src.join(root));
        // `e2e` has tests, and programs of one file each.
        let Some(root) = roots.iter().find(|root| root.exists()) else { continue };
        complaints.extend(of_crate(&name, root)?);
    }
    Ok(complaints)
}

fn of_crate(name: &str, root: &Path) -> anyhow::Result<Vec<String>> {
    let modules = tree::load(root).with_context(|| format!("cannot read the modules of {name}"))?;
    let own = if ORDERED.iter().any(|(ordered, _)| *ordered == name) { Own::Counts } else { Own::Apart };
    let circles = graph::circles(&modules, own);
    let mut complaints: Vec<_> =
        circles.into_iter().map(|circle| format!("{name}: a circle of modules: {circle}")).collect();
    if let Some((_, order)) = ORDERED.iter().find(|(ordered, _)| *ordered == name) {
        let backward = graph::backward(&modules, order);
        complaints.extend(backward.into_iter().map(|what| format!("{name}: {what}")));
    }
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        complaints_of("c", files)
    }

    fn complaints_of(name: &str, files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        of_crate(name, &dir.path().join("lib.rs")).unwrap()
    }

    #[test]
    fn two_modules_that_use_each_other_are_named() {
        let one_way = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "pub struct B;")];
        assert_eq!(complaints(&one_way), Vec::<String>::new());
        let back = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub fn f() {}"),
            ("b.rs", "pub struct B; fn g() { super::a::f() }"),
        ];
        let [circle] = &complaints(&back)[..] else { panic!("one circle") };
        assert!(circle.contains("a → b") && circle.contains("b → a"), "{circle}");
    }

    #[test]
    fn a_circle_goes_through_re_exports_directories_and_macros() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::deep::B;"),
            ("a/mod.rs", "mod inner; pub fn f() {}"),
            ("a/inner.rs", "use crate::B;"),
            ("b/mod.rs", "pub mod deep;"),
            ("b/deep.rs", "pub struct B; fn g() { println!(\"{:?}\", crate::a::f()); }"),
        ];
        let [circle] = &complaints(&files)[..] else { panic!("one circle") };
        assert!(circle.contains("a → b") && circle.contains("b → a"), "{circle}");
    }

    #[test]
    fn tests_and_a_directory_with_its_children_are_no_circle() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod inner; use inner::f; pub struct A;"),
            ("a/inner.rs", "use super::A; pub fn f() {} #[cfg(test)] mod tests { use crate::b::B; }"),
            ("b.rs", "use crate::a::A; pub struct B;"),
        ];
        assert_eq!(complaints(&files), Vec::<String>::new());
    }

    #[test]
    fn in_a_crate_with_rooms_a_directory_and_its_children_use_each_other_one_way() {
        let of = |inner: &str, own: &str| {
            let own = format!("pub(crate) mod inner; mod other; {own}");
            let lib = "pub mod input; pub use input::A;";
            let files =
                [("lib.rs", lib), ("input/mod.rs", &own), ("input/inner.rs", inner), ("input/other.rs", "")];
            (complaints_of("planner", &files), complaints_of("another", &files))
        };
        // A child uses what its directory calls it from, however it is named.
        for inner in
            ["use super::A; pub fn f() {}", "pub fn f(a: &crate::A) {}", "use crate::input::A; pub fn f() {}"]
        {
            let (found, elsewhere) = of(inner, "pub struct A; fn g() { inner::f() }");
            let [circle] = &found[..] else { panic!("one circle of {inner}: {found:?}") };
            assert!(
                circle.contains("input: inner → mod.rs") && circle.contains("mod.rs → inner"),
                "{circle}"
            );
            assert_eq!(elsewhere, Vec::<String>::new());
        }
        // One way is fine, and so are a re-export of another child's, and a visibility.
        for (inner, own) in [
            ("use super::A; pub fn f() {}", "pub struct A;"),
            ("pub(super) fn f() {} pub struct A;", "pub use inner::A; fn g() { inner::f() }"),
            (
                "#[cfg(test)] mod tests { use super::super::A; } pub fn f() {}",
                "pub struct A; fn g() { inner::f() }",
            ),
        ] {
            assert_eq!(of(inner, own).0, Vec::<String>::new(), "{inner}");
        }
    }

    #[test]
    fn a_room_that_uses_a_later_one_or_has_no_place_is_named() {
        let files = [
            ("lib.rs", "mod input; mod pools; mod odd; pub use pools::P;"),
            ("input.rs", "use crate::pools::P;"),
            ("pools.rs", "pub struct P; #[cfg(test)] mod tests { use crate::odd; }"),
            ("odd.rs", ""),
        ];
        let found = complaints_of("planner", &files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|line| line.contains("input") && line.contains("pools")), "{found:?}");
        assert!(found.iter().any(|line| line.contains("odd")), "{found:?}");
        assert_eq!(complaints_of("another", &files), Vec::<String>::new());
    }

    #[test]
    fn a_room_of_the_lifecycle_that_uses_a_later_one_is_named() {
        let files = [
            ("lib.rs", "mod assess; mod count; mod plan; pub use plan::decision::Plan;"),
            ("assess/mod.rs", "mod health;"),
            ("assess/health.rs", "use crate::count::sizing::wanted;"),
            ("count/mod.rs", "pub mod sizing;"),
            ("count/sizing.rs", "use crate::Plan; pub fn wanted() {}"),
            ("plan/mod.rs", "pub mod decision;"),
            ("plan/decision.rs", "pub struct Plan;"),
        ];
        let found = complaints_of("node-lifecycle", &files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|line| line.contains("assess uses count")), "{found:?}");
        assert!(found.iter().any(|line| line.contains("count uses plan")), "{found:?}");
    }
}
