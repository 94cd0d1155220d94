//! Waits for a condition, and reports the last observed state when it does not become true.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

/// Time limit of any step of a test on a busy machine. A minute was too short for steps of ten passes of an operator that
/// is killed after each, on two cores with forty processes that want one. How quickly something has to happen is for a test
/// to say that is about it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Until an operator has to have ended that is told to, or that finds that it may not go on: it needs 20 s at most, and its Pod
/// would be killed after 30.
pub const EXITS: Duration = Duration::from_secs(60);

/// Interval between two probes: long enough to leave CPU time to the components under test. At 100 ms, those for
/// the end of a namespace alone were a tenth of an API server's requests.
const POLL: Duration = Duration::from_millis(200);

/// Calls `probe` until it returns a value, at most for `patience`. `Ok(None)` and `Err` both mean "not yet"; a probe
/// that can describe the observed state does so with `bail!`, because the message ends with the last error.
///
/// `probe` is a plain closure that returns a future, because the future of an `AsyncFnMut` argument cannot be spawned.
///
/// # Errors
/// When the time is up, with what was waited for and the last observed state.
pub async fn eventually<T, F>(patience: Duration, what: &str, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let deadline = Instant::now() + patience;
    let mut seen = "nothing yet".to_owned();
    loop {
        // A probe that hangs must not outlive the deadline.
        match tokio::time::timeout_at(deadline, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => seen = format!("{error:#}"),
            Err(_) => {
                bail!("{what}: not within {patience:?}; a look was still under way; seen before: {seen}")
            }
        }
        if Instant::now() + POLL > deadline {
            bail!("{what}: not within {patience:?}; last seen: {seen}");
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_value_is_returned_as_soon_as_there_is_one() {
        let looks = Cell::new(0);
        let value = eventually(Duration::from_secs(10), "three looks", || async {
            looks.set(looks.get() + 1);
            Ok((looks.get() == 3).then_some("done"))
        });
        assert_eq!(value.await.unwrap(), "done");
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_deadline_the_message_says_what_was_seen_last() {
        let error = eventually::<(), _>(Duration::from_secs(1), "5 nodes are ready", || async {
            bail!("3 of 5 nodes")
        });
        let error = error.await.unwrap_err().to_string();
        assert_eq!(error, "5 nodes are ready: not within 1s; last seen: 3 of 5 nodes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_does_not_outlive_the_deadline() {
        let error = eventually::<(), _>(Duration::from_secs(1), "an answer", || async {
            std::future::pending::<()>().await;
            Ok(None)
        });
        assert!(error.await.unwrap_err().to_string().contains("still under way"));
    }
}
