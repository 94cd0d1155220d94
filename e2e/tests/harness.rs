//! Tests of the harness itself, on a real control plane: what a test may rely on, and that nothing is left behind.

#![expect(clippy::unwrap_used, reason = "tests, and what only they call")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nix::sys::signal::{SIGINT, SIGKILL, kill};
use nix::unistd::Pid;
use serde_json::json;
use shared_crds::NodePool;
use shared_crds::names::{NODE_FINALIZER, POOL_FINALIZER, member_labels};
use testbed::audit::{Event, ObjectKey};
use testbed::borrowed;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::lost_update_check::LostUpdateCheck;
use testbed::operators::OperatorProcess;
use testbed::places::Places;
use testbed::process_supervisor::{Exit, ProcessSupervisor, ProgramSpec, Running, Signal};
use testbed::request_costs::RequestCosts;
use testbed::tandem::install_definitions;
use testbed::wait::{PATIENCE, eventually};
use tokio::sync::OnceCell;
use toolbox::go::KUBERNETES_VERSION;
use toolbox::tools::{Tool, Toolbox};

/// These tests need a private control plane, whichever cluster the others run on.
async fn shared() -> &'static Cluster {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    SHARED.get_or_init(|| async { Cluster::start(ClusterOptions::private()).await.unwrap() }).await
}

fn typed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_the_pinned_version_and_every_program_lives() {
    let cluster = shared().await;
    let version = cluster.client().await.unwrap().apiserver_version().await.unwrap();
    assert_eq!(version.git_version, KUBERNETES_VERSION);
    let mut names: Vec<String> = cluster.pids().into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]);
    cluster.check_alive().unwrap();
    println!("started in {:?}", cluster.startup().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_is_passed_on_if_its_test_ends_and_ended_if_not() {
    static PASSED_ON: Places = Places::one_beside(|| ClusterOptions {
        scheduler: false,
        controller_manager: false,
        kwok: false,
        ..ClusterOptions::private()
    });
    let root = || async {
        let place = PASSED_ON.take().await.unwrap();
        place.mark_reusable();
        place.root().to_owned()
    };
    let first = root().await;
    assert_eq!(root().await, first);
    let failed = tokio::spawn(async {
        let place = PASSED_ON.take().await.unwrap();
        assert!(place.root().as_os_str().is_empty(), "this test fails on purpose");
    });
    assert!(failed.await.unwrap_err().is_panic());
    let second = root().await;
    assert_ne!(second, first);
    // As in a test that returns an error.
    let place = PASSED_ON.take().await.unwrap();
    let pids = place.pids();
    assert!(place.root() == second && pids.len() == 2, "{pids:?}");
    drop(place);
    assert!(!pids.iter().any(|(_, pid)| alive(*pid)), "{pids:?}");
    assert_ne!(root().await, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_without_rights_is_refused() {
    let cluster = shared().await;
    let namespace = cluster.namespace("rbac").await.unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(cluster.client().await.unwrap(), namespace.name());
    accounts
        .create(&PostParams::default(), &typed(json!({"metadata": {"name": "no-rights"}})))
        .await
        .unwrap();
    let client = cluster.client_for_service_account(namespace.name(), "no-rights").await.unwrap();
    let error = Api::<Node>::all(client).list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!(status.code, 403);
    let user = format!("system:serviceaccount:{}:no-rights", namespace.name());
    assert!(status.message.contains(&user), "{}", status.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployments_pod_runs_on_a_simulated_node_and_goes_when_deleted() {
    let cluster = shared().await;
    let namespace = cluster.namespace("kwok").await.unwrap();
    let client = cluster.client().await.unwrap();
    let nodes = Api::<Node>::all(client.clone());
    let name = namespace.name();
    let node: Node = typed(json!({
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {"for": name}},
        "status": {"capacity": {"cpu": "2", "memory": "1Gi", "pods": "10"}},
    }));
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let deployment: Deployment = typed(json!({
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "nodeSelector": {"for": name},
                    "initContainers": [{"name": "first", "image": "none"}],
                    "containers": [{"name": "web", "image": "none", "resources": {"requests": {"cpu": "1500m"}}}],
                },
            },
        },
    }));
    let deployments = Api::<Deployment>::namespaced(client.clone(), name);
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    eventually(PATIENCE, "the Deployment is available", || async {
        let status = deployments.get("web").await?.status.unwrap_or_default();
        match status.available_replicas {
            Some(1) => Ok(Some(())),
            _ => bail!("{}", cluster.kubectl(&["get", "pods,events", "-n", name]).await?),
        }
    })
    .await
    .unwrap();
    let pods = Api::<Pod>::namespaced(client, name);
    let pod = pods.list(&ListParams::default()).await.unwrap().items.pop().unwrap();
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some(name));
    let status = nodes.get(name).await.unwrap().status.unwrap();
    assert_eq!(status.allocatable.unwrap()["cpu"].0, "2", "a node keeps the size it was created with");

    deployments.delete("web", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "a deleted pod goes at once", || async {
        Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await
    .unwrap();
    nodes.delete(name, &DeleteParams::default()).await.unwrap();
    namespace.delete(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_holds_each_write_with_its_writer_and_its_versions() {
    let cluster = shared().await;
    let log = cluster.audit_log().unwrap();
    let start = log.end().unwrap();
    let nodes = Api::<Node>::all(cluster.client().await.unwrap());
    let name = format!("audited-{:08x}", std::process::id());
    let node: Node = typed(json!({"metadata": {"name": name}}));
    let created = nodes.create(&PostParams::default(), &node).await.unwrap();
    let mut stale = created.clone();
    stale.metadata.resource_version = Some("1".into());
    nodes.replace(&name, &PostParams::default(), &stale).await.unwrap_err();

    let key = ObjectKey {
        group: String::new(),
        resource: "nodes".into(),
        namespace: String::new(),
        name: name.clone(),
    };
    let events = log
        .wait_for(start, PATIENCE, "the stale write is in the audit log", |events| {
            // The node lifecycle controller writes to every node, too.
            let ours = |event: &&Event| event.object.as_ref() == Some(&key) && event.user == "admin";
            let ours: Vec<Event> = events.iter().filter(ours).cloned().collect();
            // The two lines may be written in either order.
            [201, 409].iter().all(|code| ours.iter().any(|event| event.code == *code)).then_some(ours)
        })
        .await
        .unwrap();
    let create = events.iter().find(|event| event.verb == "create").unwrap();
    assert_eq!((create.user.as_str(), create.code), ("admin", 201));
    assert_eq!(create.version().map(|version| version.to_string()), created.metadata.resource_version);
    let refused = events.iter().find(|event| event.code == 409).unwrap();
    assert_eq!((refused.base_version(), refused.reason.as_str()), (Some("1"), "Conflict"));
    let costs = RequestCosts::of(&events, |object| *object == key);
    let row = costs.row("admin", "nodes").unwrap();
    assert_eq!(
        (row.writes, row.succeeded, row.conflicts, row.resource_version_moved),
        (2, 1, 1, 1),
        "\n{costs}"
    );
    nodes.delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_costs_and_the_lost_update_check_report_what_was_done_to_a_pool() {
    let cluster = shared().await;
    let log = cluster.audit_log().unwrap();
    let start = log.end().unwrap();
    let definitions = shared_crds::yaml().unwrap();
    cluster.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &definitions).await.unwrap();
    let established = ["wait", "--for=condition=Established", "crd/nodepools.tandem.dev"];
    cluster.kubectl(&established).await.unwrap();
    let namespace = cluster.namespace("oracle").await.unwrap();
    let pools = Api::<NodePool>::namespaced(cluster.client().await.unwrap(), namespace.name());
    let (put, patch) = (PostParams::default(), PatchParams::default());

    let created = pools.create(&put, &testbed::objects::pool("pool", 0, 9)).await.unwrap();
    let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
    pools.patch_scale("pool", &patch, &three).await.unwrap();
    pools.patch_scale("pool", &patch, &three).await.unwrap();
    let status = Patch::Merge(json!({"status": {"readyReplicas": 1}}));
    pools.patch_status("pool", &patch, &status).await.unwrap();
    pools.replace("pool", &put, &created).await.unwrap_err();
    let guarded = json!([
        {"op": "test", "path": "/spec/replicas", "value": 7},
        {"op": "replace", "path": "/spec/replicas", "value": 8},
    ]);
    let guarded = Patch::<()>::Json(typed(guarded));
    pools.patch_scale("pool", &patch, &guarded).await.unwrap_err();

    let key = ObjectKey::node_pool(namespace.name(), "pool");
    let writes = async |count: usize| {
        let of_pool = |event: &&Event| event.object.as_ref() == Some(&key) && event.is_write();
        let what = format!("{count} writes are in the audit log");
        log.wait_for(start, PATIENCE, &what, |events| {
            let found: Vec<Event> = events.iter().filter(of_pool).cloned().collect();
            (found.len() == count).then_some(found)
        })
        .await
        .unwrap()
    };
    let events = writes(6).await;
    let costs = RequestCosts::of(&events, |object| *object == key);
    // Writes, granted, no-ops, 409, 422, moves of generation and resourceVersion.
    let counted = |target: &str| {
        let row = costs.row("admin", target).unwrap();
        let moved = [row.generation_moved, row.resource_version_moved];
        ([row.writes, row.succeeded, row.no_ops, row.conflicts, row.invalid], moved)
    };
    assert_eq!(counted("nodepools"), ([2, 1, 0, 1, 0], [1, 1]), "\n{costs}");
    assert_eq!(counted("nodepools/scale"), ([3, 2, 1, 0, 1], [1, 1]), "\n{costs}");
    assert_eq!(counted("nodepools/status"), ([1, 1, 0, 0, 0], [0, 1]), "\n{costs}");
    let check = LostUpdateCheck::of(&events, &key);
    assert_eq!(check.versions, 3);
    check.check_unbroken().unwrap();

    // A PUT of /scale without a version is granted, whatever it overwrites: the oracle must detect it.
    let blind = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "pool", "namespace": namespace.name()}, "spec": {"replicas": 5},
    });
    pools.replace_scale("pool", &put, &typed(blind)).await.unwrap();
    let check = LostUpdateCheck::of(&writes(7).await, &key);
    let error = check.check_unbroken().unwrap_err().to_string();
    assert!(error.contains("admin (/scale) made version"), "{error}");
    pools.delete("pool", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_are_brought_along_are_used_without_go() {
    let built = Toolbox::from_environment().find(&[Tool::Etcd, Tool::ApiServer]).await.unwrap();
    let assets = tempfile::tempdir().unwrap();
    for (executable, name) in built.iter().zip(["etcd", "kube-apiserver"]) {
        std::os::unix::fs::symlink(&executable.path, assets.path().join(name)).unwrap();
    }
    let toolbox = Toolbox {
        assets: Some(assets.path().to_owned()),
        path: None,
        cache: assets.path().join("cache"),
        ..Toolbox::from_environment()
    };
    let options = ClusterOptions { toolbox: toolbox.clone(), ..ClusterOptions::api_only() };
    let cluster = Cluster::start(options).await.unwrap();
    cluster.client().await.unwrap().apiserver_version().await.unwrap();
    cluster.stop().await.unwrap();
    let error = Cluster::start(ClusterOptions { toolbox, ..ClusterOptions::private() }).await.err().unwrap();
    let error = format!("{error:#}");
    assert!(error.contains("kube-controller-manager, kube-scheduler, kwok must be built with go"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_and_helm_talk_to_this_cluster_and_leave_the_home_alone() {
    let cluster = shared().await;
    assert!(
        cluster
            .kubectl(&["version"])
            .await
            .unwrap()
            .contains(&format!("Server Version: {KUBERNETES_VERSION}"))
    );
    assert_eq!(cluster.helm(&["list", "--all-namespaces", "--short"]).await.unwrap(), "");
    let error = cluster.kubectl(&["get", "nothing-like-that"]).await.unwrap_err().to_string();
    assert!(error.contains("the server doesn't have a resource type"), "{error}");
    let config = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "from-input-"}}"#;
    let namespace = cluster.namespace("kubectl").await.unwrap();
    let created =
        cluster.kubectl_with_input(&["create", "-n", namespace.name(), "-f", "-"], config).await.unwrap();
    assert!(created.starts_with("configmap/from-input-"), "{created}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_api_server_keeps_what_was_written() {
    let cluster = Cluster::start(ClusterOptions::api_only()).await.unwrap();
    let client = cluster.client().await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let map: ConfigMap = typed(json!({"metadata": {"name": "kept"}, "data": {"a": "1"}}));
    let before = maps.create(&PostParams::default(), &map).await.unwrap();
    cluster.stop_api_server().await.unwrap();
    maps.get("kept").await.unwrap_err();
    assert!(cluster.check_alive().unwrap_err().to_string().starts_with("kube-apiserver ended with"));
    cluster.start_api_server().await.unwrap();
    let after = maps.get("kept").await.unwrap();
    assert_eq!(
        after.metadata.resource_version, before.metadata.resource_version,
        "the same client reconnects"
    );
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_explicit_stop_no_process_and_no_file_is_left() {
    let cluster = Cluster::start(ClusterOptions::api_only()).await.unwrap();
    let (root, pids) = (cluster.root().to_owned(), cluster.pids());
    assert!(root.is_dir() && pids.iter().all(|(_, pid)| alive(*pid)));
    cluster.stop().await.unwrap();
    assert!(!root.exists() && !pids.iter().any(|(_, pid)| alive(*pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_panic_no_process_and_no_file_is_left() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let panicked = tokio::spawn(async move {
        let cluster = Cluster::start(ClusterOptions::api_only()).await.unwrap();
        sender.send((cluster.root().to_owned(), cluster.pids())).unwrap();
        panic!("on purpose");
    });
    let (root, pids) = receiver.await.unwrap();
    assert!(panicked.await.unwrap_err().is_panic());
    assert!(!root.exists() && !pids.iter().any(|(_, pid)| alive(*pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_and_after_ctrl_c_no_process_and_no_file_is_left() {
    for signal in [SIGKILL, SIGINT] {
        let victim = Victim::start().await;
        assert!(victim.root.is_dir() && victim.pids.iter().all(|pid| alive(*pid)));
        kill(process(victim.child.id()), signal).unwrap();
        eventually(PATIENCE, &format!("everything is gone after {signal}"), || async {
            let left: Vec<u32> = victim.pids.iter().copied().filter(|pid| alive(*pid)).collect();
            if left.is_empty() && !victim.root.exists() {
                return Ok(Some(()));
            }
            bail!("{left:?} live, directory exists: {}", victim.root.exists())
        })
        .await
        .unwrap();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn when_the_supervisor_itself_is_killed_its_programs_die_too() {
    let victim = Victim::start().await;
    let status = std::fs::read_to_string(format!("/proc/{}/stat", victim.pids[0])).unwrap();
    // The fourth field is the parent; the name in parentheses before it may contain spaces.
    let supervisor = status.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    kill(Pid::from_raw(supervisor), SIGKILL).unwrap();
    eventually(PATIENCE, "the programs are gone", || async {
        Ok((!victim.pids.iter().any(|pid| alive(*pid))).then_some(()))
    })
    .await
    .unwrap();
    // No process was left to remove it.
    std::fs::remove_dir_all(&victim.root).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_dies_at_its_start_is_named_with_the_end_of_its_log() {
    let options =
        ClusterOptions { api_server_flags: vec!["--no-such-flag".into()], ..ClusterOptions::api_only() };
    let error = format!("{:#}", Cluster::start(options).await.err().unwrap());
    assert!(error.contains("kube-apiserver ended with exit code 1"), "{error}");
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_always_taken_is_named_after_several_attempts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let flag = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let options = ClusterOptions { api_server_flags: vec![flag], ..ClusterOptions::api_only() };
    let error = format!("{:#}", Cluster::start(options).await.err().unwrap());
    assert!(error.contains("taken by others 3 times in a row"), "{error}");
    assert!(error.contains("address already in use"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_go_and_without_a_cluster_the_message_says_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let toolbox = Toolbox {
        assets: None,
        path: Some(empty.path().into()),
        cache: empty.path().join("cache"),
        ..Toolbox::from_environment()
    };
    let error = format!(
        "{:#}",
        Cluster::start(ClusterOptions { toolbox, ..ClusterOptions::private() }).await.err().unwrap()
    );
    for part in
        ["no go toolchain in PATH", "kube-apiserver", "go.dev/dl", "TANDEM_KUBECONFIG", "KUBEBUILDER_ASSETS"]
    {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_cluster_is_used_and_not_owned() {
    let cluster = shared().await;
    let source =
        Some(testbed::control_plane::locate::BinarySource::Foreign(cluster.kubeconfig_path().to_owned()));
    let foreign = Cluster::start(ClusterOptions { source, ..ClusterOptions::default() }).await.unwrap();
    assert!(!foreign.is_embedded() && foreign.audit_log().is_none());
    assert!(foreign.kubectl(&["get", "namespaces"]).await.unwrap().contains("kube-system"));
    assert!(foreign.restart_api_server().await.is_err());
    foreign.stop().await.unwrap();
    cluster.check_alive().unwrap();
}

/// What `cargo e2e --kubeconfig` does on a cluster that is in use.
#[tokio::test(flavor = "multi_thread")]
async fn the_tests_of_the_chart_refuse_a_cluster_in_use_and_remove_only_what_they_have_made() {
    let options = ClusterOptions { scheduler: false, kwok: false, ..ClusterOptions::private() };
    let cluster = &Cluster::start(options).await.unwrap();
    borrowed::check(cluster).await.unwrap();
    let patience = Duration::from_secs(30);
    let objects = r#"
        {"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "closed"}, "spec": {"unschedulable": true}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "open"}}]}"#;
    cluster.kubectl_with_input(&["create", "--filename", "-"], objects).await.unwrap();
    let namespace = cluster.namespace_called("theirs", &[]).await.unwrap();
    install_definitions(cluster).await.unwrap();
    let client = cluster.client().await.unwrap();
    let nodes = Api::<Node>::all(client.clone());
    let pool = async |namespace: &str| {
        let mut pool = testbed::objects::pool("pool", 0, 9);
        // As if the operator had ended in the middle of its work.
        pool.metadata.finalizers = Some(vec![POOL_FINALIZER.to_owned()]);
        let pools = Api::<NodePool>::namespaced(client.clone(), namespace);
        pools.create(&PostParams::default(), &pool).await.unwrap();
        let labels = BTreeMap::from(member_labels(namespace, "pool"));
        let name = format!("of-{namespace}");
        let node = json!({"metadata": {"name": name, "labels": labels, "finalizers": [NODE_FINALIZER]}});
        nodes.create(&PostParams::default(), &typed(node)).await.unwrap();
    };
    pool("theirs").await;

    let refused = borrowed::check(cluster).await.unwrap_err().to_string();
    for named in
        ["the namespace demo", "the NodePool theirs/pool", "the node of-theirs, which is of a NodePool"]
    {
        assert!(refused.contains(named), "{named}: {refused}");
    }
    assert!(borrowed::make_namespace(cluster, "demo", &[]).await.is_err());

    // A run that was killed while it had a node cordoned, and a pool that nothing finishes.
    borrowed::cordon(cluster, &["closed", "open"]).await.unwrap();
    borrowed::make_namespace(cluster, "kept", &[]).await.unwrap();
    borrowed::make_namespace(cluster, "tandem-system", &[]).await.unwrap();
    pool("kept").await;
    let is_cordoned = async |name: &str| {
        let node = nodes.get(name).await.unwrap();
        let is_cordoned = node.spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
        (is_cordoned, node.metadata.labels.unwrap_or_default().contains_key("e2e.tandem.dev/cordoned"))
    };
    assert_eq!((is_cordoned("closed").await, is_cordoned("open").await), ((true, false), (true, true)));
    borrowed::clean(cluster, patience).await.unwrap();
    assert_eq!((is_cordoned("closed").await, is_cordoned("open").await), ((true, false), (false, false)));
    let left = async |what: &str| {
        let names = ["get", what, "--output", "jsonpath={range .items[*]}{.metadata.name} {end}"];
        cluster.kubectl(&names).await.unwrap()
    };
    let namespaces = left("namespaces").await;
    let namespaces: Vec<&str> = namespaces.split_whitespace().collect();
    for (name, stays) in [("demo", true), ("theirs", true), ("kept", false), ("tandem-system", false)] {
        assert_eq!(namespaces.contains(&name), stays, "{name}: {namespaces:?}");
    }
    assert_eq!(left("nodes").await, "closed of-theirs open ");
    // None of this is on its way out, either.
    let theirs = Api::<NodePool>::namespaced(client.clone(), namespace.name()).get("pool").await.unwrap();
    let node = nodes.get("of-theirs").await.unwrap();
    for metadata in [theirs.metadata, node.metadata] {
        assert!(metadata.deletion_timestamp.is_none() && metadata.finalizers.is_some(), "{metadata:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_supervisor_ends_with_its_starter_unless_it_was_asked_to_stay() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let log = directory.path().join("log");
    let supervisor = ProcessSupervisor::spawn_detached(&root.join("socket"), &root, &log).unwrap();
    let spec = ProgramSpec {
        name: "sleep".into(),
        path: "/bin/sleep".into(),
        args: vec!["600".into()],
        env: Vec::new(),
        log: log.clone(),
        memory_limit: None,
    };
    let pid = supervisor.start(spec).await.unwrap().pid;
    assert!(alive(pid));
    // The kernel does the same when the starter is killed: its end of the pipe is closed.
    drop(supervisor);
    eventually(PATIENCE, "everything is gone", || async {
        Ok((!root.exists() && !alive(pid)).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_control_plane_is_found_again_and_ends_on_request() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Cluster::attach(directory.path()).is_err());
    let state = Cluster::start_detached(directory.path(), ClusterOptions::api_only()).await.unwrap();
    let again =
        Cluster::start_detached(directory.path(), ClusterOptions::api_only()).await.unwrap_err().to_string();
    assert!(again.contains("runs already"), "{again}");
    let attached = Cluster::attach(directory.path()).unwrap();
    attached.client().await.unwrap().apiserver_version().await.unwrap();
    drop(attached);
    assert_eq!(Cluster::detached(directory.path()).unwrap(), Some(state.clone()), "it outlives its users");
    assert!(Cluster::stop_detached(directory.path()).unwrap());
    eventually(PATIENCE, "everything is gone", || async {
        Ok((!state.root.exists() && !state.pids.iter().any(|(_, pid)| alive(*pid))).then_some(()))
    })
    .await
    .unwrap();
    assert!(!Cluster::stop_detached(directory.path()).unwrap());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_can_be_killed_stopped_frozen_and_started_again() {
    let cluster = shared().await;
    // Exits by itself on SIGTERM, and prints that.
    let script = "trap 'echo stopping; exit 7' TERM; echo started; while :; do sleep 0.05; done";
    let args = vec!["-c".into(), script.into()];
    let mut program =
        OperatorProcess::start_program(cluster, "script", Path::new("/bin/sh"), args, Vec::new())
            .await
            .unwrap();
    saying(&program, "started", 1).await;
    let first = program.pid();
    assert_eq!(program.kill_9().await.unwrap(), Exit::Signal(9));
    assert!(!alive(first));
    assert!(program.check_alive().unwrap_err().to_string().contains("ended with signal 9"));

    program.start_again().await.unwrap();
    saying(&program, "started", 2).await;
    assert_ne!(program.pid(), first);
    program.signal(Signal::Freeze).await.unwrap();
    program.signal(Signal::Continue).await.unwrap();
    assert_eq!(program.stop(PATIENCE).await.unwrap(), Exit::Code(7));
    assert!(program.log_tail().contains("stopping"));

    program.start_again().await.unwrap();
    let last = program.pid();
    drop(program);
    assert!(!alive(last), "dropping it kills it");
}

async fn saying(program: &OperatorProcess, word: &str, times: usize) {
    eventually(PATIENCE, &format!("the log says {word} {times} times"), || async {
        let log = std::fs::read_to_string(program.log_path())?;
        Ok((log.matches(word).count() >= times).then_some(()))
    })
    .await
    .unwrap();
}

/// Runs a shell script in at most 32 MiB.
async fn limited(supervisor: &ProcessSupervisor, directory: &Path, script: &str) -> Running {
    let spec = ProgramSpec {
        name: "script".into(),
        path: "/bin/sh".into(),
        args: vec![
            "-c".into(),
            format!("grep memory: /proc/self/cgroup || grep ^0: /proc/self/cgroup; {script}"),
        ],
        env: Vec::new(),
        log: directory.join("log"),
        memory_limit: Some(32 << 20),
    };
    supervisor.start(spec).await.unwrap()
}

/// The cgroup that a limited script has written into its log; `None` where the harness may not create any.
async fn group_of(directory: &Path) -> Option<PathBuf> {
    let line = eventually(PATIENCE, "the script says its cgroup", || async {
        let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        Ok(log.lines().last().filter(|_| log.ends_with('\n')).map(str::to_owned))
    })
    .await
    .unwrap();
    let path = line.rsplit(':').next().unwrap().trim_start_matches('/').to_owned();
    let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(|root| Path::new(root).join(&path));
    let found = path.contains("tandem-").then(|| roots.into_iter().find(|directory| directory.is_dir()));
    found.unwrap_or_else(|| {
        println!("no memory cgroup can be created here");
        None
    })
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_needs_more_memory_than_its_limit_is_killed_and_that_is_said() {
    // Itself, and a program that it has started: `tail` keeps the line of zeros, which has no end.
    for script in ["exec tail /dev/zero", "tail /dev/zero; exit 0"] {
        let directory = tempfile::tempdir().unwrap();
        let supervisor = ProcessSupervisor::spawn(None).unwrap();
        let go = directory.path().join("go");
        let script = format!("while ! [ -e {} ]; do sleep 0.05; done; {script}", go.display());
        let program = limited(&supervisor, directory.path(), &script).await;
        // Without a cgroup, the limit of the address space has room for what this would take from the machine.
        let Some(group) = group_of(directory.path()).await else { return };
        assert!(group.is_dir());
        std::fs::write(go, "").unwrap();
        let exit = tokio::time::timeout(PATIENCE, program.wait()).await.unwrap();
        assert_eq!(exit, Exit::OutOfMemory(32 << 20), "{script}");
        assert!(exit.to_string().contains("more memory than its limit of 32 MiB"), "{exit}");
        assert!(!group.exists(), "{} is left", group.display());
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn no_cgroup_and_no_process_in_it_is_left_however_a_limited_program_ends() {
    for end in ["kill -9", "its supervisor closes", "its supervisor is killed"] {
        let directory = tempfile::tempdir().unwrap();
        let supervisor = ProcessSupervisor::spawn(None).unwrap();
        let program = limited(&supervisor, directory.path(), "setsid sleep 600 & sleep 600; true").await;
        let Some(group) = group_of(directory.path()).await else { return };
        let members = || std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let three = async || Ok((members().lines().count() == 3).then(members));
        let members = eventually(PATIENCE, "the programs run", three).await.unwrap();
        match end {
            "kill -9" => {
                program.signal(Signal::Freeze).await.unwrap();
                assert_eq!(program.kill().await.unwrap(), Exit::Signal(9), "not the limit's doing");
            }
            "its supervisor closes" => supervisor.close().unwrap(),
            _ => {
                let name = group.file_name().unwrap().to_str().unwrap();
                let id = name.split('-').nth(1).unwrap().parse().unwrap();
                kill(Pid::from_raw(id), SIGKILL).unwrap();
                assert_eq!(program.wait().await, Exit::WithSupervisor);
                supervisor.close().unwrap();
                eventually(PATIENCE, "the next one removes the cgroup", || async {
                    let next = ProcessSupervisor::spawn(None)?;
                    limited(&next, directory.path(), "true").await.wait().await;
                    Ok((!group.exists()).then_some(()))
                })
                .await
                .unwrap();
            }
        }
        assert!(!group.exists(), "{end}: {} is left", group.display());
        for member in members.lines() {
            assert!(!alive(member.parse().unwrap()), "{end}: process {member} is left");
        }
    }
}

/// A process that started a control plane and can be killed.
struct Victim {
    child: Child,
    root: PathBuf,
    pids: Vec<u32>,
}

impl Victim {
    async fn start() -> Self {
        tokio::task::spawn_blocking(|| Self::start_blocking().unwrap()).await.unwrap()
    }

    fn start_blocking() -> Result<Self> {
        let binary = env!("CARGO_BIN_EXE_victim");
        let mut child = Command::new(binary).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let said: serde_json::Value = serde_json::from_str(&line).context("the victim did not start")?;
        Ok(Self { child, root: typed(said["root"].clone()), pids: typed(said["pids"].clone()) })
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Both fail only if the process is already gone.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap())
}

/// Whether a process runs; a zombie does not.
fn alive(pid: u32) -> bool {
    if let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        return status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'));
    }
    !cfg!(target_os = "linux") && kill(process(pid), None).is_ok()
}
