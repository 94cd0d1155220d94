//! The command line of `cargo lab`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Parser, Subcommand};
use serde_json::json;
use timeline::{NamespacePage, PageFile, ServerLog};

use crate::cluster_pool::{ClusterPool, ClusterSource};
use crate::context::EventSink;
use crate::event::{Table, What};
use crate::narrate::{Narrator, columns};
use crate::run::{Played, play};
use crate::scenario::Scenario;
use crate::{bill, index, page, scenarios};

/// How the names of namespaces begin unless said otherwise.
const PREFIX: &str = "tandem-lab";
/// Longest name of a namespace (a DNS label, RFC 1123).
const LONGEST_NAME: usize = 63;
/// The error of a run that a signal ended.
const INTERRUPTED: &str = "interrupted";
/// Similarity from which on a name counts as mistyped (Jaro-Winkler, 1 is equal).
const NEAR: f64 = 0.8;

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
    #[arg(long, value_name = "PREFIX", default_value = PREFIX)]
    namespace: String,
    /// Write the pages in docs/conflicts/ from this run
    #[arg(long)]
    write_pages: bool,
    /// Build the documentation site in this directory, from the pages in docs/
    #[arg(long, value_name = "DIR", conflicts_with_all = ["names", "all", "index", "json", "kubeconfig", "write_pages", "report", "bill", "markdown"])]
    site: Option<PathBuf>,
    /// Write a page with the timeline of what was played, from the control plane's audit log
    #[arg(long, value_name = "FILE", conflicts_with = "index")]
    report: Option<PathBuf>,
    /// Draw what each write strategy cost, for the scenario strategies
    #[arg(long, value_name = "FILE.svg", conflicts_with = "index")]
    bill: Option<PathBuf>,
    /// Put the same figures into this page, between the marks there
    #[arg(long, value_name = "FILE", conflicts_with = "index")]
    markdown: Option<PathBuf>,
}

impl Args {
    fn wants_bill(&self) -> bool {
        self.bill.is_some() || self.markdown.is_some()
    }
}

#[derive(Subcommand)]
enum Command {
    /// Write a page with the timeline of objects, from any API server's audit log
    Timeline(timeline::Args),
}

/// Runs the command. Exit code 1: a claim did not hold; 2: a scenario could not be run.
pub fn main() -> ExitCode {
    let done = (|| {
        // This same binary, in another process, supervises the control plane; see `testbed::process_supervisor`.
        if testbed::process_supervisor::serve_if_asked()? {
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
        let page = timeline::page_of_objects(args)?;
        print_warnings(&page)?;
        writeln!(std::io::stdout(), "{page}")?;
        return Ok(true);
    }
    if let Some(out) = &args.site {
        return build_site(out).map(|()| true);
    }
    // What people try first. No scenario is called so.
    if let [word @ ("list" | "index")] = args.names.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
    {
        args.index |= *word == "index";
        args.names.clear();
    }
    if args.index {
        return print_index(&args).map(|()| true);
    }
    let chosen = if args.all { scenarios::all() } else { choose(&args.names)? };
    if chosen.is_empty() {
        if args.write_pages || args.report.is_some() || args.kubeconfig.is_some() || args.wants_bill() {
            bail!("there is nothing to play; name a scenario, or say --all");
        }
        return list(args.json).map(|()| true);
    }
    check(&args, &chosen)?;
    let source = args.kubeconfig.clone().map_or(ClusterSource::Embedded, ClusterSource::Named);
    let clusters = ClusterPool::new(source, &args.namespace);
    let mut played = Vec::new();
    let ended = tokio::select! {
        ended = play_all(&args, &clusters, &chosen, &mut played) => ended,
        () = asked_to_stop() => Err(anyhow!(INTERRUPTED)),
    };
    let reported = match (&args.report, &ended) {
        (Some(out), Ok(())) => write_report(&clusters, &played, out).await,
        _ => Ok(()),
    };
    let label = clusters.label();
    let closed = tokio::select! {
        closed = clusters.close() => closed,
        () = asked_to_stop() => Err(anyhow!("interrupted again")),
    };
    report(&args, &played)?;
    if let Err(left) = closed {
        let before = ended.err().map_or_else(String::new, |error| format!("{error:#}; "));
        bail!(
            "{before}not all that was made is taken away ({left:#}); what is left on a cluster of yours is labelled {label}"
        );
    }
    ended.map_err(|error| match error.downcast::<&str>() {
        Ok(INTERRUPTED) => anyhow!("{INTERRUPTED}; what had been made is taken away"),
        Ok(other) => anyhow!(other),
        Err(error) => error,
    })?;
    reported?;
    if args.wants_bill() {
        write_bill(&args, &played)?;
    }
    Ok(played.iter().all(Played::passed))
}

/// Refuses impossible requests before anything is started.
fn check(args: &Args, chosen: &[Scenario]) -> Result<()> {
    if let (Some(embedded), Some(_)) =
        (chosen.iter().find(|scenario| scenario.needs.is_embedded()), &args.kubeconfig)
        && !args.all
    {
        bail!("{} needs the embedded control plane; leave --kubeconfig out", embedded.name);
    }
    if args.report.is_some() && args.kubeconfig.is_some() {
        bail!(
            "--report needs the API server's audit log, and a kubeconfig gives none; take the log of that server: \
             cargo lab timeline AUDIT_LOG --object RESOURCE/NAME"
        );
    }
    if args.write_pages && (args.kubeconfig.is_some() || args.namespace != PREFIX) {
        bail!("pages are written from the embedded control plane, in namespaces called {PREFIX}-NAME");
    }
    for out in args.report.iter().chain(&args.bill) {
        timeline::check_writable(out)?;
    }
    if args.wants_bill() && chosen.iter().all(|scenario| scenario.name != bill::SCENARIO) {
        bail!("--bill and --markdown are for the scenario {}", bill::SCENARIO);
    }
    if let Some(page) = &args.markdown {
        bill::check_marks(page)?;
        if args.bill.as_ref().is_some_and(|chart| chart.parent() != page.parent()) {
            bail!("the page of --markdown shows the chart of --bill, so both have to be in one directory");
        }
    }
    let longest = chosen.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
    let prefix = &args.namespace;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !prefix.starts_with(|c: char| c.is_ascii_lowercase()) || !prefix.chars().all(is_plain) {
        bail!(
            "--namespace {prefix} cannot begin the name of a namespace; use a lower-case letter, then letters, digits and -"
        );
    }
    if prefix.len() + 1 + longest > LONGEST_NAME {
        bail!(
            "--namespace {prefix} is too long; a namespace has {LONGEST_NAME} characters at most, with the scenario's name after it"
        );
    }
    Ok(())
}

fn build_site(out: &Path) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let site::Built { pages, links } = site::build(&root, out)?;
    let front = std::path::absolute(out.join("index.html"))?;
    writeln!(std::io::stdout(), "{pages} pages, {links} links checked: {}", front.display())?;
    Ok(())
}

async fn write_report(clusters: &ClusterPool, played: &[Played], out: &Path) -> Result<()> {
    let logs = clusters.audit_logs().await?;
    let names: Vec<&str> = played.iter().map(|played| played.name).collect();
    let small = logs.small.map(|path| ServerLog { path, has_nodes: false });
    let large = logs.large.into_iter().chain(logs.cluster_api);
    let large = large.map(|path| ServerLog { path, has_nodes: true });
    let wanted = NamespacePage {
        logs: small.into_iter().chain(large).collect(),
        namespaces: played.iter().map(|played| played.namespace.clone()).collect(),
        title: &format!("cargo lab {}", names.join(" ")),
        source: "the embedded control plane's audit log",
        setup_user: logs.admin,
        phases: played.iter().flat_map(|played| bill::phases(&played.events)).collect(),
    };
    let page = timeline::page_of_namespaces(wanted, out)?;
    print_warnings(&page)?;
    // Standard output may be the JSON of the run.
    writeln!(std::io::stderr(), "{page}")?;
    Ok(())
}

/// Writes the bill of the run, if it was played and held what it claims.
fn write_bill(args: &Args, played: &[Played]) -> Result<()> {
    let mut passed = played.iter().filter(|played| played.passed());
    let Some(costs) = passed.find_map(|played| bill::costs(&played.events)) else {
        writeln!(std::io::stderr(), "warning: {} has not passed, so there is no bill", bill::SCENARIO)?;
        return Ok(());
    };
    bill::write(costs, args.bill.as_deref(), args.markdown.as_deref())
}

fn print_warnings(page: &PageFile) -> Result<()> {
    for warning in &page.warnings {
        writeln!(std::io::stderr(), "warning: {warning}")?;
    }
    Ok(())
}

async fn play_all(
    args: &Args,
    clusters: &ClusterPool,
    chosen: &[Scenario],
    all: &mut Vec<Played>,
) -> Result<()> {
    clusters.open().await?;
    let narrator = Narrator::new();
    for (place, scenario) in chosen.iter().enumerate() {
        if !clusters.can_play(scenario.needs) {
            all.push(Played::not_played(scenario, Some("needs the embedded control plane")));
            continue;
        }
        let sink: EventSink =
            if args.json { Arc::new(|_| {}) } else { Arc::new(move |event| narrator.event(event)) };
        if args.json {
            Narrator::progress(scenario, place + 1, chosen.len());
        } else {
            narrator.begin(scenario);
        }
        let played = play(clusters, scenario, sink).await?;
        if !args.json {
            narrator.end(scenario);
        }
        if args.write_pages && played.passed() {
            page::write(scenario, &page::render(scenario, &played.events, &played.namespace))?;
        }
        all.push(played);
    }
    Ok(())
}

/// Waits for Ctrl-C, a request to terminate, or the closing of the terminal.
async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let waits = kinds.into_iter().filter_map(|kind| signal(kind).ok()).map(|mut signal| {
        Box::pin(async move {
            signal.recv().await;
        })
    });
    futures::future::select_all(waits).await;
}

/// The scenarios of these names.
fn choose(names: &[String]) -> Result<Vec<Scenario>> {
    let all = scenarios::all();
    let mut chosen: Vec<Scenario> = Vec::new();
    for name in names {
        let Some(found) = all.iter().find(|scenario| scenario.name == name) else {
            let likeness = |scenario: &Scenario| strsim::jaro_winkler(&name.to_lowercase(), scenario.name);
            let near = all
                .iter()
                .map(|scenario| (likeness(scenario), scenario.name))
                .filter(|(likeness, _)| *likeness >= NEAR)
                .max_by(|(a, _), (b, _)| a.total_cmp(b))
                .map_or_else(String::new, |(_, near)| format!("; did you mean {near}?"));
            bail!("there is no scenario called {name:?}{near} (`cargo lab` lists them)");
        };
        if chosen.iter().all(|known| known.name != found.name) {
            chosen.push(*found);
        }
    }
    Ok(chosen)
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
        for (path, text) in page::written_without_a_run() {
            page::write_document(&path, &text)?;
        }
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

fn report(args: &Args, played: &[Played]) -> Result<()> {
    let mut out = std::io::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(played)?)?;
        return Ok(());
    }
    if played.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["scenario", "", "seconds", "requests", "409s", "claims"]);
    for of in played {
        if let Some(why) = of.not_played {
            table.row(&[&of.name, &format!("not here: {why}")]);
            continue;
        }
        let claims = of.events.iter().filter(|event| matches!(event.what, What::Check { .. })).count();
        let result = if of.passed() { "as claimed" } else { "NOT AS CLAIMED" };
        let seconds = format!("{:.1}", of.seconds);
        table.row(&[&of.name, &result, &seconds, &of.requests, &of.conflicts, &claims]);
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
