//! `cargo e2e`: the tests of the installed chart.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::workspace;

/// The tests of the installed chart, with the operators as Pods: on a kind cluster that is made for them and deleted afterwards, or on a
/// cluster of yours
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Make a kind cluster, without any container registry; Linux and root only
    #[arg(long, required_unless_present = "kubeconfig", conflicts_with = "kubeconfig")]
    kind: bool,

    /// Use this cluster, which must have no Tandem in it: the tests install the chart and remove it again; its definitions stay. The
    /// nodes have the images of `cargo xtask image`, or pull them: see --registry
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The registry that the cluster pulls the images from, with all before `tandem-dev/`
    #[arg(long, value_name = "HOST", requires = "kubeconfig")]
    registry: Option<String>,

    /// Only the tests with this in their name
    #[arg(value_name = "TEST")]
    only: Option<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let Args { kind, kubeconfig, registry, only } = args;
    if kind && let Some(why) = e2e::kind::unavailable() {
        bail!("there can be no kind cluster here: {why}");
    }
    let mut command = workspace::cargo();
    command
        .args(["test", "--package", "e2e", "--test", "kind", "--"])
        .args(only)
        .current_dir(workspace::root());
    if let Some(kubeconfig) = kubeconfig {
        let path = std::fs::canonicalize(&kubeconfig);
        let path = path.with_context(|| format!("cannot read the kubeconfig {}", kubeconfig.display()))?;
        command.env("TANDEM_E2E_KUBECONFIG", path);
    }
    if let Some(registry) = registry {
        command.env("TANDEM_E2E_REGISTRY", registry);
    }
    let status = command.status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the tests ended with {status}") }
}
