//! What an event on a pool may be about.

use shared_crds::api_names;

api_names! {
    /// What an event on a pool is about. The operator adds the type and the action.
    pub EventReason {
        /// Nodes were created, or machines registered themselves as nodes of the pool.
        ScaledUp,
        /// Nodes were cordoned for removal: there are more than asked for.
        ScalingDown,
        /// Nodes were cordoned for removal because they are out of date, or have the annotation `tandem.dev/replace`.
        RollingOut,
        /// Nodes were drained and removed.
        NodeRemoved,
        /// The pool is deleted with the annotation `tandem.dev/on-delete: Orphan`: nodes were taken out of it, and keep running.
        NodesReleased,
        /// The annotation `tandem.dev/on-delete` has an unknown value, so the deletion of the pool waits.
        DeletionWaits,
        /// Nodes that were to go are kept and uncordoned: they are needed again, or healthy again.
        DrainCancelled,
        /// Drains took longer than `spec.drain.timeoutSeconds` and were cancelled.
        DrainGivenBack,
        /// Something blocks a drain, most often a refused eviction. Once, until it is resolved.
        DrainBlocked,
        /// The provider did not make a node; the note is what it said.
        ProvisioningFailed,
        /// Machines went without the operator, so their nodes are replaced.
        MachineLost,
        /// Nodes were unhealthy for as long as `spec.repair` allows, and are replaced, or drained while their kubelets answer.
        NodeRepaired,
        /// Nodes did not register or become Ready in `provisioningTimeoutSeconds`, and are replaced.
        ProvisioningTimedOut,
        /// The API server, or the provider, does not accept a write.
        WriteRejected,
        /// Another writer has set the provider's number of machines.
        MachinesContested,
    }
}
