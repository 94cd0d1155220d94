//! `cargo xtask crds`: the custom resource definitions and the field firewall, from the types to the chart.

use std::collections::BTreeMap;

use anyhow::Context as _;
use shared_crds::firewall::{self, Owner};

use crate::workspace;

/// Writes (or, with `check`, compares) one file per definition.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    for crd in shared_crds::all()? {
        let plural = crd.spec.names.plural.clone();
        let yaml = serde_saphyr::to_string(&crd).with_context(|| format!("cannot write {plural} as yaml"))?;
        let text = format!(
            "# Generated from shared-crds by `cargo xtask crds`; change the types, not this file.\n{yaml}"
        );
        workspace::generate(&format!("charts/tandem/files/crds/{plural}.yaml"), &text, check)?;
    }
    firewall(check)
}

/// Writes (or compares) the conditions under which the API server refuses an operator's write.
fn firewall(check: bool) -> anyhow::Result<()> {
    let validations = BTreeMap::from([
        ("autoscaler-operator", firewall::node_pool(Owner::AutoscalerOperator)),
        ("nodepool-operator", firewall::node_pool(Owner::NodepoolOperator)),
        ("nodes", firewall::nodes()),
        ("kubelets", firewall::kubelets()),
        ("karpenter", firewall::node_claims()),
        ("clusterApi", firewall::cluster_api()),
        ("noMachines", firewall::no_machines()),
    ]);
    let yaml = serde_saphyr::to_string(&validations).context("cannot write the firewall as yaml")?;
    let text = format!(
        "# Generated from the contract (shared-crds/src/ownership.rs) by `cargo xtask crds`; change that, not this file.\n{yaml}"
    );
    workspace::generate("charts/tandem/files/firewall.yaml", &text, check)
}
