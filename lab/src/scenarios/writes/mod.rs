//! The meaning of a conflict for clients that read, decide and write.

mod empty_version;
mod errors;
mod etcd_revision;
mod foreign_object;
mod ignored_conflict;
mod lost_update;
mod no_op;
mod one_version;
mod retry_get_change_update;
mod storage_version;
mod when_to_retry;
mod wrapped_error;

use std::sync::{Mutex, PoisonError};

use conflict_retry::{Observer, Operation};

use crate::scenario::Scenario;

/// This group's scenarios.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        lost_update::SCENARIO,
        ignored_conflict::SCENARIO,
        one_version::SCENARIO,
        foreign_object::SCENARIO,
        etcd_revision::SCENARIO,
        empty_version::SCENARIO,
        no_op::SCENARIO,
        retry_get_change_update::SCENARIO,
        when_to_retry::SCENARIO,
        wrapped_error::SCENARIO,
        errors::SCENARIO,
    ]
}

/// The code of an answer; 0 when there was none.
fn code<T>(answer: &Result<T, kube::Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

/// Records the fields that retries have overwritten.
#[derive(Default)]
struct Overwrites(Mutex<Vec<String>>);

impl Overwrites {
    fn paths(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Overwrites {
    fn overwrote(&self, _operation: &Operation, path: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
    }
}
