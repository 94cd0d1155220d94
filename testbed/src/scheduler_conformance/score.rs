//! Counts questions and answers by the class of their constraints.

use std::collections::BTreeMap;
use std::fmt;

use super::question::{ObservedPlacement, Record};

/// The results by class.
#[derive(Clone, Debug, Default)]
pub struct Score {
    rows: BTreeMap<String, ScoreRow>,
}

/// The results of the questions of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScoreRow {
    /// Number of questions.
    pub asked: usize,
    /// Placed on an existing node.
    pub fits: usize,
    /// Placed once the planned nodes existed.
    pub needs_nodes: usize,
    /// Not placed.
    pub stays: usize,
    /// Not placed, even with one more node of some pool.
    pub probed: usize,
    /// The planner's answer differed.
    pub disagreed: usize,
}

impl Score {
    /// Adds a question, under each of its classes and under `all`.
    pub fn add(&mut self, record: &Record) {
        for class in record.classes.iter().copied().chain(["all"]) {
            let row = self.rows.entry(class.to_owned()).or_default();
            row.asked += 1;
            row.disagreed += usize::from(record.disagreement.is_some());
            match &record.observed {
                ObservedPlacement::Fits => row.fits += 1,
                ObservedPlacement::NeedsNodes => row.needs_nodes += 1,
                ObservedPlacement::Stays(probe) => {
                    row.stays += 1;
                    row.probed += usize::from(probe.is_some());
                }
            }
        }
    }

    /// The results of `class`, or of all questions under `all`.
    pub fn row(&self, class: &str) -> ScoreRow {
        self.rows.get(class).copied().unwrap_or_default()
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "class             asked  fits  needs nodes  stays  (tried)  disagreed")?;
        for (class, row) in &self.rows {
            let ScoreRow { asked, fits, needs_nodes, stays, probed, disagreed } = row;
            writeln!(
                f,
                "{class:<17} {asked:>5} {fits:>5} {needs_nodes:>12} {stays:>6} {probed:>8} {disagreed:>10}"
            )?;
        }
        Ok(())
    }
}
