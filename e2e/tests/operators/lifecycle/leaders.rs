//! A frozen leader is replaced, and does not write when it wakes: for both operators. Nor do two leaders write at the
//! same time when a user deletes the lease.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use shared_crds::NodePool;
use testbed::audit::{Event, ObjectKey};
use testbed::fault_proxy::{FaultProxy, InjectedRefusal};
use testbed::objects;
use testbed::operators::{OperatorKind, OperatorProcess};
use testbed::process_supervisor::{Exit, Signal};
use testbed::test_env::{EXITS, PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::hold::Hold;
use super::{QUICK_LEASE, asked, scale, sent_by};

/// Lease duration of [`QUICK_LEASE`].
const LEASE: Duration = Duration::from_secs(10);

/// The work of an operator.
struct Work {
    operator: OperatorKind,
    pool: &'static str,
    /// The wanted number of nodes: at first, when the leader is frozen, and when it wakes.
    nodes: [i32; 3],
    /// How many nodes are created and removed by that.
    come: usize,
    go: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_leader_of_the_node_pool_operator_is_replaced_and_does_not_write_when_it_wakes() {
    let operator = OperatorKind::NodePool;
    // A node is removed first: the removal starts in the pass that detects it, and that pass has to report it.
    a_frozen_leader(Work { operator, pool: "by-hand", nodes: [2, 1, 3], come: 4, go: 1 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_leader_of_the_autoscaler_is_replaced_and_does_not_write_when_it_wakes() {
    let operator = OperatorKind::Autoscaler;
    a_frozen_leader(Work { operator, pool: "by-pods", nodes: [1, 2, 3], come: 3, go: 0 }).await;
}

/// Frozen in the middle of a pass, which is the dangerous moment: on waking, the pass continues until it is stopped.
async fn a_frozen_leader(work: Work) {
    let Work { operator, pool, nodes: [at_first, then, at_last], come, go } = work;
    let mut env = TestEnv::begin("leader", &QUICK_LEASE).await.unwrap();
    let replica = env.release.pod(env.cluster, operator).await.unwrap();
    begin(&env, &work).await.unwrap();
    // With its status: that would be written a while later on a busy machine.
    env.settles(pool, at_first).await.unwrap();
    let first = holder(&env, operator, 0).await;
    let second = replica.replica(1).start(env.cluster).await.unwrap();
    at_rest(&env, operator, 0).await;

    let mut hold = Hold::begin(&env, operator, pool).await.unwrap();
    ask(&env, &work, then).await;
    hold.caught().await.unwrap();
    process(&mut env, operator).signal(Signal::Freeze).await.unwrap();
    hold.end().await.unwrap();
    // The new leader works: it completes what the first one began, and more.
    let now = holder(&env, operator, 1).await;
    assert_ne!(now, first);
    done(&env, &work, then).await;

    // Work for a replica that still believes it leads: its caches will show it this change first.
    ask(&env, &work, at_last).await;
    let woken = env.audit().unwrap().end().unwrap();
    let first = process(&mut env, operator);
    first.signal(Signal::Continue).await.unwrap();
    let exit = tokio::time::timeout(EXITS, first.wait()).await.ok();
    let log = first.log_tail();
    assert_eq!(exit, Some(Exit::Code(1)), "a leader that lost its lease ends\n{log}");
    done(&env, &work, at_last).await;

    // It must not even send a request, whatever the answer: a name conflict or a changed value would hide a write.
    let since = env.audit().unwrap().follow_from(woken).read_new().unwrap();
    assert_eq!(writes(&since, operator, 0), [], "the woken leader wrote\n{log}");
    // The controls: it wrote while it led, with this name, and the last of its writes was interrupted.
    let events = env.events().unwrap();
    let before = writes(&events, operator, 0);
    let codes: Vec<u16> = before.iter().map(|(.., code)| *code).collect();
    assert!(codes.contains(&200) && codes.last().is_some_and(|code| *code >= 500), "{before:#?}");
    assert_ne!(writes(&events, operator, 1), [], "the second leader wrote nothing");
    assert_eq!((made(&events, pool), asked(&events, "delete", pool).len()), (come, go));

    *process(&mut env, operator) = second;
    env.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_makes_no_second_leader_beside_one_that_cannot_read_it() {
    let (first, second) = a_deleted_lease(false).await;
    // The control: it continued its work, so two leaders could have overlapped.
    assert_ne!(first, 0, "the first leader wrote nothing more");
    assert_ne!(second, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_is_created_again_when_its_leader_has_ended() {
    a_deleted_lease(true).await;
}

/// Deletes the lease while its holder works and another replica is standby. With `hears`, the holder notices it when it
/// renews; otherwise none of its lease requests is answered. Returns how many writes each replica sent since.
async fn a_deleted_lease(hears: bool) -> (usize, usize) {
    let operator = OperatorKind::NodePool;
    let mut env = TestEnv::begin("deleted", &QUICK_LEASE).await.unwrap();
    let proxy = FaultProxy::start(env.cluster).await.unwrap();
    let replica = env.release.pod(env.cluster, operator).await.unwrap();
    env.operators.node_pool.stop(EXITS).await.unwrap();
    env.operators.node_pool = replica.start_through(env.cluster, &proxy).await.unwrap();
    let mut pool = objects::pool("p", 0, 100);
    pool.spec.replicas = Some(1);
    env.create(&pool).await.unwrap();
    env.settles("p", 1).await.unwrap();
    holder(&env, operator, 0).await;
    let second = replica.replica(1).start(env.cluster).await.unwrap();
    eventually(PATIENCE, "the second replica has seen who leads", async || {
        second.check_alive()?;
        let log = std::fs::read_to_string(second.log_path())?;
        Ok(log.contains("standing by").then_some(()))
    })
    .await
    .unwrap();

    if !hears {
        proxy.refuse(InjectedRefusal { target: "/leases/".into(), code: 503, one_in: 1 });
    }
    let deleted = env.audit().unwrap().end().unwrap();
    let leases = Api::<Lease>::namespaced(env.client.clone(), env.release.namespace());
    let _ = leases.delete("tandem-nodepool-operator", &DeleteParams::default()).await.unwrap();
    // A new generation requires a write by the leader, and there is always another one.
    let pools = env.api::<NodePool>();
    let most = AtomicI32::new(100);
    eventually(PATIENCE, "the second replica works", async || {
        let change = json!({"spec": {"maxReplicas": most.fetch_add(1, Ordering::Relaxed) + 1}});
        let change = Patch::Merge(change);
        pools.patch("p", &PatchParams::default(), &change).await?;
        let events = env.audit()?.follow_from(deleted).read_new()?;
        Ok((changes(&events, operator, 1).count() >= 3).then_some(()))
    })
    .await
    .unwrap();
    let first = process(&mut env, operator);
    let exit = tokio::time::timeout(EXITS, first.wait()).await.ok();
    assert_eq!(exit, Some(Exit::Code(1)), "a leader that lost its lease ends\n{}", first.log_tail());

    let events = env.events().unwrap();
    let since = env.audit().unwrap().follow_from(deleted).read_new().unwrap();
    let last_of_first = changes(&events, operator, 0).map(|event| event.completed).max().unwrap();
    let first_of_second = changes(&events, operator, 1).map(|event| event.received).min().unwrap();
    assert!(last_of_first < first_of_second, "both wrote from {first_of_second} to {last_of_first}");
    // A replica may rely on its renewed lease until it expires, so there must be no other leader before that.
    let of_leases = |replica| {
        let granted =
            events.iter().filter(move |event| sent_by(event, operator, replica) && event.succeeded());
        granted.filter(|event| event.is_write() && is_lease(event))
    };
    let renewed = of_leases(0).map(|event| event.received).max().unwrap();
    let made = of_leases(1).map(|event| event.received).min().unwrap();
    let lasted = Duration::try_from(made.duration_since(renewed)).unwrap();
    assert!(lasted >= LEASE, "the lease was made anew {lasted:?} after it was renewed");

    *process(&mut env, operator) = second;
    env.settles("p", 1).await.unwrap();
    env.end().await.unwrap();
    (changes(&since, operator, 0).count(), changes(&since, operator, 1).count())
}

/// What every other test relies on, where an API server is silent for too long: a Pod would be started again, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_loses_its_lease_is_started_again_once_and_goes_on() {
    let operator = OperatorKind::NodePool;
    let env = TestEnv::begin("taken", &QUICK_LEASE).await.unwrap();
    env.create(&objects::pool("p", 0, 3)).await.unwrap();
    env.settles("p", 0).await.unwrap();
    take_lease(&env, &holder(&env, operator, 0).await).await;
    scale(&env, "npool/p", 1).await;
    env.settles("p", 1).await.unwrap();
    env.operators.check_alive().unwrap();

    take_lease(&env, &holder(&env, operator, 0).await).await;
    let error = env.operators.keep_alive().await.unwrap_err().to_string();
    assert!(error.contains("nodepool-operator") && error.contains("exit code 1"), "{error}");
    // It has ended, so there is nothing to stop: the end of the environment kills the other one.
}

/// Takes the lease of the `NodePool` operator from `holder`, as another replica would, and waits until the holder has ended.
async fn take_lease(env: &TestEnv, holder: &str) {
    let leases = Api::<Lease>::namespaced(env.client.clone(), env.release.namespace());
    let taken = json!({"spec": {"holderIdentity": "another"}});
    let taken = Patch::Merge(taken);
    leases.patch("tandem-nodepool-operator", &PatchParams::default(), &taken).await.unwrap();
    let exit = tokio::time::timeout(PATIENCE, env.operators.node_pool.wait()).await.ok();
    assert_eq!(exit, Some(Exit::Code(1)), "{holder} lost its lease\n{}", env.operators.node_pool.log_tail());
}

/// Number of nodes of a pool that were created.
fn made(events: &[Event], pool: &str) -> usize {
    let made = events.iter().filter(|event| event.verb == "create" && event.succeeded());
    made.filter(|event| asked(std::slice::from_ref(event), "create", pool).len() == 1).count()
}

/// The writes that a replica sent, except for the lease, by which it learns of another holder, and for events, which
/// change nothing.
fn changes(events: &[Event], operator: OperatorKind, replica: usize) -> impl Iterator<Item = &Event> {
    let sent = events.iter().filter(move |event| sent_by(event, operator, replica) && event.is_write());
    sent.filter(|event| !is_lease(event))
}

fn is_lease(event: &Event) -> bool {
    event.object.as_ref().is_some_and(|object| object.resource == "leases")
}

/// Like [`changes`], with the answers.
fn writes(
    events: &[Event],
    operator: OperatorKind,
    replica: usize,
) -> Vec<(&str, Option<&ObjectKey>, &str, u16)> {
    changes(events, operator, replica)
        .map(|event| (event.verb.as_str(), event.object.as_ref(), event.subresource.as_str(), event.code))
        .collect()
}

/// Waits until a replica has sent nothing for three seconds: a write that is about to be sent when it is frozen would be
/// sent when it wakes.
async fn at_rest(env: &TestEnv, operator: OperatorKind, replica: usize) {
    let sent = || anyhow::Ok(writes(&env.events()?, operator, replica).len());
    eventually(PATIENCE, &format!("{}-{replica} comes to rest", operator.name()), async || {
        let before = sent()?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let after = sent()?;
        if before == after { Ok(Some(())) } else { bail!("{before} writes, {after} three seconds later") }
    })
    .await
    .unwrap();
}

fn process(env: &mut TestEnv, operator: OperatorKind) -> &mut OperatorProcess {
    match operator {
        OperatorKind::NodePool => &mut env.operators.node_pool,
        OperatorKind::Autoscaler => &mut env.operators.autoscaler,
    }
}

/// Waits until a replica of the operator holds the lease, and returns the holder's identity.
pub(super) async fn holder(env: &TestEnv, operator: OperatorKind, replica: usize) -> String {
    let leases = Api::<Lease>::namespaced(env.client.clone(), env.release.namespace());
    let name = operator.name();
    eventually(PATIENCE, &format!("{name}-{replica} leads"), async || {
        let lease = leases.get(&format!("tandem-{name}")).await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity).context("the lease has no holder")?;
        ensure!(holder.starts_with(&format!("{name}-{replica}_")), "{holder:?} holds the lease");
        Ok(Some(holder))
    })
    .await
    .unwrap()
}

/// Gives the operator work: a pool that should have some nodes, because of its `replicas` or because of pods.
async fn begin(env: &TestEnv, work: &Work) -> Result<()> {
    let nodes = work.nodes[0];
    let mut pool = objects::pool(work.pool, 0, 5);
    match work.operator {
        OperatorKind::NodePool => {
            pool.spec.replicas = Some(nodes);
            env.create(&pool).await?;
        }
        OperatorKind::Autoscaler => {
            env.create(&pool).await?;
            env.create(&objects::autoscaler("all", 600)).await?;
            // One pod fits on a node.
            env.create(&objects::deployment("web", work.pool, nodes, "3")).await?;
        }
    }
    Ok(())
}

/// Gives it other work of the same kind.
async fn ask(env: &TestEnv, work: &Work, nodes: i32) {
    match work.operator {
        OperatorKind::NodePool => scale(env, &format!("npool/{}", work.pool), nodes).await,
        OperatorKind::Autoscaler => scale(env, "deployment/web", nodes).await,
    }
}

/// Waits until the operator has done its work.
async fn done(env: &TestEnv, work: &Work, wanted: i32) {
    eventually(PATIENCE, &format!("{} has {wanted} nodes", work.pool), async || {
        let nodes = env.nodes(work.pool).await?.len();
        let replicas = env.pool(work.pool).await?.spec.replicas;
        if replicas == Some(wanted) && i32::try_from(nodes)? == wanted {
            return Ok(Some(()));
        }
        bail!("{nodes} nodes, spec.replicas {replicas:?}")
    })
    .await
    .unwrap();
}
