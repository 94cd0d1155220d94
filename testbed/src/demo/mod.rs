//! `cargo demo`: the whole system on a real cluster, from an empty pool to a scaled one and back, with live output and
//! a final table from the API server's own audit log.

mod costs;
mod machinery;
mod maker;
mod names;
mod screen;
mod setup;
mod state;
mod steps;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use screen::Screen;
use setup::Setup;
use tokio::signal::unix::{SignalKind, signal};

pub use costs::DemoCosts;
pub use maker::Provider;

/// The options of a demo run.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Who makes the machines of the pool.
    pub provider: Provider,
    /// The kubeconfig of a cluster to use; `None` starts a private control plane.
    pub kubeconfig: Option<PathBuf>,
    /// The operators' `--write-strategy`, as in the chart's `writeStrategy`.
    pub write_strategy: String,
    /// Prints the final table as JSON on standard output; the other output goes to standard error.
    pub json: bool,
    /// Where to store a copy of the cluster's audit log; `None` stores none.
    pub audit_log: Option<PathBuf>,
}

/// Sets up the demo, runs it, cleans up, also after Ctrl-C or a failure, and prints the tables. Returns them if the
/// cluster's audit log can be read.
///
/// # Errors
/// With a message that tells what to do: no cluster and nothing to build one with, a provider that needs another cluster,
/// a rejected chart, a step of the demo that does not happen.
pub async fn run(options: DemoOptions) -> Result<Option<DemoCosts>> {
    let screen = &Screen::new(options.json);
    let mut setup = Setup::new(screen, &options).await?;
    // From here on the cleanup always runs: an interrupt is a result, not the end of the process.
    let mut terminated = signal(SignalKind::terminate())?;
    let played = tokio::select! {
        played = play(screen, &mut setup, &options) => played,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
        _ = terminated.recv() => Err(anyhow!("terminated")),
    };
    if let Err(error) = &played {
        // Logs may follow the first line; all of it is printed in the end.
        let text = error.to_string();
        screen.say("demo", &format!("{}; clearing up", text.lines().next().unwrap_or_default()));
    }
    let maker = setup.maker;
    let costs = setup.events().map(|events| events.map(|events| DemoCosts::of(&events, maker)));
    let kept = options.audit_log.as_deref().map_or(Ok(()), |to| setup.keep_audit_log(to));
    let cleared = setup.clear(screen).await;
    if let (Err(_), Err(error)) = (&played, &cleared) {
        screen.say("demo", &format!("{error:#}"));
    }
    played?;
    cleared?;
    let costs = costs.transpose()?;
    match &costs {
        Some(costs) => screen.costs(costs, maker, &options.write_strategy)?,
        None => screen.say("audit", "this cluster's audit log cannot be read, so there is no table"),
    }
    kept?;
    if let Some(log) = &options.audit_log {
        screen.say("audit", &format!("the log is kept; a picture of it: {}", setup::timeline_command(log)));
    }
    Ok(costs)
}

async fn play(screen: &Screen, setup: &mut Setup, options: &DemoOptions) -> Result<()> {
    setup.fill(screen, options).await?;
    steps::run(screen, setup, options).await
}
