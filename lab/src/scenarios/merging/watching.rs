//! A watch in the hand: what arrives, where it left off, and what a cache makes of it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Status;

use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::event::version;
use crate::pool::Pool;

/// Somebody who watches pools and keeps what it has seen.
pub(super) struct Watcher {
    actor: Actor,
    /// The names of the pools that it believes to exist.
    cache: BTreeSet<String>,
    /// The version that it has seen everything up to.
    pub(super) version: String,
}

type Events = BoxStream<'static, Result<WatchEvent<Pool>, kube::Error>>;

/// What a watch brought.
pub(super) enum Brought {
    /// A change, told as the actor would.
    Change(String),
    /// The server cannot go on from there.
    Refused(Box<Status>),
}

impl Watcher {
    /// Lists, which is how every watch begins.
    pub(super) async fn list(actor: Actor) -> Result<Self> {
        let mut watcher = Self { actor, cache: BTreeSet::new(), version: String::new() };
        watcher.relist().await?;
        Ok(watcher)
    }

    /// Lists again: says which pools the cache had that are gone.
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
        // Bookmarks would come or not, as time has it.
        let params = WatchParams { bookmarks: false, ..WatchParams::default() };
        Ok(self.actor.api::<Pool>().watch(&params, version).await?.boxed())
    }

    /// Takes the next event into the cache, and tells of it.
    pub(super) async fn next(&mut self, ctx: &ScenarioContext, events: &mut Events) -> Result<Brought> {
        let next = tokio::time::timeout(PATIENCE, events.next()).await.context("no event came")?;
        let (told, pool, exists) = match next.context("the watch ended")?? {
            WatchEvent::Added(pool) => ("ADDED", pool, true),
            WatchEvent::Modified(pool) => ("MODIFIED", pool, true),
            WatchEvent::Deleted(pool) => ("DELETED", pool, false),
            WatchEvent::Error(status) => return Ok(Brought::Refused(status)),
            WatchEvent::Bookmark(_) => bail!("a bookmark that nobody asked for"),
        };
        let name = name(&pool);
        self.version = pool.metadata.resource_version.clone().context("no version")?;
        ctx.act(self.actor.name(), &format!("{told:<9}  {name:<28}  at {}", version(&self.version)));
        if exists {
            self.cache.insert(name.clone());
        } else {
            self.cache.remove(&name);
        }
        Ok(Brought::Change(format!("{told} {name}")))
    }

    /// Takes as many events, and says what they were.
    pub(super) async fn take(
        &mut self,
        ctx: &ScenarioContext,
        events: &mut Events,
        count: usize,
    ) -> Result<Vec<String>> {
        let mut told = Vec::new();
        while told.len() < count {
            match self.next(ctx, events).await? {
                Brought::Change(change) => told.push(change),
                Brought::Refused(status) => bail!("the watch ended with {}: {}", status.code, status.message),
            }
        }
        Ok(told)
    }

    /// The pools, through the watcher's eyes.
    pub(super) fn pools(&self) -> kube::Api<Pool> {
        self.actor.api()
    }

    /// Who is in the cache.
    pub(super) fn names(&self) -> Vec<&str> {
        self.cache.iter().map(String::as_str).collect()
    }
}

/// Two who begin alike. A list has the version of the whole store, which others move too, so that the page does not show
/// it.
pub(super) async fn two(ctx: &ScenarioContext, one: Actor, other: Actor) -> Result<(Watcher, Watcher)> {
    let lists = async { tokio::try_join!(Watcher::list(one), Watcher::list(other)) };
    ctx.racing("Alice and Carol each list the pools, and watch from the version of the list.", lists).await
}

fn name(pool: &Pool) -> String {
    pool.metadata.name.clone().unwrap_or_default()
}
