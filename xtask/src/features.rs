//! `conflict-retry` with none of its cargo features, with each of them alone, and with all of them. A build of the whole
//! workspace has all of them on, because the lab uses them: only this notices what does not compile without one.

use anyhow::{Context as _, ensure};
use toml_edit::{DocumentMut, Item};

use crate::workspace;

/// The crate that others use with the features of their choice.
const CRATE: &str = "conflict-retry";

/// Where its features are explained, each in a row of a table.
const DOCUMENTS: &[&str] = &["conflict-retry/README.md"];

pub(crate) fn run() -> anyhow::Result<()> {
    let features = of_crate()?;
    for document in DOCUMENTS {
        let unexplained = unexplained(&features, &read(document)?);
        ensure!(unexplained.is_empty(), "{document} does not explain: {}", unexplained.join(", "));
    }
    for selection in selections(&features) {
        let done = workspace::cargo()
            .current_dir(workspace::root())
            .args([
                "clippy",
                "--locked",
                "--quiet",
                "--package",
                CRATE,
                "--all-targets",
                "--no-default-features",
            ])
            .args(["--features", &selection, "--", "-D", "warnings"])
            .status()
            .context("cannot run cargo clippy")?;
        ensure!(done.success(), "{CRATE} does not pass clippy with {}", described(&selection));
    }
    Ok(())
}

/// The features of the crate, `default` apart.
pub(crate) fn of_crate() -> anyhow::Result<Vec<String>> {
    declared(&read(&format!("{CRATE}/Cargo.toml"))?)
}

fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(workspace::root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// The features that a manifest declares, `default` apart.
fn declared(manifest: &str) -> anyhow::Result<Vec<String>> {
    let manifest: DocumentMut = manifest.parse().context("cannot parse the manifest")?;
    let features = manifest.get("features").and_then(Item::as_table).context("it declares no features")?;
    Ok(features.iter().map(|(name, _)| name.to_owned()).filter(|name| name != "default").collect())
}

/// The features that no row of a table in `document` begins with.
fn unexplained(features: &[String], document: &str) -> Vec<String> {
    let explains =
        |line: &str, feature: &str| line.trim_start_matches("//! ").starts_with(&format!("| `{feature}` |"));
    features.iter().filter(|feature| !document.lines().any(|line| explains(line, feature))).cloned().collect()
}

/// None, each alone, all: as arguments for `--features`.
pub(crate) fn selections(features: &[String]) -> Vec<String> {
    let mut selections = vec![String::new()];
    selections.extend_from_slice(features);
    selections.push(features.join(","));
    selections
}

pub(crate) fn described(selection: &str) -> String {
    if selection.is_empty() { "no feature".to_owned() } else { format!("the features {selection}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_each_and_all_are_looked_at() {
        let features = declared("[features]\ndefault = [\"a\"]\na = []\nb = [\"a\"]\n").unwrap();
        assert_eq!(selections(&features), ["", "a", "b", "a,b"]);
        assert!(declared("[package]\n").is_err());
    }

    #[test]
    fn a_feature_without_a_row_is_named() {
        let features = ["a".to_owned(), "b".to_owned()];
        assert_eq!(unexplained(&features, "| `a` | text |\nnot in a row: `b`\n"), ["b"]);
        assert!(unexplained(&features, "//! | `a` | x |\n//! | `b` | y |\n").is_empty());
    }
}
