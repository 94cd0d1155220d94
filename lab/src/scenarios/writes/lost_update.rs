//! The lost update: two clients read 3, one wants 5 and the other 2.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use conflict_retry::{Outcome, Source, UpdateDecision, WriteOptions, update};
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tower::service_fn;

use super::{Overwrites, code};
use crate::context::{Actor, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "lost-update",
    title: "The lost update: a version check detects it, only deciding again prevents it",
    rows: &["4a"],
    refutes: &["both-intentions"],
    lesson: "Without a version the last writer wins and there is no error; with a version the loser gets an error, and nothing more.\nDecide again from the newest object, and state a goal instead of counting; if two writers want one field, one wins, and the other must be told.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The writers, and the results so far.
struct Play<'a> {
    ctx: &'a ScenarioContext,
    alice: Actor,
    bob: Actor,
    table: Table,
}

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let (alice, bob) = (ctx.actor("alice").await?, ctx.actor("bob").await?);
    let table = Table::new(&["way", "alice", "bob", "stored", "what became of it"]);
    let mut play = Play { ctx, alice, bob, table };
    without_versions(&mut play).await?;
    with_versions(&mut play).await?;
    blind_retry(&mut play).await?;
    counted(&mut play).await?;
    own_conflict(&mut play).await?;
    counted_twice(&mut play).await?;
    said_twice(&mut play).await?;
    needed(&mut play).await?;
    yielded(&mut play).await?;
    ctx.table(play.table);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "shows patches that no version guards")]
async fn without_versions(play: &mut Play<'_>) -> Result<()> {
    let Play { ctx, alice, bob, table } = play;
    ctx.say("Without versions. The pool has 3 replicas. Alice wants 5, Bob wants 2, and each sends a patch that says so.");
    for (name, way) in [("merge", "merge patch, no version"), ("json", "JSON Patch, no version")] {
        ctx.set(&pool(name, 3)).await?;
        let patch = |replicas: i32| {
            let operation = json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]);
            match name {
                "merge" => Ok(Patch::Merge(json!({"spec": {"replicas": replicas}}))),
                _ => serde_json::from_value(operation).map(Patch::Json),
            }
        };
        let params = PatchParams::default();
        let first = alice.api::<Pool>().patch(name, &params, &patch(5)?).await;
        let second = bob.api::<Pool>().patch(name, &params, &patch(2)?).await;
        let stored = replicas(ctx, name).await?;
        ctx.check_eq(&format!("{way}: both are told 200"), &(code(&first), code(&second)), &(200, 200));
        let between = first.ok().and_then(|pool| pool.spec.replicas);
        ctx.check_eq(
            &format!("{way}: 5 was stored, now it is 2, and no error says so"),
            &(between, stored),
            &(Some(5), Some(2)),
        );
        table.row(&[&way, &"5, told 200", &"2, told 200", &2, &"5 is lost, without an error"]);
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn with_versions(play: &mut Play<'_>) -> Result<()> {
    let Play { ctx, alice, bob, table } = play;
    ctx.say("With versions. Both read version and count, and PUT what they read with another count.");
    ctx.set(&pool("put", 3)).await?;
    let mut his = bob.api::<Pool>().get("put").await?;
    raise(alice, "put").await?;
    his.spec.replicas = Some(2);
    let answer = bob.api::<Pool>().replace("put", &PostParams::default(), &his).await;
    ctx.check_eq("Bob is told 409", &code(&answer), &409);
    ctx.check_eq("Alice's 5 is stored", &replicas(ctx, "put").await?, &Some(5));
    table.row(&[&"PUT", &"5, told 200", &"2, told 409", &5, &"2 is not written, and Bob knows"]);
    Ok(())
}

async fn blind_retry(play: &mut Play<'_>) -> Result<()> {
    let Play { ctx, alice, bob, table } = play;
    ctx.say("With versions and a retry that assigns blindly: after the 409 Bob reads again, ignores the new count, and sets his 2.");
    ctx.set(&pool("blind", 3)).await?;
    let his = bob.api::<Pool>().get("blind").await?;
    raise(alice, "blind").await?;
    let overwrites = Arc::new(Overwrites::default());
    let options = WriteOptions::new("bob").with_observer(Arc::clone(&overwrites) as _);
    let blindly = |pool: &mut Pool| {
        pool.spec.replicas = Some(2);
        UpdateDecision::Write
    };
    let outcome = update(&bob.api::<Pool>(), "blind", blindly)
        .put()
        .with(&options)
        .from(Source::Copy(his))
        .outcome()
        .await?;
    ctx.check_eq("Bob's retry is granted", &outcome.label(), &"written");
    let stored = replicas(ctx, "blind").await?;
    ctx.check_eq("2 is stored: Alice's 5 is as lost as without versions", &stored, &Some(2));
    ctx.check_eq(
        "the observer of conflict_retry is told that a retry wrote over /spec/replicas",
        &overwrites.paths(),
        &vec!["/spec/replicas".to_owned()],
    );
    table.row(&[
        &"update, assigns blindly",
        &"5, told 200",
        &"2, told 200",
        &2,
        &"5 is lost; the observer says overwrote",
    ]);
    Ok(())
}

async fn counted(play: &mut Play<'_>) -> Result<()> {
    let Play { ctx, alice, bob, table } = play;
    ctx.say("Deciding again. Alice wants two more and Bob wants one less, and each computes it from the object as it is.");
    ctx.set(&pool("counted", 3)).await?;
    let his = bob.api::<Pool>().get("counted").await?;
    raise(alice, "counted").await?;
    let options = WriteOptions::new("bob");
    let outcome = update(&bob.api::<Pool>(), "counted", one_less)
        .put()
        .with(&options)
        .from(Source::Copy(his))
        .outcome()
        .await?;
    ctx.check_eq("Bob's second decision is granted", &outcome.label(), &"written");
    let stored = replicas(ctx, "counted").await?;
    ctx.check_eq("4 is stored: 3, two more, one less", &stored, &Some(4));
    table.row(&[&"update, counts from the object", &"+2", &"-1", &4, &"nothing is lost"]);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn own_conflict(play: &mut Play<'_>) -> Result<()> {
    let Play { ctx, bob, table, .. } = play;
    ctx.say("A 409 does not say whose write came first. Bob is the only writer here. The server carries out his PUT, and its answer is lost on the way back, as when a connection breaks. He sends the same PUT once more.");
    ctx.set(&pool("own", 3)).await?;
    let pools = deaf(bob, 1);
    let mut copy = pools.get("own").await?;
    copy.spec.replicas = Some(2);
    let lost = pools.replace("own", &PostParams::default(), &copy).await;
    let again = pools.replace("own", &PostParams::default(), &copy).await;
    ctx.check_eq("no answer, then a 409", &(code(&lost), code(&again)), &(0, 409));
    let stored = replicas(ctx, "own").await?;
    ctx.check_eq("2 is stored: the write that came first is his own", &stored, &Some(2));
    table.row(&[
        &"PUT, an answer is lost",
        &"",
        &"2, told 409",
        &2,
        &"2 is written, and Bob is told that it is not",
    ]);
    Ok(())
}

async fn counted_twice(play: &mut Play<'_>) -> Result<()> {
    let Play { ctx, bob, table, .. } = play;
    ctx.say("Counting has a problem. Bob wants one less, is the only writer again, and the answer to his first PUT is lost. `update` cannot know this, reads again, and calls his closure, which counts again.");
    ctx.set(&pool("twice", 3)).await?;
    let pools = deaf(bob, 1);
    let outcome = update(&pools, "twice", one_less).put().with(&WriteOptions::new("bob")).outcome().await?;
    ctx.check_eq("Bob is told that it is written", &outcome.label(), &"written");
    let stored = replicas(ctx, "twice").await?;
    ctx.check_eq("1 is stored, where 2 was meant: one less was counted twice", &stored, &Some(1));
    table.row(&[
        &"update, counts, an answer is lost",
        &"",
        &"-1",
        &1,
        &"one too many is gone, without an error",
    ]);
    Ok(())
}

async fn said_twice(play: &mut Play<'_>) -> Result<()> {
    let Play { ctx, bob, table, .. } = play;
    ctx.say("A goal can be repeated. The same with “at most 2”: after the lost answer it is met.");
    ctx.set(&pool("once", 3)).await?;
    let pools = deaf(bob, 1);
    let at_most_2 = |pool: &mut Pool| {
        pool.spec.replicas = pool.spec.replicas.min(Some(2));
        UpdateDecision::Write
    };
    let outcome = update(&pools, "once", at_most_2).put().with(&WriteOptions::new("bob")).outcome().await?;
    ctx.check("Bob is told that it is done already", matches!(outcome, Outcome::AlreadyDone(_)));
    let stored = replicas(ctx, "once").await?;
    ctx.check_eq("2 is stored, written once", &stored, &Some(2));
    table.row(&[&"update, a goal, an answer is lost", &"", &"≤ 2", &2, &"nothing is lost"]);
    Ok(())
}

fn one_less(pool: &mut Pool) -> UpdateDecision {
    pool.spec.replicas = pool.spec.replicas.map(|count| count - 1);
    UpdateDecision::Write
}

/// The API of the pools, with a client that loses the answers to its first `puts` PUTs.
fn deaf(actor: &Actor, puts: usize) -> Api<Pool> {
    let (client, left) = (actor.client(), Arc::new(AtomicUsize::new(puts)));
    let service = service_fn(move |request: http::Request<Body>| {
        let (client, left) = (client.clone(), Arc::clone(&left));
        async move {
            let is_put = request.method() == http::Method::PUT;
            let answer = client.send(request).await?;
            let is_lost = is_put
                && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            if is_lost { Err(kube::Error::Service("the connection broke".into())) } else { Ok(answer) }
        }
    });
    Api::namespaced(Client::new(service, actor.namespace()), actor.namespace())
}

async fn needed(play: &mut Play<'_>) -> Result<()> {
    let Play { ctx, alice, bob, table } = play;
    ctx.say("A goal also holds against others. Alice needs at least 5, and Bob at least 4.");
    ctx.set(&pool("needed", 3)).await?;
    let his = bob.api::<Pool>().get("needed").await?;
    raise(alice, "needed").await?;
    let options = WriteOptions::new("bob");
    let at_least_4 = |pool: &mut Pool| {
        pool.spec.replicas = pool.spec.replicas.max(Some(4));
        UpdateDecision::Write
    };
    let outcome = update(&bob.api::<Pool>(), "needed", at_least_4)
        .put()
        .with(&options)
        .from(Source::Copy(his))
        .outcome()
        .await?;
    ctx.check_eq(
        "after the 409 Bob's need is met, and he sends nothing more",
        &outcome.label(),
        &"unchanged",
    );
    let stored = replicas(ctx, "needed").await?;
    ctx.check_eq("5 is stored, which is enough for both", &stored, &Some(5));
    table.row(&[&"update, at least what is needed", &"≥ 5", &"≥ 4", &5, &"nothing is lost"]);
    Ok(())
}

async fn yielded(play: &mut Play<'_>) -> Result<()> {
    let Play { ctx, alice, bob, table } = play;
    ctx.say("Exactly 5 and exactly 2 cannot both hold, whatever the server checks. The first to write wins here, because Bob wants 2 only while the count is the 3 that he saw; the outcome tells him that he lost.");
    ctx.set(&pool("exactly", 3)).await?;
    let his = bob.api::<Pool>().get("exactly").await?;
    raise(alice, "exactly").await?;
    let options = WriteOptions::new("bob");
    let while_3 = |pool: &mut Pool| {
        if pool.spec.replicas != Some(3) {
            return UpdateDecision::Abort;
        }
        pool.spec.replicas = Some(2);
        UpdateDecision::Write
    };
    let outcome = update(&bob.api::<Pool>(), "exactly", while_3)
        .put()
        .with(&options)
        .from(Source::Copy(his))
        .outcome()
        .await?;
    ctx.check("Bob's outcome is Aborted: he knows", matches!(outcome, Outcome::Aborted));
    ctx.check_eq("Alice's 5 is stored", &replicas(ctx, "exactly").await?, &Some(5));
    table.row(&[&"update, yields", &"5", &"2, aborted", &5, &"2 is not written, and Bob knows"]);
    Ok(())
}

/// Alice wants two more than there are.
#[expect(clippy::disallowed_methods, reason = "shows the bare PUT")]
async fn raise(alice: &Actor, name: &str) -> Result<()> {
    let pools = alice.api::<Pool>();
    let mut hers = pools.get(name).await?;
    hers.spec.replicas = hers.spec.replicas.map(|count| count + 2);
    pools.replace(name, &PostParams::default(), &hers).await?;
    Ok(())
}

async fn replicas(ctx: &ScenarioContext, name: &str) -> Result<Option<i32>> {
    Ok(ctx.stored::<Pool>(name).await?.spec.replicas)
}
