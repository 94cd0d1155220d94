//! A watch that is resumed from its last version, while the server has that version, and one that starts from now.

use anyhow::{Context as _, Result, bail};
use conflict_retry::WriteOptions;
use conflict_retry::freshness::Version;
use futures::StreamExt as _;
use kube::api::{DeleteParams, WatchEvent, WatchParams};
use serde_json::json;

use super::owners::apply_spec;
use super::watching;
use super::watching::Watcher;
use crate::context::{Actor, ScenarioContext};
use crate::event::version;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "watch-resume",
    title: "Resume a watch from its last resourceVersion; a watch without a version misses deletions",
    rows: &["4h"],
    refutes: &[],
    lesson: "Keep the version of the last event, bookmarks included, and resume the watch from there after a disconnect; expect 410 when the server no longer has it (watch-expired).\nA watch without a version shows what exists, never what was deleted: a cache fed by it keeps deleted objects.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// Number of watches of a few seconds, one of which brings a bookmark.
const WATCHES: u32 = 12;
/// Duration of each, in seconds.
const WATCH_SECONDS: u32 = 4;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let alice = ctx.actor("alice").await?;
    let carol = ctx.actor("carol").await?;
    let bob = ctx.actor("bob").await?;
    for name in ["first", "second"] {
        ctx.set(&pool(name, 1)).await?;
    }
    let (mut resuming, mut naive) = connected(ctx, alice, carol, &bob).await?;
    away(ctx, &bob).await?;
    resumed(ctx, &mut resuming).await?;
    from_now(ctx, &mut naive).await?;
    bookmarks(ctx, &resuming, &bob).await
}

/// Two actors that list and watch in the same way.
async fn connected(
    ctx: &ScenarioContext,
    alice: Actor,
    carol: Actor,
    bob: &Actor,
) -> Result<(Watcher, Watcher)> {
    let (mut resuming, mut naive) = watching::two(ctx, alice, carol).await?;
    let mut events = (resuming.watch(&resuming.version).await?, naive.watch(&naive.version).await?);
    note(bob, "first", "seen by both").await?;
    let seen = resuming.take(ctx, &mut events.0, 1).await?;
    let also = naive.take(ctx, &mut events.1, 1).await?;
    ctx.check_eq(
        "each is told of it",
        &(seen, also),
        &(strings(&["MODIFIED first"]), strings(&["MODIFIED first"])),
    );
    Ok((resuming, naive))
}

async fn away(ctx: &ScenarioContext, bob: &Actor) -> Result<()> {
    ctx.say("Both connections break. Before either is back, Bob changes one pool, deletes another and makes a third.");
    note(bob, "first", "changed").await?;
    let options = WriteOptions::new("bob");
    let _deleted =
        conflict_retry::once::delete(&bob.api::<Pool>(), "second", &options, &DeleteParams::default())
            .await?;
    conflict_retry::once::create(&bob.api::<Pool>(), &options, &pool("third", 1)).await?;
    Ok(())
}

async fn resumed(ctx: &ScenarioContext, resuming: &mut Watcher) -> Result<()> {
    let from = resuming.version.clone();
    ctx.say(&format!("Alice watches again from {}, the version of the last event she saw.", version(&from)));
    let mut events = resuming.watch(&from).await?;
    let seen = resuming.take(ctx, &mut events, 3).await?;
    ctx.check_eq(
        "everything that happened meanwhile arrives, in its order, the deletion included",
        &seen,
        &strings(&["MODIFIED first", "DELETED second", "ADDED third"]),
    );
    ctx.check_eq("her cache is what the server has", &resuming.names(), &vec!["first", "third"]);
    Ok(())
}

async fn from_now(ctx: &ScenarioContext, naive: &mut Watcher) -> Result<()> {
    ctx.say("Carol watches again without a version. The server begins with what there is now.");
    let mut events = naive.watch("").await?;
    let mut seen = naive.take(ctx, &mut events, 2).await?;
    seen.sort();
    ctx.check_eq("she gets what exists, and no deletion", &seen, &strings(&["ADDED first", "ADDED third"]));
    ctx.check_eq(
        "her cache keeps a ghost: the second pool, which no longer exists",
        &naive.names(),
        &vec!["first", "second", "third"],
    );
    Ok(())
}

/// A watch without events, while the store's version advances.
async fn bookmarks(ctx: &ScenarioContext, resuming: &Watcher, bob: &Actor) -> Result<()> {
    ctx.say("A watch of a pool that nobody writes stays at its version while the store moves on, until the server no longer has that version. Bookmarks solve this: they say up to which version everything was sent.");
    let from = resuming.version.clone();
    let what = format!(
        "Alice watches the first pool only, from {}, with allowWatchBookmarks; Bob writes another one meanwhile.",
        version(&from)
    );
    let (written, marked) = ctx.racing(&what, bookmark(resuming, bob, &from)).await?;
    let order = |text: &str| Version::parse(text).context("a version that cannot be compared");
    ctx.check(
        "she was sent no change, but a bookmark whose version is not older than Bob's write",
        order(&marked)? >= order(&written)?,
    );
    ctx.check(
        "so the next watch begins there, and not where this one began",
        order(&marked)? > order(&from)?,
    );
    Ok(())
}

/// The versions of the last write and of a bookmark that covers it. A change of the watched pool is an error.
async fn bookmark(resuming: &Watcher, bob: &Actor, from: &str) -> Result<(String, String)> {
    // The server sends a bookmark every minute, and two seconds before a watch ends.
    let params = WatchParams::default().fields("metadata.name=first").timeout(WATCH_SECONDS);
    for watch in 0..WATCHES {
        let mut events = resuming.pools().watch(&params, from).await?.boxed();
        let written = note(bob, "third", &watch.to_string()).await?;
        let wanted = Version::parse(&written);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Bookmark(bookmark) => {
                    let marked = bookmark.metadata.resource_version;
                    if Version::parse(&marked) >= wanted {
                        return Ok((written, marked));
                    }
                }
                WatchEvent::Error(status) => bail!("the watch ended with {}", status.code),
                _ => bail!("an event of a pool that has no writer"),
            }
        }
    }
    bail!("no bookmark in {WATCHES} watches of {WATCH_SECONDS} s")
}

/// The version of the write.
async fn note(bob: &Actor, name: &str, note: &str) -> Result<String> {
    let pool = apply_spec(bob, name, &json!({"note": note}), false).await?.met().context("no note")?;
    pool.metadata.resource_version.context("no version")
}

fn strings(events: &[&str]) -> Vec<String> {
    events.iter().map(ToString::to_string).collect()
}
