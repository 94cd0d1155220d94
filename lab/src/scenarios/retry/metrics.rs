//! Metrics of retries, and their log.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use conflict_retry::metrics::RetryMetrics;
use conflict_retry::policy::RetryPolicy;
use conflict_retry::{Outcome, WriteError, WriteOptions, is_conflict};
use prometheus::Registry;
use tracing::instrument::WithSubscriber as _;
use tracing_subscriber::layer::SubscriberExt as _;

use super::contest::{Contest, goal};
use super::excerpt::Excerpt;
use super::logged::{Line, Log};
use super::scrape::{Endpoint, Scrape};
use crate::context::ScenarioContext;
use crate::event::Table;
use crate::pool::Pool;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "metrics",
    title: "Metrics and logs for retry on conflict",
    rows: &["3k", "3l"],
    refutes: &[],
    lesson: "Without counting attempts, a loop that succeeds at the fifth attempt looks like one that succeeds at the first.\nCount requests by class, conflicts by cause, and writes that were given up; log attempts at debug level, not as errors.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

async fn run(ctx: &ScenarioContext) -> Result<()> {
    uncounted(ctx).await?;
    counted(ctx).await?;
    logged(ctx).await
}

async fn uncounted(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "uncounted").await?;
    contest.interfere(3);
    let intro =
        "A loop by hand that counts what its caller sees: writes and errors. Bob is faster three times.";
    let (mut writes, mut errors) = (0, 0);
    let by_hand = async {
        loop {
            match contest.attempt().await {
                Err(error) if is_conflict(&error) => {}
                answer => return answer,
            }
        }
    };
    let excerpt = Excerpt::begin(ctx);
    match ctx.racing(intro, by_hand).await {
        Ok(_) => writes += 1,
        Err(_) => errors += 1,
    }
    excerpt.show(ctx);
    ctx.say("What it has counted:");
    ctx.quote(&format!("writes {writes}\nerrors {errors}"));
    ctx.check_eq("eight requests, three of them refused", &sent(&contest), &(8, 3));
    ctx.check_eq("and nothing of that in the counts", &(writes, errors), &(1, 0));
    Ok(())
}

fn sent(contest: &Contest) -> (usize, usize) {
    let counts = contest.alice.counts();
    (counts.requests, counts.conflicts)
}

async fn counted(ctx: &ScenarioContext) -> Result<()> {
    let registry = Registry::new();
    let metrics = Arc::new(RetryMetrics::register(&registry, HashMap::new())?);
    let endpoint = Endpoint::serve(registry).await?;
    let (workers, builders) = (Contest::new(ctx, "workers").await?, Contest::new(ctx, "builders").await?);
    workers.interfere(3);
    builders.interfere(2);
    ctx.say("Alice's program serves its metrics over HTTP, on a port of its machine. It is scraped before its first write, and after its last.");
    let before = endpoint.get("/metrics").await?;
    ctx.check_eq("before the first write no request is counted", &requests(&before.body), &0);
    let options = WriteOptions::new("alice").with_observer(metrics);
    let two = std::num::NonZeroU32::MIN.saturating_add(1);
    let bounded = options.clone().with_policy(RetryPolicy::default().with_max_attempts(two));
    let intro = "`RetryMetrics` as the observer of four writes: one that meets three conflicts, one that may try twice and meets two, one whose goal is met already, and one of a pool that does not exist.";
    let writes = async {
        [
            label(&workers.update(&options).await),
            label(&builders.update(&bounded).await),
            label(&workers.update(&options).await),
            label(&goal(&workers.pools(), "missing", &options).await),
        ]
    };
    let ends = ctx.racing(intro, writes).await;
    ctx.check_eq(
        "they end as written, exhausted, unchanged and gone",
        &ends,
        &["written", "exhausted", "unchanged", "gone"],
    );
    let sent = sent(&workers).0 + sent(&builders).0;
    scraped(ctx, &endpoint.get("/metrics").await?, sent);
    Ok(())
}

/// Checks the exposition after `sent` requests to the API server.
fn scraped(ctx: &ScenarioContext, scrape: &Scrape, sent: usize) {
    let Scrape { status, format, body } = scrape;
    let (live, same): (Vec<_>, Vec<_>) =
        body.lines().filter(|line| !line.starts_with('#')).partition(|line| line.contains("_seconds"));
    ctx.say("What `GET /metrics` is answered then: status, format and series (the comments are left out; so are the times, which are shown live).");
    ctx.quote(&format!("{status}\n{format}\n\n{}", same.join("\n")));
    ctx.live_quote(&live.join("\n"));
    let main = "resource=\"pools\",subresource=\"\"";
    let value = |name: &str, labels: &str| value(body, &format!("conflict_retry_{name}{{{labels}}}"));
    ctx.check("it is answered, in the text format that Prometheus reads", is_exposition(status, format));
    ctx.check_eq(
        "five conflicts",
        &value("conflicts_total", &format!("cause=\"conflict\",{main},verb=\"put\"")),
        &Some(5),
    );
    ctx.check_eq(
        "one write was given up",
        &value("exhausted_total", &format!("{main},verb=\"put\"")),
        &Some(1),
    );
    ctx.check_eq("every request is counted once", &requests(body), &sent);
}

fn is_exposition(status: &str, format: &str) -> bool {
    status == "HTTP/1.1 200 OK" && format.starts_with("Content-Type: text/plain; version=0.0.4")
}

/// The value of one line of an exposition.
fn value(text: &str, series: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(series))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// All requests of an exposition.
fn requests(text: &str) -> usize {
    let lines = text.lines().filter(|line| line.starts_with("conflict_retry_requests_total{"));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok()).sum()
}

fn label(answer: &Result<Outcome<Pool>, WriteError>) -> &'static str {
    answer.as_ref().map_or_else(WriteError::category, Outcome::label)
}

async fn logged(ctx: &ScenarioContext) -> Result<()> {
    let contest = Contest::new(ctx, "logged").await?;
    contest.interfere(2);
    let log = Log::default();
    let subscriber = tracing_subscriber::registry().with(log.clone());
    let options = WriteOptions::new("alice");
    let intro = "Each request is one event of `tracing`, at debug level. Bob is faster twice.";
    let write = contest.update(&options).with_subscriber(subscriber);
    let outcome = ctx.racing(intro, write).await?;
    ctx.check("the third attempt is written", matches!(outcome, Outcome::Written(_)));
    let mut table = Table::new(&["level", "attempt", "verb", "class", "delay"]);
    let mut live = String::new();
    for Line { level, fields } in log.lines() {
        let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let delay = if field("delay") == "None" { "None" } else { "Some(…)" };
        table.row(&[&level, &field("attempt"), &field("verb"), &field("class"), &delay]);
        live.push_str(&format!("{level} attempt={} delay={}\n", field("attempt"), field("delay")));
    }
    let classes: Vec<_> = log.lines().iter().filter_map(|line| line.fields.get("class").cloned()).collect();
    ctx.table(table);
    ctx.live_quote(&live);
    ctx.check_eq(
        "six requests, six lines: the two conflicts are told with their attempt and the pause that follows",
        &classes,
        &["ok", "conflict", "ok", "conflict", "ok", "ok"].map(str::to_owned).to_vec(),
    );
    ctx.check("none of them is a warning or an error", log.lines().iter().all(|line| line.level == "DEBUG"));
    Ok(())
}
