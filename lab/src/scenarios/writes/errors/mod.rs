//! Every class of answer to a write, and the right reaction.

mod identity;
mod moment;
mod object;

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use conflict_retry::{AttemptEvent, Observer, Outcome, UpdateDecision, WriteError, WriteOptions, update};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "errors",
    title: "Which Kubernetes errors to retry: most of them not",
    rows: &["2h", "3e"],
    refutes: &["not-found-is-success"],
    lesson: "Retry what can succeed the next time: a stale version after a fresh read, a throttled or lost request after a wait.\nEverything else needs a person or another decision; and a write to an object that does not exist has not happened.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The pool's name.
const NAME: &str = "workers";

/// The expected result of one kind of request.
struct Expected {
    what: &'static str,
    /// Status code of the first answer that is not a success; 0 when no answer arrives.
    code: u16,
    /// The class in `conflict_retry`.
    class: &'static str,
    /// The result of the operation.
    ends: &'static str,
    /// Number of requests.
    requests: usize,
    /// The right reaction to such an answer.
    deserves: &'static str,
}

/// Records the class of the first failed request.
#[derive(Default)]
struct FirstClass(Mutex<Option<&'static str>>);

impl FirstClass {
    fn get(&self) -> Option<&'static str> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for FirstClass {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        if let Some(class) = event.class {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(class.label());
        }
    }
}

/// An actor that sends one kind of request.
struct ErrorCase {
    actor: Actor,
    options: WriteOptions,
    seen: Arc<FirstClass>,
}

impl ErrorCase {
    fn new(actor: Actor) -> Self {
        let seen = Arc::new(FirstClass::default());
        let options = WriteOptions::new(actor.name()).with_observer(Arc::clone(&seen) as _);
        Self { actor, options, seen }
    }

    async fn of_alice(ctx: &ScenarioContext) -> Result<Self> {
        ctx.actor("alice").await.map(Self::new)
    }

    fn pools(&self) -> Api<Pool> {
        self.actor.api()
    }

    /// Compares the result, with the outcome `ended`, with what is `expected`.
    fn end(self, ctx: &ScenarioContext, table: &mut Table, expected: &Expected, ended: &str) {
        let Expected { what, code, class, ends, requests, deserves } = expected;
        let sent = self.actor.requests();
        let refused = sent.iter().find(|request| !request.succeeded()).map(|request| request.code);
        let plural = if *requests == 1 { "" } else { "s" };
        ctx.check_eq(
            &format!("{what}: class {class}, ends as {ends}, after {requests} request{plural}"),
            &(refused, self.seen.get(), ended, sent.len()),
            &(Some(*code), Some(*class), *ends, *requests),
        );
        let code = if *code == 0 { "none".to_owned() } else { code.to_string() };
        table.row(&[what, &code, class, ends, requests, deserves]);
    }
}

/// The result of an operation, as a label.
fn label<T>(ended: &Result<Outcome<T>, WriteError>) -> &'static str {
    ended.as_ref().map_or_else(WriteError::category, Outcome::label)
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let mut with_note = pool(NAME, 3);
    with_note.spec.note = Some("owned".into());
    let old = ctx.set(&with_note).await?;
    let mut table =
        Table::new(&["what happened", "code", "class", "ends as", "requests", "what it deserves"]);
    ctx.say("First, what depends on the object. Each of these operations goes through conflict_retry, which sends as many requests as such an answer deserves.");
    object::all(ctx, &mut table, &old).await?;
    ctx.say("Then, what depends on the client: a token that the server has not issued, and a service account without any rights.");
    identity::all(ctx, &mut table).await?;
    ctx.say("Last, what depends on the moment: an eviction that a disruption budget holds back, and a server that is not there, which is tried twice.");
    moment::all(ctx, &mut table).await?;
    ctx.table(table);
    not_found_is_no_success(ctx).await
}

/// As in some tutorials: a missing object counts as success.
#[expect(clippy::disallowed_methods, reason = "shows a 404 that is treated as success")]
async fn careless(alice: &Actor, name: &str) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    match alice.api::<Pool>().patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

async fn not_found_is_no_success(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("A 404 is often answered with “no error”. That reports a write that has not happened; conflict_retry returns Gone, and the caller decides what that means.");
    let alice = ctx.actor("alice").await?;
    let reported = careless(&alice, "absent").await;
    let pools = Api::<Pool>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    let stored = pools.get_opt("absent").await?;
    ctx.check("success is reported, and there is no object that would have 5 replicas", {
        reported.is_ok() && stored.is_none()
    });
    let outcome = update(&alice.api::<Pool>(), "absent", |pool| {
        pool.spec.replicas = Some(5);
        UpdateDecision::Write
    })
    .put()
    .with(&WriteOptions::new("alice"))
    .outcome()
    .await?;
    ctx.check("the outcome Gone does not count as met", outcome == Outcome::Gone && outcome.met().is_none());
    Ok(())
}
