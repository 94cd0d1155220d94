//! A user and the Autoscaler both set the number of nodes: what the server allows, and what resolves the conflict.

use std::time::Duration;

use anyhow::{Result, bail};
use conflict_retry::{Outcome, WriteOptions, merge_patch};
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use shared_crds::names::AUTOSCALER_OPERATOR;
use shared_crds::v1alpha1::AutoscalingStatus;
use shared_crds::{NodePool, NodePoolAutoscaler};
use testbed::audit::{Event, ObjectKey};
use testbed::objects;
use testbed::wait::eventually;

use super::account;
use super::tandem::Tandem;
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::picture::LOGGED;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "contested",
    title: "kubectl scale against an autoscaler: two writers of spec.replicas",
    rows: &["0f", "2c"],
    refutes: &["both-intentions"],
    lesson: "A field with two writers has the value of the last write, unless one of them yields: versions and guards cannot merge two intentions.\nState what you want in a field of your own (minReplicas), or take the field over (mode Recommend).",
    needs: Needs::Operators,
    run: |ctx| Box::pin(run(ctx)),
};

/// Seconds that a node must be idle before it is removed.
const IDLE_SECONDS: i32 = 1;
/// A longer pause.
const LONGER_THAN_IDLE: Duration = Duration::from_millis(1500);

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let tandem = Tandem::begin(ctx, "guarded").await?;
    let played = play(&tandem).await;
    tandem.end(played).await
}

async fn play(tandem: &Tandem<'_>) -> Result<()> {
    let ctx = tandem.ctx;
    let alice = ctx.actor("alice").await?;
    ctx.say("4 pods of 2 cpus need 2 nodes of 4. The Autoscaler, in mode Auto, keeps the pool at 2, and takes a node away that nothing has needed for a second.");
    let mut pool = objects::pool("workers", 0, 10);
    pool.spec.replicas = Some(2);
    ctx.set(&pool).await?;
    ctx.set(&objects::deployment("web", "workers", 4, "2")).await?;
    tandem.pods_run(4).await?;
    ctx.set(&objects::autoscaler("all", IDLE_SECONDS)).await?;
    condition(ctx, "ValidPoolFound").await?;
    kept(tandem, &alice).await?;
    overwritten(tandem).await?;
    own_field(tandem, &alice).await?;
    taken_over(tandem, &alice).await?;
    unowned(tandem).await
}

/// The Autoscaler detects that the number is not its own, reports it, and keeps it for a while, or not, depending on its
/// configuration.
async fn kept(tandem: &Tandem<'_>, alice: &Actor) -> Result<()> {
    let ctx = tandem.ctx;
    ctx.say("Alice wants 5, and says so with kubectl.");
    let before = scale_writes(tandem).await?;
    scale(tandem, &["--replicas=5"]).await?;
    tandem.settles("workers", 5).await?;
    let pool = contested(ctx).await?;
    ctx.check_eq(
        "the pool stays at 5, and the Autoscaler says that kubectl set it",
        &pool.spec.replicas,
        &Some(5),
    );
    ctx.say("Three nodes are idle for longer than the second that they are given. A user raises the upper bound three times, each time later than that, and the Autoscaler decides anew each time.");
    decided_anew(ctx, "ValidPoolFound").await?;
    let after = scale_writes(tandem).await?;
    ctx.check_eq(
        "all that time the audit log has no write of it to the count: her number is kept",
        &after,
        &before,
    );
    let pool = contested(ctx).await?;
    ctx.check_eq(
        "the condition ReplicasContested says for how long: 600 seconds from when the Autoscaler saw her number",
        &seconds_between(&said(&pool, "ReplicasContested")),
        &Some(600),
    );
    ctx.say("The lab does not wait for the ten minutes to pass.");
    ctx.say("That is onContested: Yield, the default. An autoscaler with onContested: Reclaim writes its own number over hers, and says so.");
    ctx.racing("The NodePoolAutoscaler is set to Reclaim.", set(alice, json!({"onContested": "Reclaim"})))
        .await
}

/// The last write wins, whatever guards it.
async fn overwritten(tandem: &Tandem<'_>) -> Result<()> {
    let ctx = tandem.ctx;
    let pool = tandem.settles("workers", 2).await?;
    ctx.check_eq("a moment later the pool is at 2 again", &pool.spec.replicas, &Some(2));
    ctx.check_eq(
        "managedFields names the writer: the Autoscaler",
        &last_writer(&pool)?.as_deref(),
        &Some(AUTOSCALER_OPERATOR),
    );

    ctx.say("kubectl can guard the write by the number that she expects. So she does not overwrite a count that she has not seen:");
    let said = scale(tandem, &["--current-replicas=3", "--replicas=5"]).await;
    let said = said.map_or_else(|error| format!("{error:#}"), |()| "scaled".to_owned());
    ctx.check(
        "a guard that does not hold ends it: “Expected replicas to be 3, was 2”",
        said.contains("Expected replicas to be 3, was 2"),
    );
    ctx.say("It does not prevent others from overwriting hers:");
    scale(tandem, &["--current-replicas=2", "--replicas=5"]).await?;
    let pool = tandem.settles("workers", 2).await?;
    ctx.check_eq("the pool is at 2 again", &pool.spec.replicas, &Some(2));
    let key = tandem.key("workers");
    let events = tandem.events("workers").await?;
    let bill = account::bill(&events, &key);
    ctx.say("Every write of the count until now, from the audit log:");
    ctx.table(counts_written(&events, &key));
    ctx.check_eq("no write of an operator met a 409", &bill.conflicts, &0);
    let of_pool = events.iter().filter(|event| event.object.as_ref() == Some(&key));
    ctx.check(
        "none could: each is a forced apply without a version, or a JSON Patch that tests what it was decided from (422)",
        account::cannot_conflict(ctx, of_pool),
    );
    ctx.live_table(account::timeline(&events, &key));
    Ok(())
}

/// The wanted number in a field that only users write.
async fn own_field(tandem: &Tandem<'_>, alice: &Actor) -> Result<()> {
    let ctx = tandem.ctx;
    let what = "The lower bound is Alice's alone, and no operator writes it. She wants 5 nodes at least, whatever the load.";
    ctx.racing(what, lower_bound(alice, 5)).await?;
    let pool = tandem.settles("workers", 5).await?;
    ctx.check_eq(
        "now the Autoscaler itself sets 5",
        &(pool.spec.replicas, last_writer(&pool)?.as_deref()),
        &(Some(5), Some(AUTOSCALER_OPERATOR)),
    );
    let before = scale_writes(tandem).await?;
    reported(ctx, |own| own.unneeded_nodes.len() == 3).await?;
    ctx.say("It reports that 3 nodes are idle. A user raises the upper bound three times, each time after more than the second that idle nodes are given, and the Autoscaler decides anew each time.");
    let pool = decided_anew(ctx, "ValidPoolFound").await?;
    ctx.check_eq("the pool is still at 5", &pool.spec.replicas, &Some(5));
    let after = scale_writes(tandem).await?;
    ctx.check_eq("and the audit log has no further write of it to the count", &after, &before);
    Ok(())
}

/// The field changes its owner.
async fn taken_over(tandem: &Tandem<'_>, alice: &Actor) -> Result<()> {
    let ctx = tandem.ctx;
    let what = "Or she takes the number over: in mode Recommend the Autoscaler says what it would do, and does not do it. She sets the mode, gives up the lower bound, and scales.";
    ctx.racing(what, async {
        recommend(alice).await?;
        condition(ctx, "RecommendOnly").await?;
        lower_bound(alice, 0).await
    })
    .await?;
    let before = scale_writes(tandem).await?;
    scale(tandem, &["--replicas=6"]).await?;
    tandem.settles("workers", 6).await?;
    ctx.say("The upper bound is raised three times more.");
    decided_anew(ctx, "RecommendOnly").await?;
    let pool = reported(ctx, |own| own.desired_replicas == Some(2)).await?;
    ctx.check_eq(
        "the Autoscaler would have 2, and the pool is still at her 6",
        &pool.spec.replicas,
        &Some(6),
    );
    let after = scale_writes(tandem).await?;
    ctx.check_eq("the audit log has no write of it to the count since before hers", &after, &before);
    ctx.check_eq(
        "managedFields names kubectl as the writer of the 6",
        &last_writer(&pool)?.as_deref(),
        &Some("kubectl"),
    );
    Ok(())
}

/// A gap in `managedFields`.
async fn unowned(tandem: &Tandem<'_>) -> Result<()> {
    let ctx = tandem.ctx;
    ctx.say("managedFields has a gap. A write through /scale takes the entry for replicas over from the manager that has it. In a pool that was made without a number no manager has it, and none gets it (this one is paused, or the NodePool operator would fill the number in):");
    let mut pool = objects::pool("unset", 0, 3);
    pool.spec.paused = true;
    pool.metadata.labels = None;
    ctx.set(&pool).await?;
    tandem.kubectl(&["scale", "npool/unset", "--replicas=1"]).await?;
    let pool = ctx.stored::<NodePool>("unset").await?;
    ctx.check_eq(
        "replicas are 1 by kubectl, and managedFields names no manager for it",
        &(pool.spec.replicas, last_writer(&pool)?),
        &(Some(1), None),
    );
    Ok(())
}

/// `kubectl scale`, as a user types it.
async fn scale(tandem: &Tandem<'_>, how: &[&str]) -> Result<()> {
    tandem.ctx.act("alice", &format!("kubectl scale nodepool/workers {}", how.join(" ")));
    let args: Vec<&str> = ["scale", "nodepool/workers"].into_iter().chain(how.iter().copied()).collect();
    tandem.kubectl(&args).await.map(drop)
}

async fn lower_bound(alice: &Actor, min: i32) -> Result<()> {
    let wanted =
        |pool: &NodePool| (pool.spec.min_replicas != min).then(|| json!({"spec": {"minReplicas": min}}));
    let options = WriteOptions::new("alice");
    let pools = alice.api::<NodePool>();
    is_written(&merge_patch(&pools, "workers", wanted).with(&options).outcome().await?)
}

async fn recommend(alice: &Actor) -> Result<()> {
    set(alice, json!({"mode": "Recommend"})).await
}

/// Changes the spec of the `NodePoolAutoscaler`, which only users write.
async fn set(alice: &Actor, spec: Value) -> Result<()> {
    let change = Some(json!({"spec": spec}));
    let options = WriteOptions::new("alice");
    let autoscalers = alice.api::<NodePoolAutoscaler>();
    let wanted = |_: &NodePoolAutoscaler| change.clone();
    is_written(&merge_patch(&autoscalers, "all", wanted).with(&options).outcome().await?)
}

/// Waits until the Autoscaler reports that kubectl has set the number.
async fn contested(ctx: &ScenarioContext) -> Result<NodePool> {
    eventually(PATIENCE, "the Autoscaler reports ReplicasContested", || async {
        let pool = ctx.stored::<NodePool>("workers").await?;
        let status = pool.status.clone().unwrap_or_default();
        let found = status.conditions.into_iter().find(|condition| condition.type_ == "ReplicasContested");
        let is_so = found.as_ref().is_some_and(|c| c.status == "True" && c.message.contains("kubectl"));
        if is_so { Ok(Some(pool)) } else { bail!("{found:?}") }
    })
    .await
}

/// The condition of this type.
fn said(pool: &NodePool, type_: &str) -> String {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == type_);
    found.map(|condition| condition.message.clone()).unwrap_or_default()
}

/// The seconds between the two times in a message.
fn seconds_between(message: &str) -> Option<i64> {
    let words = message.split(|c: char| c.is_whitespace() || "();,".contains(c));
    let times: Vec<Timestamp> = words.filter_map(|word| word.parse().ok()).collect();
    let [from, until] = times.as_slice() else { return None };
    Some(until.duration_since(*from).as_secs())
}

fn is_written<K>(outcome: &Outcome<K>) -> Result<()> {
    match outcome {
        Outcome::Written(_) | Outcome::AlreadyDone(_) => Ok(()),
        _ => bail!("it was not written"),
    }
}

/// Waits until the Autoscaler reports this `reason` for the pool's current generation.
async fn condition(ctx: &ScenarioContext, reason: &str) -> Result<NodePool> {
    eventually(PATIENCE, &format!("the Autoscaler reports {reason}"), || async {
        let pool = ctx.stored::<NodePool>("workers").await?;
        let status = pool.status.clone().unwrap_or_default();
        let found = status.conditions.into_iter().find(|condition| condition.type_ == "ScalingActive");
        let is_so = found.as_ref().is_some_and(|condition| {
            condition.reason == reason && condition.observed_generation == pool.metadata.generation
        });
        if is_so { Ok(Some(pool)) } else { bail!("{found:?}") }
    })
    .await
}

/// Makes the Autoscaler decide three more times, each time after the idle time of its `NodePoolAutoscaler`, and waits for
/// each decision: a removal would have happened by then.
#[expect(clippy::disallowed_methods, reason = "a user changes a bound that has no other writer")]
async fn decided_anew(ctx: &ScenarioContext, reason: &str) -> Result<NodePool> {
    let pools = Api::<NodePool>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    let mut pool = condition(ctx, reason).await?;
    for _ in 0..3 {
        tokio::time::sleep(LONGER_THAN_IDLE).await;
        let bound = json!({"spec": {"maxReplicas": pool.spec.max_replicas + 1}});
        pools.patch("workers", &PatchParams::default(), &Patch::Merge(bound)).await?;
        pool = condition(ctx, reason).await?;
    }
    Ok(pool)
}

/// Number of the Autoscaler's writes of the pool's count.
async fn scale_writes(tandem: &Tandem<'_>) -> Result<usize> {
    let (key, events) = (tandem.key("workers"), tandem.events("workers").await?);
    Ok(events.iter().filter(|event| is_scale_write(event, &key)).count())
}

fn is_scale_write(event: &Event, key: &ObjectKey) -> bool {
    event.object.as_ref() == Some(key)
        && event.subresource.is_empty()
        && event.is_write()
        && account::operator(event) == Some(AUTOSCALER_OPERATOR)
}

/// The granted writes of the pool's count: Alice's through `/scale`, and the Autoscaler's.
fn counts_written(events: &[Event], key: &ObjectKey) -> Table {
    let is_hers = |event: &Event| {
        let is_scale = event.object.as_ref() == Some(key) && event.subresource == "scale";
        is_scale && event.is_write() && account::operator(event).is_none()
    };
    let mut writes: Vec<&Event> = events
        .iter()
        .filter(|event| event.succeeded() && (is_hers(event) || is_scale_write(event, key)))
        .collect();
    writes.sort_by_key(|event| event.completed);
    let mut table = Table::new(&LOGGED);
    for event in writes {
        let who = account::operator(event).unwrap_or("alice");
        let subresource = if event.subresource.is_empty() { "" } else { "/scale" };
        let replicas = event.response.as_ref().and_then(|answer| answer.pointer("/spec/replicas"));
        let replicas = replicas.map_or_else(|| "0".to_owned(), Value::to_string);
        let target = format!("nodepools/workers{subresource}");
        table.row(&[&who, &account::verb(event), &target, &format!("{} · replicas {replicas}", event.code)]);
    }
    table
}

/// Waits until the Autoscaler's own part of the status is as `wanted`.
async fn reported(ctx: &ScenarioContext, wanted: impl Fn(&AutoscalingStatus) -> bool) -> Result<NodePool> {
    let wanted = &wanted;
    eventually(PATIENCE, "the Autoscaler reports", || async move {
        let pool = ctx.stored::<NodePool>("workers").await?;
        let own = pool.status.clone().and_then(|status| status.autoscaling);
        if own.as_ref().is_some_and(wanted) { Ok(Some(pool)) } else { bail!("{own:?}") }
    })
    .await
}

/// The last writer of `spec.replicas` by `managedFields`.
fn last_writer(pool: &NodePool) -> Result<Option<String>> {
    let book = account::managed(pool)?;
    let entry = book.into_iter().find(|entry| entry.fields.iter().any(|field| field == "spec.replicas"));
    Ok(entry.map(|entry| entry.manager))
}
