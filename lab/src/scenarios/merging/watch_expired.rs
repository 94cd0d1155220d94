//! A version that the server no longer has: 410, and how to continue.

use std::fmt::Debug;

use anyhow::{Context as _, Result, bail, ensure};
use conflict_retry::{Class, Verb, WriteOptions};
use futures::{AsyncBufReadExt as _, StreamExt as _};
use kube::api::{DeleteParams, ListParams, VersionMatch, WatchParams};
use kube::core::{NamespaceResourceScope, Request};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::wait::eventually;

use super::owners::apply_spec;
use super::watching;
use super::watching::{Brought, Watcher};
use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::version;
use crate::forgetting::forget_versions_before;
use crate::pool::{Foo, Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "watch-expired",
    title: "410 Expired, too old resource version: list again to find what was deleted",
    rows: &["4h"],
    refutes: &["watch-misses-nothing"],
    lesson: "Check the type of each event: an ERROR event contains a Status, not your object. After a 410 list again, treat what the list lacks as deleted, and watch from the list's version.\nA new watch without a version never shows what was deleted in between.",
    needs: Needs::Embedded,
    run: |ctx| Box::pin(run(ctx)),
};

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    let carol = ctx.actor("carol").await?;
    let bob = ctx.actor("bob").await?;
    for name in ["first", "second"] {
        ctx.set(&pool(name, 1)).await?;
    }
    let (mut relisting, mut naive) = watching::two(ctx, alice, carol).await?;
    {
        let mut events = (relisting.watch(&relisting.version).await?, naive.watch(&naive.version).await?);
        note(&bob, "first", "seen by both").await?;
        relisting.take(ctx, &mut events.0, 1).await?;
        naive.take(ctx, &mut events.1, 1).await?;
    }
    away(ctx, &bob, &relisting.version).await?;
    refused(ctx, &mut relisting).await?;
    trusting(ctx, &relisting.version).await?;
    from_now(ctx, &mut naive).await?;
    relisted(ctx, &mut relisting, &bob).await
}

/// Changes while neither watches; etcd and the API server drop all older versions.
async fn away(ctx: &ScenarioContext, bob: &Actor, seen: &str) -> Result<()> {
    ctx.say("Both connections break. While no watch is open, Bob deletes a pool and makes another.");
    let options = WriteOptions::new("bob");
    let pools = bob.api::<Pool>();
    let _deleted = conflict_retry::once::delete(&pools, "second", &options, &DeleteParams::default()).await?;
    let third = conflict_retry::once::create(&pools, &options, &pool("third", 1)).await?;
    let newest = third.metadata.resource_version.context("no version")?;
    ctx.say("The API server has etcd forget old versions every five minutes, and itself keeps the latest changes of each kind in memory. Here both forget at once: etcd is told to compact, and the API server is started again.");
    ctx.act("etcd", &format!("forgets everything before {}", version(&newest)));
    forget_versions_before(&ctx.cluster, &newest).await?;
    watched_again::<Pool>(ctx).await?;
    watched_again::<Foo>(ctx).await?;
    ctx.act("API server", "starts with an empty memory");
    ensure!(seen != newest, "nothing was written while they were away");
    Ok(())
}

/// Waits until the API server has filled its watch cache of the kind; it accepts no watch before.
async fn watched_again<K>(ctx: &ScenarioContext) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api = Api::<K>::namespaced(ctx.unrecorded_client().await?, ctx.namespace());
    eventually(PATIENCE, "watches are taken again", async || {
        Ok(Some(api.watch(&WatchParams::default().timeout(1), "0").await.map(drop)?))
    })
    .await
}

async fn refused(ctx: &ScenarioContext, relisting: &mut Watcher) -> Result<()> {
    let from = relisting.version.clone();
    ctx.say(&format!("Alice resumes the watch from {}, the last version she saw.", version(&from)));
    let mut events = relisting.watch(&from).await?;
    let Brought::Refused(status) = relisting.next(ctx, &mut events).await? else {
        bail!("the watch went on from a version that is gone");
    };
    ctx.live_quote(&status.message);
    // The rest of the message is the oldest available version, which depends on other writes.
    let message = status.message.replace(&from, &version(&from));
    let message = message.split(" (").next().unwrap_or_default();
    ctx.act("alice", &format!("ERROR      {} {}: {message}", status.code, status.reason));
    ctx.check_eq(
        "the request itself is answered 200; the 410 comes as an event in the stream",
        &(status.code, status.reason.as_str()),
        &(410, "Expired"),
    );
    let exact = ListParams {
        resource_version: Some(from),
        version_match: Some(VersionMatch::Exact),
        ..ListParams::default()
    };
    ctx.say("A list of that very version is answered 410 itself.");
    let Err(error) = relisting.pools().list(&exact).await else {
        bail!("a version that is gone was listed");
    };
    ctx.check_eq("conflict_retry calls it gone", &Class::of(Verb::Get, &error), &Class::Gone);
    Ok(())
}

/// A loop that does not check the type of events.
async fn trusting(ctx: &ScenarioContext, from: &str) -> Result<()> {
    ctx.say("Dave resumes from there too. His loop treats the object of every event as a pool, as many examples do (in Go: `event.Object.(*Pool)` without the `ok`), and panics if it is something else.");
    let dave = ctx.actor("dave").await?;
    let params = WatchParams { bookmarks: false, ..WatchParams::default() };
    let request = Request::new(Pool::url_path(&(), Some(ctx.namespace()))).watch(&params, from)?;
    let mut lines = dave.request_stream(request).await?.lines();
    let line = tokio::time::timeout(PATIENCE, lines.next()).await.context("no event came")?;
    let event: Value = serde_json::from_str(&line.context("the watch ended")??)?;
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (type_, kind) = (text("/type"), text("/object/kind"));
    ctx.act("dave", &format!("{type_:<9}  an object of kind {kind}"));
    let Err(died) = tokio::spawn(async move { taken_for_a_pool(&event) }).await else {
        bail!("a {kind} was taken for a pool");
    };
    let is_panic = died.is_panic();
    let why = died.try_into_panic().ok().and_then(|panic| panic.downcast::<String>().ok());
    ctx.act("dave", &format!("panics: {}", why.unwrap_or_default()));
    ctx.check(
        "the 410 has ended his program: the object of an ERROR event is a Status",
        is_panic && (type_.as_str(), kind.as_str()) == ("ERROR", "Status"),
    );
    Ok(())
}

/// The object of an event, or a panic, of which only the text on the page is printed.
fn taken_for_a_pool(event: &Value) -> Pool {
    match serde_json::from_value(event["object"].clone()) {
        Ok(pool) => pool,
        Err(error) => std::panic::resume_unwind(Box::new(error.to_string())),
    }
}

async fn from_now(ctx: &ScenarioContext, naive: &mut Watcher) -> Result<()> {
    ctx.say("Carol does something else: she drops the version, and watches from now on.");
    let mut events = naive.watch("").await?;
    let mut seen = naive.take(ctx, &mut events, 2).await?;
    seen.sort();
    ctx.check_eq("she is told what exists", &seen, &vec!["ADDED first".to_owned(), "ADDED third".to_owned()]);
    ctx.check_eq(
        "the second pool is gone, no event will ever say so, and her cache keeps it",
        &naive.names(),
        &vec!["first", "second", "third"],
    );
    Ok(())
}

async fn relisted(ctx: &ScenarioContext, relisting: &mut Watcher, bob: &Actor) -> Result<()> {
    let what =
        "Alice lists again and compares: what she had and the list lacks was deleted while she was away.";
    let gone = ctx.racing(what, relisting.relist()).await?;
    ctx.check_eq("the deletion is found", &gone, &vec!["second".to_owned()]);
    ctx.check_eq("her cache is what the server has", &relisting.names(), &vec!["first", "third"]);
    ctx.say("She continues to watch from the version of the list.");
    let mut events = relisting.watch(&relisting.version).await?;
    note(bob, "third", "changed").await?;
    let seen = relisting.take(ctx, &mut events, 1).await?;
    ctx.check_eq("and is told of the next change", &seen, &vec!["MODIFIED third".to_owned()]);
    Ok(())
}

async fn note(bob: &Actor, name: &str, note: &str) -> Result<()> {
    apply_spec(bob, name, &json!({"note": note}), false).await?.met().context("no note")?;
    Ok(())
}
