//! Packages `conflict-retry` as for crates.io, and builds it from the package with the oldest Rust that it supports, with none of
//! its features, with each alone, and with all.

use std::process::Command;

use anyhow::{Context as _, bail};

use crate::{features, workspace};

/// The crate to package.
const CRATE: &str = "conflict-retry";
/// A library does not choose a version of Kubernetes, so building it alone requires one.
const KUBERNETES: (&str, &str) = ("K8S_OPENAPI_ENABLED_VERSION", "1.36");
/// With the value 1, it is an error that the oldest Rust is not to be had. By default the last line says that it was not
/// used: a machine without a way to Rust's servers can still run all other checks.
const REQUIRED: &str = "TANDEM_REQUIRE_OLDEST_RUST";

pub(crate) fn run() -> anyhow::Result<()> {
    let rust = oldest_rust()?;
    let installed = is_installed(&rust) || install(&rust);
    if !installed && std::env::var_os(REQUIRED).is_some_and(|value| value == "1") {
        bail!("rustup cannot install Rust {rust}, the oldest that {CRATE} promises to build with");
    }
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
    let selections = features::selections(&features::of_crate()?);
    for selection in &selections {
        let package =
            ["package", "--quiet", "--locked", "--package", CRATE, "--allow-dirty", "--target-dir", target];
        let only = ["--no-default-features", "--features", selection];
        let built = cargo(&toolchain, &[&package[..], &only[..]].concat()).status();
        if !built.context("cannot run cargo")?.success() {
            bail!("{CRATE} does not build from its package with {}", features::described(selection));
        }
    }
    let (count, builds) = (files.lines().count(), selections.len());
    let said = format!(
        "{CRATE} packages ({count} files) and builds from its package {builds} times: with no feature, each, and all"
    );
    if installed {
        println!("{said}, with Rust {rust}");
    } else {
        println!("{said}, with this Rust");
        println!(
            "NOT CHECKED: {builds} builds with Rust {rust}, the oldest that {CRATE} promises; rustup cannot install it ({REQUIRED}=1 makes this an error)"
        );
    }
    Ok(())
}

/// Whether this toolchain is there already: to install it again would ask Rust's servers.
fn is_installed(rust: &str) -> bool {
    let version = Command::new("cargo").args([&format!("+{rust}"), "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

fn install(rust: &str) -> bool {
    let install = ["toolchain", "install", rust, "--profile", "minimal", "--no-self-update"];
    Command::new("rustup").args(install).status().is_ok_and(|status| status.success())
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
