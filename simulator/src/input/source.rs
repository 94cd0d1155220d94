//! The sources of `simulate` and `explain`: files, a live cluster, or a live cluster with files that override objects.

use std::path::PathBuf;

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use shared_runtime::cli::ClientArgs;

use super::live::{self, LiveError};
use super::{Input, InputError, Objects};

/// The flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArgs {
    /// Objects to plan from: YAML or JSON, one or many documents, or a List as `kubectl get -o yaml` prints it; `-` is
    /// standard input. Can be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Read the objects of the cluster; objects of files replace those of the same name. Nothing is written
    #[arg(long)]
    pub(crate) live: bool,

    /// The time to plan at (RFC 3339); without it, the current time
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,

    #[command(flatten)]
    client: ClientArgs,
}

/// The objects cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The cluster cannot be read.
    #[error(transparent)]
    Live(#[from] LiveError),
}

impl SourceArgs {
    /// Reads everything. `now` is the time to use where the flags name none.
    pub(crate) async fn read(&self, now: Timestamp) -> Result<Input, SourceError> {
        let mut objects = if self.live { live::read(&self.client).await? } else { Objects::default() };
        for file in &self.files {
            objects.file(file)?;
        }
        Ok(objects.finish(self.now.unwrap_or(now)))
    }
}
