//! `cargo xtask dev`: a control plane that keeps running between commands, with the chart installed, for daily work.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use images::programs::Build;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::kind::Kind;
use testbed::played_kubelets::PlayedKubelets;
use testbed::tandem::Release;
use toolbox::workspace;

/// A control plane that keeps running between commands.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep the state in this directory instead of `target/dev`: each directory has a control plane of its own
    #[arg(long, global = true, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start it, with the chart installed and no operator running
    Up {
        /// A kind cluster instead, with real kubelets and the images of both operators, until Ctrl-C; Linux and root only
        #[arg(long)]
        kind: bool,
    },
    /// End it and remove its files
    Down,
    /// Report whether it runs, and where
    Status,
}

pub(crate) async fn run(Args { directory, command }: Args) -> anyhow::Result<()> {
    let again = directory.as_ref().map(|given| format!(" --directory {}", given.display()));
    let directory = directory.unwrap_or_else(|| workspace::root().join("target").join("dev"));
    match command {
        Command::Up { kind: false } => up(&directory, &again.unwrap_or_default()).await,
        Command::Up { kind: true } => up_kind().await,
        Command::Down => {
            let ended = Cluster::stop_detached(&directory)?;
            println!(
                "{}",
                if ended { "the control plane has ended" } else { "no control plane was running" }
            );
            Ok(())
        }
        Command::Status => {
            match Cluster::detached(&directory)? {
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

/// `again` are the arguments that other commands about this control plane need.
async fn up(directory: &Path, again: &str) -> anyhow::Result<()> {
    let running = Cluster::start_detached(directory, ClusterOptions::private()).await?;
    let cluster = Cluster::attach(directory)?;
    Release::install(&cluster, "tandem-system", &[])
        .await
        .context("the control plane runs, but the chart is refused")?;
    let kubeconfig = running.kubeconfig.display();
    println!("the control plane runs, and the chart is installed without operators. Next:");
    println!("  export KUBECONFIG={kubeconfig}");
    println!("  cargo run -p nodepool-operator -- run --leader-elect=false --admin-address=127.0.0.1:8081");
    println!("  cargo run -p autoscaler-operator -- run --leader-elect=false --admin-address=127.0.0.1:8082");
    println!("  kubectl apply -f testbed/manifests/demo.yaml && kubectl scale deployment/web --replicas=8");
    println!("  cargo xtask dev down{again}");
    Ok(())
}

/// In the foreground: a kind cluster has no process that could go on by itself.
async fn up_kind() -> anyhow::Result<()> {
    if let Some(why) = testbed::kind::unavailable() {
        bail!("there can be no kind cluster here: {why}");
    }
    let (root, target) = (workspace::root(), workspace::target_directory());
    let build = tokio::task::spawn_blocking(move || {
        images::programs::build(Build::for_tests(workspace::cargo(), &root, &target))
    });
    let images = build.await??;
    let kind = Kind::start().await?;
    for image in images {
        kind.load(&image.archive).await?;
    }
    let _kubelets = PlayedKubelets::start(kind.kubeconfig()).await?;
    println!("a kind cluster runs until Ctrl-C, and has the images of both operators. In another terminal:");
    println!("  export KUBECONFIG={}", kind.kubeconfig().display());
    println!("  helm install tandem charts/tandem --namespace tandem-system --create-namespace --wait");
    println!("  kubectl apply -f testbed/manifests/demo.yaml && kubectl scale deployment/web --replicas=8");
    println!("or, before there is a release: cargo e2e --kubeconfig {}", kind.kubeconfig().display());
    tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
}
