//! What the checks read of a plan and of a pod: the new nodes of a pool, and what one pod asks for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use planner::ScalingPlan;
use planner::input::PodInfo;
use planner_mixes::ZONE_KEY;
use shared_crds::QualifiedName;
use shared_crds::quantity::Exact;

/// New nodes of a pool, and what one of them has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer<'a> {
    pub(crate) zone: &'a str,
    pub(crate) nodes: usize,
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) pods: i64,
}

/// Every pool of a plan, by `namespace/name`.
pub(crate) fn pools(plan: &ScalingPlan) -> BTreeMap<String, Offer<'_>> {
    let offers = plan.pools.iter().map(|decision| {
        let id = QualifiedName::of(&decision.object.metadata).to_string();
        let nodes = usize::try_from(decision.desired - decision.current).unwrap_or(0);
        let template = &decision.object.spec.template;
        let labels = template.metadata.as_ref().map(|m| &m.labels);
        let zone = labels.and_then(|l| l.get(ZONE_KEY)).map(String::as_str).unwrap_or_default();
        let capacity = Some(&template.spec.capacity);
        let offer = Offer {
            zone,
            nodes,
            cpu: amount(capacity, "cpu").milli(),
            memory: amount(capacity, "memory").units(),
            pods: amount(capacity, "pods").units(),
        };
        (id, offer)
    });
    offers.collect()
}

pub(crate) fn name(pod: &PodInfo) -> &str {
    pod.key().1
}

pub(crate) fn label<'a>(pod: &'a PodInfo, key: &str) -> Option<&'a str> {
    pod.labels().get(key).map(String::as_str)
}

/// Requests of a pod of the mixes: it has one container.
pub(crate) fn requests(pod: &PodInfo) -> Option<&BTreeMap<String, Quantity>> {
    pod.spec()?.containers.first()?.resources.as_ref()?.requests.as_ref()
}

pub(crate) fn amount(amounts: Option<&BTreeMap<String, Quantity>>, name: &str) -> Exact {
    let text = amounts.and_then(|a| a.get(name)).map_or("0", |quantity| &quantity.0);
    Exact::parse(text).unwrap_or(Exact::ZERO)
}
