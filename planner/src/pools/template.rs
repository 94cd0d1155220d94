//! A new node of a pool: what its template says, corrected by what its nodes have shown.

use std::collections::BTreeMap;

use shared_crds::NodePool;
use shared_crds::quantity::Exact;
use shared_crds::v1alpha1::{
    ASSUMED_POD_CAPACITY, BeliefKind, DiscoveredBelief, DiscoveredResources, NodeTemplateSpec, validity,
};

use crate::index::PassNodeIndex;
use crate::input::observed::{Observed, PassNodes};
use crate::input::promise::Promise;
use crate::pools::agents::Agent;
use crate::pools::beliefs;
use crate::pools::discovered::{self, Lesson, Teachers};
use crate::pools::shared_taints::SharedTaints;
use crate::pools::stuck_taints::StuckTaints;
use crate::requirements::node_profile::{NodeProfile, RepellingTaint};
use crate::resources::{Amounts, ExactAmounts, InvalidAmount, Resource, ResourceNames, counted, exact};

/// `maxItems` of `status.autoscaling.discovered.pods`.
const MAX_PODS: usize = 32;

/// A new node of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Labels and taints: what the template says, the labels and taints that its nodes have shown to share, and the startup taints
    /// that they have shown to keep.
    pub profile: NodeProfile,
    /// The labels that the pool declares, without those of its nodes.
    pub declared_labels: BTreeMap<String, String>,
    /// Its allocatable resources: what the template leaves to pods, or what its nodes have turned out to give them.
    pub allocatable: Amounts,
    /// Those of its allocatable resources that are GPUs.
    pub gpus: Vec<Resource>,
    /// What the template leaves to pods.
    pub promised: Amounts,
    /// What its nodes have shown, where the template does not say so.
    pub discovered: Option<DiscoveredResources>,
    /// The pods that run on each of its nodes and that no `DaemonSet`'s template describes.
    pub agents: Vec<Agent>,
    /// What a node of it gets some time after it is Ready.
    pub promise: Promise,
    /// The nodes that show what new ones will have.
    pub teachers: Teachers,
    /// The startup taints that its nodes have shown to keep.
    pub stuck_taints: Option<StuckTaints>,
    /// The taints that its nodes have shown to share.
    pub shared_taints: Option<SharedTaints>,
    /// Its capacity; expanders measure waste against it, as Cluster Autoscaler's do.
    pub capacity: Amounts,
}

impl Template {
    /// The template of `pool`, whose nodes that are not being removed are `staying`.
    ///
    /// # Errors
    ///
    /// A message, if the `NodePool` operator creates no node of such a pool.
    pub(crate) fn of(
        pool: &NodePool,
        staying: &[PassNodeIndex],
        all_nodes: &PassNodes,
        observed: &Observed,
        names: &mut ResourceNames,
    ) -> Result<Self, String> {
        let valid = validity::check(pool).and_then(|()| validity::check_capacity(pool));
        valid.map_err(|problem| problem.to_string())?;
        Self::read(pool, staying, all_nodes, observed, names).map_err(|problem| problem.to_string())
    }

    /// The taints that its nodes are meant to keep.
    pub(crate) fn lasting_taints(&self) -> impl Iterator<Item = &RepellingTaint> {
        let stuck = self.stuck_taints.iter().flat_map(|stuck| &stuck.taints);
        self.profile.taints.iter().filter(move |taint| !stuck.clone().any(|stuck| stuck == *taint))
    }

    /// The taints that the pool declares, and the startup taints that its nodes keep, without those that they share.
    pub(crate) fn balanced_taints(&self) -> impl Iterator<Item = &RepellingTaint> {
        let learnt = self.shared_taints.as_ref().map(SharedTaints::learnt).unwrap_or_default();
        self.profile.taints.iter().filter(move |taint| !learnt.contains(taint))
    }

    /// Has each new node run `agents`. They are remembered unless they are a memory themselves.
    pub(crate) fn set_agents(&mut self, agents: Vec<Agent>) {
        self.agents = agents;
        let Some(template_hash) = self.promise.template_hash.clone().filter(|_| !self.teachers.is_empty())
        else {
            return;
        };
        let new = || DiscoveredResources { template_hash, ..DiscoveredResources::default() };
        let mut known = self.discovered.take().unwrap_or_else(new);
        known.pods = self.agents.iter().take(MAX_PODS).map(|agent| agent.pod.clone()).collect();
        if !known.pods.is_empty() {
            beliefs::learn(&mut known.beliefs, BeliefKind::Pods, "");
        } else if !self.teachers.settled.is_empty() {
            known.beliefs.retain(|belief| belief.kind != BeliefKind::Pods);
        }
        self.discovered = Some(known).filter(|known| !discovered::is_empty(known));
    }

    fn read(
        pool: &NodePool,
        staying: &[PassNodeIndex],
        all_nodes: &PassNodes,
        observed: &Observed,
        names: &mut ResourceNames,
    ) -> Result<Self, InvalidAmount> {
        let NodeTemplateSpec { reserved, .. } = &pool.spec.template.spec;
        let mut capacity = exact(&pool.capacity())?;
        let unlimited = Exact::parse(&ASSUMED_POD_CAPACITY.to_string()).unwrap_or(Exact::ZERO);
        capacity.entry("pods".to_owned()).or_insert(unlimited);
        let promised = less(&capacity, &exact(reserved)?);
        let mut profile = NodeProfile::of_template(pool);
        let declared_labels = profile.labels.clone();
        let declared = pool.spec.template.metadata.iter().flat_map(|metadata| metadata.labels.keys());
        let earlier = pool.spec.earlier_template_hashes();
        let mut promise = Promise {
            template_hash: pool.spec.template_hash(),
            earlier_hashes: earlier.into_iter().map(|earlier| earlier.hash).collect(),
            resources: ExactAmounts::new(),
            labels: declared.cloned().collect(),
        };
        let remembered = observed
            .remembered(pool)
            .and_then(|status| status.discovered.as_ref())
            .filter(|known| promise.is_of(&known.template_hash));
        let mut allocatable = promised.clone();
        if let Some(known) = remembered {
            discovered::apply(&mut allocatable, known);
        }
        promise.resources = devices(&allocatable);
        let teachers = Teachers::of(pool, &promise, staying, all_nodes, observed.now);
        let lesson = Lesson { pool, promised: &promised, profile: &profile, remembered, now: observed.now };
        let discovered = promise.template_hash.as_ref().and_then(|hash| {
            lesson.learn(hash, &teachers.of_settled(all_nodes), &teachers.of_young(all_nodes))
        });
        allocatable.clone_from(&promised);
        if let Some(known) = &discovered {
            discovered::apply(&mut allocatable, known);
            profile.add_labels(&known.labels);
            promise.labels.extend(known.labels.keys().cloned());
        }
        promise.resources = devices(&allocatable);
        let mut beliefs = discovered.as_ref().map(|known| known.beliefs.clone()).unwrap_or_default();
        let stuck_taints = StuckTaints::of(pool, &profile, &teachers, all_nodes, &mut beliefs, observed.now);
        let shared_taints =
            SharedTaints::of(pool, &profile, &teachers, all_nodes, &mut beliefs, observed.now);
        let discovered = believing(discovered, beliefs, promise.template_hash.as_ref());
        if let Some(stuck) = &stuck_taints {
            profile.add_taints(&stuck.taints);
        }
        if let Some(shared) = &shared_taints {
            profile.add_taints(shared.learnt());
        }
        let allocatable = counted(&allocatable, names);
        Ok(Self {
            profile,
            declared_labels,
            gpus: names.gpus_of(&allocatable),
            allocatable,
            promised: counted(&promised, names),
            discovered,
            agents: Vec::new(),
            promise,
            teachers,
            stuck_taints,
            shared_taints,
            capacity: counted(&capacity, names),
        })
    }
}

/// What has been discovered of a template, with what is remembered to keep pods away.
fn believing(
    discovered: Option<DiscoveredResources>,
    beliefs: Vec<DiscoveredBelief>,
    template_hash: Option<&String>,
) -> Option<DiscoveredResources> {
    let new =
        |hash: &String| DiscoveredResources { template_hash: hash.clone(), ..DiscoveredResources::default() };
    let known = discovered.or_else(|| template_hash.map(new))?;
    Some(DiscoveredResources { beliefs, ..known }).filter(|known| !discovered::is_empty(known))
}

/// The resources that a node may get some time after it is Ready, and how much of each it has at least when it is complete:
/// see [`Promise::resources`].
fn devices(allocatable: &ExactAmounts) -> ExactAmounts {
    let all =
        allocatable.iter().filter(|(name, amount)| discovered::is_device(name) && **amount > Exact::ZERO);
    let least = |name: &str, amount| if discovered::comes_in_parts(name) { amount } else { Exact::ZERO };
    all.map(|(name, &amount)| (name.clone(), least(name, amount))).collect()
}

fn less(capacity: &ExactAmounts, reserved: &ExactAmounts) -> ExactAmounts {
    let left = |name: &String, amount: Exact| {
        amount.minus(reserved.get(name).copied().unwrap_or(Exact::ZERO)).max(Exact::ZERO)
    };
    capacity.iter().map(|(name, &amount)| (name.clone(), left(name, amount))).collect()
}
