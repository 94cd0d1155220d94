//! Runs every scenario of the lab: each claim must hold, and the run must produce the page in `docs/conflicts/`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use lab::cluster_pool::{ClusterPool, ClusterSource};
use lab::run::play;
use lab::scenario::Scenario;
use lab::{page, scenarios};
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;

fn main() -> Result<ExitCode> {
    if testbed::process_supervisor::serve_if_asked()? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut arguments = Arguments::from_args();
    // Scenarios that count what happens would disturb each other.
    arguments.test_threads = Some(1);
    let runtime = Arc::new(Runtime::new()?);
    let clusters = Arc::new(ClusterPool::new(ClusterSource::Embedded, "tandem-lab"));
    let trials = scenarios::all().into_iter().map(|scenario| {
        let (runtime, clusters) = (Arc::clone(&runtime), Arc::clone(&clusters));
        Trial::test(scenario.name, move || {
            runtime.block_on(check(&clusters, scenario)).map_err(|error| format!("{error:#}").into())
        })
    });
    let others = page::written_without_a_run().into_iter().map(|(path, text)| {
        Trial::test(format!("docs/{path}"), move || {
            page::compare_document(&path, &text, "cargo lab --index --write-pages")
                .map_err(|error| format!("{error:#}").into())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.chain(others).collect());
    if let Some(clusters) = Arc::into_inner(clusters) {
        runtime.block_on(clusters.close())?;
    }
    Ok(conclusion.exit_code())
}

async fn check(clusters: &ClusterPool, scenario: Scenario) -> Result<()> {
    let played = play(clusters, &scenario, Arc::new(|_| {})).await?;
    played.check_passed()?;
    page::compare(&scenario, &page::render(&scenario, &played.events, &played.namespace))
}
