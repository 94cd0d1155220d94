//! `cargo xtask crds`: the custom resource definitions, from the types to the chart.

use anyhow::Context as _;

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
    Ok(())
}
