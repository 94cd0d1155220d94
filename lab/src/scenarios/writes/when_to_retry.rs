//! What must be repeated after a conflict: the write, the decision, or nothing.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use conflict_retry::{
    Outcome, Source, Subresource, UpdateDecision, WriteOptions, apply_status, once, update,
};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::Overwrites;
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "when-to-retry",
    title: "After a conflict, make the decision again, not only the write",
    rows: &["2j"],
    refutes: &["lazy-is-wasteful", "always-retry"],
    lesson: "If you decide from this object alone, decide again from the fresh copy, inside the retry. If you decide from more, return the conflict\nto the work queue and read everything again. If the field is your own, apply it: no retry is needed.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// Number of jobs of one replica.
const JOBS_PER_REPLICA: i32 = 2;

/// Name of the `ConfigMap` with the number of jobs.
const LOAD: &str = "load";

/// The annotation of a pool with the number of jobs.
const JOBS: &str = "lab.tandem.dev/jobs";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let person = ctx.actor("person").await?;
    let load: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": LOAD}, "data": {"jobs": "10"}}))?;
    ctx.set(&load).await?;
    let mut table = Table::new(&["what is done again", "requests", "replicas stored", "needed"]);
    the_write(ctx, &person, &mut table).await?;
    healed(ctx, &person, &mut table).await?;
    everything(ctx, &person, &mut table).await?;
    the_decision(ctx, &person, &mut table).await?;
    nothing(ctx, &person, &mut table).await?;
    ctx.table(table);
    Ok(())
}

/// Number of replicas for `jobs`.
fn replicas_for(jobs: Option<&String>) -> Result<i32> {
    let jobs: i32 = jobs.context("there is no number of jobs")?.parse()?;
    Ok(jobs / JOBS_PER_REPLICA)
}

/// Number of replicas for the current load.
async fn needed(controller: &Actor) -> Result<i32> {
    let load = controller.api::<ConfigMap>().get(LOAD).await?;
    replicas_of(&load)
}

fn replicas_of(load: &ConfigMap) -> Result<i32> {
    replicas_for(load.data.as_ref().and_then(|data| data.get("jobs")))
}

#[expect(clippy::disallowed_methods, reason = "the load has no other writer")]
async fn set_load(person: &Actor, jobs: i32) -> Result<()> {
    let patch = Patch::Merge(json!({"data": {"jobs": jobs.to_string()}}));
    person.api::<ConfigMap>().patch(LOAD, &PatchParams::default(), &patch).await?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "any intermediate write will do")]
async fn touch(person: &Actor, name: &str, body: Value) -> Result<()> {
    person.api::<Pool>().patch(name, &PatchParams::default(), &Patch::Merge(body)).await?;
    Ok(())
}

/// The load falls to 4 jobs, and a user notes it in the pool, so earlier reads of both are stale.
async fn meanwhile(person: &Actor, name: &str) -> Result<()> {
    set_load(person, 4).await?;
    touch(person, name, json!({"spec": {"note": "4 jobs"}})).await
}

async fn replicas(ctx: &ScenarioContext, name: &str) -> Result<Option<i32>> {
    Ok(ctx.stored::<Pool>(name).await?.spec.replicas)
}

async fn the_write(ctx: &ScenarioContext, person: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("A controller sets one replica for every 2 jobs; a ConfigMap says how many jobs there are. It reads 10 jobs and decides for 5. Then the load falls to 4, a user notes that in the pool, and the PUT meets a conflict. Only the write is done again.");
    ctx.set(&pool("write", 3)).await?;
    let controller = ctx.actor("controller").await?;
    let decided = needed(&controller).await?;
    let copy = controller.api::<Pool>().get("write").await?;
    meanwhile(person, "write").await?;
    let overwrites = Arc::new(Overwrites::default());
    let options = WriteOptions::new("controller").with_observer(Arc::clone(&overwrites) as _);
    let pools = controller.api::<Pool>();
    let outcome = update(&pools, "write", |pool| {
        pool.spec.replicas = Some(decided);
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .from(Source::Copy(copy))
    .outcome()
    .await?;
    let stored = replicas(ctx, "write").await?;
    ctx.check_eq("the write is granted", &outcome.label(), &"written");
    let now = ctx.stored::<ConfigMap>(LOAD).await?;
    ctx.check_eq(
        "5 replicas are stored, where the load needs 2 by now: a decision of the past",
        &(stored, replicas_of(&now)?),
        &(Some(5), 2),
    );
    ctx.check_eq("there was a conflict on the way", &controller.counts().conflicts, &1);
    ctx.check(
        "conflict-retry's observer of overwritten fields has nothing to report: no other writer had changed that one",
        overwrites.paths().is_empty(),
    );
    table.row(&[&"the write", &controller.counts().requests, &5, &2]);
    Ok(())
}

/// The stale decision of a controller that watches the basis of its decision.
async fn healed(ctx: &ScenarioContext, person: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("How long does the 5 stand? Until something calls the reconcile again. This controller watches the ConfigMap too, and otherwise does the same.");
    ctx.set(&pool("healed", 3)).await?;
    set_load(person, 10).await?;
    let controller = ctx.actor("controller").await?;
    let loads = controller.api::<ConfigMap>();
    let load = loads.get(LOAD).await?;
    let decided = replicas_of(&load)?;
    let params =
        WatchParams { bookmarks: false, ..WatchParams::default().fields(&format!("metadata.name={LOAD}")) };
    let version = load.metadata.resource_version.context("no version")?;
    let mut events = loads.watch(&params, &version).await?.boxed();
    let copy = controller.api::<Pool>().get("healed").await?;
    meanwhile(person, "healed").await?;
    set(&controller, "healed", Source::Copy(copy), decided).await?;
    ctx.check_eq("5 replicas are stored again", &replicas(ctx, "healed").await?, &Some(5));
    ctx.say("The change of the load is an event. It calls the reconcile once more.");
    let event = tokio::time::timeout(PATIENCE, events.next()).await.context("no event came")?;
    let Some(WatchEvent::Modified(load)) = event.transpose()? else { bail!("no change of the load") };
    set(&controller, "healed", Source::Live, replicas_of(&load)?).await?;
    ctx.check_eq(
        "2 replicas are stored, as 4 jobs need: the stale decision was stored, and has healed",
        &replicas(ctx, "healed").await?,
        &Some(2),
    );
    let counts = controller.counts();
    ctx.check_eq("that took two writes that were granted", &counts.written, &2);
    table.row(&[&"the write, and what the decision is from is watched", &counts.requests, &"5, then 2", &2]);
    Ok(())
}

/// Writes the decision, whatever the pool contains.
async fn set(controller: &Actor, name: &str, source: Source<'_, Pool>, decided: i32) -> Result<()> {
    let (pools, options) = (controller.api::<Pool>(), WriteOptions::new("controller"));
    let outcome = update(&pools, name, |pool| {
        pool.spec.replicas = Some(decided);
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .from(source)
    .outcome();
    outcome.await?.met().context("the write was not carried out").map(drop)
}

/// One complete reconcile, with `meanwhile` in its middle.
async fn reconcile(controller: &Actor, meanwhile: impl Future<Output = Result<()>>) -> Result<Outcome<Pool>> {
    let decided = needed(controller).await?;
    let pools = controller.api::<Pool>();
    let mut pool = pools.get("everything").await?;
    meanwhile.await?;
    pool.spec.replicas = Some(decided);
    let options = WriteOptions::new("controller");
    Ok(once::put(&pools, "everything", Subresource::Main, &options, &pool).await?)
}

async fn everything(ctx: &ScenarioContext, person: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("The same from the beginning, but the conflict goes back to the work queue, which is often called lazy: the reconcile runs once more, and reads the load again.");
    ctx.set(&pool("everything", 3)).await?;
    set_load(person, 10).await?;
    let controller = ctx.actor("controller").await?;
    let first = reconcile(&controller, meanwhile(person, "everything")).await?;
    ctx.check("the first run ends in a conflict", matches!(first, Outcome::Conflict(_)));
    ctx.check_eq("and has stored nothing", &replicas(ctx, "everything").await?, &Some(3));
    let second = reconcile(&controller, async { Ok(()) }).await?;
    ctx.check("the second is granted", matches!(second, Outcome::Written(_)));
    ctx.check_eq("2 replicas are stored, as 4 jobs need", &replicas(ctx, "everything").await?, &Some(2));
    let requests = controller.counts().requests;
    ctx.check_eq("that took six requests, one more than storing the stale decision", &requests, &6);
    table.row(&[&"everything", &requests, &2, &2]);
    Ok(())
}

async fn the_decision(ctx: &ScenarioContext, person: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("Where the pool itself says how many jobs there are, in an annotation, the decision needs nothing else. Then it belongs inside the retry, and is made again from the fresh pool.");
    let mut of_itself = pool("decision", 3);
    of_itself.metadata.annotations = Some([(JOBS.to_owned(), "10".to_owned())].into());
    ctx.set(&of_itself).await?;
    let controller = ctx.actor("controller").await?;
    let pools = controller.api::<Pool>();
    let copy = pools.get("decision").await?;
    touch(person, "decision", json!({"metadata": {"annotations": {JOBS: "4"}}})).await?;
    let options = WriteOptions::new("controller");
    let outcome = update(&pools, "decision", |pool| {
        let jobs = pool.metadata.annotations.as_ref().and_then(|annotations| annotations.get(JOBS));
        let Ok(decided) = replicas_for(jobs) else { return UpdateDecision::Abort };
        pool.spec.replicas = Some(decided);
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .from(Source::Copy(copy))
    .outcome()
    .await?;
    ctx.check_eq("the write is granted", &outcome.label(), &"written");
    ctx.check_eq("2 replicas are stored, as 4 jobs need", &replicas(ctx, "decision").await?, &Some(2));
    table.row(&[&"the decision, inside the retry", &controller.counts().requests, &2, &2]);
    Ok(())
}

async fn nothing(ctx: &ScenarioContext, person: &Actor, table: &mut Table) -> Result<()> {
    ctx.say("And a field that only the controller writes, such as how many replicas it has counted, needs no retry: the controller applies it, whatever others have written.");
    ctx.set(&pool("nothing", 3)).await?;
    let controller = ctx.actor("controller").await?;
    let pools = controller.api::<Pool>();
    pools.get("nothing").await?;
    touch(person, "nothing", json!({"spec": {"note": "in between"}})).await?;
    let status = json!({"apiVersion": "lab.tandem.dev/v1", "kind": "Pool", "status": {"ready": 3}});
    let outcome =
        apply_status(&pools, "nothing", &status).with(&WriteOptions::new("controller")).outcome().await?;
    let counts = controller.counts();
    ctx.check_eq(
        "the apply is granted, without a conflict",
        &(outcome.label(), counts.conflicts),
        &("written", 0),
    );
    let stored = ctx.stored::<Pool>("nothing").await?;
    ctx.check_eq(
        "and what was written in between is kept",
        &(stored.spec.note.as_deref(), stored.status.and_then(|status| status.ready)),
        &(Some("in between"), Some(3)),
    );
    table.row(&[&"nothing: a field of its own is applied", &counts.requests, &"", &""]);
    Ok(())
}
