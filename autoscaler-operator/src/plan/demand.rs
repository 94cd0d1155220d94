//! The pending pods of a pass, grouped: pods with equal requests, constraints and priority are one [`Group`], and are
//! placed together.
//!
//! Groups come in the order in which pods are considered: priority first, as in the scheduler's queue; then the
//! greater share of a node first, which packs better; then by name, so that the order is always the same.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use super::{
    constraints::Constraints,
    pods, requests,
    resources::{Amounts, Names, Resource},
};

/// Pods that are alike to the planner.
#[derive(Clone, Debug)]
pub struct Group {
    /// Index into [`Demand::classes`].
    pub class: usize,
    /// What one of the pods asks for.
    pub request: Amounts,
    /// Their priority.
    pub priority: i32,
    /// The pods, as indexes into the pass's pods, by namespace and name.
    pub pods: Vec<usize>,
}

/// All pending pods.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// The different constraints that occur.
    pub classes: Vec<Constraints>,
    /// The groups, in the order to consider them.
    pub groups: Vec<Group>,
    /// Pods whose requests cannot be read, with what is wrong.
    pub unreadable: Vec<(usize, String)>,
}

impl Demand {
    /// Groups the pending ones among `pods`, which are in the order of namespaces and names. `reference` is the amount
    /// of each resource that a large node has; the size of a pod is measured against it.
    pub fn of(all_pods: &[Arc<Pod>], names: &mut Names, reference: &Amounts) -> Self {
        let mut classes: BTreeMap<Constraints, usize> = BTreeMap::new();
        let mut groups: BTreeMap<(i32, usize, Amounts), Vec<usize>> = BTreeMap::new();
        let mut unreadable = Vec::new();
        for (index, pod) in all_pods.iter().enumerate().filter(|(_, pod)| pods::is_pending(pod)) {
            match requests::of(pod, names) {
                Ok(request) => {
                    let next = classes.len();
                    let class = *classes.entry(Constraints::of(pod)).or_insert(next);
                    groups.entry((pods::priority(pod), class, request)).or_default().push(index);
                }
                Err(problem) => unreadable.push((index, problem.to_string())),
            }
        }
        let mut groups: Vec<_> = groups
            .into_iter()
            .map(|((priority, class, request), pods)| {
                (share(&request, reference), Group { class, request, priority, pods })
            })
            .collect();
        groups.sort_by_key(|(share, group)| {
            // Pods are numbered in the order of their names.
            (Reverse(group.priority), Reverse(*share), group.pods.first().copied())
        });
        let mut ordered: Vec<_> = classes.into_iter().collect();
        ordered.sort_by_key(|(_, id)| *id);
        Self {
            classes: ordered.into_iter().map(|(constraints, _)| constraints).collect(),
            groups: groups.into_iter().map(|(_, group)| group).collect(),
            unreadable,
        }
    }
}

/// The sum, over resources, of the share of a large node that a pod takes, in millionths.
fn share(request: &Amounts, reference: &Amounts) -> i128 {
    let of = |(resource, amount): (Resource, i64)| {
        i128::from(amount) * 1_000_000 / i128::from(reference.get(resource).max(1))
    };
    request.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::resources::Basic;

    fn pending(name: &str, cpu: &str, priority: i32, zone: Option<&str>) -> Arc<Pod> {
        let selector = zone.map(|zone| json!({ "zone": zone }));
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": name, "namespace": "ns" },
                "spec": { "priority": priority, "nodeSelector": selector,
                          "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
                "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] }
            }))
            .unwrap(),
        )
    }

    fn reference() -> Amounts {
        let mut reference = Amounts::default();
        reference.set(Resource::Basic(Basic::Cpu), 4000);
        reference.set(Resource::Basic(Basic::Pods), 110);
        reference
    }

    #[test]
    fn like_pods_are_one_group_and_priority_comes_before_size() {
        let pods = [
            pending("a", "100m", 0, None),
            pending("b", "2", 0, None),
            pending("c", "0.1", 0, None),
            pending("d", "50m", 10, None),
            pending("e", "100m", 0, Some("x")),
            pending("f", "nonsense", 0, None),
        ];
        let demand = Demand::of(&pods, &mut Names::default(), &reference());
        let groups: Vec<_> = demand.groups.iter().map(|g| g.pods.clone()).collect();
        assert_eq!(groups, [vec![3], vec![1], vec![0, 2], vec![4]]);
        assert_eq!(demand.classes.len(), 2);
        assert_eq!(demand.unreadable.len(), 1);
    }
}
