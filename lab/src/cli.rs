//! The command line of `cargo lab`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Parser, Subcommand};
use serde_json::json;

use crate::event::{Table, What};
use crate::narrate::{Narrator, columns};
use crate::run::{Played, play};
use crate::scenario::Scenario;
use crate::stage::Audience;
use crate::theatre::{Theatre, Venue};
use crate::{index, page, scenarios, timeline};

/// Write conflicts in Kubernetes, shown on a real API server
#[derive(Parser)]
#[command(name = "cargo lab", bin_name = "cargo lab")]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Without a name it lists the scenarios.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Scenarios to play
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Play all of them
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Show which scenario shows which row of the checklist, and refutes which claim
    #[arg(long, conflicts_with_all = ["names", "all"])]
    index: bool,
    /// Print JSON on standard output
    #[arg(long)]
    json: bool,
    /// Play on the cluster of this kubeconfig instead of the embedded control plane
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Beginning of the names of the namespaces made; none of them may exist
    #[arg(long, value_name = "PREFIX", default_value = "tandem-lab")]
    namespace: String,
    /// Write the pages in docs/conflicts/ from this run
    #[arg(long)]
    write_pages: bool,
    /// Write a page with the timeline of what was played, from the control plane's audit log
    #[arg(long, value_name = "FILE", conflicts_with = "index")]
    report: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Write a page with the timeline of objects, from any API server's audit log
    Timeline(timeline::Args),
}

/// Runs it. Exit code 1: a claim did not hold; 2: it could not be played.
pub fn main() -> ExitCode {
    let done = (|| {
        // The control plane is held by this same binary, in another process; see `e2e::lifeline`.
        if e2e::lifeline::serve_if_asked()? {
            return Ok(true);
        }
        let args = Args::parse();
        tokio::runtime::Runtime::new().context("no runtime")?.block_on(run(args))
    })();
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            // Nothing can be done about a closed terminal.
            writeln!(std::io::stderr(), "error: {error:#}").ok();
            ExitCode::from(2)
        }
    }
}

async fn run(mut args: Args) -> Result<bool> {
    if let Some(Command::Timeline(args)) = args.command.take() {
        return timeline::run(args).map(|()| true);
    }
    if args.index {
        return print_index(&args).map(|()| true);
    }
    let chosen = if args.all { scenarios::all() } else { choose(&args.names)? };
    if chosen.is_empty() {
        return list(args.json).map(|()| true);
    }
    if args.report.is_some() && args.kubeconfig.is_some() {
        bail!(
            "--report needs the API server's audit log, and a kubeconfig gives none; take the log of that server: \
             cargo lab timeline AUDIT_LOG --object RESOURCE/NAME"
        );
    }
    let venue = args.kubeconfig.clone().map_or(Venue::Embedded, Venue::Named);
    let theatre = Theatre::new(venue, &args.namespace);
    let played = tokio::select! {
        played = play_all(&args, &theatre, &chosen) => played,
        () = asked_to_stop() => Err(anyhow!("interrupted; what had been made is taken away")),
    };
    let reported = match (&args.report, &played) {
        (Some(out), Ok(played)) => write_report(&theatre, played, out).await,
        _ => Ok(()),
    };
    let closed = theatre.close().await;
    let played = played?;
    closed?;
    report(&args, &chosen, &played)?;
    reported?;
    Ok(played.iter().all(Played::passed))
}

async fn write_report(theatre: &Theatre, played: &[Played], out: &Path) -> Result<()> {
    let logs = theatre.audit_logs().await?;
    let names: Vec<&str> = played.iter().map(|played| played.name).collect();
    let namespaces = played.iter().map(|played| played.namespace.clone()).collect();
    timeline::report(&logs, namespaces, &format!("cargo lab {}", names.join(" ")), out)
}

async fn play_all(args: &Args, theatre: &Theatre, chosen: &[Scenario]) -> Result<Vec<Played>> {
    theatre.open().await?;
    let narrator = Narrator::new();
    let mut all = Vec::new();
    for (place, scenario) in chosen.iter().enumerate() {
        if !theatre.can_play(scenario.needs) {
            if args.all {
                continue;
            }
            bail!("{} needs the embedded control plane; leave --kubeconfig out", scenario.name);
        }
        let audience: Audience =
            if args.json { Arc::new(|_| {}) } else { Arc::new(move |event| narrator.event(event)) };
        if args.json {
            Narrator::progress(scenario, place + 1, chosen.len());
        } else {
            narrator.begin(scenario);
        }
        let played = play(theatre, scenario, audience).await?;
        if !args.json {
            narrator.end(scenario);
        }
        if args.write_pages && played.passed() {
            page::write(scenario, &page::render(scenario, &played.events, &played.namespace))?;
        }
        all.push(played);
    }
    Ok(all)
}

/// Ends with Ctrl-C, or when the process is asked to end.
async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        tokio::signal::ctrl_c().await.ok();
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// The scenarios of these names.
fn choose(names: &[String]) -> Result<Vec<Scenario>> {
    let all = scenarios::all();
    names
        .iter()
        .map(|name| {
            let found = all.iter().find(|scenario| scenario.name == name).copied();
            found.with_context(|| {
                let near = all
                    .iter()
                    .map(|scenario| (strsim::jaro_winkler(name, scenario.name), scenario.name))
                    .max_by(|(a, _), (b, _)| a.total_cmp(b))
                    .map_or_else(String::new, |(_, near)| format!("; did you mean {near}?"));
                format!("there is no scenario called {name}{near} (`cargo lab` lists them)")
            })
        })
        .collect()
}

fn list(json: bool) -> Result<()> {
    let mut out = std::io::stdout();
    if json {
        let all: Vec<_> = scenarios::all()
            .into_iter()
            .map(|s| json!({"name": s.name, "title": s.title, "rows": s.rows, "refutes": s.refutes}))
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(());
    }
    let mut table = Table::new(&["scenario", "rows", "what it shows"]);
    for scenario in scenarios::all() {
        table.row(&[&scenario.name, &scenario.rows.join(" "), &scenario.title]);
    }
    for line in columns(&table, str::to_owned) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\ncargo lab NAME…    play them on a real API server\ncargo lab --all    play all")?;
    Ok(())
}

fn print_index(args: &Args) -> Result<()> {
    let all = scenarios::all();
    let mut out = std::io::stdout();
    if args.write_pages {
        std::fs::write(page::directory().join("README.md"), index::page(&all))
            .context("cannot write the index page")?;
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&index::rows(&all))?)?;
        return Ok(());
    }
    let mut table = Table::new(&["row or claim", "scenario", "page"]);
    for (what, names) in index::rows(&all).into_iter().chain(index::claims(&all)) {
        let pages: Vec<String> = names.iter().map(|name| format!("docs/conflicts/{name}.md")).collect();
        table.row(&[&what, &names.join(", "), &pages.join(", ")]);
    }
    for line in columns(&table, str::to_owned) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn report(args: &Args, chosen: &[Scenario], played: &[Played]) -> Result<()> {
    let mut out = std::io::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(played)?)?;
        return Ok(());
    }
    let mut table = Table::new(&["scenario", "", "seconds", "requests", "409s", "claims"]);
    for scenario in chosen {
        let Some(of) = played.iter().find(|played| played.name == scenario.name) else {
            table.row(&[&scenario.name, &"not here: needs the embedded control plane"]);
            continue;
        };
        let requests: Vec<_> = of
            .events
            .iter()
            .filter_map(|event| match &event.what {
                What::Request(request) => Some(request.code),
                _ => None,
            })
            .collect();
        let conflicts = requests.iter().filter(|code| **code == 409).count();
        let claims = of.events.iter().filter(|event| matches!(event.what, What::Check { .. })).count();
        let verdict = if of.passed() { "as claimed" } else { "NOT AS CLAIMED" };
        let seconds = format!("{:.1}", of.seconds);
        table.row(&[&of.name, &verdict, &seconds, &requests.len(), &conflicts, &claims]);
    }
    writeln!(out)?;
    for line in columns(&table, str::to_owned) {
        writeln!(out, "{line}")?;
    }
    for failed in played.iter().filter(|played| !played.passed()) {
        writeln!(out, "\n{}:\n  {}", failed.name, failed.failures.join("\n  "))?;
    }
    Ok(())
}
