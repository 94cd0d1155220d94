//! `docs/reference/conditions.md`: the conditions of both kinds, their owners and their reasons.

use shared_crds::conditions::{ConditionType, Reason, status_name};
use shared_crds::ownership::Owner;
use shared_crds::reported::{NODE_POOL, NODE_POOL_AUTOSCALER, ReportedStatus};

use super::markdown::{code, codes, head, prose, row, table};

/// The page.
pub(super) fn page() -> String {
    let mut text = head("Conditions", "`shared-crds/src/conditions.rs` and `reported.rs`");
    text.push_str(
        "What `status.conditions` says. Several conditions can give the same reason; the message says more. What to do:\n\
         [troubleshooting](../guides/troubleshooting.md).\n",
    );
    let of_autoscalers = |_| Owner::AutoscalerOperator.describe();
    let of_pools = |type_: ConditionType| type_.owner_on_node_pool().map_or("nobody", Owner::describe);
    text.push_str(&kind("NodePool", NODE_POOL, of_pools));
    text.push_str(&kind("NodePoolAutoscaler", NODE_POOL_AUTOSCALER, of_autoscalers));
    text.push_str("\n## Reasons\n\n");
    text.push_str(&table(&["reason", "meaning"]));
    let mut reasons = Reason::ALL.to_vec();
    reasons.sort_by_key(|reason| reason.as_str());
    for reason in reasons {
        text.push_str(&row(&[&code(reason.as_str()), &prose(reason.meaning())]));
    }
    text
}

fn kind(name: &str, reported: &[ReportedStatus], owner: impl Fn(ConditionType) -> &'static str) -> String {
    let mut text = format!("\n## Conditions of a {name}\n\n");
    text.push_str(&table(&["condition", "written by", "`True` means"]));
    for type_ in ConditionType::ALL.iter().filter(|type_| reported.iter().any(|row| row.type_ == **type_)) {
        text.push_str(&row(&[&code(type_.as_str()), owner(*type_), &prose(type_.meaning())]));
    }
    text.push_str(&format!("\n### Reasons of a {name}\n\n"));
    text.push_str(&table(&["condition", "status", "reasons"]));
    for ReportedStatus { type_, status, reasons } in reported {
        let reasons = codes(reasons.iter().map(|reason| reason.as_str()));
        text.push_str(&row(&[&code(type_.as_str()), &code(status_name(*status)), &reasons]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_has_its_owner_its_meaning_and_its_reasons() {
        let text = page();
        for line in [
            "| `NodesReady` | NodePool operator | Every node the pool should have exists and is Ready. |",
            "| `ScalingLimited` | `False` | `DesiredWithinRange` |",
            "| `RollingOut` | `Unknown` | `ProviderUnreachable` |",
            "| `InvalidSchedule` | A schedule cannot be parsed, and is ignored. |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
