//! Reads what etcd answers through the API server: a write refused before it was executed, or one in doubt.

use kube::core::Status;

use super::Class;

/// How the API server reports failures between it and etcd: etcd's own errors and gRPC's. It answers them with code 500
/// and no reason (measured on v1.36: an etcd that dies during a write).
const FAULTS: [&str; 2] = ["etcdserver: ", "rpc error: "];

/// Those among [`FAULTS`] that reject a request before anything is executed: it is too large for etcd, or for the
/// gRPC message that carries it there (measured on v1.36).
const TOO_LARGE: [&str; 2] = ["request is too large", "trying to send message larger than max"];

/// How etcd answers a write when it is full. Among [`FAULTS`] too, but the write is not in doubt.
const FULL: &str = "mvcc: database space exceeded";

/// The class of a 500 that the store caused; [`Class::Other`] for any other.
pub(super) fn of_failure(status: &Status) -> Class {
    let says = |texts: &[&str]| texts.iter().any(|text| status.message.contains(text));
    if says(&[FULL]) {
        Class::StorageFull
    } else if !says(&FAULTS) {
        Class::Other
    } else if says(&TOO_LARGE) {
        Class::TooLarge
    } else {
        // etcd's own timeouts and leader changes, and a broken connection to etcd, do not tell whether the transaction
        // was committed.
        Class::Ambiguous
    }
}
