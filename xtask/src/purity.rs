//! What some code must not mention: clients, runtimes, clocks and randomness in pure code; writes in the simulator.
//!
//! Imports are looked at as whole paths, so that `use kube::{Api, Client}` mentions `kube::Api`; everything else line by
//! line.

use syn::visit::{self, Visit};
use syn::{ItemUse, UseTree};

/// What the code of some directories must not mention.
struct Rule {
    /// What that code is.
    what: &'static str,
    /// A file is meant when its path contains one of these.
    directories: &'static [&'static str],
    forbidden: &'static [&'static str],
    /// Paths that may be imported all the same.
    allowed: &'static [&'static str],
}

const RULES: &[Rule] = &[
    Rule {
        what: "pure code",
        directories: &["planner/src/", "node-lifecycle/src/", "/src/status/"],
        forbidden: &[
            "kube::Client",
            "kube::Api",
            "kube::client",
            "kube::api",
            "kube::runtime",
            "tokio",
            "rand::",
            "Timestamp::now",
            "Instant::",
            "SystemTime",
            "shared_runtime",
            "conflict_retry",
            "machine_providers",
        ],
        // Three constant strings; publishing them needs the recorder.
        allowed: &["shared_runtime::events::EventKind"],
    },
    Rule {
        what: "the simulator, which writes nothing to a cluster,",
        directories: &["simulator/src/"],
        forbidden: &["conflict_retry", "shared_runtime::write"],
        allowed: &[],
    },
];

/// The first thing that `file` mentions and must not.
pub(crate) fn complaint(file: &str, text: &str) -> syn::Result<Option<String>> {
    for rule in RULES.iter().filter(|rule| rule.directories.iter().any(|of| file.contains(of))) {
        let mut imports = Imports::default();
        imports.visit_file(&syn::parse_file(text)?);
        let imports = imports.0.into_iter().filter(|path| !rule.allowed.contains(&path.as_str()));
        let mentions = |line: &String| rule.forbidden.iter().find(|word| line.contains(*word));
        if let Some(word) = imports.chain(code(text)).find_map(|line| mentions(&line)) {
            return Ok(Some(format!("{file}: this is {} and may not mention `{word}`", rule.what)));
        }
    }
    Ok(None)
}

/// The lines that are neither comments nor imports.
fn code(text: &str) -> impl Iterator<Item = String> {
    let mut imports = false;
    let is_code = move |line: &&str| {
        let line = line.trim();
        let import = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        imports |= import.starts_with("use ");
        let is_code = !imports && !line.starts_with("//");
        imports &= !line.ends_with(';');
        is_code
    };
    text.lines().filter(is_code).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Every imported path, written out.
#[derive(Default)]
struct Imports(Vec<String>);

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.paths(String::new(), &item.tree);
        visit::visit_item_use(self, item);
    }
}

impl Imports {
    fn paths(&mut self, before: String, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => self.paths(format!("{before}{}::", path.ident), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.paths(before.clone(), tree)),
            UseTree::Name(name) => self.0.push(format!("{before}{}", name.ident)),
            UseTree::Rename(name) => self.0.push(format!("{before}{}", name.ident)),
            UseTree::Glob(_) => self.0.push(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(file: &str, text: &str) -> Option<String> {
        complaint(file, text).unwrap()
    }

    #[test]
    fn pure_code_with_a_clock_or_a_client_is_named() {
        for text in [
            "fn f() { let t = jiff::Timestamp::now(); }",
            "use kube::{Api, ResourceExt as _};",
            "use kube::Client as Other;",
            "mod inner { use kube::{core::Status, api::*}; }",
            "use tokio as other;",
            "pub(crate) use shared_runtime::{\n    events::{EventKind, Recorder},\n};",
            "use shared_runtime::events::EventKind;\nfn f(of: shared_runtime::events::Recorder) {}",
            "use machine_providers::provisioner::Provisioner;",
        ] {
            for file in ["planner/src/a.rs", "node-lifecycle/src/a.rs", "autoscaler-operator/src/status/a.rs"]
            {
                assert!(of(file, text).is_some(), "{file}: {text}");
            }
            assert_eq!(of("x/src/apply.rs", text), None);
        }
        for text in [
            "// never Timestamp::now()",
            "use kube::ResourceExt as _;",
            "use shared_runtime::events::EventKind;",
            "use node_lifecycle::Supply;",
        ] {
            assert_eq!(of("x/src/status/a.rs", text), None);
        }
    }

    #[test]
    fn a_simulator_that_writes_is_named() {
        for text in ["use shared_runtime::{clock, write};", "fn f() { conflict_retry::update(); }"] {
            assert!(of("simulator/src/a.rs", text).is_some(), "{text}");
        }
        assert_eq!(of("simulator/src/a.rs", "use shared_runtime::{clock, client};"), None);
    }
}
