//! Dependencies that some crates must not have, directly or through others, as `cargo tree` shows them.

use anyhow::{Context as _, ensure};

use crate::workspace;

/// Clients, runtimes and servers, which a crate that only computes does not need.
const IMPURE: &[&str] = &[
    "axum",
    "hyper",
    "hyper-util",
    "kube-client",
    "kube-runtime",
    "mio",
    "prometheus",
    "rand",
    "reqwest",
    "shared-runtime",
    "tokio",
    "tower",
    "tracing-subscriber",
];

/// What a library for other controllers must not depend on: Tandem's resources, a runtime, a metrics library.
const FOR_OTHERS: &[&str] = &[
    "axum",
    "clap",
    "kube-runtime",
    "node-lifecycle",
    "planner",
    "prometheus",
    "rustls",
    "shared-crds",
    "shared-runtime",
    "tracing-subscriber",
];

/// What the task runner, which is built before anything is checked, must not wait for.
const FOR_TASKS: &[&str] = &["axum", "kube-client", "kube-runtime", "shared-runtime", "testbed"];

/// Each crate, and what it must not depend on with its default features.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("planner", IMPURE),
    ("node-lifecycle", IMPURE),
    ("shared-crds", IMPURE),
    ("timeline", IMPURE),
    ("conflict-retry", FOR_OTHERS),
    ("xtask", FOR_TASKS),
];

/// A line for each forbidden dependency.
pub(crate) fn forbidden() -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (name, forbidden) in FORBIDDEN {
        complaints.extend(among(name, &tree(name)?, forbidden));
    }
    Ok(complaints)
}

/// The packages that `name` is built from, one per line, itself first.
fn tree(name: &str) -> anyhow::Result<String> {
    let output = std::process::Command::new(env!("CARGO"))
        .current_dir(workspace::root())
        .args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--package", name])
        .output()
        .context("cannot run cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).context("cargo tree printed a name that is no text")
}

fn among(name: &str, tree: &str, forbidden: &[&str]) -> Vec<String> {
    let packages = tree.lines().filter_map(|line| line.split(' ').next());
    let mut found: Vec<_> = packages.filter(|package| forbidden.contains(package)).collect();
    found.sort_unstable();
    found.dedup();
    found
        .into_iter()
        .map(|package| format!("{name} must not depend on {package}, also not through others"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_must_not_be_is_named_once() {
        let tree = "planner v0.1.0 (/x)\nkube-client v5.0.0\nserde v1.0.0\ntokio v1.0.0\ntokio v1.0.0 (*)\n";
        assert_eq!(
            among("planner", tree, IMPURE),
            [
                "planner must not depend on kube-client, also not through others",
                "planner must not depend on tokio, also not through others"
            ]
        );
        assert!(among("planner", "planner v0.1.0\nkube-core v5.0.0\n", IMPURE).is_empty());
    }

    #[test]
    fn the_crates_that_are_looked_at_exist() {
        for (name, _) in FORBIDDEN {
            assert!(tree(name).unwrap().starts_with(name));
        }
    }
}
