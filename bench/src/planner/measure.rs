//! Measures one row, in this process: how long passes take, what memory they need, and whether the plan is right.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use planner::{Observed, Planner, ScalingPlan, steps};
use serde::{Deserialize, Serialize};
use testbed::memory::{self, Field};

use super::case::{self, Case, Mix, Work};
use super::check;
use super::counts::Counts;
use crate::numbers::percentile;
use crate::processor_cache::last_level_cache;

/// Passes of a row: the p99 of fewer than a hundred is the longest of them.
const PASSES: usize = 200;
/// Passes that are always made, however long they take: the first, and then one with each kind of new pod.
const LEAST: usize = 6;

/// The least and the most memory that is gone through before each pass. In between it is twice the processor's last-level
/// cache: a server's can be larger than all objects of a small cluster, and would let that cluster seem quicker for its
/// size than a large one.
const CACHES: RangeInclusive<usize> = 64 << 20..=1 << 30;

/// What was measured of a row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// New nodes, nodes that go (where the mix is about those), or nodes that exist (where one pod comes).
    pub(crate) nodes: usize,
    /// Pods that run or have a place.
    pub(crate) placed: usize,
    /// Pods that were planned in one pass.
    pub(crate) planned: usize,
    pub(crate) passes: usize,
    /// Steps of a pass as the planner counts them: the mean over the passes that are always made, without the first, in
    /// which the planner reads all pods. The same on every machine.
    pub(crate) steps: usize,
    pub(crate) median_ms: f64,
    pub(crate) p99_ms: f64,
    /// How much of a core this process had while it planned; below one, times are of a machine that was busy.
    pub(crate) core: f64,
    /// Resident memory before the first pass: the objects, as the operator's caches hold them.
    pub(crate) objects_mib: f64,
    /// Most resident memory at any time, objects included.
    pub(crate) peak_mib: f64,
    /// What is wrong with the plan.
    pub(crate) complaints: Vec<String>,
}

/// Measures a row: at least [`LEAST`] passes, then more until there are [`PASSES`] or `budget` is used up. That of
/// [`Mix::Replan`] is twenty times as long, because its p99 is a promise.
pub(crate) fn measure(case: Case, budget: Duration) -> anyhow::Result<Measured> {
    let mut work = case.work();
    let mut planner = Planner::default();
    let mut caches = Caches::new();
    let objects_mib = memory::of("self", Field::Resident)? - caches.mib();
    let (mut taken, mut counted) = (Vec::new(), Vec::new());
    let mut complaints = Vec::new();
    let mut seen: Option<Counts> = None;
    let budget = if case.mix == Mix::Replan { budget * 20 } else { budget };
    let start = Instant::now();
    let before = on_core()?;
    while taken.len() < LEAST || (taken.len() < PASSES && start.elapsed() < budget) {
        let (observed, expected) = match &mut work {
            Work::Still(observed) => (&**observed, None),
            Work::Stream(observed, replan) => {
                let expected = case::arrive(observed, replan, taken.len());
                (&**observed, Some(expected))
            }
        };
        caches.fill();
        let before = steps::taken();
        let (plan, time) = if expected.is_some() {
            timed(case, observed, &mut planner)
        } else {
            // Else it would remember the pods of the pass before, and these are the same.
            timed(case, observed, &mut Planner::default())
        };
        taken.push(time.as_secs_f64() * 1000.0);
        counted.push(steps::taken().wrapping_sub(before));
        let counts = Counts::of(&plan);
        match expected {
            Some(expected) => complaints.extend(check::newcomer(expected, &plan, taken.len() - 1)),
            None if seen.is_some_and(|before| before != counts) => {
                complaints.push("two passes over the same objects came to different plans".to_owned());
            }
            None => {}
        }
        seen = Some(counts);
    }
    let core = on_core()?.saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64();
    // Before the checks, whose memory is not the planner's. The kernel's counters are not exact to the page.
    let peak_mib = (memory::of("self", Field::Peak)? - caches.mib()).max(objects_mib);
    let Some(counts) = seen else { anyhow::bail!("no pass was made") };
    let running = if let Work::Still(observed) = &work {
        let plan = pass(case, observed, &mut Planner::default());
        complaints.extend(check::check(case, observed, &plan));
        observed.pods.len() - plan.pods.len()
    } else {
        case.pods - 1
    };
    // One sentence for each kind of trouble is enough.
    complaints.sort();
    complaints.dedup();
    complaints.truncate(10);
    taken.sort_by(f64::total_cmp);
    Ok(Measured {
        nodes: match case.mix {
            Mix::Karpenter | Mix::ClusterAutoscaler | Mix::RunOnceUp => counts.added,
            Mix::RunOnceDown => counts.removed,
            Mix::Replan => case.nodes,
        },
        placed: running + counts.placed,
        planned: if case.mix == Mix::RunOnceDown { case.pods } else { case.pods - running },
        passes: taken.len(),
        steps: mean(&counted[1..LEAST]),
        median_ms: percentile(&taken, 0.5),
        p99_ms: percentile(&taken, 0.99),
        core: core.clamp(0.0, 1.0),
        objects_mib,
        peak_mib,
        complaints,
    })
}

/// In whole steps.
fn mean(counted: &[u64]) -> usize {
    let passes = u64::try_from(counted.len()).unwrap_or(u64::MAX).max(1);
    usize::try_from(counted.iter().sum::<u64>() / passes).unwrap_or(usize::MAX)
}

/// Memory that has nothing to do with the planner. An operator finds the processor's caches full of it, because others
/// have run since its last pass; a bench that plans again and again would find its own objects there, as long as they are
/// few, and would measure how much a cache holds instead of how the cost grows.
struct Caches(Vec<u8>);

impl Caches {
    fn new() -> Self {
        let size = 2 * last_level_cache().unwrap_or_default();
        let mut caches = Self(vec![0; size.clamp(*CACHES.start(), *CACHES.end())]);
        caches.fill();
        caches
    }

    /// Changes every cache line of it.
    fn fill(&mut self) {
        self.0.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
        black_box(&mut self.0);
    }

    #[expect(clippy::cast_precision_loss, reason = "1 GiB at most")]
    fn mib(&self) -> f64 {
        self.0.len() as f64 / f64::from(1 << 20)
    }
}

fn timed(case: Case, observed: &Observed, planner: &mut Planner) -> (ScalingPlan, Duration) {
    let start = Instant::now();
    let plan = pass(case, observed, planner);
    (plan, start.elapsed())
}

/// The operator's whole planning call; only where more nodes go than one status can name, the plan as `simulate` prints
/// it, or most of the decision would be left for the passes that follow.
fn pass(case: Case, observed: &Observed, planner: &mut Planner) -> ScalingPlan {
    if case.mix == Mix::RunOnceDown { planner.plan(observed) } else { planner.plan_for_cluster(observed) }
}

impl Measured {
    /// Milliseconds on a core that a pass took, by its median, so that a busy machine does not look like a steep cost.
    pub(crate) fn cost_ms(&self) -> f64 {
        self.median_ms * self.core
    }
}

/// For how long this thread, which is the one that plans, has been on a core.
fn on_core() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .context("time on a core is measured on Linux only")?;
    let first = text.split_whitespace().next().context("/proc/thread-self/schedstat is empty")?;
    Ok(Duration::from_nanos(first.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_row_is_measured_and_its_memory_includes_the_objects() {
        let case: Case = "cluster-autoscaler/0/5100".parse().unwrap();
        let measured = measure(case, Duration::ZERO).unwrap();
        assert_eq!((measured.nodes, measured.placed, measured.planned), (260, 5100, 5100));
        assert_eq!(measured.passes, LEAST);
        assert!(measured.complaints.is_empty(), "{:?}", measured.complaints);
        assert!(measured.peak_mib >= measured.objects_mib && measured.objects_mib > 1.0);
        assert!(measured.core > 0.0 && measured.core <= 1.0);
        assert!(measured.steps >= 5100, "each pod is looked at: {}", measured.steps);
        assert_eq!(measure(case, Duration::ZERO).unwrap().steps, measured.steps, "whatever time it takes");
        assert!(measured.median_ms > 0.0 && measured.p99_ms >= measured.median_ms);
    }
}
