//! `cargo xtask reports`: the planner against inputs from public bug reports.

use std::path::PathBuf;

use anyhow::ensure;
use simulator::reports;
use toolbox::workspace;

/// The planner against inputs that were made from public bug reports, each with what is right
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder with the inputs; by default those of this repository, which `cargo suites` runs too
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let folder = args.folder.unwrap_or_else(|| workspace::root().join("simulator/reports"));
    let verdicts = reports::of_folder(&folder)?;
    let mut wrong = 0;
    for verdict in &verdicts {
        println!("{:5}  {}", if verdict.wrong.is_empty() { "right" } else { "WRONG" }, verdict.file);
        verdict.wrong.iter().for_each(|why| println!("       {why}"));
        wrong += usize::from(!verdict.wrong.is_empty());
    }
    println!("{} of {} right", verdicts.len() - wrong, verdicts.len());
    ensure!(wrong == 0, "{wrong} answers are wrong");
    Ok(())
}
