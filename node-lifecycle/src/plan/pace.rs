//! How many nodes a changed template reaches in a pass. Labels and taints decide where pods go, so what is wrong with a change shows
//! at the first nodes, and the change can be taken back before the last ones have it.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{NodeAction, NodeStep};

/// How many nodes are updated in place in a pass. A pass writes for five seconds at most, sixteen objects at a time: this is a part
/// of it that leaves time for what comes after, such as the request of machines.
const MOST_UPDATES: usize = 50;
/// When the next ones follow.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// The `steps` with as many updates as a pass may have; the other nodes stay as they are until a later one. Where the first one is
/// changes with every second of `now`: nodes whose change is always refused do not keep it from the others.
pub(crate) fn paced(steps: Vec<NodeStep>, now: Timestamp) -> Vec<NodeStep> {
    let count = steps.iter().filter(|step| matches!(step.action, NodeAction::Update(_))).count();
    let first = first(count, now);
    let mut index = 0;
    let in_turn = |step: NodeStep| {
        if !matches!(step.action, NodeAction::Update(_)) {
            return step;
        }
        let place = (index + count - first) % count;
        index += 1;
        if place < MOST_UPDATES { step } else { NodeStep { action: NodeAction::Keep, ..step } }
    };
    steps.into_iter().map(in_turn).collect()
}

/// Which of `count` updates comes first at `now`. The seconds are mixed as `SplitMix64` does it: passes come at regular intervals, and
/// a multiple of the time may be the same place each time.
fn first(count: usize, now: Timestamp) -> usize {
    let mut mixed = now.as_second().cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
    usize::try_from((mixed ^ (mixed >> 31)) % count).unwrap_or(0)
}

/// When the pool is visited again although no event may say so: more nodes may be due after as many updates as a pass may have.
pub(crate) fn next(steps: &[NodeStep], now: Timestamp) -> Option<Timestamp> {
    let updates = steps.iter().filter(|step| matches!(step.action, NodeAction::Update(_))).count();
    (updates == MOST_UPDATES).then(|| now.checked_add(PAUSE).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use shared_crds::names;

    use super::*;
    use crate::after::outcome::AppliedAction;
    use crate::template::applied_template::AppliedTemplate;
    use crate::testing::{annotate, at, done, facts, nodes, observed, plan, pool, step};

    #[test]
    fn a_change_reaches_so_many_nodes_in_a_pass_and_the_others_in_later_ones() {
        let mut pool = pool(120);
        pool.spec.template.metadata.get_or_insert_default().labels.insert("a".to_owned(), "1".to_owned());
        let text = AppliedTemplate::of(&pool.spec).text().unwrap();
        let mut nodes = nodes(120);
        for (expected, up_to_date) in [(50, 50), (50, 100), (20, 120), (0, 120)] {
            let seen = observed(pool.clone(), nodes.clone());
            let plan = plan(&seen);
            let applied = done(&plan);
            let updated: Vec<_> = applied.names(|action| action == AppliedAction::Update).collect();
            assert_eq!((updated.len(), facts(&seen).up_to_date), (expected, up_to_date));
            assert_eq!(plan.requeue_at == Some(at(101)), expected == MOST_UPDATES, "{:?}", plan.requeue_at);
            for node in &mut nodes {
                if updated.iter().any(|name| Some(*name) == node.metadata.name.as_deref()) {
                    annotate(node, names::TEMPLATE_APPLIED_ANNOTATION, &text);
                }
            }
        }
    }

    #[test]
    fn nodes_whose_change_is_always_refused_do_not_keep_it_from_the_others() {
        // No update succeeds, and the passes come at a regular interval.
        for interval in [1, 2, 60] {
            let mut tried = BTreeSet::new();
            for pass in 0..60 {
                let update = |node| step(node, NodeAction::Update(json!([])));
                let steps = paced(nodes(120).into_iter().map(update).collect(), at(pass * interval));
                let updates = steps.iter().filter(|step| matches!(step.action, NodeAction::Update(_)));
                let names: Vec<_> = updates.map(|step| step.member.name().to_owned()).collect();
                assert_eq!(names.len(), MOST_UPDATES);
                tried.extend(names);
            }
            assert_eq!(tried.len(), 120, "every {interval} seconds");
        }
    }
}
