//! The workspace's directory, its crates, and generated files in it.

use anyhow::Context as _;
pub(crate) use toolbox::workspace::{cargo, generate, root, target_directory};

/// The directories of the workspace's crates, as the root manifest lists them.
pub(crate) fn members() -> anyhow::Result<Vec<String>> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let manifest: toml_edit::DocumentMut = manifest.parse().context("cannot parse Cargo.toml")?;
    let members = manifest.get("workspace").and_then(|of| of.get("members")).and_then(|of| of.as_array());
    let members = members.context("Cargo.toml lists no members")?;
    Ok(members.iter().filter_map(|member| member.as_str()).map(ToOwned::to_owned).collect())
}
