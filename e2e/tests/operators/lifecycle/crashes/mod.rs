//! The `NodePool` operator is killed after every write of its work, and the work ends as if it had not been: for nodes that
//! it makes itself, and for machines whose kubelets register their Nodes.
//!
//! It runs without leader election, so that each of its many lives begins at once.

mod work;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use shared_crds::NodePool;
use shared_crds::v1alpha1::{ExecProvider, ProviderSpec};
use testbed::audit::Event;
use testbed::crashes::{CrashPoints, Lives, crashing};
use testbed::end_state::EndState;
use testbed::fault_proxy::FaultProxy;
use testbed::machines::{Machines, PROGRAM};
use testbed::objects;
use testbed::operators::OperatorKind;
use testbed::test_env::{EXITS, PATIENCE, TestEnv};
use testbed::wait::eventually;

use self::work::{Drain, Repair, Rollout, ScaleUp, Work};
use super::sent_by;

/// For how long nothing is written when the work is done.
const AT_REST: Duration = Duration::from_secs(3);

/// Who makes the Nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The operator.
    Operator,
    /// Kubelets, on machines that a program makes.
    Kubelets,
}

/// The operators, of which one may be killed.
struct Crashable {
    env: TestEnv,
    proxy: FaultProxy,
    machines: Option<Machines>,
}

impl Crashable {
    async fn begin(prefix: &str, source: Source) -> Self {
        let mut machines = (source == Source::Kubelets).then(|| Machines::new().unwrap());
        let mut values = machines.as_ref().map(Machines::values).unwrap_or_default();
        values.push("nodepoolOperator.extraArgs[0]=--leader-elect=false".to_owned());
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let mut env = TestEnv::begin(prefix, &values).await.unwrap();
        if let Some(machines) = &mut machines {
            machines.start_kubelets(env.cluster).await.unwrap();
        }
        let proxy = FaultProxy::start(env.cluster).await.unwrap();
        env.operators.node_pool.stop(EXITS).await.unwrap();
        let pod = env.release.pod(env.cluster, OperatorKind::NodePool).await.unwrap();
        env.operators.node_pool = pod.start_through(env.cluster, &proxy).await.unwrap();
        Self { env, proxy, machines }
    }

    /// Creates a pool whose spec has these fields, too.
    async fn pool(&self, name: &str, spec: &Value) -> Result<()> {
        let mut pool = objects::pool(name, 0, 9);
        if self.machines.is_some() {
            let exec = ExecProvider { name: PROGRAM.to_owned(), ..ExecProvider::default() };
            pool.spec.provider = ProviderSpec { exec: Some(exec), ..ProviderSpec::default() };
        }
        let mut pool = serde_json::to_value(pool)?;
        pool["spec"]["template"]["metadata"]["annotations"] = json!({"example.com/note": "x"});
        json_patch::merge(&mut pool["spec"], spec);
        self.env.create(&serde_json::from_value::<NodePool>(pool)?).await?;
        Ok(())
    }

    /// A budget for the pods of the workload that is called like `pool`.
    async fn budget(&self, pool: &str, least: i32) -> Result<()> {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": pool},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": pool}}},
        }))?;
        self.env.create(&budget).await?;
        Ok(())
    }

    /// Waits until there are `wanted` pods of the workload that is called like `pool`, all running.
    async fn running(&self, pool: &str, wanted: usize) -> Result<()> {
        let of_pool = ListParams::default().labels(&format!("app={pool}"));
        eventually(PATIENCE, &format!("{wanted} pods of {pool} run"), async || {
            let pods = self.env.api::<Pod>().list(&of_pool).await?.items;
            let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
            let running = pods.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count();
            ensure!(running == wanted && pods.len() == wanted, "{running} of {} run", pods.len());
            Ok(Some(()))
        })
        .await
    }

    /// The state of `pool` when nothing more is written, which has to be `expected`, if there is anything to compare with.
    async fn at_rest(&self, pool: &str, expected: Option<&EndState>) -> Result<EndState> {
        let read = || EndState::read(&self.env, pool, self.machines.as_ref());
        eventually(PATIENCE, &format!("{pool} is at rest"), async || {
            let before = read().await?;
            before.check(expected.unwrap_or(&before))?;
            self.proxy.writes().quiet(AT_REST).await;
            let after = read().await?;
            after.check(&before)?;
            Ok(Some(after))
        })
        .await
    }

    /// Deletes the pools and what would hold their nodes, and ends the test.
    async fn end(self) {
        let (params, all) = (DeleteParams::default(), ListParams::default());
        self.env.api::<PodDisruptionBudget>().delete_collection(&params, &all).await.unwrap();
        self.env.kubectl(&["delete", "deployments,statefulsets", "--all"]).await.unwrap();
        self.env.api::<NodePool>().delete_collection(&params, &all).await.unwrap();
        eventually(PATIENCE, "every pool is gone", async || {
            let pools = self.env.api::<NodePool>().list(&all).await?.items;
            ensure!(pools.is_empty(), "{} are there", pools.len());
            Ok(Some(()))
        })
        .await
        .unwrap();
        let machines = self.machines.as_ref().map(|machines| machines.names().unwrap());
        assert_eq!(machines.unwrap_or_default(), Vec::<String>::new());
        self.env.end().await.unwrap();
    }
}

/// How many nodes of `pool` were made, how many were deleted, and how many pods of its workload.
fn effects(events: &[Event], pool: &str) -> [usize; 3] {
    let names = |verb: &str, resource: &str, subresource: &str| -> Vec<String> {
        let done = events.iter().filter(|event| event.succeeded() && event.verb == verb);
        let names = done.filter(|event| event.subresource == subresource).filter_map(|event| {
            let object = event.object.as_ref().filter(|object| object.resource == resource)?;
            let in_body = event.request.as_ref().and_then(|body| body.pointer("/metadata/name")?.as_str());
            Some(in_body.unwrap_or(&object.name).to_owned())
        });
        names.filter(|name| name.contains(&format!("{pool}-"))).collect()
    };
    // Several may delete a pod.
    let gone: BTreeSet<String> =
        [names("create", "pods", "eviction"), names("delete", "pods", "")].concat().into_iter().collect();
    [names("create", "nodes", "").len(), names("delete", "nodes", "").len(), gone.len()]
}

/// The writes of the `NodePool` operator that were granted, without those that change nothing it works from.
fn granted(events: &[Event]) -> usize {
    let uncounted = ["events", "leases", "selfsubjectaccessreviews"];
    let is_counted = |event: &&Event| {
        let object = event.object.as_ref();
        object.is_some_and(|object| !uncounted.contains(&object.resource.as_str()))
    };
    let writes = events.iter().filter(|event| event.is_write() && event.succeeded());
    writes.filter(|event| sent_by(event, OperatorKind::NodePool, 0)).filter(is_counted).count()
}

/// Does `work` on a pool undisturbed, and then on other pools while the operator is killed.
async fn ends_as_if_undisturbed(prefix: &str, source: Source, work: impl Work) {
    let test = Crashable::begin(prefix, source).await;
    let audit = test.env.audit().unwrap();
    // A test that failed before leaves pools of the names that it used.
    let undisturbed = &format!("{prefix}-undisturbed");
    work.prepare(&test, undisturbed).await.unwrap();
    let began = audit.end().unwrap();
    work.carry_out(&test, undisturbed).await.unwrap();
    let expected = test.at_rest(undisturbed, None).await.unwrap();
    let usual = effects(&audit.follow_from(began).read_new().unwrap(), undisturbed);

    for (name, writes) in [("every-write", 1), ("every-other", 2)] {
        let pool = &format!("{prefix}-{name}");
        work.prepare(&test, pool).await.unwrap();
        test.proxy.writes().quiet(AT_REST).await;
        let began = audit.end().unwrap();
        // Each change of a machine is a write, too.
        let machines = test.machines.as_ref().filter(|_| writes == 1);
        let disturbed = async {
            work.carry_out(&test, pool).await?;
            test.at_rest(pool, Some(&expected)).await
        };
        let operator = &test.env.operators.node_pool;
        let points = CrashPoints { writes, machines };
        let done = crashing(operator, &test.proxy, points, disturbed).await;
        let (_, lives) = done.map_err(|error| error.context(operator.log_tail())).unwrap();
        show(pool, &lives);

        // The audit log says so, too: there was no write after which the operator was not killed.
        assert!(lives.killed.iter().all(|life| life.writes.len() <= writes), "{lives:#?}");
        assert!(lives.rest.len() < writes, "{lives:#?}");
        let events = audit.follow_from(began).read_new().unwrap();
        assert_eq!(granted(&events), lives.writes());
        assert_eq!(effects(&events, pool), usual, "nodes made, nodes deleted, pods deleted");
        let kills = lives.kills();
        for (write, least) in work.writes(source).into_iter().filter(|_| writes == 1) {
            let count = kills.get(write).copied().unwrap_or_default();
            assert!(count >= least, "killed {count} times after {write}, not {least}: {kills:#?}");
        }
        assert!(kills.values().sum::<usize>() >= lives.writes() / writes, "{kills:#?}");
    }
    // None of the lives has touched it.
    let now = EndState::read(&test.env, undisturbed, test.machines.as_ref()).await.unwrap();
    now.check(&expected).unwrap();
    test.end().await;
}

/// For whoever wants to know after which writes it was killed.
fn show(what: &str, lives: &Lives) {
    println!("{what}: killed {} times, after", lives.killed.len());
    for (write, count) in lives.kills() {
        println!("{count:>6} {write}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-up", Source::Operator, ScaleUp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_up_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-up-exec", Source::Kubelets, ScaleUp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-down", Source::Operator, Drain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-down-exec", Source::Kubelets, Drain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-dead", Source::Operator, Repair).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-dead-exec", Source::Kubelets, Repair).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-roll", Source::Operator, Rollout).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed() {
    ends_as_if_undisturbed("crash-roll-exec", Source::Kubelets, Rollout).await;
}
