//! Reads fed by a watch, as in an operator: a reflector that records its own writes.

use anyhow::{Context as _, Result};
use conflict_retry::freshness::{CachedObject as _, Expectations, Source, Watched, WatchedObject};
use futures::StreamExt as _;
use kube::runtime::reflector::{ObjectRef, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use tokio::task::JoinHandle;

use crate::counter::Counter;

/// The newest version of one object from a watch.
pub(crate) struct Feed {
    object: WatchedObject<Counter>,
    task: JoinHandle<()>,
}

impl Feed {
    /// Opens a watch and waits until it has brought the object.
    pub(crate) async fn open(api: Api<Counter>, name: &str) -> Result<Self> {
        let of = ObjectRef::new(name).within(api.namespace().unwrap_or_default());
        let (store, mut writer) = store();
        let watched = Watched::new(store.clone(), Expectations::new("counters"));
        let object = watched.object(of);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, config).default_backoff());
            while let Some(event) = events.next().await {
                if let Ok(event) = event {
                    writer.apply_watcher_event(&event);
                    watched.observe(&event);
                }
            }
        });
        store.wait_until_ready().await.context("the watch ended")?;
        Ok(Self { object, task })
    }

    /// Waits until the watch has brought another version than `before`.
    pub(crate) async fn passes(&self, before: &Counter) -> Result<()> {
        let version = before.resource_version().context("an object without a version")?;
        self.object.newer(version).await.context("the counter is gone")?;
        Ok(())
    }

    /// Where writes take the object from.
    pub(crate) fn source(&self) -> Source<'_, Counter> {
        self.object.source()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}
