//! A watch that a scenario reads event by event, with its last version and a cache.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Status;

use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::version;
use crate::pool::Pool;

/// An actor that watches pools and caches their names.
pub(super) struct Watcher {
    actor: Actor,
    /// The names of the pools in its cache.
    cache: BTreeSet<String>,
    /// The version up to which it has received all events.
    pub(super) version: String,
}

type Events = BoxStream<'static, Result<WatchEvent<Pool>, kube::Error>>;

/// What a watch delivered.
pub(super) enum Brought {
    /// A change, as text.
    Change(String),
    /// The server no longer has the version.
    Refused(Box<Status>),
}

impl Watcher {
    /// Lists, as every watch begins.
    pub(super) async fn list(actor: Actor) -> Result<Self> {
        let mut watcher = Self { actor, cache: BTreeSet::new(), version: String::new() };
        watcher.relist().await?;
        Ok(watcher)
    }

    /// Lists again; returns the pools that the cache had and that are gone.
    pub(super) async fn relist(&mut self) -> Result<Vec<String>> {
        let list = self.actor.api::<Pool>().list(&kube::api::ListParams::default()).await?;
        self.version = list.metadata.resource_version.clone().context("the list has no version")?;
        let fresh: BTreeSet<_> = list.items.iter().map(name).collect();
        let gone = self.cache.difference(&fresh).cloned().collect();
        self.cache = fresh;
        Ok(gone)
    }

    /// Watches from `version`.
    pub(super) async fn watch(&self, version: &str) -> Result<Events> {
        // Whether bookmarks arrive would depend on the timing.
        let params = WatchParams { bookmarks: false, ..WatchParams::default() };
        Ok(self.actor.api::<Pool>().watch(&params, version).await?.boxed())
    }

    /// Applies the next event to the cache, and records it.
    pub(super) async fn next(&mut self, ctx: &ScenarioContext, events: &mut Events) -> Result<Brought> {
        let next = tokio::time::timeout(PATIENCE, events.next()).await.context("no event came")?;
        let (change, pool, exists) = match next.context("the watch ended")?? {
            WatchEvent::Added(pool) => ("ADDED", pool, true),
            WatchEvent::Modified(pool) => ("MODIFIED", pool, true),
            WatchEvent::Deleted(pool) => ("DELETED", pool, false),
            WatchEvent::Error(status) => return Ok(Brought::Refused(status)),
            WatchEvent::Bookmark(_) => bail!("a bookmark that was not requested"),
        };
        let name = name(&pool);
        self.version = pool.metadata.resource_version.clone().context("no version")?;
        ctx.act(self.actor.name(), &format!("{change:<9}  {name:<28}  at {}", version(&self.version)));
        if exists {
            self.cache.insert(name.clone());
        } else {
            self.cache.remove(&name);
        }
        Ok(Brought::Change(format!("{change} {name}")))
    }

    /// Applies `count` events, and returns them as text.
    pub(super) async fn take(
        &mut self,
        ctx: &ScenarioContext,
        events: &mut Events,
        count: usize,
    ) -> Result<Vec<String>> {
        let mut changes = Vec::new();
        while changes.len() < count {
            match self.next(ctx, events).await? {
                Brought::Change(change) => changes.push(change),
                Brought::Refused(status) => bail!("the watch ended with {}: {}", status.code, status.message),
            }
        }
        Ok(changes)
    }

    /// The API of the pools, with the watcher's client.
    pub(super) fn pools(&self) -> kube::Api<Pool> {
        self.actor.api()
    }

    /// The names in the cache.
    pub(super) fn names(&self) -> Vec<&str> {
        self.cache.iter().map(String::as_str).collect()
    }
}

/// Two watchers with equal caches. The version of a list is that of the whole store, which other writers move too, so the
/// page does not show it.
pub(super) async fn two(ctx: &ScenarioContext, one: Actor, other: Actor) -> Result<(Watcher, Watcher)> {
    let lists = async { tokio::try_join!(Watcher::list(one), Watcher::list(other)) };
    ctx.racing("Alice and Carol each list the pools, and watch from the version of the list.", lists).await
}

fn name(pool: &Pool) -> String {
    pool.metadata.name.clone().unwrap_or_default()
}
