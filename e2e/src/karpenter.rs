//! Karpenter itself, with its own simulated cloud: the controllers of the module `sigs.k8s.io/karpenter`, unmodified. Its
//! machines are Nodes that kwok plays the kubelets of.

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};

use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::go_program::GoProgram;
use crate::operators::OperatorProcess;
use crate::places::Places;

/// Group, kind and name of the only `NodeClass`.
pub const NODE_CLASS: (&str, &str, &str) = ("karpenter.kwok.sh", "KWOKNodeClass", "default");

/// Karpenter with its simulated cloud.
const PROGRAM: GoProgram = GoProgram {
    module: "karpenter",
    package: "sigs.k8s.io/karpenter/kwok",
    takes: "2 to 5 minutes on two cores",
};

/// Control planes with Karpenter's definitions.
pub static WITH_KARPENTER: Places = Places::new(1, ClusterOptions::private);

const CLASS: &str = r"
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
spec: {nodeRegistrationDelay: 1s}
";

/// The group of `NodeClaim`s.
pub const GROUP: &str = "karpenter.sh";

/// Builds Karpenter if it is missing: for minutes, which is said.
///
/// # Errors
/// When it cannot be built; the message tells what to install.
pub async fn build() -> Result<()> {
    PROGRAM.find().await?;
    Ok(())
}

/// `NodeClaim`s, without Karpenter's types.
pub fn claims(client: Client) -> Api<DynamicObject> {
    let kind = ApiResource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{GROUP}/v1"),
        kind: "NodeClaim".to_owned(),
        plural: "nodeclaims".to_owned(),
    };
    Api::all_with(client, &kind)
}

/// Installs Karpenter's definitions and its `NodeClass`.
///
/// # Errors
/// When the API server rejects them, or the module cannot be had.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let class = ["get", "kwoknodeclass/default"];
    if cluster.kubectl(&class).await.is_ok() {
        // By a test before this one.
        return Ok(());
    }
    let sources = PROGRAM.sources_of("sigs.k8s.io/karpenter").await?;
    for directory in ["pkg/apis/crds", "kwok/apis/crds"] {
        let directory = sources.join(directory);
        let directory = directory.to_str().context("the path of the module is not text")?;
        cluster.kubectl(&["apply", "--server-side", "--filename", directory]).await?;
    }
    let kinds = ["crd/nodeclaims.karpenter.sh", "crd/kwoknodeclasses.karpenter.kwok.sh"];
    cluster
        .kubectl(&[&["wait", "--for=condition=Established", "--timeout=60s"], &kinds[..]].concat())
        .await?;
    cluster.kubectl_with_input(&["apply", "--server-side", "--filename", "-"], CLASS).await?;
    Ok(())
}

/// Starts Karpenter with all rights, as the service account `kube-system/karpenter`. It ends when this is dropped.
///
/// # Errors
/// When it cannot be built or started.
pub async fn start(cluster: &Cluster) -> Result<OperatorProcess> {
    let binary = PROGRAM.find().await?;
    let kubeconfig = cluster.kubeconfig_for_controller("kube-system", "karpenter").await?;
    let kubeconfig = kubeconfig.display().to_string();
    let env = [
        ("KUBECONFIG", kubeconfig.as_str()),
        ("DISABLE_LEADER_ELECTION", "true"),
        ("SYSTEM_NAMESPACE", "kube-system"),
        // Any free port: nobody reads them.
        ("METRICS_PORT", "0"),
        ("HEALTH_PROBE_PORT", "0"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    OperatorProcess::start_program(cluster, "karpenter", &binary, Vec::new(), env).await
}
