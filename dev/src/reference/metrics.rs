//! `docs/reference/metrics.md`: every metric, from the operators' registries.

use shared_runtime::metrics::MetricDescription;

use super::markdown::{code, codes, head, prose, row, table};

/// The page, from what each operator has registered.
pub(super) fn page(node_pool: &[MetricDescription], autoscaler: &[MetricDescription]) -> String {
    let mut text = head("Metrics", "the operators' registries");
    text.push_str(
        "What the operators serve at `/metrics`. No label holds the name of an object. A metric with labels has no series until there is\n\
         something to count. What to look at: [troubleshooting](../guides/troubleshooting.md#what-to-look-at).\n",
    );
    let (both, own): (Vec<_>, Vec<_>) = node_pool.iter().partition(|metric| autoscaler.contains(metric));
    let others: Vec<_> = autoscaler.iter().filter(|metric| !node_pool.contains(metric)).collect();
    for (title, metrics) in
        [("Both operators", both), ("NodePool operator", own), ("Autoscaler operator", others)]
    {
        text.push_str(&format!("\n## {title}\n\n"));
        text.push_str(&table(&["metric", "type", "labels", "meaning"]));
        for MetricDescription { name, type_, labels, help } in metrics {
            let labels = codes(labels.iter().map(String::as_str));
            text.push_str(&row(&[&code(name), type_, &labels, &prose(help)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_of_both_operators_is_listed_once() {
        let metric = |name: &str, labels: &[&str]| MetricDescription {
            name: name.to_owned(),
            type_: "counter",
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            help: "Things".to_owned(),
        };
        let text = page(
            &[metric("a", &["x", "y"]), metric("b", &[])],
            &[metric("a", &["x", "y"]), metric("c", &[])],
        );
        let rows: Vec<_> = text.lines().filter(|line| line.contains("| counter |")).collect();
        assert_eq!(
            rows,
            [
                "| `a` | counter | `x`, `y` | Things |",
                "| `b` | counter |  | Things |",
                "| `c` | counter |  | Things |"
            ]
        );
    }
}
