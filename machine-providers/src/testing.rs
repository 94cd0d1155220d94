//! What the tests of this crate and of the operator have in common.

pub use node_lifecycle::testing::{at, cluster, key, pool, prefix};
use serde_json::{Value, json};

/// An error in the API server's format.
pub fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code });
    (code, status)
}
