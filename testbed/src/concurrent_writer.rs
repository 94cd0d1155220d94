//! A third writer that keeps changing one pool, like users, `GitOps` tools and other controllers: annotations by patch,
//! labels by PUT, bounds by JSON Patch. It records acknowledged writes, so that a test can check whether they are still
//! stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use shared_crds::NodePool;
use tokio::task::JoinHandle;

/// Prefix of everything this writer puts into metadata.
const PREFIX: &str = "concurrent-writer.example.com/";

/// How many writes it makes at least, so that there is something to judge also where the API server is slow: a third of
/// them are PUTs.
const MIN_WRITES: u32 = 60;

/// A running concurrent writer.
pub struct ConcurrentWriter {
    stop: Arc<AtomicBool>,
    work: JoinHandle<Result<Report>>,
}

/// What it wrote.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Annotations that the API server acknowledged.
    pub annotations: BTreeMap<String, String>,
    /// Labels that the API server acknowledged.
    pub labels: BTreeMap<String, String>,
    /// The last acknowledged `maxReplicas`; `None` when there was none.
    pub max_replicas: Option<i32>,
    /// PUTs that were refused because of a newer version; each was repeated from a fresh read.
    pub conflicts: usize,
}

impl ConcurrentWriter {
    /// Starts writing to the pool called `name`, about `per_second` times a second, in the order given by `seed`. Where
    /// the API server is too slow for that, it writes a quarter of the time. `maxReplicas` stays between `max` and
    /// `max + 5`.
    pub fn start(pools: Api<NodePool>, name: &str, per_second: u64, max: i32, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let work = tokio::spawn(write(pools, name.to_owned(), per_second, max, seed, Arc::clone(&stop)));
        Self { stop, work }
    }

    /// Stops it after its current write, but not before it has made 60 writes, and returns what it wrote.
    ///
    /// # Errors
    /// When one of its writes failed for a reason other than a conflict.
    pub async fn finish(self) -> Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        self.work.await?
    }
}

async fn write(
    pools: Api<NodePool>,
    name: String,
    per_second: u64,
    max: i32,
    seed: u64,
    stop: Arc<AtomicBool>,
) -> Result<Report> {
    let mut random = rand::rngs::SmallRng::seed_from_u64(seed);
    let period = Duration::from_secs(1) / u32::try_from(per_second)?;
    let mut report = Report::default();
    let mut rest = Duration::ZERO;
    for count in 0_u32.. {
        tokio::time::sleep(rest).await;
        let began = Instant::now();
        if stop.load(Ordering::Relaxed) && count >= MIN_WRITES {
            break;
        }
        let (key, value) = (format!("{PREFIX}w{}", count % 20), count.to_string());
        match random.random_range(0..3) {
            0 => {
                let patch = json!({"metadata": {"annotations": {&key: &value}}});
                pools
                    .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .context("annotation")?;
                report.annotations.insert(key, value);
            }
            1 => {
                report.conflicts += put_label(&pools, &name, &key, &value).await?;
                report.labels.insert(key, value);
            }
            _ => {
                let bound = max + random.random_range(0..=5);
                let patch = json!([{"op": "replace", "path": "/spec/maxReplicas", "value": bound}]);
                let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
                pools.patch(&name, &PatchParams::default(), &patch).await.context("bounds")?;
                report.max_replicas = Some(bound);
            }
        }
        rest = pause(began.elapsed(), period);
    }
    Ok(report)
}

/// How long to wait after a write that took this long. Other writers need a read and a write between two of this one: on
/// a busy machine a fixed rate would leave them no time at all.
fn pause(took: Duration, period: Duration) -> Duration {
    period.checked_sub(took).filter(|rest| !rest.is_zero()).unwrap_or(3 * took)
}

/// Reads, changes and PUTs until it succeeds; returns the number of conflicts.
async fn put_label(pools: &Api<NodePool>, name: &str, key: &str, value: &str) -> Result<usize> {
    for conflicts in 0..100 {
        let mut pool = pools.get(name).await?;
        pool.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        match pools.replace(name, &PostParams::default(), &pool).await {
            Ok(_) => return Ok(conflicts),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(error).context("label"),
        }
    }
    anyhow::bail!("a label could not be written in 100 attempts")
}

impl Report {
    /// Checks that everything that was acknowledged is still stored.
    ///
    /// # Errors
    /// Names what is not stored any more.
    pub fn check_kept(&self, pool: &NodePool) -> Result<()> {
        ensure!(
            self.annotations.len() + self.labels.len() > 10,
            "the concurrent writer wrote too little to prove anything: {self:?}"
        );
        let empty = BTreeMap::new();
        for (what, wrote, found) in [
            ("annotation", &self.annotations, pool.metadata.annotations.as_ref().unwrap_or(&empty)),
            ("label", &self.labels, pool.metadata.labels.as_ref().unwrap_or(&empty)),
        ] {
            for (key, value) in wrote {
                ensure!(
                    found.get(key) == Some(value),
                    "the {what} {key} was acknowledged as {value} and is {:?}",
                    found.get(key)
                );
            }
        }
        if let Some(max) = self.max_replicas {
            ensure!(
                pool.spec.max_replicas == max,
                "maxReplicas was acknowledged as {max} and is {}",
                pool.spec.max_replicas
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_writes_at_its_rate_and_on_a_slow_server_a_quarter_of_the_time() {
        let millis = Duration::from_millis;
        for (took, expected) in [(10, 40), (49, 1), (50, 150), (400, 1200)] {
            assert_eq!(pause(millis(took), millis(50)), millis(expected), "{took} ms");
        }
    }
}
