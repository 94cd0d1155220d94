//! A separate namespace for each test, so that tests share a cluster without seeing each other's objects.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use toolbox::messages::inform;

use super::{Cluster, client_of};
use crate::wait::{PATIENCE, eventually};

/// Time limit of the API server's answer at the end of a test, which may have failed.
const DROP_PATIENCE: Duration = Duration::from_secs(5);

/// A namespace that is deleted when this is dropped.
pub struct TestNamespace {
    name: String,
    kubeconfig: PathBuf,
    deleted: bool,
}

impl Cluster {
    /// Creates a namespace whose name is `prefix` and a random suffix.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn namespace(&self, prefix: &str) -> Result<TestNamespace> {
        self.namespace_called(&format!("{prefix}-{:08x}", rand::random::<u32>()), &[]).await
    }

    /// Creates a namespace with exactly this name and these labels.
    ///
    /// # Errors
    /// When it already exists (it is then left unchanged), or when the API server rejects it.
    pub async fn namespace_called(&self, name: &str, labels: &[(&str, &str)]) -> Result<TestNamespace> {
        let name = name.to_owned();
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let client = self.client().await?;
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), labels: Some(labels), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let created = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
        created.with_context(|| format!("cannot create the namespace {name}"))?;
        // From here on it is deleted, whatever happens next.
        let guard = TestNamespace { name: name.clone(), kubeconfig: self.kubeconfig.clone(), deleted: false };
        if !self.has_controllers() {
            return Ok(guard);
        }
        // Pods are rejected until the controller manager has created the namespace's default service account.
        let accounts = Api::<ServiceAccount>::namespaced(client, &name);
        let what = format!("the default service account of {name}");
        eventually(PATIENCE, &what, || async { Ok(accounts.get_opt("default").await?) }).await?;
        Ok(guard)
    }
}

impl TestNamespace {
    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Deletes it and waits until it is gone, which requires that every finalizer in it is removed.
    ///
    /// # Errors
    /// When it is not gone within `patience`, with what the namespace controller still waits for.
    pub async fn delete(mut self, patience: Duration) -> Result<()> {
        self.deleted = true;
        delete(&self.kubeconfig, &self.name).await?;
        let namespaces = Api::<Namespace>::all(client_of(&self.kubeconfig).await?);
        eventually(patience, &format!("the namespace {} is gone", self.name), || async {
            let Some(left) = namespaces.get_opt(&self.name).await? else {
                return Ok(Some(()));
            };
            let conditions = left.status.and_then(|status| status.conditions).unwrap_or_default();
            let waiting: Vec<String> = conditions
                .into_iter()
                .filter(|condition| condition.status == "True")
                .filter_map(|condition| condition.message)
                .collect();
            bail!("{}", waiting.join("; "))
        })
        .await
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        if self.deleted {
            return;
        }
        // A drop cannot wait on the test's own runtime, which may be shutting down, so a thread uses its own.
        let (kubeconfig, name) = (self.kubeconfig.clone(), self.name.clone());
        let deleting = std::thread::spawn(move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { tokio::time::timeout(DROP_PATIENCE, delete(&kubeconfig, &name)).await? })
        });
        match deleting.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => inform(&format!("the namespace {} may be left behind: {error:#}", self.name)),
            Err(_) => inform(&format!("the namespace {} may be left behind", self.name)),
        }
    }
}

async fn delete(kubeconfig: &Path, name: &str) -> Result<()> {
    let namespaces = Api::<Namespace>::all(client_of(kubeconfig).await?);
    match namespaces.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot delete the namespace {name}")),
    }
}
