//! How quick the planner is, and what it needs, on generated clusters: the peers' mixes, and passes of a large cluster.
//!
//! Every row is measured in a process of its own, so that its peak memory is its own. A plan that is not what it should
//! be (a pod without a place, a node too many) fails the command, whatever the time it took; so does work, counted in the
//! planner's own steps, that grows faster than n log n.

mod case;
mod chart;
mod check;
mod counts;
mod growth;
mod measure;
mod offers;
mod published;
mod row;
mod witness;

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use case::Case;
use measure::Measured;

use crate::page;

/// How quick the planner is on the peers' benchmark mixes and on large clusters
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the rows into this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the scaling curves into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Put the table into this file, between the marks there
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Measure this mix only (may be repeated)
    #[arg(long, value_name = "MIX")]
    only: Vec<String>,
    /// Small sizes only, for a look while one works
    #[arg(long)]
    quick: bool,
    /// For how long passes of one row are repeated
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u64,
    /// After how long a row is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
    /// Measure this row in this process, and print it as JSON
    #[arg(long, hide = true)]
    row: Option<Case>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(case) = args.row {
        let measured = measure::measure(case, Duration::from_secs(args.seconds))?;
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    let cases: Vec<Case> = case::all(args.quick)
        .into_iter()
        .filter(|case| args.only.is_empty() || args.only.iter().any(|only| only == case.mix.name()))
        .collect();
    if cases.is_empty() {
        bail!("there is no such mix; there are {}", case::Mix::ALL.map(case::Mix::name).join(", "));
    }
    let mut rows = Vec::new();
    let mut complaints = Vec::new();
    for case in cases {
        eprintln!("{case}");
        match measured_apart(case, args) {
            Ok(measured) => {
                complaints.extend(measured.complaints.iter().map(|what| format!("{case}: {what}")));
                rows.push((case, measured));
            }
            Err(error) => complaints.push(format!("{case}: {error:#}")),
        }
    }
    println!("{}", row::table(&rows));
    let growth = growth::of(&rows);
    println!("\n{}", growth::text(&growth));
    complaints.extend(growth.iter().filter_map(growth::Growth::complaint));

    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&row::rows(&rows))?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = &args.plot {
        let text = chart::svg(&rows);
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = &args.markdown {
        page::fill(file, "planner", &row::markdown(&rows, &growth))?;
    }
    if complaints.is_empty() { Ok(()) } else { bail!("{}", complaints.join("\n")) }
}

/// Measures a row in a process of its own: this program again.
fn measured_apart(case: Case, args: &Args) -> anyhow::Result<Measured> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["planner", "--row", &case.to_string(), "--seconds", &args.seconds.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the process of the row")?;
    let deadline = Instant::now() + Duration::from_secs(args.limit);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("not done after {} s", args.limit);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut text)?;
    }
    if !status.success() {
        bail!("the process of the row ended with {status}");
    }
    serde_json::from_str(&text).context("cannot read what the process of the row printed")
}
