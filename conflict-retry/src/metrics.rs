//! An [`Observer`] that counts in a Prometheus registry.
//!
//! Labels hold resources, verbs, causes and outcomes, never the name of an object. Every metric name begins with
//! `conflict_retry_`; the README lists what to alert on.

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::classify::Class;
use crate::observe::{AttemptEvent, FinishedEvent, Observer};
use crate::operation::{Operation, ReadSource};

/// Buckets for the attempts of one write: Fibonacci numbers up to what the default policy allows.
const ATTEMPTS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 64.0];
/// Buckets for the seconds of one write: from a single request to the default policy's deadline.
const SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Counts every request and every finished write. Cheap to clone; the clones count into the same series.
///
/// ```
/// use std::{collections::HashMap, sync::Arc};
/// use conflict_retry::{WriteOptions, metrics::RetryMetrics};
///
/// let registry = prometheus::Registry::new();
/// let metrics = RetryMetrics::register(&registry, HashMap::new())?;
/// let options = WriteOptions::new("colour-controller").with_observer(Arc::new(metrics));
/// # Ok::<(), prometheus::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryMetrics {
    writes: IntCounterVec,
    attempts: HistogramVec,
    seconds: HistogramVec,
    backoff: CounterVec,
    queued: CounterVec,
    exhausted: IntCounterVec,
    requests: IntCounterVec,
    conflicts: IntCounterVec,
    overwrites: IntCounterVec,
    reads: IntCounterVec,
    stale: IntCounterVec,
    expired: IntCounterVec,
}

impl RetryMetrics {
    /// Creates the metrics and registers them in `registry`, each with the additional labels `constant`. Registering
    /// them a second time in the same registry is an error.
    pub fn register(
        registry: &Registry,
        constant: HashMap<String, String>,
    ) -> Result<Self, prometheus::Error> {
        let metrics = Self::new(constant)?;
        registry.register(Box::new(metrics.clone()))?;
        Ok(metrics)
    }

    fn new(constant: HashMap<String, String>) -> Result<Self, prometheus::Error> {
        let opts = move |name: &str, help: &str| {
            Opts::new(format!("conflict_retry_{name}"), help).const_labels(constant.clone())
        };
        let counter = |name, help, labels: &[&str]| IntCounterVec::new(opts(name, help), labels);
        let write = &["resource", "subresource", "verb"];
        let seconds = |name, help| CounterVec::new(opts(name, help), write);
        let histogram = |name, help, buckets: &[f64]| {
            HistogramVec::new(HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec()), write)
        };
        let and = |more| [write.as_slice(), &[more]].concat();
        Ok(Self {
            writes: counter("writes_total", "Writes, by what came of them", &and("result"))?,
            attempts: histogram("write_attempts", "Attempts that one write took", ATTEMPTS)?,
            seconds: histogram(
                "write_duration_seconds",
                "Time from the beginning of a write to its end, waits included",
                SECONDS,
            )?,
            backoff: seconds("backoff_seconds_total", "Time spent waiting between attempts")?,
            queued: seconds(
                "queued_seconds_total",
                "Time spent waiting for permission to send: queue and rate limiter",
            )?,
            exhausted: counter("exhausted_total", "Writes whose policy allowed no further attempt", write)?,
            requests: counter(
                "requests_total",
                "Requests sent, reads included; class is ok or what the request failed of",
                &["resource", "subresource", "verb", "class"],
            )?,
            conflicts: counter(
                "conflicts_total",
                "Requests that lost to another writer, by what kept them from writing over it",
                &and("cause"),
            )?,
            overwrites: counter(
                "overwrites_total",
                "Retries that wrote what the attempt before wanted over another writer's change",
                write,
            )?,
            reads: counter(
                "reads_total",
                "Objects that attempts were decided from, by where they came from: copy, watch or live",
                &["resource", "source"],
            )?,
            stale: counter(
                "stale_reads_total",
                "Cached objects that were older than our own last write of them",
                &["resource"],
            )?,
            expired: counter(
                "expectations_expired_total",
                "Own writes that the watch did not bring within five minutes",
                &["resource"],
            )?,
        })
    }

    /// Every metric. A new field has to be added here to be exported.
    fn collectors(&self) -> [&dyn Collector; 12] {
        let Self {
            writes,
            attempts,
            seconds,
            backoff,
            queued,
            exhausted,
            requests,
            conflicts,
            overwrites,
            reads,
            stale,
            expired,
        } = self;
        [
            writes, attempts, seconds, backoff, queued, exhausted, requests, conflicts, overwrites, reads,
            stale, expired,
        ]
    }
}

/// All metrics register as one collector, so a registry takes either all of them or none.
impl Collector for RetryMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.collectors().into_iter().flat_map(Collector::collect).collect()
    }
}

impl Observer for RetryMetrics {
    fn attempt(&self, event: &AttemptEvent<'_>) {
        let Operation { resource, subresource, verb } = event.operation;
        let class = event.class.map_or("ok", Class::label);
        let (resource, subresource) = (resource.as_str(), subresource.label());
        self.requests.with_label_values(&[resource, subresource, event.verb.label(), class]).inc();
        if event.class.is_some_and(lost_to_another) {
            self.conflicts.with_label_values(&[resource, subresource, verb.label(), class]).inc();
        }
    }

    fn read(&self, operation: &Operation, source: ReadSource) {
        self.reads.with_label_values(&[operation.resource.as_str(), source.label()]).inc();
    }

    fn overwrote(&self, operation: &Operation, _path: &str) {
        let Operation { resource, subresource, verb } = operation;
        self.overwrites.with_label_values(&[resource.as_str(), subresource.label(), verb.label()]).inc();
    }

    fn finished(&self, event: &FinishedEvent<'_>) {
        let Operation { resource, subresource, verb } = event.operation;
        let write = [resource.as_str(), subresource.label(), verb.label()];
        self.writes.with_label_values(&[write[0], write[1], write[2], event.result]).inc();
        self.queued.with_label_values(&write).inc_by(event.queued.as_secs_f64());
        if event.requests == 0 {
            return;
        }
        self.attempts.with_label_values(&write).observe(f64::from(event.attempts));
        self.seconds.with_label_values(&write).observe(event.elapsed.as_secs_f64());
        self.backoff.with_label_values(&write).inc_by(event.waited.as_secs_f64());
        if event.exhausted {
            self.exhausted.with_label_values(&write).inc();
        }
    }

    fn stale_read(&self, resource: &str) {
        self.stale.with_label_values(&[resource]).inc();
    }

    fn expectation_expired(&self, resource: &str) {
        self.expired.with_label_values(&[resource]).inc();
    }
}

/// Whether the request lost to another writer, as opposed to a fault or an invalid request.
const fn lost_to_another(class: &Class) -> bool {
    matches!(
        class,
        Class::Conflict
            | Class::TestFailed
            | Class::FieldManager { .. }
            | Class::UidMismatch
            | Class::Deleted
            | Class::AlreadyExists
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::operation::{Subresource, Verb};

    fn operation() -> Operation {
        Operation { resource: "nodepools".into(), subresource: Subresource::Status, verb: Verb::Put }
    }

    fn rendered(registry: &Registry) -> String {
        prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn requests_conflicts_and_ends_are_counted_and_labelled() {
        let registry = Registry::new();
        let constant = [("strategy".to_owned(), "retry".to_owned())].into();
        let metrics = RetryMetrics::register(&registry, constant).unwrap();
        let operation = operation();
        let attempt = |verb, class| {
            metrics.attempt(&AttemptEvent {
                operation: &operation,
                attempt: 1,
                verb,
                class,
                delay: None,
                elapsed: Duration::ZERO,
            });
        };
        attempt(Verb::Put, Some(&Class::Conflict));
        attempt(Verb::Get, None);
        attempt(Verb::Put, Some(&Class::Invalid));
        metrics.read(&operation, ReadSource::Watch);
        metrics.stale_read("nodepools");
        let end = |result, exhausted, attempts, requests| {
            metrics.finished(&FinishedEvent {
                operation: &operation,
                result,
                exhausted,
                attempts,
                requests,
                elapsed: Duration::from_millis(20),
                waited: Duration::from_millis(500),
                queued: Duration::from_millis(125),
                maybe_written: false,
            });
        };
        end("unchanged", false, 0, 0);
        end("exhausted", true, 3, 6);
        let text = rendered(&registry);
        let all = r#"resource="nodepools",strategy="retry",subresource="status",verb="put""#;
        for line in [
            format!(r#"conflict_retry_conflicts_total{{cause="conflict",{all}}} 1"#),
            format!(r#"conflict_retry_requests_total{{class="ok",{}}} 1"#, all.replace("put", "get")),
            format!(r#"conflict_retry_requests_total{{class="invalid",{all}}} 1"#),
            format!("conflict_retry_exhausted_total{{{all}}} 1"),
            format!("conflict_retry_backoff_seconds_total{{{all}}} 0.5"),
            format!("conflict_retry_queued_seconds_total{{{all}}} 0.25"),
            format!("conflict_retry_write_attempts_count{{{all}}} 1"),
            format!(r#"conflict_retry_write_attempts_bucket{{{all},le="2"}} 0"#),
            format!(r#"conflict_retry_write_attempts_bucket{{{all},le="3"}} 1"#),
            r#"conflict_retry_reads_total{resource="nodepools",source="watch",strategy="retry"} 1"#
                .to_owned(),
            r#"conflict_retry_stale_reads_total{resource="nodepools",strategy="retry"} 1"#.to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(text.contains(r#"result="unchanged""#) && !text.contains(r#"cause="invalid""#), "{text}");
    }

    #[test]
    fn they_register_once_per_registry() {
        let registry = Registry::new();
        let _metrics = RetryMetrics::register(&registry, HashMap::new()).unwrap();
        assert!(RetryMetrics::register(&registry, HashMap::new()).is_err());
    }
}
