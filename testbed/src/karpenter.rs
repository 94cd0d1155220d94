//! Karpenter itself, with its own simulated cloud: the controllers of the module `sigs.k8s.io/karpenter`, unmodified. Its
//! machines are Nodes that kwok plays the kubelets of.

use std::path::{Path, PathBuf};

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
    cgo: true,
};

/// Where Karpenter's controllers and definitions come from.
const MODULE: &str = "sigs.k8s.io/karpenter";

/// Control planes with Karpenter's definitions.
pub static WITH_KARPENTER: Places = Places::new(1, ClusterOptions::private);

/// Seconds between the launch of a machine of [`NODE_CLASS`] and its Node.
pub const REGISTRATION_SECONDS: u32 = 1;

/// The only `NodeClass`, as it is applied.
fn class() -> String {
    let (group, kind, name) = NODE_CLASS;
    format!(
        "{{apiVersion: {group}/v1alpha1, kind: {kind}, metadata: {{name: {name}}}, \
         spec: {{nodeRegistrationDelay: {REGISTRATION_SECONDS}s}}}}"
    )
}

/// The group of `NodeClaim`s.
pub const GROUP: &str = "karpenter.sh";

/// The program, which is built if it is missing: for minutes, which is said.
///
/// # Errors
/// When it cannot be built; the message tells what to install.
pub async fn binary() -> Result<PathBuf> {
    PROGRAM.find().await
}

/// The version of the module, such as `v1.14.1`.
///
/// # Errors
/// When Go does not know the module.
pub async fn version() -> Result<String> {
    let sources = PROGRAM.sources_of(MODULE).await?;
    // The directory of a module in Go's cache is its path, `@` and its version.
    let version = sources.to_str().and_then(|path| path.rsplit_once('@')).map(|(_, version)| version);
    version.map(String::from).with_context(|| format!("{} does not name a version", sources.display()))
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
    let installed = ["get", "kwoknodeclass/default"];
    if cluster.kubectl(&installed).await.is_ok() {
        // By a test before this one.
        return Ok(());
    }
    let sources = PROGRAM.sources_of(MODULE).await?;
    for directory in ["pkg/apis/crds", "kwok/apis/crds"] {
        let directory = sources.join(directory);
        let directory = directory.to_str().context("the path of the module is not text")?;
        cluster.kubectl(&["apply", "--server-side", "--filename", directory]).await?;
    }
    let kinds = ["crd/nodeclaims.karpenter.sh", "crd/kwoknodeclasses.karpenter.kwok.sh"];
    cluster
        .kubectl(&[&["wait", "--for=condition=Established", "--timeout=180s"], &kinds[..]].concat())
        .await?;
    cluster.kubectl_with_input(&["apply", "--server-side", "--filename", "-"], &class()).await?;
    Ok(())
}

/// Starts Karpenter with all rights, as the service account `kube-system/karpenter` and the only replica. It ends when this is
/// dropped.
///
/// # Errors
/// When it cannot be built or started.
pub async fn start(cluster: &Cluster) -> Result<OperatorProcess> {
    let kubeconfig = cluster.kubeconfig_for_controller("kube-system", "karpenter").await?;
    start_with(cluster, &kubeconfig, "kube-system", ("DISABLE_LEADER_ELECTION", "true")).await
}

/// Starts Karpenter as the user of `kubeconfig`, with every setting as it is by default: it is elected first, by a Lease in
/// `namespace`. It ends when this is dropped.
///
/// # Errors
/// When it cannot be built or started.
pub async fn start_as(cluster: &Cluster, kubeconfig: &Path, namespace: &str) -> Result<OperatorProcess> {
    // In a pod this would be the pod's own.
    start_with(cluster, kubeconfig, namespace, ("LEADER_ELECTION_NAMESPACE", namespace)).await
}

async fn start_with(
    cluster: &Cluster,
    kubeconfig: &Path,
    namespace: &str,
    election: (&str, &str),
) -> Result<OperatorProcess> {
    let binary = binary().await?;
    let kubeconfig = kubeconfig.display().to_string();
    let env = [
        ("KUBECONFIG", kubeconfig.as_str()),
        election,
        ("SYSTEM_NAMESPACE", namespace),
        // Any free port: nobody reads them.
        ("METRICS_PORT", "0"),
        ("HEALTH_PROBE_PORT", "0"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    OperatorProcess::start_program(cluster, "karpenter", &binary, Vec::new(), env).await
}
