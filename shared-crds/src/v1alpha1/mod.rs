//! `tandem.dev/v1alpha1`: the two kinds.

mod autoscaler;
mod disruption;
mod in_force;
mod node_pool;
mod provider;
mod repair;
mod rollout;
mod scale_down;
mod status;
mod template;
mod template_hash;
pub mod validity;

pub use autoscaler::{
    AutoscalerMode, Expander, Headroom, NodePoolAutoscaler, NodePoolAutoscalerSpec, NodePoolAutoscalerStatus,
    OnContested, PoolSummary, ScaleDownSpec, ScalingBehavior, ScalingPolicy, ScalingPolicyType, ScalingRules,
    Schedule, SelectPolicy,
};
pub use disruption::{DisruptionBudget, DisruptionEffect, DisruptionReason, DisruptionSpec};
pub use node_pool::{DrainSpec, DrainTimeoutAction, NodePool, NodePoolSpec, ProtectedNodes};
pub use provider::{
    ClusterApiProvider, ExecProvider, KarpenterProvider, MachineDeploymentReference, MachineRequirement,
    MachineRequirementOperator, NodeClassReference, ProviderLie, ProviderSpec, SimulatedProvider,
};
pub use repair::{ConditionStatus, RepairCondition, RepairSpec};
pub use rollout::{RolloutSpec, RolloutType};
pub use scale_down::ScaleDownPlan;
pub use status::{
    ASSUMED_POD_CAPACITY, AutoscalingStatus, ContestedMachines, ContestedReplicas, Decision, DiscoveredPod,
    DiscoveredResources, DisruptedNodes, NodePoolStatus, NodesSummary, ProvisioningStatus, Recommendation,
    RolloutStatus, ScaleEvent, UnneededNode,
};
pub use template::{NodeTaint, NodeTemplate, NodeTemplateMetadata, NodeTemplateSpec, TaintEffect};
pub use template_hash::PLACE_LABELS;
