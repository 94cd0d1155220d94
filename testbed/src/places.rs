//! Control planes for tests with operators: each running test has its own, and several tests run in parallel.
//!
//! The Autoscaler plans for the whole cluster, so two tests with operators cannot share one at the same time. Such
//! tests mostly wait, so running them one after the other would leave the machine idle: there are as many control
//! planes as parallel tests, each started when it is first needed and used by one test after the other. They end with
//! the process, however that ends.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::Mutex;
use std::thread::available_parallelism;

use anyhow::Result;
use tokio::sync::{Semaphore, SemaphorePermit};
use toolbox::workspace::target_directory;

use crate::cluster::{Cluster, ClusterOptions};
use crate::file_lock::FileLock;
use crate::process_supervisor::lock;
use crate::waiting::{self, Waiting};

/// Parallel tests per core. One with its control plane and both operators takes a tenth to a fifth of a core; the rest
/// is a reserve for moments when all are busy at once, so that no operator loses a lease for lack of CPU time.
const FOR_EACH_CORE: usize = 2;

/// Upper limit: there are not enough tests to keep a larger machine busy.
const MOST: usize = 8;

/// Ordinary control planes: etcd, the API server, the controllers, the scheduler and kwok.
pub static ORDINARY: Places = Places::new(MOST, ClusterOptions::private);

/// Control planes of the same kind, of which each test has one to itself.
pub struct Places {
    most: Semaphore,
    takes_turns: bool,
    options: fn() -> ClusterOptions,
    free: Mutex<Vec<&'static Cluster>>,
}

impl Places {
    /// At most `most` control planes of a kind. Further tests wait until one is free.
    pub const fn new(most: usize, options: fn() -> ClusterOptions) -> Self {
        Self { most: Semaphore::const_new(most), takes_turns: true, options, free: Mutex::new(Vec::new()) }
    }

    /// One control plane, for tests that wait for each other in any case. They do not wait for a share of the machine too: one
    /// after the other they would take longer than all other tests.
    pub const fn one_beside(options: fn() -> ClusterOptions) -> Self {
        Self { most: Semaphore::const_new(1), takes_turns: false, options, free: Mutex::new(Vec::new()) }
    }

    /// Waits for a turn and a control plane, which is started if none is free.
    ///
    /// # Errors
    /// Same as [`Cluster::start`].
    pub async fn take(&'static self) -> Result<ControlPlanePlace> {
        // Before the turn: a test that waits for a control plane must not keep other tests from theirs.
        let waiting = Waiting::begin();
        let one = self.most.acquire().await?;
        drop(waiting);
        let turn = if self.takes_turns { Some(turn().await?) } else { None };
        let free = lock(&self.free).pop();
        let cluster = match free {
            Some(cluster) => cluster,
            None => Box::leak(Box::new(Cluster::start((self.options)()).await?)),
        };
        waiting::uses(cluster.root());
        Ok(ControlPlanePlace { among: self, cluster, _turn: turn, _one: one })
    }
}

/// Exclusive use of a control plane. Dropping this passes it to the next test, unless the test fails: it may have left a role or a
/// Node changed, and the next tests would fail for that, without a word of why.
pub struct ControlPlanePlace {
    among: &'static Places,
    cluster: &'static Cluster,
    _turn: Option<PlaceTurn>,
    _one: SemaphorePermit<'static>,
}

impl ControlPlanePlace {
    /// The control plane; must not be used after this is dropped.
    pub fn cluster(&self) -> &'static Cluster {
        self.cluster
    }
}

impl Deref for ControlPlanePlace {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster
    }
}

impl Drop for ControlPlanePlace {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            lock(&self.among.free).push(self.cluster);
        }
    }
}

/// A share of the machine, until it is dropped.
pub type PlaceTurn = FileLock;

/// Waits for a share of the machine, for a test that starts its own control plane. Test programs that run side by side have
/// their shares of the same machine.
///
/// # Errors
/// When the files that stand for the shares cannot be written.
pub async fn turn() -> Result<PlaceTurn> {
    FileLock::one_of(&target_directory().join("turns/control-planes"), at_a_time()).await
}

fn at_a_time() -> usize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    (cores * FOR_EACH_CORE).min(MOST)
}
