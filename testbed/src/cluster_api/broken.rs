//! Machines that start and whose kubelets do not register their Node, or not again.

use std::collections::HashSet;

/// The machines whose kubelet does not register its Node.
#[derive(Debug, Default)]
pub(super) struct Broken {
    /// As many of those that come next.
    pub(super) next: usize,
    names: HashSet<String>,
}

impl Broken {
    /// The kubelet of this machine registers no Node from now on.
    pub(super) fn add(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    /// Whether the kubelet of this machine, which has no Node, does not register it.
    pub(super) fn is_broken(&mut self, name: &str) -> bool {
        if self.next > 0 && self.names.insert(name.to_owned()) {
            self.next -= 1;
        }
        self.names.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_that_come_next_are_broken_and_so_is_one_that_is_named() {
        let mut broken = Broken { next: 1, ..Broken::default() };
        assert!(broken.is_broken("first") && !broken.is_broken("second"));
        broken.add("third");
        assert!(broken.is_broken("first") && broken.is_broken("third") && !broken.is_broken("second"));
        assert_eq!(broken.next, 0);
    }
}
