//! Where tests with operators run: each on a control plane that no other test uses meanwhile, and several side by side.
//!
//! The Autoscaler plans for the whole cluster, so two tests with operators cannot share one at the same time. What such a
//! test does is mostly to wait, so one after the other would leave the machine idle: there are as many control planes as
//! tests at a time, each started when it is first needed and used by one test after the other. They end with the process,
//! however that ends.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::{LazyLock, Mutex};
use std::thread::available_parallelism;

use anyhow::Result;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::cluster::{Cluster, Options};
use crate::lifeline::lock;

/// Tests at a time for each core. One with its control plane and both operators takes a tenth to a fifth of a core; the
/// rest is for what all do at once now and then, so that nobody loses a lease for want of a processor.
const FOR_EACH_CORE: usize = 2;

/// More are of no use: there are not so many tests that a larger machine would have something to do.
const MOST: usize = 8;

/// Places on ordinary control planes: etcd, the API server, the controllers, the scheduler and kwok.
pub static ORDINARY: Places = Places::new(MOST, Options::private);

/// Control planes that are alike, of which each test has one to itself.
pub struct Places {
    most: Semaphore,
    options: fn() -> Options,
    free: Mutex<Vec<&'static Cluster>>,
}

impl Places {
    /// At most `most` control planes of a kind. Further tests wait until one is free.
    pub const fn new(most: usize, options: fn() -> Options) -> Self {
        Self { most: Semaphore::const_new(most), options, free: Mutex::new(Vec::new()) }
    }

    /// Waits for a turn and a control plane, which is started if none is free.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn take(&'static self) -> Result<Place> {
        // This before the turn: whoever waits for one control plane must not keep others from theirs.
        let one = self.most.acquire().await?;
        let turn = turn().await?;
        let free = lock(&self.free).pop();
        let cluster = match free {
            Some(cluster) => cluster,
            None => Box::leak(Box::new(Cluster::start((self.options)()).await?)),
        };
        Ok(Place { among: self, cluster, _turn: turn, _one: one })
    }
}

/// A control plane of one's own for a time. It is the next one's when this is dropped.
pub struct Place {
    among: &'static Places,
    cluster: &'static Cluster,
    _turn: Turn,
    _one: SemaphorePermit<'static>,
}

impl Place {
    /// The control plane; not to be used any more when this is dropped.
    pub fn cluster(&self) -> &'static Cluster {
        self.cluster
    }
}

impl Deref for Place {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.among.free).push(self.cluster);
    }
}

/// A share of the machine, until it is dropped.
pub type Turn = SemaphorePermit<'static>;

/// Waits for a share of the machine, for a test that starts a control plane of its own.
///
/// # Errors
/// Never: nobody closes this.
pub async fn turn() -> Result<Turn> {
    static TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(at_a_time()));
    Ok(TURNS.acquire().await?)
}

fn at_a_time() -> usize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    (cores * FOR_EACH_CORE).min(MOST)
}
