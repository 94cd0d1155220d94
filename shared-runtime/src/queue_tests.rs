use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

const BACKOFF: RequeueBackoff = RequeueBackoff {
    base: Duration::from_millis(100),
    max: Duration::from_secs(1),
    event_max: Duration::from_millis(300),
};

fn queue() -> Queue<&'static str> {
    Queue::new(BACKOFF, Debounce::default())
}

#[test]
fn a_key_asked_for_twice_runs_once() {
    let mut q = queue();
    q.trigger("a", MS(0));
    q.trigger("a", MS(0));
    assert_eq!(q.next(MS(0)), Next::Start("a"));
    assert_eq!(q.next(MS(0)), Next::Idle);
}

#[test]
fn a_running_key_does_not_start_a_second_time() {
    let mut q = queue();
    q.trigger("a", MS(0));
    assert_eq!(q.next(MS(0)), Next::Start("a"));
    q.trigger("a", MS(1));
    assert_eq!(q.next(MS(1)), Next::Idle);
    q.finished(&"a", RunResult::Done, MS(2), 0.0);
    assert_eq!(q.next(MS(2)), Next::Start("a"));
}

#[test]
fn keys_start_in_the_order_they_were_asked_for() {
    let mut q = queue();
    for key in ["b", "a", "c"] {
        q.trigger(key, MS(0));
    }
    assert_eq!(q.next(MS(0)), Next::Start("b"));
    assert_eq!(q.next(MS(0)), Next::Start("a"));
    assert_eq!(q.next(MS(0)), Next::Start("c"));
}

#[test]
fn a_failed_key_stays_away_even_when_events_ask_for_it() {
    let mut q = queue();
    q.trigger("a", MS(0));
    assert_eq!(q.next(MS(0)), Next::Start("a"));
    q.trigger("a", MS(0));
    q.finished(&"a", RunResult::Failed, MS(0), 1.0);
    for at in 0..100 {
        q.trigger("a", MS(at));
        assert_eq!(q.next(MS(at)), Next::WaitUntil(MS(100)));
    }
    assert_eq!(q.next(MS(100)), Next::Start("a"));
}

#[test]
fn an_event_ends_a_long_backoff_and_no_number_of_events_makes_a_hot_loop() {
    let mut q = queue();
    let mut now = MS(0);
    q.trigger("a", now);
    for _ in 0..6 {
        let Next::Start("a") = q.next(now) else { panic!("not due at {now:?}") };
        q.finished(&"a", RunResult::Failed, now, 1.0);
        let Next::WaitUntil(due) = q.next(now) else { panic!("not waiting") };
        now = due;
    }
    // The seventh failure: a delay of one second, which an event shortens to 300 ms.
    assert_eq!(q.next(now), Next::Start("a"));
    q.finished(&"a", RunResult::Failed, now, 1.0);
    assert_eq!(q.next(now), Next::WaitUntil(now + MS(1000)));
    q.trigger("a", now + MS(700));
    assert_eq!(q.next(now + MS(700)), Next::Start("a"), "the cause is gone");
    now += MS(700);
    // An object that changes every 10 ms, and one that changed while the key was running.
    q.trigger("a", now);
    q.finished(&"a", RunResult::Failed, now, 1.0);
    let mut runs = 0;
    for _ in 0..300 {
        now += MS(10);
        q.trigger("a", now);
        if q.next(now) == Next::Start("a") {
            runs += 1;
            q.finished(&"a", RunResult::Failed, now, 1.0);
        }
    }
    assert_eq!(runs, 10, "one in 300 ms over three seconds");
}

#[test]
fn backoff_doubles_up_to_its_cap_and_success_resets_it() {
    let mut q = queue();
    let mut now = MS(0);
    q.trigger("a", now);
    for (failures, expected) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (6, 1000)] {
        assert_eq!(q.next(now), Next::Start("a"));
        assert_eq!(q.finished(&"a", RunResult::Failed, now, 1.0), failures);
        assert_eq!(q.next(now), Next::WaitUntil(now + MS(expected)));
        assert_eq!(q.in_backoff(), 1);
        now += MS(expected);
    }
    assert_eq!(q.next(now), Next::Start("a"));
    q.finished(&"a", RunResult::After(MS(5)), now, 0.0);
    assert_eq!(q.in_backoff(), 0);
    now += MS(5);
    assert_eq!(q.next(now), Next::Start("a"));
    q.finished(&"a", RunResult::Failed, now, 0.0);
    assert_eq!(q.next(now), Next::WaitUntil(now + MS(50)), "the first wait again, its lower half");
}

#[test]
fn a_conflict_comes_back_within_milliseconds_and_is_no_failure() {
    let mut q = queue();
    q.trigger("a", MS(0));
    assert_eq!(q.next(MS(0)), Next::Start("a"));
    assert_eq!(q.finished(&"a", RunResult::Conflict, MS(0), 0.5), 0);
    assert_eq!(q.next(MS(0)), Next::WaitUntil(MS(15)));
    assert_eq!(q.in_backoff(), 0);
}

/// How often a key runs in a minute of nothing but conflicts, with a trigger every `event` ms.
fn runs_on_conflicts(event: Option<u64>) -> usize {
    let mut q = queue();
    q.trigger("a", MS(0));
    let mut runs = 0;
    for ms in 0..60_000 {
        if event.is_some_and(|every| ms % every == 0) {
            q.trigger("a", MS(ms));
        }
        if q.next(MS(ms)) == Next::Start("a") {
            runs += 1;
            q.finished(&"a", RunResult::Conflict, MS(ms), 1.0);
        }
    }
    runs
}

#[test]
fn conflicts_in_a_row_come_back_more_and_more_slowly_with_events_and_without() {
    // 20 ms doubling to 5 s, and to 1 s where events of other objects keep triggering.
    assert_eq!(runs_on_conflicts(None), 19);
    assert_eq!(runs_on_conflicts(Some(10)), 65);
}

#[test]
fn the_event_that_resolves_a_conflict_brings_the_key_back_at_once() {
    let mut q = queue();
    let mut now = MS(0);
    q.trigger("a", now);
    for _ in 0..10 {
        assert_eq!(q.next(now), Next::Start("a"));
        q.finished(&"a", RunResult::Conflict, now, 1.0);
        let Next::WaitUntil(due) = q.next(now) else { panic!("not waiting") };
        now = due;
    }
    assert_eq!(q.next(now), Next::Start("a"));
    q.finished(&"a", RunResult::Conflict, now, 1.0);
    assert_eq!(q.next(now), Next::WaitUntil(now + MS(5000)));
    q.trigger("a", now + MS(1200));
    assert_eq!(q.next(now + MS(1200)), Next::Start("a"));
    q.finished(&"a", RunResult::Done, now + MS(1200), 0.0);
    // The next conflict counts as a first one.
    q.trigger("a", now + MS(1300));
    assert_eq!(q.next(now + MS(1300)), Next::Start("a"));
    q.finished(&"a", RunResult::Conflict, now + MS(1300), 1.0);
    assert_eq!(q.next(now + MS(1300)), Next::WaitUntil(now + MS(1320)));
}

/// How often a key runs in a minute that always ends like this, without events.
fn runs_in_a_minute(outcomes: &[RunResult]) -> usize {
    let mut q = queue();
    q.trigger("a", MS(0));
    let (mut now, mut runs) = (MS(0), 0);
    while now < MS(60_000) && runs < 10_000 {
        match q.next(now) {
            Next::Start(_) => {
                // A run takes a millisecond.
                now += MS(1);
                q.finished(&"a", outcomes[runs % outcomes.len()], now, 0.0);
                runs += 1;
            }
            Next::WaitUntil(due) => now = due,
            Next::Idle => break,
        }
    }
    runs
}

#[test]
fn a_key_that_changes_nothing_and_asks_for_another_run_at_once_makes_no_hot_loop() {
    use RunResult::{After, ChangedThenAfter, Conflict, Failed};
    let at_once = After(MS(0));
    for (outcomes, most) in [
        (&[at_once][..], 20),
        (&[After(MS(250))], 20),
        (&[at_once, Conflict], 40),
        (&[at_once, Conflict, at_once, Failed], 40),
        // It polls.
        (&[After(MS(2000))], 30),
        (&[at_once, After(MS(2000))], 60),
    ] {
        let runs = runs_in_a_minute(outcomes);
        assert!((4..=most).contains(&runs), "{runs} runs with {outcomes:?}");
    }
    assert_eq!(runs_in_a_minute(&[ChangedThenAfter(MS(0))]), 10_000, "work is not slowed");
    assert!(runs_in_a_minute(&[at_once, ChangedThenAfter(MS(0))]) == 10_000, "nor by a look at its result");
}

#[test]
fn an_event_brings_an_idle_key_back_at_once_and_its_wait_begins_again() {
    let mut q = queue();
    let mut now = MS(0);
    q.trigger("a", now);
    for _ in 0..7 {
        assert_eq!(q.next(now), Next::Start("a"));
        q.finished(&"a", RunResult::After(MS(0)), now, 1.0);
        now = match q.next(now) {
            Next::WaitUntil(due) => due,
            Next::Start(_) => {
                q.finished(&"a", RunResult::After(MS(0)), now, 1.0);
                now + MS(100)
            }
            Next::Idle => panic!("it is lost"),
        };
    }
    assert_eq!(q.next(now), Next::Start("a"));
    q.finished(&"a", RunResult::After(MS(0)), now, 1.0);
    assert_eq!(q.next(now), Next::WaitUntil(now + MS(12_800)));
    now += MS(10);
    q.trigger("a", now);
    for waits in [0, 100, 200] {
        assert_eq!(q.next(now), Next::Start("a"));
        q.finished(&"a", RunResult::After(MS(0)), now, 1.0);
        now += MS(waits);
    }
    // An event while it runs counts, too.
    assert_eq!(q.next(now), Next::Start("a"));
    q.trigger("a", now);
    q.finished(&"a", RunResult::After(MS(0)), now, 1.0);
    assert_eq!(q.next(now), Next::Start("a"));
}

#[test]
fn an_event_brings_a_planned_run_forward() {
    let mut q = queue();
    q.trigger("a", MS(0));
    assert_eq!(q.next(MS(0)), Next::Start("a"));
    q.finished(&"a", RunResult::After(MS(60_000)), MS(0), 0.0);
    assert_eq!(q.next(MS(1)), Next::WaitUntil(MS(60_000)));
    q.trigger("a", MS(2));
    assert_eq!(q.next(MS(2)), Next::Start("a"));
}

#[test]
fn debounce_counts_from_the_first_event_so_a_busy_key_still_runs() {
    let mut q = Queue::new(RequeueBackoff::default(), Debounce::fixed(MS(100)));
    for at in 0..100 {
        q.trigger("a", MS(at));
        assert_eq!(q.next(MS(at)), Next::WaitUntil(MS(100)));
    }
    assert_eq!(q.next(MS(100)), Next::Start("a"));
}

#[test]
fn a_burst_is_waited_for_until_it_is_quiet_and_no_longer_than_the_most() {
    let mut q = Queue::new(RequeueBackoff::default(), Debounce { quiet: MS(25), most: MS(100) });
    q.trigger("a", MS(0));
    assert_eq!(q.next(MS(0)), Next::WaitUntil(MS(25)));
    for (at, until) in [(20, 45), (40, 65), (60, 85), (80, 100), (99, 100)] {
        q.trigger("a", MS(at));
        assert_eq!(q.next(MS(at)), Next::WaitUntil(MS(until)));
    }
    assert_eq!(q.next(MS(100)), Next::Start("a"));
    // While it runs, too.
    q.trigger("a", MS(110));
    q.trigger("a", MS(130));
    q.finished(&"a", RunResult::Done, MS(140), 0.0);
    assert_eq!(q.next(MS(140)), Next::WaitUntil(MS(155)));
    assert_eq!(q.next(MS(155)), Next::Start("a"));
    // What is planned for earlier is not put off.
    q.finished(&"a", RunResult::ChangedThenAfter(MS(10)), MS(200), 0.0);
    q.trigger("a", MS(201));
    assert_eq!(q.next(MS(201)), Next::WaitUntil(MS(210)));
}

#[test]
fn a_key_with_nothing_to_do_is_forgotten() {
    let mut q = queue();
    q.trigger("a", MS(0));
    assert_eq!(q.next(MS(0)), Next::Start("a"));
    q.finished(&"a", RunResult::Done, MS(0), 0.0);
    assert!(q.entries.is_empty() && q.order.is_empty() && q.by_seq.is_empty());
}

/// One event in the life of a queue.
#[derive(Clone, Debug)]
enum Step {
    Trigger(u8),
    Tick(u64),
    Finish(RunResult, f64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop_oneof![
        Just(RunResult::Done),
        (0_u64..500).prop_map(|ms| RunResult::After(MS(ms))),
        (0_u64..500).prop_map(|ms| RunResult::ChangedThenAfter(MS(ms))),
        Just(RunResult::Conflict),
        Just(RunResult::Failed),
    ];
    let step = prop_oneof![
        (0_u8..5).prop_map(Step::Trigger),
        (0_u64..300).prop_map(Step::Tick),
        (outcome, 0.0..1.0).prop_map(|(outcome, random)| Step::Finish(outcome, random)),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn no_key_runs_twice_at_once_none_is_lost_and_floors_hold(steps in steps()) {
        let mut q = Queue::new(BACKOFF, Debounce { quiet: MS(4), most: MS(10) });
        let mut now = MS(0);
        let mut running: Vec<u8> = Vec::new();
        let mut asked: HashSet<u8> = HashSet::new();
        let mut not_before: HashMap<u8, Duration> = HashMap::new();
        for step in steps {
            match step {
                Step::Trigger(key) => { q.trigger(key, now); asked.insert(key); }
                Step::Tick(ms) => now += MS(ms),
                Step::Finish(outcome, random) => if let Some(key) = running.pop() {
                    q.finished(&key, outcome, now, random);
                    match outcome {
                        RunResult::Failed => { not_before.insert(key, now + MS(50)); asked.insert(key); }
                        RunResult::Conflict | RunResult::After(_) | RunResult::ChangedThenAfter(_) => { not_before.remove(&key); asked.insert(key); }
                        RunResult::Done => { not_before.remove(&key); }
                    }
                },
            }
            while let Next::Start(key) = q.next(now) {
                prop_assert!(!running.contains(&key));
                prop_assert!(not_before.get(&key).is_none_or(|earliest| now >= *earliest));
                running.push(key);
                asked.remove(&key);
            }
            // Every key that was triggered and does not run yet is still in the queue.
            for key in &asked {
                prop_assert!(q.entries.contains_key(key));
            }
        }
        // With enough time and no more events everything drains.
        while let Some(key) = running.pop() { q.finished(&key, RunResult::Done, now, 0.0); }
        loop {
            match q.next(now) {
                Next::Start(key) => { q.finished(&key, RunResult::Done, now, 0.0); }
                Next::WaitUntil(due) => now = due,
                Next::Idle => break,
            }
        }
        prop_assert!(q.entries.is_empty() && q.order.is_empty() && q.by_seq.is_empty());
    }
}
