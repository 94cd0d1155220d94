//! What a provider says about a pool and its machines, as data. Pure: what is planned with sees nothing else of a provider.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use shared_crds::conditions::Reason;

/// A requested machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name that its Node will have.
    pub name: String,
    /// State of the machine.
    pub state: MachineState,
    /// `spec.providerID` of its Node; `None` when the provider does not know it yet, or the operator creates the Node.
    pub provider_id: Option<String>,
    /// Its provider would remove it first, which is not wanted any more unless it is removed in this pass.
    pub is_marked: bool,
    /// Hash of the template it was made from; `None` when its provider does not say it.
    pub template_hash: Option<String>,
    /// Its provider says that it would make it from something else now.
    pub is_outdated: bool,
    /// By what its Node could be known here.
    pub known_as: KnownAs,
}

/// What a provider says about the Node of a machine, beside its provider ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownAs {
    /// Name of the Node that the provider has found for the machine, in this cluster or in another one.
    pub node: Option<String>,
    /// Host names and addresses of the machine.
    pub addresses: BTreeSet<String>,
}

/// What the absence of a machine from a provider's list means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completeness {
    /// Nothing by itself: the provider may be looking elsewhere.
    #[default]
    Unknown,
    /// The provider says that it lists every machine of the pool. It may still be another one than that which made them.
    Stated,
    /// There is no such machine: the list is of this cluster's own objects, or of this process.
    Certain,
}

/// What the answer of a provider means that there is no such machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The machine is gone.
    Credible,
    /// It may run, because of this. Reads as the end of a sentence after "but".
    Doubtful(String),
}

/// The number of machines that a provider keeps, as it was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number.
    pub replicas: i32,
    /// The generation of the object that holds it.
    pub generation: i64,
}

/// What a provider does with machines of the pool by itself, and the operator leaves to it. Machines are given by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderDuties {
    /// It is ending these, and drains their nodes by its own rules.
    pub drains: BTreeSet<String>,
    /// It makes these when one that it drains is gone.
    pub awaits: BTreeSet<String>,
    /// It replaces these when they are unhealthy.
    pub repairs: BTreeSet<String>,
}

/// State of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// It is being made; `until` is when the provider expects it.
    Starting {
        /// Expected time; `None` when the provider does not know.
        until: Option<Timestamp>,
    },
    /// It runs, so its Node can exist.
    Running,
    /// It is being deleted, which cannot be undone. Its name cannot be used again yet.
    Deleting,
}

impl MachineState {
    /// Sort key: running machines first, unknown times last.
    pub fn ready_at(self) -> Timestamp {
        match self {
            Self::Running => Timestamp::MIN,
            Self::Starting { until } => until.unwrap_or(Timestamp::MAX),
            Self::Deleting => Timestamp::MAX,
        }
    }
}

/// Why nodes are not being made as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisioningFailure {
    /// Machine-readable reason.
    pub reason: Reason,
    /// Human-readable message.
    pub message: String,
    /// No new request is sent to the provider before this time.
    pub retry_at: Timestamp,
}

/// A machine without a Node that will never run, or that its provider has been deleting for so long that it is asked to once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedMachine {
    /// Its name.
    pub name: String,
    /// The reference of the provider that lists it.
    pub provider: String,
    /// No pass has counted its failure yet.
    pub is_new: bool,
}

/// How the machines of a pool become Nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeSource {
    /// The operator creates the Node of a running machine.
    Operator {
        /// What comes before the node's name in `spec.providerID`.
        provider_id_prefix: &'static str,
    },
    /// The machine's kubelet registers the Node, with the provider ID of the machine. The operator then makes it a node
    /// of the pool.
    Kubelet,
}

/// What sets the Node of one machine apart from the pool's template, where the operator creates the Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTraits {
    /// Annotations beside those of the template and of the provider.
    pub annotations: BTreeMap<String, String>,
    /// How much the machine has of what the template says, in percent: of every resource but pods.
    pub size_percent: u8,
}

/// What is known of the machines of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Supply {
    /// How its machines become Nodes; otherwise what is wrong with `spec.provider`, for the user.
    pub source: Result<NodeSource, String>,
    /// Every machine. Those of [`Self::failed`] are among them as machines that are being deleted.
    pub machines: Vec<Machine>,
    /// The machines that will never run, and those that have to be asked to go again.
    pub failed: Vec<FailedMachine>,
    /// The machines that the provider lists for the pool and that are another cluster's, by name, with what they carry.
    pub foreign: BTreeMap<String, String>,
    /// By the machine's name, the Nodes that are not as the template says.
    pub traits: BTreeMap<String, NodeTraits>,
    /// Why a machine does not start, in its provider's words; `None` when the provider does not say so.
    pub trouble: Option<String>,
    /// The machines could not be listed: [`Self::machines`] is empty for that reason, and nothing follows from it. Of a pool that is gone,
    /// some could not be listed.
    pub is_unknown: bool,
    /// The number of machines that the provider keeps; `None` for one that makes machines by name.
    pub size: Option<Size>,
    /// The field manager that wrote [`Self::size`] last; `None` where it is not recorded.
    pub size_writer: Option<String>,
    /// Capacity of one machine by resource name, as far as the provider says it.
    pub capacity: BTreeMap<String, Quantity>,
    /// What it means that a machine is not among [`Self::machines`].
    pub completeness: Completeness,
    /// The references of providers whose machines could not be listed, and why.
    pub unlisted: BTreeMap<String, String>,
    /// The references of providers that have none of the pool's machines because what holds them does not exist, and what that is.
    pub absent: BTreeMap<String, String>,
    /// Why no machine may be removed now; `None` when one may.
    pub removals_wait: Option<String>,
    /// How the provider says that it replaces machines of an earlier template of its own; `None` when it does not.
    pub rolling: Option<String>,
    /// What the selected provider does with machines by itself. It is empty where its list failed, and says nothing of the machines of a
    /// former provider.
    pub duties: ProviderDuties,
    /// The machines with a Node of which the selected provider's last list that showed them said that it was ending them by itself, by
    /// name. As far as this process knows: a restart forgets it.
    pub seen_ending: BTreeSet<String>,
    /// Until this time, machines may appear whose requests were not answered, or Nodes of machines that have just gone;
    /// `None` when there are none such.
    pub uncertain_until: Option<Timestamp>,
    /// Provider IDs of machines that were deleted before they had a Node and are gone: a Node that has one of them was
    /// the last thing that the machine did.
    pub deleted_ids: BTreeSet<String>,
    /// Where the machines cannot be listed, those of which the last list said that they would be made from something else now, by name.
    pub outdated_before: BTreeSet<String>,
    /// Providers that the spec does not select and that may still have machines of the pool.
    pub former: BTreeSet<String>,
    /// The machines among [`Self::machines`] that such a provider lists, by name, with its reference. Of a pool that is gone, all of them.
    pub former_machines: BTreeMap<String, String>,
    /// Names of the pool's slots that foreign nodes occupy.
    pub taken: BTreeSet<String>,
    /// Names of the pool's slots whose machines failed a short while ago: others are asked for first.
    pub passed_over: BTreeSet<String>,
    /// The last failure, until a node is made again; `None` without one.
    pub failure: Option<ProvisioningFailure>,
}

impl Supply {
    /// Whether a node may be requested from the provider at `now`.
    pub fn may_request(&self, now: Timestamp) -> bool {
        !self.is_unknown && self.failure.as_ref().is_none_or(|failure| failure.retry_at <= now)
    }
}
