//! A pool of hundreds of simulated nodes in the course of its life: pods fill it, its template changes, kubelets die, the pods
//! go. Then the API server's audit log is held against what was allowed.
//!
//! `story` makes it happen and decides nothing about right and wrong; `check` decides, and sees nothing but the log;
//! `picture` draws the rollout.

pub mod check;
mod objects;
pub mod picture;
mod story;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use toolbox::messages::inform;

use self::check::{Allowance, Findings, Invariant, PoolSize};
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

/// What a soak does.
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// Nodes that the pods fill.
    pub nodes: usize,
    /// Where to draw the rollout.
    pub picture: Option<PathBuf>,
    /// Where to keep the audit log.
    pub audit_log: Option<PathBuf>,
}

/// What a soak took.
pub struct SoakReport {
    /// What the audit log shows.
    pub findings: Findings,
    /// How long each phase took.
    pub phases: Vec<(&'static str, Duration)>,
    /// The most memory that each program had, in MiB.
    pub memory: Vec<(String, f64)>,
}

/// Runs the story on a control plane of its own, and checks the log.
///
/// # Errors
/// When a phase does not end, or a rule was broken.
pub async fn run(options: SoakOptions) -> Result<SoakReport> {
    let SoakOptions { nodes, picture, audit_log } = options;
    ensure!(nodes >= 20, "{nodes} nodes are too few: a share of them is to break, and a share to stay");
    let env = TestEnv::begin_at(&PLACES, "soak", &[]).await?;
    let told = story::tell(&env, nodes).await;
    let log = env.audit()?;
    if let Some(file) = &audit_log {
        std::fs::copy(log.path(), file).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let phases = told.map_err(|error| env.with_logs(error))?;
    let memory = peaks(&env)?;
    let began = Instant::now();
    let findings = check::check(&env.events()?, &env.key(objects::POOL));
    inform(&format!("checked {} writes in {:.1?}", findings.writes, began.elapsed()));
    draw(&findings, picture.as_deref())?;
    let report = SoakReport { findings, phases, memory };
    env.end().await?;
    report.judge()?;
    Ok(report)
}

/// Holds a log of an earlier soak against the rules, and draws its rollout.
///
/// # Errors
/// When it cannot be read, or has no soak, or a rule was broken.
pub fn recheck(log: &Path, picture: Option<&Path>) -> Result<SoakReport> {
    let events = AuditLog::new(log.to_owned()).read_all()?;
    let is_pool = |object: &&ObjectKey| object.resource == "nodepools" && object.name == objects::POOL;
    let pool = events.iter().filter_map(|event| event.object.as_ref()).find(is_pool);
    let pool = pool.with_context(|| format!("{} has no pool {}", log.display(), objects::POOL))?;
    let findings = check::check(&events, pool);
    draw(&findings, picture)?;
    let report = SoakReport { findings, phases: Vec::new(), memory: Vec::new() };
    report.judge()?;
    Ok(report)
}

fn draw(findings: &Findings, picture: Option<&Path>) -> Result<()> {
    let Some(file) = picture else { return Ok(()) };
    let text = picture::svg(&rollout(findings));
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

impl SoakReport {
    /// Whether every rule held, and whether the soak would have noticed: a rule that nothing was held against proves nothing.
    fn judge(&self) -> Result<()> {
        let Findings { violations, checked, endings, refused, .. } = &self.findings;
        let shown: Vec<String> = violations.iter().take(20).map(ToString::to_string).collect();
        if !violations.is_empty() {
            bail!("{} writes broke a rule; the first are\n{}\n{}", violations.len(), shown.join("\n"), self);
        }
        for rule in Invariant::ALL {
            ensure!(checked.contains_key(&rule), "nothing was held against this rule: {rule}\n{self}");
        }
        for allowance in [Allowance::Eviction, Allowance::Owner, Allowance::MachineOff] {
            ensure!(endings.contains_key(&allowance), "no pod ended {allowance}\n{self}");
        }
        ensure!(*refused > 0, "no eviction was refused, so the budgets decided nothing\n{self}");
        Ok(())
    }
}

impl std::fmt::Display for SoakReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, took) in &self.phases {
            writeln!(f, "{:>7.1} s {name}", took.as_secs_f64())?;
        }
        for (name, mib) in &self.memory {
            writeln!(f, "{mib:>7.1} MiB at most: {name}")?;
        }
        write!(f, "{}", self.findings)
    }
}
