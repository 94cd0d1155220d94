//! Which nodes go, and why: a list of rules, a file each. Each rule answers of a node `Go`, `Wait` with the reason, or `No`.
//! They are asked in the order of the list, each about all nodes before the next one, and the first that answers `Go` decides.
//!
//! | file | contains |
//! |---|---|
//! | `machine_lost`, `never_ready`, `unhealthy`, `unhealthy_answering`, `out_of_date`, `excess` | a rule each |
//! | `question`, `verdict` | nothing: what the rules look at, and what they answer |
//! | `removals` | the rules asked about all nodes, and which nodes go |
//! | `too_many_failed` | whether so many nodes have failed that none is replaced for it |
//! | `waits` | what is said about nodes that have failed and stay |

mod excess;
mod machine_lost;
mod never_ready;
mod out_of_date;
mod question;
mod removals;
mod too_many_failed;
mod unhealthy;
mod unhealthy_answering;
mod verdict;
pub(crate) mod waits;

pub(crate) use self::question::{Choice, Question};
pub(crate) use self::removals::{Removals, Rule};
pub(crate) use self::too_many_failed::brake;
pub(crate) use self::verdict::Ground;

/// The rules for nodes that have failed: they are deleted, or drained where they can recover, and new ones are made in their place.
/// The number of nodes is decided without them, so that they are asked before it.
pub(crate) const FAILED: [Rule; 4] = [
    // The machine is gone or going behind the operator's back, and not so many have failed that the cause is another one.
    Rule { ground: Ground::MachineLost, ask: machine_lost::ask },
    // It was made for the pool and has not become Ready within spec.provisioningTimeoutSeconds, and no pod shows otherwise.
    Rule { ground: Ground::NeverReady, ask: never_ready::ask },
    // It has had a condition of spec.repair for as long as that says, a new one can be made, the budgets allow, and its kubelet is
    // silent.
    Rule { ground: Ground::Unhealthy, ask: unhealthy::ask },
    // The same of one whose kubelet answers.
    Rule { ground: Ground::UnhealthyAnswering, ask: unhealthy_answering::ask },
];

/// The rules for nodes that the count can miss: they are cordoned and drained.
pub(crate) const BY_NUMBER: [Rule; 2] = [
    // It is out of date, and enough others are available; it asks for nothing else, and the budgets allow.
    Rule { ground: Ground::OutOfDate, ask: out_of_date::ask },
    // There are more nodes than wanted, and it is the one whose removal costs the least.
    Rule { ground: Ground::Excess, ask: excess::ask },
];
