//! The custom resource definitions of the Prometheus operator, of which the chart makes resources.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

/// The Go module that has them as files.
const MODULE: &str = "github.com/prometheus-operator/prometheus-operator";

/// What `go mod download` says of a module.
#[derive(Deserialize)]
struct Downloaded {
    #[serde(rename = "Dir")]
    directory: PathBuf,
}

/// The file with the definition of `plural`, such as `servicemonitors`.
///
/// # Errors
/// When Go cannot get the module, or it has no such definition.
pub async fn definition(plural: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        .env("GOWORK", "off")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("prometheus-operator"))
        .output()
        .await
        .context("cannot run go")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "go cannot get {MODULE}: {said}");
    let Downloaded { directory } = serde_json::from_slice(&output.stdout).context("go said no JSON")?;
    let file = directory.join(format!("example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml"));
    ensure!(file.is_file(), "{MODULE} has no {}", file.display());
    Ok(file)
}
