//! `conflict`: what a write costs when `k` independent writers want the same object.
//!
//! The policies take turns, round by round, on one API server, so that other load of the machine affects all alike.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use testbed::cluster::{Cluster, ClusterOptions};
use toolbox::messages::inform;

use crate::client_go::ClientGo;
use crate::load::{Amount, Load, starts};
use crate::policy::Policy;
use crate::row::{Row, markdown, table};
use crate::session::{Report, Session};
use crate::summary::summary;
use crate::tandem::Writers;
use crate::{counter, page, plot};

/// Pause before each burst, so that watches have delivered the end of the previous one.
const GAP_MS: f64 = 10.0;

/// What write conflicts cost: requests and time per success, for `conflict-retry` and client-go side by side
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the rows as JSON here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw requests and p99 against the number of writers here
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// Put the table into this file, between the marks there, with the plot if there is one
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Put a short table into this file, between the marks there: the README of the crate
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,

    /// Under a minute, for a first look
    #[arg(long)]
    quick: bool,

    /// Numbers of writers
    #[arg(long, value_delimiter = ',', default_values_t = [2, 5, 10, 50])]
    writers: Vec<usize>,

    /// Only these policies, by their short names
    #[arg(long, value_delimiter = ',', value_parser = policy)]
    policies: Vec<Policy>,

    /// Leave client-go out (where there is no Go)
    #[arg(long)]
    without_client_go: bool,
}

fn policy(name: &str) -> Result<Policy, String> {
    let known = Policy::ALL.map(Policy::slug).join(", ");
    Policy::ALL.into_iter().find(|policy| policy.slug() == name).ok_or(format!("one of {known}"))
}

/// One line of the table under construction.
struct Cell {
    policy: Policy,
    object: String,
    report: Report,
    expected: usize,
    /// Why the cell was given up.
    failed: Option<String>,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let Args { json, plot, markdown: document, summary: short, quick, writers, policies, without_client_go } =
        args;
    if let (Some(plot), Some(page)) = (&plot, &document) {
        ensure!(
            plot.parent() == page.parent(),
            "the page of --markdown shows the chart of --plot: put both into one directory"
        );
    }
    ensure!(writers.iter().all(|writers| *writers > 0), "0 writers write nothing; give at least 1");
    let wanted = |policy: &Policy| {
        (policies.is_empty() || policies.contains(policy))
            && !(without_client_go && matches!(policy, Policy::GoRetry | Policy::GoBackoff))
    };
    let policies: Vec<Policy> = Policy::ALL.into_iter().filter(wanted).collect();
    let options = ClusterOptions {
        scheduler: false,
        controller_manager: false,
        kwok: false,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options).await?;
    let rows = measure(&cluster, &policies, &writers, quick).await;
    cluster.stop().await?;
    let (rows, failures) = rows?;
    println!("{}", table(&rows));
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&rows)?;
        std::fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &plot {
        std::fs::write(path, plot::svg(&rows)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = document {
        // The plot stands beside the page: `run` has looked.
        let picture = plot.as_ref().and_then(|plot| plot.file_name()?.to_str());
        page::fill(&path, "conflict", &markdown(&rows, picture))?;
    }
    if let Some(path) = short {
        page::fill_by(&path, "conflict", "--summary", &summary(&rows))?;
    }
    ensure!(failures.is_empty(), "these were not measured to the end:\n{}", failures.join("\n"));
    let wrong: Vec<String> = rows.iter().filter_map(Row::lost).collect();
    ensure!(wrong.is_empty(), "increments were lost or made twice:\n{}", wrong.join("\n"));
    Ok(())
}

async fn measure(
    cluster: &Cluster,
    policies: &[Policy],
    writers: &[usize],
    quick: bool,
) -> Result<(Vec<Row>, Vec<String>)> {
    let client = cluster.client().await?;
    let namespace = cluster.namespace("bench").await?;
    counter::install(&client, namespace.name()).await?;
    let kubeconfig = cluster.kubeconfig_path().to_owned();
    let mut rust = Writers::new(kubeconfig.clone(), namespace.name().to_owned());
    let mut go = None;
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for &k in writers {
        for load in [Load::Burst, Load::Sustained] {
            let mut cells = Vec::new();
            for &policy in policies {
                let object = format!("{}-{}-{k}", load.name(), policy.slug());
                counter::create(&client, namespace.name(), &object, k).await?;
                cells.push(Cell { policy, object, report: Report::default(), expected: 0, failed: None });
            }
            let amount = Amount::of(load, k, quick);
            inform(&format!("{k} writers, {}: {} rounds", load.name(), amount.rounds));
            for round in 0..amount.rounds {
                for cell in cells.iter_mut().filter(|cell| cell.failed.is_none()) {
                    let session = Session {
                        policy: cell.policy.name(),
                        object: cell.object.clone(),
                        starts: starts(load, k, amount.length, round as u64),
                        repeat: amount.repeat,
                        gap_ms: GAP_MS,
                    };
                    let report = match cell.policy {
                        Policy::GoRetry | Policy::GoBackoff => {
                            let go = match &mut go {
                                Some(go) => go,
                                None => go.insert(ClientGo::start(&kubeconfig, namespace.name()).await?),
                            };
                            go.run(&session).await
                        }
                        policy => rust.run(policy, &session).await,
                    };
                    match report {
                        Ok(report) => {
                            cell.expected += session.successes();
                            cell.report.add(report);
                        }
                        // One policy that fails must not cost the other rows.
                        Err(error) => cell.failed = Some(format!("{error:#}")),
                    }
                }
            }
            for cell in cells {
                let Cell { policy, object, report, expected, failed } = cell;
                if let Some(error) = failed {
                    failures.push(format!("{object}: {error}"));
                    continue;
                }
                let total = counter::total(&client, namespace.name(), &object).await?;
                rows.push(Row::new(policy, k, load, &report, expected, total));
            }
        }
    }
    Ok((rows, failures))
}
