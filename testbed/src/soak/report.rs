//! What a soak took and what its audit log shows, and whether that is enough.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;

use super::check::{Allowance, Findings, Invariant};

/// A part of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoakPhase {
    /// What became of the pool.
    pub name: &'static str,
    /// When.
    pub began: Timestamp,
    /// How long it took; nothing until it is over.
    pub took: Duration,
}

/// What a soak took.
pub struct SoakReport {
    /// What the audit log shows.
    pub findings: Findings,
    /// The parts of the story, in order.
    pub phases: Vec<SoakPhase>,
    /// The most memory that each program had, in MiB.
    pub memory: Vec<(String, f64)>,
}

impl SoakReport {
    /// Whether every rule held, and whether the soak would have noticed: a rule that nothing was held against proves nothing.
    pub(super) fn judge(&self) -> Result<()> {
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
        for SoakPhase { name, took, .. } in &self.phases {
            writeln!(f, "{:>7.1} s {name}", took.as_secs_f64())?;
        }
        for (name, mib) in &self.memory {
            writeln!(f, "{mib:>7.1} MiB at most: {name}")?;
        }
        write!(f, "{}", self.findings)
    }
}
