//! A stale cache: a retry that reads from it, and how reading one's own writes helps.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use conflict_retry::freshness::{ChangeKind, Version};
use conflict_retry::{
    Outcome, RetryError, RetryPolicy, Source, UpdateDecision, WriteOptions, retry_on_conflict, update,
};
use serde_json::json;

use super::{create, label, put, saying, version_of};
use crate::cache::Cache;
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::{Table, version};
use crate::pool::Foo;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "stale-cache",
    title: "A stale cache: a retry that reads from it fails each time",
    rows: &["1d"],
    refutes: &["retry-with-cached-get"],
    lesson: "After a conflict, read from the server, or wait until the watch delivers the newer version; never use the same copy again.\nRemember your own writes, and do not decide from a copy that is older than they are.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// How long the scenario waits for a copy that cannot arrive.
const SHORT: Duration = Duration::from_millis(50);

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let (bob, controller) = (ctx.actor("bob").await?, ctx.actor("controller").await?);
    ctx.say("A controller has a cache of Foos, fed by a watch. Bob makes a Foo, and the cache has it. From then on the events of the watch are held back, and Bob changes the Foo.");
    let cache = Cache::<Foo>::start(&controller, Box::new(|_| {})).await?;
    let made = create(&bob, "hello").await?;
    cache.holds("hello", &version_of(&made)?).await?;
    let play = Play { ctx, bob, controller, cache };
    let gate = play.cache.close_gate();
    label(&play.bob, "hello", json!("bob")).await?;
    play.compare().await?;

    play.retry_from_the_cache().await?;
    let written = play.retry_live().await?;
    play.own_write_is_known(&written).await?;
    let newest = play.pass_the_cache_by().await?;

    ctx.say("Now the events are let through.");
    drop(gate);
    let fresh = play.cache.watched().fresh(&play.cache.reference("hello"), PATIENCE).await?;
    let fresh = fresh.context("the cache has lost it")?;
    ctx.check_eq(
        "the cache has the controller's own last write, and is trusted again",
        &version_of(&fresh)?,
        &newest,
    );
    play.control(&newest).await?;
    play.another_writers_change().await
}

struct Play<'a> {
    ctx: &'a ScenarioContext,
    bob: Actor,
    controller: Actor,
    cache: Cache<Foo>,
}

impl Play<'_> {
    /// Adds a row: the cached version beside the stored one.
    async fn compare(&self) -> Result<()> {
        let cached = version_of(&self.cache.copy("hello")?)?;
        let stored = version_of(&self.ctx.stored("hello").await?)?;
        let mut table = Table::new(&["where", "version"]);
        table.row(&[&"in the cache", &version(&cached)]).row(&[&"on the server", &version(&stored)]);
        self.ctx.table(table);
        self.ctx.check("the cached version is older", Version::parse(&cached) < Version::parse(&stored));
        Ok(())
    }

    /// client-go's loop, with reads from the cache.
    async fn cached_retry(&self, greeting: &str) -> Result<Foo, RetryError<kube::Error>> {
        retry_on_conflict(&RetryPolicy::client_go_default_retry(), async || {
            let copy = self.cache.copy("hello").map_err(|error| kube::Error::Service(error.into()))?;
            put(&self.controller, &saying(&copy, greeting)).await
        })
        .await
    }

    async fn retry_from_the_cache(&self) -> Result<()> {
        self.ctx.say("The usual retry, with a read from the cache in each attempt, as a cached client's Get does it. It is a port of client-go's RetryOnConflict with DefaultRetry: five attempts, 10 ms apart.");
        let Err(RetryError::Exhausted { attempts, .. }) = self.cached_retry("from the cache").await else {
            bail!("a PUT from an old copy was accepted");
        };
        let conflicts = self.controller.counts().conflicts;
        self.ctx.check_eq(
            "five attempts, five times the same old copy, five conflicts",
            &(attempts, conflicts),
            &(5, 5),
        );
        Ok(())
    }

    async fn retry_live(&self) -> Result<Foo> {
        self.ctx.say("`update` may begin with the same copy; after a conflict it reads from the server.");
        let copy = Source::Copy(self.cache.copy("hello")?);
        let before = self.controller.counts();
        let written = self.update(copy, "after a live read").await?;
        let after = self.controller.counts();
        self.ctx.check_eq(
            "the second attempt succeeds",
            &(after.conflicts - before.conflicts, after.written - before.written),
            &(1, 1),
        );
        Ok(written)
    }

    async fn own_write_is_known(&self, written: &Foo) -> Result<()> {
        self.ctx.say("The cache is now older than the controller's own write. Once `Watched` knows of that write, it does not return the old copy.");
        self.compare().await?;
        let reference = self.cache.reference("hello");
        let before = self.cache.watched().fresh(&reference, SHORT).await;
        self.ctx.check(
            "as long as it does not know of the write, it takes the old copy for a fresh one",
            before.is_ok_and(|copy| copy.is_some()),
        );
        self.cache.watched().expectations().wrote(written, ChangeKind::Updated);
        let after = self.cache.watched().fresh(&reference, SHORT).await;
        self.ctx
            .check("told of it, it answers `Stale` for as long as the events are held back", after.is_err());
        Ok(())
    }

    async fn pass_the_cache_by(&self) -> Result<String> {
        self.ctx.say(
            "`update` with `Source::Watched` begins with a live read instead of the copy it knows to be old.",
        );
        let before = self.controller.counts();
        let object = self.cache.object("hello");
        let written = self.update(object.source(), "past the cache").await?;
        let after = self.controller.counts();
        self.ctx.check_eq(
            "one read, one PUT, no conflict",
            &(after.requests - before.requests, after.conflicts - before.conflicts),
            &(2, 0),
        );
        version_of(&written)
    }

    /// The same loop with an up-to-date cache.
    async fn control(&self, newest: &str) -> Result<()> {
        self.ctx.say("For comparison, the first retry once more, with no events held back: the loop is the same, only the copy is new. Its four pauses take 40 ms together; with a slower watch it fails as above.");
        let before = self.controller.counts();
        let written = self.cached_retry("from the cache").await?;
        let after = self.controller.counts();
        self.ctx.check_eq(
            "the first attempt succeeds, from the cache",
            &(after.requests - before.requests, after.conflicts - before.conflicts),
            &(1, 0),
        );
        self.ctx.check("and moves the version", version_of(&written)? != newest);
        self.cache.holds("hello", &version_of(&written)?).await
    }

    async fn another_writers_change(&self) -> Result<()> {
        self.ctx.say("The controller has no record of another writer's change. The events are held back once more, and Bob writes again: `update` with `Source::Watched` loses its first attempt, waits for the watch to bring the version that won, and as it does not come, reads from the server.");
        let _gate = self.cache.close_gate();
        label(&self.bob, "hello", json!("bob-again")).await?;
        let before = self.controller.counts();
        let object = self.cache.object("hello");
        self.update(object.source(), "after Bob").await?;
        let after = self.controller.counts();
        self.ctx.check_eq(
            "a conflict, a read, a PUT: the old copy is not tried twice",
            &(after.requests - before.requests, after.conflicts - before.conflicts),
            &(3, 1),
        );
        Ok(())
    }

    async fn update(&self, source: Source<'_, Foo>, greeting: &str) -> Result<Foo> {
        let foos = self.controller.api::<Foo>();
        let options = WriteOptions::new("controller");
        let outcome = update(&foos, "hello", |object| {
            object.spec.greeting = Some(greeting.to_owned());
            UpdateDecision::Write
        })
        .put()
        .with(&options)
        .from(source)
        .outcome();
        match outcome.await? {
            Outcome::Written(written) => Ok(written),
            other => bail!("nothing was written: {}", other.label()),
        }
    }
}
