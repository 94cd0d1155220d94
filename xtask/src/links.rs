//! Links between the documents of the repository: each leads to a file that is there, and to a heading of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// What is wrong with the links of one document. `file` is its path below `root`.
pub(crate) fn complaints(root: &Path, file: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for target in targets(text) {
        let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
        let linked: PathBuf = if path.is_empty() {
            root.join(file)
        } else {
            root.join(file).parent().context("a document has a directory")?.join(path)
        };
        if !linked.exists() {
            found.push(format!("{file}: the link {target} leads to no file"));
        } else if !heading.is_empty() && linked.extension().is_some_and(|kind| kind == "md") {
            let other = std::fs::read_to_string(&linked)
                .with_context(|| format!("cannot read {}", linked.display()))?;
            if !anchors(&other).contains(heading) {
                found.push(format!("{file}: the link {target} leads to no heading"));
            }
        }
    }
    Ok(found)
}

/// The targets of inline links that stay in the repository. Code is not looked at.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        for (place, _) in line.match_indices("](") {
            let rest = line.get(place + 2..).unwrap_or_default();
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            let leaves = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !leaves && !in_code(line, place) {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The lines outside blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Whether a place of a line is between backticks.
fn in_code(line: &str, place: usize) -> bool {
    line.get(..place).unwrap_or_default().matches('`').count() % 2 == 1
}

/// What the headings are called in links, as GitHub makes it: lower case, without punctuation, with dashes for spaces, and with a
/// number where a name comes again.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(text) {
        let Some(title) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else { continue };
        let Some(title) = title.strip_prefix(' ') else { continue };
        // Of a link in a heading, only the text counts.
        let title = title.split("](").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
        let title: String = title.collect();
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String =
            kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect();
        let mut unique = name.clone();
        let mut number = 0;
        while !found.insert(unique.clone()) {
            number += 1;
            unique = format!("{name}-{number}");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_files_and_to_headings_that_are_there() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(
            root.path().join("docs/other.md"),
            "# A title\n\n## `exec`: what, and why?\n## Again\n## Again\n",
        )
        .unwrap();
        let text = "[a](docs/other.md#exec-what-and-why) [b](#here) `[c](gone.md)` [d](https://example.org/x)\n# Here\n\
            [e](docs/other.md#again-1)\n```\n[f](gone.md)\n```\n";
        std::fs::write(root.path().join("README.md"), text).unwrap();
        assert_eq!(complaints(root.path(), "README.md", text).unwrap(), Vec::<String>::new());
        for (wrong, why) in [
            ("[a](docs/gone.md)", "no file"),
            ("[a](docs/other.md#a-titel)", "no heading"),
            ("[a](#nowhere)", "no heading"),
            ("[a](docs/other.md#again-2)", "no heading"),
        ] {
            std::fs::write(root.path().join("README.md"), wrong).unwrap();
            let found = complaints(root.path(), "README.md", wrong).unwrap();
            assert!(found.len() == 1 && found[0].contains(why), "{wrong}: {found:?}");
        }
    }
}
