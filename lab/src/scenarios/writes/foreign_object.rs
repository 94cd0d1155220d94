//! Writing an object that another controller owns and keeps writing.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use conflict_retry::{Outcome, RetryPolicy, UpdateDecision, WriteOptions, apply, update};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::code;
use crate::context::{Actor, RequestCounts, ScenarioContext};
use crate::event::Table;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "foreign-object",
    title: "Label an object that another controller updates: a PUT conflicts, a patch does not",
    rows: &["0f"],
    refutes: &[],
    lesson: "A PUT conflicts with every write of the owner, and sends the owner's fields too.\nAdd your own field by an apply or a patch: it names one field, and the owner's writes do not matter.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// Number of tries of each way.
const ROUNDS: usize = 3;

/// Maximum number of the busy owner's writes, so that Alice can write even on a slow machine.
const MOST: u32 = 200;

/// Time between two of its writes.
const PAUSE: Duration = Duration::from_millis(5);

/// The object's name.
const NAME: &str = "settings";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let (alice, owner) = (ctx.actor("alice").await?, ctx.actor("owner").await?);
    let settings: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": NAME}, "data": {"tick": "0"}}))?;
    ctx.set(&settings).await?;
    put_whole(ctx, &alice, &owner).await?;
    label_only(ctx, &alice, &owner).await?;
    busy_owner(ctx, &alice).await
}

/// The owner writes its own field.
#[expect(clippy::disallowed_methods, reason = "the owner's way of writing is not the subject")]
async fn tick(owner: &Api<ConfigMap>, count: usize) -> Result<ConfigMap> {
    let patch = Patch::Merge(json!({"data": {"tick": count.to_string()}}));
    Ok(owner.patch(NAME, &PatchParams::default(), &patch).await?)
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn put_whole(ctx: &ScenarioContext, alice: &Actor, owner: &Actor) -> Result<()> {
    ctx.say("A ConfigMap belongs to a controller, here called the owner, that counts in it. Alice wants a label on it. She reads, adds the label, and PUTs; the owner counts in between.");
    let maps = alice.api::<ConfigMap>();
    let mut refused = 0;
    for round in 1..=ROUNDS {
        let mut copy = maps.get(NAME).await?;
        tick(&owner.api(), round).await?;
        copy.metadata.labels.get_or_insert_default().insert("team".into(), "a".into());
        refused += usize::from(code(&maps.replace(NAME, &PostParams::default(), &copy).await) == 409);
    }
    ctx.check_eq(&format!("{ROUNDS} of {ROUNDS} PUTs are refused"), &refused, &ROUNDS);
    let stored = ctx.stored::<ConfigMap>(NAME).await?;
    ctx.check_eq("the label is not there", &label(&stored), &None);
    ctx.say("A PUT without the version would be worse: a ConfigMap takes it, and the owner's count goes back to what Alice had read.");
    let mut copy = maps.get(NAME).await?;
    let between = tick(&owner.api(), 10).await?;
    copy.metadata.resource_version = None;
    maps.replace(NAME, &PostParams::default(), &copy).await?;
    let stored = ctx.stored::<ConfigMap>(NAME).await?;
    ctx.check_eq(
        "the owner's 10 was stored and is lost: 3 is back",
        &(count(&between), count(&stored)),
        &(Some(10), Some(ROUNDS)),
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "shows a patch of one's own field, which no version guards")]
async fn label_only(ctx: &ScenarioContext, alice: &Actor, owner: &Actor) -> Result<()> {
    ctx.say("She sends the label alone: by a merge patch, and by an apply. The owner counts in between as before.");
    let maps = alice.api::<ConfigMap>();
    let before = alice.counts().conflicts;
    maps.get(NAME).await?;
    tick(&owner.api(), 11).await?;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    maps.patch(NAME, &PatchParams::default(), &patch).await?;
    tick(&owner.api(), 12).await?;
    let outcome =
        apply(&maps, NAME, &labelled("size", "small")).with(&WriteOptions::new("alice")).outcome().await?;
    let map = outcome.met().context("the apply was not carried out")?;
    ctx.check_eq("no conflict", &(alice.counts().conflicts - before), &0);
    let size = map.metadata.labels.as_ref().and_then(|labels| labels.get("size")).map(String::as_str);
    ctx.check_eq(
        "both labels are there, and the owner's count is what it wrote last",
        &(label(&map), size, count(&map)),
        &(Some("a"), Some("small"), Some(12)),
    );
    Ok(())
}

/// The body of an apply of one label.
fn labelled(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"labels": {name: value}},
    })
}

async fn busy_owner(ctx: &ScenarioContext, alice: &Actor) -> Result<()> {
    let before = alice.counts();
    // Its requests would hide those of Alice.
    let unseen = Api::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    let beside_the_owner = async {
        let stop = CancellationToken::new();
        let counting = tokio::spawn(keep_ticking(unseen, stop.clone()));
        let done = apply_and_update(alice).await;
        stop.cancel();
        anyhow::Ok((done?, counting.await??))
    };
    let ((between, outcome), last) = ctx
        .racing("Now the owner counts every few milliseconds. Alice applies a label ten times, and then adds a key beside the count by conflict_retry's update, which PUTs the whole object and decides again after each conflict.", beside_the_owner)
        .await?;
    let (granted, conflicts) = (between.written - before.written, between.conflicts - before.conflicts);
    let mut table = Table::new(&["way", "granted", "conflicts"]);
    table.row(&[&"apply", &granted, &conflicts]);
    table.row(&[&"update", &1, &(alice.counts().conflicts - between.conflicts)]);
    ctx.live_table(table);
    ctx.check_eq("ten applies are granted, without one conflict", &(granted, conflicts), &(10, 0));
    ctx.check("the update is granted in the end", matches!(outcome, Outcome::Written(_)));
    let stored = ctx.stored::<ConfigMap>(NAME).await?;
    let asked = stored.data.as_ref().and_then(|data| data.get("asked")).map(String::as_str);
    ctx.check_eq("its key is there", &asked, &Some("yes"));
    ctx.check_eq(
        "and the owner's count is what it wrote last: nothing of it was lost",
        &count(&stored),
        &Some(last),
    );
    Ok(())
}

/// Writes ten labels, then a key; returns the number of requests before the key, and the result of the key's write.
async fn apply_and_update(alice: &Actor) -> Result<(RequestCounts, Outcome<ConfigMap>)> {
    let (maps, options) = (alice.api::<ConfigMap>(), WriteOptions::new("alice"));
    for round in 0..10 {
        let outcome =
            apply(&maps, NAME, &labelled("round", &round.to_string())).with(&options).outcome().await?;
        ensure!(outcome.met().is_some(), "an apply was not carried out");
    }
    let between = alice.counts();
    // Each conflict needs a write of the owner, so these attempts are always enough.
    let patient = RetryPolicy::default().with_deadline(None).with_max_attempts(NonZeroU32::MAX);
    let options = options.with_policy(patient);
    let outcome = update(&maps, NAME, |map| {
        map.data.get_or_insert_default().insert("asked".into(), "yes".into());
        UpdateDecision::Write
    })
    .put()
    .with(&options)
    .outcome()
    .await?;
    Ok((between, outcome))
}

/// Increments its counter until it is stopped or reaches the maximum; returns the last stored count.
async fn keep_ticking(owner: Api<ConfigMap>, stop: CancellationToken) -> Result<usize> {
    let mut count = 100;
    for _ in 0..MOST {
        count += 1;
        tick(&owner, count).await?;
        if stop.is_cancelled() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(count)
}

fn label(map: &ConfigMap) -> Option<&str> {
    map.metadata.labels.as_ref()?.get("team").map(String::as_str)
}

fn count(map: &ConfigMap) -> Option<usize> {
    map.data.as_ref()?.get("tick")?.parse().ok()
}
