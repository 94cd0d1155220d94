//! The operator's Prometheus metrics. No label holds an object's name, so the number of series is fixed.

use std::time::Duration;

use planner::{PoolDecision, ScalingPlan, SchedulingResult};
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts};
use shared_runtime::metrics::{Metrics, MetricsError};

/// In seconds; from a small cluster to one far beyond the planner's target.
const PLAN_BUCKETS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];
const OUTCOMES: [&str; 3] = ["fits", "triggers_scale_up", "unschedulable"];

/// The operator's own metrics; the shared runtime counts passes, writes and conflicts.
#[derive(Clone, Debug)]
pub(crate) struct AutoscalerMetrics {
    pending: IntGaugeVec,
    current: IntGauge,
    desired: IntGauge,
    pools: IntGaugeVec,
    unneeded: IntGauge,
    refused: IntGauge,
    decisions: IntCounterVec,
    planning: Histogram,
}

impl AutoscalerMetrics {
    /// Creates and registers the metrics.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let opts = |name: &str, help: &str| Opts::new(format!("tandem_autoscaler_{name}"), help);
        let planning =
            HistogramOpts::new("tandem_autoscaler_plan_duration_seconds", "Time to plan one pass.");
        let all = Self {
            pending: IntGaugeVec::new(
                opts("pending_pods", "Pending pods by what the last plan does with them."),
                &["outcome"],
            )?,
            current: IntGauge::with_opts(opts(
                "current_replicas",
                "Nodes asked for, over all planned pools.",
            ))?,
            desired: IntGauge::with_opts(opts("desired_replicas", "Nodes wanted, over all planned pools."))?,
            pools: IntGaugeVec::new(
                opts("pools", "Pools by whether they are planned, and whether a bound limits them."),
                &["state"],
            )?,
            unneeded: IntGauge::with_opts(opts("unneeded_nodes", "Nodes that nothing needs."))?,
            refused: IntGauge::with_opts(opts(
                "refused_writes",
                "Writes that were refused and wait for their next try.",
            ))?,
            decisions: IntCounterVec::new(
                opts("decisions_total", "Decisions written to pools, by direction: up, down, same."),
                &["direction"],
            )?,
            planning: Histogram::with_opts(planning.buckets(PLAN_BUCKETS.to_vec()))?,
        };
        metrics.register(all.pending.clone())?;
        metrics.register(all.current.clone())?;
        metrics.register(all.desired.clone())?;
        metrics.register(all.pools.clone())?;
        metrics.register(all.unneeded.clone())?;
        metrics.register(all.refused.clone())?;
        metrics.register(all.decisions.clone())?;
        metrics.register(all.planning.clone())?;
        Ok(all)
    }

    /// Sets the metrics of the last plan. `took` is the planning time.
    pub(crate) fn planned(&self, plan: &ScalingPlan, took: Duration) {
        self.planning.observe(took.as_secs_f64());
        let mut pods = [0_i64; OUTCOMES.len()];
        for pod in &plan.pods {
            pods[match pod.result {
                SchedulingResult::Fits { .. } => 0,
                SchedulingResult::TriggersScaleUp { .. } => 1,
                SchedulingResult::Unschedulable { .. } => 2,
            }] += 1;
        }
        for (outcome, count) in OUTCOMES.iter().zip(pods) {
            self.pending.with_label_values(&[*outcome]).set(count);
        }
        let planned = || plan.pools.iter().filter(|decision| decision.is_planned());
        self.current.set(planned().map(|d| i64::from(d.current)).sum());
        self.desired.set(planned().map(|d| i64::from(d.desired)).sum());
        self.unneeded.set(count(planned().map(|d| d.unneeded.len()).sum()));
        let limited = planned().filter(|d| d.limited).count();
        self.pools.with_label_values(&["planned"]).set(count(planned().count()));
        self.pools.with_label_values(&["limited"]).set(count(limited));
        self.pools.with_label_values(&["not_planned"]).set(count(plan.pools.len() - planned().count()));
    }

    /// Sets the number of refused writes that wait.
    pub(crate) fn refused(&self, writes: usize) {
        self.refused.set(count(writes));
    }

    /// Counts a decision that was written.
    pub(crate) fn decided(&self, decision: &PoolDecision) {
        let direction = match decision.desired.cmp(&decision.current) {
            std::cmp::Ordering::Greater => "up",
            std::cmp::Ordering::Less => "down",
            std::cmp::Ordering::Equal => "same",
        };
        self.decisions.with_label_values(&[direction]).inc();
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use planner::fixtures::TestCluster;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_is_shown_in_numbers_without_names() {
        let metrics = Metrics::new("test", "0").unwrap();
        let own = AutoscalerMetrics::new(&metrics).unwrap();
        let plan = TestCluster::eager()
            .pool("a", json!({ "spec": { "maxReplicas": 1 } }))
            .pending("p", 5, "1", &json!({}))
            .plan();
        own.planned(&plan, Duration::from_millis(3));
        own.decided(&plan.pools[0]);
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        for line in [
            "tandem_autoscaler_pending_pods{outcome=\"triggers_scale_up\"} 4",
            "tandem_autoscaler_pending_pods{outcome=\"unschedulable\"} 1",
            "tandem_autoscaler_desired_replicas 1",
            "tandem_autoscaler_pools{state=\"limited\"} 1",
            "tandem_autoscaler_decisions_total{direction=\"up\"} 1",
            "tandem_autoscaler_plan_duration_seconds_count 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
