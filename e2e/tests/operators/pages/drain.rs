//! What becomes of each kind of pod when its node is drained: the table of `docs/guides/drain.md`.
//!
//! kwok plays the kubelets. What only a real one does (it makes a static pod's mirror again, it unmounts volumes) is for the
//! suite on kind.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared_crds::names::DRAIN_WAITS_ANNOTATION;
use testbed::audit::Event;
use testbed::pages::{PageBlock, markdown, seen};
use testbed::test_env::{PATIENCE, TestEnv};
use testbed::wait::eventually;

use super::TESTS;
use super::drain_rows::{self, Keeper, Row};

const BLOCK: PageBlock = PageBlock { path: "docs/guides/drain.md", mark: "drain-table", test: TESTS };
const HEADER: [&str; 7] = [
    "pod",
    "`spec.drain`",
    "Tandem asks the API server for",
    "it says that the node",
    "`Reconciling` meanwhile",
    "the node goes",
    "the pod is then",
];
/// Which part of a message says that a node is not chosen.
const STAYS: &str = " stays, because it ";
/// Of a pod whose end is reported and no longer waited for at the same moment: not compared.
const EITHER: &str = "the same, or nothing";

/// What a node that stays for now has come to.
struct Held {
    reason: String,
    /// What the condition says of a node whose drain does not begin.
    stays: Option<String>,
}

/// The end of a drain.
struct Played {
    node: String,
    pod: String,
    held: Option<Held>,
    /// What is left of the pod once the node is gone.
    left: &'static str,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_pod_leaves_its_node_as_the_table_says() -> Result<()> {
    let env = TestEnv::begin("drain-table", &[]).await?;
    let rows = drain_rows::all();
    for row in &rows {
        row.make_pool(&env).await?;
    }
    let pods = try_join_all(rows.iter().map(|row| row.make_pod(&env))).await?;
    let drained = rows.iter().zip(&pods).map(|(row, pod)| play(&env, row, pod));
    let played = try_join_all(drained).await?;
    let events = events_of_all(&env, &played).await?;
    let cells = rows.iter().zip(&played).map(|(row, played)| cells(&env, row, played, &events));
    let table = markdown(&HEADER, &cells.collect::<Vec<_>>());
    clean(&env).await?;
    env.end().await?;
    BLOCK.check(&table)
}

/// Lowers the number of nodes of the row's pool to none, and takes away what keeps the node if it is kept.
async fn play(env: &TestEnv, row: &Row, pod: &Pod) -> Result<Played> {
    let node = row.node(env).await?.name_any();
    env.patch_pool(row.id, &json!({"replicas": 0})).await?;
    let mut seen = None;
    if let Some(keeper) = row.keeper.filter(|_| row.holds) {
        seen = Some(held(env, row, &node).await?);
        row.take_away(env, keeper).await?;
    }
    let nodes = Api::<Node>::all(env.client.clone());
    eventually(PATIENCE, &format!("the node of {} goes", row.id), async || {
        env.operators.keep_alive().await?;
        ensure!(nodes.get_opt(&node).await?.is_none(), "{node} is there");
        Ok(Some(()))
    })
    .await
    .map_err(|error| error.context(env.operators.node_pool.log_tail()))?;
    let left = env.api::<Pod>().get_opt(&pod.name_any()).await?.filter(|left| left.uid() == pod.uid());
    let left = match left {
        None => "gone",
        Some(left) if left.metadata.deletion_timestamp.is_some() => "terminating",
        Some(_) => "as it was",
    };
    Ok(Played { node, pod: pod.name_any(), held: seen, left })
}

/// Waits until the pool says that the node stays, or that its drain is blocked, and the node by what.
async fn held(env: &TestEnv, row: &Row, node: &str) -> Result<Held> {
    let nodes = Api::<Node>::all(env.client.clone());
    eventually(PATIENCE, &format!("{} says why its node stays", row.id), async || {
        env.operators.keep_alive().await?;
        let found = nodes.get_opt(node).await?.context("the node is gone")?;
        let status = env.pool(row.id).await?.status.unwrap_or_default();
        let said = status.conditions.iter().find(|it| it.type_ == "Reconciling");
        let said = said.context("there is no condition")?;
        let stays = said.message.split("; ").find(|part| part.contains(STAYS)).map(String::from);
        let is_blocked =
            said.reason == "DrainBlocked" && found.annotations().contains_key(DRAIN_WAITS_ANNOTATION);
        ensure!(stays.is_some() || is_blocked, "{} with {}", said.reason, said.message);
        let is_chosen = found.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        ensure!(is_chosen == stays.is_none(), "cordoned: {is_chosen}, while {}", said.message);
        Ok(Some(Held { reason: said.reason.clone(), stays }))
    })
    .await
    .map_err(|error| error.context(env.operators.node_pool.log_tail()))
}

/// The audit log, once it has the end of every drain: an event can be written shortly after its answer.
async fn events_of_all(env: &TestEnv, played: &[Played]) -> Result<Vec<Event>> {
    eventually(PATIENCE, "the audit log has the deletion of every node", async || {
        let events = env.events()?;
        let missing = played.iter().find(|played| !seen::has_deleted_node(&events, &played.node));
        ensure!(missing.is_none(), "that of {:?} is missing", missing.map(|played| &played.node));
        Ok(Some(events))
    })
    .await
}

fn cells(env: &TestEnv, row: &Row, played: &Played, events: &[Event]) -> Vec<String> {
    let noted = seen::noted_on_node(events, &played.node);
    let stays = played.held.as_ref().and_then(|held| held.stays.clone());
    let said: Vec<String> = stays
        .iter()
        .map(|text| text.split_once(STAYS).map_or(text.as_str(), |(_, why)| why))
        .map(|why| format!("stays, because it {why}"))
        .chain(noted)
        .map(|text| without_names(&text, env, row, played))
        .collect();
    // The report and the end of the patience are due at the same moment, so either may come first.
    let is_either = row.keeper == Some(Keeper::Finalizer) && !row.holds;
    let said = if is_either { EITHER.to_owned() } else { said.join(", then ") };
    let goes = match (row.keeper, &played.held) {
        (Some(keeper), Some(_)) => keeper.taken_away(),
        (Some(_), None) if row.limits().contains("Seconds") => "when the time is over",
        _ => "by itself",
    };
    vec![
        row.kind.to_owned(),
        row.limits(),
        seen::asked_of_pod(events, env.namespace(), &played.pod),
        said,
        played.held.as_ref().map_or_else(String::new, |held| format!("`{}`", held.reason)),
        goes.to_owned(),
        played.left.to_owned(),
    ]
}

/// The text with general names instead of those that differ from run to run.
fn without_names(text: &str, env: &TestEnv, row: &Row, played: &Played) -> String {
    let names = [
        (played.node.as_str(), "NODE"),
        (played.pod.as_str(), "NAME"),
        (env.namespace(), "NAMESPACE"),
        (row.id, "NAME"),
    ];
    names.iter().fold(text.to_owned(), |text, (name, general)| text.replace(name, general))
}

/// Deletes what is left on nodes that are gone: the garbage collector of pods would do it some time later.
async fn clean(env: &TestEnv) -> Result<()> {
    env.kubectl(&["delete", "daemonsets,deployments", "--all"]).await?;
    let pods = env.api::<Pod>();
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for pod in pods.list(&ListParams::default()).await?.items {
        if pod.finalizers().is_empty() {
            continue;
        }
        pods.patch(&pod.name_any(), &PatchParams::default(), &none).await?;
    }
    env.kubectl(&["delete", "pods", "--all", "--grace-period=0", "--force"]).await?;
    // The control plane is this test's for now, so all are its own.
    env.kubectl(&["delete", "volumeattachments", "--all"]).await?;
    Ok(())
}
