//! Where scenarios can be played: the embedded control plane, started when it is first needed, or a cluster that was named.
//! It is left as it was found.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::{Cluster, ClusterOptions, TestNamespace};
use e2e::control_plane::locate::BinarySource;
use e2e::control_plane::pki::Identity;
use e2e::operators::OperatorKind;
use e2e::wait::eventually;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::pool;
use crate::rights::{check_rights, check_version};
use crate::scenario::Needs;

/// The label on what the lab makes in a cluster; its value names the run.
pub(crate) const RUN_LABEL: &str = "tandem.dev/lab-run";
/// How long a definition may take until it is served.
const SERVED: Duration = Duration::from_secs(30);
/// How long a namespace may take to go.
const GONE: Duration = Duration::from_secs(90);

/// Where to play.
#[derive(Clone, Debug)]
pub enum ClusterSource {
    /// A control plane of our own.
    Embedded,
    /// The cluster of this kubeconfig.
    Named(PathBuf),
}

/// The audit logs of the control planes that were started.
#[derive(Clone, Debug)]
pub struct AuditLogs {
    /// Of the one with an API server alone.
    pub small: Option<PathBuf>,
    /// Of the one that operators run on.
    pub large: Option<PathBuf>,
    /// The user that backstage requests come from.
    pub admin: &'static str,
}

/// The clusters that scenarios are played on.
pub struct ClusterPool {
    venue: ClusterSource,
    prefix: String,
    small: OnceCell<Arc<Cluster>>,
    large: OnceCell<Arc<Cluster>>,
    /// Names this run, in a label on everything that it makes outside its namespaces.
    run: String,
}

impl ClusterPool {
    /// A pool of clusters whose namespaces begin with `prefix`. Nothing is started yet.
    pub fn new(venue: ClusterSource, prefix: &str) -> Self {
        Self {
            venue,
            prefix: prefix.to_owned(),
            small: OnceCell::new(),
            large: OnceCell::new(),
            run: format!("{:016x}", rand::random::<u64>()),
        }
    }

    /// Looks at a named cluster before anything is done to it.
    ///
    /// # Errors
    /// When it does not answer, is too old, or lets us do too little: says which right is missing.
    pub async fn open(&self) -> Result<()> {
        if let ClusterSource::Named(kubeconfig) = &self.venue {
            let source = Some(BinarySource::Foreign(kubeconfig.clone()));
            let cluster = Cluster::start(ClusterOptions { source, ..ClusterOptions::default() }).await?;
            let client = cluster.client().await?;
            check_version(&client).await?;
            check_rights(&client).await?;
            // Before the definitions, so that they are taken away also when this is cut off.
            self.small.set(Arc::new(cluster)).ok().context("the cluster is set once")?;
            self.define(&client).await?;
        }
        Ok(())
    }

    /// Whether what `needs` this can be played here.
    pub fn can_play(&self, needs: Needs) -> bool {
        matches!(self.venue, ClusterSource::Embedded) || !needs.is_embedded()
    }

    /// The cluster for what `needs` it.
    pub async fn cluster(&self, needs: Needs) -> Result<Arc<Cluster>> {
        ensure!(
            self.can_play(needs),
            "this scenario needs the embedded control plane; leave --kubeconfig out"
        );
        let (cell, options) = match needs {
            Needs::ApiServer | Needs::Embedded => (&self.small, ClusterOptions::api_only()),
            Needs::Operators => (&self.large, ClusterOptions::private()),
        };
        let start = async || -> Result<Arc<Cluster>> {
            if needs == Needs::Operators {
                // Building them may take minutes, which are not a scenario's.
                OperatorKind::NodePool.binary().await?;
                OperatorKind::Autoscaler.binary().await?;
            }
            let cluster = Cluster::start(options).await?;
            self.define(&cluster.client().await?).await?;
            Ok(Arc::new(cluster))
        };
        cell.get_or_try_init(start).await.cloned()
    }

    /// A namespace for a scenario.
    ///
    /// # Errors
    /// When there is one of that name: it is somebody's, and left alone.
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

    /// The audit logs of what was played so far, complete, until [`Self::close`].
    ///
    /// # Errors
    /// When a log does not show what was asked last.
    pub async fn audit_logs(&self) -> Result<AuditLogs> {
        let (small, large) = (complete_log(self.small.get()).await?, complete_log(self.large.get()).await?);
        Ok(AuditLogs { small, large, admin: Identity::Admin.user() })
    }

    /// Takes a namespace away, and on a named cluster waits until it is gone.
    pub async fn clear(&self, cluster: &Cluster, namespace: TestNamespace) -> Result<()> {
        match self.venue {
            // The control plane goes as a whole, and a small one has nobody who would empty the namespace.
            ClusterSource::Embedded => Ok(()),
            ClusterSource::Named(_) => {
                release(&cluster.client().await?, namespace.name()).await?;
                namespace.delete(GONE).await
            }
        }
    }

    /// Leaves a named cluster as it was, whatever is under way. It goes on after an error, and ends with all of them.
    pub async fn close(self) -> Result<()> {
        let mut errors = Vec::new();
        if let (ClusterSource::Named(_), Some(cluster)) = (&self.venue, self.small.get()) {
            errors.extend(self.tidy(cluster).await.err());
        }
        for cluster in [self.small, self.large].into_iter().filter_map(OnceCell::into_inner) {
            if let Some(cluster) = Arc::into_inner(cluster) {
                errors.extend(cluster.stop().await.err());
            }
        }
        together(&errors)
    }

    /// What tells the things that this run made from others.
    pub fn label(&self) -> String {
        format!("{RUN_LABEL}={}", self.run)
    }

    /// Takes away every namespace and definition with the label of this run, also one whose making was cut off.
    #[expect(clippy::disallowed_methods, reason = "what this run made goes, whatever version it has")]
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

    /// Makes the lab's definitions, and waits until they are served.
    #[expect(clippy::disallowed_methods, reason = "a definition is made once, and by nobody else")]
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

/// Where the cluster's audit log is, when everything that was answered before stands in it: an answer can be there a moment
/// before its line is, so something is asked and waited for.
async fn complete_log(cluster: Option<&Arc<Cluster>>) -> Result<Option<PathBuf>> {
    let Some((cluster, log)) = cluster.and_then(|cluster| Some((cluster, cluster.audit_log()?))) else {
        return Ok(None);
    };
    let (end, mark) = (log.end()?, format!("mark-{:016x}", rand::random::<u64>()));
    let configs = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(cluster.client().await?);
    configs.get_opt(&mark).await.context("the control plane does not answer any more")?;
    log.wait_for(end, SERVED, "the audit log is complete", |events| {
        let is_mark = |event: &e2e::audit::Event| event.object.as_ref().is_some_and(|of| of.name == mark);
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
    let told: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
    if told.is_empty() { Ok(()) } else { bail!("{}", told.join("; ")) }
}

/// Lets go of the lab's objects in a namespace: a scenario that was cut off may have left its finalizer on one.
#[expect(clippy::disallowed_methods, reason = "these objects are the lab's own, and about to go")]
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
