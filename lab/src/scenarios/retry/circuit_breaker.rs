//! A circuit breaker: what opens it, and which request detects that the server is back.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use conflict_retry::backoff::Backoff;
use conflict_retry::policy::RetryPolicy;
use conflict_retry::protect::{
    Breaker, BreakerSettings, BreakerState, CircuitBreaker, Protection, ThrottledBy, Transition,
};
use conflict_retry::{Class, Outcome, WriteError, WriteOptions};
use testbed::wait::eventually;

use super::contest::{Contest, goal};
use super::naive_breaker::NaiveBreaker;
use super::unreachable::BreakableConnection;
use crate::context::{PATIENCE, ScenarioContext};
use crate::event::Table;
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "circuit-breaker",
    title: "A circuit breaker opens when the server does not answer, not when another write came first",
    rows: &["3j"],
    refutes: &["breaker-on-every-error"],
    lesson: "A conflict is the answer of a healthy server: a circuit breaker that counts conflicts blocks healthy writes.\nOpen it after several faults in a row, then let one probe through; the probe's result decides.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// Number of failures that opens both breakers.
const FAILURES: u32 = 5;
/// How long they stay open.
const OPEN_FOR: Duration = Duration::from_secs(2);
/// An open time longer than the scenario lasts, even on a slow machine.
const AN_HOUR: Duration = Duration::from_secs(3600);

async fn run(ctx: &ScenarioContext) -> Result<()> {
    counting_conflicts(ctx).await?;
    not_counting_conflicts(ctx).await?;
    half_open(ctx)?;
    held_back(ctx).await?;
    mended(ctx).await
}

async fn counting_conflicts(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "busy").await?;
    ctx.set(&pool("quiet", 3)).await?;
    ctx.say("A breaker as it is often written: every error counts, five in a row open it. Alice's writes ask it before each attempt. Bob is faster five times.");
    let mut breaker = NaiveBreaker::new(FAILURES, OPEN_FOR);
    contest.interfere(FAILURES);
    for _ in 0..FAILURES {
        if breaker.admits(Duration::ZERO) {
            breaker.record(Duration::ZERO, contest.attempt().await.is_ok());
        }
    }
    let sent = contest.alice.requests().len();
    ctx.check_eq("all five PUTs were answered: 409", &contest.alice.counts().conflicts, &5);
    ctx.say("Now she wants to write another pool, which has no other writer.");
    let admitted = breaker.admits(Duration::ZERO);
    if admitted {
        goal(&contest.pools(), "quiet", &WriteOptions::new("alice")).await?.met();
    } else {
        ctx.act("alice", "is not let through: the circuit is open");
    }
    ctx.check(
        "a breaker that counts conflicts is open, though the server has answered each request",
        !admitted && contest.alice.requests().iter().all(|request| request.code != 0),
    );
    ctx.check_eq("her write is not sent", &contest.alice.requests().len(), &sent);
    let quiet = ctx.stored::<Pool>("quiet").await?;
    ctx.check(
        "and the server would have answered: it does at the same moment",
        quiet.spec.replicas == Some(3),
    );
    Ok(())
}

async fn not_counting_conflicts(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "busier").await?;
    let breaker = CircuitBreaker::new(settings(OPEN_FOR)?);
    let quick = Backoff::new(30, Duration::from_millis(1), 1.0, 0.0, Duration::ZERO)?;
    let options = options(&breaker, RetryPolicy::from_backoff(quick)?);
    contest.interfere(20);
    let intro = "The breaker of `conflict_retry`, opened by five as well. Bob is faster twenty times.";
    let answer = ctx.racing(intro, contest.update(&options)).await?;
    ctx.check_eq("twenty conflicts in a row were met", &contest.alice.counts().conflicts, &20);
    ctx.check_eq("the circuit is closed as before", &breaker.state(), &BreakerState::Closed);
    ctx.check("and the write is made", matches!(answer, Outcome::Written(_)));
    Ok(())
}

fn settings(open_for: Duration) -> Result<BreakerSettings> {
    Ok(BreakerSettings::new(FAILURES, open_for, open_for * 4)?)
}

fn options(breaker: &CircuitBreaker, policy: RetryPolicy) -> WriteOptions {
    let protection = Protection::default().with_breaker(breaker.clone());
    WriteOptions::new("alice").with_policy(policy).with_protection(protection)
}

/// Both breakers after their open time, without waiting: time is an argument.
fn half_open(ctx: &ScenarioContext) -> Result<()> {
    ctx.say("When the open time is over, ten workers ask at once, and the server is still down. Both breakers as a calculation, each opened by five failures:");
    let (late, mut naive, mut ours) =
        (OPEN_FOR, NaiveBreaker::new(FAILURES, OPEN_FOR), Breaker::new(settings(OPEN_FOR)?));
    for _ in 0..FAILURES {
        naive.record(Duration::ZERO, false);
        let ticket = ours.admit(Duration::ZERO)?;
        ours.record(ticket, Duration::ZERO, true);
    }
    let naive_probes = (0..10).filter(|_| naive.admits(late)).count();
    let mut tickets: Vec<_> = (0..10).filter_map(|_| ours.admit(late).ok()).collect();
    let probes = tickets.len();
    let (mut naive_failures, mut failures) = (0, 0);
    while naive.admits(late) {
        naive.record(late, false);
        naive_failures += 1;
    }
    let mut next = tickets.pop();
    while let Some(probe) = next.take() {
        ours.record(probe, late, true);
        failures += 1;
        next = ours.admit(late).ok();
    }
    let seconds = || (1..60).map(Duration::from_secs);
    let naive_open = seconds().find(|open| naive.admits(late + *open)).unwrap_or_default();
    let open = seconds().find(|open| ours.admit(late + *open).is_ok()).unwrap_or_default();
    let mut table = Table::new(&["", "let through", "failures until it is open again", "and then open for"]);
    let seconds = |open: Duration| format!("{} s", open.as_secs());
    table.row(&[&"as often written", &naive_probes, &naive_failures, &seconds(naive_open)]);
    table.row(&[&"conflict_retry", &probes, &failures, &seconds(open)]);
    ctx.table(table);
    ctx.check_eq(
        "the one lets all ten through, and needs five more failures",
        &(naive_probes, naive_failures),
        &(10, 5),
    );
    ctx.check_eq(
        "the other lets one through, and its failure opens the circuit for twice as long",
        &(probes, failures, open),
        &(1, 1, OPEN_FOR * 2),
    );
    Ok(())
}

/// A policy with as many attempts as open the circuit.
fn five_attempts() -> RetryPolicy {
    RetryPolicy::default()
        .with_max_attempts(NonZeroU32::MIN.saturating_add(FAILURES - 1))
        .with_deadline(Some(PATIENCE))
}

fn is_given_up(answer: &Result<Outcome<Pool>, WriteError>) -> bool {
    matches!(answer, Err(WriteError::Exhausted { class: Class::Transient { .. }, .. }))
}

async fn held_back(ctx: &ScenarioContext) -> Result<()> {
    ctx.set(&pool("workers", 3)).await?;
    let connection = BreakableConnection::new(ctx).await?;
    let breaker = CircuitBreaker::new(settings(AN_HOUR)?);
    let options = options(&breaker, five_attempts());

    ctx.say("The connection to the API server breaks. Alice's `update` may try five times; her breaker stays open for an hour.");
    connection.breaks_for(u32::MAX);
    let answer = goal(&connection.pools(), "workers", &options).await;
    ctx.check(
        "five requests in a row have no answer: it gives up",
        is_given_up(&answer) && connection.sent() == 5,
    );
    ctx.check_eq("and the circuit is open", &breaker.state(), &BreakerState::Open);

    ctx.say("The breaker refuses the next write at once.");
    let answer = goal(&connection.pools(), "workers", &options).await;
    let is_held = matches!(
        answer,
        Err(WriteError::ClientThrottled { by: ThrottledBy::CircuitBreaker(_), maybe_written: false, .. })
    );
    ctx.check("it is held back, and nothing is sent", is_held && connection.sent() == 5);
    Ok(())
}

async fn mended(ctx: &ScenarioContext) -> Result<()> {
    ctx.set(&pool("builders", 3)).await?;
    let connection = BreakableConnection::new(ctx).await?;
    let heard = Arc::new(Mutex::new(Vec::<Transition>::new()));
    let hearing = Arc::clone(&heard);
    let breaker = CircuitBreaker::with_listener(settings(OPEN_FOR)?, move |transition| {
        hearing.lock().unwrap_or_else(PoisonError::into_inner).push(transition);
    });
    let (options, pools) = (options(&breaker, five_attempts()), connection.pools());
    connection.breaks_for(FAILURES);
    let intro = "Another pool and a breaker that stays open for two seconds: the same five requests open it, and then the line is mended.";
    let answer = ctx.racing(intro, goal(&pools, "builders", &options)).await;
    ctx.check("it gives up after five requests", is_given_up(&answer) && connection.sent() == 5);
    ctx.say("Alice's worker asks again and again; until the open time is over, the breaker sends nothing. The first request after that is the probe, and its answer closes the circuit.");
    let outcome = eventually(PATIENCE, "the circuit closes", || async {
        match goal(&pools, "builders", &options).await {
            Err(WriteError::ClientThrottled { .. }) => Ok(None),
            answer => Ok(Some(answer?)),
        }
    })
    .await?;
    ctx.check("the write is made", matches!(outcome, Outcome::Written(_)));
    ctx.check_eq("with two requests: the probe was the read of the write itself", &connection.sent(), &7);
    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let states: Vec<_> = heard.iter().map(|transition| transition.to.label()).collect();
    ctx.check_eq("the circuit was open, half open, closed", &states, &vec!["open", "half_open", "closed"]);
    Ok(())
}
