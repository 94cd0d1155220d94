//! The conditions of a pool, or of a pool with nodes, that this version of the operator cannot read.

use shared_crds::conditions::{ConditionType, Reason, Statement};

/// The conditions of a pool that cannot be read because of `error`.
pub(crate) fn statements(error: &str) -> Vec<Statement> {
    let message = format!(
        "this version of the operator cannot read the pool, so nothing is done to its nodes: {error}; change the field, or run a newer version"
    );
    let say = |type_, status: bool| Statement::new(type_, status, Reason::Unreadable, message.clone());
    vec![
        say(ConditionType::Ready, false),
        say(ConditionType::Reconciling, false),
        say(ConditionType::Stalled, true),
    ]
}

/// The message about nodes that cannot be read; `None` when there are none.
pub(crate) fn of_nodes(names: &[String]) -> Option<String> {
    let first = names.first()?;
    let more = match names.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    Some(format!(
        "this version of the operator cannot read node {first}{more}, so nothing is done to it; change the field, or run a newer version"
    ))
}
