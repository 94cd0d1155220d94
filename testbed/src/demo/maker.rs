//! Who makes the machines of the demo's pool: what is applied for it, how large its story is, and what its objects are.

use anyhow::{Context as _, Result, ensure};

use crate::audit::ObjectKey;
use crate::{cluster_api, karpenter, real_nodes};

/// The pool with simulated nodes, the autoscaler and the Deployment.
const BASE: &str = include_str!("../../manifests/demo.yaml");

/// The option `--provider`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// Node objects without machines.
    #[default]
    Simulated,
    /// A `MachineDeployment` of Cluster API.
    ClusterApi,
    /// `NodeClaim`s of Karpenter.
    Karpenter,
    /// A program: real kubelets where they can run.
    Exec {
        /// Whether the kubelets are played in any case.
        simulated_kubelets: bool,
    },
}

impl Provider {
    /// Checks that the provider's demo can run on the cluster that was named.
    ///
    /// # Errors
    /// On a cluster that this harness does not run, unless the nodes are simulated; the message says what to do.
    pub(super) fn check_cluster(self, is_foreign: bool) -> Result<()> {
        ensure!(
            !is_foreign || self == Self::Simulated,
            "with this provider the demo installs and runs the maker of machines itself, as an administrator, so it only \
             does so on a control plane of its own: leave out --kubeconfig and unset TANDEM_KUBECONFIG, or leave out \
             --provider to see simulated nodes on your cluster. How a cluster of yours gets this provider: \
             docs/providers/README.md"
        );
        Ok(())
    }
}

/// A provider, and for a program which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Simulated,
    ClusterApi,
    Karpenter,
    /// `directory.sh`: machines are files, and their kubelets are played.
    Directory,
    /// `processes.sh`: machines are real nodes.
    RealNodes,
}

/// How large the story is. The numbers are of pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Story {
    /// What the pods are, as in "24 pods of 1 cpu".
    pub(super) pods: &'static str,
    /// At first.
    pub(super) first: usize,
    /// When more load comes.
    pub(super) more: usize,
    /// When most of it goes.
    pub(super) few: usize,
    /// `maxReplicas` of the pool.
    pub(super) most: usize,
}

impl Maker {
    /// Chooses the program where it is one; the second value is the reason if it is not the one with real kubelets.
    pub(super) fn of(provider: Provider) -> (Self, Option<&'static str>) {
        match provider {
            Provider::Simulated => (Self::Simulated, None),
            Provider::ClusterApi => (Self::ClusterApi, None),
            Provider::Karpenter => (Self::Karpenter, None),
            Provider::Exec { simulated_kubelets: true } => {
                (Self::Directory, Some("--simulated-kubelets says so"))
            }
            Provider::Exec { simulated_kubelets: false } => match real_nodes::unavailable() {
                Some(why) => (Self::Directory, Some(why)),
                None => (Self::RealNodes, None),
            },
        }
    }

    /// Builds what is missing of it. What takes minutes is said before it begins.
    ///
    /// # Errors
    /// When something cannot be built; the message says what to install.
    pub(super) async fn build(self) -> Result<()> {
        match self {
            Self::Simulated | Self::Directory => Ok(()),
            Self::ClusterApi => cluster_api::build().await,
            Self::Karpenter => karpenter::binary().await.map(drop),
            Self::RealNodes => real_nodes::build()
                .await
                .context("there can be no real kubelets; with --simulated-kubelets none are needed"),
        }
    }

    /// What is applied: the base, with documents of its own in place of those of the same kind.
    pub(super) fn manifest(self) -> String {
        combine(BASE, self.own_manifest())
    }

    /// The pool's `spec.provider`, as applied.
    pub(super) fn stanza(self) -> String {
        let manifest = self.manifest();
        let pool =
            documents(&manifest).find(|document| kind(document) == Some("NodePool")).unwrap_or_default();
        let start = pool.find("  provider:").unwrap_or(pool.len());
        pool.get(start..).unwrap_or_default().to_owned()
    }

    fn own_manifest(self) -> &'static str {
        match self {
            Self::Simulated => "",
            Self::ClusterApi => include_str!("../../manifests/demo-cluster-api.yaml"),
            Self::Karpenter => include_str!("../../manifests/demo-karpenter.yaml"),
            Self::Directory => include_str!("../../manifests/demo-exec.yaml"),
            Self::RealNodes => include_str!("../../manifests/demo-real-nodes.yaml"),
        }
    }

    pub(super) fn story(self) -> Story {
        match self {
            Self::Simulated => Story { pods: "pods of 1 cpu", first: 24, more: 36, few: 9, most: 12 },
            Self::ClusterApi | Self::Karpenter | Self::Directory => {
                Story { pods: "pods of 1 cpu", first: 12, more: 18, few: 6, most: 8 }
            }
            Self::RealNodes => {
                Story { pods: "web servers, one to a node", first: 2, more: 3, few: 1, most: 3 }
            }
        }
    }

    /// Whether a program of the administrator's makes its machines.
    pub(super) fn is_program(self) -> bool {
        matches!(self, Self::Directory | Self::RealNodes)
    }

    /// The objects of the API server that stand for its machines, for people; `None` where there are none.
    pub(super) fn objects(self) -> Option<&'static str> {
        match self {
            Self::ClusterApi => Some("the MachineDeployment, with its /scale, and the Machines"),
            Self::Karpenter => Some("the NodeClaims"),
            Self::Simulated | Self::Directory | Self::RealNodes => None,
        }
    }

    /// Whether an object is one of those.
    pub(super) fn made(self, object: &ObjectKey) -> bool {
        let (group, resources): (_, &[&str]) = match self {
            Self::ClusterApi => (cluster_api::GROUP, &["machinedeployments", "machines"]),
            Self::Karpenter => (karpenter::GROUP, &["nodeclaims"]),
            Self::Simulated | Self::Directory | Self::RealNodes => return false,
        };
        object.group == group && resources.contains(&object.resource.as_str())
    }
}

/// The documents of `base`, each replaced by the one of the same kind in `own`.
fn combine(base: &str, own: &str) -> String {
    let instead = |document: &str| documents(own).find(|other| kind(other) == kind(document));
    let combined: Vec<&str> =
        documents(base).map(|document| instead(document).unwrap_or(document).trim_end()).collect();
    combined.join("\n---\n")
}

fn documents(manifest: &str) -> impl Iterator<Item = &str> {
    manifest.split("\n---\n")
}

fn kind(document: &str) -> Option<&str> {
    document.lines().find_map(|line| line.strip_prefix("kind: "))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use shared_crds::{NodePool, NodePoolAutoscaler};

    use super::*;
    use crate::demo::names::POOL;

    const ALL: [Maker; 5] =
        [Maker::Simulated, Maker::ClusterApi, Maker::Karpenter, Maker::Directory, Maker::RealNodes];

    #[test]
    fn every_manifest_is_a_pool_an_autoscaler_and_a_deployment_for_the_nodes_of_that_pool() {
        for maker in ALL {
            let manifest = maker.manifest();
            let [pool, autoscaler, deployment] = &documents(&manifest).collect::<Vec<_>>()[..] else {
                panic!("{maker:?}: {manifest}")
            };
            let pool: NodePool = serde_saphyr::from_str(pool).unwrap();
            let _: NodePoolAutoscaler = serde_saphyr::from_str(autoscaler).unwrap();
            let deployment: Deployment = serde_saphyr::from_str(deployment).unwrap();
            assert_eq!(pool.metadata.name.as_deref(), Some(POOL));
            let most = usize::try_from(pool.spec.max_replicas).unwrap();
            assert_eq!(most, maker.story().most, "{maker:?}");
            let pods = deployment.spec.unwrap().template.spec.unwrap();
            let labels = pool.spec.template.metadata.unwrap_or_default().labels;
            assert_eq!(pods.node_selector.unwrap(), labels, "{maker:?}");
        }
    }

    #[test]
    fn the_stanza_names_the_provider_that_the_pool_has() {
        for (maker, name) in [
            (Maker::Simulated, "simulated"),
            (Maker::ClusterApi, "clusterApi"),
            (Maker::Karpenter, "karpenter"),
            (Maker::Directory, "exec: { name: directory }"),
            (Maker::RealNodes, "exec: { name: processes }"),
        ] {
            let stanza = maker.stanza();
            assert!(stanza.starts_with(&format!("  provider:\n    {name}")), "{stanza}");
        }
    }

    #[test]
    fn a_cluster_of_the_users_gets_simulated_nodes_and_nothing_else() {
        Provider::Simulated.check_cluster(true).unwrap();
        Provider::Karpenter.check_cluster(false).unwrap();
        for provider in
            [Provider::ClusterApi, Provider::Karpenter, Provider::Exec { simulated_kubelets: true }]
        {
            let error = provider.check_cluster(true).unwrap_err().to_string();
            assert!(error.contains("leave out --kubeconfig"), "{error}");
        }
    }

    #[test]
    fn only_what_a_maker_keeps_in_the_cluster_is_its_object() {
        let key = |group: &str, resource: &str| ObjectKey {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: String::new(),
            name: "x".to_owned(),
        };
        assert!(Maker::ClusterApi.made(&key("cluster.x-k8s.io", "machines")));
        assert!(Maker::Karpenter.made(&key("karpenter.sh", "nodeclaims")));
        assert!(!Maker::Karpenter.made(&key("karpenter.sh", "nodepools")));
        assert!(!Maker::ClusterApi.made(&key("cluster.x-k8s.io", "machinesets")));
        for maker in ALL {
            assert!(!maker.made(&ObjectKey::node_pool("a", "b")), "{maker:?}");
            assert!(!maker.made(&key("", "nodes")), "{maker:?}");
        }
    }
}
