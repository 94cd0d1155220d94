//! Who makes the Nodes of a pool: each shape of provider.

/// Who makes the Nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMaker {
    /// The operator.
    Operator,
    /// Kubelets, on machines that a program makes one by one.
    Kubelets,
    /// Kubelets, on the machines of a set: Cluster API makes and names as many as the operator asks for.
    Set,
}

impl NodeMaker {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Operator, Self::Kubelets, Self::Set];

    /// The provider that is like this, as in `spec.provider`.
    pub const fn provider(self) -> &'static str {
        match self {
            Self::Operator => "simulated",
            Self::Kubelets => "exec",
            Self::Set => "clusterApi",
        }
    }
}
