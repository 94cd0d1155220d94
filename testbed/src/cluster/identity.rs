//! Kubeconfigs for identities other than the administrator: those of the operators in the cluster.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kube::{Api, Client};

use super::{Cluster, client_of};
use crate::control_plane::layout::write;
use crate::control_plane::pki::kubeconfig_with_token;

/// Longer than any run: no kubelet renews a token here.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// A namespace, a service account in it, and the right to everything.
const CONTROLLER: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: NAME, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE-NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: NAME, namespace: NAMESPACE}]
";

impl Cluster {
    /// Writes a kubeconfig for a controller of another project: a service account of its own, made if it is missing, with all
    /// rights. The audit log then tells its requests from those of the administrator.
    ///
    /// # Errors
    /// When the API server rejects the account or issues no token.
    pub async fn kubeconfig_for_controller(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let objects = CONTROLLER.replace("NAMESPACE", namespace).replace("NAME", name);
        self.kubectl_with_input(&["apply", "--server-side", "--filename", "-"], &objects).await?;
        self.kubeconfig_for_service_account(namespace, name).await
    }

    /// Writes a kubeconfig with a token of the service account `namespace/name`, which must exist. It has exactly the
    /// rights of a pod with this account.
    ///
    /// # Errors
    /// When the account does not exist or the API server issues no token.
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client().await?, namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let issued: TokenRequest = accounts
            .create_subresource("token", name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("no token for the service account {namespace}/{name}"))?;
        let token = issued.status.and_then(|status| status.token);
        let token = token.context("the API server answered without a token")?;
        let base = Kubeconfig::read_from(&self.kubeconfig)?;
        let user = format!("{namespace}-{name}");
        let path = self.root().join(format!("serviceaccount-{user}.kubeconfig"));
        write(&path, &serde_saphyr::to_string(&kubeconfig_with_token(&base, &user, token)?)?)?;
        Ok(path)
    }

    /// A client with exactly the rights of a service account; like [`Cluster::client`] it never retries a request.
    ///
    /// # Errors
    /// Same as [`Cluster::kubeconfig_for_service_account`].
    pub async fn client_for_service_account(&self, namespace: &str, name: &str) -> Result<Client> {
        client_of(&self.kubeconfig_for_service_account(namespace, name).await?).await
    }
}
