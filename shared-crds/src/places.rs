//! Which labels of a Node say where its machine is, and what it is. Another value is another machine: nodes are replaced for it, it is
//! not written to a Node that exists, and what a Node brings of it stays.

/// Labels that say what a machine is. Those that a kubelet or a cloud provider sets are in
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/>.
const KINDS: [&str; 7] = [
    // A cloud provider sets it.
    "node.kubernetes.io/instance-type",
    // A kubelet sets these.
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    // Their deprecated names, which kubelets, cloud providers and the controller manager still set.
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Beginnings of the domains of topology labels: those of Kubernetes, present and past, of CSI drivers
/// (`topology.ebs.csi.aws.com`, `topology.gke.io`, `topology.disk.csi.azure.com`) and of clouds (`topology.k8s.aws`).
const TOPOLOGY_DOMAINS: [&str; 2] = ["topology.", "failure-domain.beta."];

/// What such labels say after the slash of a place in which balanced pools may differ. Also without a domain: `region` is the topology of
/// `DigitalOcean`'s CSI driver.
const ZONES: [&str; 3] = ["zone", "region", "zone-id"];

/// Labels of CSI drivers that say zone or region in another word.
const ZONES_OF_DRIVERS: [&str; 5] = [
    // A location of Hetzner is what `topology.kubernetes.io/region` says there.
    "csi.hetzner.cloud/location",
    "topology.csi.vmware.com/k8s-zone",
    "topology.csi.vmware.com/k8s-region",
    "topology.csi.vmware.com/openshift-zone",
    "topology.csi.vmware.com/openshift-region",
];

/// What labels of other domains say after the slash, or without one, of a place (`csi.hetzner.cloud/location`).
const OTHER_PLACES: [&str; 4] = ["availability-zone", "fault-domain", "location", "rack"];

/// Labels that say where or what a machine is, of every source: for tests of what is decided from them.
pub const EXAMPLES: [&str; 22] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "topology.ebs.csi.aws.com/zone",
    "topology.gke.io/zone",
    "topology.disk.csi.azure.com/zone",
    "topology.k8s.aws/zone-id",
    "topology.rook.io/chassis",
    "csi.hetzner.cloud/location",
    "example.com/availability-zone",
    "example.com/fault-domain",
    "example.com/zone",
    "region",
    "rack",
];

/// Whether the label says where or what a machine is. A template's hash counts such labels in: with another key here, it needs
/// another version.
pub fn is_place(key: &str) -> bool {
    tells_where(key) || KINDS.contains(&key)
}

/// Whether the label says where a machine is, however fine and whatever sets it: the nodes of a pool may be at several places, and a
/// new one at any of them.
pub fn tells_where(key: &str) -> bool {
    let (domain, name) = key.split_once('/').unwrap_or(("", key));
    is_topology(domain) || ZONES.contains(&name) || OTHER_PLACES.contains(&name)
}

/// Whether it is a topology label that says in which zone or region a machine is.
pub fn tells_zone(key: &str) -> bool {
    ZONES_OF_DRIVERS.contains(&key)
        || key.split_once('/').is_some_and(|(domain, name)| ZONES.contains(&name) && is_topology(domain))
}

fn is_topology(domain: &str) -> bool {
    TOPOLOGY_DOMAINS.iter().any(|beginning| domain.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_place_whatever_names_it() {
        for key in EXAMPLES {
            assert!(is_place(key), "{key}");
        }
        for key in [
            "kubernetes.io/hostname",
            "node.kubernetes.io/anything",
            "beta.kubernetes.io/anything",
            "kwok.x-k8s.io/node",
            "example.com/zones",
            "example.com/instance-type",
            "topology",
            "tier",
        ] {
            assert!(!is_place(key), "{key}");
        }
    }

    #[test]
    fn zones_and_regions_are_places_whatever_names_them() {
        for (key, is_zone) in [
            ("topology.kubernetes.io/zone", true),
            ("topology.kubernetes.io/region", true),
            ("failure-domain.beta.kubernetes.io/zone", true),
            ("failure-domain.beta.kubernetes.io/region", true),
            ("topology.ebs.csi.aws.com/zone", true),
            ("topology.gke.io/zone", true),
            ("topology.disk.csi.azure.com/zone", true),
            ("topology.diskplugin.csi.alibabacloud.com/zone", true),
            ("topology.cinder.csi.openstack.org/zone", true),
            ("topology.k8s.aws/zone-id", true),
            ("csi.hetzner.cloud/location", true),
            ("topology.csi.vmware.com/k8s-zone", true),
            ("topology.example.com/rack", false),
            ("example.com/location", false),
            ("example.com/zone", false),
            ("zone", false),
        ] {
            assert_eq!(tells_zone(key), is_zone, "{key}");
            assert!(is_place(key), "{key}");
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
