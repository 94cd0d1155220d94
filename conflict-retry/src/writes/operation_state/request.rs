//! One request of an operation.

use super::{Failed, OperationState};
use crate::classify::Class;
use crate::operation::Verb;
use crate::outcome::{RequestFailure, WriteError};
use crate::protect::{CircuitBreaker, Permit};

impl OperationState<'_> {
    /// Sends one request, until it ends, times out or is cancelled.
    pub(in crate::writes) async fn call<T>(
        &mut self,
        verb: Verb,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, Failed>, WriteError> {
        self.pass_limiter(verb).await?;
        let Some(timeout) =
            self.options.time_left(verb).filter(|_| !self.options.policy().cancellation().is_cancelled())
        else {
            return Err(self.cancelled());
        };
        let breaker = self.options.protection().breaker.as_ref();
        let permit = match breaker.map(CircuitBreaker::admit).transpose() {
            Ok(permit) => permit,
            Err(open) => return Err(self.throttled(open.into())),
        };
        self.circuit(permit.as_ref().and_then(Permit::transition));
        self.requests = self.requests.saturating_add(1);
        self.rounds = self.running();
        let answer = tokio::select! {
            biased;
            // First: an answer that has arrived counts, and a request is sent before it can be cancelled.
            answer = tokio::time::timeout(timeout, request) => answer,
            () = self.options.policy().cancellation().cancelled() => {
                self.maybe_written |= verb.is_write();
                self.report(self.running(), verb, Some(&Class::Ambiguous), None);
                return Err(self.cancelled());
            }
        };
        let failure = match answer {
            Ok(Ok(value)) => {
                self.record_result(permit, None);
                self.report(self.running(), verb, None, None);
                return Ok(Ok(value));
            }
            Ok(Err(error)) => RequestFailure::Api(error),
            Err(_elapsed) => RequestFailure::Timeout(timeout),
        };
        let class = failure.class_at(verb, &self.operation.resource);
        // Where only admission failed, the server itself has answered.
        self.record_result(permit, (!failure.is_admission_fault()).then_some(&class));
        self.maybe_written |= verb.is_write() && matches!(class, Class::Ambiguous | Class::StorageFull);
        Ok(Err(Failed { verb, class, failure }))
    }
}
