//! Findings in words.

use std::fmt::{Display, Formatter, Result};

use super::{Allowance, Findings, Invariant, Violation};

impl Invariant {
    /// In the order of the report.
    pub const ALL: [Self; 4] = [Self::NeverAbove, Self::NeverBelow, Self::Budgets, Self::NodesEmpty];
}

impl Display for Invariant {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::NeverAbove => "no node is made above wanted + surge",
            Self::NeverBelow => "no used node is taken below wanted - unavailable",
            Self::Budgets => "no pod is ended outside its budgets",
            Self::NodesEmpty => "no node goes while there is a pod on it",
        })
    }
}

impl Display for Allowance {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Eviction => "by an eviction within the budgets",
            Self::Owner => "by the owner, which had too many",
            Self::MachineOff => "because the machine was off",
            Self::Unreachable => "because the node had not been Ready for longer than they tolerate",
            Self::Forced => "because the drain had run out of time",
        })
    }
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} {}: {}", self.at, self.rule, self.what)
    }
}

impl Display for Findings {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "{} writes read", self.writes)?;
        for rule in Invariant::ALL {
            let broken = self.violations.iter().filter(|violation| violation.rule == rule).count();
            let checked = self.checked.get(&rule).unwrap_or(&0);
            writeln!(f, "{checked:>7} checked, {broken} broken: {rule}")?;
        }
        for (allowance, count) in &self.endings {
            writeln!(f, "{count:>7} pods ended {allowance}")?;
        }
        writeln!(
            f,
            "{:>7} pods left behind on a node that was off, long after they should have ended",
            self.overdue
        )?;
        writeln!(f, "{:>7} evictions refused because of a budget", self.refused)?;
        let most = self.sizes.iter().map(|size| size.all).max().unwrap_or(0);
        write!(f, "{most:>7} nodes at most")
    }
}
