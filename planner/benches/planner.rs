//! The planner on small sizes of every mix: `cargo bench -p planner --bench planner`. For looking at a change
//! while one works; the sizes that promises speak of, memory and the peers' figures are `cargo xtask bench planner`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use planner::input::{PodInfo, transform};
use planner::{Observed, Planner, plan};
use planner_mixes::{Mix, Replan};

fn observed(mix: Mix<PodInfo>) -> Observed {
    let Mix { now, pools, autoscalers, daemon_sets, nodes, pods } = mix;
    Observed { now, pools, autoscalers, daemon_sets, nodes, pods, ..Observed::default() }
}

fn whole_passes(criterion: &mut Criterion) {
    let keep = &mut transform::pods();
    let mixes: [(&str, Mix<PodInfo>); 6] = [
        ("karpenter", planner_mixes::karpenter(500, keep)),
        ("karpenter", planner_mixes::karpenter(1000, keep)),
        ("karpenter", planner_mixes::karpenter(2000, keep)),
        ("cluster-autoscaler", planner_mixes::estimator(10, keep)),
        ("runonce-up", planner_mixes::run_once_up(100, keep)),
        ("runonce-down", planner_mixes::run_once_down(100, keep)),
    ];
    for (name, mix) in mixes {
        let observed = observed(mix);
        let pods = observed.pods.len();
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(pods as u64));
        group.bench_function(BenchmarkId::from_parameter(pods), |bencher| {
            bencher.iter(|| plan(black_box(&observed)));
        });
        group.finish();
    }
}

fn one_new_pod(criterion: &mut Criterion) {
    let replan = Replan::new(200, 6000, &mut transform::pods());
    let mut observed = observed(replan.cluster.clone());
    observed.pods.push(Arc::new(replan.newcomer(0).0.into()));
    let mut pass = 0;
    let mut planner = Planner::default();
    criterion.benchmark_group("replan").bench_function("200 nodes, 6000 pods", |bencher| {
        let next = || {
            let mut observed = observed.clone();
            observed.pods.pop();
            observed.pods.push(Arc::new(replan.newcomer(pass).0.into()));
            pass += 1;
            observed
        };
        bencher.iter_batched(
            next,
            |observed| planner.plan_for_cluster(black_box(&observed)),
            BatchSize::LargeInput,
        );
    });
}

criterion_group! {
    name = planner;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3));
    targets = whole_passes, one_new_pod
}
criterion_main!(planner);
