//! `live`: Karpenter alone and Tandem alone on one real control plane, with the same pods and the same nodes, in turns.
//!
//! Neither has a part in the other's rounds: the pools are deleted and the processes stopped before the other one starts. It
//! measures and does not judge: the only bars are that both did the same work.

mod autoscaler;
mod objects;
mod requests;
mod round;
mod row;
mod watched;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use autoscaler::{Autoscaler, Installed};
use round::{Round, Setting};
use row::Report;
use testbed::cluster::{Cluster, ClusterOptions};
use testbed::karpenter;
use toolbox::messages::inform;

use crate::page;

/// Karpenter and Tandem beside each other: the time, requests, CPU and memory that the same pods and nodes cost
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pods of one Deployment; six fill a node
    #[arg(long, default_value_t = 300)]
    pods: usize,
    /// Rounds of each; who begins alternates
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Write all rounds into this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the tables into this file, between the marks there
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let Args { pods, rounds, json, markdown } = args;
    ensure!(pods > 0, "0 pods need no node; give at least 1");
    ensure!(rounds > 0, "0 rounds measure nothing; give at least 1");
    autoscaler::build().await?;
    let versions = BTreeMap::from([
        (Autoscaler::Karpenter.name(), karpenter::version().await?),
        (Autoscaler::Tandem.name(), format!("v{}", env!("CARGO_PKG_VERSION"))),
    ]);
    let cluster = Cluster::start(ClusterOptions::private()).await?;
    let mut played = Vec::new();
    let failed = play(&cluster, pods, rounds, &mut played).await.err();
    let stopped = cluster.stop().await;
    let report = Report { versions, rounds: played };

    println!("{}", report.table());
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    let mut complaints: Vec<String> = failed.into_iter().map(|error| format!("{error:#}")).collect();
    complaints.extend(report.complaints(rounds));
    complaints.extend(stopped.err().map(|error| format!("{error:#}")));
    if !complaints.is_empty() {
        bail!("{}", complaints.join("\n"));
    }
    // A page has no table of a run that failed.
    markdown.map_or(Ok(()), |file| page::fill(&file, "live", &report.markdown()))
}

/// Plays all rounds up to the first that fails.
async fn play(cluster: &Cluster, pods: usize, rounds: usize, played: &mut Vec<Round>) -> Result<()> {
    let installed = &Installed::on(cluster).await?;
    let setting = Setting { cluster, installed, pods };
    for round in 1..=rounds {
        let mut order = Autoscaler::BOTH;
        if round.is_multiple_of(2) {
            order.reverse();
        }
        for which in order {
            let name = which.name();
            inform(&format!("round {round} of {rounds}: {name}"));
            let result = setting.play(round, which).await;
            played.push(result.with_context(|| format!("round {round} of {name}"))?);
        }
    }
    Ok(())
}
