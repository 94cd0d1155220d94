//! Writes that change nothing, and apparent no-ops that are nevertheless stored.

use std::pin::pin;

use anyhow::{Context as _, Result, bail};
use conflict_retry::{UpdateDecision, WriteOptions, apply, update};
use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::ObjectMeta;
use kube::core::subresource::{Scale, ScaleSpec};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::wait::eventually;

use super::storage_version;
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, PoolStatus, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "no-op",
    title: "A no-op update writes nothing, unless managedFields or the stored encoding changes",
    rows: &["3g"],
    refutes: &["no-op-moves-version"],
    lesson: "An equal PUT, patch or apply changes no version and sends no event, but costs a request: do not send it.\nTwo exceptions: a change of managedFields alone is a write, and so is an object that the server now encodes differently.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The pool's name.
const NAME: &str = "workers";

/// The writers, by their names in `managedFields`.
const MANAGER: &str = "alice";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    ctx.set(&pool(NAME, 3)).await?;
    let first = prepare(ctx, &alice).await?;
    same_again(ctx, &alice, &first).await?;
    not_even_sent(ctx, &alice).await?;
    another_owner(ctx, &alice).await?;
    by_scale(ctx, &alice).await?;
    storage_version::changes(ctx, &alice).await
}

/// Alice's writes, which the others repeat.
#[expect(clippy::disallowed_methods, reason = "shows the bare requests")]
async fn prepare(ctx: &ScenarioContext, alice: &Actor) -> Result<Pool> {
    ctx.say("Alice writes each kind of thing once: spec, status, and a note that she applies.");
    let (pools, params) =
        (alice.api::<Pool>(), PostParams { field_manager: Some(MANAGER.into()), ..Default::default() });
    let mut mine = pools.get(NAME).await?;
    mine.spec.machine = Some("large".into());
    let mut mine = pools.replace(NAME, &params, &mine).await?;
    mine.status = Some(PoolStatus { ready: Some(2), ..PoolStatus::default() });
    let mine = pools.replace_status(NAME, &params, &mine).await?;
    let applied = apply(&pools, NAME, &note()).with(&WriteOptions::new("notes")).outcome().await?.met();
    let applied = applied.context("the apply was not carried out")?;
    ctx.check("the first apply moves the version", applied.resource_version() != mine.resource_version());
    Ok(applied)
}

fn note() -> Value {
    json!({"apiVersion": "lab.tandem.dev/v1", "kind": "Pool", "spec": {"note": "mine"}})
}

/// Repeats every write exactly while a watch is open.
async fn same_again(ctx: &ScenarioContext, alice: &Actor, first: &Pool) -> Result<()> {
    ctx.say("A watch begins here. A second passes by the server's clock, so that another time would be written down; then Alice sends everything again as it is.");
    let version = first.resource_version().context("no version")?;
    let watcher = ctx.actor("watcher").await?;
    let only = WatchParams::default().fields(&format!("metadata.name={NAME}"));
    let events = watcher.api::<Pool>().watch(&only, &version).await?;
    let mut events = pin!(events);
    a_second_later(ctx, first).await?;
    let mut table = Table::new(&["sent again", "answer", "version"]);
    for what in ["PUT", "PUT to /status", "merge patch", "JSON Patch", "apply"] {
        let answer = send(alice, what).await.with_context(|| format!("the {what} was refused"))?;
        ctx.check_eq(&format!("an equal {what} leaves the version alone"), &answer, &version);
        table.row(&[&what, &"200", if answer == version { &"stays" } else { &"moves" }]);
    }
    let stored = ctx.stored::<Pool>(NAME).await?;
    ctx.check_eq(
        "not even a time in managedFields has changed",
        &stored.managed_fields(),
        &first.managed_fields(),
    );
    ctx.table(table);
    ctx.say("Now a label, which is a change. If the watch had an event for any of the writes before, it would bring that first.");
    let labelled = label(alice).await?;
    let event = next(&mut events).await?;
    ctx.check_eq(
        "the first event of the watch is that of the label",
        &event.resource_version(),
        &labelled.resource_version(),
    );
    Ok(())
}

/// The next object from a watch.
async fn next(events: &mut (impl Stream<Item = kube::Result<WatchEvent<Pool>>> + Unpin)) -> Result<Pool> {
    loop {
        match tokio::time::timeout(PATIENCE, events.try_next())
            .await
            .context("the watch brings nothing")??
        {
            Some(WatchEvent::Modified(pool)) => return Ok(pool),
            // It has the watch's version and no object.
            Some(WatchEvent::Bookmark(_)) => {}
            other => bail!("the watch brings {other:?}"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "any change will do")]
async fn label(alice: &Actor) -> Result<Pool> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"marker": "yes"}}}));
    Ok(alice.api::<Pool>().patch(NAME, &params(), &patch).await?)
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

/// Sends the stored value again, and returns the version.
#[expect(clippy::disallowed_methods, reason = "shows the bare requests")]
async fn send(alice: &Actor, what: &str) -> Result<String> {
    let pools = alice.api::<Pool>();
    let put = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
    let spec = Patch::Merge(json!({"spec": {"machine": "large"}}));
    let operation = json!([{"op": "replace", "path": "/spec/machine", "value": "large"}]);
    let answer = match what {
        "PUT" => pools.replace(NAME, &put, &pools.get(NAME).await?).await?,
        "PUT to /status" => pools.replace_status(NAME, &put, &pools.get(NAME).await?).await?,
        "merge patch" => pools.patch(NAME, &params(), &spec).await?,
        "JSON Patch" => {
            let patch = Patch::Json::<()>(serde_json::from_value(operation)?);
            pools.patch(NAME, &params(), &patch).await?
        }
        _ => {
            let outcome = apply(&pools, NAME, &note()).with(&WriteOptions::new("notes")).outcome().await?;
            outcome.met().context("the apply was not carried out")?
        }
    };
    answer.resource_version().context("no version")
}

/// Waits until the server would record a later time than the one in `pool`.
#[expect(clippy::disallowed_methods, reason = "the server's clock is read from a time that it records")]
async fn a_second_later(ctx: &ScenarioContext, pool: &Pool) -> Result<()> {
    let written = latest(pool.managed_fields()).context("no time is written down")?;
    let maps = Api::<ConfigMap>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    eventually(PATIENCE, "the server's clock moves on", || async {
        let metadata = ObjectMeta { generate_name: Some("clock-".into()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        let made = maps.create(&PostParams::default(), &map).await?;
        Ok((made.creation_timestamp() > Some(written.clone())).then_some(()))
    })
    .await
}

fn latest(entries: &[ManagedFieldsEntry]) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time> {
    entries.iter().filter_map(|entry| entry.time.clone()).max()
}

async fn not_even_sent(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    ctx.say("An equal write still is a request, with validation and a read of the store. conflict_retry compares first, and sends nothing.");
    let before = alice.counts();
    let outcome = update(&alice.api::<Pool>(), NAME, |pool| {
        pool.spec.machine = Some("large".into());
        UpdateDecision::Write
    })
    .put()
    .with(&WriteOptions::new(MANAGER))
    .outcome()
    .await?;
    let after = alice.counts();
    ctx.check_eq("the outcome is Unchanged", &outcome.label(), &"unchanged");
    ctx.check_eq(
        "one read, and no write at all",
        &(after.requests - before.requests, after.written - before.written),
        &(1, 0),
    );
    Ok(())
}

/// The same value, applied by a manager that does not own it yet.
async fn another_owner(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    ctx.say("The first exception is ownership. The note that one manager has applied is applied by another, word for word: nothing changes in the pool, but it has one owner more.");
    let before = ctx.stored::<Pool>(NAME).await?;
    let after =
        apply(&alice.api::<Pool>(), NAME, &note()).with(&WriteOptions::new("others")).outcome().await?.met();
    let after = after.context("the apply was not carried out")?;
    ctx.check_eq(
        "the version moves, spec and generation stay",
        &(
            after.resource_version() == before.resource_version(),
            after.spec == before.spec,
            after.metadata.generation == before.metadata.generation,
        ),
        &(false, true, true),
    );
    Ok(())
}

/// A count that was set through the object, and then to the same value through `/scale`.
async fn by_scale(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    ctx.say("And there is one that no manager intends. The count 3 of a second pool was set through the object. Alice now PUTs 3 to /scale, three times.");
    let made = ctx.set(&pool("counted", 3)).await?;
    let made_version = made.resource_version().context("no version")?;
    let watcher = ctx.actor("watcher").await?;
    let only = WatchParams::default().fields("metadata.name=counted");
    let mut events = pin!(watcher.api::<Pool>().watch(&only, &made_version).await?);
    let mut table = Table::new(&["after", "version", "entries of managedFields"]);
    table.row(&[&"making it", &"", &owners(made.managed_fields())]);
    let mut history = Vec::new();
    let mut before = made.clone();
    for which in ["the first PUT of 3", "the second", "the third"] {
        put_scale(alice, "counted", 3).await?;
        let after = ctx.stored::<Pool>("counted").await?;
        let moved = after.resource_version() != before.resource_version();
        table.row(&[&which, &if moved { "moves" } else { "stays" }, &owners(after.managed_fields())]);
        ctx.check(
            &format!("{which}: spec and generation stay as they are"),
            after.spec == made.spec && after.metadata.generation == made.metadata.generation,
        );
        if moved {
            let event = next(&mut events).await?;
            ctx.check_eq(
                &format!("{which}: the watch has an event for it"),
                &event.resource_version(),
                &after.resource_version(),
            );
        }
        history.push(moved);
        before = after;
    }
    ctx.table(table);
    ctx.say("The server keeps what /scale writes apart. The first such write splits the count off the entry of the manager that made the object, although it changes nothing; the second drops that half, because two entries then have one name. No manager owns the count any more, and there is nothing left to move.");
    ctx.check_eq(
        "the version moves with the first two, and not with the third",
        &history,
        &vec![true, true, false],
    );
    ctx.check("in the end no entry holds the count", !owners(before.managed_fields()).contains("replicas"));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn put_scale(alice: &Actor, name: &str, replicas: i32) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let scale = Scale { metadata, spec: Some(ScaleSpec { replicas: Some(replicas) }), status: None };
    let params = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
    alice.api::<Pool>().replace_scale(name, &params, &scale).await?;
    Ok(())
}

/// The fields of the spec in each entry.
fn owners(entries: &[ManagedFieldsEntry]) -> String {
    let texts: Vec<String> = entries
        .iter()
        .filter_map(|entry| {
            let fields = entry.fields_v1.as_ref()?.0.pointer("/f:spec")?.as_object()?;
            let names: Vec<&str> = fields.keys().filter_map(|key| key.strip_prefix("f:")).collect();
            let subresource = entry.subresource.as_deref().unwrap_or("object");
            Some(format!("{subresource}: {}", names.join("+")))
        })
        .collect();
    texts.join(", ")
}
