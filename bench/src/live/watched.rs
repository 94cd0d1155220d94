//! What the bench's own watches show of the cluster: how many pods there are and run, and how many nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The counts after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// When the event came.
    pub(crate) at: Instant,
    pub(crate) pods: usize,
    pub(crate) running: usize,
    pub(crate) nodes: usize,
}

/// The objects of a kind by name, and whether each one counts as done.
#[derive(Debug, Default)]
struct Known {
    now: BTreeMap<String, bool>,
    /// What a list has brought so far. It replaces the rest when it is complete.
    listed: BTreeMap<String, bool>,
}

impl Known {
    fn apply<K: Resource<DynamicType = ()>>(&mut self, event: Event<K>, done: impl Fn(&K) -> bool) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                self.listed.insert(object.name_any(), done(&object));
            }
            Event::InitDone => self.now = std::mem::take(&mut self.listed),
            Event::Apply(object) => {
                self.now.insert(object.name_any(), done(&object));
            }
            Event::Delete(object) => {
                self.now.remove(&object.name_any());
            }
        }
    }
}

enum Change {
    Pod(Box<Event<Pod>>),
    Node(Box<Event<Node>>),
}

/// Follows the pods of a namespace and all nodes, until it is dropped.
pub(crate) struct Watched {
    seen: watch::Receiver<Seen>,
    _task: JoinSet<()>,
}

impl Watched {
    /// Opens the watches.
    pub(crate) fn open(client: &Client, namespace: &str) -> Self {
        let pods = events(Api::<Pod>::namespaced(client.clone(), namespace))
            .map(|event| Change::Pod(Box::new(event)));
        let nodes = events(Api::<Node>::all(client.clone())).map(|event| Change::Node(Box::new(event)));
        let (sender, seen) = watch::channel(Seen { at: Instant::now(), pods: 0, running: 0, nodes: 0 });
        let mut task = JoinSet::new();
        task.spawn(follow(stream::select(pods.boxed(), nodes.boxed()), sender));
        Self { seen, _task: task }
    }

    /// The counts now.
    pub(crate) fn now(&self) -> Seen {
        *self.seen.borrow()
    }

    /// Waits for these counts, and returns when the event came that made them so.
    pub(crate) async fn wait_for(
        &mut self,
        what: &str,
        patience: Duration,
        so: impl Fn(&Seen) -> bool,
    ) -> Result<Instant> {
        match tokio::time::timeout(patience, self.seen.wait_for(|seen| so(seen))).await {
            Ok(Ok(seen)) => return Ok(seen.at),
            Ok(Err(_)) => bail!("{what}: the watches ended"),
            Err(_) => {}
        }
        let Seen { at: _, pods, running, nodes } = self.now();
        bail!("{what}: not within {patience:?}; last seen: {running} of {pods} pods run, {nodes} nodes")
    }
}

fn events<K>(api: Api<K>) -> impl Stream<Item = Event<K>> + Send + 'static
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(|event| std::future::ready(event.ok()))
}

async fn follow(mut changes: impl Stream<Item = Change> + Unpin, sender: watch::Sender<Seen>) {
    let (mut pods, mut nodes) = (Known::default(), Known::default());
    while let Some(change) = changes.next().await {
        match change {
            Change::Pod(event) => pods.apply(*event, runs),
            Change::Node(event) => nodes.apply(*event, |_| true),
        }
        let running = pods.now.values().filter(|runs| **runs).count();
        let seen = Seen { at: Instant::now(), pods: pods.now.len(), running, nodes: nodes.now.len() };
        if sender.send(seen).is_err() {
            return;
        }
    }
}

fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"phase": phase}})).unwrap()
    }

    #[tokio::test]
    async fn pods_and_nodes_are_counted_and_a_list_replaces_what_was_known_only_when_it_is_complete() {
        let node = Node { metadata: pod("n", "").metadata, ..Node::default() };
        let changes = vec![
            of_pod(Event::Apply(pod("a", "Pending"))),
            of_node(Event::Apply(node.clone())),
            of_pod(Event::Apply(pod("a", "Running"))),
            of_pod(Event::Init),
            of_pod(Event::InitApply(pod("b", "Running"))),
            of_pod(Event::InitApply(pod("c", "Pending"))),
            of_pod(Event::InitDone),
            of_pod(Event::Delete(pod("c", "Pending"))),
            of_node(Event::Delete(node)),
        ];
        let mut counts = Vec::new();
        for end in 1..=changes.len() {
            let (sender, seen) = watch::channel(Seen { at: Instant::now(), pods: 0, running: 0, nodes: 0 });
            follow(stream::iter(changes[..end].iter().map(copy)), sender).await;
            let Seen { at: _, pods, running, nodes } = *seen.borrow();
            counts.push((pods, running, nodes));
        }
        let wanted = [
            (1, 0, 0),
            (1, 0, 1),
            (1, 1, 1),
            (1, 1, 1),
            (1, 1, 1),
            (1, 1, 1),
            (2, 1, 1),
            (1, 1, 1),
            (1, 1, 0),
        ];
        assert_eq!(counts, wanted);
    }

    fn of_pod(event: Event<Pod>) -> Change {
        Change::Pod(Box::new(event))
    }

    fn of_node(event: Event<Node>) -> Change {
        Change::Node(Box::new(event))
    }

    fn copy(change: &Change) -> Change {
        match change {
            Change::Pod(event) => Change::Pod(event.clone()),
            Change::Node(event) => Change::Node(event.clone()),
        }
    }

    #[tokio::test]
    async fn counts_that_do_not_come_are_an_error_with_the_last_ones() {
        let (_sender, seen) = watch::channel(Seen { at: Instant::now(), pods: 3, running: 2, nodes: 1 });
        let mut watched = Watched { seen, _task: JoinSet::new() };
        let patience = Duration::from_millis(20);
        watched.wait_for("2 run", patience, |seen| seen.running == 2).await.unwrap();
        let error = watched.wait_for("3 run", patience, |seen| seen.running == 3).await.unwrap_err();
        assert_eq!(error.to_string(), "3 run: not within 20ms; last seen: 2 of 3 pods run, 1 nodes");
    }
}
