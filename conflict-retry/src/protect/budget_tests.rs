//! The limit holds at every grant, in any interleaving, and ended operations and retries are not counted.

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::*;

#[test]
fn twenty_percent_are_allowed_and_always_three() {
    let limits = BudgetLimits::default();
    for (operations, allowed) in
        [(0, 3), (1, 3), (15, 3), (19, 3), (20, 4), (24, 4), (25, 5), (100, 20), (1000, 200)]
    {
        assert_eq!(limits.allowed(operations), allowed, "{operations}");
    }
    assert_eq!(limits.allowed(u32::MAX), u32::MAX / 5);
    assert_eq!(BudgetLimits::new(0, 100).unwrap().allowed(u32::MAX), u32::MAX);
}

#[test]
fn invalid_limits_are_refused() {
    assert_eq!(BudgetLimits::new(3, 101), Err(InvalidBudget::Percent(101)));
    assert_eq!(BudgetLimits::new(0, 0), Err(InvalidBudget::Nothing));
    assert_eq!(BudgetLimits::new(3, 20), Ok(BudgetLimits::default()));
}

#[test]
fn first_attempts_are_never_refused_and_refusals_carry_the_counts() {
    let budget = RetryBudget::default();
    let operations: Vec<_> = (0..10).map(|_| budget.operation()).collect();
    let retries: Vec<_> = operations[..3].iter().map(|operation| operation.retry().unwrap()).collect();
    let refused = operations[3].retry().unwrap_err();
    assert_eq!(refused, BudgetExhausted { operations: 10, retries: 3, allowed: 3 });
    let more: Vec<_> = (0..10).map(|_| budget.operation()).collect();
    let fourth = operations[3].retry().expect("twenty operations allow four");
    drop((more, fourth));
    assert!(operations[4].retry().is_err());
    drop(retries);
    assert!(operations[4].retry().is_ok());
}

#[tokio::test]
async fn a_cancelled_operation_is_not_counted_any_more() {
    let budget = RetryBudget::default();
    let task = tokio::spawn({
        let budget = budget.clone();
        async move {
            let operation = budget.operation();
            let _retry = operation.retry().unwrap();
            std::future::pending::<()>().await;
        }
    });
    tokio::task::yield_now().await;
    let counts = budget.counts();
    assert_eq!((counts.operations(), counts.retries()), (1, 1));
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let counts = budget.counts();
    assert_eq!((counts.operations(), counts.retries()), (0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Begin,
    End(prop::sample::Index),
    Retry(prop::sample::Index),
    EndRetry(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Begin),
        1 => any::<prop::sample::Index>().prop_map(Step::End),
        4 => any::<prop::sample::Index>().prop_map(Step::Retry),
        1 => any::<prop::sample::Index>().prop_map(Step::EndRetry),
    ]
}

proptest! {
    #[test]
    fn a_retry_is_granted_exactly_when_the_bound_leaves_room(
        min in 1_u32..6,
        percent in 0_u8..=100,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let budget = RetryBudget::new(BudgetLimits::new(min, percent).unwrap());
        let (mut operations, mut retries) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Begin => operations.push(budget.operation()),
                Step::End(who) if !operations.is_empty() => {
                    drop(operations.swap_remove(who.index(operations.len())));
                }
                Step::Retry(who) if !operations.is_empty() => {
                    // In hundredths, so that nothing is rounded.
                    let bound = (operations.len() * usize::from(percent)).max(min as usize * 100);
                    let room = (retries.len() + 1) * 100 <= bound;
                    let answer = operations[who.index(operations.len())].retry();
                    prop_assert_eq!(answer.is_ok(), room);
                    retries.extend(answer.ok());
                }
                Step::EndRetry(who) if !retries.is_empty() => {
                    drop(retries.swap_remove(who.index(retries.len())));
                }
                Step::End(_) | Step::Retry(_) | Step::EndRetry(_) => {}
            }
            let counts = budget.counts();
            prop_assert_eq!(counts.operations() as usize, operations.len());
            prop_assert_eq!(counts.retries() as usize, retries.len());
        }
        drop((operations, retries));
        let counts = budget.counts();
        prop_assert_eq!((counts.operations(), counts.retries()), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_in_parallel_never_exceed_the_bound_and_do_reach_it() {
    let budget = RetryBudget::default();
    // Forty operations that last the whole test allow eight retries.
    let operations: Vec<_> = (0..40).map(|_| budget.operation()).collect();
    let (under_way, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for operation in operations {
        let (under_way, most) = (Arc::clone(&under_way), Arc::clone(&most));
        tasks.spawn(async move {
            for _ in 0..500 {
                if let Ok(retry) = operation.retry() {
                    let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    drop(retry);
                }
                tokio::task::yield_now().await;
            }
            operation
        });
    }
    let mut finished = Vec::new();
    while let Some(operation) = tasks.join_next().await {
        finished.push(operation.unwrap());
    }
    assert_eq!(most.load(Ordering::SeqCst), 8);
    drop(finished);
    assert_eq!((budget.counts().operations(), budget.counts().retries()), (0, 0));
}

#[test]
fn the_handle_can_be_shared_and_printed() {
    fn shared<T: Send + Sync + std::fmt::Debug + 'static>() {}
    shared::<RetryBudget>();
    shared::<BudgetedOperation>();
    shared::<BudgetedRetry>();
}
