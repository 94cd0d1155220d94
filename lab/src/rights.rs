//! Checks whether the lab can run on a user's cluster: its version, and the rights of the kubeconfig.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::pool;

/// Oldest supported Kubernetes: the lab's definitions rely on its validation of custom resources (CRD ratcheting and CEL
/// are on by default since then).
const OLDEST: (u32, u32) = (1, 30);

/// Whether a version, as the API server writes it (`1`, `29+`), is older than that.
fn is_too_old(major: &str, minor: &str) -> bool {
    let number =
        |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().unwrap_or(0);
    (number(major), number(minor)) < OLDEST
}

/// Fails on a cluster that is too old for the lab.
pub(crate) async fn check_version(client: &Client) -> Result<()> {
    let version = client.apiserver_version().await.context("the cluster does not tell its version")?;
    let (major, minor) = OLDEST;
    ensure!(
        !is_too_old(&version.major, &version.minor),
        "the cluster is Kubernetes {}, too old for the lab, which needs {major}.{minor} or newer",
        version.git_version
    );
    Ok(())
}

/// The rights that the lab needs: verb, group, resource with its subresource.
const RIGHTS: [(&str, &str, &str); 26] = [
    ("get", "", "namespaces"),
    ("list", "", "namespaces"),
    ("create", "", "namespaces"),
    ("delete", "", "namespaces"),
    ("list", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("delete", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("*", pool::GROUP, "*"),
    ("create", "", "configmaps"),
    ("get", "", "configmaps"),
    ("update", "", "configmaps"),
    ("patch", "", "configmaps"),
    ("create", "coordination.k8s.io", "leases"),
    ("get", "coordination.k8s.io", "leases"),
    ("update", "coordination.k8s.io", "leases"),
    ("patch", "coordination.k8s.io", "leases"),
    ("create", "", "serviceaccounts"),
    ("create", "", "serviceaccounts/token"),
    ("create", "rbac.authorization.k8s.io", "roles"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
    ("create", "", "pods"),
    ("patch", "", "pods/status"),
    ("create", "", "pods/eviction"),
    ("create", "policy", "poddisruptionbudgets"),
    ("impersonate", "", "users"),
];

/// Asks the API server for the kubeconfig's rights. Nothing is changed.
#[expect(clippy::disallowed_methods, reason = "a review is created to ask for rights, and stores nothing")]
pub(crate) async fn check_rights(client: &Client) -> Result<()> {
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
    fn a_cluster_that_is_too_old_is_recognised() {
        for (major, minor, old) in
            [("1", "29+", true), ("1", "30", false), ("1", "36+", false), ("", "", true)]
        {
            assert_eq!(is_too_old(major, minor), old, "{major}.{minor}");
        }
    }
}
