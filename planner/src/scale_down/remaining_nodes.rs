//! What scale-down asks of the cluster: whether the pods of a node have places on others, all at the same time.

/// The nodes that stay, and what is free on them. What it answers depends on what was asked before: nodes that left take
/// no pods any more, and pods that moved take their room.
pub trait RemainingNodes {
    /// Takes `node` away and gives each of `pods`, and each pod that moved to it before, a place on a node that is left.
    ///
    /// # Errors
    ///
    /// A pod that has none; then nothing has changed.
    fn leave(&mut self, node: usize, pods: &[usize]) -> Result<(), usize>;

    /// What [`Self::leave`] would answer. Nothing changes.
    ///
    /// # Errors
    ///
    /// As there.
    fn could_leave(&mut self, node: usize, pods: &[usize]) -> Result<(), usize>;

    /// Takes away a node that goes in any case, and gives places to as many of its pods as have one.
    fn abandon(&mut self, node: usize, pods: &[usize]);
}
