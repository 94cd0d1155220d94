//! Reads which volumes are attached to nodes that no pod keeps any more. Nothing is decided and nothing is written here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::ListParams;
use shared_runtime::error::{Categorised as _, chain};
use shared_runtime::list::{self, Listed};
use tracing::warn;

use crate::context::Context;
use crate::error::{Error, Read};
use crate::observe::listed;
use crate::plan::{AttachedVolumes, ObservedPods, PoolKey, pods};
use crate::pod_reads::ReadsEnd;

/// Number of concurrent live reads of volumes.
const PARALLEL_READS: usize = 8;

/// The volumes of the `emptied` nodes, read live: they decide whether a node may be removed. Where they cannot be read, all
/// of these nodes wait.
pub(crate) async fn attached(
    ctx: &Context,
    key: &PoolKey,
    emptied: &BTreeSet<String>,
    observed: &ObservedPods,
    end: ReadsEnd,
) -> AttachedVolumes {
    let times = ctx.tracker.record_emptied(key, observed.by_node.keys(), emptied);
    if emptied.is_empty() {
        return AttachedVolumes { by_node: None, times };
    }
    let by_node = match attachments(ctx, emptied, end).await {
        Ok(attachments) => Some(without_used(ctx, attachments, observed, end).await),
        Err(failed) => {
            let category = failed.category();
            ctx.metrics.attachments_unread(category);
            warn!(category, error = %chain(&failed), "nodes have to wait: volume attachments cannot be listed");
            None
        }
    };
    AttachedVolumes { by_node, times }
}

/// The volumes that are attached to `nodes`, by node. There is no selector for the node, so all attachments are listed.
async fn attachments(
    ctx: &Context,
    nodes: &BTreeSet<String>,
    end: ReadsEnd,
) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let api: Api<VolumeAttachment> = Api::all(ctx.client.clone());
    let params = ListParams::default();
    let all = list::list(&api, &params);
    let Listed { items, unreadable } = listed(Read::VolumeAttachments, end.left(ctx), all).await?;
    for attachment in &unreadable {
        warn!(attachment = attachment.name, "a volume attachment cannot be read, so no node waits for it");
    }
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for attachment in items {
        if nodes.contains(&attachment.spec.node_name) {
            let volume = attachment.spec.source.persistent_volume_name.or(attachment.metadata.name);
            by_node.entry(attachment.spec.node_name).or_default().extend(volume);
        }
    }
    Ok(by_node)
}

/// Without the volumes that pods use which are still on the node, such as those of a `DaemonSet`: they stay attached.
async fn without_used(
    ctx: &Context,
    by_node: BTreeMap<String, Vec<String>>,
    observed: &ObservedPods,
    end: ReadsEnd,
) -> BTreeMap<String, Vec<String>> {
    let mut left = BTreeMap::new();
    for (node, volumes) in by_node {
        let used = claims(observed.of(&node).unwrap_or_default());
        let unused = if used.is_empty() { volumes } else { of_no_claim(ctx, volumes, &used, end).await };
        if !unused.is_empty() {
            left.insert(node, unused);
        }
    }
    left
}

/// The claims that the pods use which have not ended, by namespace and name.
fn claims(pods: &[Arc<Pod>]) -> BTreeSet<(String, String)> {
    let of_pod = |pod: &Arc<Pod>| {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        pods::claims(pod).map(|claim| (namespace.clone(), claim)).collect::<Vec<_>>()
    };
    pods.iter().filter(|pod| !pods::is_finished(pod)).flat_map(of_pod).collect()
}

/// Those of the volumes that none of `claims` is bound to. One that cannot be read counts as such: it is waited for.
async fn of_no_claim(
    ctx: &Context,
    volumes: Vec<String>,
    claims: &BTreeSet<(String, String)>,
    end: ReadsEnd,
) -> Vec<String> {
    let api: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let is_used = |name: String| {
        let api = api.clone();
        async move {
            let read = tokio::time::timeout(end.left(ctx), api.get_opt(&name)).await;
            let claim = match read {
                Ok(Ok(volume)) => volume.and_then(|volume| volume.spec?.claim_ref),
                Ok(Err(error)) => {
                    warn!(volume = name, error = %chain(&error), "it is not known whose volume it is");
                    None
                }
                Err(_elapsed) => None,
            };
            let claim = claim.and_then(|claim| Some((claim.namespace?, claim.name?)));
            (name, claim.is_some_and(|claim| claims.contains(&claim)))
        }
    };
    let reads = stream::iter(volumes).map(is_used).buffered(PARALLEL_READS);
    reads.filter_map(|(name, is_used)| std::future::ready((!is_used).then_some(name))).collect().await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::testing::{key, pods as listed_pods};
    use crate::testing::{TestContext, failure};

    fn list(items: &[Value]) -> (u16, Value) {
        let kind =
            json!({ "kind": "VolumeAttachmentList", "apiVersion": "storage.k8s.io/v1", "metadata": {} });
        let mut list = kind;
        list["items"] = json!(items);
        (200, list)
    }

    fn attachment(name: &str, node: &str, volume: Option<&str>) -> Value {
        json!({
            "metadata": { "name": name },
            "spec": { "attacher": "a", "nodeName": node, "source": { "persistentVolumeName": volume } },
        })
    }

    fn user(volume: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "namespace": "default", "name": "agent" },
            "spec": { "containers": [], "volumes": [volume] },
        }))
        .unwrap()
    }

    async fn left(pods: Vec<Pod>, volumes: &'static [&'static str]) -> Option<BTreeMap<String, Vec<String>>> {
        let test = TestContext::new(move |path, _| match path {
            path if path.starts_with("/apis/storage.k8s.io/v1/volumeattachments?") => {
                let own =
                    volumes.iter().map(|volume| attachment(&format!("of-{volume}"), "n-000", Some(volume)));
                list(&own.chain([attachment("other", "n-009", Some("x"))]).collect::<Vec<_>>())
            }
            "/api/v1/persistentvolumes/bound" => {
                let claim = json!({ "namespace": "default", "name": "agent-data" });
                (200, json!({ "metadata": { "name": "bound" }, "spec": { "claimRef": claim } }))
            }
            _ => failure(404, "NotFound", "no such volume"),
        });
        let emptied = BTreeSet::from(["n-000".to_owned()]);
        attached(&test.ctx, &key(), &emptied, &listed_pods([("n-000", pods)]), ReadsEnd::from_now(&test.ctx))
            .await
            .by_node
    }

    #[tokio::test]
    async fn a_node_waits_for_the_volumes_that_none_of_the_pods_uses_that_stay() {
        let of_node = |volumes: &[&str]| {
            let volumes: Vec<String> = volumes.iter().map(ToString::to_string).collect();
            (!volumes.is_empty()).then(|| ("n-000".to_owned(), volumes)).into_iter().collect()
        };
        let claim = json!({ "name": "x", "persistentVolumeClaim": { "claimName": "agent-data" } });
        let mut finished = user(&claim);
        finished.status = Some(PodStatus { phase: Some("Succeeded".into()), ..PodStatus::default() });
        let of_pod = json!({ "name": "data", "ephemeral": {} });
        let other = json!({ "name": "x", "persistentVolumeClaim": { "claimName": "y" } });
        for (pods, volumes, expected) in [
            (vec![], &[][..], &[][..]),
            (vec![], &["bound", "gone"], &["bound", "gone"]),
            (vec![user(&json!({ "name": "x", "emptyDir": {} }))], &["bound"], &["bound"]),
            (vec![user(&claim)], &["bound", "gone"], &["gone"]),
            (vec![user(&of_pod)], &["bound"], &[]),
            (vec![user(&other)], &["bound"], &["bound"]),
            (vec![finished], &["bound"], &["bound"]),
        ] {
            assert_eq!(left(pods.clone(), volumes).await, Some(of_node(expected)), "{pods:?} {volumes:?}");
        }
    }

    #[tokio::test]
    async fn where_attachments_cannot_be_listed_that_is_not_taken_for_none() {
        let test = TestContext::new(|_, _| failure(403, "Forbidden", "no right to list volume attachments"));
        let emptied = BTreeSet::from(["n-000".to_owned()]);
        let end = ReadsEnd::from_now(&test.ctx);
        assert_eq!(attached(&test.ctx, &key(), &emptied, &ObservedPods::default(), end).await.by_node, None);
        let none = attached(&test.ctx, &key(), &BTreeSet::new(), &ObservedPods::default(), end).await;
        assert_eq!((none.by_node, test.requests().len()), (None, 1), "nothing is asked where nothing waits");
    }
}
