//! The rows: which mixes, in which sizes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use planner::Observed;
use planner::input::{PodInfo, transform};
use planner_mixes::Replan;

/// A kind of cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mix {
    /// Karpenter's five kinds of pods, from zero nodes.
    Karpenter,
    /// Two sizes of pods onto one size of node.
    ClusterAutoscaler,
    /// Like pods onto nodes that do not exist yet.
    RunOnceUp,
    /// Nodes that are not needed once their pods are packed.
    RunOnceDown,
    /// One new pod in a large cluster.
    Replan,
}

impl Mix {
    pub(crate) const ALL: [Self; 5] =
        [Self::Karpenter, Self::ClusterAutoscaler, Self::RunOnceUp, Self::RunOnceDown, Self::Replan];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Karpenter => "karpenter",
            Self::ClusterAutoscaler => "cluster-autoscaler",
            Self::RunOnceUp => "runonce-up",
            Self::RunOnceDown => "runonce-down",
            Self::Replan => "replan",
        }
    }

    /// The sizes, as existing nodes and pods. More than one of each shape, so that there is a growth to look at.
    const fn sizes(self) -> &'static [(usize, usize)] {
        match self {
            Self::Karpenter => {
                &[(0, 1000), (0, 2000), (0, 5000), (0, 10_000), (0, 20_000), (0, 50_000), (0, 100_000)]
            }
            Self::ClusterAutoscaler => &[(0, 5100), (0, 51_000), (0, 102_000)],
            Self::RunOnceUp => &[(0, 5000), (0, 50_000), (0, 100_000)],
            Self::RunOnceDown => &[(200, 8000), (1000, 40_000), (2000, 80_000)],
            Self::Replan => {
                &[(1000, 30_000), (3000, 20_000), (2500, 75_000), (15_000, 100_000), (5000, 150_000)]
            }
        }
    }
}

/// A row that is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) mix: Mix,
    /// Nodes that exist.
    pub(crate) nodes: usize,
    /// Pods, pending and running.
    pub(crate) pods: usize,
}

/// Every row; with `quick`, two small ones of each mix at most.
pub(crate) fn all(quick: bool) -> Vec<Case> {
    let few = if quick { 2 } else { usize::MAX };
    let of_mix = |mix: Mix| {
        let sizes = mix.sizes().iter().filter(move |(nodes, pods)| !quick || nodes + pods <= 60_000);
        sizes.take(few).map(move |&(nodes, pods)| Case { mix, nodes, pods })
    };
    Mix::ALL.into_iter().flat_map(of_mix).collect()
}

/// What the passes of a row are planned from.
pub(crate) enum Work {
    /// Always the same.
    Still(Box<Observed>),
    /// With another new pod each time.
    Stream(Box<Observed>, Box<Replan<PodInfo>>),
}

impl Case {
    /// Objects of the cluster before a pass; what the cost is said to grow with.
    pub(crate) const fn size(self) -> usize {
        self.nodes + self.pods
    }

    /// Whether as many pods come to a node here as in `other`.
    pub(crate) const fn has_shape_of(self, other: Self) -> bool {
        self.nodes * other.pods == other.nodes * self.pods
    }

    /// Share of the peer's number of pods in the estimator's case.
    pub(crate) const fn percent(self) -> usize {
        self.pods / 510
    }

    pub(crate) fn work(self) -> Work {
        let keep = &mut transform::pods();
        let mix = match self.mix {
            Mix::Karpenter => planner_mixes::karpenter(self.pods, keep),
            Mix::ClusterAutoscaler => planner_mixes::estimator(self.percent(), keep),
            Mix::RunOnceUp => planner_mixes::run_once_up(self.pods / 50, keep),
            Mix::RunOnceDown => planner_mixes::run_once_down(self.nodes, keep),
            Mix::Replan => {
                let mut replan = Replan::new(self.nodes, self.pods, keep);
                let cluster = std::mem::take(&mut replan.cluster);
                return Work::Stream(Box::new(observed(cluster)), Box::new(replan));
            }
        };
        Work::Still(Box::new(observed(mix)))
    }
}

fn observed(mix: planner_mixes::Mix<PodInfo>) -> Observed {
    let planner_mixes::Mix { now, pools, autoscalers, daemon_sets, nodes, pods } = mix;
    Observed { now, pools, autoscalers, daemon_sets, nodes, pods, ..Observed::default() }
}

/// Puts the new pod of pass `pass` in the place of the one before it.
pub(crate) fn arrive(
    observed: &mut Observed,
    replan: &Replan<PodInfo>,
    pass: usize,
) -> planner_mixes::ExpectedPlacement {
    let (pod, expected) = replan.newcomer(pass);
    if pass > 0 {
        observed.pods.pop();
    }
    observed.pods.push(Arc::new(PodInfo::from(pod)));
    expected
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.mix.name(), self.nodes, self.pods)
    }
}

impl FromStr for Case {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let [name, nodes, pods] = text.split('/').collect::<Vec<_>>()[..] else {
            bail!("a row is MIX/NODES/PODS");
        };
        let mix = Mix::ALL.into_iter().find(|mix| mix.name() == name).context("no such mix")?;
        Ok(Self { mix, nodes: nodes.parse()?, pods: pods.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_the_way_to_its_process() {
        for case in all(false) {
            assert_eq!(case.to_string().parse::<Case>().unwrap(), case);
        }
        for text in ["karpenter", "other/0/1", "karpenter/0/x"] {
            assert!(text.parse::<Case>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_rows_that_the_bars_speak_of_are_there() {
        let rows: Vec<_> = all(false).iter().map(ToString::to_string).collect();
        for row in [
            "karpenter/0/1000",
            "karpenter/0/100000",
            "cluster-autoscaler/0/51000",
            "runonce-up/0/50000",
            "runonce-down/2000/80000",
            "replan/1000/30000",
            "replan/5000/150000",
            "replan/15000/100000",
        ] {
            assert!(rows.iter().any(|r| r == row), "{row}");
        }
    }

    #[test]
    fn every_row_has_another_one_of_its_shape() {
        for case in all(false) {
            let alike = |other: &&Case| other.mix == case.mix && other.has_shape_of(case);
            assert!(all(false).iter().filter(alike).count() > 1, "{case}");
        }
    }

    #[test]
    fn the_objects_are_as_many_as_the_row_says() {
        for case in all(true).into_iter().filter(|case| case.size() <= 10_000) {
            let (observed, missing) = match case.work() {
                Work::Still(observed) => (observed, 0),
                Work::Stream(observed, _) => (observed, 1),
            };
            assert_eq!(observed.nodes.len(), case.nodes, "{case}");
            assert_eq!(observed.pods.len() + missing, case.pods, "{case}");
        }
    }
}
