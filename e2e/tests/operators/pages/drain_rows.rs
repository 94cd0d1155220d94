//! The rows of the table of drains: which pod is on the node, how it is made, and what can keep it there.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::objects;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

/// A finalizer of a controller that does not exist.
const FINALIZER: &str = "example.invalid/keeps";

/// How the pod is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    Deployment,
    Bare,
    /// Like a bare one, with a toleration of everything.
    Tolerant,
    DaemonSet,
    /// Of a `DaemonSet` that was deleted without its pods.
    LeftByDaemonSet,
    Mirror,
    Finished,
}

/// What keeps the pod or its node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeper {
    Budget,
    Annotation(&'static str),
    Finalizer,
    Volume,
}

/// A pod on a node of a pool of its own, which is called like the row.
pub(super) struct Row {
    /// The name of its pool and of all that is made for it. No message contains it otherwise.
    pub(super) id: &'static str,
    /// What it is, in the table.
    pub(super) kind: &'static str,
    /// `spec.drain` of its pool.
    pub(super) drain: Value,
    pub(super) made: Made,
    pub(super) keeper: Option<Keeper>,
    /// Whether the node stays until the keeper is taken away.
    pub(super) holds: bool,
}

/// All rows, in the order of the table.
pub(super) fn all() -> Vec<Row> {
    let plain = |id, kind, made| Row { id, kind, drain: json!({}), made, keeper: None, holds: false };
    let kept = |id, kind, drain: Value, keeper| {
        let holds = drain == json!({});
        Row { id, kind, drain, made: Made::Bare, keeper: Some(keeper), holds }
    };
    let no_disruption = Keeper::Annotation("karpenter.sh/do-not-disrupt=true");
    vec![
        plain("row-deployment", "of a Deployment", Made::Deployment),
        plain("row-bare", "without an owner", Made::Bare),
        plain("row-tolerant", "tolerates every taint", Made::Tolerant),
        plain("row-daemon", "of a DaemonSet", Made::DaemonSet),
        plain("row-left", "of a DaemonSet that was deleted without it", Made::LeftByDaemonSet),
        plain("row-mirror", "mirror of a static pod", Made::Mirror),
        plain("row-finished", "has `Succeeded`", Made::Finished),
        kept("row-pdb", "its budget allows no eviction", json!({}), Keeper::Budget),
        kept("row-pdb-limit", "the same", json!({"timeoutSeconds": 14}), Keeper::Budget),
        kept("row-asks", "`karpenter.sh/do-not-disrupt: \"true\"`", json!({}), no_disruption),
        kept("row-asks-last", "the same", json!({"protectedNodes": "Last"}), no_disruption),
        kept(
            "row-unsafe",
            "`cluster-autoscaler.kubernetes.io/safe-to-evict: \"false\"`",
            json!({}),
            Keeper::Annotation("cluster-autoscaler.kubernetes.io/safe-to-evict=false"),
        ),
        kept("row-ends-never", "does not end: a finalizer keeps it", json!({}), Keeper::Finalizer),
        kept("row-ends-limit", "the same", json!({"timeoutSeconds": 5}), Keeper::Finalizer),
        kept("row-volume", "its volume stays attached", json!({}), Keeper::Volume),
        kept("row-volume-limit", "the same", json!({"volumeDetachTimeoutSeconds": 3}), Keeper::Volume),
    ]
}

impl Keeper {
    /// What has to happen until the node goes.
    pub(super) const fn taken_away(self) -> &'static str {
        match self {
            Self::Budget => "when the budget is deleted",
            Self::Annotation(_) => "when the annotation is taken off",
            Self::Finalizer => "when the finalizer is taken off",
            Self::Volume => "when the `VolumeAttachment` is deleted",
        }
    }
}

impl Row {
    /// `spec.drain` as the table shows it.
    pub(super) fn limits(&self) -> String {
        let fields = self.drain.as_object().into_iter().flatten();
        let fields: Vec<String> = fields
            .map(|(field, value)| format!("`{field}: {}`", value.to_string().trim_matches('"')))
            .collect();
        if fields.is_empty() { "default".to_owned() } else { fields.join(", ") }
    }

    /// Makes its pool, with one node.
    pub(super) async fn make_pool(&self, env: &TestEnv) -> Result<()> {
        let mut pool = objects::pool(self.id, 0, 3);
        pool.spec.replicas = Some(1);
        pool.spec.drain = Some(serde_json::from_value(self.drain.clone())?);
        env.create(&pool).await?;
        Ok(())
    }

    /// The only node of its pool.
    pub(super) async fn node(&self, env: &TestEnv) -> Result<Node> {
        env.nodes(self.id).await?.into_iter().next().with_context(|| format!("{} has no node", self.id))
    }

    /// Its only pod, if there is one.
    pub(super) async fn pod(&self, env: &TestEnv) -> Result<Option<Pod>> {
        let labelled = ListParams::default().labels(&format!("app={}", self.id));
        Ok(env.api::<Pod>().list(&labelled).await?.items.into_iter().next())
    }

    /// Makes its pod on the node of its pool, and what keeps it, and waits until both are as the row says.
    pub(super) async fn make_pod(&self, env: &TestEnv) -> Result<Pod> {
        env.settles(self.id, 1).await?;
        let node = self.node(env).await?.name_any();
        match self.made {
            Made::Deployment => {
                env.create(&objects::deployment(self.id, self.id, 1, "1")).await?;
            }
            Made::DaemonSet | Made::LeftByDaemonSet => {
                env.create(&self.daemon_set()?).await?;
            }
            Made::Bare | Made::Tolerant | Made::Mirror | Made::Finished => {
                env.create(&self.bare_pod(&node)?).await?;
            }
        }
        self.is_in_phase(env, "Running").await?;
        match self.made {
            Made::LeftByDaemonSet => {
                env.kubectl(&["delete", "daemonset", self.id, "--cascade=orphan"]).await?;
            }
            Made::Finished => {
                let ended = Patch::Strategic(json!({"status": {"phase": "Succeeded"}}));
                env.api::<Pod>().patch_status(self.id, &PatchParams::default(), &ended).await?;
            }
            Made::Deployment | Made::Bare | Made::Tolerant | Made::DaemonSet | Made::Mirror => {}
        }
        match self.keeper {
            Some(Keeper::Budget) => self.make_budget(env).await?,
            Some(Keeper::Volume) => self.attach_volume(env, &node).await?,
            Some(Keeper::Annotation(_) | Keeper::Finalizer) | None => {}
        }
        let phase = if self.made == Made::Finished { "Succeeded" } else { "Running" };
        self.is_in_phase(env, phase).await
    }

    /// Takes away what keeps the pod.
    pub(super) async fn take_away(&self, env: &TestEnv, keeper: Keeper) -> Result<()> {
        match keeper {
            Keeper::Budget => {
                let _ = env.api::<PodDisruptionBudget>().delete(self.id, &DeleteParams::default()).await?;
            }
            Keeper::Annotation(annotation) => {
                let key = annotation.split('=').next().unwrap_or(annotation);
                env.kubectl(&["annotate", "pod", self.id, &format!("{key}-")]).await?;
            }
            Keeper::Finalizer => {
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                env.api::<Pod>().patch(self.id, &PatchParams::default(), &none).await?;
            }
            Keeper::Volume => {
                let attachments = Api::<VolumeAttachment>::all(env.client.clone());
                let _ = attachments.delete(&self.volume(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    async fn is_in_phase(&self, env: &TestEnv, phase: &str) -> Result<Pod> {
        let is_left = self.made == Made::LeftByDaemonSet && phase == "Running";
        eventually(PATIENCE, &format!("the pod of {} is {phase}", self.id), async || {
            let pod = self.pod(env).await?.context("no pod")?;
            let found = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            ensure!(found == phase, "it is {found}");
            let has_set = env.api::<DaemonSet>().get_opt(self.id).await?.is_some();
            ensure!(!is_left || has_set || pod.owner_references().is_empty(), "it still has an owner");
            Ok(Some(pod))
        })
        .await
    }

    fn bare_pod(&self, node: &str) -> Result<Pod> {
        let mut pod = json!({
            "metadata": {"name": self.id, "labels": {"app": self.id}},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "app", "image": "example.invalid/app"}],
            },
        });
        if self.made == Made::Mirror {
            pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": self.id});
        }
        if self.made == Made::Tolerant {
            pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        }
        match self.keeper {
            Some(Keeper::Annotation(annotation)) => {
                let (key, value) = annotation.split_once('=').context("an annotation has a value")?;
                pod["metadata"]["annotations"] = json!({key: value});
            }
            Some(Keeper::Finalizer) => pod["metadata"]["finalizers"] = json!([FINALIZER]),
            Some(Keeper::Budget | Keeper::Volume) | None => {}
        }
        Ok(serde_json::from_value(pod)?)
    }

    fn daemon_set(&self) -> Result<DaemonSet> {
        Ok(serde_json::from_value(json!({
            "metadata": {"name": self.id},
            "spec": {
                "selector": {"matchLabels": {"app": self.id}},
                "template": {
                    "metadata": {"labels": {"app": self.id}},
                    "spec": {
                        "nodeSelector": {"pool": self.id},
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "app", "image": "example.invalid/app"}],
                    },
                },
            },
        }))?)
    }

    /// A budget that allows no eviction, once it is counted: before that it refuses in other words.
    async fn make_budget(&self, env: &TestEnv) -> Result<()> {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": self.id},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": self.id}}},
        }))?;
        env.create(&budget).await?;
        let budgets = env.api::<PodDisruptionBudget>();
        eventually(PATIENCE, &format!("the budget {} is counted", self.id), async || {
            let status = budgets.get(self.id).await?.status.context("no status")?;
            ensure!(status.current_healthy == Some(1) && status.disruptions_allowed == Some(0), "{status:?}");
            Ok(Some(()))
        })
        .await
    }

    fn volume(&self) -> String {
        format!("{}-data", self.id)
    }

    /// A volume of the node that no driver detaches.
    async fn attach_volume(&self, env: &TestEnv, node: &str) -> Result<()> {
        let attachment: VolumeAttachment = serde_json::from_value(json!({
            "metadata": {"name": self.volume()},
            "spec": {
                "attacher": "example.invalid",
                "nodeName": node,
                "source": {"persistentVolumeName": self.volume()},
            },
        }))?;
        let attachments = Api::<VolumeAttachment>::all(env.client.clone());
        attachments.create(&PostParams::default(), &attachment).await?;
        Ok(())
    }
}
