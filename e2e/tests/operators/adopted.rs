//! Definitions that `kubectl apply` made before the chart came: Helm refuses to install over them, and takes them over in each way that
//! the chart's README gives.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared_crds::NodePool;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::objects;
use testbed::places;
use testbed::tandem::{chart, install_definitions};
use testbed::test_env::RELEASE_NAMESPACE;

/// Both of them, as arguments for kubectl.
const DEFINITIONS: [&str; 2] = ["nodepools.tandem.dev", "nodepoolautoscalers.tandem.dev"];

/// What Helm says of an object that is there and not its own; the chart's README quotes it.
const FOREIGN: &str = "exists and cannot be imported into the current release";

/// A cluster with what `nodepool-operator crd | kubectl apply --server-side -f -` makes, a pool, and no release.
struct Applied {
    cluster: Cluster,
    pools: Api<NodePool>,
    pool: NodePool,
}

impl Applied {
    async fn new() -> Self {
        let cluster = Cluster::start(ClusterOptions::api_only()).await.unwrap();
        install_definitions(&cluster).await.unwrap();
        let pools = Api::<NodePool>::namespaced(cluster.client().await.unwrap(), "default");
        let pool = pools.create(&PostParams::default(), &objects::pool("kept", 0, 3)).await.unwrap();
        Self { cluster, pools, pool }
    }

    /// `helm install`, and not `upgrade --install`: as a user types it.
    async fn install(&self, more: &[&str]) -> anyhow::Result<String> {
        let chart = chart();
        let replicas = "nodepoolOperator.replicas=0,autoscalerOperator.replicas=0";
        let args = ["install", "tandem", chart.to_str().unwrap(), "--set", replicas];
        let place = ["--namespace", RELEASE_NAMESPACE, "--create-namespace"];
        self.cluster.helm(&[&args[..], &place, more].concat()).await
    }

    async fn is_refused(&self, more: &[&str], words: &str) {
        let refusal = format!("{:#}", self.install(more).await.unwrap_err());
        assert!(refusal.contains(words), "{refusal}");
    }

    async fn uninstall(&self) {
        let args = ["uninstall", "tandem", "--namespace", RELEASE_NAMESPACE, "--wait"];
        self.cluster.helm(&args).await.unwrap();
    }

    async fn of_definitions(&self, verb: &str, rest: &[&str]) -> String {
        self.cluster.kubectl(&[&[verb, "crd"][..], &DEFINITIONS, rest].concat()).await.unwrap()
    }

    /// Both definitions belong to the release, and nothing was written to the pool.
    async fn are_adopted(&self) {
        let owner = r"-o=jsonpath={.items[*].metadata.annotations.meta\.helm\.sh/release-name}";
        assert_eq!(self.of_definitions("get", &[owner]).await, "tandem tandem");
        let pool = self.pools.get("kept").await.unwrap();
        assert_eq!(
            (pool.uid(), pool.resource_version()),
            (self.pool.uid(), self.pool.resource_version()),
            "the pool was written"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_kubectl_made_are_taken_over_with_a_flag() {
    let _turn = places::turn().await.unwrap();
    let applied = Applied::new().await;
    applied.is_refused(&[], FOREIGN).await;
    applied.install(&["--take-ownership"]).await.unwrap();
    applied.are_adopted().await;

    // They stay, belong to no release, and one of them is an older version's.
    applied.uninstall().await;
    applied
        .of_definitions("annotate", &["meta.helm.sh/release-name-", "meta.helm.sh/release-namespace-"])
        .await;
    applied.of_definitions("label", &["app.kubernetes.io/managed-by-"]).await;
    let column = "/spec/versions/0/additionalPrinterColumns/0/description";
    let older = json!([{"op": "replace", "path": column, "value": "of an older version"}]).to_string();
    let patch = ["patch", "crd", DEFINITIONS[0], "--type=json", "--patch", older.as_str()];
    applied.cluster.kubectl(&patch).await.unwrap();
    applied.is_refused(&[], FOREIGN).await;
    applied.is_refused(&["--take-ownership"], "conflict").await;
    // What Helm has tried is a release that failed, whose name is taken.
    applied.uninstall().await;
    applied.install(&["--take-ownership", "--force-conflicts"]).await.unwrap();
    applied.are_adopted().await;
    let described = "-o=jsonpath={.items[0].spec.versions[0].additionalPrinterColumns[0].description}";
    assert_eq!(applied.of_definitions("get", &[described]).await, "Nodes asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_kubectl_made_are_taken_over_once_they_are_marked() {
    let _turn = places::turn().await.unwrap();
    let applied = Applied::new().await;
    applied.is_refused(&[], FOREIGN).await;
    applied.of_definitions("label", &["app.kubernetes.io/managed-by=Helm"]).await;
    // The label alone is not enough.
    applied.is_refused(&[], FOREIGN).await;
    let release_namespace = format!("meta.helm.sh/release-namespace={RELEASE_NAMESPACE}");
    applied.of_definitions("annotate", &["meta.helm.sh/release-name=tandem", &release_namespace]).await;
    applied.install(&[]).await.unwrap();
    applied.are_adopted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_kubectl_made_stay_kubectls_where_the_chart_brings_none() {
    let _turn = places::turn().await.unwrap();
    let applied = Applied::new().await;
    applied.install(&["--set", "crds.enabled=false"]).await.unwrap();
    let owner = r"-o=jsonpath={.items[*].metadata.annotations.meta\.helm\.sh/release-name}";
    assert_eq!(applied.of_definitions("get", &[owner]).await, "");
    // As before each upgrade.
    install_definitions(&applied.cluster).await.unwrap();
    let pool = applied.pools.get("kept").await.unwrap();
    assert_eq!(pool.resource_version(), applied.pool.resource_version(), "the pool was written");
}
