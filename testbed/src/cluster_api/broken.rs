//! Machines that start and whose kubelets do not.

use std::collections::HashSet;

/// The machines whose kubelet does not start.
#[derive(Debug, Default)]
pub(super) struct Broken {
    /// As many of those that come next.
    pub(super) next: usize,
    names: HashSet<String>,
}

impl Broken {
    /// Whether the kubelet of this machine, which has no Node, does not start.
    pub(super) fn is_broken(&mut self, name: &str) -> bool {
        if self.next > 0 && self.names.insert(name.to_owned()) {
            self.next -= 1;
        }
        self.names.contains(name)
    }
}
