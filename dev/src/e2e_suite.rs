//! `cargo e2e`: the tests of the installed chart.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context as _, bail};
use testbed::borrowed;
use testbed::cluster::Cluster;
use tokio::process::Command;
use toolbox::process_group::ProcessGroup;
use toolbox::workspace;

use crate::ordinary_kind::OrdinaryKind;

/// The tests of the installed chart, with the operators as Pods: on a kind cluster that is made for them and deleted afterwards, or on a
/// cluster of yours
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Make a kind cluster, on Linux: with kind and Docker or Podman where these are on PATH, else, as root, without them and without any
    /// container registry
    #[arg(long, required_unless_present = "kubeconfig", conflicts_with = "kubeconfig")]
    kind: bool,

    /// Make it without the kind and the container engine of this machine, for the tests that need more than a cluster
    #[arg(long, requires = "kind")]
    own_engine: bool,

    /// Use this cluster: the tests install the chart and remove it again; its definitions stay. They refuse a cluster with a release
    /// `tandem`, Tandem's Deployments or objects, nodes of a `NodePool` or of kwok, or one of the namespaces `tandem-system`, `kept`,
    /// `demo` and `real` that they have not made, and change nothing then. The nodes have the images of `cargo xtask image`, or pull
    /// them: see --registry
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The registry that the cluster pulls the images from, with all before `tandem-dev/`
    #[arg(long, value_name = "HOST", requires = "kubeconfig")]
    registry: Option<String>,

    /// Only the tests with this in their name
    #[arg(value_name = "TEST")]
    only: Option<String>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { kind: _, own_engine, kubeconfig, registry, only } = args;
    if let Some(kubeconfig) = kubeconfig {
        let path = std::fs::canonicalize(&kubeconfig);
        let path = path.with_context(|| format!("cannot read the kubeconfig {}", kubeconfig.display()))?;
        let directory = tempfile::tempdir()?;
        // Each test would say so too.
        borrowed::check(&Cluster::of(&path, directory.path()).await?).await?;
        return passed(tests(only, Some(&path), registry).status().await);
    }
    let ordinary = if own_engine { None } else { OrdinaryKind::find().await };
    if let Some(ordinary) = ordinary {
        let run = async |kubeconfig: &Path| {
            passed(ProcessGroup::run(&mut tests(only, Some(kubeconfig), None)).await)
        };
        return ordinary.run(run).await;
    }
    if let Some(why) = testbed::kind::unavailable() {
        bail!(refusal(own_engine, why));
    }
    passed(tests(only, None, None).status().await)
}

/// What is said where there can be no kind cluster, with what to do.
fn refusal(own_engine: bool, why: &str) -> String {
    let (tried, instead) = if own_engine {
        ("", "leave --own-engine out where these work")
    } else {
        ("no kind with Docker or Podman on PATH works, and ", "install these")
    };
    format!(
        "there can be no kind cluster here: {tried}{why}. An ordinary kind needs Docker or Podman on PATH: {instead}. Or name a cluster: \
         cargo e2e --kubeconfig FILE"
    )
}

fn tests(only: Option<String>, kubeconfig: Option<&Path>, registry: Option<String>) -> Command {
    let mut command = Command::from(workspace::cargo());
    // Of the whole workspace: with the features of one package alone, Cargo would compile again what `cargo suites` has compiled.
    command
        .args(["test", "--locked", "--workspace", "--test", "kind", "--"])
        .args(only)
        .current_dir(workspace::root())
        .kill_on_drop(true);
    if let Some(kubeconfig) = kubeconfig {
        command.env("TANDEM_E2E_KUBECONFIG", kubeconfig);
    }
    if let Some(registry) = registry {
        command.env("TANDEM_E2E_REGISTRY", registry);
    }
    command
}

fn passed(status: std::io::Result<ExitStatus>) -> anyhow::Result<()> {
    let status = status.context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the tests ended with {status}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_can_be_no_kind_cluster_one_line_says_why_and_what_to_do() {
        for (own_engine, what) in [(false, "no kind with Docker or Podman"), (true, "leave --own-engine out")]
        {
            let said = refusal(own_engine, "a kubelet needs root");
            for words in ["a kubelet needs root", what, "cargo e2e --kubeconfig FILE"] {
                assert!(said.contains(words), "{words}: {said}");
            }
            assert_eq!(said.lines().count(), 1);
        }
        assert!(!refusal(true, "x").contains("on PATH works"), "what was not tried is not said");
    }
}
