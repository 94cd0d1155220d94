//! Starts a control plane, says where it is, and waits to be killed: the harness's tests use it to show that nothing
//! is left behind however a process ends.

use std::io::Write as _;

use e2e::cluster::{Cluster, Options};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::api_only()).await?;
    let pids: Vec<u32> = cluster.pids().into_iter().map(|(_, pid)| pid).collect();
    let mut output = std::io::stdout();
    writeln!(output, "{}", serde_json::json!({"root": cluster.root(), "pids": pids}))?;
    output.flush()?;
    // Whoever starts this in the background of a shell makes it ignore Ctrl-C, unless it asks for it. It ends on the spot,
    // without running destructors: that is what the tests are about.
    tokio::signal::ctrl_c().await?;
    std::process::exit(130)
}
