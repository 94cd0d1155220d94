//! How the counted work of a pass grows with the cluster. `cargo xtask bench planner` judges larger ones.

use std::sync::Arc;

use planner_mixes::{Mix, Replan, estimator, karpenter, run_once_down, run_once_up};

use crate::input::observed::Observed;
use crate::input::pod_info::PodInfo;
use crate::input::transform;
use crate::{Planner, steps};

fn observed(mix: Mix<PodInfo>) -> Observed {
    let Mix { now, pools, autoscalers, nodes, pods, daemon_sets } = mix;
    Observed { now, pools, autoscalers, nodes, pods, daemon_sets, ..Observed::default() }
}

/// The steps of a pass over `mix`.
fn steps_over(mix: Mix<PodInfo>) -> u64 {
    steps_of(&mut Planner::default(), &observed(mix))
}

fn steps_of(planner: &mut Planner, observed: &Observed) -> u64 {
    let before = steps::taken();
    planner.plan(observed);
    steps::taken().wrapping_sub(before)
}

/// A cluster of `nodes` nodes, with 30 pods on each and a new one.
fn with_one_new_pod(nodes: usize) -> Mix<PodInfo> {
    let mut replan = Replan::new(nodes, nodes * 30, &mut transform::pods());
    let mut cluster = std::mem::take(&mut replan.cluster);
    cluster.pods.push(Arc::new(PodInfo::from(replan.newcomer(1).0)));
    cluster
}

/// Four times as many objects: 4^1.4 is 7, and a square is 16.
#[test]
fn the_steps_of_a_pass_grow_hardly_faster_than_the_cluster() {
    let keep = &mut transform::pods();
    let cases = [
        ("karpenter", 500, karpenter(500, keep), karpenter(2000, keep)),
        ("cluster-autoscaler", 510, estimator(1, keep), estimator(4, keep)),
        ("runonce-up", 1000, run_once_up(20, keep), run_once_up(80, keep)),
        ("runonce-down", 1000, run_once_down(25, keep), run_once_down(100, keep)),
        ("replan", 750, with_one_new_pod(25), with_one_new_pod(100)),
    ];
    for (name, pods, small, large) in cases {
        let (small, large) = (steps_over(small), steps_over(large));
        assert!(small >= pods, "{name}: {small} steps for {pods} pods: each is looked at");
        assert!(large > small && large < 7 * small, "{name}: {small} steps, then {large}");
    }
}

#[test]
fn the_same_pass_takes_the_same_steps_each_time() {
    let cluster = observed(with_one_new_pod(25));
    let (mut one, mut other) = (Planner::default(), Planner::default());
    for pass in 0..2 {
        assert_eq!(steps_of(&mut one, &cluster), steps_of(&mut other, &cluster), "pass {pass}");
    }
}
