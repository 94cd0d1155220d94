//! `tandem.dev/v1alpha1`: the two kinds.

mod autoscaler;
mod disruption;
mod in_force;
mod node_pool;
mod provider;
mod provisioning_status;
mod repair;
mod rollout;
mod rollout_status;
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
pub use provisioning_status::{ContestedMachines, ProvisioningFailureStatus, ProvisioningStatus};
pub use repair::{ConditionStatus, RepairCondition, RepairSpec};
pub use rollout::{RolloutSpec, RolloutType};
pub use rollout_status::{ReplacementState, ReplacementStatus, RolloutStatus};
pub use scale_down::ScaleDownPlan;
pub use status::{
    ASSUMED_POD_CAPACITY, AutoscalingStatus, BeliefKind, ContestedReplicas, Decision, DiscoveredBelief,
    DiscoveredHostPort, DiscoveredPod, DiscoveredResources, DisruptedNodes, NodePoolStatus, NodesSummary,
    Recommendation, ScaleEvent, UnneededNode,
};
pub use template::{NodeTaint, NodeTemplate, NodeTemplateMetadata, NodeTemplateSpec, TaintEffect};
pub use template_hash::EarlierHash;
