//! `cargo xtask reference`: the pages of `docs/reference`, from the types, the registries and the tables behind them.

mod api;
mod conditions;
mod events;
mod fields;
mod markdown;
mod metrics;

use anyhow::Context as _;
use toolbox::workspace;

/// Writes (or, with `check`, compares) every page.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let definitions = shared_crds::all().context("cannot make the definitions")?;
    let definitions = serde_json::to_value(definitions).context("cannot write the definitions as json")?;
    let node_pool =
        nodepool_operator::reference::metrics().context("the NodePool operator has no metrics")?;
    let autoscaler =
        autoscaler_operator::reference::metrics().context("the Autoscaler operator has no metrics")?;
    let pages = [
        ("api", api::page(&definitions)?),
        ("conditions", conditions::page()),
        ("metrics", metrics::page(&node_pool, &autoscaler)),
        (
            "events",
            events::page(&nodepool_operator::reference::events(), &autoscaler_operator::reference::events()),
        ),
    ];
    for (name, text) in pages {
        workspace::generate(&format!("docs/reference/{name}.md"), &text, check)?;
    }
    Ok(())
}
