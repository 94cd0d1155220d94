//! The workspace's directory, and generated files in it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
pub(crate) use testbed::programs::cargo;

/// The root of the workspace: the folder above this package.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The directories of the workspace's crates, as the root manifest lists them.
pub(crate) fn members() -> anyhow::Result<Vec<String>> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let manifest: toml_edit::DocumentMut = manifest.parse().context("cannot parse Cargo.toml")?;
    let members = manifest.get("workspace").and_then(|of| of.get("members")).and_then(|of| of.as_array());
    let members = members.context("Cargo.toml lists no members")?;
    Ok(members.iter().filter_map(|member| member.as_str()).map(ToOwned::to_owned).collect())
}

/// Writes `text` to `path` (below the root) when it differs; with `check`, says so instead and fails.
pub(crate) fn generate(path: &str, text: &str, check: bool) -> anyhow::Result<()> {
    let file = root().join(path);
    let present = std::fs::read_to_string(&file).unwrap_or_default();
    if present == text {
        return Ok(());
    }
    if check {
        bail!(
            "{path} is not what the sources generate; run the same task without --check and commit the result"
        );
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder of {path}"))?;
    }
    std::fs::write(&file, text).with_context(|| format!("cannot write {path}"))?;
    println!("wrote {path}");
    Ok(())
}
