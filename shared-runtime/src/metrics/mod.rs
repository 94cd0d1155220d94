//! Every metric of the runtime, in one registry, under the prefix `tandem_`; the metrics of writes are
//! `conflict-retry`'s, under its own prefix.
//!
//! Labels hold kinds, verbs, categories and outcomes, never the name of an object: the number of objects in a cluster
//! is unbounded. An operator registers further metrics with [`Metrics::register`].

mod described;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

pub use self::described::MetricDescription;

/// A metric could not be created or registered; the name is taken or malformed.
#[derive(Debug, thiserror::Error)]
#[error("cannot register a metric")]
pub struct MetricsError(#[from] prometheus::Error);

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Duration of a reconcile or a request, in seconds: from one that finds nothing to do to one that runs into its
/// timeouts.
const SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The registry and the runtime's own metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    described: Mutex<Vec<MetricDescription>>,
    controller: &'static str,
    reconciles: ReconcileMetrics,
    queue_depth: IntGaugeVec,
    in_backoff: IntGaugeVec,
    watch_errors: IntCounterVec,
    cache_current: IntGaugeVec,
    unreadable: IntGaugeVec,
    leader: IntGauge,
    lease_usable: IntGauge,
    crd_missing: IntGaugeVec,
    crd_fields_missing: IntGaugeVec,
    api_requests: IntCounterVec,
    api_seconds: HistogramVec,
    events_dropped: IntCounter,
}

/// What reconciles do.
#[derive(Debug)]
struct ReconcileMetrics {
    ended: IntCounterVec,
    seconds: HistogramVec,
    errors: IntCounterVec,
}

impl ReconcileMetrics {
    fn new(r: &Make) -> Result<Self, prometheus::Error> {
        Ok(Self {
            ended: r.counters(
                "reconcile_total",
                "Reconciles, by how they ended",
                &["controller", "result"],
            )?,
            seconds: r.histograms(
                "reconcile_duration_seconds",
                "Time a reconcile took",
                &["controller"],
                SECONDS,
            )?,
            errors: r.counters(
                "reconcile_errors_total",
                "Failed reconciles, by what failed",
                &["controller", "category"],
            )?,
        })
    }
}

/// The result of a reconcile, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Nothing more to do.
    Success,
    /// Done for now; the key is requeued after a time.
    Requeue,
    /// A write met a conflict; the key is requeued at once.
    Conflict,
    /// The cache was behind the operator's own writes.
    Stale,
    /// It failed.
    Error,
}

impl ReconcileResult {
    const fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Requeue => "requeue",
            Self::Conflict => "conflict",
            Self::Stale => "stale",
            Self::Error => "error",
        }
    }
}

impl Metrics {
    /// The metrics of the operator `controller`.
    pub fn new(controller: &'static str, version: &str) -> Result<Self, MetricsError> {
        let r = Make { registry: Registry::new(), described: Mutex::default() };
        let build = r.gauges("build_info", "1, labelled with what runs", &["name", "version"])?;
        build.with_label_values(&[controller, version]).set(1);
        let inner = Inner {
            controller,
            reconciles: ReconcileMetrics::new(&r)?,
            queue_depth: r.gauges("queue_depth", "Keys that wait for a reconcile", &["controller"])?,
            in_backoff: r.gauges(
                "objects_in_backoff",
                "Keys that wait because they failed",
                &["controller"],
            )?,
            watch_errors: r.counters(
                "watch_errors_total",
                "Failed lists and watches",
                &["controller", "resource", "category"],
            )?,
            cache_current: r.gauges(
                "cache_current",
                "1 while the API server is heard of and the cache holds what it said; nothing is decided while it is 0",
                &["controller", "resource"],
            )?,
            unreadable: r.gauges(
                "unreadable_objects",
                "Objects that this version cannot read and leaves out; the log names them",
                &["controller", "resource"],
            )?,
            leader: r.gauge("leader", "1 while this replica leads")?,
            lease_usable: r.gauge(
                "lease_usable",
                "1 while the lease can be read, and written when it is free, or none is needed; a replica is no standby while it is 0",
            )?,
            crd_missing: r.gauges(
                "crd_missing",
                "1 while the custom resource definition is missing",
                &["crd"],
            )?,
            crd_fields_missing: r.gauges(
                "crd_fields_missing",
                "Fields of this version that the installed custom resource definition lacks, because it is older",
                &["crd"],
            )?,
            api_requests: r.counters(
                "api_requests_total",
                "Requests to the API server; code is the HTTP status, or error when none came",
                &["verb", "code"],
            )?,
            api_seconds: r.histograms(
                "api_request_duration_seconds",
                "Time until the API server answered, watches apart",
                &["verb"],
                SECONDS,
            )?,
            events_dropped: r
                .counter("events_dropped_total", "Kubernetes events that could not be published")?,
            registry: r.registry,
            described: r.described,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Registers a metric of the operator's own. Its name should begin with `tandem_`.
    pub fn register(&self, collector: impl Collector + 'static) -> Result<(), MetricsError> {
        let described = described::of(&collector);
        self.0.registry.register(Box::new(collector))?;
        add(&self.0.described, described);
        Ok(())
    }

    /// What is registered, by name.
    pub fn describe(&self) -> Vec<MetricDescription> {
        let mut all = self.0.described.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// All metrics in Prometheus' text format; see [`CONTENT_TYPE`].
    pub fn render(&self) -> Result<Vec<u8>, MetricsError> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.0.registry.gather(), &mut text)?;
        Ok(text)
    }

    pub(crate) fn reconciled(&self, controller: &str, result: ReconcileResult, took: Duration) {
        self.0.reconciles.ended.with_label_values(&[controller, result.label()]).inc();
        self.0.reconciles.seconds.with_label_values(&[controller]).observe(took.as_secs_f64());
    }

    pub(crate) fn reconcile_failed(&self, controller: &str, category: &str) {
        self.0.reconciles.errors.with_label_values(&[controller, category]).inc();
    }

    pub(crate) fn queue(&self, controller: &str, depth: usize, in_backoff: usize) {
        self.0.queue_depth.with_label_values(&[controller]).set(gauge(depth));
        self.0.in_backoff.with_label_values(&[controller]).set(gauge(in_backoff));
    }

    /// `conflict-retry`'s metrics of every write, with the label `strategy`. Call it once per registry.
    pub fn writes(&self, strategy: &str) -> Result<conflict_retry::metrics::RetryMetrics, MetricsError> {
        let constant = [("strategy".to_owned(), strategy.to_owned())].into();
        let writes = conflict_retry::metrics::RetryMetrics::register(&self.0.registry, constant)?;
        add(&self.0.described, described::of(&writes));
        Ok(writes)
    }

    pub(crate) fn watch_error(&self, resource: &str, category: &str) {
        self.0.watch_errors.with_label_values(&[self.0.controller, resource, category]).inc();
    }

    pub(crate) fn cache_current(&self, resource: &str, is_current: bool) {
        self.0.cache_current.with_label_values(&[self.0.controller, resource]).set(i64::from(is_current));
    }

    pub(crate) fn unreadable(&self, resource: &str, objects: usize) {
        self.0.unreadable.with_label_values(&[self.0.controller, resource]).set(gauge(objects));
    }

    pub(crate) fn leading(&self, leading: bool) {
        self.0.leader.set(i64::from(leading));
    }

    pub(crate) fn lease_usable(&self, is_usable: bool) {
        self.0.lease_usable.set(i64::from(is_usable));
    }

    pub(crate) fn crd(&self, name: &str, missing: bool) {
        self.0.crd_missing.with_label_values(&[name]).set(i64::from(missing));
    }

    pub(crate) fn crd_fields(&self, name: &str, missing: usize) {
        self.0.crd_fields_missing.with_label_values(&[name]).set(gauge(missing));
    }

    pub(crate) fn api_request(&self, verb: &str, code: &str, took: Option<Duration>) {
        self.0.api_requests.with_label_values(&[verb, code]).inc();
        if let Some(took) = took {
            self.0.api_seconds.with_label_values(&[verb]).observe(took.as_secs_f64());
        }
    }

    pub(crate) fn event_dropped(&self) {
        self.0.events_dropped.inc();
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn add(described: &Mutex<Vec<MetricDescription>>, more: Vec<MetricDescription>) {
    described.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
}

/// Creates metrics under the prefix and registers them.
struct Make {
    registry: Registry,
    described: Mutex<Vec<MetricDescription>>,
}

impl Make {
    fn opts(name: &str, help: &str) -> Opts {
        Opts::new(format!("tandem_{name}"), help)
    }

    fn add<C: Collector + Clone + 'static>(&self, metric: C) -> Result<C, prometheus::Error> {
        self.registry.register(Box::new(metric.clone()))?;
        add(&self.described, described::of(&metric));
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.add(IntCounter::with_opts(Self::opts(name, help))?)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        self.add(IntCounterVec::new(Self::opts(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.add(IntGauge::with_opts(Self::opts(name, help))?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        self.add(IntGaugeVec::new(Self::opts(name, help), labels)?)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, prometheus::Error> {
        let opts = HistogramOpts::from(Self::opts(name, help)).buckets(buckets.to_vec());
        self.add(HistogramVec::new(opts, labels)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_rendered_with_the_prefix() {
        let metrics = Metrics::new("nodepool-operator", "1.2.3").unwrap();
        metrics.reconciled("nodepool", ReconcileResult::Conflict, Duration::from_millis(3));
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        assert!(
            text.contains(r#"tandem_reconcile_total{controller="nodepool",result="conflict"} 1"#),
            "{text}"
        );
        assert!(text.contains(r#"tandem_build_info{name="nodepool-operator",version="1.2.3"} 1"#), "{text}");
    }

    #[test]
    fn everything_that_is_registered_is_described_once() {
        let metrics = Metrics::new("nodepool-operator", "1.2.3").unwrap();
        metrics.writes("guarded").unwrap();
        metrics.register(IntCounter::new("tandem_zzz_total", "Last").unwrap()).unwrap();
        let all = metrics.describe();
        assert!(all.is_sorted_by(|a, b| a.name < b.name), "{all:?}");
        let has = |name: &str, labels: &[&str]| all.iter().any(|it| it.name == name && it.labels == labels);
        assert!(has("tandem_reconcile_total", &["controller", "result"]), "{all:?}");
        assert!(has("conflict_retry_stale_reads_total", &["resource", "strategy"]), "{all:?}");
        assert!(has("tandem_zzz_total", &[]), "{all:?}");
    }

    #[test]
    fn a_name_that_is_taken_is_an_error() {
        let metrics = Metrics::new("nodepool-operator", "1.2.3").unwrap();
        let again = || IntCounter::new("tandem_nodes_created_total", "help").unwrap();
        metrics.register(again()).unwrap();
        assert!(metrics.register(again()).is_err());
    }
}
