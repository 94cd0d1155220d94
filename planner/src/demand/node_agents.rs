//! What runs on every node of a pool and is not the pod of a `DaemonSet` as its template says, learnt from the pool's nodes:
//! static pods, which no object announces; pods that an annotation makes a `DaemonSet`'s; pods of a `DaemonSet` that ask for
//! other amounts than its template, because a `LimitRange`, an autoscaler or another webhook has changed them. Without this, a
//! pod that fits beside the templates' daemons only would have the pool grow for as long as it is pending.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use shared_crds::v1alpha1::DiscoveredPod;

use super::model::Demand;
use super::present_templates::PresentTemplates;
use crate::index::{Indexed, PassNodeIndex, PoolIndex};
use crate::input::last_template::LastTemplate;
use crate::input::observed::{PassInput, key};
use crate::input::pod_info::{Labels, PodInfo};
use crate::input::pods;
use crate::pools::Pools;
use crate::pools::agents::{Agent, AgentKey, DAEMON_SET, record, with_ports_and_labels};
use crate::pools::discovered::Teachers;
use crate::pools::learnt_labels::are_most;
use crate::requirements::pod_class::PodClassId;
use crate::resources::ResourceNames;
use crate::steps;

/// What is already on the nodes that are starting, by the index of the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeAgents<'a> {
    starting: BTreeMap<PassNodeIndex, Present<'a>>,
}

/// What is already on a node that is starting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Present<'a> {
    /// The agents that have a pod there.
    pub agents: BTreeSet<AgentKey<'a>>,
    /// Priority and class of each pod.
    pub pods: Vec<(i32, PodClassId)>,
}

/// What a node is looked at for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Role {
    /// The pool for which it shows what new nodes will run.
    teaches: Option<PoolIndex>,
    /// Whether it is starting: what it does not run yet is still to come.
    starts: bool,
}

/// The pods of one agent on the nodes that show what new nodes of a pool will run.
#[derive(Clone, Debug)]
struct Sightings<'a> {
    /// The one that started last: what admission and autoscalers give it now.
    newest: Sighting<'a>,
    /// The nodes, one for each pod.
    nodes: Vec<PassNodeIndex>,
}

/// A pod of an agent.
#[derive(Clone, Copy, Debug)]
struct Sighting<'a> {
    started: Option<Timestamp>,
    class: PodClassId,
    labels: &'a Labels,
}

/// What has the pods of a template run on each node.
#[derive(Clone, Copy, Debug)]
enum Runner<'a> {
    /// A controller.
    Controller(&'a OwnerReference),
    /// Nothing but the pod itself; its name tells its node. With the kind of agents that such pods are.
    Itself(&'static str),
}

impl<'a> NodeAgents<'a> {
    /// Gives the pools' templates the agents that their nodes have shown, in one pass over the pods.
    ///
    /// An agent counts if each settled node runs it, and one that is remembered for as long as most of several do: a node may
    /// have lost it. While there is no settled node, it counts if each young one runs it, or if it is remembered: the kubelet
    /// creates static pods some time after the node is Ready. While there is no young one either, those that are starting tell,
    /// as far as they run any: a pod that does not fit beside them would have the pool grow with each pass. The pods of a known
    /// `DaemonSet` need not be everywhere, since its template says where they run; those of another template than the present one
    /// show nothing of what new nodes will run.
    pub(crate) fn learn(
        input: PassInput<'a>,
        demand: &Demand,
        pools: &mut Pools,
        names: &mut ResourceNames,
    ) -> Self {
        let roles = roles(input, pools);
        let templates = PresentTemplates::of(&demand.daemon_sets, input.pods);
        let mut starting: BTreeMap<PassNodeIndex, Present<'a>> = BTreeMap::new();
        let mut seen: Indexed<PoolIndex, HashMap<AgentKey<'a>, Sightings<'a>>> =
            vec![HashMap::new(); pools.len()].into();
        if roles.iter().any(|role| *role != Role::default()) {
            steps::count(input.pods.len());
            let (mut last, mut generations) = (LastTemplate::default(), LastTemplate::default());
            for (pod, placed) in input.pods.iter().zip(&demand.placed) {
                let Some((class, node)) = *placed else { continue };
                let Role { teaches, starts } = roles[node];
                if teaches.is_none() && !starts {
                    continue;
                }
                let runner = last.of(pod, Runner::of);
                let agent = runner.map(|runner| runner.key(pod));
                if starts {
                    let here = starting.entry(node).or_default();
                    here.agents.extend(agent);
                    here.pods.push((pods::priority(pod), class));
                }
                if let (Some(agent), Some(pool), None) = (agent, teaches, pod.deleted()) {
                    let generation = generations.of(pod, |_| generation(demand, agent));
                    let is_of = |new| {
                        pods::template_generation(pod).is_some_and(|its| templates.is_same(agent, its, new))
                    };
                    if generation.is_none_or(is_of) {
                        let sighting = Sighting { started: pod.started(), class, labels: pod.labels() };
                        note(seen[pool].entry(agent), demand, sighting, node);
                    }
                }
            }
        }
        let all_daemon_sets: BTreeSet<_> =
            input.observed.daemon_sets.iter().map(|object| key(&object.metadata)).collect();
        for (pool, seen) in pools.iter_mut().zip(seen) {
            let Ok(template) = &mut pool.template else { continue };
            let remembered = template.discovered.as_ref().map(|known| known.pods.clone()).unwrap_or_default();
            let lesson = AgentLesson {
                demand,
                templates: &templates,
                all_daemon_sets: &all_daemon_sets,
                teachers: &template.teachers,
                remembered: &remembered,
            };
            let mut agents = lesson.seen(&seen, names);
            if template.teachers.settled.is_empty() {
                lesson.recall(&seen, &mut agents, names);
            }
            agents.sort_by(|a, b| a.key().cmp(&b.key()));
            template.set_agents(agents);
        }
        Self { starting }
    }

    /// What is on a node that is starting; `None` if nothing is, or it is up.
    pub(crate) fn present(&self, node: PassNodeIndex) -> Option<&Present<'a>> {
        self.starting.get(&node)
    }
}

/// What the agents of a pool are learnt from.
struct AgentLesson<'l, 'p> {
    demand: &'l Demand,
    /// Which pods of `DaemonSet`s are like those on new nodes.
    templates: &'l PresentTemplates<'p>,
    /// Namespaces and names of all `DaemonSet`s, also of those that are being deleted.
    all_daemon_sets: &'l BTreeSet<(&'l str, &'l str)>,
    teachers: &'l Teachers,
    /// Those that the status remembers.
    remembered: &'l [DiscoveredPod],
}

impl AgentLesson<'_, '_> {
    /// The agents that new nodes will run.
    fn seen(&self, seen: &HashMap<AgentKey<'_>, Sightings<'_>>, names: &ResourceNames) -> Vec<Agent> {
        let Teachers { settled, young, starting } = self.teachers;
        let running = self.running_any(starting, seen);
        let required = if self.teachers.is_empty() {
            &running
        } else if settled.is_empty() {
            young
        } else {
            settled
        };
        let mut agents = Vec::new();
        for (&key, Sightings { newest, nodes }) in seen {
            let class = &self.demand.classes[newest.class];
            let AgentKey { kind, namespace, name } = key;
            let is_daemon_set = kind == DAEMON_SET && self.all_daemon_sets.contains(&(namespace, name));
            let daemon = if is_daemon_set { self.demand.daemon_sets.named(namespace, name) } else { None };
            let counts = match daemon {
                Some(daemon) => daemon.request != class.request,
                // One that is being deleted, or whose template cannot be read, creates no pods on new nodes.
                None if is_daemon_set => false,
                None => run_on_all(nodes, required) || self.is_remembered(key) && run_on_most(nodes, settled),
            };
            if counts {
                let pod = record(key, &class.request, names);
                agents.push(Agent {
                    pod: match daemon {
                        // The rest of it is as its template says.
                        Some(daemon) => DiscoveredPod { template_generation: daemon.generation, ..pod },
                        None => with_ports_and_labels(pod, &class.ports, newest.labels),
                    },
                    request: class.request.clone(),
                    is_daemon: daemon.is_some(),
                    ports: class.ports.clone(),
                    increments: class.increments.clone(),
                });
            }
        }
        agents
    }

    /// Adds the remembered agents that new nodes will run besides those that have been seen.
    fn recall(
        &self,
        seen: &HashMap<AgentKey<'_>, Sightings<'_>>,
        agents: &mut Vec<Agent>,
        names: &mut ResourceNames,
    ) {
        for pod in self.remembered {
            let daemon = self.demand.daemon_sets.named(&pod.namespace, &pod.name);
            let daemon = daemon.filter(|_| pod.kind == DAEMON_SET);
            let key = AgentKey { kind: &pod.kind, namespace: &pod.namespace, name: &pod.name };
            let generations = daemon.and_then(|daemon| daemon.generation.zip(pod.template_generation));
            if generations.is_some_and(|(new, its)| !self.templates.is_same(key, its, new)) {
                continue;
            }
            let (is_daemon, increments) = (daemon.is_some(), self.demand.raised_by(pod));
            let Some(known) = Agent::remembered(pod, is_daemon, increments, names) else { continue };
            let is_seen = agents.iter().any(|agent| agent.key() == known.key());
            // A daemon that is there and not among them asks for what its template says.
            if !(is_seen || is_daemon && seen.contains_key(&known.key())) {
                agents.push(known);
            }
        }
    }

    /// Those of the `nodes` that run an agent which no `DaemonSet` announces: their kubelets have begun with them.
    fn running_any(
        &self,
        nodes: &[PassNodeIndex],
        seen: &HashMap<AgentKey<'_>, Sightings<'_>>,
    ) -> Vec<PassNodeIndex> {
        let is_daemon = |key: &AgentKey<'_>| {
            key.kind == DAEMON_SET && self.all_daemon_sets.contains(&(key.namespace, key.name))
        };
        let others = seen.iter().filter(|(key, _)| !is_daemon(key));
        let running: BTreeSet<PassNodeIndex> =
            others.flat_map(|(_, sightings)| &sightings.nodes).copied().collect();
        steps::count(nodes.len() + running.len());
        nodes.iter().copied().filter(|node| running.contains(node)).collect()
    }

    fn is_remembered(&self, key: AgentKey<'_>) -> bool {
        let AgentKey { kind, namespace, name } = key;
        self.remembered.iter().any(|pod| pod.kind == kind && pod.namespace == namespace && pod.name == name)
    }
}

fn roles(input: PassInput<'_>, pools: &Pools) -> Indexed<PassNodeIndex, Role> {
    let now = input.observed.now;
    let mut roles: Indexed<PassNodeIndex, Role> = vec![Role::default(); input.nodes.len()].into();
    steps::count(roles.len());
    for (index, pool) in pools.enumerated() {
        let Ok(template) = &pool.template else { continue };
        for &node in &pool.staying {
            roles[node].starts = pool.starting_until(node).is_some_and(|until| until > now);
        }
        let Teachers { settled, young, starting } = &template.teachers;
        for &node in settled.iter().chain(young).chain(starting) {
            roles[node].teaches = Some(index);
        }
    }
    roles
}

/// The generation of the template that the pods of an agent on new nodes will have; `None` if nothing says it.
fn generation(demand: &Demand, agent: AgentKey<'_>) -> Option<i64> {
    let AgentKey { kind, namespace, name } = agent;
    if kind == DAEMON_SET { demand.daemon_sets.named(namespace, name)?.generation } else { None }
}

/// Notes a pod of an agent. Of pods that started at the same time the one that asks for most counts.
fn note<'a>(
    entry: Entry<'_, AgentKey<'a>, Sightings<'a>>,
    demand: &Demand,
    pod: Sighting<'a>,
    node: PassNodeIndex,
) {
    let sightings = entry.or_insert_with(|| Sightings { newest: pod, nodes: Vec::new() });
    let age = |sighting: Sighting<'_>| (sighting.started, &demand.classes[sighting.class].request);
    if age(pod) > age(sightings.newest) {
        sightings.newest = pod;
    }
    sightings.nodes.push(node);
}

/// Whether each of the `required` nodes is among `nodes`.
fn run_on_all(nodes: &[PassNodeIndex], required: &[PassNodeIndex]) -> bool {
    steps::count(nodes.len() + required.len());
    let nodes: BTreeSet<PassNodeIndex> = nodes.iter().copied().collect();
    !required.is_empty() && required.iter().all(|node| nodes.contains(node))
}

/// Whether most of the `settled` nodes are among `nodes`.
fn run_on_most(nodes: &[PassNodeIndex], settled: &[PassNodeIndex]) -> bool {
    steps::count(nodes.len() + settled.len());
    let nodes: BTreeSet<PassNodeIndex> = nodes.iter().copied().collect();
    are_most(settled.iter().filter(|&node| nodes.contains(node)).count(), settled.len())
}

impl<'a> Runner<'a> {
    /// What has the pods of a template run on their nodes, if they run on each node of a pool.
    fn of(template: &'a Pod) -> Option<Self> {
        if pods::is_mirror(template) {
            return Some(Self::Itself("Node"));
        }
        if !pods::is_daemon(template) {
            return None;
        }
        let owners = template.metadata.owner_references.as_deref().unwrap_or_default();
        let daemon_set = owners.iter().find(|owner| owner.kind == DAEMON_SET);
        let controller = daemon_set.or_else(|| pods::controller_among(owners));
        Some(controller.map_or(Self::Itself("Pod"), Self::Controller))
    }

    /// The agent that a pod of the template is of.
    fn key(self, pod: &'a PodInfo) -> AgentKey<'a> {
        let (namespace, name) = pod.key();
        match self {
            Self::Controller(owner) => AgentKey { kind: &owner.kind, namespace, name: &owner.name },
            Self::Itself(kind) => AgentKey { kind, namespace, name: without_node(name, pod.node()) },
        }
    }
}

/// The name of a static pod as its file has it: the kubelet appends that of the node.
fn without_node<'a>(name: &'a str, node: Option<&str>) -> &'a str {
    let own = node.and_then(|node| name.strip_suffix(node)).and_then(|name| name.strip_suffix('-'));
    own.unwrap_or(name)
}

#[cfg(test)]
#[path = "node_agents_tests.rs"]
mod tests;
