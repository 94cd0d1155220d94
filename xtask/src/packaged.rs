//! The files of `conflict-retry` name none outside its package: on crates.io and docs.rs such a reference leads nowhere.

use std::collections::BTreeSet;

/// Where the package is in the repository.
const PACKAGE: &str = "conflict-retry/";

/// The directories of the repository that are not in the package.
pub(crate) fn outside(tracked: &[String]) -> BTreeSet<&str> {
    let first = tracked.iter().filter_map(|file| file.split_once('/')).map(|(first, _)| first);
    first.filter(|first| PACKAGE.trim_end_matches('/') != *first).collect()
}

/// The references that leave the package, if `file` belongs to it.
pub(crate) fn complaints(file: &str, text: &str, outside: &BTreeSet<&str>) -> Vec<String> {
    let Some(inside) = file.strip_prefix(PACKAGE) else { return Vec::new() };
    let depth = inside.matches('/').count();
    let leaves = |path: &&str| {
        let up = path.split('/').take_while(|part| *part == "..").count();
        up > depth || path.split('/').next().is_some_and(|first| outside.contains(first))
    };
    let lines = text.lines().enumerate();
    let found =
        lines.flat_map(|(number, line)| paths(line).filter(leaves).map(move |path| (number + 1, path)));
    let advice = "is not in the package; say here what it says";
    found.map(|(number, path)| format!("{file}:{number}: {path} {advice}")).collect()
}

/// The relative paths in a line; addresses are none.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && !"_-./:".contains(c));
    words
        .filter(|word| word.contains('/') && !word.contains("://"))
        .map(|word| word.strip_prefix("./").unwrap_or(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_that_leaves_the_package_is_named() {
        let files = ["docs/adr/0009.md", "lab/src/lib.rs", "conflict-retry/src/lib.rs", "README.md"];
        let files = files.map(str::to_owned);
        let outside = outside(&files);
        assert_eq!(outside, BTreeSet::from(["docs", "lab"]));
        let said = |file: &str, text: &str| complaints(file, text, &outside);
        for (file, text) in [
            ("conflict-retry/src/policy/contention.rs", "//! The measurements are in `docs/adr/0009`."),
            ("conflict-retry/README.md", "see [the bill](../docs/benchmarks/conflict.md)"),
            ("conflict-retry/README.md", "see [the bill](./docs/benchmarks/conflict.md)"),
            ("conflict-retry/src/lib.rs", "#![doc = include_str!(\"../../README.md\")]"),
            ("conflict-retry/examples/jobs.rs", "// as in lab/cures/go/jobs.go"),
        ] {
            let found = said(file, &format!("fine\n{text}\n"));
            assert!(found.len() == 1 && found[0].starts_with(&format!("{file}:2: ")), "{text}: {found:?}");
        }
        for (file, text) in [
            ("conflict-retry/src/lib.rs", "#![doc = include_str!(\"../README.md\")]"),
            (
                "conflict-retry/README.md",
                "[kube](https://docs.rs/kube), https://kubernetes.io/docs/x, examples/jobs.rs",
            ),
            (
                "conflict-retry/README.md",
                "{ path = \"…/conflict-retry\" }, tandem.dev/docs, the docs and the lab",
            ),
            ("docs/README.md", "[the lab](../lab/src/lib.rs)"),
        ] {
            assert_eq!(said(file, text), Vec::<String>::new());
        }
    }
}
