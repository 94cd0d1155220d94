//! The smallest controller and a reconcile that does nothing: when is it called?

use anyhow::Result;
use kube::ResourceExt as _;
use serde_json::json;

use super::controller::{Controller, Counts};
use super::{create, label, put, version_of};
use crate::context::ScenarioContext;
use crate::event::Table;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "foo-no-op",
    title: "A reconcile that does nothing: one event, one reconcile, then quiet",
    rows: &["1a"],
    refutes: &["no-op-moves-version"],
    lesson: "An event triggers a reconcile, and a write that changed something causes the event.\nThe reconcile learns that something changed, not what or how often: read the object, do not count calls.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    ctx.say("A controller lists and watches Foos. Each event puts the object's name into its work queue, where a name has one slot.");
    let mut controller = Controller::start(ctx).await?;
    controller.care_for("hello");
    let mut counts = controller.counts();

    ctx.say("Alice makes a Foo. The reconcile looks at it and does nothing.");
    let mut copy = create(&alice, "hello").await?;
    let made = run_until_idle(&mut controller, &mut counts).await?;
    ctx.check_eq("one event, one reconcile, and the queue is empty", &made.counts(), &(1, 1));

    ctx.say("She sends the same object again. The server answers 200 and writes nothing.");
    let before = version_of(&copy)?;
    copy = put(&alice, &copy).await?;
    ctx.check_eq("the version stays", &version_of(&copy)?, &before);
    let same = run_until_idle(&mut controller, &mut counts).await?;
    ctx.check_eq("no event, no reconcile", &same.counts(), &(0, 0));

    ctx.say("She changes it three times before the controller reconciles it.");
    for step in ["one", "two", "three"] {
        label(&alice, "hello", json!(step)).await?;
    }
    let changed = run_until_idle(&mut controller, &mut counts).await?;
    ctx.check_eq("three events, one reconcile", &changed.counts(), &(3, 1));
    ctx.check_eq(
        "the one reconcile saw the last of the three changes",
        &changed.saw.as_deref(),
        &Some("three"),
    );
    ctx.check_eq(
        "a controller that takes each call for a change has counted 2, and there were 4",
        &(counts.reconciles, counts.events),
        &(2, 4),
    );
    ctx.check_eq("it has sent nothing but a list and a watch", &controller.actor.requests().len(), &2);

    let mut table = Table::new(&["what Alice does", "events", "reconciles"]);
    table.row(&[&"creates it", &made.events, &made.reconciles]);
    table.row(&[&"puts it as it is", &same.events, &same.reconciles]);
    table.row(&[&"changes it three times", &changed.events, &changed.reconciles]);
    ctx.table(table);
    Ok(())
}

/// The effects of one action of Alice.
struct Settled {
    events: usize,
    reconciles: usize,
    /// The label in the copy of the last reconcile.
    saw: Option<String>,
}

impl Settled {
    const fn counts(&self) -> (usize, usize) {
        (self.events, self.reconciles)
    }
}

/// Runs empty reconciles until the queue is empty. `before` is the result of the previous call.
async fn run_until_idle(controller: &mut Controller<'_>, before: &mut Counts) -> Result<Settled> {
    let mut saw = None;
    while let Some(copy) = controller.turn().await? {
        saw = copy.labels().get("name").cloned();
        controller.ended(Ok(()))?;
    }
    let after = controller.counts();
    let settled = Settled {
        events: after.events - before.events,
        reconciles: after.reconciles - before.reconciles,
        saw,
    };
    *before = after;
    Ok(settled)
}
