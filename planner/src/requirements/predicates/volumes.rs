//! Where the volumes of a pod can be used.

use super::node_affinity;
use crate::reasons::Rejection;
use crate::requirements::constraints::NodeTerm;
use crate::requirements::node_profile::NodeProfile;

/// Whether every volume can be used on the node: one of the terms of each matches it.
///
/// # Errors
///
/// That a volume cannot be used.
pub(crate) fn usable(volumes: &[Vec<NodeTerm>], node: &NodeProfile) -> Result<(), Rejection> {
    let usable = |terms: &Vec<NodeTerm>| node_affinity::matches(Some(terms), node).is_ok();
    if volumes.iter().all(usable) { Ok(()) } else { Err(Rejection::VolumeNodeAffinityConflict) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::constraints::{NodeRequirement, RequirementOperator};

    fn zone(value: &str) -> NodeTerm {
        let rule = NodeRequirement {
            key: "zone".to_owned(),
            operator: RequirementOperator::In,
            values: vec![value.to_owned()],
        };
        NodeTerm { labels: vec![rule], fields: vec![] }
    }

    #[test]
    fn each_volume_needs_one_of_its_own_terms() {
        let labels = [("zone".to_owned(), "a".to_owned())].into_iter().collect();
        let node = NodeProfile { name: None, labels, taints: vec![] };
        for (volumes, expected) in [
            (vec![], true),
            (vec![vec![zone("a")]], true),
            (vec![vec![zone("b"), zone("a")]], true),
            (vec![vec![zone("a")], vec![zone("b")]], false),
            (vec![vec![]], false),
        ] {
            assert_eq!(usable(&volumes, &node).is_ok(), expected, "{volumes:?}");
        }
    }
}
