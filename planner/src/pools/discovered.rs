//! What the nodes of a pool have shown, where its template does not say so. Real machines have less than their type's name says:
//! firmware, kernel and kubelet keep a part. They have more, too: labels, disks and devices that the template does not name.
//! Without this, a pod that fits the template and no real node would make the pool grow for as long as it is pending, and one
//! that fits real nodes only would wait for ever.
//!
//! What runs on every node is learnt elsewhere, in [`crate::demand::node_agents`]; it is only remembered here.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use shared_crds::NodePool;
use shared_crds::quantity::Exact;
use shared_crds::v1alpha1::{BeliefKind, DiscoveredResources};

use crate::index::PassNodeIndex;
use crate::input::nodes;
use crate::input::observed::PassNodes;
use crate::input::promise::{Promise, gives};
use crate::pools::beliefs;
use crate::pools::learnt_labels::{LabelledNodes, LearntLabels, MAX_LABELS, SEVERAL, are_most};
use crate::requirements::node_profile::NodeProfile;
use crate::resources::ExactAmounts;
use crate::steps;
use crate::time::later;

/// The resources that every node has, and reports when it registers.
const BASIC: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// The basic resources that every template names, or that have a value without it. They are compared, and never added.
const NAMED: [&str; 3] = ["cpu", "memory", "pods"];

/// Domain of resources that schedulers compute from the present load, such as Koordinator's `kubernetes.io/batch-cpu`: they are
/// another amount each minute. The API reserves it, so that no device is in it.
const COMPUTED: &str = "kubernetes.io/";

/// How many settled nodes must lack a part of a device that the template promises: on one node it may have failed. When that was
/// believed and one more node is tried, that one is enough.
const NODES_WITHOUT_DEVICE: usize = 2;

/// `maxProperties` of `status.autoscaling.discovered.allocatable`.
const MAX_RESOURCES: usize = 32;

/// The nodes that show what a new one will have: of the pool's template as it is now. As indexes into the pass's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Teachers {
    /// Ready ones that are older than the provisioning timeout: what they lack will not come.
    pub settled: Vec<PassNodeIndex>,
    /// Younger ones that are complete, and may still get labels and static pods.
    pub young: Vec<PassNodeIndex>,
    /// Those that are starting. They show nothing but the pods that they run already.
    pub starting: Vec<PassNodeIndex>,
}

impl Teachers {
    /// Those among the nodes `staying` of `pool`.
    pub(crate) fn of(
        pool: &NodePool,
        promise: &Promise,
        staying: &[PassNodeIndex],
        all_nodes: &PassNodes,
        now: Timestamp,
    ) -> Self {
        let mut teachers = Self::default();
        if promise.template_hash.is_none() {
            return teachers;
        }
        steps::count(staying.len());
        for &index in staying {
            let node = &all_nodes[index];
            if !nodes::template_hash(node).is_some_and(|hash| promise.is_of(hash)) {
                continue;
            }
            let is_starting = nodes::starting_until(node, pool).is_some_and(|until| until > now);
            let is_settled = nodes::provisioned_until(node, pool).is_none_or(|until| until <= now);
            if is_starting || !is_settled && !promise.is_kept_by(node) {
                teachers.starting.push(index);
            } else if nodes::is_ready(node) {
                if is_settled { &mut teachers.settled } else { &mut teachers.young }.push(index);
            }
        }
        teachers
    }

    /// Whether no node is up that shows anything.
    pub(crate) const fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.young.is_empty()
    }

    /// The objects of the settled ones.
    pub(crate) fn of_settled<'a>(&self, all_nodes: &'a PassNodes) -> Vec<&'a Node> {
        self.settled.iter().map(|&index| &*all_nodes[index]).collect()
    }

    /// The objects of the young ones.
    pub(crate) fn of_young<'a>(&self, all_nodes: &'a PassNodes) -> Vec<&'a Node> {
        self.young.iter().map(|&index| &*all_nodes[index]).collect()
    }
}

/// What a pool's nodes are compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lesson<'a> {
    /// The pool.
    pub pool: &'a NodePool,
    /// What its template leaves to pods.
    pub promised: &'a ExactAmounts,
    /// A new node as the template says.
    pub profile: &'a NodeProfile,
    /// What is remembered of nodes of this template.
    pub remembered: Option<&'a DiscoveredResources>,
    /// The time of the pass.
    pub now: Timestamp,
}

/// Amounts that nodes have shown.
#[derive(Default)]
struct LearntAmounts {
    allocatable: BTreeMap<String, Quantity>,
    /// Resources beyond the template that were learnt and that not all nodes have.
    varying: BTreeSet<String>,
}

impl Lesson<'_> {
    /// What the nodes have shown, where the template does not say so; `None` if they are as it says. `settled` and `young` are
    /// the pool's [`Teachers`].
    ///
    /// Of what the template promises the largest amount counts: it shows that a machine of the pool can have that much, while a
    /// smaller one may be a fault of that machine. Of what it does not promise the smallest does: each node has that much.
    pub(crate) fn learn(
        &self,
        template_hash: &str,
        settled: &[&Node],
        young: &[&Node],
    ) -> Option<DiscoveredResources> {
        if settled.is_empty() && young.is_empty() {
            return self.recall();
        }
        steps::count((settled.len() + young.len()) * (1 + self.promised.len()));
        let labelled = LabelledNodes { pool: self.pool, profile: self.profile, settled, young };
        let LearntLabels { labels, mut varying } = labelled.learn(self.remembered);
        let mut amounts = LearntAmounts::default();
        self.compare(settled, young, &mut amounts);
        self.compare_devices(settled, young, &mut amounts);
        self.add_unnamed(settled, young, &mut amounts);
        varying.extend(amounts.varying);
        let allocatable: BTreeMap<_, _> = amounts.allocatable.into_iter().take(MAX_RESOURCES).collect();
        varying.retain(|name| !allocatable.contains_key(name));
        let mut beliefs = self.remembered.map(|known| known.beliefs.clone()).unwrap_or_default();
        beliefs.retain(|known| {
            known.kind != BeliefKind::Resource || !self.is_refuted(&known.name, settled, young)
        });
        for name in allocatable.keys().filter(|name| self.keeps_away(name)) {
            beliefs::learn(&mut beliefs, BeliefKind::Resource, name);
        }
        let found = DiscoveredResources {
            allocatable,
            labels,
            varying: varying.into_iter().take(MAX_LABELS).collect(),
            pods: self.remembered.map(|known| known.pods.clone()).unwrap_or_default(),
            template_hash: template_hash.to_owned(),
            until_time: None,
            beliefs,
        };
        (!is_empty(&found)).then_some(found)
    }

    /// What is remembered without a node. What keeps pods away is forgotten after a while, except for how often that was so; labels,
    /// and amounts beyond the template, are kept: without them a pod that only real nodes take would never bring the first one.
    fn recall(&self) -> Option<DiscoveredResources> {
        let mut known = self.remembered?.clone();
        let mut until = known.until_time.take().map(|time| time.0);
        while let Some(seconds) = self.shortest(&known) {
            let end = *until.get_or_insert_with(|| later(self.now, seconds));
            if end > self.now {
                known.until_time = Some(Time(end));
                break;
            }
            for (kind, name, of_it) in self.held(&known) {
                if of_it > seconds {
                    continue;
                }
                if kind == BeliefKind::Pods {
                    known.pods.clear();
                } else {
                    known.allocatable.remove(&name);
                }
                beliefs::end(&mut known.beliefs, kind, &name, end);
            }
            until = self.shortest(&known).map(|longer| later(end, longer - seconds));
        }
        (!is_empty(&known)).then_some(known)
    }

    /// What is remembered that keeps pods away, and for how many seconds it is believed without a node.
    fn held(&self, known: &DiscoveredResources) -> Vec<(BeliefKind, String, i32)> {
        let amounts = known.allocatable.keys().filter(|name| self.keeps_away(name));
        let amounts = amounts.map(|name| (BeliefKind::Resource, name.clone()));
        let pods = (!known.pods.is_empty()).then(|| (BeliefKind::Pods, String::new()));
        let with_seconds = |(kind, name): (BeliefKind, String)| {
            let seconds = beliefs::seconds_of(&known.beliefs, kind, &name);
            (kind, name, seconds)
        };
        amounts.chain(pods).map(with_seconds).collect()
    }

    /// For how many seconds that is believed of it which goes first.
    fn shortest(&self, known: &DiscoveredResources) -> Option<i32> {
        self.held(known).into_iter().map(|(_, _, seconds)| seconds).min()
    }

    /// Whether the amount of a resource that nodes show, or that is remembered, takes from what the template promises.
    fn keeps_away(&self, name: &str) -> bool {
        self.promised.contains_key(name)
    }

    /// Whether a node has as much of a resource as the template promises.
    fn is_refuted(&self, name: &str, settled: &[&Node], young: &[&Node]) -> bool {
        let Some(promised) = self.promised.get(name) else { return true };
        let amounts = settled.iter().chain(young).filter_map(|node| quantity(node, name));
        amounts.filter_map(|text| Exact::parse(&text.0).ok()).any(|amount| amount >= *promised)
    }

    /// The basic resources of which all nodes have less than promised.
    fn compare(&self, settled: &[&Node], young: &[&Node], found: &mut LearntAmounts) {
        for name in BASIC {
            let Some(promised) = self.promised.get(name) else { continue };
            let quantities = settled.iter().chain(young).filter_map(|node| quantity(node, name));
            if let Some((largest, text)) = most(quantities, |amount, known| amount > known)
                && largest < *promised
            {
                found.allocatable.insert(name.to_owned(), text.clone());
            }
        }
    }

    /// The devices of which all nodes have fewer than promised: some, or none although their time to register them is over.
    fn compare_devices(&self, settled: &[&Node], young: &[&Node], found: &mut LearntAmounts) {
        let none = Quantity("0".to_owned());
        for (name, promised) in self.promised.iter().filter(|(name, _)| is_device(name)) {
            let known = self.remembered.and_then(|known| known.allocatable.get(name));
            let is_tried_anew =
                self.remembered.is_some_and(|it| beliefs::has_ended(&it.beliefs, BeliefKind::Resource, name));
            let enough = if is_tried_anew { 1 } else { NODES_WITHOUT_DEVICE };
            if known.is_none() && settled.len() < enough {
                continue;
            }
            let of_settled = settled.iter().map(|node| quantity(node, name).unwrap_or(&none));
            let of_young = young.iter().filter_map(|node| quantity(node, name));
            let shown = of_settled.chain(of_young).chain(known.filter(|_| settled.is_empty()));
            if let Some((largest, text)) = most(shown, |amount, known| amount > known)
                && largest < *promised
            {
                found.allocatable.insert(name.clone(), text.clone());
            }
        }
    }

    /// The resources that the template does not name and that all nodes have. As for labels, what is remembered is lost when
    /// not most of the settled nodes have it, and is counted on again when several have it, and all of them.
    fn add_unnamed(&self, settled: &[&Node], young: &[&Node], found: &mut LearntAmounts) {
        let remembered = self.remembered.map(|known| &known.allocatable);
        let is_varying = |name: &str| {
            self.remembered.is_some_and(|known| known.varying.iter().any(|varying| varying == name))
        };
        let first = settled.first().map_or(young, std::slice::from_ref);
        let shown = first.iter().filter_map(|node| allocatable(node)).flat_map(BTreeMap::keys);
        let names: BTreeSet<&str> =
            shown.chain(remembered.into_iter().flat_map(BTreeMap::keys)).map(String::as_str).collect();
        for name in names {
            let is_open = (BASIC.contains(&name) && !NAMED.contains(&name))
                || (is_device(name) && !name.starts_with(COMPUTED));
            if !is_open || self.promised.contains_key(name) {
                continue;
            }
            let known = remembered.and_then(|known| known.get(name));
            let having = settled.iter().filter(|node| gives(node, name)).count();
            let all_have = having == settled.len();
            let counts = if is_varying(name) {
                all_have && having >= SEVERAL
            } else {
                all_have || known.is_some() && are_most(having, settled.len())
            };
            if !counts {
                if known.is_some() {
                    found.varying.insert(name.to_owned());
                }
                continue;
            }
            if let Some(text) = unnamed_amount(name, settled, young, known) {
                found.allocatable.insert(name.to_owned(), text.clone());
            }
        }
    }
}

/// Whether nothing has been discovered.
pub(crate) fn is_empty(found: &DiscoveredResources) -> bool {
    let DiscoveredResources { allocatable, labels, varying, pods, template_hash: _, until_time: _, beliefs } =
        found;
    allocatable.is_empty() && labels.is_empty() && varying.is_empty() && pods.is_empty() && beliefs.is_empty()
}

/// Whether a resource is a device, or of another kind that a Ready node may report later: it has a domain, or is huge pages.
pub(crate) fn is_device(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-")
}

/// Whether a node may show some of the resource at first, and all of it later: an extended resource. The kubelet counts huge pages
/// when it starts, and what schedulers compute has no full amount.
pub(crate) fn comes_in_parts(name: &str) -> bool {
    name.contains('/') && !name.starts_with(COMPUTED)
}

/// Lowers what the template leaves to pods to what has been discovered, and adds what the template does not name.
pub(crate) fn apply(promised: &mut ExactAmounts, discovered: &DiscoveredResources) {
    for (name, quantity) in &discovered.allocatable {
        let Ok(real) = Exact::parse(&quantity.0) else { continue };
        let real = real.max(Exact::ZERO);
        if let Some(promised) = promised.get_mut(name) {
            *promised = real.min(*promised);
        } else if !NAMED.contains(&name.as_str()) {
            promised.insert(name.clone(), real);
        }
    }
}

fn allocatable(node: &Node) -> Option<&BTreeMap<String, Quantity>> {
    node.status.as_ref()?.allocatable.as_ref()
}

fn quantity<'a>(node: &'a Node, name: &str) -> Option<&'a Quantity> {
    allocatable(node)?.get(name)
}

/// How much of a resource that the template does not name a new node will have: the smallest amount of those that nodes show and
/// that are remembered, so that it does not rise and fall as nodes come and go. What is `known` no longer counts when several
/// settled nodes have the resource, all of them as much.
fn unnamed_amount<'a>(
    name: &str,
    settled: &[&'a Node],
    young: &[&'a Node],
    known: Option<&'a Quantity>,
) -> Option<&'a Quantity> {
    let given = |nodes: &[&'a Node]| -> Vec<&'a Quantity> {
        let having = nodes.iter().copied().filter(|node| gives(node, name));
        having.filter_map(|node| quantity(node, name)).collect()
    };
    let settled = given(settled);
    let is_same = |pair: &[&Quantity]| Exact::parse(&pair[0].0).ok() == Exact::parse(&pair[1].0).ok();
    let agree = settled.len() >= SEVERAL && settled.windows(2).all(is_same);
    let shown = settled.into_iter().chain(given(young)).chain(known.filter(|_| !agree));
    most(shown, |amount, smallest| amount < smallest).map(|(_, text)| text)
}

/// The amount that is `better` than all others, and how the node says it. Most nodes of a pool say the same.
fn most<'a>(
    quantities: impl Iterator<Item = &'a Quantity>,
    better: impl Fn(Exact, Exact) -> bool,
) -> Option<(Exact, &'a Quantity)> {
    quantities.fold(None, |best, quantity| {
        if best.is_some_and(|(_, known)| known == quantity) {
            return best;
        }
        let Ok(amount) = Exact::parse(&quantity.0) else { return best };
        Some((amount, quantity)).filter(|_| best.is_none_or(|(known, _)| better(amount, known))).or(best)
    })
}

#[cfg(test)]
#[path = "discovered_tests.rs"]
mod tests;
