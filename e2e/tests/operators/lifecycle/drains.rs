//! How the pods of a node leave it: what stands on the Node meanwhile, in which order they go, and what happens when it
//! takes too long.

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared_crds::names::{
    DRAIN_STARTED_ANNOTATION, DRAIN_WAITS_ANNOTATION, DRAINING_TAINT, EXCLUDE_FROM_LOAD_BALANCERS_LABEL,
    GIVEN_BACK_ANNOTATION,
};
use shared_crds::v1alpha1::{DrainSpec, DrainTimeoutAction};
use testbed::audit::Event;
use testbed::objects;
use testbed::pages::seen;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::silent::{deleted_pod, frozen_kwok, guarded_pod};
use super::{is_untouched, scale};

/// A pool of one node whose pods leave as `drain` says.
pub(super) async fn one_node(env: &TestEnv, pool: &str, drain: DrainSpec) {
    let mut object = objects::pool(pool, 0, 3);
    object.spec.replicas = Some(1);
    object.spec.drain = Some(drain);
    env.create(&object).await.unwrap();
    env.settles(pool, 1).await.unwrap();
}

pub(super) fn tainted(node: &Node) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == DRAINING_TAINT)
}

pub(super) fn cordoned(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
}

/// The pods whose eviction was requested, with the answers, in this order.
pub(super) fn evictions(events: &[Event]) -> Vec<(String, u16)> {
    let evictions = events.iter().filter(|event| event.subresource == "eviction");
    evictions.filter_map(|event| Some((event.object.as_ref()?.name.clone(), event.code))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_shows_on_its_node_what_it_waits_for_and_leaves_nothing_there_when_it_is_cancelled() {
    let env = TestEnv::begin("shown", &[]).await.unwrap();
    one_node(&env, "shown", DrainSpec::default()).await;
    guarded_pod(&env, "shown", 1).await;
    let before = env.api::<Pod>().get("db").await.unwrap();
    scale(&env, "npool/shown", 0).await;
    eventually(PATIENCE, "the node says what it waits for", async || {
        let nodes = env.nodes("shown").await?;
        let node = nodes.first().context("no node")?;
        let waits_for = node.annotations().get(DRAIN_WAITS_ANNOTATION).context("no annotation")?;
        ensure!(waits_for.contains("/db: The disruption budget db needs 1"), "{waits_for}");
        ensure!(tainted(node) && cordoned(node));
        ensure!(node.labels().contains_key(EXCLUDE_FROM_LOAD_BALANCERS_LABEL));
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.says("shown", "Reconciling", ("True", "DrainBlocked", "The disruption budget db")).await.unwrap();

    scale(&env, "npool/shown", 1).await;
    eventually(PATIENCE, "nothing is left of the drain", async || {
        let nodes = env.nodes("shown").await?;
        let node = nodes.first().context("no node")?;
        let left: Vec<&String> =
            node.annotations().keys().filter(|key| key.starts_with("tandem.dev/drain")).collect();
        ensure!(left.is_empty(), "{left:?}");
        ensure!(!tainted(node) && !cordoned(node));
        ensure!(!node.labels().contains_key(EXCLUDE_FROM_LOAD_BALANCERS_LABEL));
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.settles("shown", 1).await.unwrap();
    assert_eq!(env.api::<Pod>().get("db").await.unwrap().uid(), before.uid());
    env.kubectl(&["delete", "pdb", "db"]).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_deleted_when_its_grace_period_is_all_that_is_left_of_the_drain() {
    let env = TestEnv::begin("last-grace", &[]).await.unwrap();
    // It is deleted after fifteen seconds. The rest of the time is for a pass that comes late: after it, nothing would show.
    one_node(&env, "timed", DrainSpec { timeout_seconds: Some(600), ..DrainSpec::default() }).await;
    guarded_pod(&env, "timed", 585).await;
    let frozen = frozen_kwok(env.cluster).await;
    scale(&env, "npool/timed", 0).await;
    let pod = deleted_pod(&env).await;
    let node = env.nodes("timed").await.unwrap().remove(0);
    let started: Timestamp = node.annotations()[DRAIN_STARTED_ANNOTATION].parse().unwrap();
    // Its deletion timestamp is the end of its grace period.
    let end = pod.metadata.deletion_timestamp.unwrap().0;
    let after = end.duration_since(started).as_secs();
    assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(585));
    assert!((599..600 + 585).contains(&after), "it has to end {after} s after the drain began");
    let refused = evictions(&env.events().unwrap());
    assert!(refused.contains(&("db".to_owned(), 429)), "its budget was asked first: {refused:?}");
    drop(frozen);
    env.settles("timed", 0).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_takes_too_long_is_given_back_and_tried_again() {
    let env = TestEnv::begin("given-back", &[]).await.unwrap();
    let drain = DrainSpec {
        timeout_seconds: Some(4),
        on_timeout: DrainTimeoutAction::GiveBack,
        ..DrainSpec::default()
    };
    one_node(&env, "patient", drain).await;
    guarded_pod(&env, "patient", 1).await;
    let before = env.api::<Pod>().get("db").await.unwrap();
    scale(&env, "npool/patient", 0).await;
    eventually(PATIENCE, "the node is given back", async || {
        let nodes = env.nodes("patient").await?;
        let node = nodes.first().context("no node")?;
        ensure!(node.annotations().contains_key(GIVEN_BACK_ANNOTATION), "{:?}", node.annotations());
        ensure!(!tainted(node) && !cordoned(node));
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.says("patient", "Reconciling", ("True", "Draining", "was given back")).await.unwrap();
    env.published(&["DrainGivenBack"]).await.unwrap();
    is_untouched(&env, &before).await;

    env.kubectl(&["delete", "pdb", "db"]).await.unwrap();
    env.settles("patient", 0).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn critical_pods_leave_last_and_pods_of_daemon_sets_only_when_those_are_gone() {
    let env = TestEnv::begin("tiers", &[]).await.unwrap();
    one_node(&env, "tiers", DrainSpec::default()).await;
    guarded_pod(&env, "tiers", 1).await;
    let critical: Pod = serde_json::from_value(json!({
        "metadata": {"name": "dns"},
        "spec": {
            "nodeSelector": {"pool": "tiers"},
            "priorityClassName": "system-cluster-critical",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "dns", "image": "example.invalid/dns"}],
        },
    }))
    .unwrap();
    env.create(&critical).await.unwrap();
    for name in ["agent", "orphan"] {
        let daemons: DaemonSet = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {
                        "nodeSelector": {"pool": "tiers"},
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": name, "image": "example.invalid/agent"}],
                    },
                },
            },
        }))
        .unwrap();
        env.create(&daemons).await.unwrap();
    }
    env.pods_run(4).await.unwrap();
    env.kubectl(&["delete", "daemonset", "orphan", "--cascade=orphan"]).await.unwrap();

    scale(&env, "npool/tiers", 0).await;
    let audit = env.audit().unwrap();
    let refused = |events: &[Event]| {
        let refused = evictions(events).into_iter().filter(|(pod, code)| pod == "db" && *code == 429);
        (refused.count() >= 2).then_some(())
    };
    audit.wait_for(audit.end().unwrap(), PATIENCE, "two evictions are refused", refused).await.unwrap();
    let so_far = evictions(&env.events().unwrap());
    assert!(so_far.iter().all(|(pod, _)| pod == "db" || pod.starts_with("orphan-")), "{so_far:?}");

    env.kubectl(&["delete", "pdb", "db"]).await.unwrap();
    env.settles("tiers", 0).await.unwrap();
    let accepted: Vec<String> = evictions(&env.events().unwrap())
        .into_iter()
        .filter_map(|(pod, code)| (code == 201).then_some(pod))
        .collect();
    let [orphan, db, dns] = &accepted[..] else { panic!("{accepted:?}") };
    assert!(orphan.starts_with("orphan-") && db == "db" && dns == "dns", "{accepted:?}");
    // The pod of the DaemonSet went with its node, and is collected some time later.
    env.kubectl(&["delete", "daemonset", "agent"]).await.unwrap();
    env.kubectl(&["delete", "pods", "--all", "--grace-period=0", "--force"]).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_waits_for_its_volumes_to_be_detached_and_not_longer_than_it_is_told() {
    let env = TestEnv::begin("volumes", &[]).await.unwrap();
    for (pool, limit) in [("attached", None), ("hurried", Some(3))] {
        let drain = DrainSpec { volume_detach_timeout_seconds: limit, ..DrainSpec::default() };
        one_node(&env, pool, drain).await;
        let node = env.nodes(pool).await.unwrap().remove(0).name_any();
        // No driver is installed that would detach it.
        let attachment: VolumeAttachment = serde_json::from_value(json!({
            "metadata": {"name": format!("{node}-data")},
            "spec": {
                "attacher": "example.invalid",
                "nodeName": node,
                "source": {"persistentVolumeName": format!("{pool}-data")},
            },
        }))
        .unwrap();
        let api: Api<VolumeAttachment> = Api::all(env.client.clone());
        api.create(&PostParams::default(), &attachment).await.unwrap();
        scale(&env, &format!("npool/{pool}"), 0).await;
        // In the audit log: the node that is hurried may be gone before the test looks at it again.
        eventually(PATIENCE, "the node says which volume it waits for", async || {
            let noted = seen::noted_on_node(&env.events()?, &node);
            let volume = format!("volume {pool}-data to be detached");
            ensure!(noted.iter().any(|noted| noted.contains(&volume)), "{noted:?}");
            Ok(Some(()))
        })
        .await
        .unwrap();
        if limit.is_none() {
            env.kubectl(&["delete", "volumeattachment", &attachment.name_any()]).await.unwrap();
        }
        env.settles(pool, 0).await.unwrap();
        env.kubectl(&["delete", "volumeattachment", &attachment.name_any(), "--ignore-not-found"])
            .await
            .unwrap();
    }
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_a_finalizer_of_somebody_else_keeps_is_said_to_wait_for_it() {
    let env = TestEnv::begin("kept-by-other", &[]).await.unwrap();
    one_node(&env, "foreign", DrainSpec::default()).await;
    let node = env.nodes("foreign").await.unwrap().remove(0).name_any();
    let set = |patch: &'static str| {
        let (env, node) = (&env, node.clone());
        async move { env.kubectl(&["patch", "node", &node, "--type=json", "-p", patch]).await.unwrap() }
    };
    set(r#"[{"op": "add", "path": "/metadata/finalizers/-", "value": "example.invalid/backup"}]"#).await;
    scale(&env, "npool/foreign", 0).await;
    eventually(PATIENCE, "the node says what keeps it", async || {
        let nodes = env.nodes("foreign").await?;
        let node = nodes.first().context("no node")?;
        let waits_for = node.annotations().get(DRAIN_WAITS_ANNOTATION).context("no annotation")?;
        ensure!(waits_for.contains("finalizer example.invalid/backup"), "{waits_for}");
        ensure!(node.finalizers() == ["example.invalid/backup"], "{:?}", node.finalizers());
        Ok(Some(()))
    })
    .await
    .unwrap();
    set(r#"[{"op": "remove", "path": "/metadata/finalizers"}]"#).await;
    env.settles("foreign", 0).await.unwrap();
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_ask_to_be_left_alone_stay_when_a_person_lowers_the_number_and_it_is_said_why() {
    let env = TestEnv::begin("protected", &[]).await.unwrap();
    let mut pool = objects::pool("kept", 0, 3);
    pool.spec.replicas = Some(3);
    env.create(&pool).await.unwrap();
    env.settles("kept", 3).await.unwrap();
    // The youngest would go first.
    let mut names: Vec<String> = env.nodes("kept").await.unwrap().iter().map(Node::name_any).collect();
    names.sort();
    let job: Pod = serde_json::from_value(json!({
        "metadata": {"name": "job", "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {
            "nodeName": names[2],
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "job", "image": "example.invalid/job"}],
        },
    }))
    .unwrap();
    env.create(&job).await.unwrap();
    env.pods_run(1).await.unwrap();
    env.kubectl(&[
        "annotate",
        "node",
        &names[1],
        "cluster-autoscaler.kubernetes.io/scale-down-disabled=true",
    ])
    .await
    .unwrap();

    scale(&env, "npool/kept", 0).await;
    env.says("kept", "Reconciling", ("True", "Draining", "stays, because it has")).await.unwrap();
    eventually(PATIENCE, "the other node is gone", async || {
        let left: Vec<String> = env.nodes("kept").await?.iter().map(Node::name_any).collect();
        ensure!(left == names[1..], "{left:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    for node in env.nodes("kept").await.unwrap() {
        assert!(!cordoned(&node) && !tainted(&node), "{}", node.name_any());
    }

    // One stops asking; the other one goes with its pool, after all others.
    env.kubectl(&["annotate", "pod", "job", "karpenter.sh/do-not-disrupt-"]).await.unwrap();
    eventually(PATIENCE, "its node is gone", async || {
        let left: Vec<String> = env.nodes("kept").await?.iter().map(Node::name_any).collect();
        ensure!(left == names[1..2], "{left:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    env.says("kept", "Reconciling", ("True", "Draining", "has the annotation cluster-autoscaler"))
        .await
        .unwrap();
    env.kubectl(&["delete", "npool/kept", "--timeout=180s"]).await.unwrap();
    env.end().await.unwrap();
}
