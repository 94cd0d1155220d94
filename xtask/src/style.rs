//! The style of imports, and the location of modules' files.

use std::path::Path;

use anyhow::Context as _;
use syn::visit::{self, Visit};
use syn::{ItemUse, UseTree};

/// The deviations of `file` from the style.
pub(crate) fn complaints(root: &Path, file: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let parsed = syn::parse_file(text).with_context(|| format!("cannot parse {file}"))?;
    let mut imports = Imports { file, complaints: Vec::new() };
    imports.visit_file(&parsed);
    let mut complaints = imports.complaints;
    complaints.extend(layout(root, file));
    Ok(complaints)
}

struct Imports<'a> {
    file: &'a str,
    complaints: Vec<String>,
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if let Some(module) = outer(&item.tree) {
            let advice = "imports from more than one module in one declaration; one for each";
            self.complaints.push(format!("{}: `use {module}::{{…}}` {advice}", self.file));
        }
        visit::visit_item_use(self, item);
    }
}

/// The module of a group that holds more than names.
fn outer(tree: &UseTree) -> Option<String> {
    match tree {
        UseTree::Path(path) => match outer(&path.tree)?.as_str() {
            "" => Some(path.ident.to_string()),
            rest => Some(format!("{}::{rest}", path.ident)),
        },
        UseTree::Group(group) => (!group.items.iter().all(is_name)).then(String::new),
        UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_) => None,
    }
}

fn is_name(tree: &UseTree) -> bool {
    matches!(tree, UseTree::Name(_) | UseTree::Rename(_))
}

/// A module with children of its own is the `mod.rs` of their directory.
fn layout(root: &Path, file: &str) -> Option<String> {
    let directory = file.strip_suffix(".rs")?;
    root.join(directory).is_dir().then(|| format!("{file}: the module of {directory}/ is {directory}/mod.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        complaints(Path::new("/nowhere"), "a.rs", text).unwrap()
    }

    #[test]
    fn a_declaration_that_imports_from_several_modules_is_named() {
        assert_eq!(of("use a::b::{self, C, D as E}; use a::*; mod m { use super::*; use x::y; }"), [""; 0]);
        for (nested, module) in [
            ("use a::{b, c::D};", "a"),
            ("mod m { use a::b::{c::{D, E}}; }", "a::b"),
            ("use a::{b, c::*};", "a"),
            ("fn f() { use {a, b::c}; }", ""),
        ] {
            let [complaint] = &of(nested)[..] else { panic!("{nested}") };
            assert!(complaint.starts_with(&format!("a.rs: `use {module}::{{…}}`")), "{complaint}");
        }
    }

    #[test]
    fn a_module_beside_the_directory_of_its_children_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let named = complaints(dir.path(), "a.rs", "mod b;").unwrap();
        assert_eq!(named, ["a.rs: the module of a/ is a/mod.rs"]);
        assert_eq!(complaints(dir.path(), "a/mod.rs", "mod b;").unwrap(), [""; 0]);
    }
}
