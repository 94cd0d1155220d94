//! One holder per key, first come first served, and no key outlives its last member.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;

type Waiting = Pin<Box<dyn Future<Output = KeyGuard<u8>>>>;

fn waiting(queue: &KeyQueue<u8>, key: u8) -> Waiting {
    let queue = queue.clone();
    Box::pin(async move { queue.lock(key).await })
}

fn poll(future: &mut Waiting) -> Option<KeyGuard<u8>> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(turn) => Some(turn),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn keys_do_not_wait_for_each_other() {
    let queue = KeyQueue::new();
    let one = queue.lock("one").await;
    let two = queue.lock("two").await;
    assert_eq!((one.key(), two.key(), queue.len()), (&"one", &"two", 2));
    drop(one);
    assert_eq!((queue.members(&"one"), queue.len()), (0, 1));
    drop(two);
    assert!(queue.is_empty());
}

#[test]
fn a_future_that_was_never_polled_is_not_in_the_queue() {
    let queue = KeyQueue::new();
    drop(waiting(&queue, 1));
    assert!(queue.is_empty());
}

#[test]
fn a_lock_granted_to_a_dropped_future_passes_to_the_next_waiter() {
    let queue = KeyQueue::new();
    let held = poll(&mut waiting(&queue, 1)).unwrap();
    let (mut second, mut third) = (waiting(&queue, 1), waiting(&queue, 1));
    assert!(poll(&mut second).is_none());
    assert!(poll(&mut third).is_none());
    assert_eq!(queue.members(&1), 3);
    // The lock now belongs to the second waiter, which has not noticed yet; it is cancelled before it is polled.
    drop(held);
    assert!(poll(&mut third).is_none());
    drop(second);
    let held = poll(&mut third).expect("it is the third one's turn");
    assert_eq!(queue.members(&1), 1);
    drop(held);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_token_leaves_the_queue() {
    let queue = KeyQueue::new();
    let cancel = CancellationToken::new();
    let held = queue.take(1, &cancel).await.unwrap();
    let waiter = tokio::spawn({
        let (queue, cancel) = (queue.clone(), cancel.clone());
        async move { queue.take(1, &cancel).await.map(drop) }
    });
    tokio::task::yield_now().await;
    assert_eq!(queue.members(&1), 2);
    cancel.cancel();
    assert_eq!(waiter.await.unwrap(), Err(Cancelled));
    assert_eq!(queue.members(&1), 1);
    drop(held);
    assert!(queue.is_empty());
    assert_eq!(queue.take(1, &cancel).await.map(drop), Err(Cancelled));
    assert!(queue.is_empty());
}

#[tokio::test]
async fn a_holder_that_panics_lets_the_next_one_in() {
    let queue = KeyQueue::new();
    let task = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _turn = queue.lock(1).await;
            panic!("on purpose");
        }
    });
    assert!(task.await.unwrap_err().is_panic());
    assert!(queue.is_empty());
    drop(queue.lock(1).await);
}

/// A key that checks, whenever one of its copies is dropped, whether a lock is free.
#[derive(Clone)]
struct Spy {
    watched: Arc<Mutex<Option<Arc<tokio::sync::Mutex<()>>>>>,
    was_free: Arc<Mutex<Vec<bool>>>,
}

impl PartialEq for Spy {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Spy {}

impl Hash for Spy {
    fn hash<H: std::hash::Hasher>(&self, _state: &mut H) {}
}

impl Drop for Spy {
    fn drop(&mut self) {
        if let Some(mutex) = &*self.watched.lock().unwrap() {
            self.was_free.lock().unwrap().push(mutex.try_lock().is_ok());
        }
    }
}

#[tokio::test]
async fn the_lock_is_released_before_its_entry_is_removed() {
    let queue = KeyQueue::new();
    let spy = Spy { watched: Arc::default(), was_free: Arc::default() };
    let turn = queue.lock(spy.clone()).await;
    let mutex = Arc::clone(&queue.lines.lock().unwrap()[&spy].mutex);
    assert!(mutex.try_lock().is_err());
    *spy.watched.lock().unwrap() = Some(mutex);
    drop(turn);
    *spy.watched.lock().unwrap() = None;
    let was_free = spy.was_free.lock().unwrap().clone();
    assert_eq!(was_free, [true, true], "for the entry's copy and for the turn's own");
}

#[derive(Debug, Clone)]
enum Step {
    Ask(u8),
    Cancel(prop::sample::Index),
    Release(prop::sample::Index),
    Wake(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (0_u8..3).prop_map(Step::Ask),
        2 => index().prop_map(Step::Cancel),
        3 => index().prop_map(Step::Release),
        3 => index().prop_map(Step::Wake),
    ]
}

proptest! {
    /// Against a simple model: a queue of names per key, of which the first one holds the key as soon as it is polled.
    /// Members are polled and cancelled in any order, also between getting the lock and noticing it.
    #[test]
    fn only_the_first_waiter_holds_the_key(steps in prop::collection::vec(step(), 1..150)) {
        let queue = KeyQueue::new();
        let mut model: HashMap<u8, VecDeque<usize>> = HashMap::new();
        let mut waiters: Vec<(usize, u8, Waiting)> = Vec::new();
        let mut holders: Vec<(usize, u8, KeyGuard<u8>)> = Vec::new();
        let leave = |model: &mut HashMap<u8, VecDeque<usize>>, key: u8, name: usize| {
            let line = model.get_mut(&key).unwrap();
            line.retain(|other| *other != name);
            if line.is_empty() {
                model.remove(&key);
            }
        };
        for (name, step) in steps.into_iter().enumerate() {
            let polled = match step {
                Step::Ask(key) => {
                    model.entry(key).or_default().push_back(name);
                    waiters.push((name, key, waiting(&queue, key)));
                    Some(waiters.len() - 1)
                }
                Step::Cancel(who) if !waiters.is_empty() => {
                    let (name, key, future) = waiters.swap_remove(who.index(waiters.len()));
                    drop(future);
                    leave(&mut model, key, name);
                    None
                }
                Step::Release(who) if !holders.is_empty() => {
                    let (name, key, turn) = holders.swap_remove(who.index(holders.len()));
                    drop(turn);
                    leave(&mut model, key, name);
                    None
                }
                Step::Wake(who) if !waiters.is_empty() => Some(who.index(waiters.len())),
                Step::Cancel(_) | Step::Release(_) | Step::Wake(_) => None,
            };
            if let Some(at) = polled {
                let (name, key) = (waiters[at].0, waiters[at].1);
                let turn = poll(&mut waiters[at].2);
                prop_assert_eq!(turn.is_some(), model[&key].front() == Some(&name));
                if let Some(turn) = turn {
                    drop(waiters.swap_remove(at));
                    holders.push((name, key, turn));
                }
            }
            prop_assert_eq!(queue.len(), model.len());
            for key in 0..3 {
                prop_assert_eq!(queue.members(&key), model.get(&key).map_or(0, VecDeque::len));
            }
        }
        drop((waiters, holders));
        prop_assert!(queue.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_in_parallel_never_share_a_key_even_while_entries_come_and_go() {
    let queue: KeyQueue<usize> = KeyQueue::new();
    let held: Arc<[AtomicBool; 2]> = Arc::default();
    let rounds = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8_usize {
        let (queue, held, rounds) = (queue.clone(), Arc::clone(&held), Arc::clone(&rounds));
        tasks.spawn(async move {
            for round in 0..5000_usize {
                let key = (task + round) % 2;
                // Every seventh task gives up after its first poll.
                if round % 7 == 0 {
                    let never = std::future::ready(());
                    tokio::select! { biased; turn = queue.lock(key) => drop(turn), () = never => {} }
                    continue;
                }
                let turn = queue.lock(key).await;
                assert!(!held[key].swap(true, Ordering::SeqCst), "two holders of one key");
                if round % 3 == 0 {
                    tokio::task::yield_now().await;
                }
                held[key].store(false, Ordering::SeqCst);
                drop(turn);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(rounds.load(Ordering::Relaxed), 8 * (5000 - 715));
    assert!(queue.is_empty());
}

#[test]
fn the_handle_can_be_shared_and_printed() {
    fn shared<T: Send + Sync + fmt::Debug + 'static>() {}
    shared::<KeyQueue<String>>();
    shared::<KeyGuard<String>>();
}
