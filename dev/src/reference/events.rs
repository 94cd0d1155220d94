//! `docs/reference/events.md`: every Kubernetes event that the operators publish.

use shared_runtime::events::EventDescription;

use super::markdown::{code, head, prose, row, table};

/// The page, from the events of each operator.
pub(super) fn page(node_pool: &[EventDescription], autoscaler: &[EventDescription]) -> String {
    let mut text = head("Events", "both operators' `reference.rs`");
    text.push_str(
        "What `kubectl events` shows. Events are best effort, and only of changes and refusals: what is true now is in the\n\
         [conditions](conditions.md).\n",
    );
    for (title, events) in [("NodePool operator", node_pool), ("Autoscaler operator", autoscaler)] {
        text.push_str(&format!("\n## {title}\n\n"));
        text.push_str(&table(&["reason", "type", "on", "action", "when"]));
        for EventDescription { kind, regarding, when } in events {
            text.push_str(&row(&[
                &code(kind.reason()),
                kind.type_name(),
                regarding,
                &code(kind.action()),
                &prose(when),
            ]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use shared_runtime::events::EventKind;

    use super::*;

    #[test]
    fn an_event_has_its_reason_its_type_and_its_object() {
        let kind = EventKind::warning("DrainBlocked", "EvictPod");
        let event = EventDescription { kind, regarding: "NodePool", when: " Evictions are refused." };
        let text = page(&[event], &[]);
        let row = "| `DrainBlocked` | Warning | NodePool | `EvictPod` | Evictions are refused. |";
        assert!(text.lines().any(|line| line == row), "{text}");
    }
}
