//! The passes that a third controller's reports trigger: they depend on what a watcher compares.

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;

use super::owners::{apply_spec, apply_status};
use super::third::{POOL, priced, two};
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::pool::Pool;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "third-controller-wakes",
    title: "A status update of one controller triggers the others: how to avoid the extra reconciles",
    rows: &[],
    refutes: &[],
    lesson: "Compare what your reconcile reads, before and after an event: the generation, and your own part of the status.\nThe generation alone is not enough: if another writer overwrites your status, you never restore it.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// Reports of the third controller, each with another price.
const REPORTS: i32 = 3;

type Events = BoxStream<'static, Result<WatchEvent<Pool>, kube::Error>>;
/// Whether an event changes nothing that a pass reads.
type Same = fn(&Pool, &Pool) -> bool;

/// A controller that watches the pool, and its comparison.
struct Watcher {
    actor: Actor,
    compares: &'static str,
    same: Same,
    events: Events,
    last: Pool,
    /// Events and passes of each phase.
    counted: Vec<(usize, usize)>,
}

impl Watcher {
    /// Watches from `pool` on.
    async fn start(
        ctx: &ScenarioContext,
        name: &str,
        compares: &'static str,
        same: Same,
        pool: &Pool,
    ) -> Result<Self> {
        let actor = ctx.actor(name).await?;
        // Whether bookmarks arrive would depend on the timing.
        let params = WatchParams { bookmarks: false, ..WatchParams::default() };
        let events = actor.api::<Pool>().watch(&params, version(pool)?).await?.boxed();
        Ok(Self { actor, compares, same, events, last: pool.clone(), counted: Vec::new() })
    }

    /// Handles every event up to `until`, the last one. A pass begins with a read.
    async fn take(&mut self, until: &Pool) -> Result<()> {
        let (mut events, mut passes) = (0, 0);
        while version(&self.last)? != version(until)? {
            let next = tokio::time::timeout(PATIENCE, self.events.next()).await.context("no event came")?;
            let WatchEvent::Modified(pool) = next.context("the watch ended")?? else {
                bail!("something else than a change of the pool");
            };
            events += 1;
            if !(self.same)(&self.last, &pool) {
                passes += 1;
                self.actor.api::<Pool>().get(POOL).await?;
            }
            self.last = pool;
        }
        self.counted.push((events, passes));
        Ok(())
    }
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    two(ctx).await?;
    let budget = ctx.actor("budget").await?;
    let alice = ctx.actor("alice").await?;
    ctx.say("Three versions of the provisioner watch the pool from here. The hasty one makes a pass for every event. The blind one compares the generation. The careful one compares what a pass reads: generation, deletion, finalizers, and its own count and condition. A pass begins with a GET.");
    let begin = ctx.stored::<Pool>(POOL).await?;
    let mut watchers = vec![
        Watcher::start(ctx, "hasty", "nothing", |_, _| false, &begin).await?,
        Watcher::start(ctx, "blind", "the generation", same_generation, &begin).await?,
        Watcher::start(ctx, "careful", "what a pass reads", same_read, &begin).await?,
    ];
    ctx.say("A third controller, budget, reports a price, three times a different one.");
    for price in 1..=REPORTS {
        apply_status(&budget, POOL, &priced(price)?, false).await?.met().context("no report")?;
    }
    phase(ctx, &mut watchers).await?;
    ctx.say("It reports the last price once more.");
    let before = ctx.stored::<Pool>(POOL).await?;
    apply_status(&budget, POOL, &priced(REPORTS)?, false).await?.met().context("no report")?;
    let after = ctx.stored::<Pool>(POOL).await?;
    ctx.check_eq(
        "the version has not moved, so no watcher is notified: only a change is an event",
        &version(&after)?,
        &version(&before)?,
    );
    ctx.say("Alice leaves a note in the spec.");
    apply_spec(&alice, POOL, &json!({"note": "more to come"}), false).await?.met().context("no note")?;
    phase(ctx, &mut watchers).await?;
    ctx.say("Then she overwrites the provisioner's count of ready nodes.");
    write_over(&alice).await?;
    phase(ctx, &mut watchers).await?;
    concluded(ctx, &watchers);
    Ok(())
}

/// Lets each watcher handle the events since the last phase, one after the other.
async fn phase(ctx: &ScenarioContext, watchers: &mut [Watcher]) -> Result<()> {
    let now = ctx.stored::<Pool>(POOL).await?;
    for watcher in watchers {
        watcher.take(&now).await?;
    }
    Ok(())
}

fn concluded(ctx: &ScenarioContext, watchers: &[Watcher]) {
    let columns =
        ["who", "compares", "3 reports of budget", "a change of the spec", "its count written over"];
    let mut table = Table::new(&columns);
    for watcher in watchers {
        let counts = |phase: usize| match watcher.counted.get(phase) {
            Some((events, passes)) => format!("{events} → {passes}"),
            None => String::new(),
        };
        table.row(&[&watcher.actor.name(), &watcher.compares, &counts(0), &counts(1), &counts(2)]);
    }
    ctx.say("Events → passes of each:");
    ctx.table(table);
    let counted: Vec<_> = watchers.iter().map(|watcher| watcher.counted.as_slice()).collect();
    let events = |counted: &&[(usize, usize)]| counted.iter().map(|(events, _)| *events).collect::<Vec<_>>();
    ctx.check(
        "each report is an event for every watcher",
        counted.iter().map(events).all(|events| events == [3, 1, 1]),
    );
    let passes = |place: usize| -> Vec<usize> {
        counted.get(place).into_iter().copied().flatten().map(|(_, passes)| *passes).collect()
    };
    ctx.check_eq("the hasty one makes a pass for each of them", &passes(0), &vec![3, 1, 1]);
    ctx.check_eq(
        "the blind one makes none for the reports, and none for its own count either",
        &passes(1),
        &vec![0, 1, 0],
    );
    ctx.check_eq(
        "the careful one makes none for the reports, and misses nothing of its own",
        &passes(2),
        &vec![0, 1, 1],
    );
}

fn same_generation(before: &Pool, now: &Pool) -> bool {
    before.metadata.generation == now.metadata.generation
}

fn same_read(before: &Pool, now: &Pool) -> bool {
    let meta = |pool: &Pool| (pool.metadata.deletion_timestamp.clone(), pool.metadata.finalizers.clone());
    let own = |pool: &Pool| {
        let status = pool.status.clone().unwrap_or_default();
        (status.ready, status.conditions.into_iter().find(|condition| condition.type_ == "Ready"))
    };
    same_generation(before, now) && meta(before) == meta(now) && own(before) == own(now)
}

#[expect(clippy::disallowed_methods, reason = "the naive half: a bare patch of another controller's field")]
async fn write_over(alice: &Actor) -> Result<()> {
    let params = PatchParams { field_manager: Some("alice".to_owned()), ..PatchParams::default() };
    let body = Patch::Merge(json!({"status": {"ready": 9}}));
    alice.api::<Pool>().patch_status(POOL, &params, &body).await?;
    Ok(())
}

fn version(pool: &Pool) -> Result<&str> {
    pool.metadata.resource_version.as_deref().context("no version")
}
