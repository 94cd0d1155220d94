//! A controller whose write meets a conflict.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use conflict_retry::controller::ObjectBackoff;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::controller::{Action, Config, trigger_self};
use kube::runtime::{PredicateConfig, WatchStreamExt as _, applier, reflector, watcher};

use super::A_WHILE;

/// Runs a controller of the `ConfigMap` `settings` that is called when the colour changes: a conflict about something else
/// brings it no event. (`Controller::for_stream` would be shorter, but kube calls it unstable.)
pub(crate) async fn for_a_while<F, Fut, E>(maps: Api<ConfigMap>, reconcile: F)
where
    F: FnMut(Arc<ConfigMap>, Arc<Api<ConfigMap>>) -> Fut,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
    E: std::error::Error + Send + 'static,
{
    let settings = watcher::Config::default().fields("metadata.name=settings");
    let (store, writer) = reflector::store::<ConfigMap>();
    let changes = watcher(maps.clone(), settings)
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(colour, PredicateConfig::default());
    let changes = trigger_self::<ConfigMap, _>(changes, ());
    let backoff = ObjectBackoff::default();
    let reconciler = backoff.reconciler(reconcile);
    let running =
        applier(reconciler, backoff.error_policy(), Arc::new(maps), store, changes, Config::default())
            .for_each(|_| async {});
    let _elapsed = tokio::time::timeout(A_WHILE, running).await;
}

/// What the controller is called for.
fn colour(map: &ConfigMap) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    map.data.as_ref()?.get("colour")?.hash(&mut hasher);
    Some(hasher.finish())
}

#[expect(clippy::disallowed_methods, reason = "shows the bare PUT whose conflict is swallowed")]
pub(crate) mod naive {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::PostParams;
    use kube::runtime::controller::Action;
    use kube::{Api, ResourceExt as _};

    // naive: requeue
    pub(crate) async fn reconcile(
        map: Arc<ConfigMap>,
        maps: Arc<Api<ConfigMap>>,
    ) -> Result<Action, kube::Error> {
        let mut wanted = ConfigMap::clone(&map);
        wanted.data.get_or_insert_default().insert("colour".into(), "blue".into());
        if wanted == *map {
            return Ok(Action::await_change());
        }
        if let Err(error) = maps.replace(&map.name_any(), &PostParams::default(), &wanted).await {
            tracing::warn!(%error, "not written");
        }
        // Also after a conflict: nothing calls this function again.
        Ok(Action::await_change())
    }
    // end
}

pub(crate) mod right {
    use std::sync::Arc;

    use conflict_retry::{WriteError, update};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::controller::Action;
    use kube::{Api, ResourceExt as _};

    // right: requeue
    pub(crate) async fn reconcile(
        map: Arc<ConfigMap>,
        maps: Arc<Api<ConfigMap>>,
    ) -> Result<Action, WriteError> {
        // Begins with the copy of the cache, and reads the server after a conflict.
        let outcome = update(&maps, &map.name_any(), |map| {
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        })
        .from(&map)
        .outcome()
        .await?;
        // What `update` gives up on is an error, and the queue comes back.
        Ok(outcome.action())
    }
    // end
}
