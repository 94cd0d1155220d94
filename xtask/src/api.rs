//! The public interface of `conflict-retry`, as a list that is read in review: a change of it is a change of this file.
//!
//! The list comes from rustdoc's JSON, which is no stable output yet: its version is that of the toolchain in
//! `rust-toolchain.toml`, and the crate `public-api` is of the release that reads it.

use anyhow::{Context as _, bail};

use crate::workspace;

/// The crate, and the file of its list.
const CRATE: &str = "conflict-retry";
const LIST: &str = "conflict-retry/public-api.txt";
/// A library does not choose a version of Kubernetes, so building it alone requires one.
const KUBERNETES: (&str, &str) = ("K8S_OPENAPI_ENABLED_VERSION", "1.36");

/// Writes the list, or fails when it is not what the sources say.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let list = list()?;
    let path = workspace::root().join(LIST);
    if !check {
        return std::fs::write(&path, list).with_context(|| format!("cannot write {}", path.display()));
    }
    let committed =
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    gone.extend(committed.lines().filter(|line| !list.lines().any(|other| other == *line)));
    new.extend(list.lines().filter(|line| !committed.lines().any(|other| other == *line)));
    if committed != list {
        bail!(
            "the public interface of {CRATE} has changed; if that is meant, run `cargo xtask api` and say it in its CHANGELOG.md\n\
             gone:\n  {}\nnew:\n  {}",
            gone.join("\n  "),
            new.join("\n  ")
        );
    }
    println!("the public interface of {CRATE} is as reviewed: {} items", list.lines().count());
    Ok(())
}

fn list() -> anyhow::Result<String> {
    // A directory of its own: documentation of only this crate, with all its features.
    let target = workspace::root().join("target").join("public-api");
    let mut command = workspace::cargo();
    let built = command
        .args(["rustdoc", "--quiet", "--locked", "--package", CRATE, "--all-features", "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json"])
        .env(KUBERNETES.0, KUBERNETES.1)
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(workspace::root())
        .status()
        .context("cannot run cargo")?;
    if !built.success() {
        bail!("rustdoc cannot document {CRATE}");
    }
    let json = target.join("doc").join(format!("{}.json", CRATE.replace('-', "_")));
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .with_context(|| format!("cannot read {}", json.display()))?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}
