//! Something outside the cluster that goes with an object: the finalizer holds the object until it has been cleaned up. The same function is
//! right for a new object, for one that is there already, and for one that is being deleted, however often it is called.
//!
//! `finalizer NAME`: the `ConfigMap`. The example makes it, deletes it and cleans up after it.

use conflict_retry::{
    Outcome, WriteError, WriteOptions, add_finalizer, create_or_update, once, remove_finalizer,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use kube::{Api, Client};

const FINALIZER: &str = "example.com/cleaned-up";

async fn reconcile(maps: &Api<ConfigMap>, map: &ConfigMap, options: &WriteOptions) -> Result<(), WriteError> {
    let name = map.metadata.name.as_deref().unwrap_or_default();
    if map.metadata.deletion_timestamp.is_none() {
        // Before anything is made outside, so that it cannot be forgotten.
        add_finalizer(maps, name, FINALIZER).with(options).from(map).await?;
        println!("{name} is held");
        return Ok(());
    }
    println!("cleaning up after {name}");
    let outcome = remove_finalizer(maps, name, FINALIZER).with(options).from(map).outcome().await?;
    // `Gone`: an earlier call has done it, and its answer was lost.
    println!("{name} is let go: {}", outcome.is_met() || outcome == Outcome::Gone);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("name a ConfigMap")?;
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_default().await?);
    let options = WriteOptions::new("cleaner");
    let mut initial = ConfigMap::default();
    initial.metadata.name = Some(name.clone());

    let made = create_or_update(&maps, &initial, |_map| {}).with(&options).await?;
    reconcile(&maps, &made, &options).await?;
    let _deleted = once::delete(&maps, &name, &options, &DeleteParams::default()).await?;
    let held = maps.get(&name).await.map_err(|error| format!("it was not held: {error}"))?;
    reconcile(&maps, &held, &options).await?;
    match maps.get_opt(&name).await? {
        Some(_) => Err("it is still there".into()),
        None => Ok(()),
    }
}
