//! How many nodes a changed template reaches in a pass. Labels and taints decide where pods go, so what is wrong with a change shows
//! at the first nodes, and the change can be taken back before the last ones have it.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{NodeAction, NodeStep};

/// How many nodes are updated in place in a pass. A pass writes for five seconds at most, sixteen objects at a time: this is a part
/// of it that leaves time for what comes after, such as the request of machines.
const MOST_UPDATES: usize = 50;
/// When the next ones follow.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// The `steps` with as many updates as a pass may have; the other nodes stay as they are until a later one.
pub(crate) fn paced(steps: Vec<NodeStep>) -> Vec<NodeStep> {
    let mut left = MOST_UPDATES;
    let in_turn = |step: NodeStep| {
        let is_update = matches!(step.action, NodeAction::Update(_));
        if is_update && left == 0 {
            return NodeStep { action: NodeAction::Keep, ..step };
        }
        left -= usize::from(is_update);
        step
    };
    steps.into_iter().map(in_turn).collect()
}

/// When the pool is visited again although no event may say so: more nodes may be due after as many updates as a pass may have.
pub(crate) fn next(steps: &[NodeStep], now: Timestamp) -> Option<Timestamp> {
    let updates = steps.iter().filter(|step| matches!(step.action, NodeAction::Update(_))).count();
    (updates == MOST_UPDATES).then(|| now.checked_add(PAUSE).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use shared_crds::names;

    use super::*;
    use crate::template::applied_template::AppliedTemplate;
    use crate::testing::{annotate, at, done, facts, nodes, observed, plan, pool};

    #[test]
    fn a_change_reaches_so_many_nodes_in_a_pass_and_the_others_in_later_ones() {
        let mut pool = pool(120);
        pool.spec.template.metadata.get_or_insert_default().labels.insert("a".to_owned(), "1".to_owned());
        let text = AppliedTemplate::of(&pool.spec).text().unwrap();
        let mut nodes = nodes(120);
        for (expected, up_to_date) in [(50, 50), (50, 100), (20, 120), (0, 120)] {
            let seen = observed(pool.clone(), nodes.clone());
            let plan = plan(&seen);
            let updated = done(&plan).updated;
            assert_eq!((updated.len(), facts(&seen).up_to_date), (expected, up_to_date));
            assert_eq!(plan.requeue_at == Some(at(101)), expected == MOST_UPDATES, "{:?}", plan.requeue_at);
            for node in &mut nodes {
                if updated.iter().any(|name| Some(name) == node.metadata.name.as_ref()) {
                    annotate(node, names::TEMPLATE_APPLIED_ANNOTATION, &text);
                }
            }
        }
    }
}
