//! `cargo xtask crashes`: an operator that is killed once in each of many runs. The runs are in `testbed::crashes`; here are the
//! arguments.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::ValueEnum;
use testbed::crashes::{CrashOptions, NodeMaker, Work};

/// The operator that makes nodes is killed (`kill -9`) after the k-th write of its work, in a run of its own for each k, and what is left is
/// compared with what an undisturbed run leaves.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The first k. With a provider whose program makes machines, it is also killed after the k-th machine made or deleted
    #[arg(long, value_name = "K", default_value = "1")]
    from: NonZeroUsize,

    /// The last k; without it, as many as the work takes
    #[arg(long, value_name = "K2")]
    to: Option<NonZeroUsize>,

    /// Only this work; may be given several times
    #[arg(long, value_enum, value_name = "NAME")]
    work: Vec<WorkName>,

    /// Only this provider; may be given several times
    #[arg(long, value_enum, value_name = "NAME")]
    provider: Vec<Provider>,

    /// Minutes after which it ends and prints the commands to go on with, apart from what has to be built
    #[arg(long, value_name = "MINUTES", default_value_t = 30)]
    limit_minutes: u64,
}

/// What the operator does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WorkName {
    /// A new pool comes to two nodes, and then four
    ScaleUp,
    /// One node of two goes when a disruption budget allows it
    Drain,
    /// A dead node is replaced, and its pod given up
    Repair,
    /// Three nodes are replaced
    Rollout,
    /// A pool goes with its nodes when a disruption budget allows it
    Deletion,
}

/// Who makes the nodes.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Provider {
    /// The operator makes the Node objects
    Simulated,
    /// A program makes machines, whose kubelets register their Nodes
    Exec,
    /// Cluster API makes as many machines as the operator asks for. It does rollouts itself, so there is none to be killed in
    #[value(name = "clusterApi")]
    ClusterApi,
}

impl From<WorkName> for Work {
    fn from(name: WorkName) -> Self {
        match name {
            WorkName::ScaleUp => Self::ScaleUp,
            WorkName::Drain => Self::Drain,
            WorkName::Repair => Self::Repair,
            WorkName::Rollout => Self::Rollout,
            WorkName::Deletion => Self::Deletion,
        }
    }
}

impl From<Provider> for NodeMaker {
    fn from(provider: Provider) -> Self {
        match provider {
            Provider::Simulated => Self::Operator,
            Provider::Exec => Self::Kubelets,
            Provider::ClusterApi => Self::Set,
        }
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let report = testbed::crashes::run(options(args)?, |line| println!("{line}")).await?;
    println!("{report}");
    report.judge()
}

fn options(args: Args) -> anyhow::Result<CrashOptions> {
    let Args { from, to, work, provider, limit_minutes } = args;
    ensure!(to.is_none_or(|to| from <= to), "--to is less than --from, so there is no k");
    let limit = Duration::from_secs(limit_minutes.saturating_mul(60));
    let (works, makers) = (chosen(work, &Work::ALL), chosen(provider, &NodeMaker::ALL));
    check_any_work(&works, &makers)?;
    Ok(CrashOptions { from: from.get(), to: to.map(NonZeroUsize::get), works, makers, limit })
}

/// Checks that the operator has something to do.
fn check_any_work(works: &[Work], makers: &[NodeMaker]) -> anyhow::Result<()> {
    let mut left = Vec::new();
    for work in works {
        for maker in makers {
            let Some(why) = work.left_to(*maker) else { return Ok(()) };
            left.push(format!("the operator does no {} with {}: {why}", work.name(), maker.provider()));
        }
    }
    bail!("{}", left.join("; "))
}

/// What was asked for, or all.
fn chosen<Name: Into<Kind>, Kind: Clone>(asked: Vec<Name>, all: &[Kind]) -> Vec<Kind> {
    if asked.is_empty() { all.to_vec() } else { asked.into_iter().map(Into::into).collect() }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn of(line: &[&str]) -> anyhow::Result<CrashOptions> {
        options(Line::try_parse_from([&["crashes"][..], line].concat())?.args)
    }

    #[test]
    fn without_filters_everything_is_killed_and_with_them_what_they_name() {
        let all = of(&[]).unwrap();
        assert_eq!((all.from, all.to, all.limit), (1, None, Duration::from_secs(1800)));
        assert_eq!((all.works.as_slice(), all.makers.as_slice()), (&Work::ALL[..], &NodeMaker::ALL[..]));
        let some = of(&["--from", "3", "--to", "5", "--provider", "exec", "--work", "drain"]).unwrap();
        assert_eq!((some.from, some.to), (3, Some(5)));
        assert_eq!((some.works, some.makers), (vec![Work::Drain], vec![NodeMaker::Kubelets]));
        for wrong in [&["--from", "0"][..], &["--from", "3", "--to", "2"], &["--work", "sleep"]] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_name_that_a_report_prints_is_taken() {
        for work in Work::ALL {
            for maker in NodeMaker::ALL.into_iter().filter(|maker| work.left_to(*maker).is_none()) {
                let options = of(&["--work", work.name(), "--provider", maker.provider()]).unwrap();
                assert_eq!((options.works, options.makers), (vec![work], vec![maker]));
            }
        }
    }

    #[test]
    fn a_rollout_that_is_cluster_apis_is_refused_alone_and_left_out_beside_others() {
        let refused = of(&["--work", "rollout", "--provider", "clusterApi"]).unwrap_err().to_string();
        assert!(
            refused.starts_with("the operator does no rollout with clusterApi: Cluster API"),
            "{refused}"
        );
        let all = of(&["--work", "rollout"]).unwrap();
        assert_eq!((all.works, all.makers), (vec![Work::Rollout], NodeMaker::ALL.to_vec()));
    }
}
