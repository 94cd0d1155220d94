//! Every call to a provider goes through here: it ends in time, and is told to what counts calls.

use std::sync::Arc;
use std::time::Duration;

use shared_runtime::place;
use tokio::time::Instant;

use super::ProviderError;

/// How long a call keeps the place of its pool's pass in the loop. Most answers come within this time. Without its place, the
/// pass waits for the answer beside the passes of other pools, however many providers hang.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a provider is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The machines of a pool.
    List,
    /// A machine.
    Create,
    /// The end of a machine.
    Delete,
    /// More machines of a number that it keeps.
    Grow,
    /// Fewer of them.
    Shrink,
    /// That a machine need not go any more.
    Keep,
    /// Why a machine did not come.
    Explain,
}

impl Call {
    /// The call as a label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Grow => "grow",
            Self::Shrink => "shrink",
            Self::Keep => "keep",
            Self::Explain => "explain",
        }
    }
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedCall<'a> {
    /// The kind of provider: a field of `spec.provider`, never the name of a program or of an object.
    pub provider: &'a str,
    /// What was asked for.
    pub call: Call,
    /// `ok`, or the category of the error.
    pub result: &'static str,
    /// Time until the answer, or until it was no longer waited for.
    pub took: Duration,
}

/// Hears of every call to a provider when it has ended. A call that is given up with the lease has no end.
pub trait CallObserver: Send + Sync {
    /// Takes note of a call.
    fn ended(&self, call: &EndedCall<'_>);
}

/// Makes the calls.
#[derive(Default)]
pub(super) struct Calls {
    /// Who hears of them.
    pub(super) observer: Option<Arc<dyn CallObserver>>,
}

impl Calls {
    /// The answer of a provider of the kind `provider`, which has to come within `limit`.
    pub(super) async fn in_time<T>(
        &self,
        provider: &str,
        call: Call,
        limit: Duration,
        answer: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let begun = Instant::now();
        let answer = place::lent(PATIENCE, tokio::time::timeout(limit, answer)).await;
        let answer = answer.unwrap_or_else(|_elapsed| {
            Err(ProviderError::Unreachable(format!("no answer within {} s", limit.as_secs())))
        });
        if let Some(observer) = &self.observer {
            let result = answer.as_ref().err().map_or("ok", ProviderError::category);
            observer.ended(&EndedCall { provider, call, result, took: begun.elapsed() });
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<(String, Call, &'static str, Duration)>>);

    impl CallObserver for Heard {
        fn ended(&self, call: &EndedCall<'_>) {
            let EndedCall { provider, call, result, took } = *call;
            self.0.lock().unwrap().push((provider.to_owned(), call, result, took));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_heard_of_with_its_result_and_its_time_also_if_it_is_never_answered() {
        let heard = Arc::<Heard>::default();
        let calls = Calls { observer: Some(heard.clone()) };
        let second = Duration::from_secs(1);
        let slow = async {
            tokio::time::sleep(second).await;
            Ok(())
        };
        calls.in_time("exec", Call::List, second * 30, slow).await.unwrap();
        let refused = std::future::ready(Err::<(), _>(ProviderError::Quota(String::new())));
        calls.in_time("karpenter", Call::Create, second * 30, refused).await.unwrap_err();
        let never = std::future::pending::<Result<(), _>>();
        calls.in_time("exec", Call::Delete, second * 30, never).await.unwrap_err();
        assert_eq!(
            *heard.0.lock().unwrap(),
            [
                ("exec".to_owned(), Call::List, "ok", second),
                ("karpenter".to_owned(), Call::Create, "quota", Duration::ZERO),
                ("exec".to_owned(), Call::Delete, "unreachable", second * 30),
            ]
        );
    }
}
