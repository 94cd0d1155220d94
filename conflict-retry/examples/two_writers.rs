//! Two writers of one object: each counts its own number in a `ConfigMap`, fifty times, as fast as it can. No count is lost, and what a
//! conflict costs is printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conflict_retry::{AttemptEvent, Class, Observer, WriteError, WriteOptions, create_or_update, update};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config};

const WRITES: u32 = 50;

/// Counts requests and conflicts.
#[derive(Default)]
struct Counts {
    requests: AtomicU32,
    conflicts: AtomicU32,
}

impl Observer for Counts {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if event.class == Some(&Class::Conflict) {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn write(maps: Api<ConfigMap>, number: &'static str, options: WriteOptions) -> Result<(), WriteError> {
    for goal in 1..=WRITES {
        update(&maps, "two-writers", |map| {
            // A goal, not `+= 1`: this may be called again after an attempt that has been carried out.
            map.data.get_or_insert_default().insert(number.to_owned(), goal.to_string());
        })
        .with(&options)
        .await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::infer().await?;
    config.default_retry = false;
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config)?);
    let mut initial = ConfigMap::default();
    initial.metadata.name = Some("two-writers".to_owned());
    create_or_update(&maps, &initial, |map| map.data = None).await?;

    let counts = Arc::new(Counts::default());
    let options = |manager: &str| WriteOptions::new(manager).with_observer(counts.clone());
    let (first, second) = tokio::join!(
        tokio::spawn(write(maps.clone(), "first", options("first"))),
        tokio::spawn(write(maps.clone(), "second", options("second"))),
    );
    first??;
    second??;

    let data = maps.get("two-writers").await?.data.unwrap_or_default();
    for number in ["first", "second"] {
        if data.get(number) != Some(&WRITES.to_string()) {
            return Err(format!("writes of {number} were lost: {data:?}").into());
        }
    }
    let (requests, conflicts) =
        (counts.requests.load(Ordering::Relaxed), counts.conflicts.load(Ordering::Relaxed));
    println!("{} writes, {requests} requests, {conflicts} conflicts, nothing lost", 2 * WRITES);
    Ok(())
}
