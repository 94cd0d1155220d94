//! What becomes of nodes, pods and finalizers when something is deleted: the table of `docs/guides/operations.md`.
//!
//! The provider is `simulated`, whose machines are their Nodes. The others have tables of their own, and the second table here names
//! tests that show more of them.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use shared_crds::names::ON_DELETE_ANNOTATION;
use shared_crds::v1alpha1::DrainSpec;
use testbed::objects;
use testbed::pages::{
    DeletionSubject, MachineSource, PageBlock, PodOnNode, QUICK_LEASE, SubjectObjects, markdown,
};
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;
use toolbox::workspace;

use super::TESTS;

const BLOCK: PageBlock = PageBlock { path: "docs/guides/operations.md", mark: "deletion-table", test: TESTS };
const HEADER: [&str; 6] =
    ["what is deleted", "pool", "its node", "a pod on it", "finalizer of the pool", "finalizer of the node"];
const DEFINITION: &str = "nodepools.tandem.dev";

/// Provider, what is shown, the file below the root, and the test in it.
const ELSEWHERE: [(&str, &str, &str, &str); 8] = [
    (
        "`exec`, `karpenter`",
        "a machine that is deleted is gone, and so is one that never was",
        "machine-providers/src/contract_tests.rs",
        "a_deleted_machine_is_gone_and_so_is_one_that_never_was",
    ),
    (
        "`exec`",
        "a deletion that is killed after every write ends like any other, and no machine is left",
        "e2e/tests/operators/lifecycle/crashes.rs",
        "a_deletion_of_machines_that_is_killed_after_every_write_ends_as_if_undisturbed",
    ),
    (
        "`exec`",
        "the machine ends at the provider: its pods move, whatever their budget says",
        "e2e/tests/providers/lost.rs",
        "the_pods_of_a_machine_that_is_gone_move_whatever_their_budget_says",
    ),
    (
        "`clusterApi`",
        "exactly the deleted machine goes, however often that is asked",
        "machine-providers/src/sized_contract_tests.rs",
        "exactly_the_deleted_machine_goes_however_often_that_is_asked",
    ),
    (
        "`clusterApi`",
        "a deletion that is killed after every write ends like any other, and no machine is left",
        "e2e/tests/providers/cluster_api/crashes.rs",
        "a_deletion_of_a_set_that_is_killed_after_every_write_ends_as_if_undisturbed",
    ),
    (
        "`clusterApi`",
        "a machine that is deleted by hand is replaced",
        "e2e/tests/providers/cluster_api/mod.rs",
        "a_machine_that_is_broken_or_deleted_by_hand_is_replaced",
    ),
    (
        "`karpenter`",
        "nodes are given back drained",
        "e2e/tests/providers/karpenter.rs",
        "karpenter_makes_the_nodes_that_pods_need_and_gives_them_back_drained",
    ),
    (
        "all",
        "with `Orphan` no machine is ended",
        "node-lifecycle/src/tests/orphan_tests.rs",
        "every_node_is_released_draining_ones_too_and_no_machine_is_ended",
    ),
];

type Cells = Vec<String>;

#[tokio::test(flavor = "multi_thread")]
async fn every_deletion_ends_as_the_table_says() -> Result<()> {
    let env = TestEnv::begin("deletion-table", &QUICK_LEASE).await?;
    let (pool, orphan, node, machine, namespace) =
        tokio::try_join!(a_pool(&env), an_orphan(&env), a_node(&env), a_machine(&env), a_namespace(&env))?;
    let mut rows = vec![pool, orphan, node, machine, namespace];
    // Last: no other row may be under way while the operator is down.
    rows.extend(the_definition_and_a_pool_while_the_operator_is_down(&env).await?);
    let table = markdown(&HEADER, &rows);
    env.end().await?;
    BLOCK.check(&format!("{table}\n{}", elsewhere()?))
}

/// A pool in `namespace`, with its node and its pod.
async fn subject<'a>(
    env: &'a TestEnv,
    namespace: &str,
    pool: &str,
    on_node: PodOnNode,
) -> Result<DeletionSubject<'a>> {
    let (namespace, pool) = (namespace.to_owned(), objects::pool(pool, 0, 3));
    let objects = SubjectObjects { namespace, pool, machines: MachineSource::Nodes, on_node };
    DeletionSubject::make(env, &objects).await
}

async fn a_pool(env: &TestEnv) -> Result<Cells> {
    let subject = subject(env, env.namespace(), "row-pool", PodOnNode::Pod).await?;
    subject.delete_pool().await?;
    subject.is_gone().await?;
    subject.cells("a pool").await
}

async fn an_orphan(env: &TestEnv) -> Result<Cells> {
    let mut subject = subject(env, env.namespace(), "row-orphan", PodOnNode::Pod).await?;
    let word = format!("{ON_DELETE_ANNOTATION}=Orphan");
    env.kubectl(&["annotate", "npool/row-orphan", &word]).await?;
    subject.delete_pool().await?;
    subject.is_gone().await?;
    let cells = subject.cells(&format!("a pool with `{ON_DELETE_ANNOTATION}: Orphan`")).await?;
    // The node is in no pool, so it goes with none.
    subject.delete_pod().await?;
    subject.delete_node().await?;
    Ok(cells)
}

async fn a_node(env: &TestEnv) -> Result<Cells> {
    let subject = subject(env, env.namespace(), "row-node", PodOnNode::Pod).await?;
    subject.delete_node().await?;
    subject.has_another_node().await?;
    subject.cells("a Node, by hand").await
}

/// Of this provider: its Node goes without the operator, past its finalizer.
async fn a_machine(env: &TestEnv) -> Result<Cells> {
    // The operator would remove the empty node within seconds. It waits for load balancers, so this client is first.
    let mut pool = objects::pool("row-machine", 0, 3);
    let drain = DrainSpec { load_balancer_drain_seconds: Some(3600), ..DrainSpec::default() };
    pool.spec.drain = Some(drain);
    let (namespace, on_node) = (env.namespace().to_owned(), PodOnNode::Nothing);
    let objects = SubjectObjects { namespace, pool, machines: MachineSource::Nodes, on_node };
    let subject = DeletionSubject::make(env, &objects).await?;
    subject.delete_node().await?;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    Api::<Node>::all(env.client.clone()).patch(&subject.node(), &PatchParams::default(), &none).await?;
    subject.has_another_node().await?;
    let cells =
        subject.cells("a Node, by a client that also removes its finalizer: the machine is gone").await?;
    // At the end of the test nothing waits for load balancers.
    env.patch_pool("row-machine", &json!({"drain": null})).await?;
    Ok(cells)
}

async fn a_namespace(env: &TestEnv) -> Result<Cells> {
    let namespace = env.cluster.namespace("deletion-table-whole").await?;
    let subject = subject(env, namespace.name(), "row-namespace", PodOnNode::PodOfOthers).await?;
    namespace.delete(PATIENCE).await?;
    subject.cells("the pool's namespace").await
}

async fn the_definition_and_a_pool_while_the_operator_is_down(env: &TestEnv) -> Result<[Cells; 3]> {
    let subject = subject(env, env.namespace(), "row-down", PodOnNode::Pod).await?;
    let refusal = refusal(env).await?;
    let what = format!("the definition `{DEFINITION}`, while pools exist: refused, “{refusal}”");
    let definition = subject.cells(&what).await?;

    let operator = &env.operators.node_pool;
    operator.kill_9().await?;
    subject.delete_pool().await?;
    let down = subject.cells("a pool, while the NodePool operator is down").await?;
    operator.kill_and_restart(|| Ok(())).await?;
    subject.is_gone().await?;
    let back = subject.cells("the same, when the operator is back").await?;
    Ok([definition, down, back])
}

/// What the admission policy says to the deletion of the definition. Nothing is deleted, also if it says nothing.
async fn refusal(env: &TestEnv) -> Result<String> {
    let definitions = Api::<CustomResourceDefinition>::all(env.client.clone());
    let asked = DeleteParams { dry_run: true, ..DeleteParams::default() };
    // A new policy is in force after a moment.
    eventually(PATIENCE, "the deletion of the definition is refused", async || {
        let Err(kube::Error::Api(refused)) = definitions.delete(DEFINITION, &asked).await else {
            bail!("it is not")
        };
        let (_, why) = refused.message.rsplit_once("denied request: ").context("another refusal")?;
        Ok(Some(why.to_owned()))
    })
    .await
}

/// The tests that show what other providers do. Each has to be where the table says.
fn elsewhere() -> Result<String> {
    let mut rows = Vec::new();
    for (provider, what, file, test) in ELSEWHERE {
        let source = std::fs::read_to_string(workspace::root().join(file))
            .with_context(|| format!("cannot read {file}"))?;
        ensure!(source.contains(&format!("fn {test}(")), "{file} has no test {test}");
        rows.push(vec![provider.to_owned(), what.to_owned(), format!("`{test}`"), format!("`{file}`")]);
    }
    Ok(markdown(&["provider", "what is shown", "test", "in"], &rows))
}

#[test]
fn the_tests_of_other_providers_are_where_the_table_says() {
    assert!(elsewhere().is_ok_and(|table| table.lines().count() == ELSEWHERE.len() + 2));
}
