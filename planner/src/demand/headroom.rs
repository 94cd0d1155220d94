//! Headroom: virtual pods, placed after all others onto the pools of the autoscaler that requests them.
//!
//! They run on every node of those pools that takes pods, whatever the pool's taints: the room is kept for pods that
//! tolerate them.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared_crds::names::{MEMBER_LABEL, MEMBER_NAMESPACE_LABEL};
use shared_crds::v1alpha1::Headroom;
use shared_crds::{NodePoolAutoscaler, QualifiedName};

use super::model::Demand;
use crate::input::observed::key;
use crate::input::selection::AutoscalerAssignment;
use crate::numbers::count;
use crate::pools::{Pool, Template};
use crate::requirements::constraints::{
    Constraints, NodeRequirement, NodeTerm, RequirementOperator, Tolerated,
};
use crate::requirements::pod_class::PodClass;
use crate::resources::{Basic, Resource, ResourceNames, counted, exact};

/// Adds the headroom of `pools` to `demand`, and its classes.
pub(crate) fn add(demand: &mut Demand, pools: &[Pool], names: &mut ResourceNames) {
    for (autoscaler, pools) in by_autoscaler(pools) {
        if autoscaler.spec.headroom.is_empty() {
            continue;
        }
        let constraint_set = demand.constraint_sets.push(constraints(&pools));
        for (at, headroom) in autoscaler.spec.headroom.iter().enumerate() {
            let Headroom { count: pods, requests } = headroom;
            match exact(requests) {
                Ok(requests) => {
                    let mut request = counted(&requests, names);
                    request.set(Resource::Basic(Basic::Pods), 1);
                    let class = PodClass { request, constraint_set, ..PodClass::default() };
                    demand.headroom.push((demand.classes.push(class), count(*pods)));
                }
                Err(problem) => {
                    let name = QualifiedName::of(&autoscaler.metadata);
                    let field = format!("spec.headroom[{at}].requests");
                    demand.warnings.push(format!(
                        "headroom of NodePoolAutoscaler {name} is left out: {problem} in {field}"
                    ));
                }
            }
        }
    }
}

/// The pools that may change in this pass, by the autoscaler that plans them.
fn by_autoscaler(pools: &[Pool]) -> Vec<(&Arc<NodePoolAutoscaler>, Vec<&Pool>)> {
    let mut found = BTreeMap::new();
    for pool in pools.iter().filter(|pool| pool.is_planned()) {
        if let AutoscalerAssignment::Planned(autoscaler) = &pool.assignment {
            let (_, of) = found.entry(key(&autoscaler.metadata)).or_insert((autoscaler, Vec::new()));
            of.push(pool);
        }
    }
    found.into_values().collect()
}

/// Restricts to nodes of these pools, whatever taints their templates have.
fn constraints(pools: &[&Pool]) -> Constraints {
    let rule = |label: &str, mut values: Vec<String>| {
        values.sort_unstable();
        values.dedup();
        NodeRequirement { key: label.to_owned(), operator: RequirementOperator::In, values }
    };
    let names = |of: fn(&Pool) -> String| pools.iter().map(|pool| of(pool)).collect();
    let namespaces = names(|pool| pool.object.metadata.namespace.clone().unwrap_or_default());
    let names = names(|pool| pool.object.metadata.name.clone().unwrap_or_default());
    let labels = vec![rule(MEMBER_LABEL, names), rule(MEMBER_NAMESPACE_LABEL, namespaces)];
    let templates = pools.iter().filter_map(|pool| pool.template.as_ref().ok());
    let taints = templates.flat_map(Template::lasting_taints);
    let mut tolerations: Vec<_> = taints
        .map(|taint| Tolerated {
            key: taint.key.clone(),
            operator: "Equal".to_owned(),
            value: taint.value.clone(),
            effect: taint.effect.clone(),
        })
        .collect();
    tolerations.sort_unstable();
    tolerations.dedup();
    Constraints {
        affinity: Some(vec![NodeTerm { labels, fields: Vec::new() }]),
        tolerations,
        ..Constraints::default()
    }
}
