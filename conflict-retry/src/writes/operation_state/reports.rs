//! Observer calls of a running operation.

use std::time::Duration;

use super::OperationState;
use crate::classify::Class;
use crate::observe::{AttemptEvent, circuit_changed};
use crate::operation::{ReadSource, Verb};
use crate::protect::Transition;

impl OperationState<'_> {
    /// Reports where the object of the next attempt comes from.
    pub(in crate::writes) fn read(&self, source: ReadSource) {
        self.options.observer().read(&self.operation, source);
    }

    /// Reports that a retry sets `path` to what the previous attempt wanted, although another writer has changed it
    /// since.
    pub(in crate::writes) fn overwrote(&self, path: &str) {
        tracing::warn!(
            resource = self.operation.resource,
            path,
            "a retry writes what the attempt before wanted over another writer's change; decide from the object given"
        );
        self.options.observer().overwrote(&self.operation, path);
    }

    /// Reports a failure that ends the operation with an outcome.
    pub(in crate::writes) fn settled(&self, verb: Verb, class: &Class) {
        self.report(self.running(), verb, Some(class), None);
    }

    pub(super) fn circuit(&self, transition: Option<Transition>) {
        if let Some(transition) = transition {
            circuit_changed(self.options.observer(), transition);
        }
    }

    pub(super) fn report(&self, attempt: u32, verb: Verb, class: Option<&Class>, delay: Option<Duration>) {
        let event = AttemptEvent {
            operation: &self.operation,
            attempt,
            verb,
            class,
            delay,
            elapsed: self.start.elapsed(),
        };
        tracing::debug!(
            attempt = event.attempt,
            verb = event.verb.label(),
            resource = self.operation.resource,
            subresource = self.operation.subresource.label(),
            class = event.class.map_or("ok", Class::label),
            delay = ?event.delay,
            "request ended"
        );
        self.options.observer().attempt(&event);
    }
}
