//! What budgets say to the user: why no node may be disrupted now, and what is wrong with them.

use k8s_openapi::jiff::Zoned;

use crate::v1alpha1::{DisruptionEffect, DisruptionReason};

/// Why no more nodes may be disrupted for a reason now. The text is for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetRefusal {
    /// A budget cannot be followed.
    #[error("{0}")]
    Unreadable(BudgetProblem),
    /// A Limit of 0 nodes.
    #[error("{} holds {}: it allows 0 nodes{}", path(&[*.budget]), held(.reasons), at_least(.until.as_ref()))]
    Forbidden {
        /// The budget's place in `spec.disruption.budgets`.
        budget: usize,
        /// What it is for.
        reasons: Vec<DisruptionReason>,
        /// When its windows end at the earliest; `None` if it has none, and so does not end.
        until: Option<Zoned>,
    },
    /// No window is open.
    #[error("no window of {} allows {reason} now; {}", path(.budgets), following(.begins.as_ref()))]
    Closed {
        /// The places of the `AllowOnly` budgets for the reason in `spec.disruption.budgets`.
        budgets: Vec<usize>,
        /// What was asked for.
        reason: DisruptionReason,
        /// When the next window begins; `None` if none ever does.
        begins: Option<Zoned>,
    },
    /// A budget is used up.
    #[error(
        "{} allows {} at a time{}{}, and {} being disrupted",
        path(&[*.budget]), counted(*.nodes), in_brackets(.share.as_ref()), purpose(.reasons), are(*.disrupted)
    )]
    UsedUp {
        /// The budget's place in `spec.disruption.budgets`.
        budget: usize,
        /// How many nodes it allows at a time.
        nodes: usize,
        /// What that is a percentage of, such as `10% of 8`.
        share: Option<String>,
        /// What it is for.
        reasons: Vec<DisruptionReason>,
        /// How many nodes are being disrupted for these reasons.
        disrupted: usize,
    },
}

/// What a person should change about budgets. The text is for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetProblem {
    /// A budget cannot be followed.
    #[error("{} cannot be followed, so it {}: {why}", path(&[*.budget]), instead(*.effect, .reasons))]
    Unreadable {
        /// Its place in `spec.disruption.budgets`.
        budget: usize,
        /// What it should do.
        effect: DisruptionEffect,
        /// What it is for.
        reasons: Vec<DisruptionReason>,
        /// What is wrong with it, and what to write instead.
        why: String,
    },
    /// Budgets leave no moment for what they are for.
    #[error("with {}, there is no moment{} at which a node may be disrupted{}", path(.budgets), before(.until.as_ref()), purpose(.reasons))]
    Contradiction {
        /// Their places in `spec.disruption.budgets`.
        budgets: Vec<usize>,
        /// The reasons for which nothing can be disrupted.
        reasons: Vec<DisruptionReason>,
        /// The time up to which it was looked for; `None` if there is none at all.
        until: Option<Zoned>,
    },
}

impl From<BudgetProblem> for BudgetRefusal {
    fn from(problem: BudgetProblem) -> Self {
        Self::Unreadable(problem)
    }
}

/// Such as `spec.disruption.budgets[0], [1] and [3]`.
fn path(budgets: &[usize]) -> String {
    let indices: Vec<_> = budgets.iter().map(|budget| format!("[{budget}]")).collect();
    format!("spec.disruption.budgets{}", listed(&indices))
}

/// Such as `a, b and c`.
fn listed(items: &[impl AsRef<str>]) -> String {
    let items: Vec<_> = items.iter().map(AsRef::as_ref).collect();
    match &items[..] {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The reasons, if they are not all that there are.
fn some(reasons: &[DisruptionReason]) -> Option<String> {
    let names: Vec<_> = reasons.iter().map(|reason| reason.as_str()).collect();
    (reasons.len() < DisruptionReason::ALL.len()).then(|| listed(&names))
}

fn held(reasons: &[DisruptionReason]) -> String {
    some(reasons).unwrap_or_else(|| "everything".to_owned())
}

fn purpose(reasons: &[DisruptionReason]) -> String {
    some(reasons).map(|reasons| format!(" for {reasons}")).unwrap_or_default()
}

fn instead(effect: DisruptionEffect, reasons: &[DisruptionReason]) -> String {
    match effect {
        DisruptionEffect::Limit => format!("holds {}", held(reasons)),
        DisruptionEffect::AllowOnly => format!("opens no window{}", purpose(reasons)),
    }
}

fn at_least(until: Option<&Zoned>) -> String {
    until.map_or_else(|| ", at all times".to_owned(), |until| format!(", at least until {until}"))
}

fn following(begins: Option<&Zoned>) -> String {
    begins.map_or_else(|| "none ever begins".to_owned(), |begins| format!("the next one begins {begins}"))
}

fn before(until: Option<&Zoned>) -> String {
    until.map(|until| format!(" before {until}")).unwrap_or_default()
}

fn in_brackets(share: Option<&String>) -> String {
    share.map(|share| format!(" ({share})")).unwrap_or_default()
}

fn counted(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

fn are(nodes: usize) -> String {
    if nodes == 1 { "1 is".to_owned() } else { format!("{nodes} are") }
}
