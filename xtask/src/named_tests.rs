//! The tests that documents name as proof: each is there.

use std::collections::{BTreeMap, BTreeSet};

/// The names of the functions in each file, by its path below the root.
#[derive(Debug, Default)]
pub(crate) struct Functions(BTreeMap<String, BTreeSet<String>>);

impl Functions {
    /// Remembers what a file of Rust defines.
    pub(crate) fn read(&mut self, file: &str, text: &str) {
        let names = text.split_whitespace().zip(text.split_whitespace().skip(1));
        let names = names.filter(|(word, _)| *word == "fn").map(|(_, name)| {
            name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default().to_owned()
        });
        self.0.insert(file.to_owned(), names.collect());
    }

    /// The tests that a document names and that are not there: by their path in a crate, or as a file and a function.
    pub(crate) fn complaints(&self, file: &str, text: &str) -> Vec<String> {
        let spans: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        let gaps = text.split('`').skip(2).step_by(2);
        let pairs = spans.iter().zip(spans.iter().skip(1)).zip(gaps).filter(|(_, gap)| *gap == ": ");
        let by_file = pairs.filter(|((path, _), _)| path.strip_suffix(".rs").is_some()).filter_map(
            |((path, name), _)| {
                let known = self.0.get(*path).is_some_and(|names| names.contains(*name));
                (!known).then(|| format!("{file}: there is no function {name} in {path}"))
            },
        );
        let by_path = spans.iter().filter(|span| span.contains("tests::")).filter_map(|span| {
            let (package, rest) = span.split_once("::")?;
            let (modules, name) = rest.rsplit_once("::")?;
            // The tests of a module are in its file, in its folder, or in a file of their own beside it.
            let module = modules.strip_suffix("tests").filter(|rest| rest.is_empty() || rest.ends_with("::"));
            let module = module.map_or(modules, |module| module.trim_end_matches("::"));
            let beside = module.rsplit_once("::").map(|(parent, own)| {
                let above = parent.rsplit_once("::").map_or("", |(above, _)| above);
                format!("{above}::{own}")
            });
            let folder = |module: &str| {
                let module = module.trim_start_matches("::").replace("::", "/");
                format!("{}/src/{module}", package.replace('_', "-"))
            };
            let folders = [Some(folder(module)), beside.map(|module| folder(&module))];
            let mut own = folders.iter().flatten().flat_map(|folder| {
                self.0.range(folder.clone()..).take_while(move |(path, _)| path.starts_with(folder))
            });
            let known = own.any(|(_, names)| names.contains(name));
            (!known).then(|| format!("{file}: there is no test {span}"))
        });
        by_file.chain(by_path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_a_document_names_is_there() {
        let mut functions = Functions::default();
        functions.read("a-crate/src/x.rs", "mod tests { #[test]\nfn holds() {} }");
        functions.read("e2e/tests/one.rs", "async fn works<T>(t: T) {}");
        functions.read("b-crate/src/lib.rs", "fn other() {}");
        let good =
            "| `a` | `a_crate::x::tests::holds` | `e2e/tests/one.rs`: `works` | `e2e/tests/two.rs` and `x` |";
        assert_eq!(functions.complaints("D.md", good), Vec::<String>::new());
        for wrong in [
            "`a_crate::x::tests::other`",
            "`a_crate::y::tests::holds`",
            "`e2e/tests/one.rs`: `holds`",
            "`e2e/tests/two.rs`: `works`",
        ] {
            assert_eq!(functions.complaints("D.md", wrong).len(), 1, "{wrong}");
        }
    }
}
