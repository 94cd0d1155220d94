//! Many runs, each with one kill: after the first write, after the second one, and so on, for every kind of work and every
//! shape of provider. What each leaves is compared with what an undisturbed run leaves.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::join_all;
use tokio::time::Instant;
use toolbox::tools::{Tool, Toolbox};

use super::lane::{Lane, LaneProgress};
use super::maker::NodeMaker;
use super::work::Work;
use crate::cluster_api;
use crate::operators::OperatorKind;

/// Which runs are made.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// The first write after which the operator is killed, counted from one; also the first machine.
    pub from: usize,
    /// The last one; without it, as many as the work takes.
    pub to: Option<usize>,
    /// The kinds of work.
    pub works: Vec<Work>,
    /// The shapes of provider.
    pub makers: Vec<NodeMaker>,
    /// How long all of it may take, apart from what has to be built.
    pub limit: Duration,
}

/// What became of the runs.
#[derive(Debug)]
pub struct CrashReport {
    lanes: Vec<(Lane, LaneProgress)>,
    limit: Duration,
}

/// Makes the runs, those of several kinds of work side by side as far as the machine has room, and reports each in a `line`.
///
/// # Errors
/// When the programs cannot be built. What becomes of the runs is in the report.
pub async fn run(options: CrashOptions, line: impl Fn(&str)) -> Result<CrashReport> {
    let CrashOptions { from, to, works, makers, limit } = options;
    // For minutes, the first time.
    Toolbox::from_environment().find(&Tool::ORDINARY).await?;
    OperatorKind::NodePool.binary().await?;
    if makers.contains(&NodeMaker::Set) {
        cluster_api::build().await?;
    }
    let deadline = Instant::now() + limit;
    let pairs = works.iter().flat_map(|&work| makers.iter().map(move |&maker| (work, maker)));
    let pairs = pairs.filter(|(work, maker)| work.left_to(*maker).is_none());
    let lanes: Vec<Lane> = pairs.map(|(work, maker)| Lane { work, maker, from, to }).collect();
    let progress = join_all(lanes.iter().map(|lane| lane.run(deadline, &line))).await;
    Ok(CrashReport { lanes: lanes.into_iter().zip(progress).collect(), limit })
}

impl CrashReport {
    /// The number of runs that ended as the undisturbed one.
    pub fn same(&self) -> usize {
        self.lanes.iter().map(|(_, progress)| progress.same).sum()
    }

    /// The commands that go on where the time was up; none when all is done.
    pub fn go_on(&self) -> Vec<String> {
        let command = |(lane, progress): &(Lane, LaneProgress)| {
            let (work, provider, from) = (lane.work.name(), lane.maker.provider(), progress.next?);
            let to = lane.to.map(|to| format!(" --to {to}")).unwrap_or_default();
            Some(format!("cargo xtask crashes --work {work} --provider {provider} --from {from}{to}"))
        };
        self.lanes.iter().filter_map(command).collect()
    }

    /// Whether every run that was made ended as the undisturbed one.
    ///
    /// # Errors
    /// When one did not, and when none was made although there was time.
    pub fn judge(&self) -> Result<()> {
        let failures: Vec<&str> =
            self.lanes.iter().flat_map(|(_, progress)| &progress.failures).map(String::as_str).collect();
        ensure!(failures.is_empty(), "{} went wrong:\n{}", failures.len(), failures.join("\n"));
        let is_begun = self.same() > 0 || !self.go_on().is_empty();
        ensure!(is_begun, "no work takes so many writes, so nothing was killed: give a smaller --from");
        Ok(())
    }
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (lane, progress) in &self.lanes {
            let LaneProgress { next, same, failures } = progress;
            let (name, done) = (lane.to_string(), done(lane, *next));
            writeln!(f, "{name:<20} {same:>4} as undisturbed, {} not; {done}", failures.len())?;
        }
        write!(f, "{} runs ended as the undisturbed one", self.same())?;
        let go_on = self.go_on();
        if !go_on.is_empty() {
            let minutes = self.limit.as_secs() / 60;
            write!(f, "\nnot all was done, in at most {minutes} minutes; to go on:")?;
            go_on.iter().try_for_each(|command| write!(f, "\n  {command}"))?;
        }
        Ok(())
    }
}

/// Which numbers were done.
fn done(lane: &Lane, next: Option<usize>) -> String {
    let from = lane.from;
    match (next, lane.to) {
        (None, None) => format!("all from {from} on"),
        (None, Some(to)) => format!("all from {from} to {to}"),
        (Some(next), _) if next <= from => "none yet".to_owned(),
        (Some(next), _) => format!("{from} to {}", next - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(to: Option<usize>, next: Option<usize>, same: usize, failures: &[&str]) -> CrashReport {
        let lane = Lane { work: Work::ScaleUp, maker: NodeMaker::Operator, from: 2, to };
        let failures = failures.iter().map(|&text| text.to_owned()).collect();
        let lanes = vec![(lane, LaneProgress { next, same, failures })];
        CrashReport { lanes, limit: Duration::from_secs(1800) }
    }

    #[test]
    fn a_report_says_where_to_go_on() {
        let cut = report(Some(9), Some(7), 5, &[]);
        assert_eq!(cut.go_on(), ["cargo xtask crashes --work scale-up --provider simulated --from 7 --to 9"]);
        let text = cut.to_string();
        assert!(text.contains("5 as undisturbed, 0 not; 2 to 6\n"), "{text}");
        assert!(text.contains("in at most 30 minutes; to go on:\n  cargo xtask crashes"), "{text}");
        cut.judge().unwrap();

        let done = report(None, None, 5, &[]);
        assert_eq!(done.go_on(), [""; 0]);
        assert!(done.to_string().contains("5 as undisturbed, 0 not; all from 2 on\n"), "{done}");
        assert!(done.to_string().ends_with("5 runs ended as the undisturbed one"), "{done}");
        done.judge().unwrap();
        let none = report(None, Some(2), 0, &[]);
        assert!(none.to_string().contains("0 as undisturbed, 0 not; none yet\n"), "{none}");
    }

    #[test]
    fn a_run_that_ends_otherwise_fails_and_so_does_a_report_of_none() {
        let wrong = report(None, None, 5, &["a taint is left"]).judge().unwrap_err().to_string();
        assert_eq!(wrong, "1 went wrong:\na taint is left");
        assert!(report(None, None, 0, &[]).judge().is_err());
    }
}
