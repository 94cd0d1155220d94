//! The third controller of `docs/guides/third-controller.md`, as a program with the rights that come with it, beside both operators.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use std::fmt::Debug;
use std::path::PathBuf;

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use shared_crds::NodePool;
use testbed::audit::Event;
use testbed::concurrent_writer::ConcurrentWriter;
use testbed::lost_update_check::LostUpdateCheck;
use testbed::operators::OperatorProcess;
use testbed::request_costs::RequestCosts;
use testbed::test_env::{EXITS, PATIENCE, RELEASE_NAMESPACE, TestEnv};
use testbed::wait::eventually;
use testbed::write_effects::WriteEffects;
use testbed::{objects, programs};
use tokio::process::Command;

use super::conflicts::managers_keep_to_their_fields;

/// Its account and its field manager.
const NAME: &str = "cost-operator";
/// Its condition.
const WITHIN_BUDGET: &str = "example.com/WithinBudget";
/// What it reads, and does not write.
const PRICE: &str = "example.com/price-per-node-hour";
const BUDGET: &str = "example.com/budget-per-hour";

/// Its rights, as the guide shows them.
const ROLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/examples/cost_operator/rbac.yaml");

/// Writes per second by the concurrent writer, beside three controllers.
const CONCURRENT_RATE: u64 = 5;

async fn program() -> PathBuf {
    programs::examples().await.unwrap().join("cost_operator")
}

/// Applies the account with its role, and waits until the API server knows them.
async fn grant(env: &TestEnv) {
    env.kubectl(&["apply", "--server-side", "--filename", ROLE]).await.unwrap();
    let namespace = env.namespace();
    let rights: [&[&str]; 2] = [
        &["watch", "nodepools.tandem.dev", "--namespace", namespace],
        &["patch", "nodepools.tandem.dev", "--subresource=status", "--namespace", namespace],
    ];
    for right in rights {
        eventually(PATIENCE, &format!("it may {right:?}"), async || {
            let may = env.cluster.can_i((namespace, NAME), right).await?;
            Ok(may.then_some(()))
        })
        .await
        .unwrap();
    }
}

/// The admission policy as the program prints it. It belongs to no namespace, so a test takes it away.
struct Policy(String);

impl Policy {
    async fn begin(env: &TestEnv) -> Self {
        let mut command = Command::new(program().await);
        let output = command.args([env.namespace(), "--policy"]).output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let policy = Self(String::from_utf8(output.stdout).unwrap());
        let apply = ["apply", "--server-side", "--filename", "-"];
        env.cluster.kubectl_with_input(&apply, &policy.0).await.unwrap();
        policy
    }

    async fn end(self, env: &TestEnv) {
        env.cluster.kubectl_with_input(&["delete", "--filename", "-"], &self.0).await.unwrap();
    }
}

async fn start(env: &TestEnv) -> OperatorProcess {
    let kubeconfig = env.cluster.kubeconfig_for_service_account(env.namespace(), NAME).await.unwrap();
    let variables = vec![("KUBECONFIG".to_owned(), kubeconfig.display().to_string())];
    let arguments = vec![env.namespace().to_owned()];
    OperatorProcess::start_program(env.cluster, NAME, &program().await, arguments, variables).await.unwrap()
}

/// A pool with a price of a node, and what all may cost.
fn priced(name: &str, budget: &str) -> NodePool {
    let mut pool = objects::pool(name, 0, 20);
    let annotations = [(PRICE, "0.25"), (BUDGET, budget)];
    pool.metadata.annotations =
        Some(annotations.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
    pool
}

fn is_by_third(env: &TestEnv, event: &Event) -> bool {
    event.writer() == format!("{}:{NAME}", env.namespace())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_controller_and_the_operators_keep_to_their_own_fields_and_lose_nothing() {
    let env = TestEnv::begin("third", &[]).await.unwrap();
    grant(&env).await;
    let policy = Policy::begin(&env).await;
    let third = start(&env).await;
    env.create(&priced("busy", "1.00")).await.unwrap();
    env.create(&objects::autoscaler("all", 1)).await.unwrap();
    env.create(&objects::deployment("web", "busy", 0, "2")).await.unwrap();
    let writer = ConcurrentWriter::start(env.api(), "busy", CONCURRENT_RATE, 20, 7);

    let deployments = env.api::<Deployment>();
    for (pods, nodes, status, reason) in
        [(4, 2, "True", "Affordable"), (12, 6, "False", "OverBudget"), (0, 0, "True", "Affordable")]
    {
        let patch = Patch::Merge(json!({"spec": {"replicas": pods}}));
        deployments.patch_scale("web", &PatchParams::default(), &patch).await.unwrap();
        env.pods_run(usize::try_from(pods).unwrap()).await.unwrap();
        env.settles("busy", nodes).await.unwrap();
        third.check_alive().unwrap();
        let text = format!("{nodes} nodes cost");
        env.says("busy", WITHIN_BUDGET, (status, reason, text.as_str())).await.unwrap();
    }
    let report = writer.finish().await.unwrap();
    quiet_when_nothing_changes(&env).await;

    let pool = env.pool("busy").await.unwrap();
    report.check_kept(&pool).unwrap();
    managers_keep_to_their_fields(&pool);
    owns_one_condition(&pool);
    let key = env.key("busy");
    let last: u64 = pool.metadata.resource_version.as_deref().unwrap().parse().unwrap();
    let written = |events: &[Event]| {
        let seen =
            events.iter().filter(|event| event.object.as_ref() == Some(&key)).filter_map(Event::version);
        (seen.max() >= Some(last)).then_some(())
    };
    env.audit().unwrap().wait_for(0, PATIENCE, "the log holds the last version", written).await.unwrap();
    let events = env.events().unwrap();
    LostUpdateCheck::of(&events, &key).check_unbroken().unwrap();

    // Each change is by the owner of the field. The product's contract has no row for this condition.
    let effects = WriteEffects::of(&events, &key);
    let condition = format!("status.conditions.{WITHIN_BUDGET}.");
    let name = format!("{}:{NAME}", env.namespace());
    let (own, others): (Vec<_>, Vec<_>) =
        effects.trespasses.iter().partition(|it| it.writer == name && it.field.starts_with(&condition));
    assert!(own.len() > 3 && others.is_empty(), "{} changes of its own, and {others:?}", own.len());
    assert!(effects.unguarded.is_empty(), "{:?}", effects.unguarded);

    // Its requests: no reads, no refusals, no write that changes nothing; and nothing but its status.
    let costs = RequestCosts::of(&events, |object| *object == key);
    let row = costs.row(&name, "nodepools/status").unwrap();
    assert!(row.writes > 3 && row.succeeded == row.writes && row.no_ops == 0, "\n{costs}");
    // `kubectl auth can-i`, with which the test looks whether the role is known yet, asks under its account too.
    let asks = |event: &Event| event.user_agent.starts_with("kubectl/") && event.object.is_none();
    let all: Vec<&Event> = events.iter().filter(|event| is_by_third(&env, event) && !asks(event)).collect();
    let forbidden: Vec<&&Event> = all.iter().filter(|event| event.code == 403).collect();
    assert!(forbidden.is_empty(), "the role does not suffice: {forbidden:?}");
    let is_its_apply = |event: &&Event| {
        event.verb == "patch"
            && event.subresource == "status"
            && event.field_manager.as_deref() == Some(NAME)
            && !event.forced
    };
    let other = all.iter().find(|event| event.is_write() && !is_its_apply(event));
    assert!(other.is_none(), "{other:?}");
    // Nobody meets a conflict, but for the concurrent writer, who PUTs.
    let conflicts = costs.totals.iter().filter(|row| !row.writer.contains("admin")).map(|row| row.conflicts);
    assert_eq!(conflicts.sum::<u64>(), 0, "\n{costs}");

    third.stop(EXITS).await.unwrap();
    policy.end(&env).await;
    env.end().await.unwrap();
}

/// Events that change nothing of what it reports are answered by no write, and one that does by one.
async fn quiet_when_nothing_changes(env: &TestEnv) {
    let pools = env.api::<NodePool>();
    let generation = pools.get("busy").await.unwrap().metadata.generation;
    eventually(PATIENCE, "it has seen the last generation", async || {
        let conditions = env.pool("busy").await?.status.unwrap_or_default().conditions;
        let seen = conditions.into_iter().find(|it| it.type_ == WITHIN_BUDGET);
        let seen = seen.and_then(|it| it.observed_generation);
        ensure!(seen == generation, "{seen:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let version =
        |pool: &NodePool| pool.metadata.resource_version.as_deref().unwrap().parse::<u64>().unwrap();
    let before = version(&env.pool("busy").await.unwrap());
    let annotate = async |key: &str, value: String| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        drop(pools.patch("busy", &PatchParams::default(), &patch).await.unwrap());
    };
    for count in 0..20 {
        annotate("example.com/unrelated", count.to_string()).await;
    }
    annotate(BUDGET, "2.00".to_owned()).await;
    env.says("busy", WITHIN_BUDGET, ("True", "Affordable", "2.00 is allowed")).await.unwrap();
    // What it writes because of its own event comes before its answer to the next one.
    annotate("example.com/unrelated", "last".to_owned()).await;
    let last = version(&env.pool("busy").await.unwrap());
    // Versions are those of all objects, so it is the last change of the pool that is looked for.
    let key = env.key("busy");
    let own_writes = |events: &[Event]| {
        let of_pool = events.iter().filter(|event| event.object.as_ref() == Some(&key));
        let later: Vec<&Event> = of_pool.filter(|event| event.version() > Some(before)).collect();
        let count = later.iter().filter(|event| event.is_write() && is_by_third(env, event)).count();
        (count > 0 && later.iter().any(|event| event.version() >= Some(last))).then_some(count)
    };
    let audit = env.audit().unwrap();
    let writes = audit.wait_for(0, PATIENCE, "the last change is in the log", own_writes).await.unwrap();
    assert_eq!(writes, 1, "for 20 changes of what it does not read, and one of what it does");
}

/// `managedFields` shows its condition under its manager, and nothing else under that or that under another.
fn owns_one_condition(pool: &NodePool) {
    let mut own = Vec::new();
    for entry in pool.metadata.managed_fields.iter().flatten() {
        let fields = serde_json::to_value(entry.fields_v1.as_ref().unwrap()).unwrap();
        if entry.manager.as_deref() == Some(NAME) {
            assert_eq!(
                (entry.operation.as_deref(), entry.subresource.as_deref()),
                (Some("Apply"), Some("status"))
            );
            own.push(fields);
        } else {
            assert!(!fields.to_string().contains(WITHIN_BUDGET), "{:?} manages its condition", entry.manager);
        }
    }
    let [fields] = own.as_slice() else { panic!("{} entries of {NAME}", own.len()) };
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(fields), ["f:status"]);
    assert_eq!(keys(&fields["f:status"]), ["f:conditions"]);
    let conditions = keys(&fields["f:status"]["f:conditions"]);
    let entries: Vec<&String> = conditions.iter().filter(|key| *key != ".").collect();
    assert!(entries.len() == 1 && entries[0].contains(WITHIN_BUDGET), "{entries:?}");
}

/// The answer is a 403 with this in its message.
fn assert_refused<T: Debug>(answer: Result<T, kube::Error>, by: &str) {
    match answer {
        Err(kube::Error::Api(status)) if status.is_forbidden() && status.message.contains(by) => {}
        other => panic!("not refused by what says {by:?}: {other:?}"),
    }
}

/// What RBAC says, and what the policies say.
const ROLE_SAYS: &str = "cannot ";
const POLICY_SAYS: &str = "does not own";

/// An apply of one condition.
fn condition(type_: &str) -> Patch<Value> {
    let condition = json!({
        "type": type_,
        "status": "Unknown",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    Patch::Apply(json!({
        "apiVersion": "tandem.dev/v1alpha1",
        "kind": "NodePool",
        "status": {"conditions": [condition]},
    }))
}

fn pools(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &ApiResource::erase::<NodePool>(&()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_controller_is_refused_what_its_role_and_its_policy_do_not_name() {
    let env = TestEnv::begin("third-rights", &[]).await.unwrap();
    env.create(&objects::pool("kept", 1, 3)).await.unwrap();
    env.settles("kept", 1).await.unwrap();
    grant(&env).await;
    let client = env.cluster.client_for_service_account(env.namespace(), NAME).await.unwrap();
    let third = pools(client.clone(), env.namespace());
    // A dry run passes authorization and admission like any other write.
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let apply = PatchParams { dry_run: true, ..PatchParams::apply(NAME) };

    // What the role names.
    assert_eq!(third.list(&ListParams::default()).await.unwrap().items.len(), 1);
    third.patch_status("kept", &apply, &condition(WITHIN_BUDGET)).await.unwrap();
    // What it does not name.
    let annotation = Patch::Merge(json!({"metadata": {"annotations": {"example.com/cost": "1"}}}));
    assert_refused(third.patch("kept", &dry, &annotation).await, ROLE_SAYS);
    let count = Patch::Merge(json!({"spec": {"replicas": 3}}));
    assert_refused(third.patch("kept", &dry, &count).await, ROLE_SAYS);
    assert_refused(third.patch_scale("kept", &dry, &count).await, ROLE_SAYS);
    let deletion = DeleteParams { dry_run: true, ..DeleteParams::default() };
    assert_refused(third.delete("kept", &deletion).await, ROLE_SAYS);
    let pool: DynamicObject = pools(env.client.clone(), env.namespace()).get("kept").await.unwrap();
    let put = PostParams { dry_run: true, ..PostParams::default() };
    assert_refused(third.replace_status("kept", &put, &pool).await, ROLE_SAYS);
    let elsewhere = pools(client.clone(), RELEASE_NAMESPACE);
    assert_refused(elsewhere.list(&ListParams::default()).await, ROLE_SAYS);
    assert_refused(Api::<Node>::all(client.clone()).list(&ListParams::default()).await, ROLE_SAYS);
    let secrets = Api::<Secret>::namespaced(client, env.namespace());
    assert_refused(secrets.list(&ListParams::default()).await, ROLE_SAYS);

    // Without a policy, the role is for all of the status: with force, a condition of another owner is taken.
    let forced = apply.clone().force();
    third.patch_status("kept", &forced, &condition("Ready")).await.unwrap();
    let policy = Policy::begin(&env).await;
    eventually(PATIENCE, "the policy is in force", async || {
        let answer = third.patch_status("kept", &forced, &condition("Ready")).await;
        Ok(answer.is_err().then_some(()))
    })
    .await
    .unwrap();
    assert_refused(third.patch_status("kept", &forced, &condition("Ready")).await, POLICY_SAYS);
    assert_refused(third.patch_status("kept", &forced, &condition("AbleToScale")).await, POLICY_SAYS);
    assert_refused(third.patch_status("kept", &forced, &condition("example.org/Other")).await, POLICY_SAYS);
    for foreign in [
        json!({"readyReplicas": 0}),
        json!({"autoscaling": null, "replicas": null}),
        json!({"conditions": []}),
    ] {
        let patch = Patch::Merge(json!({"status": foreign}));
        assert_refused(third.patch_status("kept", &dry, &patch).await, POLICY_SAYS);
    }
    // Its own condition is written as before.
    third.patch_status("kept", &apply, &condition(WITHIN_BUDGET)).await.unwrap();

    // The other way round the policies of the chart do it, without a change: what they do not name is refused.
    for account in ["tandem-nodepool-operator", "tandem-autoscaler-operator"] {
        let client = env.cluster.client_for_service_account(RELEASE_NAMESPACE, account).await.unwrap();
        let operator = pools(client, env.namespace());
        let answer = operator.patch_status("kept", &forced, &condition(WITHIN_BUDGET)).await;
        assert_refused(answer, POLICY_SAYS);
    }
    policy.end(&env).await;
    env.end().await.unwrap();
}
