//! Records how many nodes a pool has over time, as a watch reports it: what a rollout must keep within bounds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use shared_crds::names::{TEMPLATE_HASH_ANNOTATION, node_selector};
use tokio::task::JoinHandle;

use crate::test_env::{TestEnv, is_ready};

/// The number of nodes after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCount {
    /// Since the recording began.
    pub at: Duration,
    /// Nodes that exist, those included that are leaving.
    pub all: usize,
    /// Those of them that are Ready and schedulable.
    pub ready: usize,
    /// Those of the nodes whose template is not the one of the first nodes.
    pub new: usize,
}

/// A recording that goes on until it is ended or dropped.
pub struct NodesOverTime {
    counts: Arc<Mutex<Vec<NodeCount>>>,
    watch: JoinHandle<Result<()>>,
}

impl NodesOverTime {
    /// Begins to record the nodes of `pool`.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn begin(env: &TestEnv, pool: &str) -> Result<Self> {
        let api: Api<Node> = Api::all(env.client.clone());
        let selector = node_selector(env.namespace(), pool);
        let listed = api.list(&kube::api::ListParams::default().labels(&selector)).await?;
        let version = listed.metadata.resource_version.clone().context("a list without a version")?;
        let first =
            listed.items.first().and_then(|node| node.annotations().get(TEMPLATE_HASH_ANNOTATION).cloned());
        let counts = Arc::new(Mutex::new(Vec::new()));
        let mut nodes: BTreeMap<String, Node> =
            listed.items.into_iter().map(|node| (node.name_any(), node)).collect();
        let began = Instant::now();
        record(&counts, began, &nodes, first.as_ref());
        let recorded = Arc::clone(&counts);
        // Longer than any test; a watch that ends before is an error of the recording.
        let params = WatchParams::default().labels(&selector).timeout(290);
        let watch = tokio::spawn(async move {
            let mut version = version;
            loop {
                let mut events = api.watch(&params, &version).await?.boxed();
                while let Some(event) = events.try_next().await? {
                    match event {
                        WatchEvent::Added(node) | WatchEvent::Modified(node) => {
                            version = node.resource_version().unwrap_or(version);
                            nodes.insert(node.name_any(), node);
                        }
                        WatchEvent::Deleted(node) => {
                            version = node.resource_version().unwrap_or(version);
                            nodes.remove(&node.name_any());
                        }
                        WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                        WatchEvent::Error(error) => anyhow::bail!("the watch of nodes failed: {error:?}"),
                    }
                    record(&recorded, began, &nodes, first.as_ref());
                }
            }
        });
        Ok(Self { counts, watch })
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// When the watch has failed meanwhile, so that something may be missing.
    pub async fn end(self) -> Result<Vec<NodeCount>> {
        let Self { counts, watch } = self;
        ensure!(!watch.is_finished(), "the recording has ended: {:?}", watch.await);
        watch.abort();
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(counts.clone())
    }
}

fn record(
    counts: &Mutex<Vec<NodeCount>>,
    began: Instant,
    nodes: &BTreeMap<String, Node>,
    first: Option<&String>,
) {
    let is_usable = |node: &&Node| {
        let schedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true);
        is_ready(node) && schedulable && node.metadata.deletion_timestamp.is_none()
    };
    let is_new = |node: &&Node| node.annotations().get(TEMPLATE_HASH_ANNOTATION) != first;
    let count = NodeCount {
        at: began.elapsed(),
        all: nodes.len(),
        ready: nodes.values().filter(is_usable).count(),
        new: nodes.values().filter(is_new).count(),
    };
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    if counts
        .last()
        .is_none_or(|last| (last.all, last.ready, last.new) != (count.all, count.ready, count.new))
    {
        counts.push(count);
    }
}
