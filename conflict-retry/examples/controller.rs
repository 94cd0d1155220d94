//! A complete small operator: it keeps `data.colour` of every `ConfigMap` with the label `paint=wanted` at the wanted colour. A conflict
//! with another writer is retried inside `update`; a failure waits longer each time, object by object.
//!
//! `controller --once` ends when there is such a map, all are painted, and the reconcile of each has returned.

use std::collections::HashSet;
use std::sync::Arc;

use conflict_retry::controller::ControllerExt as _;
use conflict_retry::{Outcome, WriteError, WriteOptions, update};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Config, ResourceExt as _};

const WANTED: &str = "blue";
const LABEL: &str = "paint=wanted";

/// What a reconcile needs.
struct Context {
    client: Client,
    options: WriteOptions,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the map says that it may not be painted")]
    Forbidden,
    #[error("not painted")]
    Write(#[from] WriteError),
}

async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &map.namespace().unwrap_or_default());
    let outcome = update(&maps, &map.name_any(), paint).with(&context.options).from(&map).outcome().await?;
    if let Outcome::Written(map) = &outcome {
        println!("painted {}", map.name_any());
    }
    Ok(outcome.action())
}

/// Decides from the map that it is given: it may be called again, with a newer one.
fn paint(map: &mut ConfigMap) -> Result<(), Error> {
    let data = map.data.get_or_insert_default();
    if data.contains_key("forbidden") {
        return Err(Error::Forbidden);
    }
    if data.get("colour").is_none_or(|colour| colour != WANTED) {
        data.insert("colour".to_owned(), WANTED.to_owned());
    }
    Ok(())
}

fn is_painted(map: &ConfigMap) -> bool {
    map.data.as_ref().and_then(|data| data.get("colour")).is_some_and(|colour| colour == WANTED)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let is_once = std::env::args().any(|arg| arg == "--once");
    let mut config = Config::infer().await?;
    // One layer of retries is enough: that which reads the object again.
    config.default_retry = false;
    let client = Client::try_from(config)?;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let context = Arc::new(Context { client, options: WriteOptions::new("painter") });
    let selected = watcher::Config::default().labels(LABEL);
    let controller = Controller::new(maps, selected);
    let store = controller.store();
    let mut reconciled = controller.run_with_backoff(reconcile, context).boxed();
    let mut returned = HashSet::new();
    while let Some(result) = reconciled.next().await {
        match result {
            Ok((map, _)) => drop(returned.insert(map.name)),
            Err(error) => eprintln!("{error}"),
        }
        let known = store.state();
        // The store may hold what a reconcile wrote before that reconcile has its answer.
        let is_done = |map: &Arc<ConfigMap>| is_painted(map) && returned.contains(&map.name_any());
        if is_once && !known.is_empty() && known.iter().all(is_done) {
            return Ok(());
        }
    }
    Err("the watch has ended".into())
}
