//! Programs of this workspace, which are built when they are needed.

use std::path::PathBuf;

use anyhow::Result;
use tokio::sync::OnceCell;
use toolbox::programs::{Features, build, build_binaries};

/// The directory of the workspace's examples, `conflict-retry`'s and the lab's, built once per process, in the profile of the calling
/// binary. With the features of the whole workspace, so that nothing below them is built anew.
///
/// # Errors
/// When Cargo cannot build them; the message contains Cargo's output.
pub async fn examples() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    let args = ["--workspace", "--examples"];
    let directory = BUILT.get_or_try_init(|| build("the examples", &args)).await?;
    Ok(directory.join("examples"))
}

/// The program behind `cargo xtask dev`, built once per process, in the profile of the calling binary.
///
/// # Errors
/// When Cargo cannot build it; the message contains Cargo's output.
pub async fn cluster_tasks() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    let directory = BUILT
        .get_or_try_init(|| async {
            build_binaries("the tasks on clusters", &["tandem-dev"], Features::of_caller()?).await
        })
        .await?;
    Ok(directory.join("tandem-dev"))
}
