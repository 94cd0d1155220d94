//! The clusters that scenarios run on: the embedded control plane, started when it is first needed, or a cluster that the
//! user named. A user's cluster is left as it was found.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use testbed::cluster::{Cluster, ClusterOptions, TestNamespace};
use testbed::cluster_api;
use testbed::control_plane::locate::BinarySource;
use testbed::control_plane::pki::Identity;
use testbed::operators::OperatorKind;
use testbed::wait::eventually;
use tokio::sync::OnceCell;

use crate::pool;
use crate::rights::{check_rights, check_version};
use crate::scenario::Needs;

/// The label on the objects that the lab creates in a cluster; its value identifies the run.
pub(crate) const RUN_LABEL: &str = "tandem.dev/lab-run";
/// Time limit until a definition is served.
const SERVED: Duration = Duration::from_secs(30);
/// Time limit of a namespace's deletion.
const GONE: Duration = Duration::from_secs(90);

/// Where to run scenarios.
#[derive(Clone, Debug)]
pub enum ClusterSource {
    /// An embedded control plane.
    Embedded,
    /// The cluster of this kubeconfig.
    Named(PathBuf),
}

/// The audit logs of the started control planes.
#[derive(Clone, Debug)]
pub struct AuditLogs {
    /// The log of the one with only an API server.
    pub small: Option<PathBuf>,
    /// The log of the one that operators run on.
    pub large: Option<PathBuf>,
    /// The log of the one with Cluster API's definitions.
    pub cluster_api: Option<PathBuf>,
    /// The user of the unrecorded client, which prepares scenarios.
    pub admin: &'static str,
}

/// The clusters that scenarios run on.
pub struct ClusterPool {
    source: ClusterSource,
    prefix: String,
    small: OnceCell<Arc<Cluster>>,
    large: OnceCell<Arc<Cluster>>,
    cluster_api: OnceCell<Arc<Cluster>>,
    /// Identifies this run, in a label on all objects that it creates outside its namespaces.
    run: String,
}

impl ClusterPool {
    /// A pool of clusters whose namespaces begin with `prefix`. Nothing is started yet.
    pub fn new(source: ClusterSource, prefix: &str) -> Self {
        Self {
            source,
            prefix: prefix.to_owned(),
            small: OnceCell::new(),
            large: OnceCell::new(),
            cluster_api: OnceCell::new(),
            run: format!("{:016x}", rand::random::<u64>()),
        }
    }

    /// Checks a named cluster before anything is created there.
    ///
    /// # Errors
    /// When it does not answer, is too old, or the kubeconfig lacks rights, which are named.
    pub async fn open(&self) -> Result<()> {
        if let ClusterSource::Named(kubeconfig) = &self.source {
            let source = Some(BinarySource::Foreign(kubeconfig.clone()));
            let cluster = Cluster::start(ClusterOptions { source, ..ClusterOptions::default() }).await?;
            let client = cluster.client().await?;
            check_version(&client).await?;
            check_rights(&client).await?;
            // Before the definitions, so that they are removed even if this is interrupted.
            self.small.set(Arc::new(cluster)).ok().context("the cluster is set once")?;
            self.define(&client).await?;
        }
        Ok(())
    }

    /// Whether a scenario with these `needs` can run here.
    pub fn can_play(&self, needs: Needs) -> bool {
        matches!(self.source, ClusterSource::Embedded) || !needs.is_embedded()
    }

    /// The cluster for a scenario with these `needs`.
    pub async fn cluster(&self, needs: Needs) -> Result<Arc<Cluster>> {
        ensure!(
            self.can_play(needs),
            "this scenario needs the embedded control plane; leave --kubeconfig out"
        );
        let (cell, options) = match needs {
            Needs::ApiServer | Needs::Embedded => (&self.small, ClusterOptions::api_only()),
            Needs::Operators => (&self.large, ClusterOptions::private()),
            // Its definitions and their watches would slow the scenarios that count and measure.
            Needs::ClusterApi => (&self.cluster_api, ClusterOptions::private()),
        };
        let start = async || -> Result<Arc<Cluster>> {
            // Building them may take minutes, which do not count for the scenario.
            if needs.has_operators() {
                OperatorKind::NodePool.binary().await?;
                OperatorKind::Autoscaler.binary().await?;
            }
            if needs == Needs::ClusterApi {
                cluster_api::build().await?;
            }
            let cluster = Cluster::start(options).await?;
            self.define(&cluster.client().await?).await?;
            if needs == Needs::ClusterApi {
                cluster_api::install(&cluster).await?;
            }
            Ok(Arc::new(cluster))
        };
        cell.get_or_try_init(start).await.cloned()
    }

    /// Creates the namespace of a scenario.
    ///
    /// # Errors
    /// When a namespace of that name exists: the lab does not use it.
    pub async fn namespace(&self, cluster: &Cluster, scenario: &str) -> Result<TestNamespace> {
        let name = format!("{}-{scenario}", self.prefix);
        let exists = Api::<Namespace>::all(cluster.client().await?)
            .get_opt(&name)
            .await
            .with_context(|| format!("cannot look for the namespace {name}"))?
            .is_some();
        if exists {
            bail!(
                "the namespace {name} exists already, perhaps from a run that was cut off; delete it if it is not \
                 needed, or choose other names with --namespace PREFIX"
            );
        }
        cluster.namespace_called(&name, &[(RUN_LABEL, &self.run)]).await
    }

    /// The complete audit logs so far; the files exist until [`Self::close`].
    ///
    /// # Errors
    /// When a log does not contain the last request in time.
    pub async fn audit_logs(&self) -> Result<AuditLogs> {
        let (small, large) = (complete_log(self.small.get()).await?, complete_log(self.large.get()).await?);
        let cluster_api = complete_log(self.cluster_api.get()).await?;
        Ok(AuditLogs { small, large, cluster_api, admin: Identity::Admin.user() })
    }

    /// Removes a namespace, and on a named cluster waits until it is gone.
    pub async fn clear(&self, cluster: &Cluster, namespace: TestNamespace) -> Result<()> {
        match self.source {
            // The control plane is removed as a whole, and a small one has no namespace controller.
            ClusterSource::Embedded => Ok(()),
            ClusterSource::Named(_) => {
                release(&cluster.client().await?, namespace.name()).await?;
                namespace.delete(GONE).await
            }
        }
    }

    /// Restores a named cluster, even if a scenario was interrupted. Continues after an error, and returns all errors.
    pub async fn close(self) -> Result<()> {
        let mut errors = Vec::new();
        if let (ClusterSource::Named(_), Some(cluster)) = (&self.source, self.small.get()) {
            errors.extend(self.tidy(cluster).await.err());
        }
        for cluster in [self.small, self.large, self.cluster_api].into_iter().filter_map(OnceCell::into_inner)
        {
            if let Some(cluster) = Arc::into_inner(cluster) {
                errors.extend(cluster.stop().await.err());
            }
        }
        together(&errors)
    }

    /// The label selector of the objects that this run created.
    pub fn label(&self) -> String {
        format!("{RUN_LABEL}={}", self.run)
    }

    /// Removes every namespace and definition with the label of this run, including those of an interrupted creation.
    #[expect(
        clippy::disallowed_methods,
        reason = "objects of this run are removed, whatever their version is"
    )]
    async fn tidy(&self, cluster: &Cluster) -> Result<()> {
        let client = cluster.client().await?;
        let ours = ListParams::default().labels(&self.label());
        let mut errors = Vec::new();
        let namespaces = Api::<Namespace>::all(client.clone());
        for namespace in namespaces.list_metadata(&ours).await?.items {
            let name = namespace.metadata.name.unwrap_or_default();
            errors.extend(release(&client, &name).await.err());
            errors.extend(unless_gone(namespaces.delete(&name, &DeleteParams::default()).await).err());
        }
        let gone = eventually(GONE, "the namespaces of this run are gone", async || {
            let left = namespaces.list_metadata(&ours).await?.items;
            let names: Vec<_> = left.into_iter().filter_map(|left| left.metadata.name).collect();
            if names.is_empty() { Ok(Some(())) } else { bail!("{} is left", names.join(", ")) }
        });
        errors.extend(gone.await.err());
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        for definition in definitions.list_metadata(&ours).await?.items {
            let name = definition.metadata.name.unwrap_or_default();
            errors.extend(unless_gone(definitions.delete(&name, &DeleteParams::default()).await).err());
        }
        together(&errors)
    }

    /// Creates the lab's definitions, and waits until they are served.
    #[expect(clippy::disallowed_methods, reason = "only this run creates the definition, once")]
    async fn define(&self, client: &Client) -> Result<()> {
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        for mut definition in pool::definitions()? {
            let name = definition.metadata.name.clone().unwrap_or_default();
            definition.metadata.labels.get_or_insert_default().insert(RUN_LABEL.to_owned(), self.run.clone());
            match definitions.create(&PostParams::default(), &definition).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => bail!(
                    "the definition {name} exists already: another lab is at work on this cluster, or one was cut \
                     off; wait for it, or delete the definition if nothing needs it"
                ),
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make the definition {name}"));
                }
            }
            let objects = Api::<DynamicObject>::all_with(client.clone(), &resource_of(&definition));
            eventually(SERVED, &format!("{name} is served"), async || {
                Ok(Some(objects.list(&ListParams::default().limit(1)).await?))
            })
            .await?;
        }
        Ok(())
    }
}

/// The path of the cluster's audit log, once it contains every request that was answered before: a line may be written a
/// moment after the answer, so a marker request is sent and waited for.
async fn complete_log(cluster: Option<&Arc<Cluster>>) -> Result<Option<PathBuf>> {
    let Some((cluster, log)) = cluster.and_then(|cluster| Some((cluster, cluster.audit_log()?))) else {
        return Ok(None);
    };
    let (end, mark) = (log.end()?, format!("mark-{:016x}", rand::random::<u64>()));
    let configs = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(cluster.client().await?);
    configs.get_opt(&mark).await.context("the control plane does not answer any more")?;
    log.wait_for(end, SERVED, "the audit log is complete", |events| {
        let is_mark = |event: &testbed::audit::Event| event.object.as_ref().is_some_and(|of| of.name == mark);
        events.iter().any(is_mark).then_some(())
    })
    .await?;
    Ok(Some(log.path().to_owned()))
}

fn unless_gone<T>(answer: Result<T, kube::Error>) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop).map_err(Into::into),
    }
}

fn together(errors: &[anyhow::Error]) -> Result<()> {
    let texts: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
    if texts.is_empty() { Ok(()) } else { bail!("{}", texts.join("; ")) }
}

/// Removes the finalizers of the lab's objects in a namespace: an interrupted scenario may have left one.
#[expect(clippy::disallowed_methods, reason = "these objects are the lab's own, and are about to be deleted")]
async fn release(client: &Client, namespace: &str) -> Result<()> {
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for definition in pool::definitions()? {
        let objects =
            Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource_of(&definition));
        for held in objects.list_metadata(&ListParams::default()).await? {
            if held.metadata.finalizers.is_none_or(|finalizers| finalizers.is_empty()) {
                continue;
            }
            let name = held.metadata.name.unwrap_or_default();
            match objects.patch_metadata(&name, &PatchParams::default(), &free).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                answer => drop(answer.with_context(|| format!("cannot let go of {name}"))?),
            }
        }
    }
    Ok(())
}

fn resource_of(definition: &CustomResourceDefinition) -> ApiResource {
    let names = &definition.spec.names;
    let kind = GroupVersionKind::gvk(pool::GROUP, "v1", &names.kind);
    ApiResource::from_gvk_with_plural(&kind, &names.plural)
}
