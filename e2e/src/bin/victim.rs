//! Starts a control plane, prints its location, and waits to be killed: the harness's tests use it to show that nothing
//! is left behind however a process ends.

use std::io::Write as _;

use testbed::cluster::{Cluster, ClusterOptions};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A background process of a shell ignores Ctrl-C unless it installs a handler, and it must do so before it prints
    // its location, or the signal may arrive first.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cluster = Cluster::start(ClusterOptions::api_only()).await?;
    let pids: Vec<u32> = cluster.pids().into_iter().map(|(_, pid)| pid).collect();
    let mut output = std::io::stdout();
    writeln!(output, "{}", serde_json::json!({"root": cluster.root(), "pids": pids}))?;
    output.flush()?;
    interrupt.recv().await;
    // Immediately, without running destructors: that is what the tests check.
    std::process::exit(130)
}
