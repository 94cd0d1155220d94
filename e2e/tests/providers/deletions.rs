//! What becomes of nodes, machines, pods and finalizers when something is deleted, with machines that others make: tables of
//! `docs/guides/operations.md`, one for each provider, and one for the definition. The table of `simulated` is in the tests of the
//! operators.
//!
//! `TANDEM_WRITE_PAGES=1 cargo test -p e2e --test providers deletions::` writes them instead of comparing them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use shared_crds::NodePool;
use shared_crds::names::ON_DELETE_ANNOTATION;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::cluster_api::WITH_CLUSTER_API;
use testbed::karpenter::{NODE_CLASS, WITH_KARPENTER};
use testbed::machines::{Machines, PROGRAM};
use testbed::pages::{
    DeletionSubject, MachineSource, PageBlock, PodOnNode, QUICK_LEASE, SubjectObjects, markdown,
};
use testbed::places::Places;
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;
use testbed::{cluster_api, karpenter, objects};

const HEADER: [&str; 7] = [
    "what is deleted",
    "pool",
    "its node",
    "its machine",
    "a pod on it",
    "finalizer of the pool",
    "finalizer of the node",
];
const DEFINITION: &str = "nodepools.tandem.dev";

/// How long what stays is left alone before it is looked at: others would have ended it by then.
const A_WHILE: Duration = Duration::from_secs(5);
/// Some heartbeats of a played kubelet.
const HEARTBEATS: Duration = Duration::from_secs(1);

/// Annotation of an object of infrastructure, which its own controller leaves alone then. The one of these tests would let the
/// infrastructure of a `Cluster` go before the machines in it, which would keep those for ever.
const LEFT_ALONE: &str = "cluster.x-k8s.io/managed-by";
const INFRASTRUCTURE: &str = "devclusters.infrastructure.cluster.x-k8s.io/self";

/// Control planes without their definition at the end.
static WITHOUT_DEFINITION: Places = Places::new(1, ClusterOptions::private);
/// The same, with Cluster API's definitions.
static CLUSTER_API_WITHOUT_DEFINITION: Places = Places::one_beside(ClusterOptions::private);

type Cells = Vec<String>;

/// Makes what the rows are about.
#[derive(Clone, Copy)]
struct Maker<'a> {
    env: &'a TestEnv,
    machines: MachineSource<'a>,
    pool_of: fn(&str) -> NodePool,
}

impl<'a> Maker<'a> {
    fn simulated(env: &'a TestEnv) -> Self {
        Self { env, machines: MachineSource::Nodes, pool_of: |name| objects::pool(name, 0, 3) }
    }

    fn exec(env: &'a TestEnv, machines: &'a Machines) -> Self {
        let pool_of = |name: &str| super::exec::pool_of(PROGRAM, name, 1);
        Self { env, machines: MachineSource::Program(machines), pool_of }
    }

    fn karpenter(env: &'a TestEnv) -> Self {
        let pool_of = |name: &str| super::karpenter::pool_of(name, NODE_CLASS.2, 1);
        Self { env, machines: MachineSource::Claims, pool_of }
    }

    fn cluster_api(env: &'a TestEnv) -> Self {
        Self { env, machines: MachineSource::Set, pool_of: pool_of_own_set }
    }

    /// A pool in `namespace`, with its node, its machine and its pod.
    async fn subject(&self, namespace: &str, pool: &str, on_node: PodOnNode) -> Result<DeletionSubject<'a>> {
        if matches!(self.machines, MachineSource::Set) {
            cluster_api::create_deployment(self.env.cluster, namespace, pool).await?;
        }
        let (namespace, pool) = (namespace.to_owned(), (self.pool_of)(pool));
        let objects = SubjectObjects { namespace, pool, machines: self.machines, on_node };
        DeletionSubject::make(self.env, &objects).await
    }

    /// What is compared of a pod on a node that a user deletes: Karpenter drains such a node, too.
    fn pod_of_deleted_node(&self) -> PodOnNode {
        match self.machines {
            MachineSource::Claims => PodOnNode::PodOfOthers,
            MachineSource::Nodes | MachineSource::Program(_) | MachineSource::Set => PodOnNode::Pod,
        }
    }
}

/// A pool whose machines are those of the `MachineDeployment` of its name.
fn pool_of_own_set(name: &str) -> NodePool {
    let mut pool = super::cluster_api::pool_of(name, Some(1));
    if let Some(cluster_api) = &mut pool.spec.provider.cluster_api {
        cluster_api.machine_deployment_ref.name = name.into();
    }
    pool
}

async fn a_pool(maker: &Maker<'_>) -> Result<Cells> {
    let subject = maker.subject(maker.env.namespace(), "row-pool", PodOnNode::Pod).await?;
    subject.delete_pool().await?;
    subject.is_gone().await?;
    subject.loses_machine().await?;
    subject.cells("a pool").await
}

/// The row of a pool that leaves its machine, and the pool.
async fn an_orphan<'a>(maker: &Maker<'a>) -> Result<(Cells, DeletionSubject<'a>)> {
    let subject = maker.subject(maker.env.namespace(), "row-orphan", PodOnNode::Pod).await?;
    let word = format!("{ON_DELETE_ANNOTATION}=Orphan");
    maker.env.kubectl(&["annotate", "npool/row-orphan", &word]).await?;
    subject.delete_pool().await?;
    subject.is_gone().await?;
    tokio::time::sleep(A_WHILE).await;
    let cells = subject.cells(&format!("a pool with `{ON_DELETE_ANNOTATION}: Orphan`")).await?;
    Ok((cells, subject))
}

/// The same, and the row of its node, which a user deletes after it.
async fn an_orphan_and_its_node<'a>(maker: &Maker<'a>) -> Result<([Cells; 2], DeletionSubject<'a>)> {
    let (orphan, mut subject) = an_orphan(maker).await?;
    let node = a_released_node(maker, &mut subject).await?;
    Ok(([orphan, node], subject))
}

/// The row of the node that a pool has left, which a user deletes.
async fn a_released_node(maker: &Maker<'_>, subject: &mut DeletionSubject<'_>) -> Result<Cells> {
    subject.delete_pod().await?;
    subject.delete_node().await?;
    match maker.machines {
        // Karpenter ends the machine of a node that is deleted.
        MachineSource::Claims => subject.loses_machine().await?,
        MachineSource::Nodes | MachineSource::Program(_) => subject.loses_node().await?,
        // Cluster API sees that the Node of its machine is gone.
        MachineSource::Set => {
            subject.loses_node().await?;
            tokio::time::sleep(A_WHILE).await;
        }
    }
    subject.cells("its Node, by hand, after that").await
}

async fn a_node(maker: &Maker<'_>) -> Result<Cells> {
    let on_node = maker.pod_of_deleted_node();
    let subject = maker.subject(maker.env.namespace(), "row-node", on_node).await?;
    subject.delete_node().await?;
    subject.has_another_node().await?;
    subject.loses_machine().await?;
    subject.cells("a Node, by hand").await
}

async fn a_namespace(maker: &Maker<'_>) -> Result<Cells> {
    let namespace = maker.env.cluster.namespace("deletion-whole").await?;
    let subject = maker.subject(namespace.name(), "row-namespace", PodOnNode::PodOfOthers).await?;
    namespace.delete(PATIENCE).await?;
    subject.loses_machine().await?;
    subject.cells("the pool's namespace").await
}

/// Lets the operator leave the pool as it is, or go on with it.
async fn pause(cluster: &Cluster, namespace: &str, pool: &str, is_paused: bool) -> Result<()> {
    let (object, patch) =
        (format!("nodepools.tandem.dev/{pool}"), format!(r#"--patch={{"spec":{{"paused":{is_paused}}}}}"#));
    cluster.kubectl(&["--namespace", namespace, "patch", &object, "--type=merge", &patch]).await?;
    Ok(())
}

/// The rows of a namespace in which Cluster API's own objects are, too: of a Machine that Kubernetes and Cluster API have ended before
/// the operator drains its Node, and of that Node, which stays until a user says that nothing runs there any more: its played kubelet
/// reports on. Were it silent, the operator would believe that the Machine is gone, if it saw Cluster API deleting that.
async fn a_namespace_with_its_machines(maker: &Maker<'_>) -> Result<[Cells; 2]> {
    let (env, cluster, pool) = (maker.env, maker.env.cluster, "row-namespace");
    let namespace = cluster.namespace("deletion-whole").await?;
    let name = namespace.name().to_owned();
    cluster_api::create_cluster(cluster, cluster, &name).await?;
    let subject = maker.subject(&name, pool, PodOnNode::PodOfOthers).await?;
    // So it is certain who is first: the operator does nothing until the Machine is gone.
    pause(cluster, &name, pool, true).await?;
    cluster
        .kubectl(&["--namespace", &name, "annotate", INFRASTRUCTURE, &format!("{LEFT_ALONE}=test")])
        .await?;
    let look = async {
        let client = || env.client.clone();
        let machines = cluster_api::machines(client(), &name);
        let (sets, pools) =
            (cluster_api::deployments(client(), &name), Api::<NodePool>::namespaced(client(), &name));
        let machine = subject.machine()?;
        eventually(PATIENCE, "the Machine is gone, and its MachineDeployment", async || {
            let (has_machine, has_set) =
                (machines.get_opt(machine).await?.is_some(), sets.get_opt(pool).await?.is_some());
            ensure!(!has_machine && !has_set, "Machine: {has_machine}, MachineDeployment: {has_set}");
            Ok(Some(()))
        })
        .await?;
        pause(cluster, &name, pool, false).await?;
        let doubt = format!("it says that there is no machine {machine}, but");
        eventually(PATIENCE, "the pool doubts that the machine is gone", async || {
            let said = pools.get(pool).await?.status.unwrap_or_default().conditions;
            ensure!(said.iter().any(|it| it.message.contains(&doubt)), "it says {said:?}");
            Ok(Some(()))
        })
        .await
        .map_err(|error| error.context(env.operators.node_pool.log_tail()))?;
        let cells = subject.cells("the pool's namespace, with its MachineDeployment").await?;
        cluster
            .kubectl(&["--namespace", &name, "annotate", INFRASTRUCTURE, &format!("{LEFT_ALONE}-")])
            .await?;
        let without_finalizers = r#"--patch={"metadata":{"finalizers":null}}"#;
        cluster.kubectl(&["patch", "node", &subject.node(), "--type=merge", without_finalizers]).await?;
        anyhow::Ok(cells)
    };
    // The namespace waits for both looks, and then for its own end.
    let ((), kept) = tokio::try_join!(namespace.delete(PATIENCE * 3), look)?;
    let freed = subject.cells("the same, when the finalizer of its Node is removed by hand").await?;
    Ok([kept, freed])
}

/// No other row may be under way meanwhile.
async fn a_pool_while_the_operator_is_down(maker: &Maker<'_>) -> Result<[Cells; 2]> {
    let subject = maker.subject(maker.env.namespace(), "row-down", PodOnNode::Pod).await?;
    let operator = &maker.env.operators.node_pool;
    operator.kill_9().await?;
    subject.delete_pool().await?;
    tokio::time::sleep(A_WHILE).await;
    let down = subject.cells("a pool, while the NodePool operator is down").await?;
    operator.kill_and_restart(|| Ok(())).await?;
    subject.is_gone().await?;
    subject.loses_machine().await?;
    let back = subject.cells("the same, when the operator is back").await?;
    Ok([down, back])
}

/// Allows the deletion of the definition, asks for it, and waits until it is gone.
async fn delete_definition(env: &TestEnv) -> Result<()> {
    let allowed = "tandem.dev/allow-deletion=true";
    env.cluster.kubectl(&["annotate", "crd", DEFINITION, allowed]).await?;
    env.cluster.kubectl(&["delete", "crd", DEFINITION, "--wait=false"]).await?;
    let definitions = Api::<CustomResourceDefinition>::all(env.client.clone());
    eventually(PATIENCE, "the definition is gone", async || {
        ensure!(definitions.get_opt(DEFINITION).await?.is_none(), "it is there");
        Ok(Some(()))
    })
    .await
    .map_err(|error| error.context(env.operators.node_pool.log_tail()))
}

/// The row of a pool of `provider` whose definition is gone.
async fn without_definition(subject: &DeletionSubject<'_>, provider: &str) -> Result<Cells> {
    subject.loses_machine().await?;
    let mut cells = subject.cells(&format!("the definition, with a pool of `{provider}`")).await?;
    if cells.len() < HEADER.len() {
        cells.insert(3, "is its Node".to_owned());
    }
    Ok(cells)
}

/// Every row, and the pool that left its machine.
async fn play<'a>(maker: &Maker<'a>) -> Result<(Vec<Cells>, DeletionSubject<'a>)> {
    let (pool, (orphan, released), node, namespace) =
        tokio::try_join!(a_pool(maker), an_orphan_and_its_node(maker), a_node(maker), a_namespace(maker))?;
    let [orphan, its_node] = orphan;
    let mut rows = vec![pool, orphan, its_node, node, namespace];
    rows.extend(a_pool_while_the_operator_is_down(maker).await?);
    Ok((rows, released))
}

fn check(mark: &str, rows: &[Cells]) -> Result<()> {
    let (path, test) = ("docs/guides/operations.md", "--test providers deletions::");
    PageBlock { path, mark, test }.check(&markdown(&HEADER, rows))
}

/// The values of the chart of a test with this one and the lease of [`QUICK_LEASE`].
fn with_quick_lease(value: &str) -> Vec<String> {
    QUICK_LEASE.iter().copied().chain([value]).map(str::to_owned).collect()
}

/// Ends a machine that its pool has left, and its Node, which its played kubelet has registered again.
async fn take_away(machines: &Machines, released: &DeletionSubject<'_>, env: &TestEnv) -> Result<()> {
    machines.register(false);
    machines.remove(env, "row-orphan", released.machine()?)?;
    let (name, nodes) = (released.node(), Api::<Node>::all(env.client.clone()));
    eventually(PATIENCE, "the released Node is gone", async || {
        env.kubectl(&["delete", "node", &name, "--ignore-not-found"]).await?;
        tokio::time::sleep(HEARTBEATS).await;
        ensure!(nodes.get_opt(&name).await?.is_none(), "it is registered again");
        Ok(Some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_deletion_with_a_program_ends_as_the_table_says() -> Result<()> {
    let mut machines = Machines::new()?;
    let values = machines.values();
    let values: Vec<&str> = values.iter().map(String::as_str).chain(QUICK_LEASE).collect();
    let env = TestEnv::begin("deletion-exec", &values).await?;
    machines.start_kubelets(env.cluster).await?;
    let (rows, released) = play(&Maker::exec(&env, &machines)).await?;
    take_away(&machines, &released, &env).await?;
    super::exec::end(env, machines).await;
    check("deletion-exec", &rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_deletion_with_karpenter_ends_as_the_table_says() -> Result<()> {
    let env = TestEnv::begin_with(&WITH_KARPENTER, "deletion-karpenter", async |cluster| {
        karpenter::install(cluster).await?;
        Ok(with_quick_lease("providers.karpenter.enabled=true"))
    });
    let env = env.await?;
    let karpenter = karpenter::start(env.cluster).await?;
    let played = play(&Maker::karpenter(&env)).await;
    let (rows, _released) = played.with_context(|| karpenter.log_tail())?;
    env.end().await?;
    karpenter.stop(PATIENCE).await?;
    check("deletion-karpenter", &rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_deletion_with_cluster_api_ends_as_the_table_says() -> Result<()> {
    let env = TestEnv::begin_with(&WITH_CLUSTER_API, "deletion-capi", async |cluster| {
        cluster_api::install(cluster).await?;
        Ok(with_quick_lease("providers.clusterApi.enabled=true"))
    });
    let env = env.await?;
    let capi = cluster_api::start(env.cluster).await?;
    cluster_api::create_cluster(env.cluster, env.cluster, env.namespace()).await?;
    let maker = Maker::cluster_api(&env);
    let namespace = a_namespace_with_its_machines(&maker);
    let played = tokio::try_join!(a_pool(&maker), an_orphan(&maker), a_node(&maker), namespace);
    let (pool, (orphan, mut released), node, namespace) = played.with_context(|| capi.core.log_tail())?;
    let mut rows = vec![pool, orphan, node];
    rows.extend(namespace);
    rows.extend(a_pool_while_the_operator_is_down(&maker).await?);
    capi.stop_registering(&released.node());
    // In the table it follows the row of its pool.
    rows.insert(2, a_released_node(&maker, &mut released).await?);
    // The machine that was left goes with its MachineDeployment.
    super::cluster_api::end(env, capi).await;
    check("deletion-cluster-api", &rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_whose_deletion_is_allowed_takes_pools_nodes_and_machines_along() -> Result<()> {
    let mut machines = Machines::new()?;
    let env = TestEnv::begin_with(&WITHOUT_DEFINITION, "deletion-definition", async |cluster| {
        karpenter::install(cluster).await?;
        Ok([machines.values(), vec!["providers.karpenter.enabled=true".to_owned()]].concat())
    });
    let env = env.await?;
    machines.start_kubelets(env.cluster).await?;
    let karpenter = karpenter::start(env.cluster).await?;
    let (simulated, exec, claims) =
        (Maker::simulated(&env), Maker::exec(&env, &machines), Maker::karpenter(&env));
    let subjects = tokio::try_join!(
        simulated.subject(env.namespace(), "row-simulated", PodOnNode::Pod),
        exec.subject(env.namespace(), "row-exec", PodOnNode::Pod),
        claims.subject(env.namespace(), "row-karpenter", PodOnNode::Pod),
    )?;
    delete_definition(&env).await?;
    let mut rows = Vec::new();
    for (provider, subject) in [("simulated", subjects.0), ("exec", subjects.1), ("karpenter", subjects.2)] {
        rows.push(without_definition(&subject, provider).await?);
    }
    // Nothing of Tandem's is left to end but the operators, which end when they are dropped.
    karpenter.stop(PATIENCE).await?;
    check("deletion-definition", &rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_whose_deletion_is_allowed_takes_the_machines_of_cluster_api_along() -> Result<()> {
    let env = TestEnv::begin_with(&CLUSTER_API_WITHOUT_DEFINITION, "deletion-capi-crd", async |cluster| {
        cluster_api::install(cluster).await?;
        Ok(vec!["providers.clusterApi.enabled=true".to_owned()])
    });
    let env = env.await?;
    let capi = cluster_api::start(env.cluster).await?;
    let played = async {
        cluster_api::create_cluster(env.cluster, env.cluster, env.namespace()).await?;
        let maker = Maker::cluster_api(&env);
        let subject = maker.subject(env.namespace(), "row-cluster-api", PodOnNode::Pod).await?;
        delete_definition(&env).await?;
        without_definition(&subject, "clusterApi").await
    };
    let row = played.await.with_context(|| capi.core.log_tail())?;
    // The MachineDeployment stays without machines, and goes with the control plane.
    capi.stop(PATIENCE).await?;
    check("deletion-definition-cluster-api", &[row])
}
