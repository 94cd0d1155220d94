//! The custom resource definitions of the Prometheus operator, of which the chart makes resources.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;
use toolbox::go::Go;

/// The Go module that has them as files.
const MODULE: &str = "github.com/prometheus-operator/prometheus-operator";

/// What `go mod download` says of a module.
#[derive(Deserialize)]
struct Downloaded {
    #[serde(rename = "Dir")]
    directory: PathBuf,
}

/// The directory of the definitions, which are downloaded if they are missing.
///
/// # Errors
/// When Go is missing or too old, or cannot get the module.
pub async fn definitions() -> Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("prometheus-operator");
    Go::find(std::env::var_os("PATH").as_deref(), &own, MODULE)?;
    let output = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        .env("GOWORK", "off")
        .current_dir(own)
        .output()
        .await
        .context("cannot run go")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "go cannot get {MODULE}: {said}");
    let Downloaded { directory } = serde_json::from_slice(&output.stdout).context("go said no JSON")?;
    Ok(directory.join("example/prometheus-operator-crd"))
}
