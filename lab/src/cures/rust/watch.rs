//! Prints what is added, also when the version to begin with is too old.

pub(crate) mod naive {
    use futures::{StreamExt as _, TryStreamExt as _};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::WatchParams;
    use kube::core::WatchEvent;
    use kube::{Api, ResourceExt as _};

    // naive: watch
    pub(crate) async fn first_three(maps: &Api<ConfigMap>, from: &str) -> anyhow::Result<Vec<String>> {
        let mut events = maps.watch(&WatchParams::default(), from).await?.boxed();
        let mut names = Vec::new();
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(map) => names.push(map.name_any()),
                // 410, the version is too old: the same again at each new start from it.
                WatchEvent::Error(status) => anyhow::bail!("the watch failed: {}", status.message),
                WatchEvent::Modified(_) | WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            }
            if names.len() == 3 {
                break;
            }
        }
        Ok(names)
    }
    // end
}

pub(crate) mod right {
    use futures::StreamExt as _;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::{WatchStreamExt as _, watcher};
    use kube::{Api, ResourceExt as _};

    // right: watch
    pub(crate) async fn first_three(maps: &Api<ConfigMap>) -> anyhow::Result<Vec<String>> {
        // Lists, watches from the list's version, and lists again after a 410.
        let events = watcher(maps.clone(), watcher::Config::default());
        let mut events = events.default_backoff().applied_objects().boxed();
        let mut names = Vec::new();
        while names.len() < 3 {
            match events.next().await {
                // Every list brings all of them.
                Some(Ok(map)) if names.contains(&map.name_any()) => {}
                Some(Ok(map)) => names.push(map.name_any()),
                // Not the end: the watcher goes on by itself.
                Some(Err(error)) => tracing::warn!(%error, "the watch was interrupted"),
                None => anyhow::bail!("the watch ended"),
            }
        }
        Ok(names)
    }
    // end
}
