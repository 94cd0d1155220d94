//! The handle: dropped permits are returned, listeners receive each change once, and all tasks together get one probe.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;

const S: Duration = Duration::from_secs(1);

fn settings() -> BreakerSettings {
    BreakerSettings::new(2, S * 5, S * 60).unwrap()
}

fn open(circuit: &CircuitBreaker) {
    for _ in 0..2 {
        circuit.admit().unwrap().record(Some(&Class::Ambiguous));
    }
    assert_eq!(circuit.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn conflicts_keep_the_circuit_closed_and_reset_the_failure_count() {
    let circuit = CircuitBreaker::new(settings());
    for _ in 0..100 {
        assert_eq!(circuit.admit().unwrap().record(Some(&Class::Conflict)), None);
        assert_eq!(circuit.admit().unwrap().record(Some(&Class::Ambiguous)), None);
    }
    assert_eq!(circuit.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_of_the_probe_closes_the_circuit() {
    let circuit = CircuitBreaker::new(settings());
    open(&circuit);
    assert_eq!(circuit.admit().unwrap_err().retry_after, S * 5);
    tokio::time::advance(S * 5).await;
    let closing = Transition { from: BreakerState::HalfOpen, to: BreakerState::Closed };
    assert_eq!(circuit.admit().unwrap().record(Some(&Class::Conflict)), Some(closing));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_permit_has_no_effect() {
    let circuit = CircuitBreaker::new(settings());
    for _ in 0..10 {
        drop(circuit.admit().unwrap());
    }
    circuit.admit().unwrap().record(Some(&Class::Ambiguous));
    drop(circuit.admit().unwrap());
    circuit.admit().unwrap().record(Some(&Class::Ambiguous));
    assert_eq!(circuit.state(), BreakerState::Open, "neither a failure nor an end of the row");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_allows_another_and_does_not_close_the_circuit() {
    let circuit = CircuitBreaker::new(settings());
    open(&circuit);
    tokio::time::advance(S * 5).await;
    let task = tokio::spawn({
        let circuit = circuit.clone();
        async move {
            let _permit = circuit.admit().unwrap();
            std::future::pending::<()>().await;
        }
    });
    tokio::task::yield_now().await;
    assert!(circuit.admit().is_err());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(circuit.state(), BreakerState::HalfOpen);
    let second = circuit.admit().unwrap();
    assert!(circuit.admit().is_err());
    second.record(None);
    assert_eq!(circuit.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn the_listener_gets_every_change_once_and_may_read_the_state() {
    let changes = Arc::new(Mutex::new(Vec::new()));
    let slot: Arc<Mutex<Option<CircuitBreaker>>> = Arc::default();
    let circuit = CircuitBreaker::with_listener(settings(), {
        let (changes, slot) = (Arc::clone(&changes), Arc::clone(&slot));
        move |transition| {
            let now = slot.lock().unwrap().as_ref().map(CircuitBreaker::state);
            changes.lock().unwrap().push((transition.from.label(), transition.to.label(), now));
        }
    });
    *slot.lock().unwrap() = Some(circuit.clone());
    open(&circuit);
    tokio::time::advance(S * 5).await;
    circuit.admit().unwrap().record(Some(&Class::Transient { retry_after: None }));
    tokio::time::advance(S * 10).await;
    circuit.admit().unwrap().record(None);
    let changes = changes.lock().unwrap().clone();
    let wanted = [
        ("closed", "open", Some(BreakerState::Open)),
        ("open", "half_open", Some(BreakerState::HalfOpen)),
        ("half_open", "open", Some(BreakerState::Open)),
        ("open", "half_open", Some(BreakerState::HalfOpen)),
        ("half_open", "closed", Some(BreakerState::Closed)),
    ];
    assert_eq!(changes, wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_tasks_at_once_exactly_one_probes() {
    for _ in 0..200 {
        let circuit = CircuitBreaker::new(BreakerSettings::new(1, Duration::from_nanos(1), S).unwrap());
        circuit.admit().unwrap().record(Some(&Class::Ambiguous));
        let admitted = Arc::new(AtomicU32::new(0));
        let start = Arc::new(tokio::sync::Barrier::new(8));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (circuit, admitted, start) = (circuit.clone(), Arc::clone(&admitted), Arc::clone(&start));
            tasks.spawn(async move {
                start.wait().await;
                let permit = circuit.admit().ok();
                admitted.fetch_add(u32::from(permit.is_some()), Ordering::Relaxed);
                // No task drops its permit before all tasks have asked.
                start.wait().await;
                drop(permit);
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(admitted.load(Ordering::Relaxed), 1);
        assert_eq!(circuit.state(), BreakerState::HalfOpen);
    }
}

#[test]
fn the_handle_can_be_shared_and_printed() {
    fn shared<T: Send + Sync + fmt::Debug + 'static>() {}
    shared::<CircuitBreaker>();
    shared::<Permit>();
}
