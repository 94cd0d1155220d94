//! Starts a control plane, says where it is, and waits to be killed: the harness's tests use it to show that nothing
//! is left behind however a process ends.

use std::io::Write as _;

use e2e::cluster::{Cluster, Options};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Whoever is started in the background of a shell ignores Ctrl-C unless it asks for it, and it has to ask before it
    // says where it is, or the signal may come first.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cluster = Cluster::start(Options::api_only()).await?;
    let pids: Vec<u32> = cluster.pids().into_iter().map(|(_, pid)| pid).collect();
    let mut output = std::io::stdout();
    writeln!(output, "{}", serde_json::json!({"root": cluster.root(), "pids": pids}))?;
    output.flush()?;
    interrupt.recv().await;
    // On the spot, without running destructors: that is what the tests are about.
    std::process::exit(130)
}
