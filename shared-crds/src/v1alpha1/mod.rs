//! `tandem.dev/v1alpha1`: the two kinds.

mod autoscaler;
mod node_pool;
mod status;
mod template;

pub use autoscaler::{
    AutoscalerMode, NodePoolAutoscaler, NodePoolAutoscalerSpec, NodePoolAutoscalerStatus, PoolSummary,
    ScaleDownSpec,
};
pub use node_pool::{DrainSpec, NodePool, NodePoolSpec, ProviderSpec, SimulatedProvider};
pub use status::{
    ASSUMED_POD_CAPACITY, AutoscalingStatus, Decision, NodePoolStatus, NodesSummary, ScaleDownPlan,
    UnneededNode,
};
pub use template::{NodeTaint, NodeTemplate, NodeTemplateMetadata, NodeTemplateSpec, TaintEffect};
