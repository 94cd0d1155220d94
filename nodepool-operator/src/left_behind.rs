//! `nodepool-operator left-behind`: the pools that an uninstall would leave without their operators. The chart runs it before
//! `helm uninstall`, where it is asked to.

use std::io::Write as _;

use clap::Args;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use shared_crds::NodePool;
use shared_runtime::cli::ClientArgs;
use shared_runtime::client;
use shared_runtime::clock::Clock;
use shared_runtime::metrics::Metrics;

use crate::SPEC;

#[derive(Args, Debug)]
pub(crate) struct LeftBehindArgs {
    #[command(flatten)]
    client: ClientArgs,

    /// Fail when there are any
    #[arg(long)]
    refuse: bool,
}

/// Why it cannot be said, or why the answer is no.
#[derive(Debug, thiserror::Error)]
pub enum LeftBehindError {
    /// There is no connection to the cluster.
    #[error("cannot connect to the cluster")]
    Connect(#[from] client::ClientError),
    /// The pools cannot be read.
    #[error("cannot list NodePools; who runs this needs `list` on nodepools.tandem.dev")]
    Read(#[source] kube::Error),
    /// There are some. Which ones was printed.
    #[error("there are {0} NodePools")]
    Refused(usize),
    /// Two metrics have one name.
    #[error("cannot count requests")]
    Metrics(#[from] shared_runtime::metrics::MetricsError),
    /// Standard output is closed or full.
    #[error("cannot write to standard output")]
    Output(#[from] std::io::Error),
}

/// Prints the pools and how many nodes each has.
///
/// # Errors
/// When they cannot be read, or there are some and that is refused.
pub(crate) async fn left_behind(args: LeftBehindArgs) -> Result<(), LeftBehindError> {
    let LeftBehindArgs { client: args, refuse } = args;
    let metrics = Metrics::new(SPEC.name, SPEC.version)?;
    let client = client::connect(&args.connection, SPEC.name, SPEC.version, Clock::system(), metrics).await?;
    let pools = match &*args.watch_namespace {
        "" => Api::<NodePool>::all(client),
        namespace => Api::namespaced(client, namespace),
    };
    let pools = match pools.list(&ListParams::default()).await {
        Ok(pools) => pools.items,
        // Without the definition there is none.
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(source) => return Err(LeftBehindError::Read(source)),
    };
    write!(std::io::stdout().lock(), "{}", said(&pools, &args.watch_namespace, refuse))?;
    if refuse && !pools.is_empty() { Err(LeftBehindError::Refused(pools.len())) } else { Ok(()) }
}

/// What is printed of the pools of `namespace`, or of all where that is empty.
fn said(pools: &[NodePool], namespace: &str, refuse: bool) -> String {
    if pools.is_empty() {
        return "there are no NodePools\n".to_owned();
    }
    let mut text = format!("{}:\n", counted(pools.len(), "NodePool"));
    for pool in pools {
        let nodes = pool.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
        let nodes = counted(usize::try_from(nodes).unwrap_or(0), "node");
        text += &format!("  {}/{}: {nodes}\n", pool.namespace().unwrap_or_default(), pool.name_any());
    }
    text += if refuse {
        "Tandem is not uninstalled: nothing would drain, repair or remove their nodes.\n"
    } else {
        "They stay with their nodes. Until Tandem is installed again nothing drains, repairs or removes these, and a pool that is deleted waits.\n"
    };
    let scope = match namespace {
        "" => "--all-namespaces".to_owned(),
        namespace => format!("--namespace {namespace}"),
    };
    format!(
        "{text}To remove them, nodes and machines first: kubectl delete nodepools.tandem.dev --all {scope}\n"
    )
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(name: &str, replicas: Option<i32>) -> NodePool {
        let spec = json!({"maxReplicas": 5, "template": {"spec": {"capacity": {"cpu": "1"}}}, "provider": {"simulated": {}}});
        let metadata = json!({"name": name, "namespace": "team"});
        let status = replicas.map(|replicas| json!({"replicas": replicas}));
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn each_pool_is_named_with_its_nodes_and_what_follows() {
        assert_eq!(said(&[], "", true), "there are no NodePools\n");
        let one = said(&[pool("a", Some(1))], "", false);
        assert!(one.starts_with("1 NodePool:\n  team/a: 1 node\nThey stay"), "{one}");
        let two = said(&[pool("a", Some(3)), pool("new", None)], "team", true);
        assert!(
            two.starts_with("2 NodePools:\n  team/a: 3 nodes\n  team/new: 0 nodes\nTandem is not"),
            "{two}"
        );
        // Only what was looked at.
        assert!(
            one.ends_with("--all --all-namespaces\n") && two.ends_with("--all --namespace team\n"),
            "{two}"
        );
    }
}
