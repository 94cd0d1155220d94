//! Ten common jobs, with this crate and with kube alone, each as it is right: a conflict is retried from a fresh read, and nothing that others
//! wrote is lost. Both do the same; run it to see (`jobs`, on a `ConfigMap` and a Deployment called `jobs`, which it makes).

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config};
use serde_json::json;

const NAME: &str = "jobs";
const FINALIZER: &str = "example.com/held";
const SEEN: &str = "example.com/seen";

mod ours {
    use conflict_retry::{
        WriteOptions, add_finalizer, apply_status, create_or_update, once, remove_finalizer, scale, update,
        update_status,
    };
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{DeleteParams, Preconditions};
    use kube::{Api, Error};
    use serde_json::Value;

    use super::{FINALIZER, NAME, SEEN};

    // job: create an object, or change the one that is there
    pub(crate) async fn ensure(maps: &Api<ConfigMap>, initial: &ConfigMap) -> Result<ConfigMap, Error> {
        let colour = |map: &mut ConfigMap| {
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
        };
        Ok(create_or_update(maps, initial, colour).await?)
    }
    // job: change an object
    pub(crate) async fn change(maps: &Api<ConfigMap>) -> Result<ConfigMap, Error> {
        let shade = |map: &mut ConfigMap| {
            map.data.get_or_insert_default().insert("shade".into(), "dark".into());
        };
        Ok(update(maps, NAME, shade).await?)
    }
    // job: change an object of which a reconciler has a copy
    pub(crate) async fn mark(maps: &Api<ConfigMap>, copy: &ConfigMap) -> Result<ConfigMap, Error> {
        let seen = |map: &mut ConfigMap| {
            map.metadata.annotations.get_or_insert_default().insert(SEEN.into(), "yes".into());
        };
        Ok(update(maps, NAME, seen).from(copy).await?)
    }
    // job: change a status
    pub(crate) async fn report(deployments: &Api<Deployment>) -> Result<Deployment, Error> {
        let seen = |it: &mut Deployment| it.status.get_or_insert_default().collision_count = Some(1);
        Ok(update_status(deployments, NAME, seen).await?)
    }
    // job: set a replica count that depends on the current one
    pub(crate) async fn grow(deployments: &Api<Deployment>) -> Result<Option<i32>, Error> {
        Ok(scale(deployments, NAME, |seen| seen.replicas.unwrap_or(0).max(3)).await?.replicas)
    }
    // job: own one condition
    pub(crate) async fn own(deployments: &Api<Deployment>, body: &Value) -> Result<Deployment, Error> {
        Ok(apply_status(deployments, NAME, body).await?)
    }
    // job: add a finalizer
    pub(crate) async fn hold(maps: &Api<ConfigMap>) -> Result<ConfigMap, Error> {
        Ok(add_finalizer(maps, NAME, FINALIZER).await?)
    }
    // job: remove a finalizer
    pub(crate) async fn release(maps: &Api<ConfigMap>) -> Result<ConfigMap, Error> {
        Ok(remove_finalizer(maps, NAME, FINALIZER).await?)
    }
    // job: remove a key
    pub(crate) async fn forget(maps: &Api<ConfigMap>) -> Result<ConfigMap, Error> {
        let shade = |map: &mut ConfigMap| {
            map.data.get_or_insert_default().remove("shade");
        };
        Ok(update(maps, NAME, shade).await?)
    }
    // job: delete this object, and no other with its name
    pub(crate) async fn delete(maps: &Api<ConfigMap>, map: &ConfigMap) -> Result<(), Error> {
        let preconditions = Some(Preconditions { uid: map.metadata.uid.clone(), ..Preconditions::default() });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        once::delete(maps, NAME, &WriteOptions::default(), &params).await.map(drop).map_err(Error::from)
    }
    // end
}

#[expect(clippy::disallowed_methods, reason = "this is what the functions of this crate are compared with")]
mod kube_alone {
    use std::cell::Cell;
    use std::time::Duration;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
    use kube::{Api, Error};
    use serde_json::{Value, json};

    use super::{FINALIZER, NAME, SEEN};

    // job: the retry loop, shared by the others
    async fn retried<T>(write: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
        for attempt in 0..20 {
            match write().await {
                Err(Error::Api(status)) if status.code == 409 => {
                    let most = 10 * 2_u64.pow(attempt.min(6));
                    tokio::time::sleep(Duration::from_millis(rand::random_range(0..most))).await;
                }
                answer => return answer,
            }
        }
        write().await
    }
    // job: create an object, or change the one that is there
    pub(crate) async fn ensure(maps: &Api<ConfigMap>, initial: &ConfigMap) -> Result<ConfigMap, Error> {
        retried(async || {
            let found = maps.get_opt(NAME).await?;
            let mut map = found.clone().unwrap_or_else(|| initial.clone());
            map.data.get_or_insert_default().insert("colour".into(), "blue".into());
            match &found {
                Some(found) if *found == map => Ok(map),
                Some(_) => maps.replace(NAME, &PostParams::default(), &map).await,
                None => maps.create(&PostParams::default(), &map).await,
            }
        })
        .await
    }
    // job: change an object
    pub(crate) async fn change(maps: &Api<ConfigMap>) -> Result<ConfigMap, Error> {
        retried(async || {
            let before = maps.get(NAME).await?;
            let mut map = before.clone();
            map.data.get_or_insert_default().insert("shade".into(), "dark".into());
            if map == before {
                return Ok(map);
            }
            maps.replace(NAME, &PostParams::default(), &map).await
        })
        .await
    }
    // job: change an object of which a reconciler has a copy
    pub(crate) async fn mark(maps: &Api<ConfigMap>, copy: &ConfigMap) -> Result<ConfigMap, Error> {
        let first = Cell::new(Some(copy.clone()));
        retried(async || {
            let before = match first.take() {
                Some(copy) => copy,
                None => maps.get(NAME).await?,
            };
            let mut map = before.clone();
            map.metadata.annotations.get_or_insert_default().insert(SEEN.into(), "yes".into());
            if map == before {
                return Ok(map);
            }
            maps.replace(NAME, &PostParams::default(), &map).await
        })
        .await
    }
    // job: change a status
    pub(crate) async fn report(deployments: &Api<Deployment>) -> Result<Deployment, Error> {
        retried(async || {
            let before = deployments.get(NAME).await?;
            let mut deployment = before.clone();
            deployment.status.get_or_insert_default().collision_count = Some(1);
            if deployment == before {
                return Ok(deployment);
            }
            deployments.replace_status(NAME, &PostParams::default(), &deployment).await
        })
        .await
    }
    // job: set a replica count that depends on the current one
    pub(crate) async fn grow(deployments: &Api<Deployment>) -> Result<Option<i32>, Error> {
        retried(async || {
            let mut scale = deployments.get_scale(NAME).await?;
            let spec = scale.spec.get_or_insert_default();
            let wanted = spec.replicas.unwrap_or(0).max(3);
            if spec.replicas == Some(wanted) {
                return Ok(Some(wanted));
            }
            spec.replicas = Some(wanted);
            let stored = deployments.replace_scale(NAME, &PostParams::default(), &scale).await?;
            Ok(stored.spec.and_then(|spec| spec.replicas))
        })
        .await
    }
    // job: own one condition
    pub(crate) async fn own(deployments: &Api<Deployment>, body: &Value) -> Result<Deployment, Error> {
        deployments.patch_status(NAME, &PatchParams::apply("jobs"), &Patch::Apply(body)).await
    }
    // job: add a finalizer
    pub(crate) async fn hold(maps: &Api<ConfigMap>) -> Result<ConfigMap, Error> {
        finalizers(maps, |held| {
            if !held.iter().any(|one| one == FINALIZER) {
                held.push(FINALIZER.to_owned());
            }
        })
        .await
    }
    async fn finalizers(
        maps: &Api<ConfigMap>,
        change: impl Fn(&mut Vec<String>),
    ) -> Result<ConfigMap, Error> {
        retried(async || {
            let map = maps.get(NAME).await?;
            let before = map.metadata.finalizers.clone().unwrap_or_default();
            let mut held = before.clone();
            change(&mut held);
            if held == before {
                return Ok(map);
            }
            let metadata = json!({"finalizers": held, "resourceVersion": map.metadata.resource_version});
            let patch = Patch::Merge(json!({"metadata": metadata}));
            maps.patch(NAME, &PatchParams::default(), &patch).await
        })
        .await
    }
    // job: remove a finalizer
    pub(crate) async fn release(maps: &Api<ConfigMap>) -> Result<ConfigMap, Error> {
        finalizers(maps, |held| held.retain(|one| one != FINALIZER)).await
    }
    // job: remove a key
    pub(crate) async fn forget(maps: &Api<ConfigMap>) -> Result<ConfigMap, Error> {
        let patch = Patch::Merge(json!({"data": {"shade": null}}));
        maps.patch(NAME, &PatchParams::default(), &patch).await
    }
    // job: delete this object, and no other with its name
    pub(crate) async fn delete(maps: &Api<ConfigMap>, map: &ConfigMap) -> Result<(), Error> {
        let preconditions = Some(Preconditions { uid: map.metadata.uid.clone(), ..Preconditions::default() });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match maps.delete(NAME, &params).await {
            Err(Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            answer => answer.map(drop),
        }
    }
    // end
}

/// Everything that a run of all jobs leaves behind, for comparison.
type Left = (Option<String>, Option<String>, Option<i32>, Option<i32>, bool, bool);

/// Runs the jobs of one module, and deletes the map at the end.
macro_rules! run {
    ($module:ident, $maps:expr, $deployments:expr, $initial:expr) => {{
        let (maps, deployments) = ($maps, $deployments);
        $module::ensure(maps, $initial).await?;
        let painted = $module::change(maps).await?;
        let marked = $module::mark(maps, &painted).await?.metadata.annotations.is_some();
        let held = $module::hold(maps).await?.metadata.finalizers.is_some();
        let released = $module::release(maps).await?;
        let forgotten = $module::forget(maps).await?;
        let replicas = $module::grow(deployments).await?;
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "status": {"conditions": [{"type": "Seen", "status": "True"}]},
        });
        $module::own(deployments, &body).await?;
        let reported = $module::report(deployments).await?.status.unwrap_or_default();
        $module::delete(maps, &released).await?;
        let gone = maps.get_opt(NAME).await?.is_none();
        let (shade, colour) = (data(&painted, "shade"), data(&forgotten, "colour"));
        let left: Left = (shade, colour, replicas, reported.collision_count, marked && held && reported.conditions.is_some(), gone);
        left
    }};
}

fn data(map: &ConfigMap, key: &str) -> Option<String> {
    map.data.as_ref().and_then(|data| data.get(key)).cloned()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::infer().await?;
    config.default_retry = false;
    let client = Client::try_from(config)?;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    let initial: ConfigMap = serde_json::from_value(json!({"metadata": {"name": NAME}}))?;
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": NAME}},
            "template": {"metadata": {"labels": {"app": NAME}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}},
        },
    }))?;
    conflict_retry::create_or_update(&deployments, &deployment, |_deployment| {}).await?;

    let with_this_crate = run!(ours, &maps, &deployments, &initial);
    let with_kube_alone = run!(kube_alone, &maps, &deployments, &initial);
    println!("{with_this_crate:?}");
    if with_this_crate != with_kube_alone {
        return Err(format!("kube alone leaves {with_kube_alone:?}").into());
    }
    Ok(())
}
