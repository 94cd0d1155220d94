//! Every call to a provider goes through here: it waits for its turn, ends in time, and is told to what counts calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shared_runtime::place;
use shared_runtime::rate::{Rate, RateLimiter};
use tokio::time::Instant;

use super::ProviderError;

/// How long a call keeps the place of its pool's pass in the loop. Most answers come within this time. Without its place, the
/// pass waits for the answer beside the passes of other pools, however many providers hang.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a call waits for its turn. After that its pass is made again later, from what there is then.
const TURN_LIMIT: Duration = Duration::from_secs(60);

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

/// The provider that is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callee<'a> {
    /// What tells it from other providers: its kind, and for a program its name after that.
    pub identity: &'a str,
    /// How long it may take to answer.
    pub limit: Duration,
    /// Its calls are counted against the rate.
    pub has_rate: bool,
}

impl<'a> Callee<'a> {
    /// A field of `spec.provider`. Metrics have it as a label, so it holds no name of a program or a set.
    fn kind(self) -> &'a str {
        self.identity.split_once('.').map_or(self.identity, |(kind, _name)| kind)
    }
}

/// How many calls each provider gets that is no API server.
pub(super) struct CallRates {
    rate: Rate,
    /// By the provider's identity.
    limiters: Mutex<HashMap<String, RateLimiter>>,
}

impl CallRates {
    /// Each gets `rate`.
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, limiters: Mutex::default() }
    }

    /// Waits until the provider may be called. Fails with [`ProviderError::Busy`] when that does not come in time.
    async fn turn(&self, callee: Callee<'_>) -> Result<(), ProviderError> {
        if !callee.has_rate {
            return Ok(());
        }
        let limiter = {
            // Entries are added as a whole, so a panic elsewhere leaves nothing that could do harm.
            let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || RateLimiter::new(self.rate);
            limiters.entry(callee.identity.to_owned()).or_insert_with(new).clone()
        };
        match tokio::time::timeout(TURN_LIMIT, limiter.acquire()).await {
            Ok(_waited) => Ok(()),
            Err(_elapsed) => Err(ProviderError::Busy(format!(
                "more calls wait for it than --exec-calls-per-second lets through in {} s",
                TURN_LIMIT.as_secs()
            ))),
        }
    }
}

/// Makes the calls.
#[derive(Default)]
pub(super) struct Calls {
    /// Who hears of them.
    pub(super) observer: Option<Arc<dyn CallObserver>>,
    /// How many each provider gets; `None` where all are made at once.
    pub(super) rates: Option<CallRates>,
}

impl Calls {
    /// The answer of the provider, which has to come in time. A call that has to wait for its turn is made when it has it.
    pub(super) async fn in_time<T>(
        &self,
        callee: Callee<'_>,
        call: Call,
        answer: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let (answer, took) = place::lent(PATIENCE, self.answer(callee, answer)).await;
        if let Some(observer) = &self.observer {
            let result = answer.as_ref().err().map_or("ok", ProviderError::category);
            observer.ended(&EndedCall { provider: callee.kind(), call, result, took });
        }
        answer
    }

    /// The answer, and how long it took after the call had its turn.
    async fn answer<T>(
        &self,
        callee: Callee<'_>,
        answer: impl Future<Output = Result<T, ProviderError>>,
    ) -> (Result<T, ProviderError>, Duration) {
        if let Some(rates) = &self.rates
            && let Err(error) = rates.turn(callee).await
        {
            return (Err(error), Duration::ZERO);
        }
        let begun = Instant::now();
        let answer = tokio::time::timeout(callee.limit, answer).await.unwrap_or_else(|_elapsed| {
            Err(ProviderError::Unreachable(format!("no answer within {} s", callee.limit.as_secs())))
        });
        (answer, begun.elapsed())
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

    fn callee(identity: &str) -> Callee<'_> {
        Callee { identity, limit: Duration::from_secs(30), has_rate: true }
    }

    /// How long so many calls to the provider take, one after the other, and how the last one ended.
    async fn time_of(
        calls: &Calls,
        callee: Callee<'_>,
        count: usize,
    ) -> (Duration, Result<(), ProviderError>) {
        let (begun, mut last) = (Instant::now(), Ok(()));
        for _ in 0..count {
            last = calls.in_time(callee, Call::List, std::future::ready(Ok(()))).await;
        }
        (begun.elapsed(), last)
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_gets_so_many_calls_a_second_whatever_another_one_gets() {
        let rates = CallRates::new(Rate::new(10.0, 20).unwrap());
        let calls = Calls { rates: Some(rates), ..Calls::default() };
        assert_eq!(time_of(&calls, callee("exec.rack"), 20).await, (Duration::ZERO, Ok(())));
        let (took, last) = time_of(&calls, callee("exec.rack"), 10).await;
        assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1100), "{took:?}");
        assert_eq!(last, Ok(()));
        assert_eq!(time_of(&calls, callee("exec.other"), 20).await, (Duration::ZERO, Ok(())));
        let local = Callee { has_rate: false, ..callee("simulated") };
        assert_eq!(time_of(&calls, local, 1000).await, (Duration::ZERO, Ok(())));
        assert_eq!(time_of(&Calls::default(), callee("exec.rack"), 1000).await, (Duration::ZERO, Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_does_not_have_its_turn_within_a_minute_is_not_made() {
        let heard = Arc::<Heard>::default();
        let rates = CallRates::new(Rate::new(0.01, 1).unwrap());
        let calls = Calls { observer: Some(heard.clone()), rates: Some(rates) };
        let (_, first) = time_of(&calls, callee("exec.rack"), 1).await;
        assert_eq!(first, Ok(()));
        let begun = Instant::now();
        let asked = async { Err::<(), _>(ProviderError::Quota("it was called".to_owned())) };
        let error = calls.in_time(callee("exec.rack"), Call::Create, asked).await.unwrap_err();
        assert!(matches!(error, ProviderError::Busy(_)), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(61), "{:?}", begun.elapsed());
        let last = heard.0.lock().unwrap().pop();
        assert_eq!(last, Some(("exec".to_owned(), Call::Create, "busy", Duration::ZERO)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_heard_of_with_its_result_and_its_time_also_if_it_is_never_answered() {
        let heard = Arc::<Heard>::default();
        let calls = Calls { observer: Some(heard.clone()), ..Calls::default() };
        let second = Duration::from_secs(1);
        let slow = async {
            tokio::time::sleep(second).await;
            Ok(())
        };
        calls.in_time(callee("exec.rack"), Call::List, slow).await.unwrap();
        let refused = std::future::ready(Err::<(), _>(ProviderError::Quota(String::new())));
        calls.in_time(callee("karpenter"), Call::Create, refused).await.unwrap_err();
        let never = std::future::pending::<Result<(), _>>();
        calls.in_time(callee("exec.rack"), Call::Delete, never).await.unwrap_err();
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
