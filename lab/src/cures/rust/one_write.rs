//! A controller that brings an object to a state, and is called again by its own writes.

use std::sync::Arc;

use conflict_retry::controller::ControllerExt as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};

use super::A_WHILE;

/// Runs a controller of the `ConfigMap` `settings`.
pub(crate) async fn for_a_while<F, Fut, E>(maps: Api<ConfigMap>, reconcile: F)
where
    F: FnMut(Arc<ConfigMap>, Arc<Api<ConfigMap>>) -> Fut,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
    E: std::error::Error + Send + 'static,
{
    let settings = watcher::Config::default().fields("metadata.name=settings");
    let running = Controller::new(maps.clone(), settings)
        .run_with_backoff(reconcile, Arc::new(maps))
        .for_each(|_| async {});
    let _elapsed = tokio::time::timeout(A_WHILE, running).await;
}

#[expect(clippy::disallowed_methods, reason = "shows the bare writes that call the controller again")]
pub(crate) mod naive {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Patch, PatchParams};
    use kube::runtime::controller::Action;
    use kube::{Api, ResourceExt as _};
    use serde_json::json;

    // naive: one-write
    pub(crate) async fn reconcile(
        map: Arc<ConfigMap>,
        maps: Arc<Api<ConfigMap>>,
    ) -> Result<Action, kube::Error> {
        for colour in ["blue", "red"] {
            // Each of them is a change, and each change calls this function again.
            let patch = Patch::Merge(json!({"data": {"colour": colour}}));
            maps.patch(&map.name_any(), &PatchParams::default(), &patch).await?;
        }
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

    // right: one-write
    pub(crate) async fn reconcile(
        map: Arc<ConfigMap>,
        maps: Arc<Api<ConfigMap>>,
    ) -> Result<Action, WriteError> {
        // One goal. A map that is blue already is not sent.
        let outcome = update(&maps, &map.name_any(), |map| {
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        })
        .from(&map)
        .outcome()
        .await?;
        Ok(outcome.action())
    }
    // end
}
