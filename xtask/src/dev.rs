//! `cargo xtask dev`: a control plane that keeps running between commands, with the chart installed, for daily work.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;
use e2e::cluster::{Cluster, ClusterOptions};
use e2e::tandem::Release;

use crate::workspace;

/// A control plane that keeps running between commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start it, with the chart installed and no operator running
    Up,
    /// End it and remove its files
    Down,
    /// Report whether it runs, and where
    Status,
}

/// The directory of its state.
fn directory() -> PathBuf {
    workspace::root().join("target").join("dev")
}

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up => up().await,
        Command::Down => {
            let ended = Cluster::stop_detached(&directory())?;
            println!(
                "{}",
                if ended { "the control plane has ended" } else { "no control plane was running" }
            );
            Ok(())
        }
        Command::Status => {
            match Cluster::detached(&directory())? {
                Some(running) => {
                    println!("kubeconfig  {}", running.kubeconfig.display());
                    for (program, pid) in running.pids {
                        println!("{pid:>10}  {program}");
                    }
                }
                None => println!("no control plane is running; start one with `cargo xtask dev up`"),
            }
            Ok(())
        }
    }
}

async fn up() -> anyhow::Result<()> {
    let running = Cluster::start_detached(&directory(), ClusterOptions::private()).await?;
    let cluster = Cluster::attach(&directory())?;
    Release::install(&cluster, "tandem-system", &[])
        .await
        .context("the control plane runs, but the chart is refused")?;
    let kubeconfig = running.kubeconfig.display();
    println!("the control plane runs, and the chart is installed without operators. Next:");
    println!("  export KUBECONFIG={kubeconfig}");
    println!("  cargo run -p nodepool-operator -- run --leader-elect=false --admin-address=127.0.0.1:8081");
    println!("  cargo run -p autoscaler-operator -- run --leader-elect=false --admin-address=127.0.0.1:8082");
    println!("  kubectl apply -f e2e/manifests/demo.yaml && kubectl scale deployment/web --replicas=8");
    println!("  cargo xtask dev down");
    Ok(())
}
