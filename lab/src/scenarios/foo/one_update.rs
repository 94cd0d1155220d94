//! One update in each reconcile: what triggers the second one, and why there is no third.

use anyhow::Result;
use serde_json::json;

use super::controller::{Controller, Counts};
use super::{create, label, put, say_hello, saying, version_of};
use crate::context::{Actor, ScenarioContext};
use crate::event::{Table, version};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "foo-one-update",
    title: "One update in each reconcile: the controller's own write triggers a second reconcile",
    rows: &["1b", "3g", "4b"],
    refutes: &["second-reconcile-by-cache", "no-op-moves-version", "each-update-reconciles"],
    lesson: "The controller's own write is an event like any other, so each write costs a second reconcile.\nIt ends there because the second reconcile finds nothing to change: compare before you write, and it costs no request.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    ctx.say("A controller lists and watches Foos. An event puts the object into its work queue; a reconcile decides from the cache, which the same events feed.");
    let mut controller = Controller::start(ctx).await?;
    let always = puts_always(ctx, &alice, &mut controller).await?;
    let compared = compares_first(ctx, &alice, &mut controller).await?;
    let busy = coalesced(ctx, &alice, &mut controller).await?;

    let mut table = Table::new(&["reconcile that", "reconciles", "PUTs", "events"]);
    table.row(&[&"always puts", &always.reconciles, &always.puts, &always.events]);
    table.row(&[&"compares first", &compared.reconciles, &compared.puts, &compared.events]);
    table.row(&[&"is busy meanwhile", &busy.reconciles, &busy.puts, &busy.events]);
    ctx.table(table);
    Ok(())
}

/// The naive half. The watch is delayed during the first reconcile, so that the cache is certainly stale.
async fn puts_always(
    ctx: &ScenarioContext,
    alice: &Actor,
    controller: &mut Controller<'_>,
) -> Result<Counts> {
    ctx.say("Its first reconcile function sets the greeting to “Hello” and PUTs the object, each time. Alice creates a Foo. The events of the watch are held back until the first reconcile is over.");
    controller.care_for("always");
    create(alice, "always").await?;
    controller.catch_up().await?;
    let gate = controller.cache.close_gate();
    let first = controller.next().await?;
    let written = put(&controller.actor, &saying(&first, "Hello")).await?;
    controller.ended(Ok(()))?;
    let cached = version_of(&controller.cache.copy("always")?)?;
    let (before, after) = (version_of(&first)?, version_of(&written)?);
    ctx.check_eq(
        &format!("the cache has the old version {}, the server {}", version(&before), version(&after)),
        &(cached == before, cached == after),
        &(true, false),
    );
    ctx.check("and that calls no second reconcile: the queue is empty", controller.is_idle());

    ctx.say("Now the controller gets the event of its own write.");
    drop(gate);
    let second = controller.turn().await?;
    ctx.check_eq(
        &format!("it calls the second reconcile, in which the cache has the new version {}", version(&after)),
        &second.as_ref().map(version_of).transpose()?,
        &Some(after.clone()),
    );
    if let Some(second) = second {
        let again = put(&controller.actor, &saying(&second, "Hello")).await?;
        controller.ended(Ok(()))?;
        ctx.check_eq("the second PUT changes nothing: the version stays", &version_of(&again)?, &after);
    }
    ctx.check("so there is no event and no third reconcile", controller.turn().await?.is_none());
    Ok(controller.counts())
}

/// The right half.
async fn compares_first(
    ctx: &ScenarioContext,
    alice: &Actor,
    controller: &mut Controller<'_>,
) -> Result<Counts> {
    ctx.say(
        "Its second reconcile function uses `update`, which compares before it sends. Nothing is held back.",
    );
    controller.care_for("compared");
    create(alice, "compared").await?;
    let mut outcomes = Vec::new();
    // More steps than needed, so that an unwanted one would be seen.
    while outcomes.len() < 5 && controller.turn().await?.is_some() {
        let outcome = say_hello(controller).await?;
        outcomes.push(outcome);
        controller.ended(Ok(()))?;
    }
    ctx.check_eq(
        "the first reconcile writes, the second finds nothing to write, there is no third",
        &outcomes,
        &vec!["written", "unchanged"],
    );
    let counts = controller.counts();
    ctx.check_eq("it has sent one PUT", &counts.puts, &1);
    Ok(counts)
}

/// Several events for one object, while its reconcile is under way.
async fn coalesced(ctx: &ScenarioContext, alice: &Actor, controller: &mut Controller<'_>) -> Result<Counts> {
    ctx.say("“Each update triggers a reconcile.” Each update is an event, but the work queue holds each object once. During a reconcile, Alice writes three times.");
    controller.care_for("busy");
    create(alice, "busy").await?;
    controller.turn().await?;
    for name in ["Alice", "Bob", "Carol"] {
        label(alice, "busy", json!(name)).await?;
    }
    controller.catch_up().await?;
    controller.ended(Ok(()))?;
    let last = controller.turn().await?;
    controller.ended(Ok(()))?;
    let stored = controller.stored().await?;
    ctx.check_eq(
        "the next reconcile finds what the third write left",
        &last.as_ref().map(version_of).transpose()?,
        &Some(version_of(&stored)?),
    );
    ctx.check("and there is no other one: the queue is empty", controller.turn().await?.is_none());
    let counts = controller.counts();
    ctx.check_eq(
        "four writes were four events, and two reconciles",
        &(counts.events, counts.reconciles),
        &(4, 2),
    );
    Ok(counts)
}
