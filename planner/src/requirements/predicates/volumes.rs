//! Where the volumes of a pod can be used.

use super::node_affinity;
use crate::reasons::Rejection;
use crate::requirements::constraints::Term;
use crate::requirements::profile::Profile;

/// Whether every volume can be used on the node: one of the terms of each matches it.
///
/// # Errors
///
/// Says that a volume cannot.
pub fn usable(volumes: &[Vec<Term>], node: &Profile) -> Result<(), Rejection> {
    let usable = |terms: &Vec<Term>| node_affinity::matches(Some(terms), node).is_ok();
    if volumes.iter().all(usable) { Ok(()) } else { Err(Rejection::VolumeNodeAffinityConflict) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::constraints::{Operator, Rule};

    fn zone(value: &str) -> Term {
        let rule = Rule { key: "zone".to_owned(), operator: Operator::In, values: vec![value.to_owned()] };
        Term { labels: vec![rule], fields: vec![] }
    }

    #[test]
    fn each_volume_needs_one_of_its_own_terms() {
        let labels = [("zone".to_owned(), "a".to_owned())].into_iter().collect();
        let node = Profile { name: None, labels, taints: vec![] };
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
