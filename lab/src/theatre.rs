//! Where scenarios can be played: the embedded control plane, started when it is first needed, or a cluster that was named.
//! It is left as it was found.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::{Cluster, Options, TestNamespace};
use e2e::control_plane::locate::Source;
use e2e::control_plane::pki::Identity;
use e2e::operators::Operator;
use e2e::wait::eventually;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{Mutex, OnceCell};

use crate::pool;
use crate::scenario::Needs;

/// Oldest Kubernetes that the lab knows: the first whose validation of custom resources its definitions rely on
/// (CRD ratcheting and CEL are on by default from here on).
const OLDEST: (u32, u32) = (1, 30);
/// How long a definition may take until it is served.
const SERVED: Duration = Duration::from_secs(30);
/// How long a namespace may take to go.
const GONE: Duration = Duration::from_secs(90);

/// Where to play.
#[derive(Clone, Debug)]
pub enum Venue {
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
pub struct Theatre {
    venue: Venue,
    prefix: String,
    small: OnceCell<Arc<Cluster>>,
    large: OnceCell<Arc<Cluster>>,
    /// Definitions that this run made, to be taken away again.
    made: Mutex<Vec<String>>,
    /// Namespaces of scenarios under way.
    open: Mutex<Vec<String>>,
}

impl Theatre {
    /// A theatre whose namespaces begin with `prefix`. Nothing is started yet.
    pub fn new(venue: Venue, prefix: &str) -> Self {
        Self {
            venue,
            prefix: prefix.to_owned(),
            small: OnceCell::new(),
            large: OnceCell::new(),
            made: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// Looks at a named cluster before anything is done to it.
    ///
    /// # Errors
    /// When it does not answer, is too old, or lets us do too little: says which right is missing.
    pub async fn open(&self) -> Result<()> {
        if let Venue::Named(kubeconfig) = &self.venue {
            let source = Some(Source::Foreign(kubeconfig.clone()));
            let cluster = Cluster::start(Options { source, ..Options::default() }).await?;
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
        matches!(self.venue, Venue::Embedded) || !needs.is_embedded()
    }

    /// The cluster for what `needs` it.
    pub async fn cluster(&self, needs: Needs) -> Result<Arc<Cluster>> {
        ensure!(
            self.can_play(needs),
            "this scenario needs the embedded control plane; leave --kubeconfig out"
        );
        let (cell, options) = match needs {
            Needs::ApiServer | Needs::Embedded => (&self.small, Options::api_only()),
            Needs::Operators => (&self.large, Options::private()),
        };
        let start = async || -> Result<Arc<Cluster>> {
            if needs == Needs::Operators {
                // Building them may take minutes, which are not a scenario's.
                Operator::NodePool.binary().await?;
                Operator::Autoscaler.binary().await?;
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
        self.open.lock().await.push(name.clone());
        cluster.namespace_called(&name).await
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
            Venue::Embedded => Ok(()),
            Venue::Named(_) => {
                let name = namespace.name().to_owned();
                release(&cluster.client().await?, &name).await?;
                namespace.delete(GONE).await?;
                self.open.lock().await.retain(|open| *open != name);
                Ok(())
            }
        }
    }

    /// Leaves a named cluster as it was.
    #[expect(
        clippy::disallowed_methods,
        reason = "what this run made is taken away, whatever version it has"
    )]
    pub async fn close(self) -> Result<()> {
        let made = std::mem::take(&mut *self.made.lock().await);
        if let (Venue::Named(_), Some(cluster)) = (&self.venue, self.small.get()) {
            let client = cluster.client().await?;
            for namespace in std::mem::take(&mut *self.open.lock().await) {
                // Its scenario was cut off, and the namespace is on its way out already.
                release(&client, &namespace).await?;
                let namespaces = Api::<Namespace>::all(client.clone());
                eventually(GONE, &format!("the namespace {namespace} is gone"), async || {
                    Ok(namespaces.get_metadata_opt(&namespace).await?.is_none().then_some(()))
                })
                .await?;
            }
            let definitions = Api::<CustomResourceDefinition>::all(client);
            for name in made {
                match definitions.delete(&name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    answer => drop(answer.with_context(|| format!("cannot remove the definition {name}"))?),
                }
            }
        }
        for cluster in [self.small, self.large].into_iter().filter_map(OnceCell::into_inner) {
            if let Some(cluster) = Arc::into_inner(cluster) {
                cluster.stop().await?;
            }
        }
        Ok(())
    }

    /// Makes the lab's definitions where they are not, and waits until they are served.
    #[expect(clippy::disallowed_methods, reason = "a definition is made once, and by nobody else")]
    async fn define(&self, client: &Client) -> Result<()> {
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        for definition in pool::definitions()? {
            let name = definition.metadata.name.clone().unwrap_or_default();
            // Noted first: a creation that is cut off may have been carried out.
            let exists = definitions.get_metadata_opt(&name).await?.is_some();
            if !exists {
                self.made.lock().await.push(name.clone());
            }
            match definitions.create(&PostParams::default(), &definition).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 && exists => {}
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

/// Whether a version, as the API server writes it (`1`, `29+`), is one that the lab does not know.
fn is_too_old(major: &str, minor: &str) -> bool {
    let number =
        |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().unwrap_or(0);
    (number(major), number(minor)) < OLDEST
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

async fn check_version(client: &Client) -> Result<()> {
    let version = client.apiserver_version().await.context("the cluster does not tell its version")?;
    let (major, minor) = OLDEST;
    ensure!(
        !is_too_old(&version.major, &version.minor),
        "the cluster is Kubernetes {}, too old for the lab, which needs {major}.{minor} or newer",
        version.git_version
    );
    Ok(())
}

/// What the lab has to be allowed: verb, group, resource with its subresource.
const RIGHTS: [(&str, &str, &str); 13] = [
    ("create", "", "namespaces"),
    ("delete", "", "namespaces"),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("delete", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("*", pool::GROUP, "*"),
    ("create", "", "configmaps"),
    ("patch", "", "configmaps"),
    ("create", "", "serviceaccounts"),
    ("create", "", "serviceaccounts/token"),
    ("create", "", "pods"),
    ("patch", "", "pods/status"),
    ("create", "policy", "poddisruptionbudgets"),
    ("impersonate", "", "users"),
];

/// Asks the API server whether it would let us. Nothing is changed.
#[expect(clippy::disallowed_methods, reason = "a review is a question, though it is asked by a create")]
async fn check_rights(client: &Client) -> Result<()> {
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let mut missing = Vec::new();
    for (verb, group, path) in RIGHTS {
        let (resource, subresource) = path.split_once('/').map_or((path, None), |(of, sub)| (of, Some(sub)));
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource: subresource.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.context("the cluster does not say what may be done")?;
        if !answer.status.is_some_and(|status| status.allowed) {
            let dot = if group.is_empty() { "" } else { "." };
            missing.push(format!("{verb} {path}{dot}{group}"));
        }
    }
    ensure!(
        missing.is_empty(),
        "this kubeconfig may not: {}; use one that may, the lab makes namespaces and definitions of its own and removes them",
        missing.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_too_old_is_told_from_one_that_is_not() {
        for (major, minor, old) in
            [("1", "29+", true), ("1", "30", false), ("1", "36+", false), ("", "", true)]
        {
            assert_eq!(is_too_old(major, minor), old, "{major}.{minor}");
        }
    }
}
