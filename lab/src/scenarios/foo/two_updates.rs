//! Two updates in each reconcile that contradict each other: an endless loop, with and without a stale copy; and the
//! conflicts, which only a stale copy causes.

use anyhow::{Result, bail};
use conflict_retry::RetryError;
use conflict_retry::freshness::Version;

use super::controller::{Controller, Counts};
use super::ways::{Way, update_foo};
use super::{create, greeting_of, version_of};
use crate::cache::ClosedGate;
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "foo-two-updates",
    title: "Two updates that alternate in each reconcile: an endless loop",
    rows: &["1c", "1e", "1f", "2l"],
    refutes: &["too-many-reconciles"],
    lesson: "There are two faults: a desired state that alternates causes the endless loop, and a stale copy causes the conflicts.\nA retry hides the conflicts and keeps the loop; one goal, and one write when it is not met, fixes both.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// Number of reconciles that are checked one by one.
const LOOKED_AT: usize = 4;
/// Number of reconciles at full speed.
const AT_SPEED: usize = 20;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    ctx.say("In every reconcile a controller wants its Foo to say “Hello” and then “World”. Here each reconcile waits until the watch has brought everything that was written. So the cache is never behind, unless the text says so.");
    let mut controller = Controller::start(ctx).await?;
    let mut table = Table::new(&["each reconcile has", "reconciles", "failed", "PUTs", "409s", "then"]);

    ctx.say("The article's code, written in Rust. It sends both updates of one object. `Update` stores the answer in that object, with its new version, as controller-runtime's client does. So the second PUT is made from the answer to the first.");
    controller.care_for("alternating");
    create(&alice, "alternating").await?;
    let seen = look_at(&mut controller, Way::InPlace).await?;
    seen.add_row(&mut table, "two goals, cache never behind");
    ctx.check_eq("no request met a conflict", &seen.counts.conflicts, &0);
    ctx.check("no reconcile began with an old copy", !seen.was_behind);
    goes_on(ctx, &seen);
    ctx.say("So a stale cache does not cause the loop: the loop goes on with a cache that is never behind. Does a stale cache cause the conflicts? That half of the claim holds:");
    behind(ctx, &alice, &mut controller, &mut table).await?;
    at_speed(ctx, &alice, &mut controller).await?;

    ctx.say("Another mistake gives conflicts without a cache that lags. It is not in the article. client-go's generated `Update` returns a new object and leaves the one it was given as it was. If you drop the returned object, you make both PUTs from the copy that the reconcile began with. The first PUT makes that copy old, unless it changes nothing.");
    controller.care_for("one-copy");
    create(&alice, "one-copy").await?;
    let seen = look_at(&mut controller, Way::FromOneCopy).await?;
    seen.add_row(&mut table, "two goals, both from one copy");
    ctx.check_eq(
        "every second reconcile fails: the controller is in conflict with itself",
        &seen.counts.failed,
        &(LOOKED_AT / 2),
    );
    ctx.check("no reconcile began with an old copy", !seen.was_behind);
    goes_on(ctx, &seen);
    retried(ctx, &alice, &mut controller, &mut table).await?;

    ctx.say(
        "Last, one goal: the Foo says “Hello”, and `update` writes it only if the Foo says something else.",
    );
    controller.care_for("idempotent");
    create(&alice, "idempotent").await?;
    let seen = look_at(&mut controller, Way::OneGoal).await?;
    seen.add_row(&mut table, "one goal, written if not met");
    ctx.check_eq(
        "two reconciles and one PUT, which meets no conflict",
        &(seen.counts.reconciles, seen.counts.puts, seen.counts.conflicts),
        &(2, 1, 0),
    );
    ctx.check("then the queue is empty", !seen.goes_on);
    ctx.table(table);
    Ok(())
}

/// The observations of one way.
struct Seen {
    counts: Counts,
    /// Whether a reconcile began with a stale copy.
    was_behind: bool,
    /// Whether another reconcile was queued at the end.
    goes_on: bool,
    /// The greeting after each reconcile.
    said: Vec<String>,
}

impl Seen {
    fn add_row(&self, table: &mut Table, what: &str) {
        let Counts { reconciles, failed, puts, conflicts, events: _ } = self.counts;
        let then = if self.goes_on { "goes on" } else { "quiet" };
        table.row(&[&what, &reconciles, &failed, &puts, &conflicts, &then]);
    }
}

fn goes_on(ctx: &ScenarioContext, seen: &Seen) {
    let last = seen.said.len().saturating_sub(1);
    ctx.check(
        &format!("after {LOOKED_AT} reconciles the queue has it again, and it says what it said two reconciles before"),
        seen.goes_on && seen.counts.reconciles == LOOKED_AT && seen.said[last] == seen.said[last.saturating_sub(2)],
    );
}

/// Runs the loop until the queue is empty, or for a limited number of reconciles.
async fn look_at(controller: &mut Controller<'_>, way: Way) -> Result<Seen> {
    let (mut was_behind, mut said) = (false, Vec::new());
    while said.len() < LOOKED_AT {
        let Some(copy) = controller.turn().await? else { break };
        was_behind |= version_of(&copy)? != version_of(&controller.stored().await?)?;
        let result = way.reconcile(controller, &copy).await?;
        controller.ended(result)?;
        said.push(greeting_of(&controller.stored().await?).to_owned());
    }
    controller.catch_up().await?;
    Ok(Seen { counts: controller.counts(), was_behind, goes_on: !controller.is_idle(), said })
}

/// The article's code, with a gate that lets only the first of a reconcile's two events through before the next reconcile.
async fn behind(
    ctx: &ScenarioContext,
    alice: &Actor,
    controller: &mut Controller<'_>,
    table: &mut Table,
) -> Result<()> {
    ctx.say("The same code, but a gate holds the events of the watch back. After a reconcile it lets one event through, that of the first PUT. The event of the second PUT is still on its way when the next reconcile begins.");
    controller.care_for("behind");
    create(alice, "behind").await?;
    controller.catch_up().await?;
    let gate = controller.cache.close_gate();
    between_its_events(ctx, controller, &gate).await?;
    ctx.say("The gate lets the second event through, too. The next reconcile begins with the newest copy, and the one after it again between the two events.");
    gate.let_through(1);
    controller.catch_up().await?;
    between_its_events(ctx, controller, &gate).await?;
    ctx.say("Nothing is held back any more.");
    drop(gate);
    let mut reconciles = 0;
    while reconciles < 2 {
        let Some(copy) = controller.turn().await? else { break };
        let result = Way::InPlace.reconcile(controller, &copy).await?;
        controller.ended(result)?;
        reconciles += 1;
    }
    controller.catch_up().await?;
    let seen =
        Seen { counts: controller.counts(), was_behind: true, goes_on: !controller.is_idle(), said: vec![] };
    seen.add_row(table, "two goals, cache behind twice");
    ctx.check_eq(
        "six reconciles, two conflicts, one for each time that the cache was behind; and the loop goes on",
        &(seen.counts.reconciles, seen.counts.conflicts, seen.goes_on),
        &(6, 2, true),
    );
    Ok(())
}

/// A reconcile from the newest copy, and one that begins when the cache has the first of its two events.
async fn between_its_events(
    ctx: &ScenarioContext,
    controller: &mut Controller<'_>,
    gate: &ClosedGate,
) -> Result<()> {
    let copy = controller.next().await?;
    let result = Way::InPlace.reconcile(controller, &copy).await?;
    ctx.check("this reconcile meets no conflict", result.is_ok());
    controller.ended(result)?;
    let puts = controller.counts().puts;
    gate.let_through(1);
    let copy = controller.next().await?;
    let stored = controller.stored().await?;
    ctx.check(
        "the next begins with a copy that is older than what the server has",
        Version::parse(&version_of(&copy)?) < Version::parse(&version_of(&stored)?),
    );
    let result = Way::InPlace.reconcile(controller, &copy).await?;
    ctx.check("and fails at its first PUT", result.is_err() && controller.counts().puts == puts + 1);
    controller.ended(result)
}

/// The article's code without a gate, and without waiting for the watch.
async fn at_speed(ctx: &ScenarioContext, alice: &Actor, controller: &mut Controller<'_>) -> Result<()> {
    controller.care_for("at-speed");
    let what = format!(
        "With the gate it is certain: a reconcile that begins between its own two events fails. Without it, that is luck. Each reconcile races the event of the second PUT, which is on its way already. Here are {AT_SPEED} reconciles of the article's code at full speed, with no gate and no waiting. The terminal shows how many conflicts they met; that number differs from run to run, and may be 0."
    );
    ctx.racing(&what, async {
        create(alice, "at-speed").await?;
        for _ in 0..AT_SPEED {
            let copy = controller.next().await?;
            let result = Way::InPlace.reconcile(controller, &copy).await?;
            controller.ended(result)?;
        }
        controller.catch_up().await
    })
    .await?;
    let counts = controller.counts();
    let mut table = Table::new(&["reconciles", "failed", "PUTs", "409s"]);
    table.row(&[&counts.reconciles, &counts.failed, &counts.puts, &counts.conflicts]);
    ctx.live_table(table);
    ctx.check(
        "certain in any run: a reconcile that failed has sent one PUT, each other one two. So only a first PUT, the one from the cache, met a conflict",
        counts.conflicts == counts.failed && counts.puts == 2 * counts.reconciles - counts.failed,
    );
    ctx.check(
        &format!("certain, too: after {AT_SPEED} reconciles it is not done"),
        counts.reconciles == AT_SPEED && !controller.is_idle(),
    );
    Ok(())
}

/// A retry around each update: as the article has it, where that ends, and with a live read.
async fn retried(
    ctx: &ScenarioContext,
    alice: &Actor,
    controller: &mut Controller<'_>,
    table: &mut Table,
) -> Result<()> {
    ctx.say("The article's cure is `UpdateFoo`: `RetryOnConflict` with `DefaultBackoff`, and in each attempt a Get and an Update. The Get reads the cache. (The retry here is `retry_on_conflict`, conflict-retry's port of it, with the same pauses.) Here the gate holds the event of the first update back until the second update has met its conflict. It lets the event through before the pause, so the next attempt finds it in the cache.");
    controller.care_for("retried");
    create(alice, "retried").await?;
    let cached = look_at(controller, Way::CachedRetry).await?;
    cached.add_row(table, "two goals, retry from the cache");
    ctx.check_eq("no reconcile failed", &cached.counts.failed, &0);
    ctx.check_eq("each met a conflict, which the retry hides", &cached.counts.conflicts, &LOOKED_AT);
    goes_on(ctx, &cached);
    slow_watch(ctx, alice, controller, table).await?;

    ctx.say("Better: after a conflict read from the server. The events are held back until the reconcile is over, as before.");
    controller.care_for("retried-live");
    create(alice, "retried-live").await?;
    let live = look_at(controller, Way::LiveRetry).await?;
    live.add_row(table, "two goals, retry with live read");
    ctx.check_eq("no reconcile failed", &live.counts.failed, &0);
    ctx.check_eq("each met one conflict, however late the watch is", &live.counts.conflicts, &LOOKED_AT);
    goes_on(ctx, &live);
    ctx.say("So each retry hides the conflicts, and the loop stays.");
    Ok(())
}

/// The article's retry with a watch that is slower than its pauses.
async fn slow_watch(
    ctx: &ScenarioContext,
    alice: &Actor,
    controller: &mut Controller<'_>,
    table: &mut Table,
) -> Result<()> {
    ctx.say("That worked because the watch was faster than the pauses of `DefaultBackoff`, 10, 50 and 250 ms. The same code with a slower watch: the events are held back until the reconcile is over.");
    controller.care_for("slow-watch");
    create(alice, "slow-watch").await?;
    controller.catch_up().await?;
    let gate = controller.cache.close_gate();
    controller.next().await?;
    update_foo(controller, "Hello", None).await?;
    let Err(error) = update_foo(controller, "World", None).await else {
        bail!("a PUT from an old copy was accepted");
    };
    ctx.check(
        "the second update gives up after four attempts",
        matches!(error, RetryError::Exhausted { attempts: 4, .. }),
    );
    let Some(last) = error.into_inner() else { bail!("the retry ended without an answer") };
    controller.ended(Err(last))?;
    drop(gate);
    controller.catch_up().await?;
    let seen =
        Seen { counts: controller.counts(), was_behind: true, goes_on: !controller.is_idle(), said: vec![] };
    ctx.check_eq(
        "one reconcile, which failed: five PUTs, of which four were made from the same old copy and refused",
        &(seen.counts.reconciles, seen.counts.failed, seen.counts.puts, seen.counts.conflicts),
        &(1, 1, 5, 4),
    );
    seen.add_row(table, "the same, with a slow watch");
    Ok(())
}
