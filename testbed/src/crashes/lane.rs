//! One kind of work on one shape of provider, done again and again: each time on a pool of its own, with one kill.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, timeout_at};

use super::crashable::Crashable;
use super::maker::NodeMaker;
use super::point::{KillPoint, killed_once};
use super::work::Work;
use crate::end_state::EndState;
use crate::waiting;

/// From a number to the point of that number.
type Counted = fn(usize) -> KillPoint;

/// What is done again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) work: Work,
    pub(super) maker: NodeMaker,
    /// The first write after which the operator is killed.
    pub(super) from: usize,
    /// The last one; without it, the last one that the work takes.
    pub(super) to: Option<usize>,
}

/// How far it has come.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneProgress {
    /// The write that is next; none when all are done.
    pub(super) next: Option<usize>,
    /// The runs that ended as the undisturbed one.
    pub(super) same: usize,
    /// What is wrong with the others.
    pub(super) failures: Vec<String>,
}

impl fmt::Display for Lane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.work.name(), self.maker.provider())
    }
}

impl Lane {
    /// Does it until all is done or the time is up, and reports each run in a `line`.
    pub(super) async fn run(&self, deadline: Instant, line: &impl Fn(&str)) -> LaneProgress {
        let mut progress = LaneProgress { next: Some(self.from), ..LaneProgress::default() };
        if Instant::now() >= deadline {
            return progress;
        }
        let ended = timeout_at(deadline, self.all(&mut progress, line)).await;
        if let Ok(Err(error)) = ended {
            let failure = format!("{self}: cannot go on: {error:#}");
            line(&failure);
            progress.failures.push(failure);
        }
        progress
    }

    async fn all(&self, progress: &mut LaneProgress, line: &impl Fn(&str)) -> Result<()> {
        let test = Crashable::begin(&self.called(), self.maker).await?;
        let undisturbed = format!("{}-undisturbed", self.called());
        let expected = self.undisturbed(&test, &undisturbed).await.context("without any kill")?;
        let mut counted = self.counted();
        while let Some(nth) = progress.next {
            let mut reached = Vec::new();
            for point in counted {
                if self.one(&test, point(nth), &expected, progress, line).await? {
                    reached.push(point);
                }
            }
            counted = reached;
            let is_last = counted.is_empty() || self.to.is_some_and(|to| nth >= to);
            progress.next = (!is_last).then_some(nth + 1);
        }
        // None of the lives has touched it.
        test.state(&undisturbed).await?.check(&expected).context("the undisturbed pool is another one")?;
        test.end().await
    }

    /// What is counted, each by itself: writes, and what a program does with machines. The number of a set is a write.
    fn counted(&self) -> Vec<Counted> {
        match self.maker {
            NodeMaker::Operator | NodeMaker::Set => vec![KillPoint::Write as Counted],
            NodeMaker::Kubelets => vec![KillPoint::Write as Counted, KillPoint::Machine as Counted],
        }
    }

    /// The beginning of the names of its pools: long enough to be a part of no other text that is compared.
    fn called(&self) -> String {
        // Objects have no capital letters in their names.
        format!("crash-{}-{}", self.work.name(), self.maker.provider().to_lowercase())
    }

    async fn undisturbed(&self, test: &Crashable, pool: &str) -> Result<EndState> {
        self.work.prepare(test, pool).await?;
        self.work.carry_out(test, pool).await?;
        test.at_rest(pool, None).await
    }

    /// One run with one kill. Returns whether the work came so far.
    async fn one(
        &self,
        test: &Crashable,
        point: KillPoint,
        expected: &EndState,
        progress: &mut LaneProgress,
        line: &impl Fn(&str),
    ) -> Result<bool> {
        let pool = format!("{}-{}", self.called(), point.to_string().replace(' ', "-"));
        let began = Instant::now();
        let outcome = self.disturbed(test, &pool, point, expected).await;
        let said = self.told(point, began.elapsed(), &outcome);
        line(&said);
        let is_reached = if let Ok(after) = outcome {
            progress.same += usize::from(after.is_some());
            after.is_some()
        } else {
            progress.failures.push(said);
            true
        };
        test.clear(&pool).await?;
        waiting::gets_on();
        Ok(is_reached)
    }

    /// Returns what the operator was killed after, if the work came so far.
    async fn disturbed(
        &self,
        test: &Crashable,
        pool: &str,
        point: KillPoint,
        expected: &EndState,
    ) -> Result<Option<String>> {
        self.work.prepare(test, pool).await?;
        test.quiet().await;
        let disturbed = async {
            self.work.carry_out(test, pool).await?;
            test.at_rest(pool, Some(expected)).await
        };
        let (operator, machines) = (&test.env.operators.node_pool, test.machines.as_ref());
        let (_, after) = killed_once(operator, &test.proxy, machines, point, disturbed).await?;
        Ok(after)
    }

    /// A run in a line.
    fn told(&self, point: KillPoint, took: Duration, outcome: &Result<Option<String>>) -> String {
        let seconds = took.as_secs_f64();
        match outcome {
            Ok(Some(after)) => {
                format!("{self} {point}: as undisturbed, {seconds:.1} s, killed after {after}")
            }
            Ok(None) => format!("{self} {point}: there is none, the work was done before"),
            Err(error) => format!("{self} {point}: NOT as undisturbed, {seconds:.1} s: {error:#}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_run_is_told_in_a_line() {
        let lane = Lane { work: Work::Drain, maker: NodeMaker::Kubelets, from: 1, to: None };
        let told = |outcome| lane.told(KillPoint::Write(3), Duration::from_millis(2040), &outcome);
        assert_eq!(
            told(Ok(Some("DELETE nodes".to_owned()))),
            "drain exec write 3: as undisturbed, 2.0 s, killed after DELETE nodes"
        );
        assert_eq!(told(Ok(None)), "drain exec write 3: there is none, the work was done before");
        assert_eq!(told(Err(anyhow!("a taint"))), "drain exec write 3: NOT as undisturbed, 2.0 s: a taint");
        assert_eq!(lane.called(), "crash-drain-exec");
        assert_eq!(lane.counted().len(), 2);
        let of_set = Lane { maker: NodeMaker::Set, ..lane };
        assert_eq!((of_set.called().as_str(), of_set.counted().len()), ("crash-drain-clusterapi", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_time_is_up_nothing_is_begun() {
        let lane = Lane { work: Work::Drain, maker: NodeMaker::Operator, from: 4, to: None };
        let progress = lane.run(Instant::now(), &|line: &str| panic!("{line}")).await;
        assert_eq!((progress.next, progress.same, progress.failures.len()), (Some(4), 0, 0));
    }
}
