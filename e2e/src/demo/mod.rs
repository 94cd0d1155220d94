//! `cargo demo`: the whole system on a real cluster, from nothing to a scaled pool and back, told as it happens, and the
//! bill at the end from the API server's own audit log.

mod screen;
mod stage;
mod story;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use screen::Screen;
use stage::Stage;
use tokio::signal::unix::{SignalKind, signal};

use crate::audit::ObjectKey;
use crate::ledger::Ledger;

/// What the demo should show, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// A cluster to use instead of a control plane of our own.
    pub kubeconfig: Option<PathBuf>,
    /// The operators' `--write-strategy`, as the chart's `writeStrategy` takes it.
    pub write_strategy: String,
    /// Prints the final table as JSON on standard output; the story goes to standard error.
    pub json: bool,
    /// Where to keep a copy of the cluster's audit log.
    pub audit_log: Option<PathBuf>,
}

/// Sets the stage, tells the story, clears the stage, also after Ctrl-C or a failure, and prints the table, which is
/// returned where the cluster's audit log can be read.
///
/// # Errors
/// With a message that says what to do: no cluster and nothing to build one with, a chart that is refused, a step of
/// the story that does not happen.
pub async fn run(options: Options) -> Result<Option<Ledger>> {
    let screen = &Screen::new(options.json);
    let mut stage = Stage::new(screen, &options).await?;
    // From here on the stage is cleared whatever happens: an interrupt is an outcome, not the end of the process.
    let mut terminated = signal(SignalKind::terminate())?;
    let told = tokio::select! {
        told = play(screen, &mut stage, &options) => told,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
        _ = terminated.recv() => Err(anyhow!("terminated")),
    };
    if let Err(error) = &told {
        screen.say("demo", &format!("{error}; clearing up"));
    }
    let ours = |object: &ObjectKey| object.resource == "nodepools" && object.namespace == stage::NAMESPACE;
    let bill = stage.events().map(|events| events.map(|events| Ledger::of(&events, ours)));
    let kept = options.audit_log.as_deref().map_or(Ok(()), |to| stage.keep_audit_log(to));
    let cleared = stage.clear(screen).await;
    told?;
    cleared?;
    let bill = bill.transpose()?;
    match &bill {
        Some(bill) => screen.bill(bill, &options.write_strategy)?,
        None => screen.say("audit", "this cluster's audit log is not ours to read, so there is no table"),
    }
    kept?;
    if let Some(log) = &options.audit_log {
        screen.say("audit", &format!("the log is kept; a picture of it: {}", stage::timeline_command(log)));
    }
    Ok(bill)
}

async fn play(screen: &Screen, stage: &mut Stage, options: &Options) -> Result<()> {
    stage.fill(screen, options).await?;
    story::tell(screen, stage, options).await
}
