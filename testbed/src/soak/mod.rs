//! A pool of hundreds of simulated nodes in the course of its life: pods fill it, its template changes, kubelets die, the pods
//! go. Then the API server's audit log is held against what was allowed.
//!
//! `story` makes it happen and decides nothing about right and wrong; `check` decides, and sees nothing but the log;
//! `picture` draws the life of the pool and its rollout, and `page` writes the report as a document.

pub mod check;
mod objects;
mod page;
pub mod picture;
mod report;
mod story;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use toolbox::messages::inform;

use self::check::{Findings, PoolSize};
pub use self::report::{SoakPhase, SoakReport};
use crate::audit::{AuditLog, ObjectKey};
use crate::cluster::ClusterOptions;
use crate::control_plane::layout::AuditScope;
use crate::memory::{self, Field};
use crate::places::Places;
use crate::test_env::TestEnv;

/// Control planes whose audit log follows every pod, and on which a node that loses its label has no kubelet any more.
///
/// No Lease matters here: when kwok 0.8 cannot renew one, as after a Node's name was used again, it soon renews none, and every
/// node would seem dead. So the story says of a node what the node lifecycle controller would find.
static PLACES: Places = Places::new(1, || ClusterOptions {
    audit_scope: AuditScope::Pods,
    kwok_flags: vec![
        "--manage-nodes-with-label-selector=kwok.x-k8s.io/node=fake".to_owned(),
        "--node-lease-duration-seconds=40000".to_owned(),
    ],
    controller_manager_flags: vec!["--node-monitor-grace-period=40000s".to_owned()],
    ..ClusterOptions::private()
});

/// How long the story may take, from the first node to the last.
const LIMIT: Duration = Duration::from_secs(900);

/// What a soak does.
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// Nodes that the pods fill.
    pub nodes: usize,
    /// What to write of it.
    pub outputs: SoakOutputs,
    /// Where to keep the audit log.
    pub audit_log: Option<PathBuf>,
}

/// Files to write a soak into.
#[derive(Clone, Debug, Default)]
pub struct SoakOutputs {
    /// The nodes by state over all phases, as SVG.
    pub picture: Option<PathBuf>,
    /// The rollout with its bounds, as SVG.
    pub rollout_picture: Option<PathBuf>,
    /// The report, as Markdown: a new page, or between the marks of one that is there. Not of a soak that broke a rule.
    pub markdown: Option<PathBuf>,
}

/// Runs the story on a control plane of its own, and checks the log.
///
/// # Errors
/// When the story does not end in time, or a rule was broken.
pub async fn run(options: SoakOptions) -> Result<SoakReport> {
    let SoakOptions { nodes, outputs, audit_log } = options;
    ensure!(nodes >= 20, "{nodes} nodes are too few: a share of them is to break, and a share to stay");
    let env = TestEnv::begin_at(&PLACES, "soak", &[]).await?;
    let mut phases = Vec::new();
    let told = tokio::time::timeout(LIMIT, story::tell(&env, nodes, &mut phases)).await;
    let told = told.unwrap_or_else(|_elapsed| Err(anyhow!(too_long(LIMIT, &phases))));
    let log = env.audit()?;
    if let Some(file) = &audit_log {
        std::fs::copy(log.path(), file).with_context(|| format!("cannot write {}", file.display()))?;
    }
    told.map_err(|error| env.with_logs(error))?;
    let memory = peaks(&env)?;
    let began = Instant::now();
    let findings = check::check(&env.events()?, &env.key(objects::POOL));
    inform(&format!("checked {} writes in {:.1?}", findings.writes, began.elapsed()));
    let report = SoakReport { findings, phases, memory };
    draw(&report, &outputs)?;
    env.end().await?;
    report.judge()?;
    describe(&report, &outputs)?;
    Ok(report)
}

/// Says in which phase the time was up. All but the last of the `phases` are over.
fn too_long(limit: Duration, phases: &[SoakPhase]) -> String {
    let minutes = limit.as_secs() / 60;
    let (last, over) = phases.split_last().map_or((None, &[][..]), |(last, over)| (Some(last), over));
    let during = last.map_or_else(String::new, |phase| format!(" while the pool was to be {}", phase.name));
    let over: Vec<String> =
        over.iter().map(|phase| format!("{} in {:.0} s", phase.name, phase.took.as_secs_f64())).collect();
    let before = if over.is_empty() { "nothing".to_owned() } else { over.join(", ") };
    format!(
        "the soak was stopped{during}: all of it may take {minutes} minutes. Before, it was {before}. Give it fewer --nodes, or the \
         machine to itself"
    )
}

/// Holds a log of an earlier soak against the rules, and draws it. The log does not say when its phases began, nor what they took.
///
/// # Errors
/// When it cannot be read, or has no soak, or a rule was broken.
pub fn recheck(log: &Path, outputs: &SoakOutputs) -> Result<SoakReport> {
    let events = AuditLog::new(log.to_owned()).read_all()?;
    let is_pool = |object: &&ObjectKey| object.resource == "nodepools" && object.name == objects::POOL;
    let pool = events.iter().filter_map(|event| event.object.as_ref()).find(is_pool);
    let pool = pool.with_context(|| format!("{} has no pool {}", log.display(), objects::POOL))?;
    let findings = check::check(&events, pool);
    let report = SoakReport { findings, phases: Vec::new(), memory: Vec::new() };
    draw(&report, outputs)?;
    report.judge()?;
    describe(&report, outputs)?;
    Ok(report)
}

fn draw(report: &SoakReport, outputs: &SoakOutputs) -> Result<()> {
    let findings = &report.findings;
    if let Some(file) = &outputs.picture {
        to_file(file, &picture::life(&findings.sizes, &report.phases))?;
    }
    if let Some(file) = &outputs.rollout_picture {
        to_file(file, &picture::rollout(&rollout(findings)))?;
    }
    Ok(())
}

/// Writes the page. Not of a soak that broke a rule.
fn describe(report: &SoakReport, outputs: &SoakOutputs) -> Result<()> {
    let Some(file) = &outputs.markdown else { return Ok(()) };
    let read = || std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let present = if file.exists() { Some(read()?) } else { None };
    let link = outputs.picture.as_deref().map(|picture| page::link(file, picture));
    let measured = page::measured(report, link.as_deref(), &page::machine());
    let page = page::filled(present.as_deref(), &measured);
    to_file(file, &page.with_context(|| format!("cannot write {}", file.display()))?)
}

fn to_file(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The pool from the change of its template until no node was from the old one.
fn rollout(findings: &Findings) -> Vec<PoolSize> {
    let (sizes, Some(began)) = (&findings.sizes, findings.template_changed) else { return Vec::new() };
    let start = sizes.iter().rposition(|size| size.at < began).unwrap_or(0);
    let mut rollout = Vec::new();
    let mut has_new_nodes = false;
    for size in sizes.iter().skip(start) {
        let is_over = has_new_nodes && !size.rolls;
        has_new_nodes |= size.rolls;
        // Until there is a node of the new template, the log does not tell that those of the old one are out of date.
        let current = if has_new_nodes { size.current } else { 0 };
        rollout.push(PoolSize { at: size.at.max(began), current, ..*size });
        if is_over {
            break;
        }
    }
    rollout
}

fn peaks(env: &TestEnv) -> Result<Vec<(String, f64)>> {
    let operators = &env.operators;
    let mut all = vec![
        ("nodepool-operator".to_owned(), operators.node_pool.pid()),
        ("autoscaler-operator".to_owned(), operators.autoscaler.pid()),
    ];
    all.extend(env.cluster.pids());
    let peak = |(name, pid): (String, u32)| Ok((name, memory::of(&pid.to_string(), Field::Peak)?));
    all.into_iter().map(peak).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn when_the_time_is_up_the_message_says_what_was_done_and_what_was_not() {
        let phase = |name, seconds| SoakPhase {
            name,
            began: Timestamp::UNIX_EPOCH,
            took: Duration::from_secs(seconds),
        };
        let said = too_long(LIMIT, &[phase("filled", 61), phase("rolled", 0)]);
        let expected = "the soak was stopped while the pool was to be rolled: all of it may take 15 minutes. Before, it was \
                        filled in 61 s. Give";
        assert!(said.starts_with(expected), "{said}");
        assert!(too_long(LIMIT, &[phase("filled", 0)]).contains("Before, it was nothing."));
        assert!(too_long(LIMIT, &[]).starts_with("the soak was stopped: all"));
    }
}
