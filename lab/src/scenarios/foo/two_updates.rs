//! Two updates in each reconcile that contradict each other: an endless loop, with and without a stale copy; and the
//! conflicts, which only a stale copy causes.

use anyhow::Result;
use conflict_retry::freshness::Version;
use conflict_retry::{RetryError, RetryPolicy, retry_on_conflict};
use kube::ResourceExt as _;

use super::controller::{Controller, Counts};
use super::{create, greeting_of, put, say_hello, saying, version_of};
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::Foo;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "foo-two-updates",
    title: "Two updates in each reconcile that alternate: a loop without end",
    rows: &["1c", "1e", "1f", "2l"],
    refutes: &["too-many-reconciles"],
    lesson: "There are two faults: a desired state that alternates makes the endless loop, a stale copy makes the conflicts.\nA retry hides the second and keeps the first; one goal, and one write when it is not met, ends both.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// Number of reconciles that are checked one by one.
const LOOKED_AT: usize = 4;
/// Number of reconciles at full speed.
const AT_SPEED: usize = 20;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    ctx.say("In every reconcile a controller wants its Foo to say “Hello” and then “World”. To look at it closely, each reconcile here waits until the watch has brought everything that was written: the cache is never behind, unless the text says so.");
    let mut controller = Controller::start(ctx).await?;
    let mut table = Table::new(&["each reconcile has", "reconciles", "failed", "PUTs", "409s", "then"]);

    ctx.say("First without any mistake about versions: the second PUT is made from the answer to the first.");
    controller.care_for("alternating");
    create(&alice, "alternating").await?;
    let seen = look_at(&mut controller, Way::FromTheAnswer).await?;
    seen.add_row(&mut table, "two goals, from the answer");
    ctx.check_eq("no request met a conflict", &seen.counts.conflicts, &0);
    ctx.check("no reconcile began with an old copy", !seen.was_behind);
    goes_on(ctx, &seen);
    ctx.say("So a stale cache does not cause the loop, which goes on with a cache that is never behind. Does it cause the conflicts? That half of the claim holds:");
    behind(ctx, &alice, &mut controller, &mut table).await?;

    ctx.say("An old copy needs no cache that lags. Now both PUTs are made from the copy that the reconcile began with, and the cache is never behind again. The first PUT makes that copy an old one, unless it changes nothing.");
    controller.care_for("one-copy");
    create(&alice, "one-copy").await?;
    let seen = look_at(&mut controller, Way::FromOneCopy).await?;
    seen.add_row(&mut table, "two goals, from one copy");
    ctx.check_eq(
        "every second reconcile fails: the controller is in conflict with itself",
        &seen.counts.failed,
        &(LOOKED_AT / 2),
    );
    ctx.check("no reconcile began with an old copy", !seen.was_behind);
    goes_on(ctx, &seen);
    at_speed(ctx, &alice, &mut controller).await?;

    ctx.say("With a retry around each update (`retry_on_conflict` with client-go's DefaultBackoff) that reads again after a conflict, nothing fails any more.");
    controller.care_for("retried");
    create(&alice, "retried").await?;
    let seen = look_at(&mut controller, Way::WithRetry).await?;
    seen.add_row(&mut table, "two goals, with a retry");
    ctx.check_eq("no reconcile failed", &seen.counts.failed, &0);
    ctx.check_eq("each met a conflict, which the retry hides", &seen.counts.conflicts, &LOOKED_AT);
    goes_on(ctx, &seen);

    ctx.say("At last one goal: the Foo says “Hello”, and `update` writes that where it is not so.");
    controller.care_for("idempotent");
    create(&alice, "idempotent").await?;
    let seen = look_at(&mut controller, Way::OneGoal).await?;
    seen.add_row(&mut table, "one goal, written if not met");
    ctx.check_eq(
        "two reconciles and one PUT, of which none fails",
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

/// The same code with a cache that is one event behind.
async fn behind(
    ctx: &ScenarioContext,
    alice: &Actor,
    controller: &mut Controller<'_>,
    table: &mut Table,
) -> Result<()> {
    ctx.say("The same code, but the events of the watch are held back. After the first reconcile one of them is let through, that of its first PUT; that of its second is still on its way when the next reconcile begins.");
    controller.care_for("behind");
    create(alice, "behind").await?;
    controller.catch_up().await?;
    let gate = controller.cache.close_gate();
    let copy = controller.next().await?;
    let result = Way::FromTheAnswer.reconcile(controller, &copy).await?;
    ctx.check("the first reconcile meets no conflict", result.is_ok());
    controller.ended(result)?;
    gate.let_through(1);
    let copy = controller.next().await?;
    let stored = controller.stored().await?;
    ctx.check(
        "the second begins with a copy that is older than what the server has",
        Version::parse(&version_of(&copy)?) < Version::parse(&version_of(&stored)?),
    );
    let result = Way::FromTheAnswer.reconcile(controller, &copy).await?;
    ctx.check("and meets a conflict at its first PUT", result.is_err());
    controller.ended(result)?;
    drop(gate);
    let mut reconciles = 0;
    while reconciles < LOOKED_AT / 2 {
        let Some(copy) = controller.turn().await? else { break };
        let result = Way::FromTheAnswer.reconcile(controller, &copy).await?;
        controller.ended(result)?;
        reconciles += 1;
    }
    controller.catch_up().await?;
    let seen =
        Seen { counts: controller.counts(), was_behind: true, goes_on: !controller.is_idle(), said: vec![] };
    seen.add_row(table, "two goals, from a cache behind");
    ctx.check_eq(
        "when nothing is held back any more, no further conflict comes, and the loop goes on",
        &(seen.counts.reconciles, seen.counts.conflicts, seen.goes_on),
        &(LOOKED_AT, 1, true),
    );
    Ok(())
}

/// The same without waiting for the watch.
async fn at_speed(ctx: &ScenarioContext, alice: &Actor, controller: &mut Controller<'_>) -> Result<()> {
    controller.care_for("at-speed");
    let what = format!(
        "At full speed, where nothing waits for the watch, {AT_SPEED} reconciles follow each other. How many conflicts they meet is shown in a terminal; nothing here makes it certain."
    );
    ctx.racing(&what, async {
        create(alice, "at-speed").await?;
        for _ in 0..AT_SPEED {
            let copy = controller.next().await?;
            let result = Way::FromOneCopy.reconcile(controller, &copy).await?;
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
        &format!("after {AT_SPEED} reconciles it is not done either"),
        counts.reconciles == AT_SPEED && !controller.is_idle(),
    );
    Ok(())
}

/// The ways of a reconcile to write.
#[derive(Clone, Copy)]
enum Way {
    /// Each update from the answer to the one before.
    FromTheAnswer,
    /// Both updates from the copy that the reconcile began with.
    FromOneCopy,
    /// The same, each with a retry that reads again.
    WithRetry,
    /// One goal, one write.
    OneGoal,
}

impl Way {
    /// The inner result is that of the reconcile: a conflict is one of its expected results.
    async fn reconcile(self, controller: &Controller<'_>, copy: &Foo) -> Result<Result<(), kube::Error>> {
        let actor = &controller.actor;
        Ok(match self {
            Self::FromTheAnswer => from_the_answer(actor, copy).await,
            Self::FromOneCopy => from_one_copy(actor, copy).await,
            Self::WithRetry => {
                update_foo(actor, copy, "Hello").await?;
                update_foo(actor, copy, "World").await?;
                Ok(())
            }
            Self::OneGoal => {
                say_hello(controller).await?;
                Ok(())
            }
        })
    }
}

async fn from_the_answer(actor: &Actor, copy: &Foo) -> Result<(), kube::Error> {
    let answer = put(actor, &saying(copy, "Hello")).await?;
    put(actor, &saying(&answer, "World")).await.map(drop)
}

async fn from_one_copy(actor: &Actor, copy: &Foo) -> Result<(), kube::Error> {
    put(actor, &saying(copy, "Hello")).await?;
    put(actor, &saying(copy, "World")).await.map(drop)
}

/// From the copy at first, and after a conflict from a live read.
async fn update_foo(actor: &Actor, copy: &Foo, greeting: &str) -> Result<(), RetryError<kube::Error>> {
    let mut at_hand = Some(copy.clone());
    let attempt = || {
        let at_hand = at_hand.take();
        async move {
            let copy = match at_hand {
                Some(copy) => copy,
                None => actor.api::<Foo>().get(&copy.name_any()).await?,
            };
            put(actor, &saying(&copy, greeting)).await
        }
    };
    retry_on_conflict(&RetryPolicy::client_go_default_backoff(), attempt).await.map(drop)
}
