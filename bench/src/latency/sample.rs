//! One sample: a pod that fits no node, until it runs on a node that was made for it. The bench's own watches, opened
//! before, record the time of each event.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use shared_crds::NodePool;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fill;
use super::objects::{NAMESPACE, NEWCOMERS, Owner, ZONES};
use crate::filling;

/// After so long a sample has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// An event from a watch.
#[derive(Clone, Debug)]
enum What {
    /// The scheduler finds no node for the pod.
    Unschedulable(String),
    /// The pod runs.
    Runs(String),
    /// The pool's `spec.replicas` is this.
    Replicas(String, i32),
}

#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    what: What,
}

/// The result of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// From just before the pod's creation to the larger `spec.replicas`.
    pub(crate) from_create_ms: f64,
    /// From the pod's being seen as unschedulable to the same.
    pub(crate) from_unschedulable_ms: f64,
    /// Why it took longer than it may. Times that were not measured are the limit then.
    pub(crate) failed: Option<String>,
}

/// How far a sample has come.
#[derive(Debug)]
struct Progress {
    pod: String,
    created: Instant,
    unschedulable: Option<Instant>,
    raised: Option<Instant>,
    runs: bool,
}

impl Progress {
    fn new(pod: String, created: Instant) -> Self {
        Self { pod, created, unschedulable: None, raised: None, runs: false }
    }

    /// Applies an event; `replicas` are the known counts of the pools.
    fn take(&mut self, seen: Seen, replicas: &mut BTreeMap<String, i32>) {
        let Seen { at, what } = seen;
        match what {
            What::Unschedulable(pod) if pod == self.pod => {
                self.unschedulable.get_or_insert(at);
            }
            What::Runs(pod) if pod == self.pod => self.runs = true,
            What::Unschedulable(_) | What::Runs(_) => {}
            What::Replicas(pool, now) => {
                let before = replicas.insert(pool, now);
                if before.is_some_and(|before| now > before) {
                    self.raised.get_or_insert(at);
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.runs && self.raised.is_some() && self.unschedulable.is_some()
    }

    fn sample(&self) -> Sample {
        let limit = millis(LIMIT);
        let since = |start: Option<Instant>| match (start, self.raised) {
            // Two watches may bring what belongs together in the other order.
            (Some(start), Some(raised)) if raised >= start => millis(raised - start),
            (Some(start), Some(raised)) => -millis(start - raised),
            _ => limit,
        };
        let failed = (!self.is_done()).then(|| {
            let what = match (self.unschedulable, self.raised, self.runs) {
                (None, None, true) => "runs without a new node: it was meant to fit nowhere",
                (None, _, _) => "was not seen to be unschedulable",
                (Some(_), None, _) => "is unschedulable, and no pool's replicas were raised",
                (Some(_), Some(_), _) => "does not run, although a pool's replicas were raised",
            };
            format!("after {} s the pod {} {what}", LIMIT.as_secs(), self.pod)
        });
        Sample {
            from_create_ms: since(Some(self.created)),
            from_unschedulable_ms: since(self.unschedulable),
            failed,
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Takes samples, one after the other.
pub(crate) struct Sampler {
    owner: Owner,
    uid: String,
    pods: Api<Pod>,
    seen: UnboundedReceiver<Seen>,
    replicas: BTreeMap<String, i32>,
    _watches: JoinSet<()>,
}

impl Sampler {
    /// Opens the watches, and waits until they have brought every pool.
    pub(crate) async fn open(client: &Client, samples: usize) -> Result<Self> {
        let owner = Owner::of_newcomers(samples);
        let uid = fill::owner_object(client, &owner).await?;
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        let pools = Api::<NodePool>::namespaced(client.clone(), NAMESPACE);
        let (sender, mut seen) = unbounded_channel();
        let mut watches = JoinSet::new();
        watches.spawn(watch_pods(pods.clone(), sender.clone()));
        watches.spawn(watch_pools(pools, sender));
        let mut replicas = BTreeMap::new();
        let all = async {
            while replicas.len() < ZONES.len() {
                let seen = seen.recv().await.context("the watches ended")?;
                if let What::Replicas(pool, now) = seen.what {
                    replicas.insert(pool, now);
                }
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(LIMIT, all).await.context("the watches bring no pools")??;
        Ok(Self { owner, uid, pods, seen, replicas, _watches: watches })
    }

    /// Takes one.
    pub(crate) async fn take(&mut self) -> Result<Sample> {
        let object = self.owner.pod(&self.uid, 0, None);
        let created = Instant::now();
        let pod = filling::create(&self.pods, object).await?.name_any();
        let mut progress = Progress::new(pod, created);
        while !progress.is_done() {
            match tokio::time::timeout_at(created + LIMIT, self.seen.recv()).await {
                Ok(seen) => progress.take(seen.context("the watches ended")?, &mut self.replicas),
                Err(_) => break,
            }
        }
        Ok(progress.sample())
    }
}

async fn watch_pods(api: Api<Pod>, sender: UnboundedSender<Seen>) {
    let config = watcher::Config::default().labels(&format!("app.kubernetes.io/name={NEWCOMERS}"));
    let mut pods = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
    while let Some(pod) = pods.next().await {
        let at = Instant::now();
        let Ok(pod) = pod else { continue };
        if let Some(what) = state(&pod)
            && sender.send(Seen { at, what }).is_err()
        {
            return;
        }
    }
}

fn state(pod: &Pod) -> Option<What> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() == Some("Running") {
        return Some(What::Runs(pod.name_any()));
    }
    let unschedulable = status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    unschedulable.then(|| What::Unschedulable(pod.name_any()))
}

async fn watch_pools(api: Api<NodePool>, sender: UnboundedSender<Seen>) {
    let mut pools =
        std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while let Some(pool) = pools.next().await {
        let at = Instant::now();
        let Ok(pool) = pool else { continue };
        let what = What::Replicas(pool.name_any(), pool.spec.replicas.unwrap_or_default());
        if sender.send(Seen { at, what }).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, ms: u64, what: What) -> Seen {
        Seen { at: start + Duration::from_millis(ms), what }
    }

    fn played(seen: Vec<(u64, What)>) -> Sample {
        let start = Instant::now();
        let mut progress = Progress::new("p".to_owned(), start);
        let mut replicas = BTreeMap::from([("a".to_owned(), 5)]);
        for (ms, what) in seen {
            progress.take(after(start, ms, what), &mut replicas);
        }
        progress.sample()
    }

    fn of(pod: &str) -> String {
        pod.to_owned()
    }

    #[test]
    fn times_end_with_the_first_larger_number_and_begin_with_the_first_sight() {
        let sample = played(vec![
            (10, What::Unschedulable(of("p"))),
            (20, What::Replicas(of("a"), 5)),
            (30, What::Unschedulable(of("p"))),
            (210, What::Replicas(of("a"), 6)),
            (400, What::Replicas(of("a"), 7)),
            (500, What::Runs(of("p"))),
        ]);
        assert_eq!(sample, Sample { from_create_ms: 210.0, from_unschedulable_ms: 200.0, failed: None });
    }

    #[test]
    fn a_pool_that_is_new_and_another_pod_say_nothing() {
        let sample = played(vec![
            (10, What::Unschedulable(of("q"))),
            (20, What::Replicas(of("b"), 6)),
            (30, What::Runs(of("q"))),
        ]);
        assert!(sample.failed.unwrap().contains("not seen to be unschedulable"));
        assert!((sample.from_create_ms - 60_000.0).abs() < 1e-9);
    }

    #[test]
    fn a_sample_that_does_not_end_says_how_far_it_came_and_keeps_what_was_measured() {
        let pending = What::Unschedulable(of("p"));
        let raised = What::Replicas(of("a"), 6);
        let sample = played(vec![(10, pending.clone())]);
        assert!(sample.failed.unwrap().contains("no pool's replicas were raised"));
        let sample = played(vec![(10, pending), (30, raised)]);
        assert!(sample.failed.unwrap().contains("does not run"));
        assert!((sample.from_create_ms - 30.0).abs() < 1e-9);
        let sample = played(vec![(10, What::Runs(of("p")))]);
        assert!(sample.failed.unwrap().contains("meant to fit nowhere"));
    }

    #[test]
    fn watches_that_disagree_in_order_give_a_negative_time() {
        let sample = played(vec![
            (10, What::Replicas(of("a"), 6)),
            (12, What::Unschedulable(of("p"))),
            (20, What::Runs(of("p"))),
        ]);
        assert_eq!(sample, Sample { from_create_ms: 10.0, from_unschedulable_ms: -2.0, failed: None });
    }
}
