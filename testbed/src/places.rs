//! Control planes for tests with operators: each running test has its own, and several tests run in parallel.
//!
//! The Autoscaler plans for the whole cluster, so two tests with operators cannot share one at the same time. Such
//! tests mostly wait, so running them one after the other would leave the machine idle: there are as many control
//! planes as parallel tests, each started when it is first needed and used by one test after the other, as long as these
//! end as they should. One that no test wants for a while ends; the last ones end with the process, however that ends.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::{Semaphore, SemaphorePermit};
use toolbox::messages::inform;
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

/// How long a control plane may be free before it ends: one that does nothing still takes processor time from the tests that run.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// Ordinary control planes: etcd, the API server, the controllers, the scheduler and kwok.
pub static ORDINARY: Places = Places::new(MOST, ClusterOptions::private);

/// Control planes of the same kind, of which each test has one to itself.
pub struct Places {
    most: Semaphore,
    takes_turns: bool,
    options: fn() -> ClusterOptions,
    free: Mutex<Vec<Free<&'static Cluster>>>,
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
            Some(free) => free.lent,
            None => Box::leak(Box::new(Cluster::start((self.options)()).await?)),
        };
        waiting::uses(cluster.root());
        let is_reusable = AtomicBool::new(false);
        let loan = Loan { free: &self.free, lent: cluster, is_reusable, end, idle_limit: IDLE_LIMIT };
        Ok(ControlPlanePlace { loan, _turn: turn, _one: one })
    }
}

/// Ends the programs of a control plane that no test gets any more.
fn end(cluster: &'static Cluster) {
    if let Err(error) = cluster.close() {
        inform(&format!("the programs of a control plane may be left behind: {error:#}"));
    }
}

/// Exclusive use of a control plane. Dropping this passes it to the next test if it was [marked](Self::mark_reusable), and ends it
/// otherwise: a test that fails may have left a role or a Node changed, and the next tests would fail for that, without a word of why.
pub struct ControlPlanePlace {
    /// Dropped first: the next test must not take the place of programs that have yet to end.
    loan: Loan<&'static Cluster>,
    _turn: Option<PlaceTurn>,
    _one: SemaphorePermit<'static>,
}

impl ControlPlanePlace {
    /// The control plane; must not be used after this is dropped.
    pub fn cluster(&self) -> &'static Cluster {
        self.loan.lent
    }

    /// The test has ended as it should, and has left nothing that would disturb another one. To be called last.
    pub fn mark_reusable(&self) {
        self.loan.mark_reusable();
    }
}

impl Deref for ControlPlanePlace {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.loan.lent
    }
}

/// What the next test may take.
struct Free<T> {
    lent: T,
    since: Instant,
}

/// Something that one test after the other has to itself.
struct Loan<T: Copy + Send + 'static> {
    free: &'static Mutex<Vec<Free<T>>>,
    lent: T,
    is_reusable: AtomicBool,
    /// Ends what is not passed on.
    end: fn(T),
    idle_limit: Duration,
}

impl<T: Copy + Send + 'static> Loan<T> {
    fn mark_reusable(&self) {
        self.is_reusable.store(true, Ordering::Relaxed);
    }
}

impl<T: Copy + Send + 'static> Drop for Loan<T> {
    fn drop(&mut self) {
        // An error that a test returns is no panic here, and neither is an end that it does not reach.
        if self.is_reusable.load(Ordering::Relaxed) && !std::thread::panicking() {
            let since = Instant::now();
            lock(self.free).push(Free { lent: self.lent, since });
            let (free, end, idle_limit) = (self.free, self.end, self.idle_limit);
            std::thread::spawn(move || end_if_idle(free, since, end, idle_limit));
        } else {
            (self.end)(self.lent);
        }
    }
}

/// Ends what has been free `since` then, unless a test takes it in time.
fn end_if_idle<T>(free: &Mutex<Vec<Free<T>>>, since: Instant, end: fn(T), idle_limit: Duration) {
    std::thread::sleep(idle_limit);
    let idle = {
        let mut free = lock(free);
        free.iter().position(|it| it.since == since).map(|position| free.swap_remove(position))
    };
    if let Some(idle) = idle {
        end(idle.lent);
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

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    /// Says by its value whether it was ended.
    type Lent = &'static AtomicBool;

    /// Whether the next test gets what `test` had, and whether it was ended.
    fn after(test: fn(&Loan<Lent>) -> Result<()>) -> (bool, bool) {
        let loan = loan(Duration::from_secs(3600));
        let (free, lent) = (loan.free, loan.lent);
        // It is dropped in the thread of the test, as in one that returns or panics.
        drop(std::thread::spawn(move || test(&loan)).join());
        (!lock(free).is_empty(), lent.load(Ordering::Relaxed))
    }

    fn loan(idle_limit: Duration) -> Loan<Lent> {
        let free: &'static Mutex<Vec<Free<Lent>>> = Box::leak(Box::new(Mutex::new(Vec::new())));
        let lent: Lent = Box::leak(Box::new(AtomicBool::new(false)));
        let end = |it: Lent| it.store(true, Ordering::Relaxed);
        Loan { free, lent, is_reusable: AtomicBool::new(false), end, idle_limit }
    }

    #[test]
    fn what_no_test_takes_for_a_while_is_ended_and_what_is_taken_in_time_is_not() {
        let idle = loan(Duration::ZERO);
        let (free, lent) = (idle.free, idle.lent);
        idle.mark_reusable();
        drop(idle);
        // A minute: only to give up.
        let begun = Instant::now();
        while !lent.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(lent.load(Ordering::Relaxed) && lock(free).is_empty());

        let taken = loan(Duration::from_secs(3600));
        let (free, lent, end) = (taken.free, taken.lent, taken.end);
        taken.mark_reusable();
        drop(taken);
        let since = lock(free).pop().unwrap().since;
        // Passed on again before the limit of the first time.
        lock(free).push(Free { lent, since: since + Duration::from_secs(1) });
        end_if_idle(free, since, end, Duration::ZERO);
        assert!(!lent.load(Ordering::Relaxed) && lock(free).len() == 1);
    }

    #[test]
    fn only_what_a_test_has_marked_at_its_end_is_passed_on_and_the_rest_is_ended() {
        let (passed_on, ended) = ((true, false), (false, true));
        let marked = after(|loan| {
            loan.mark_reusable();
            Ok(())
        });
        assert_eq!(marked, passed_on);
        assert_eq!(after(|_| Ok(())), ended, "without an end");
        assert_eq!(after(|_| bail!("this test fails on purpose")), ended, "with an error");
        let panics = after(|loan| {
            loan.mark_reusable();
            panic!("this test fails on purpose")
        });
        assert_eq!(panics, ended, "with a panic after the end");
    }
}
