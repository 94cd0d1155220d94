//! What a registered metric is, for `docs/reference/metrics.md`: from its descriptor, so that the page has what is served.

use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};

/// A registered metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub type_: &'static str,
    /// The names of its labels, those with one value only included; sorted.
    pub labels: Vec<String>,
    /// Its help text.
    pub help: String,
}

/// The metrics of a collector. One without a series yet has a family too, so its type is known.
pub(super) fn of(collector: &impl Collector) -> Vec<MetricDescription> {
    let families = collector.collect();
    collector.desc().into_iter().map(|desc| one(desc, &families)).collect()
}

fn one(desc: &Desc, families: &[MetricFamily]) -> MetricDescription {
    let family = families.iter().find(|family| family.name() == desc.fq_name);
    let constant = desc.const_label_pairs.iter().map(|pair| pair.name().to_owned());
    let mut labels: Vec<String> = desc.variable_labels.iter().cloned().chain(constant).collect();
    labels.sort();
    MetricDescription {
        name: desc.fq_name.clone(),
        type_: family.map_or("untyped", |family| type_name(family.get_field_type())),
        labels,
        help: desc.help.clone(),
    }
}

const fn type_name(type_: MetricType) -> &'static str {
    match type_ {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{HistogramOpts, HistogramVec, IntGauge, Opts};

    use super::*;

    #[test]
    fn a_metric_is_described_by_its_descriptor_also_without_a_series() {
        let opts = HistogramOpts::new("a_seconds", "Time").const_label("strategy", "retry");
        let histogram = HistogramVec::new(opts, &["verb"]).unwrap();
        let labels = vec!["strategy".to_owned(), "verb".to_owned()];
        let described =
            MetricDescription { name: "a_seconds".into(), type_: "histogram", labels, help: "Time".into() };
        assert_eq!(of(&histogram), [described]);
        let gauge = IntGauge::with_opts(Opts::new("b", "Number")).unwrap();
        let described =
            MetricDescription { name: "b".into(), type_: "gauge", labels: vec![], help: "Number".into() };
        assert_eq!(of(&gauge), [described]);
    }
}
