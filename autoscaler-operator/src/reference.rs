//! What this operator shows of itself: its metrics and events, for `docs/reference`.

use shared_runtime::events::EventDescription;
use shared_runtime::metrics::{MetricDescription, Metrics, MetricsError};

use crate::SPEC;
use crate::metrics::AutoscalerMetrics;
use crate::status::{events, pod_events};

/// Every metric, by name.
pub fn metrics() -> Result<Vec<MetricDescription>, MetricsError> {
    let metrics = Metrics::new(SPEC.name, SPEC.version)?;
    metrics.writes("")?;
    AutoscalerMetrics::new(&metrics)?;
    Ok(metrics.describe())
}

/// Every event: those on pools and nodes, then those on pods and autoscalers.
pub fn events() -> Vec<EventDescription> {
    let all = events::ALL.iter().chain(pod_events::ALL);
    all.map(|&(kind, regarding, when)| EventDescription { kind, regarding, when }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_metrics_and_the_operators_own_are_described() {
        let all = metrics().unwrap();
        for name in ["tandem_leader", "tandem_autoscaler_pending_pods", "conflict_retry_writes_total"] {
            assert!(all.iter().any(|metric| metric.name == name), "{name}");
        }
    }

    #[test]
    fn every_kind_of_event_that_is_defined_is_in_a_list() {
        let sources = [include_str!("status/events.rs"), include_str!("status/pod_events.rs")];
        let defined: usize = sources.map(|text| text.matches(": EventKind = ").count()).iter().sum();
        let mut reasons: Vec<_> = events().iter().map(|event| event.kind.reason()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        assert_eq!(reasons.len(), defined, "{reasons:?}");
        assert!(events().iter().all(|event| event.when.ends_with('.')), "{:?}", events());
    }
}
