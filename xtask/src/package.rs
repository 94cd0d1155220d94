//! Packages `conflict-retry` as for crates.io, and builds it from the package with the oldest Rust that it supports.

use std::process::Command;

use anyhow::{Context as _, bail};

use crate::workspace;

/// The crate to package.
const CRATE: &str = "conflict-retry";
/// A library does not choose a version of Kubernetes, so building it alone requires one.
const KUBERNETES: (&str, &str) = ("K8S_OPENAPI_ENABLED_VERSION", "1.36");

pub(crate) fn run() -> anyhow::Result<()> {
    let rust = oldest_rust()?;
    let install = ["toolchain", "install", &rust, "--profile", "minimal", "--no-self-update"];
    let installed = Command::new("rustup").args(install).status().is_ok_and(|status| status.success());
    // The package is checked in any case; the supported version can only be checked with that Rust.
    let toolchain = if installed { format!("+{rust}") } else { String::new() };
    let files = cargo(&toolchain, &["package", "--locked", "--package", CRATE, "--allow-dirty", "--list"])
        .output()?;
    let files = String::from_utf8_lossy(&files.stdout).into_owned();
    for wanted in
        ["README.md", "CHANGELOG.md", "LICENSE", "Cargo.toml", "src/lib.rs", "examples/controller.rs"]
    {
        if !files.lines().any(|file| file == wanted) {
            bail!("the package of {CRATE} has no {wanted}; it has\n{files}");
        }
    }
    // A separate directory, because another toolchain would rebuild everything else.
    let target = workspace::root().join("target").join("package-check");
    let target = target.to_str().context("the path of the target directory is not text")?;
    for features in [&["--no-default-features"][..], &["--all-features"]] {
        let package = ["package", "--locked", "--package", CRATE, "--allow-dirty", "--target-dir", target];
        let built = cargo(&toolchain, &[&package, features].concat()).status().context("cannot run cargo")?;
        if !built.success() {
            bail!("{CRATE} does not build from its package with {}", features.join(" "));
        }
    }
    let count = files.lines().count();
    if installed {
        println!("{CRATE} packages ({count} files) and builds from its package with Rust {rust}");
    } else {
        println!("{CRATE} packages ({count} files) and builds from its package with this Rust");
        println!(
            "NOT CHECKED: rustup cannot install Rust {rust}, the oldest that {CRATE} promises to build with"
        );
    }
    Ok(())
}

/// The cargo of another toolchain, without the environment variables of this one.
fn cargo(toolchain: &str, args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    if !toolchain.is_empty() {
        command.arg(toolchain);
    }
    command.args(args).current_dir(workspace::root()).env(KUBERNETES.0, KUBERNETES.1);
    if !toolchain.is_empty() {
        for name in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC"] {
            command.env_remove(name);
        }
    }
    command
}

/// `rust-version` of the workspace.
fn oldest_rust() -> anyhow::Result<String> {
    let manifest = std::fs::read_to_string(workspace::root().join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    Ok(line.context("the workspace names no rust-version")?.trim_matches('"').to_owned())
}
