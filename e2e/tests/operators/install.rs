//! The chart on a real API server: installed, rejected, upgraded, removed; and what its roles allow and do not allow.

#![expect(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use shared_crds::ownership::{self, Owner, Rule};
use shared_crds::{NodePool, NodePoolAutoscaler, names};
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::objects;
use testbed::places::Places;
use testbed::tandem::{Release, chart};
use testbed::test_env::{PATIENCE, RELEASE_NAMESPACE};
use testbed::wait::eventually;

/// Their own control plane: the pools that they leave, without a running operator, would be work for the operators of
/// other tests.
pub(super) static PLACES: Places = Places::new(1, ClusterOptions::private);

const NODE_POOL_ACCOUNT: &str = "tandem-nodepool-operator";
const AUTOSCALER_ACCOUNT: &str = "tandem-autoscaler-operator";

/// Whether the answer is a 403 with the reason Forbidden.
fn is_forbidden<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> bool {
    match answer {
        Err(kube::Error::Api(status)) => status.is_forbidden(),
        Ok(_) | Err(_) => false,
    }
}

async fn account(cluster: &Cluster, name: &str) -> Client {
    cluster.client_for_service_account(RELEASE_NAMESPACE, name).await.unwrap()
}

/// Waits until the API server knows the roles of both accounts, which come from a watch. Those of their pools are made last.
async fn has_roles(cluster: &Cluster) {
    let rights: [(&str, &[&str]); 4] = [
        (AUTOSCALER_ACCOUNT, &["get"]),
        (AUTOSCALER_ACCOUNT, &["patch", "--subresource=scale"]),
        (AUTOSCALER_ACCOUNT, &["patch", "--subresource=status"]),
        (NODE_POOL_ACCOUNT, &["patch", "--subresource=status"]),
    ];
    for (account, right) in rights {
        let (verb, rest) = right.split_first().unwrap();
        let asked = [&[*verb, "nodepools.tandem.dev", "--all-namespaces"][..], rest].concat();
        eventually(PATIENCE, &format!("{account} may {asked:?}"), async || {
            Ok(cluster.can_i((RELEASE_NAMESPACE, account), &asked).await?.then_some(()))
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operator_is_refused_what_is_not_its_own() {
    let cluster = &PLACES.take().await.unwrap();
    Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let namespace = cluster.namespace("rbac").await.unwrap();
    let admin = cluster.client().await.unwrap();
    Api::<NodePool>::namespaced(admin.clone(), namespace.name())
        .create(&PostParams::default(), &objects::pool("x", 0, 3))
        .await
        .unwrap();
    let status = Patch::Merge(json!({"status": {"readyReplicas": 1}}));
    let scale = Patch::Merge(json!({"spec": {"replicas": 1}}));
    let params = PatchParams::default();
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "rbac-node"}})).unwrap();
    has_roles(cluster).await;

    let client = account(cluster, AUTOSCALER_ACCOUNT).await;
    let pools = Api::<NodePool>::namespaced(client.clone(), namespace.name());
    // It may patch pools, because the guarded count is a patch of the object, and RBAC does not see fields (ADR 0015).
    // The audit log's oracle in the other tests checks that it changes no other field.
    let pool = pools.get("x").await.unwrap();
    assert!(
        is_forbidden(pools.replace("x", &PostParams::default(), &pool).await),
        "the Autoscaler may replace nodepools"
    );
    assert!(
        is_forbidden(pools.create(&PostParams::default(), &objects::pool("y", 0, 1)).await),
        "the Autoscaler may create nodepools"
    );
    assert!(
        is_forbidden(pools.delete("x", &DeleteParams::default()).await.map(|_| ())),
        "the Autoscaler may delete nodepools"
    );
    assert!(
        is_forbidden(Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await),
        "the Autoscaler may create nodes"
    );
    assert!(
        is_forbidden(
            Api::<Pod>::namespaced(client.clone(), namespace.name())
                .evict("x", &EvictParams::default())
                .await
        ),
        "the Autoscaler may evict"
    );
    assert!(
        is_forbidden(Api::<Secret>::all(client.clone()).list(&ListParams::default()).await),
        "the Autoscaler may read secrets"
    );
    assert!(
        is_forbidden(Api::<ConfigMap>::all(client).list(&ListParams::default()).await),
        "the Autoscaler may read config maps"
    );
    // The control: it may write its own fields.
    pools.patch_scale("x", &params, &scale).await.unwrap();
    let own = Patch::Merge(json!({"status": {"autoscaling": null}}));
    pools.patch_status("x", &params, &own).await.unwrap();

    let client = account(cluster, NODE_POOL_ACCOUNT).await;
    let pools = Api::<NodePool>::namespaced(client.clone(), namespace.name());
    assert!(is_forbidden(pools.patch_scale("x", &params, &scale).await), "the NodePool operator may scale");
    let autoscalers = Api::<NodePoolAutoscaler>::namespaced(client.clone(), namespace.name());
    assert!(
        is_forbidden(autoscalers.patch_status("x", &params, &status).await),
        "the NodePool operator may write autoscalers"
    );
    assert!(
        is_forbidden(pools.create(&PostParams::default(), &objects::pool("y", 0, 1)).await),
        "the NodePool operator may create pools"
    );
    assert!(
        is_forbidden(Api::<Secret>::all(client.clone()).list(&ListParams::default()).await),
        "the NodePool operator may read secrets"
    );
    assert!(
        is_forbidden(
            Api::<Pod>::namespaced(client, namespace.name())
                .create(&PostParams::default(), &Pod::default())
                .await
        ),
        "the NodePool operator may create pods"
    );
    pools.patch_status("x", &params, &status).await.unwrap();
    cluster.mark_reusable();
}

/// A user with one of the cluster's own roles (`view`, `edit`, `admin`) in one namespace.
struct NamespaceUser {
    client: Client,
    namespace: String,
}

impl NamespaceUser {
    async fn with_role(cluster: &Cluster, role: &str, namespace: &str) -> Self {
        let name = format!("{role}-of-{namespace}");
        let binding = json!({
            "metadata": {"name": &name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": &name}],
        });
        Api::<RoleBinding>::namespaced(cluster.client().await.unwrap(), namespace)
            .create(&PostParams::default(), &serde_json::from_value(binding).unwrap())
            .await
            .unwrap();
        let mut config = cluster.client_config().await.unwrap();
        config.auth_info.impersonate = Some(name);
        Self { client: Client::try_from(config).unwrap(), namespace: namespace.to_owned() }
    }

    /// The authorizer's answer for `resource` and `verb`.
    async fn may(&self, group: &str, resource: &str, verb: &str) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = json!({"metadata": {}, "spec": {"resourceAttributes": {
            "namespace": self.namespace, "group": group, "resource": resource, "subresource": subresource,
            "verb": verb,
        }}});
        let review: SelfSubjectAccessReview = serde_json::from_value(review).unwrap();
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await.unwrap();
        answer.status.unwrap().allowed
    }

    /// All permissions except reading that this user has on Tandem's resources.
    async fn may_write(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for resource in [
            "nodepools",
            "nodepools/scale",
            "nodepools/status",
            "nodepoolautoscalers",
            "nodepoolautoscalers/status",
        ] {
            for verb in ["create", "update", "patch", "delete", "deletecollection"] {
                if self.may(names::GROUP, resource, verb).await {
                    found.insert(format!("{resource} {verb}"));
                }
            }
        }
        found
    }

    /// Waits until the authorizer has the current sum of the roles. A controller aggregates the cluster's roles, one
    /// change after the other: a role created now is aggregated after all others.
    async fn has_current_roles(&self, cluster: &Cluster) {
        static MARKERS: AtomicUsize = AtomicUsize::new(0);
        let marker = format!("marker{}", MARKERS.fetch_add(1, Ordering::Relaxed));
        let collected: BTreeMap<String, &str> = ["view", "edit", "admin"]
            .map(|role| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), "true"))
            .into();
        let role = json!({
            "metadata": {"name": &marker, "labels": collected},
            "rules": [{"apiGroups": ["marker.example.org"], "resources": [&marker], "verbs": ["get"]}],
        });
        let roles = Api::<ClusterRole>::all(cluster.client().await.unwrap());
        roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
        eventually(PATIENCE, "the roles are collected", async || {
            Ok(self.may("marker.example.org", &marker, "get").await.then_some(()))
        })
        .await
        .unwrap();
    }
}

/// An autoscaler of the object `x` of `kind`, beyond any bounds.
fn scaler_of(api_version: &str, kind: &str) -> HorizontalPodAutoscaler {
    serde_json::from_value(json!({
        "metadata": {"name": kind.to_lowercase()},
        "spec": {
            "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": "x"},
            "minReplicas": 3,
            "maxReplicas": 100_000,
        },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn editing_pools_is_not_in_the_hands_of_namespace_editors_unless_asked_for() {
    let cluster = &PLACES.take().await.unwrap();
    Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let namespace = cluster.namespace("editors").await.unwrap();
    let admin = Api::<NodePool>::namespaced(cluster.client().await.unwrap(), namespace.name());
    admin.create(&PostParams::default(), &objects::pool("x", 0, 3)).await.unwrap();
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let drain = Patch::Merge(json!({"spec": {"drain": {"timeoutSeconds": 1}}}));
    let params = PatchParams::default();

    let viewer = NamespaceUser::with_role(cluster, "view", namespace.name()).await;
    let editor = NamespaceUser::with_role(cluster, "edit", namespace.name()).await;
    let owner = NamespaceUser::with_role(cluster, "admin", namespace.name()).await;
    for user in [&viewer, &editor, &owner] {
        user.has_current_roles(cluster).await;
        assert_eq!(user.may_write().await, BTreeSet::new());
        // All three can read it.
        let pools = Api::<NodePool>::namespaced(user.client.clone(), namespace.name());
        pools.get("x").await.unwrap();
        // The server's real answer, in addition to the access review.
        assert!(is_forbidden(pools.create(&PostParams::default(), &objects::pool("y", 0, 100_000)).await));
        assert!(is_forbidden(pools.patch("x", &params, &drain).await));
        assert!(is_forbidden(pools.patch_scale("x", &params, &scale).await));
    }

    // They must not have it done indirectly, either: the controller of HorizontalPodAutoscalers may scale anything.
    // Policies take a moment.
    let by_proxy = async |user: &NamespaceUser| {
        let scalers = Api::<HorizontalPodAutoscaler>::namespaced(user.client.clone(), namespace.name());
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        scalers.create(&dry_run, &scaler_of("tandem.dev/v1alpha1", "NodePool")).await
    };
    eventually(PATIENCE, "an autoscaler on a pool is refused", async || {
        Ok(is_forbidden(by_proxy(&editor).await).then_some(()))
    })
    .await
    .unwrap();
    let scalers = Api::<HorizontalPodAutoscaler>::namespaced(editor.client.clone(), namespace.name());
    scalers.create(&PostParams::default(), &scaler_of("apps/v1", "Deployment")).await.unwrap();

    Release::install(cluster, RELEASE_NAMESPACE, &["rbac.aggregateToEdit=true".to_owned()]).await.unwrap();
    for user in [&editor, &owner] {
        user.has_current_roles(cluster).await;
        let pools = Api::<NodePool>::namespaced(user.client.clone(), namespace.name());
        pools.patch("x", &params, &drain).await.unwrap();
        pools.patch_scale("x", &params, &scale).await.unwrap();
        by_proxy(user).await.unwrap();
        let all = user.may_write().await;
        assert!(all.iter().all(|what| !what.contains("/status")), "{all:?}");
    }
    viewer.has_current_roles(cluster).await;
    assert_eq!(viewer.may_write().await, BTreeSet::new());

    // When it is no longer requested, it is removed again; a user with a binding to the role keeps it.
    Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let node_admin = NamespaceUser::with_role(cluster, "tandem-edit", namespace.name()).await;
    editor.has_current_roles(cluster).await;
    assert_eq!(editor.may_write().await, BTreeSet::new());
    assert!(node_admin.may(names::GROUP, "nodepools/scale", "patch").await);
    cluster.mark_reusable();
}

/// The write permissions of a role on Tandem's resources, as `resource verb`.
fn tandem_writes(role: ClusterRole) -> BTreeSet<String> {
    let rules = role.rules.unwrap_or_default();
    let ours =
        rules.into_iter().filter(|rule| rule.api_groups.iter().flatten().any(|group| group == names::GROUP));
    let pairs = ours.flat_map(|rule| {
        let verbs = rule.verbs;
        rule.resources
            .unwrap_or_default()
            .into_iter()
            .flat_map(move |resource| verbs.clone().into_iter().map(move |verb| (resource.clone(), verb)))
    });
    pairs
        .filter(|(_, verb)| !["get", "list", "watch"].contains(&verb.as_str()))
        .map(|(resource, verb)| format!("{resource} {verb}"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_roles_allow_what_the_ownership_contract_says_and_no_more() {
    let cluster = &PLACES.take().await.unwrap();
    Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let roles = Api::<ClusterRole>::all(cluster.client().await.unwrap());
    for (account, owner, beyond) in [
        // RBAC cannot express "only metadata.finalizers, and spec.replicas while it is unset"; the oracle of
        // `conflicts.rs` checks that nothing else is written.
        (NODE_POOL_ACCOUNT, Owner::NodepoolOperator, &["nodepools patch"][..]),
        // Its own kind, which no other operator writes; and the object itself, the only place where a generation can
        // guard a count.
        (
            AUTOSCALER_ACCOUNT,
            Owner::AutoscalerOperator,
            &["nodepoolautoscalers/status patch", "nodepoolautoscalers/status update", "nodepools patch"],
        ),
    ] {
        let is_its = |rule: &&Rule| rule.may_write(owner, false);
        let by_contract = ownership::NODE_POOL.iter().filter(is_its).flat_map(|rule| {
            ["patch", "update"].map(|verb| format!("{} {verb}", rule.endpoint.rbac_resource()))
        });
        let expected: BTreeSet<String> = by_contract.chain(beyond.iter().map(ToString::to_string)).collect();
        let cluster_wide = tandem_writes(roles.get(account).await.unwrap());
        let on_pools = tandem_writes(roles.get(&format!("{account}-pools")).await.unwrap());
        assert_eq!(cluster_wide.union(&on_pools).cloned().collect::<BTreeSet<_>>(), expected, "{account}");
    }
    cluster.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_the_chart_does_not_know_is_refused_with_its_name() {
    let cluster = &PLACES.take().await.unwrap();
    let chart = chart();
    let chart = chart.to_str().unwrap();
    for (value, named) in [
        ("nodepoolOperator.replica=3", "replica"),
        ("writeStrategy=hopeful", "writeStrategy"),
        ("typo=1", "typo"),
        ("autoscalerOperator.leaderElection.leaseDurationSeconds=1", "leaseDurationSeconds"),
    ] {
        let args = [
            "install",
            "bad",
            chart,
            "--namespace",
            "bad",
            "--create-namespace",
            "--set",
            value,
            "--dry-run=client",
        ];
        let refusal = cluster.helm(&args).await.expect_err(&format!("{value} was accepted"));
        let refusal = format!("{refusal:#}");
        assert!(refusal.contains(named), "{value}:\n{refusal}");
    }
    // The control: valid values are accepted.
    cluster.helm(&["template", "good", chart, "--namespace", "good"]).await.unwrap();
    cluster.mark_reusable();
}

/// The words that `docs/guides/troubleshooting.md` quotes.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_rights_in_the_whole_cluster_is_told_which_one_and_leaves_nothing() {
    let cluster = &PLACES.take().await.unwrap();
    let namespace = cluster.namespace("tenant").await.unwrap();
    let user = NamespaceUser::with_role(cluster, "admin", namespace.name()).await;
    user.has_current_roles(cluster).await;
    let chart = chart();
    let as_user = format!("--kube-as-user=admin-of-{}", namespace.name());
    for (value, refused) in [
        ("crds.enabled=true", "customresourcedefinitions"),
        ("crds.enabled=false,refuseSecondRelease=false", "clusterroles"),
    ] {
        let args = ["install", "tenant", chart.to_str().unwrap(), "--namespace", namespace.name()];
        let refusal =
            cluster.helm(&[&args[..], &["--set", value, as_user.as_str()]].concat()).await.unwrap_err();
        let refusal = format!("{refusal:#}");
        for words in ["could not get information about the resource", refused, "is forbidden: User"] {
            assert!(refusal.contains(words), "{value}, no {words}: {refusal}");
        }
    }
    let kinds = "deployments,services,serviceaccounts,roles,secrets";
    let left = cluster.kubectl(&["get", kinds, "--namespace", namespace.name(), "-o", "name"]).await.unwrap();
    assert!(!left.contains("tandem") && !left.contains("tenant"), "{left}");
    cluster.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_and_pools_outlive_the_release() {
    let cluster = &PLACES.take().await.unwrap();
    let release = Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let namespace = cluster.namespace("outlive").await.unwrap();
    let pools = Api::<NodePool>::namespaced(cluster.client().await.unwrap(), namespace.name());
    pools.create(&PostParams::default(), &objects::pool("kept", 0, 1)).await.unwrap();
    release.uninstall(cluster).await.unwrap();
    assert!(pools.get_opt("kept").await.unwrap().is_some());
    // After a new install, Helm adopts the CRDs that it left behind.
    Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    assert!(pools.get_opt("kept").await.unwrap().is_some());
    cluster.mark_reusable();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_pods_pass_the_restricted_pod_security_standard() {
    let cluster = &PLACES.take().await.unwrap();
    let release = Release::install(cluster, RELEASE_NAMESPACE, &[]).await.unwrap();
    let client = cluster.client().await.unwrap();
    // From its first moment: the API server may know a label that comes later only after the first pods.
    let enforce = [("pod-security.kubernetes.io/enforce", "restricted")];
    let namespace = cluster.namespace_called("restricted", &enforce).await.unwrap();

    let deployments =
        Api::<k8s_openapi::api::apps::v1::Deployment>::namespaced(client.clone(), release.namespace());
    let found = deployments.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(found.len(), 2);
    let pods = Api::<Pod>::namespaced(client, namespace.name());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for deployment in found {
        let template = deployment.spec.unwrap().template;
        let mut spec = template.spec.unwrap();
        // The account exists in the release's namespace; the Pod Security Standard does not check it.
        spec.service_account_name = None;
        spec.service_account = None;
        let mut metadata = template.metadata.unwrap();
        metadata.name = Some("probe".to_owned());
        let mut pod = Pod { metadata, spec: Some(spec), status: None };
        pods.create(&dry_run, &pod).await.unwrap();
        // The control: the same pod with privilege escalation is rejected.
        let container = &mut pod.spec.as_mut().unwrap().containers[0];
        container.security_context.get_or_insert_default().allow_privilege_escalation = Some(true);
        assert!(is_forbidden(pods.create(&dry_run, &pod).await));
    }
    cluster.mark_reusable();
}
