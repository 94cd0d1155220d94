//! Numbers of nodes, in words and as the API has them.

/// `1 node`, `2 nodes`.
pub fn nodes(count: usize) -> String {
    format!("{count} node{}", if count == 1 { "" } else { "s" })
}

/// As the API has it.
pub fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
