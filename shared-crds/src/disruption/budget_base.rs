//! What percentages in budgets are of.
//!
//! Of the nodes that are there, because that is what a user sees: with 10%, of 500 nodes 50 go at a time, also where only 50
//! are wanted. While fewer are there than are wanted, as in a pool that grows, of the nodes wanted: a budget does not become
//! narrower because nodes are missing. How many nodes may be missing is not said by budgets but by
//! `spec.rollout.maxUnavailable`, which is of the nodes wanted alone.

/// The numbers of a pool's nodes that decide what percentages are of. Both operators count them in the same way.
///
/// ```
/// use shared_crds::disruption::BudgetBase;
///
/// assert_eq!(BudgetBase { wanted: 50, staying: 500, surge: 0 }.nodes(), 500);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetBase {
    /// Number of nodes wanted.
    pub wanted: usize,
    /// Number of nodes that have been Ready and are not being removed. One that has never been Ready is in no budget, so it
    /// makes none wider, and a drain that does not end does not either.
    pub staying: usize,
    /// How many of those a rollout may have made beyond the nodes wanted; 0 while none goes on. They are there so that as many
    /// as wanted are available, and not for more to be disrupted.
    pub surge: usize,
}

impl BudgetBase {
    /// The number of nodes that percentages are of.
    pub fn nodes(self) -> usize {
        let Self { wanted, staying, surge } = self;
        wanted.max(staying.saturating_sub(surge))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_of_what_is_there_and_of_what_is_wanted_if_that_is_more() {
        for (what, wanted, staying, surge, expected) in [
            ("a pool that has what it should", 10, 10, 0, 10),
            ("one that shrinks", 50, 500, 0, 500),
            ("one that shrinks to nothing", 0, 4, 0, 4),
            ("one that grows", 500, 50, 0, 500),
            ("one in a rollout", 10, 13, 3, 10),
            ("one in a rollout whose new nodes are not there yet", 10, 10, 3, 10),
            ("one that shrinks in a rollout", 50, 500, 5, 495),
            ("one without nodes", 0, 0, 0, 0),
        ] {
            assert_eq!(BudgetBase { wanted, staying, surge }.nodes(), expected, "{what}");
        }
    }
}
