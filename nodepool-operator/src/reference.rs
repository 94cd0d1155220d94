//! What this operator shows of itself: its metrics and events, for `docs/reference`.

use node_lifecycle::outcome::EventReason;
use shared_runtime::events::EventDescription;
use shared_runtime::metrics::{MetricDescription, Metrics, MetricsError};

use crate::SPEC;
use crate::metrics::NodePoolMetrics;
use crate::report::event_kind;

/// Every metric, by name.
pub fn metrics() -> Result<Vec<MetricDescription>, MetricsError> {
    let metrics = Metrics::new(SPEC.name, SPEC.version)?;
    metrics.writes("")?;
    NodePoolMetrics::new(&metrics)?;
    Ok(metrics.describe())
}

/// Every event, in the order of their declaration.
pub fn events() -> Vec<EventDescription> {
    let describe = |reason: &EventReason| EventDescription {
        kind: event_kind(*reason),
        regarding: "NodePool",
        when: reason.meaning(),
    };
    EventReason::ALL.iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_metrics_and_the_operators_own_are_described() {
        let all = metrics().unwrap();
        for name in ["tandem_leader", "tandem_nodepool_nodes_total", "conflict_retry_writes_total"] {
            assert!(all.iter().any(|metric| metric.name == name), "{name}");
        }
    }

    #[test]
    fn every_event_says_when_it_is_published() {
        assert!(events().iter().all(|event| event.when.ends_with('.')), "{:?}", events());
    }
}
