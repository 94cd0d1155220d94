use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_stream_of::receiver;

use super::*;
use crate::liveness::{Liveness, StuckTask};

/// A receiver as a stream, without another dependency.
mod tokio_stream_of {
    use futures::{Stream, stream};
    use tokio::sync::mpsc::UnboundedReceiver;

    pub(super) fn receiver<T: Send + 'static>(from: UnboundedReceiver<T>) -> impl Stream<Item = T> {
        stream::unfold(from, |mut from| async move { from.recv().await.map(|item| (item, from)) })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("boom")]
struct Boom;

impl Categorised for Boom {
    fn category(&self) -> &'static str {
        "boom"
    }
}

fn config() -> (Config, Metrics) {
    let metrics = Metrics::new("test", "0").unwrap();
    (Config::new("test", Clock::system(), metrics.clone()), metrics)
}

fn text(metrics: &Metrics) -> String {
    String::from_utf8(metrics.render().unwrap()).unwrap()
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_key_never_runs_twice_at_once_and_runs_again_for_a_trigger_that_came_meanwhile() {
    let (config, _) = config();
    let (send, triggers) = mpsc::unbounded_channel();
    let (running, most, runs) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (running, most, runs, stop) = (running.clone(), most.clone(), runs.clone(), stop.clone());
        async move {
            let reconcile = move |_: &str| {
                let (running, most, runs) = (running.clone(), most.clone(), runs.clone());
                async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(SECOND).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Boom>(Step::Done)
                }
            };
            run(config.concurrency(4), receiver(triggers), reconcile, stop).await;
        }
    });
    send.send("a").unwrap();
    tokio::time::sleep(SECOND / 2).await;
    for _ in 0..10 {
        send.send("a").unwrap();
    }
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn events_make_no_hot_loop_of_a_failing_key_and_a_panic_is_an_error() {
    let (config, metrics) = config();
    let clock = Clock::system();
    let starts: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let stop = CancellationToken::new();
    let ticks = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Some(("a", ()))
    });
    let task = tokio::spawn({
        let (starts, stop) = (starts.clone(), stop.clone());
        async move {
            let reconcile = move |_: &str| {
                let nth = {
                    let mut starts = starts.lock().unwrap();
                    starts.push(clock.monotonic());
                    starts.len()
                };
                async move {
                    assert!(nth != 2, "the second run panics");
                    Err::<Step, _>(Boom)
                }
            };
            run(config, ticks, reconcile, stop).await;
        }
    });
    tokio::time::sleep(Duration::from_millis(2500)).await;
    stop.cancel();
    task.await.unwrap();
    let starts = starts.lock().unwrap().clone();
    // 100, 200, 400 and 800 ms, each at least half: four to seven starts in 2.5 s, not 250.
    assert!((4..=7).contains(&starts.len()), "{starts:?}");
    for (n, pair) in starts.windows(2).enumerate() {
        let at_least = Duration::from_millis(50) * 2_u32.pow(u32::try_from(n).unwrap());
        assert!(pair[1].saturating_sub(pair[0]) >= at_least, "{starts:?}");
    }
    let text = text(&metrics);
    assert!(
        text.contains(r#"tandem_reconcile_errors_total{category="panic",controller="test"} 1"#),
        "{text}"
    );
    assert!(text.contains(r#"category="boom""#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_running_reconciles_finish_and_starts_no_more() {
    let (config, _) = config();
    let (send, triggers) = mpsc::unbounded_channel();
    let finished = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (finished, stop) = (finished.clone(), stop.clone());
        async move {
            let reconcile = move |_: &str| {
                let finished = finished.clone();
                async move {
                    tokio::time::sleep(SECOND * 3).await;
                    finished.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Boom>(Step::RequeueAfter(Duration::ZERO))
                }
            };
            run(config, receiver(triggers), reconcile, stop).await;
        }
    });
    send.send("a").unwrap();
    send.send("b").unwrap();
    tokio::time::sleep(SECOND).await;
    stop.cancel();
    task.await.unwrap();
    assert_eq!(finished.load(Ordering::SeqCst), 1, "a finished, b never started");
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_does_not_end_is_dropped_at_the_deadline() {
    let (config, _) = config();
    let stop = CancellationToken::new();
    let (began, clock) = (Clock::system(), Clock::system());
    let task = tokio::spawn({
        let stop = stop.clone();
        async move {
            let reconcile = |_: &str| std::future::pending::<Result<Step, Boom>>();
            run(config.stop_deadline(SECOND * 7), stream::iter(["a"]), reconcile, stop).await;
        }
    });
    tokio::time::sleep(SECOND).await;
    stop.cancel();
    task.await.unwrap();
    assert_eq!(clock.monotonic(), SECOND * 8);
    drop(began);
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_never_ends_fails_the_liveness_probe_although_the_loop_turns() {
    let (config, _) = config();
    let liveness = Liveness::new(Clock::system());
    let (config, stop) = (config.pulse(liveness.pulse("controller test")), CancellationToken::new());
    let task = tokio::spawn({
        let stop = stop.clone();
        async move {
            let reconcile = |key: &str| {
                let hangs = key == "hangs";
                async move {
                    if hangs {
                        return std::future::pending::<Result<Step, Boom>>().await;
                    }
                    Ok(Step::RequeueAfter(SECOND))
                }
            };
            let config = config.concurrency(2).stop_deadline(SECOND);
            run(config, stream::iter(["hangs", "works"]), reconcile, stop).await;
        }
    });
    tokio::time::sleep(WORK_LIMIT.saturating_sub(TURN)).await;
    assert!(liveness.stuck().is_empty());
    tokio::time::sleep(TURN * 3).await;
    let [StuckTask { task: name, trouble }] = &liveness.stuck()[..] else { panic!("{:?}", liveness.stuck()) };
    assert!(name == "controller test" && trouble.starts_with("one reconcile has not ended"), "{trouble}");
    stop.cancel();
    task.await.unwrap();
    assert!(liveness.stuck().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_before_the_gate_opens_and_triggers_are_kept() {
    let (config, _) = config();
    let gate = CancellationToken::new();
    let runs: Arc<Mutex<Vec<&str>>> = Arc::default();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (runs, stop, gate) = (runs.clone(), stop.clone(), gate.clone());
        async move {
            let reconcile = move |key: &'static str| {
                runs.lock().unwrap().push(key);
                async { Ok::<_, Boom>(Step::Done) }
            };
            let config = config.gate(stream::once(gate.cancelled_owned()).map(|()| true));
            run(config, stream::iter(["a", "b"]), reconcile, stop).await;
        }
    });
    tokio::time::sleep(SECOND).await;
    assert!(runs.lock().unwrap().is_empty());
    gate.cancel();
    tokio::time::sleep(SECOND).await;
    assert_eq!(*runs.lock().unwrap(), ["a", "b"]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn conflicts_come_back_at_once_and_are_no_errors() {
    let (config, metrics) = config();
    let runs = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (runs, stop) = (runs.clone(), stop.clone());
        async move {
            let reconcile = move |_: &str| {
                let nth = runs.fetch_add(1, Ordering::SeqCst);
                async move { Ok::<_, Boom>(if nth < 3 { Step::Conflict } else { Step::Done }) }
            };
            run(config, stream::iter(["a"]), reconcile, stop).await;
        }
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 4);
    stop.cancel();
    task.await.unwrap();
    let text = text(&metrics);
    assert!(text.contains(r#"tandem_reconcile_total{controller="test",result="conflict"} 3"#), "{text}");
    assert!(!text.contains("tandem_reconcile_errors_total{"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_stands_still_costs_few_requests_and_work_goes_on_as_soon_as_it_moves() {
    let (config, _) = config();
    // The server's version and the version in the cache; a write is accepted for the server's version only.
    let (stored, cached) = (7, Arc::new(AtomicUsize::new(6)));
    let (requests, clock) = (Arc::new(Mutex::new(Vec::new())), Clock::system());
    let (send, events) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (cached, requests, clock, stop) = (cached.clone(), requests.clone(), clock.clone(), stop.clone());
        async move {
            let reconcile = move |_: &str| {
                requests.lock().unwrap().push(clock.monotonic());
                let is_current = cached.load(Ordering::SeqCst) == stored;
                async move { Ok::<_, Boom>(if is_current { Step::Done } else { Step::Conflict }) }
            };
            run(config, receiver(events), reconcile, stop).await;
        }
    });
    send.send("a").unwrap();
    tokio::time::sleep(SECOND * 60).await;
    let frozen = requests.lock().unwrap().len();
    assert!((10..=40).contains(&frozen), "{frozen} requests in a minute");

    // The watch delivers the server's version.
    cached.store(stored, Ordering::SeqCst);
    let moved = clock.monotonic();
    send.send("a").unwrap();
    tokio::time::sleep(SECOND * 60).await;
    let requests = requests.lock().unwrap().clone();
    assert_eq!(requests.len(), frozen + 1);
    assert!(requests[frozen].saturating_sub(moved) <= SECOND, "{requests:?}");
    stop.cancel();
    task.await.unwrap();
}

/// How often a key runs in a virtual minute without events when every run ends like this, after a millisecond.
async fn runs_in_a_minute(outcome: Step) -> usize {
    let (config, _) = config();
    let count = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (count, stop) = (count.clone(), stop.clone());
        async move {
            let reconcile = move |_: &str| {
                count.fetch_add(1, Ordering::SeqCst);
                async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok::<_, Boom>(outcome)
                }
            };
            run(config, stream::iter(["a"]), reconcile, stop).await;
        }
    });
    tokio::time::sleep(SECOND * 60).await;
    stop.cancel();
    task.await.unwrap();
    count.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_changes_nothing_and_asks_for_another_at_once_is_slowed_and_one_that_goes_on_is_not()
{
    for step in [Step::RequeueAfter(Duration::ZERO), Step::Stale, Step::Conflict] {
        let runs = runs_in_a_minute(step).await;
        assert!((5..=40).contains(&runs), "{runs} runs with {step:?}");
    }
    let runs = runs_in_a_minute(Step::ContinueAfter(Duration::ZERO)).await;
    assert!(runs > 10_000, "{runs} runs");
}

#[test]
fn the_fake_clock_is_enough_to_make_a_config() {
    let (clock, _) = Clock::fake(Timestamp::UNIX_EPOCH);
    let config = Config::new("test", clock, Metrics::new("test", "0").unwrap());
    assert!(format!("{config:?}").contains("test"));
}

/// Runs a loop with four places for ten keys that hang and one that is healthy: the longest time between two runs of the
/// healthy one.
async fn beside_ten_that_hang(patience: Option<Duration>) -> Duration {
    let (config, _) = config();
    let clock = Clock::system();
    let (send, triggers) = mpsc::unbounded_channel();
    let runs: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (runs, stop, clock) = (runs.clone(), stop.clone(), clock.clone());
        async move {
            let reconcile = move |key: u32| {
                let (runs, clock) = (runs.clone(), clock.clone());
                async move {
                    if key == 0 {
                        runs.lock().unwrap().push(clock.monotonic());
                        return Ok(Step::RequeueAfter(SECOND));
                    }
                    let hangs = tokio::time::sleep(SECOND * 30);
                    match patience {
                        Some(patience) => place::lent(patience, hangs).await,
                        None => hangs.await,
                    }
                    Err(Boom)
                }
            };
            run(config.concurrency(4).stop_deadline(SECOND), receiver(triggers), reconcile, stop).await;
        }
    });
    for key in (1..=10).chain([0]) {
        send.send(key).unwrap();
    }
    let begin = clock.monotonic();
    tokio::time::sleep(SECOND * 200).await;
    stop.cancel();
    task.await.unwrap();
    let runs = runs.lock().unwrap();
    let times: Vec<Duration> = std::iter::once(begin).chain(runs.iter().copied()).collect();
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn keys_that_wait_for_something_slow_hold_no_place() {
    let waited = beside_ten_that_hang(Some(Duration::from_millis(200))).await;
    assert!(waited < SECOND * 2, "{waited:?}");
    let waited = beside_ten_that_hang(None).await;
    assert!(waited > SECOND * 20, "that is what it is for: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_comes_back_waits_for_a_place() {
    let (config, _) = config();
    let (send, triggers) = mpsc::unbounded_channel();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let ended = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (running, most, ended, stop) = (running.clone(), most.clone(), ended.clone(), stop.clone());
        async move {
            let reconcile = move |_: u32| {
                let (running, most, ended) = (running.clone(), most.clone(), ended.clone());
                async move {
                    // Two calls at a time: the pass is away until both are there.
                    let slow = |time| place::lent(SECOND, tokio::time::sleep(time));
                    tokio::join!(slow(SECOND * 5), slow(SECOND * 10));
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(SECOND).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    ended.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Boom>(Step::Done)
                }
            };
            run(config.concurrency(2), receiver(triggers), reconcile, stop).await;
        }
    });
    for key in 0..20 {
        send.send(key).unwrap();
    }
    tokio::time::sleep(SECOND * 100).await;
    assert_eq!((ended.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (20, 2));
    stop.cancel();
    task.await.unwrap();
}
