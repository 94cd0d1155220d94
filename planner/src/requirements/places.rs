//! Which labels say where a node is.

/// Beginnings of the domains of topology labels: those of Kubernetes, present and past, of CSI drivers
/// (`topology.ebs.csi.aws.com`, `topology.gke.io`, `topology.disk.csi.azure.com`) and of clouds (`topology.k8s.aws`).
const TOPOLOGY_DOMAINS: [&str; 2] = ["topology.", "failure-domain.beta."];

/// What such labels say after the slash of a place in which balanced pools may differ.
const PLACES: [&str; 3] = ["zone", "region", "zone-id"];

/// What labels of other domains say after the slash, or without one, of a place (`csi.hetzner.cloud/location`).
const OTHER_PLACES: [&str; 4] = ["availability-zone", "fault-domain", "location", "rack"];

/// Whether the label says in which zone or region a node is.
pub(crate) fn names_a_place(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, name)| PLACES.contains(&name) && is_topology(domain))
}

/// Whether the label says where a node is, however fine and whatever sets it: the nodes of a pool may be at several places, and a
/// new one at any of them.
pub(crate) fn tells_where(key: &str) -> bool {
    let (domain, name) = key.split_once('/').unwrap_or(("", key));
    is_topology(domain) || PLACES.contains(&name) || OTHER_PLACES.contains(&name)
}

fn is_topology(domain: &str) -> bool {
    TOPOLOGY_DOMAINS.iter().any(|beginning| domain.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_regions_are_places_whatever_names_them() {
        for (key, is_place) in [
            ("topology.kubernetes.io/zone", true),
            ("topology.kubernetes.io/region", true),
            ("failure-domain.beta.kubernetes.io/zone", true),
            ("failure-domain.beta.kubernetes.io/region", true),
            ("topology.ebs.csi.aws.com/zone", true),
            ("topology.gke.io/zone", true),
            ("topology.disk.csi.azure.com/zone", true),
            ("topology.k8s.aws/zone-id", true),
            ("topology.example.com/rack", false),
            ("example.com/zone", false),
            ("zone", false),
        ] {
            assert_eq!(names_a_place(key), is_place, "{key}");
        }
    }

    #[test]
    fn labels_of_a_topology_and_those_named_like_a_place_tell_where_a_node_is() {
        for (key, tells) in [
            ("topology.kubernetes.io/zone", true),
            ("topology.example.com/rack", true),
            ("topology.rook.io/chassis", true),
            ("csi.hetzner.cloud/location", true),
            ("example.com/zone", true),
            ("zone", true),
            ("kubernetes.io/arch", false),
            ("example.com/zones", false),
            ("topology", false),
        ] {
            assert_eq!(tells_where(key), tells, "{key}");
        }
    }
}
