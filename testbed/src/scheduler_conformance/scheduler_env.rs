//! The real control plane with the real scheduler, but without controllers and kubelets. All objects in it come from
//! this test, so the scheduler and the planner decide about the same objects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::objects::{create, key, key_of, tidy};
use super::planner::Key;
use super::rules::HEAVY;
use super::storage::Storage;
use crate::cluster::{Cluster, ClusterOptions};
use crate::wait::PATIENCE;

/// The grace period in seconds of a pod that is to stay while it ends.
const GRACE_SECONDS: u32 = 3600;
/// The node and namespace that the comparison ignores; see [`SchedulerEnv::wait_for_nodes`].
pub const PROBE_NODE: &str = "probe-node";
/// The probe node's label. A pod that selects its newest value is placed once the scheduler has read that node.
const REVISION_LABEL: &str = "revision";

/// The scheduler's decision about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerDecision {
    /// It is bound to this node.
    Placed(String),
    /// The scheduler found no node, for this reason.
    Waits(String),
}

/// A cluster with a scheduler that can be queried.
pub struct SchedulerEnv {
    cluster: Cluster,
    client: Client,
    storage: Storage,
    seen: Seen,
    revision: u64,
    watching: JoinHandle<()>,
}

/// The pods as the watch has brought them, and a signal for each change.
#[derive(Clone)]
struct Seen {
    pods: Arc<Mutex<HashMap<Key, Pod>>>,
    changed: watch::Sender<()>,
}

impl SchedulerEnv {
    /// Starts the control plane.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start() -> Result<Self> {
        let flags = [
            // No component here would remove the taint `not-ready` or the finalizers of volumes and claims, and none
            // creates service accounts.
            "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount,StorageObjectInUseProtection"
                .to_owned(),
        ];
        let options = ClusterOptions {
            controller_manager: false,
            kwok: false,
            api_server_flags: flags.to_vec(),
            ..ClusterOptions::private()
        };
        let cluster = Cluster::start(options).await?;
        let client = cluster.client().await?;
        let seen = Seen { pods: Arc::default(), changed: watch::Sender::new(()) };
        let watching = tokio::spawn(seen.clone().follow(Api::all(client.clone())));
        let storage = Storage::start(client.clone()).await?;
        let env = Self { cluster, client, storage, seen, revision: 0, watching };
        for (name, cpu) in HEAVY {
            let class = json!({
                "metadata": {"name": name}, "handler": name, "overhead": {"podFixed": {"cpu": cpu}},
            });
            create::<RuntimeClass>(&Api::all(env.client.clone()), &class, "RuntimeClass").await?;
        }
        env.create_namespace(PROBE_NODE, &json!({})).await?;
        env.create_node(&json!({
            "metadata": {"name": PROBE_NODE},
            "spec": {"taints": [{"key": PROBE_NODE, "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "0", "memory": "0", "pods": "1000"},
                "capacity": {"cpu": "0", "memory": "0", "pods": "1000"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))
        .await?;
        Ok(env)
    }

    /// The cluster, for operations that this type does not offer.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The volumes and claims.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The probe node, which the planner must know as well.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn probe_node(&self) -> Result<Value> {
        tidy(&Api::<Node>::all(self.client.clone()).get(PROBE_NODE).await?, "Node")
    }

    /// Creates a namespace.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn create_namespace(&self, name: &str, labels: &Value) -> Result<Value> {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        create::<Namespace>(&Api::all(self.client.clone()), &object, "Namespace").await
    }

    /// Creates a priority class whose pods preempt no other pod.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn create_priority(&self, name: &str, value: i32) -> Result<()> {
        let object = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"});
        create::<PriorityClass>(&Api::all(self.client.clone()), &object, "PriorityClass").await.map(|_| ())
    }

    /// Creates a node.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn create_node(&self, node: &Value) -> Result<Value> {
        create::<Node>(&Api::all(self.client.clone()), node, "Node").await
    }

    /// Creates a pod, and returns it as the API server completed it.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn create_pod(&self, pod: &Value) -> Result<Value> {
        create::<Pod>(&self.pods(&key(pod).0), pod, "Pod").await
    }

    /// Completes a pod like the API server would, without creating it.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn complete_pod(&self, pod: &Value) -> Result<Value> {
        let typed: Pod = serde_json::from_value(pod.clone())?;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let made = self.pods(&key(pod).0).create(&dry, &typed).await;
        tidy(&made.with_context(|| format!("the API server refuses {pod}"))?, "Pod")
    }

    /// Removes a pod immediately, as if it had never existed.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn remove_pod(&self, (namespace, name): &Key) -> Result<()> {
        let at_once = DeleteParams::default().grace_period(0);
        self.pods(namespace).delete(name, &at_once).await?;
        Ok(())
    }

    /// Starts the deletion of a pod that is on a node. No kubelet ends it here, so that it stays as one that is ending.
    /// Returns it as it is then.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn start_deletion(&self, (namespace, name): &Key) -> Result<Value> {
        let pods = self.pods(namespace);
        pods.delete(name, &DeleteParams::default().grace_period(GRACE_SECONDS)).await?;
        tidy(&pods.get(name).await?, "Pod")
    }

    /// Merges `status` into the status of a pod, and returns the pod.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn set_pod_status(&self, (namespace, name): &Key, status: &Value) -> Result<Value> {
        let patch = Patch::Merge(json!({"status": status}));
        tidy(&self.pods(namespace).patch_status(name, &PatchParams::default(), &patch).await?, "Pod")
    }

    /// Creates a pod that is nominated to a node before the scheduler looks at it for the first time.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn create_nominated_pod(&self, pod: &Value, node: &str) -> Result<Value> {
        let mut gated = pod.clone();
        gated["spec"]["schedulingGates"] = json!([{"name": "example.com/nomination"}]);
        self.create_pod(&gated).await?;
        let id = key(pod);
        self.set_pod_status(&id, &json!({"nominatedNodeName": node})).await?;
        let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
        let mut opened = tidy(&self.pods(&id.0).patch(&id.1, &PatchParams::default(), &open).await?, "Pod")?;
        // The scheduler may have been quicker, and have cleared it.
        opened["status"]["nominatedNodeName"] = json!(node);
        Ok(opened)
    }

    /// The current state of a pod.
    ///
    /// # Errors
    /// When the watch has never brought it.
    pub fn pod(&self, key: &Key) -> Result<Value> {
        let pods = self.seen.pods.lock().unwrap_or_else(PoisonError::into_inner);
        tidy(pods.get(key).with_context(|| format!("pod {key:?} was never seen"))?, "Pod")
    }

    /// Waits for the scheduler's decision about a pod.
    ///
    /// # Errors
    /// When there is none in time, or the scheduler fails.
    pub async fn decision(&self, key: &Key) -> Result<SchedulerDecision> {
        let mut changed = self.seen.changed.subscribe();
        let waiting = async {
            loop {
                if let Some(decision) = self.seen.decision(key) {
                    return Ok(decision);
                }
                changed.changed().await?;
            }
        };
        if let Ok(decision) = tokio::time::timeout(PATIENCE, waiting).await {
            return decision;
        }
        self.cluster.check_alive()?;
        self.storage.check_alive()?;
        bail!("the scheduler has not decided about {key:?} within {PATIENCE:?}")
    }

    /// Waits until the scheduler knows every node that was created before.
    ///
    /// It reads the changes of pods in order and those of nodes in order, but the two are not synchronized: a pod may
    /// be judged before an older node is known. So the probe node is changed last, and pods that fit only on the changed
    /// probe node are created until one is placed.
    ///
    /// # Errors
    /// When none is placed in time.
    pub async fn wait_for_nodes(&mut self) -> Result<()> {
        self.revision += 1;
        let revision = self.revision.to_string();
        let patch = Patch::Merge(json!({"metadata": {"labels": {REVISION_LABEL: revision}}}));
        Api::<Node>::all(self.client.clone()).patch(PROBE_NODE, &PatchParams::default(), &patch).await?;
        for attempt in 0..1000 {
            let probe = json!({
                "metadata": {"namespace": PROBE_NODE, "name": format!("probe-{revision}-{attempt}")},
                "spec": {
                    "nodeSelector": {REVISION_LABEL: revision},
                    "tolerations": [{"key": PROBE_NODE, "operator": "Exists"}],
                    "containers": [{"name": "probe", "image": "none"}],
                },
            });
            self.create_pod(&probe).await?;
            let decision = self.decision(&key(&probe)).await?;
            self.remove_pod(&key(&probe)).await?;
            if matches!(decision, SchedulerDecision::Placed(_)) {
                return Ok(());
            }
        }
        bail!("the scheduler has not read the newest version of the probe node")
    }

    /// Removes all nodes except the probe node, all pods and claims of `namespaces`, and all volumes.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn clear(&self, namespaces: &[String]) -> Result<()> {
        let at_once = DeleteParams::default().grace_period(0);
        for namespace in namespaces {
            self.pods(namespace).delete_collection(&at_once, &ListParams::default()).await?;
        }
        let nodes = Api::<Node>::all(self.client.clone());
        let others = ListParams::default().labels(&format!("!{REVISION_LABEL}"));
        nodes.delete_collection(&at_once, &others).await?;
        self.storage.clear(namespaces).await
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

impl Drop for SchedulerEnv {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Seen {
    fn decision(&self, key: &Key) -> Option<SchedulerDecision> {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.get(key).and_then(decision_of)
    }

    async fn follow(self, pods: Api<Pod>) {
        let events = watcher(pods, watcher::Config::default());
        let take = |event| {
            let mut known = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                    known.insert(key_of(&pod), pod);
                }
                watcher::Event::Delete(pod) => {
                    known.remove(&key_of(&pod));
                }
                watcher::Event::Init | watcher::Event::InitDone => {}
            }
            drop(known);
            self.changed.send_replace(());
            std::future::ready(Ok(()))
        };
        // If the watch fails for good, a decision never arrives.
        events.try_for_each(take).await.ok();
    }
}

/// The scheduler's decision, once there is one.
fn decision_of(pod: &Pod) -> Option<SchedulerDecision> {
    if let Some(node) = pod.spec.as_ref()?.node_name.clone().filter(|node| !node.is_empty()) {
        return Some(SchedulerDecision::Placed(node));
    }
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
    (scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable"))
        .then(|| SchedulerDecision::Waits(scheduled.message.clone().unwrap_or_default()))
}
