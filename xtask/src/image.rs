//! `cargo xtask image`: the operators' container images, without a container engine.

use std::path::PathBuf;

use anyhow::Context as _;
use images::layout::architecture;
use images::programs::{Build, Profile, build};

use crate::workspace;

/// The operators' container images: an OCI layout and an archive for `docker load` each, static and from scratch. The same
/// commit makes the same digests.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory to write them into; by default `images` in Cargo's target directory
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,

    /// Programs without optimization, which are built sooner
    #[arg(long)]
    debug: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let Args { directory, debug } = args;
    let target = workspace::target_directory();
    let directory = directory.unwrap_or_else(|| target.join("images"));
    // The user's directory, and not the one in which Cargo would build.
    let directory = std::path::absolute(&directory).context("no current directory")?;
    let profile = if debug { Profile::Dev } else { Profile::Release };
    let made = build(Build {
        cargo: workspace::cargo(),
        workspace: &workspace::root(),
        target: &target,
        profile,
        directory: directory.clone(),
        tag: None,
    });
    for made in made? {
        let megabytes = made.size.div_ceil(1_000_000);
        println!("{}\n  {}, {megabytes} MB compressed", made.reference, made.digest);
        println!("  for nodes with kubernetes.io/arch={}", architecture());
        println!("  {}\n  {}", made.layout.display(), made.archive.display());
    }
    Ok(())
}
