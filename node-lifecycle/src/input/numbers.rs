//! Numbers of nodes, as text and as API integers.

/// `1 node`, `2 nodes`.
pub fn nodes(count: usize) -> String {
    format!("{count} node{}", if count == 1 { "" } else { "s" })
}

/// The count as an API integer.
pub fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
