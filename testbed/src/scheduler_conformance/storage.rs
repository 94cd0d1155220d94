//! Volumes and claims, and what binds them: the controllers that do this in a cluster do not run here, so that nothing
//! changes without the planner's knowledge. The scheduler chooses a node and records it on a claim or on a volume; the
//! binder reacts like those controllers, and the scheduler then binds the pod.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, anyhow};
use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::infrastructure::{ZONE, only, storage_classes};
use super::objects::{create, key, tidy};

/// The annotation that marks a claim as bound; the scheduler trusts only this annotation.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The annotation by which the scheduler requests a volume that can be used on a node.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The volumes and claims of a [`SchedulerEnv`](super::scheduler_env::SchedulerEnv).
pub struct Storage {
    apis: Apis,
    /// Why the binder has stopped; unset while it is running.
    stopped: Arc<OnceLock<String>>,
    binding: JoinHandle<()>,
}

#[derive(Clone)]
struct Apis {
    client: Client,
    volumes: Api<PersistentVolume>,
}

impl Storage {
    /// Creates the storage classes, and from now on binds what the scheduler requests.
    ///
    /// # Errors
    /// When the API server rejects them.
    pub(super) async fn start(client: Client) -> Result<Self> {
        let classes: Api<StorageClass> = Api::all(client.clone());
        for class in storage_classes() {
            create(&classes, &class, "StorageClass").await?;
        }
        let apis = Apis { volumes: Api::all(client.clone()), client };
        let stopped = Arc::new(OnceLock::new());
        let binder = Binder { apis: apis.clone() };
        let why = Arc::clone(&stopped);
        let binding = tokio::spawn(async move {
            let ended = binder.run().await.err().unwrap_or_else(|| anyhow!("its watches have ended"));
            why.set(format!("{ended:#}")).ok();
        });
        Ok(Self { apis, stopped, binding })
    }

    /// Checks that the binder is running.
    ///
    /// # Errors
    /// Why it has stopped.
    pub fn check_alive(&self) -> Result<()> {
        self.stopped.get().map_or(Ok(()), |why| Err(anyhow!("the binder of claims has stopped: {why}")))
    }

    /// All volumes, and the claims of `namespaces`, in their current state.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn objects(&self, namespaces: &[String]) -> Result<Vec<Value>> {
        let all = ListParams::default();
        let volumes = self.apis.volumes.list(&all).await?;
        let mut objects: Vec<_> =
            volumes.iter().map(|volume| tidy(volume, "PersistentVolume")).collect::<Result<_>>()?;
        for namespace in namespaces {
            for claim in self.apis.claims(namespace).list(&all).await? {
                objects.push(tidy(&claim, "PersistentVolumeClaim")?);
            }
        }
        Ok(objects)
    }

    /// Creates a claim with the access mode `mode` that is bound to its own volume, whose location is `affinity`.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn create_volume(
        &self,
        (namespace, name): (&str, &str),
        mode: &str,
        affinity: Option<Value>,
    ) -> Result<()> {
        let claim = json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "",
            },
        });
        let claim = self.create_claim(&claim).await?;
        self.apis.make(&claim, &format!("{namespace}-{name}"), affinity).await
    }

    /// Creates an unbound claim.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn create_claim(&self, claim: &Value) -> Result<PersistentVolumeClaim> {
        let (namespace, name) = key(claim);
        let claims = self.apis.claims(&namespace);
        create(&claims, claim, "PersistentVolumeClaim").await?;
        Ok(claims.get(&name).await?)
    }

    /// Creates a volume without a claim.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn create_free_volume(&self, volume: &Value) -> Result<()> {
        create(&self.apis.volumes, volume, "PersistentVolume").await?;
        self.apis.set_phase(&self.apis.volumes, &key(volume).1, "Available").await
    }

    /// Removes the claims of `namespaces`, and all volumes.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub(super) async fn clear(&self, namespaces: &[String]) -> Result<()> {
        let (at_once, all) = (DeleteParams::default(), ListParams::default());
        for namespace in namespaces {
            self.apis.claims(namespace).delete_collection(&at_once, &all).await?;
        }
        self.apis.volumes.delete_collection(&at_once, &all).await?;
        Ok(())
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.binding.abort();
    }
}

impl Apis {
    fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates a volume for `claim` and binds them.
    async fn make(&self, claim: &PersistentVolumeClaim, name: &str, affinity: Option<Value>) -> Result<()> {
        let asked = claim.spec.as_ref().context("a claim without a spec")?;
        let volume = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": asked.access_modes,
                "capacity": asked.resources.as_ref().and_then(|resources| resources.requests.as_ref()),
                "storageClassName": asked.storage_class_name,
                "persistentVolumeReclaimPolicy": "Retain",
                "nfs": {"server": "none", "path": "/"},
                "nodeAffinity": affinity,
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid(),
                },
            },
        });
        create(&self.volumes, &volume, "PersistentVolume").await?;
        self.bind(&claim.namespace().unwrap_or_default(), &claim.name_any(), name).await
    }

    /// Binds a claim to its intended volume. The field that the scheduler waits for is written last, so that a reader
    /// that runs after the scheduler finds both bound.
    async fn bind(&self, namespace: &str, claim: &str, volume: &str) -> Result<()> {
        let claims = self.claims(namespace);
        self.set_phase(&self.volumes, volume, "Bound").await?;
        self.set_phase(&claims, claim, "Bound").await?;
        let bound = json!({
            "metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": volume},
        });
        claims.patch(claim, &PatchParams::default(), &Patch::Merge(bound)).await?;
        Ok(())
    }

    async fn set_phase<K>(&self, api: &Api<K>, name: &str, phase: &str) -> Result<()>
    where
        K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        api.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// Binds what the scheduler requests.
struct Binder {
    apis: Apis,
}

impl Binder {
    async fn run(self) -> Result<()> {
        tokio::try_join!(self.make_volumes(), self.bind_volumes()).map(|_| ())
    }

    async fn make_volumes(&self) -> Result<()> {
        let mut claims = pin!(applied(Api::all(self.apis.client.clone())));
        while let Some(claim) = claims.try_next().await? {
            self.claim(&claim).await?;
        }
        Ok(())
    }

    async fn bind_volumes(&self) -> Result<()> {
        let mut volumes = pin!(applied(self.apis.volumes.clone()));
        while let Some(volume) = volumes.try_next().await? {
            self.volume(&volume).await?;
        }
        Ok(())
    }

    /// Creates the volume that the scheduler requests for a claim, in the zone of the chosen node.
    async fn claim(&self, claim: &PersistentVolumeClaim) -> Result<()> {
        let Some(node) = claim.annotations().get(SELECTED_NODE) else { return Ok(()) };
        let name = format!("made-{}", claim.uid().context("a claim without a UID")?);
        if self.apis.volumes.get_opt(&name).await?.is_some() {
            return Ok(());
        }
        let node = Api::<Node>::all(self.apis.client.clone()).get(node).await?;
        let affinity = node.labels().get(ZONE).map(|zone| only(ZONE, zone));
        self.apis.make(claim, &name, affinity).await
    }

    /// Binds the claim for which the scheduler has chosen a volume.
    async fn volume(&self, volume: &PersistentVolume) -> Result<()> {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let (Some(claim), Some("Available")) = (claim, phase) else { return Ok(()) };
        let (namespace, name) = (claim.namespace.as_deref(), claim.name.as_deref());
        self.apis.bind(namespace.unwrap_or_default(), name.unwrap_or_default(), &volume.name_any()).await
    }
}

fn applied<K>(api: Api<K>) -> impl Stream<Item = Result<K>> + Send
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher(api, watcher::Config::default()).applied_objects().map_err(Into::into)
}
