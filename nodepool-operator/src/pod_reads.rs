//! Reads the pods that the rest of the plan needs, live unless a recent list is sufficient. Nothing is decided and nothing is
//! written here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use node_lifecycle::observed_time::PodTimes;
use node_lifecycle::{AttachedVolumes, Classified, Observed, ObservedPods, PodReads, Pods};
use shared_runtime::error::{Categorised as _, chain};
use shared_runtime::list::{self, Listed};
use shared_runtime::reflect::Unreadable;
use tracing::warn;

use crate::context::Context;
use crate::error::{Error, Read};
use crate::kept_pod::KeptPod;
use crate::memory::list_budget::{DrainShare, PARALLEL_LISTS};
use crate::observe::listed;

/// How long all reads of a pass together may take that follow its first decisions. While they wait, the rest of the pool waits
/// too. What is not read by then is unread.
const READS_LIMIT: Duration = Duration::from_secs(15);
/// After so many failed lists in a row the others of the pass are left out.
pub(crate) const FAILURES_LIMIT: usize = 8;

/// When the reads of a pass end, by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadsEnd(Duration);

impl ReadsEnd {
    /// The end of reads that begin now.
    pub(crate) fn from_now(ctx: &Context) -> Self {
        Self(ctx.clock.monotonic().saturating_add(READS_LIMIT))
    }

    /// How much time is left.
    pub(crate) fn left(self, ctx: &Context) -> Duration {
        self.0.saturating_sub(ctx.clock.monotonic())
    }
}

/// Chooses which of the pods that `classified` asks for are listed in this pass.
pub(crate) fn choose(ctx: &Context, observed: &Observed, classified: &mut Classified) {
    let held = ctx.places.take(&observed.key, &classified.drains());
    let reads = std::mem::take(&mut classified.reads).of_places(&held.nodes);
    let due = reads.due(|node| ctx.drains.age(node));
    let share = DrainShare { of_pool: held.nodes.len(), of_all: held.all };
    let count = ctx.list_budget.of_drains(due.len(), share);
    let reads = reads.listing(&due[..count.min(due.len())]);
    let others = ctx.list_budget.of_others(reads.others());
    classified.reads = reads.listing_others(others);
}

/// Reads the pods that were chosen.
pub(crate) async fn pods(
    ctx: &Context,
    observed: &Observed,
    reads: &PodReads,
    end: ReadsEnd,
) -> ObservedPods {
    let PodReads { recent, draining, undecided, unverified, waiting, deferred } = reads;
    let of_drains = list_pods(ctx, draining, end).await;
    for (node, pods) in &of_drains {
        ctx.drains.record_list(node, pods);
        ctx.places.listed(node, pods.iter().map(|pod| &**pod));
    }
    let others = undecided.union(unverified).cloned().collect();
    let mut by_node = list_pods(ctx, &others, end).await;
    by_node.extend(of_drains);
    let is_incomplete = by_node.len() < draining.union(&others).count();
    // Nothing new is known of the other pods. A time that went on while the lists were read would remove a node for
    // which the recent list was sufficient, and that is the one thing it is not sufficient for.
    let PodTimes(mut times) = observed.recent.times.clone();
    times.extend(ctx.tracker.record_pods(&observed.key, &by_node).0);
    let known = observed.recent.by_node.iter().filter(|(node, _)| recent.contains(*node));
    by_node.extend(known.map(|(node, pods)| (node.clone(), Arc::clone(pods))));
    ObservedPods {
        by_node,
        times: PodTimes(times),
        attached: AttachedVolumes::default(),
        is_incomplete,
        waiting: waiting.clone(),
        deferred: deferred.clone(),
    }
}

/// The pods of `nodes`, read live: they decide whether a node may be removed. A node whose pods cannot be listed is
/// left out and counted: it blocks this node and no other. After several failures in a row no more are asked for: then it is not
/// the nodes that are the cause, but a right that is missing, or a server.
async fn list_pods(ctx: &Context, nodes: &BTreeSet<String>, end: ReadsEnd) -> BTreeMap<String, Pods> {
    // Collected first: a closure that is borrowed across the stream's awaits would not be general enough for the future to
    // be `Send`.
    let failures = Arc::new(AtomicUsize::new(0));
    let list = |node: &String| list_of_node(ctx, node.clone(), end, Arc::clone(&failures));
    let lists: Vec<_> = nodes.iter().map(list).collect();
    let mut lists = stream::iter(lists).buffer_unordered(PARALLEL_LISTS);
    let mut found = BTreeMap::new();
    let mut not_asked_for = 0_usize;
    while let Some((node, pods)) = lists.next().await {
        match pods {
            Some(Ok(pods)) => {
                found.insert(node, pods);
            }
            Some(Err(failed)) => {
                let category = failed.category();
                ctx.metrics.pods_unread(category);
                warn!(node, category, error = %chain(&failed), "the node has to wait: its pods cannot be listed");
            }
            None => not_asked_for += 1,
        }
    }
    if not_asked_for > 0 {
        warn!(
            nodes = not_asked_for,
            "so many nodes have to wait: there was no time left to list their pods, or too many lists failed"
        );
    }
    found
}

/// The pods of one node; `None` where they were not asked for, because too many lists before have failed, or the time of the
/// pass is over.
async fn list_of_node(
    ctx: &Context,
    node: String,
    end: ReadsEnd,
    failures: Arc<AtomicUsize>,
) -> (String, Option<Result<Pods, Error>>) {
    if failures.load(Ordering::Relaxed) >= FAILURES_LIMIT {
        return (node, None);
    }
    let api: Api<Pod> = Api::all(ctx.client.clone());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let left = end.left(ctx);
    if left.is_zero() {
        return (node, None);
    }
    let read = async {
        // It is never closed, and without it the list would only use more memory.
        let _place = ctx.pod_lists.acquire().await;
        list::list_as::<Pod, KeptPod>(&api, &of_node).await
    };
    let pods = listed(Read::Pods, left, read).await.map(|Listed { items, unreadable }| {
        let readable = items.into_iter().map(|KeptPod(pod)| pod);
        readable.chain(unreadable.iter().map(stand_in)).map(Arc::new).collect()
    });
    match &pods {
        Ok(_) => failures.store(0, Ordering::Relaxed),
        Err(_) => {
            failures.fetch_add(1, Ordering::Relaxed);
        }
    }
    (node, Some(pods))
}

/// A pod of which only the name and the UID can be read. That is enough to evict it, and it keeps its node from being
/// removed until it is gone.
fn stand_in(unreadable: &Unreadable) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace.clone_from(&unreadable.namespace);
    pod.metadata.name = Some(unreadable.name.clone());
    pod.metadata.uid.clone_from(&unreadable.uid);
    pod
}
