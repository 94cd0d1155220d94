//! Way A on one object: the reconcile returns the conflict and the work queue repeats it. For comparison, way B.

use anyhow::{Context as _, Result};
use conflict_retry::{Source, UpdateDecision, WriteOptions, update};
use kube::ResourceExt as _;
use serde_json::json;

use super::controller::{Controller, Counts};
use super::{create, greeting_of, label, put, saying};
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Foo, Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "requeue",
    title: "Return a conflict to the work queue",
    rows: &["0g"],
    refutes: &[],
    lesson: "Return the conflict: the work queue requeues the object and repeats the whole reconcile, which is right whenever the decision needs more than this object. Do not count on the event of the write that won: a predicate may drop it.\n`update` repeats only one decision after a conflict: that is enough if the decision depends on this object alone.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let (alice, bob) = (ctx.actor("alice").await?, ctx.actor("bob").await?);
    ctx.say("A controller greets by the name in a label. Each reconcile reads a pool first, which stands for everything else that a reconcile reads.");
    let controller = Controller::start(ctx).await?;
    ctx.set(&pool("workers", 3)).await?;
    let mut play = Play { ctx, alice, bob, controller };
    let mut table = Table::new(&["the conflict is", "reconciles", "pool read", "PUTs", "409s"]);

    let (counts, reads) = play.returned().await?;
    row(&mut table, "returned", &counts, reads);
    let (counts, reads) = play.dropped().await?;
    row(&mut table, "neither returned nor retried", &counts, reads);
    let (counts, reads) = play.retried().await?;
    row(&mut table, "retried by update", &counts, reads);

    ctx.say("Now the controller drops every event that leaves the generation as it was, as controller-runtime's GenerationChangedPredicate does. A label is metadata and does not change the generation.");
    play.controller.compare_generations();
    let (counts, reads) = play.forgotten().await?;
    row(&mut table, "neither, with a generation predicate", &counts, reads);
    let (counts, reads) = play.returned_under_a_filter().await?;
    row(&mut table, "returned, with a generation predicate", &counts, reads);
    ctx.table(table);
    Ok(())
}

fn row(table: &mut Table, what: &str, counts: &Counts, reads: usize) {
    table.row(&[&what, &counts.reconciles, &reads, &counts.puts, &counts.conflicts]);
}

struct Play<'a> {
    ctx: &'a ScenarioContext,
    alice: Actor,
    bob: Actor,
    controller: Controller<'a>,
}

impl Play<'_> {
    /// Alice creates a Foo, the controller's watch is delayed, and Bob changes the name in the label.
    async fn begin(&mut self, name: &str) -> Result<crate::cache::ClosedGate> {
        self.controller.care_for(name);
        create(&self.alice, name).await?;
        label(&self.alice, name, json!("Alice")).await?;
        self.controller.catch_up().await?;
        let gate = self.controller.cache.close_gate();
        label(&self.bob, name, json!("Bob")).await?;
        Ok(gate)
    }

    /// Number of reads of the pool after the first `before` requests.
    fn reads(&self, before: usize) -> usize {
        let requests = self.controller.actor.requests();
        requests.iter().skip(before).filter(|request| request.target == "pools/workers").count()
    }

    /// The part of a reconcile before its write.
    async fn decide(&self, copy: &Foo) -> Result<Option<Foo>> {
        self.controller.actor.api::<Pool>().get("workers").await?;
        let goal = greeting(copy).context("there is no name to greet")?;
        Ok((greeting_of(copy) != goal).then(|| saying(copy, &goal)))
    }

    /// A reconcile that sends a PUT; returns its result.
    async fn reconcile(&self, copy: &Foo) -> Result<Result<(), kube::Error>> {
        Ok(match self.decide(copy).await? {
            Some(changed) => put(&self.controller.actor, &changed).await.map(drop),
            None => Ok(()),
        })
    }

    /// Reconciles until the queue is empty, and checks that Bob is greeted.
    async fn run_until_idle(&mut self) -> Result<()> {
        while let Some(copy) = self.controller.turn().await? {
            let result = self.reconcile(&copy).await?;
            self.controller.ended(result)?;
        }
        let stored = self.controller.stored().await?;
        self.ctx.check_eq("Bob is greeted, and the queue is empty", &greeting_of(&stored), &"Hello, Bob");
        Ok(())
    }

    async fn returned(&mut self) -> Result<(Counts, usize)> {
        self.ctx.say("Way A. Alice makes a Foo and puts her name in the label. Before the controller comes to it, Bob puts in his, and the watch is slow: its events are held back. The controller decides from its cache and returns each conflict; its work queue, which is part of the controller, calls it again after 5 ms, 10 ms, 20 ms, …");
        let before = self.controller.actor.requests().len();
        let gate = self.begin("returned").await?;
        while self.controller.counts().reconciles < 3 && !self.controller.is_idle() {
            let copy = self.controller.next().await?;
            let result = self.reconcile(&copy).await?;
            self.controller.ended(result)?;
        }
        let counts = self.controller.counts();
        self.ctx.check_eq(
            "three reconciles, three conflicts: the queue does not know that the cache is old",
            &(counts.reconciles, counts.conflicts),
            &(3, 3),
        );
        self.ctx.check_eq("the rest of the reconcile was done three times too", &self.reads(before), &3);
        self.ctx.say("Now the watch brings what Bob did.");
        drop(gate);
        self.run_until_idle().await?;
        Ok((self.controller.counts(), self.reads(before)))
    }

    async fn dropped(&mut self) -> Result<(Counts, usize)> {
        self.ctx.say("The same, but the reconcile drops the conflict and returns no error. Here every event triggers a reconcile, and the watch has yet to deliver the event of the write that won.");
        let before = self.controller.actor.requests().len();
        let gate = self.begin("dropped").await?;
        let copy = self.controller.next().await?;
        let result = self.reconcile(&copy).await?;
        self.ctx.check("the PUT met a conflict", result.is_err());
        self.controller.ended(Ok(()))?;
        self.ctx.check("the queue is empty", self.controller.is_idle());
        drop(gate);
        self.controller.catch_up().await?;
        self.ctx.check("with Bob's event the queue has it again", !self.controller.is_idle());
        self.run_until_idle().await?;
        Ok((self.controller.counts(), self.reads(before)))
    }

    /// A dropped conflict, where the event of the winning write is dropped too.
    async fn forgotten(&mut self) -> Result<(Counts, usize)> {
        self.ctx.say("The conflict is neither returned nor retried, as before.");
        let before = self.controller.actor.requests().len();
        let gate = self.begin("forgotten").await?;
        let copy = self.controller.next().await?;
        let result = self.reconcile(&copy).await?;
        self.ctx.check("the PUT met a conflict", result.is_err());
        self.controller.ended(Ok(()))?;
        drop(gate);
        self.controller.catch_up().await?;
        let cached = self.controller.cache.copy("forgotten")?;
        self.ctx.check_eq(
            "Bob's event has come, and the cache has his name",
            &cached.labels().get("name").map(String::as_str),
            &Some("Bob"),
        );
        self.ctx.check("but the queue is empty: nothing calls the reconcile", self.controller.is_idle());
        let stored = self.controller.stored().await?;
        self.ctx.check_eq("the write is forgotten: the greeting is not written", &greeting_of(&stored), &"");
        Ok((self.controller.counts(), self.reads(before)))
    }

    async fn returned_under_a_filter(&mut self) -> Result<(Counts, usize)> {
        self.ctx.say("The same filter, and the conflict is returned: the queue needs no event.");
        let before = self.controller.actor.requests().len();
        let gate = self.begin("filtered").await?;
        let copy = self.controller.next().await?;
        let result = self.reconcile(&copy).await?;
        self.ctx.check("the PUT met a conflict", result.is_err());
        self.controller.ended(result)?;
        drop(gate);
        self.run_until_idle().await?;
        Ok((self.controller.counts(), self.reads(before)))
    }

    async fn retried(&mut self) -> Result<(Counts, usize)> {
        self.ctx.say("Way B. The same with `update`, which after the conflict reads the Foo from the server and asks for a new decision.");
        let before = self.controller.actor.requests().len();
        let gate = self.begin("retried").await?;
        let copy = self.controller.next().await?;
        self.controller.actor.api::<Pool>().get("workers").await?;
        let foos = self.controller.actor.api::<Foo>();
        let options = WriteOptions::new("controller");
        let outcome = update(&foos, "retried", |object| {
            object.spec.greeting = greeting(object);
            UpdateDecision::Write
        })
        .put()
        .with(&options)
        .from(Source::Copy(copy))
        .outcome();
        self.ctx.check_eq("it is written", &outcome.await?.label(), &"written");
        let counts = self.controller.counts();
        self.ctx.check_eq(
            "with one conflict, in one reconcile",
            &(counts.conflicts, counts.reconciles),
            &(1, 1),
        );
        self.controller.ended(Ok(()))?;
        self.ctx.check_eq("the rest of the reconcile was done once", &self.reads(before), &1);
        self.ctx.say("The events arrive later, and their reconcile finds nothing to do.");
        drop(gate);
        self.run_until_idle().await?;
        Ok((self.controller.counts(), self.reads(before)))
    }
}

/// The greeting that a Foo should have.
fn greeting(object: &Foo) -> Option<String> {
    object.labels().get("name").map(|name| format!("Hello, {name}"))
}
