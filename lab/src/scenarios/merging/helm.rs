//! A chart that sets a count which another writer changes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use conflict_retry::{ScaleDecision, ScaleView, WriteOptions};
use serde_json::json;
use tempfile::TempDir;

use super::owners::{apply_spec, owns, spec_table};
use crate::context::{Actor, ScenarioContext};
use crate::pool::Pool;
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "helm-upgrade",
    title: "A chart that sets replicas, and an autoscaler that changes them: who wins at the next upgrade",
    rows: &[],
    refutes: &[],
    lesson: "Leave a field that another writer sets out of the chart: then an upgrade neither fails on it nor resets it.\nLeave it out only when the other writer owns it already: a field that its last owner leaves out is removed.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

const CHART: &str = "apiVersion: v2\nname: workers\nversion: 1.0.0\n";
const TEMPLATE: &str = "apiVersion: lab.tandem.dev/v1
kind: Pool
metadata:
  name: {{ .Release.Name }}
spec:
  machine: {{ .Values.machine }}
";
const REPLICAS: &str = "  replicas: {{ .Values.replicas }}\n";
const VALUES: &str = "machine: small\nreplicas: 3\n";

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let scaler = ctx.actor("autoscaler").await?;
    let charts = Charts::new()?;
    refused(ctx, &charts, &scaler).await?;
    forced(ctx, &charts).await?;
    client_side(ctx, &charts, &scaler).await?;
    left_out(ctx, &charts, &scaler).await?;
    last_owner(ctx, &charts, &scaler).await
}

async fn refused(ctx: &ScenarioContext, charts: &Charts, scaler: &Actor) -> Result<()> {
    ctx.say("A chart of one pool, with replicas: 3. Helm 4 installs it by server-side apply, and an autoscaler goes to 5 through /scale.");
    charts.helm(ctx, "install", "workers", "chart", &[]).await?;
    scale(scaler, "workers", 5).await?;
    let pool = ctx.stored::<Pool>("workers").await?;
    ctx.table(spec_table(&pool.metadata));
    ctx.check(
        "the writer that changes a field owns it: the count is the autoscaler's",
        owns(&pool.metadata, "autoscaler", "spec.replicas") && !owns(&pool.metadata, "helm", "spec.replicas"),
    );
    ctx.say("The next release changes the machine type and nothing else.");
    let Err(error) = charts.helm(ctx, "upgrade", "workers", "chart", &["--set", "machine=large"]).await
    else {
        bail!("the upgrade took the autoscaler's field");
    };
    let error = format!("{error:#}");
    let message = error.lines().last().unwrap_or_default();
    ctx.quote(message);
    ctx.check(
        "the upgrade fails, over a count that has not changed in the chart",
        message.contains("conflict with \"autoscaler\"") && message.contains(".spec.replicas"),
    );
    let pool = ctx.stored::<Pool>("workers").await?;
    ctx.check_eq(
        "the count stands, and the machine type is not changed either",
        &(pool.spec.replicas, pool.spec.machine.as_deref()),
        &(Some(5), Some("small")),
    );
    Ok(())
}

async fn forced(ctx: &ScenarioContext, charts: &Charts) -> Result<()> {
    ctx.say("What the error suggests to many: force.");
    let force = ["--set", "machine=large", "--force-conflicts"];
    charts.helm(ctx, "upgrade", "workers", "chart", &force).await?;
    let pool = ctx.stored::<Pool>("workers").await?;
    ctx.table(spec_table(&pool.metadata));
    ctx.check_eq(
        "granted; and the pool is back at the chart's 3, whatever the load is",
        &(pool.spec.replicas, pool.spec.machine.as_deref()),
        &(Some(3), Some("large")),
    );
    Ok(())
}

async fn client_side(ctx: &ScenarioContext, charts: &Charts, scaler: &Actor) -> Result<()> {
    ctx.say("The autoscaler goes to 5 again. --server-side=false is how Helm 3 does it: of a custom resource it patches what differs between the last release and this one.");
    scale(scaler, "workers", 5).await?;
    let old_way = ["--set", "machine=medium", "--server-side=false"];
    charts.helm(ctx, "upgrade", "workers", "chart", &old_way).await?;
    let pool = ctx.stored::<Pool>("workers").await?;
    ctx.check_eq("the count is the same in both releases, so it stays", &pool.spec.replicas, &Some(5));
    ctx.say("Until a user changes the chart's number, which has had no effect so far:");
    let new_number = ["--set", "machine=medium,replicas=4", "--server-side=false"];
    charts.helm(ctx, "upgrade", "workers", "chart", &new_number).await?;
    let pool = ctx.stored::<Pool>("workers").await?;
    ctx.check_eq("then it is written over the autoscaler's, without a word", &pool.spec.replicas, &Some(4));
    Ok(())
}

async fn left_out(ctx: &ScenarioContext, charts: &Charts, scaler: &Actor) -> Result<()> {
    ctx.say(
        "The cure: a chart without replicas. The autoscaler has gone to 6, so that the field is its own.",
    );
    scale(scaler, "workers", 6).await?;
    let large = ["--set", "machine=large", "--server-side=true"];
    charts.helm(ctx, "upgrade", "workers", "chart-without-replicas", &large).await?;
    let pool = ctx.stored::<Pool>("workers").await?;
    ctx.table(spec_table(&pool.metadata));
    ctx.check_eq(
        "the upgrade is granted without force, and the count stands",
        &(pool.spec.replicas, pool.spec.machine.as_deref()),
        &(Some(6), Some("large")),
    );
    scale(scaler, "workers", 7).await?;
    charts.helm(ctx, "upgrade", "workers", "chart-without-replicas", &["--set", "machine=small"]).await?;
    let pool = ctx.stored::<Pool>("workers").await?;
    ctx.check_eq(
        "and so it goes with every release after it",
        &(pool.spec.replicas, pool.spec.machine.as_deref()),
        &(Some(7), Some("small")),
    );
    Ok(())
}

async fn last_owner(ctx: &ScenarioContext, charts: &Charts, scaler: &Actor) -> Result<()> {
    ctx.say("Two more releases, installed with replicas: 3, that have not been scaled yet. For the second one the autoscaler applies the 3 as well before the chart leaves it out.");
    for name in ["idle", "handed-over"] {
        charts.helm(ctx, "install", name, "chart", &[]).await?;
    }
    let shared = apply_spec(scaler, "handed-over", &json!({"replicas": 3}), false).await?;
    shared.met().context("the count was not applied")?;
    for name in ["idle", "handed-over"] {
        charts.helm(ctx, "upgrade", name, "chart-without-replicas", &[]).await?;
    }
    let idle = ctx.stored::<Pool>("idle").await?.spec.replicas;
    let handed_over = ctx.stored::<Pool>("handed-over").await?.spec.replicas;
    ctx.check_eq("Helm was the only owner of the first one's count: it is removed", &idle, &None);
    ctx.check_eq("the second one's stays, with its other owner", &handed_over, &Some(3));
    Ok(())
}

/// The chart, with replicas and without.
struct Charts {
    directory: TempDir,
}

impl Charts {
    fn new() -> Result<Self> {
        let charts = Self { directory: tempfile::tempdir()? };
        write(&charts.path("chart"), &format!("{TEMPLATE}{REPLICAS}"))?;
        write(&charts.path("chart-without-replicas"), TEMPLATE)?;
        Ok(charts)
    }

    fn path(&self, chart: &str) -> PathBuf {
        self.directory.path().join(chart)
    }

    /// Runs Helm, and records it without what differs from machine to machine.
    async fn helm(
        &self,
        ctx: &ScenarioContext,
        verb: &str,
        release: &str,
        chart: &str,
        more: &[&str],
    ) -> Result<()> {
        let shown = format!("./{chart}");
        let command = [&[verb, release, &shown], more].concat();
        ctx.act("helm", &command.join(" "));
        let path = self.path(chart);
        let path = path.to_str().context("the temporary directory has no readable name")?;
        let args = [&[verb, release, path, "--namespace", ctx.namespace()], more].concat();
        ctx.cluster.helm(&args).await.map(drop)
    }
}

fn write(chart: &Path, template: &str) -> Result<()> {
    std::fs::create_dir_all(chart.join("templates"))?;
    std::fs::write(chart.join("Chart.yaml"), CHART)?;
    std::fs::write(chart.join("values.yaml"), VALUES)?;
    std::fs::write(chart.join("templates/pool.yaml"), template)?;
    Ok(())
}

async fn scale(scaler: &Actor, name: &str, count: i32) -> Result<()> {
    let options = WriteOptions::new(scaler.name());
    let decide = |_: &ScaleView| ScaleDecision::Set(count);
    let pools = scaler.api::<Pool>();
    let outcome = conflict_retry::scale(&pools, name, decide).with(&options).outcome().await?;
    outcome.met().context("the pool was not scaled")?;
    Ok(())
}
