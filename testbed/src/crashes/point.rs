//! One moment at which an operator is killed, and never again after it.

use std::fmt;

use anyhow::{Result, bail};

use super::kill::Life;
use crate::fault_proxy::FaultProxy;
use crate::machines::Machines;
use crate::operators::OperatorProcess;

/// When an operator is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillPoint {
    /// After this write to the API server, counted from one, which is not answered.
    Write(usize),
    /// After this machine that its program has made or deleted, counted from one, which the program does not answer.
    Machine(usize),
}

impl fmt::Display for KillPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(nth) => write!(formatter, "write {nth}"),
            Self::Machine(nth) => write!(formatter, "machine {nth}"),
        }
    }
}

impl KillPoint {
    /// From now on writes and machines are counted.
    fn count(self, proxy: &FaultProxy, machines: Option<&Machines>) -> Result<()> {
        // What was counted before.
        drop(proxy.writes().executed());
        machines.map_or_else(|| Ok(Vec::new()), Machines::unanswered)?;
        match (self, machines) {
            (Self::Write(nth), _) => proxy.writes().allow(Some(nth)),
            (Self::Machine(nth), Some(machines)) => machines.answer_changes_before(nth)?,
            (Self::Machine(_), None) => bail!("the operator makes no machines, so none can kill it"),
        }
        Ok(())
    }

    async fn reached(self, proxy: &FaultProxy, machines: Option<&Machines>) {
        match (self, machines) {
            (Self::Write(_), _) => proxy.writes().closed().await,
            (Self::Machine(nth), Some(machines)) => machines.changed(nth).await,
            (Self::Machine(_), None) => std::future::pending().await,
        }
    }
}

/// From now on every write is made, and every machine's change answered.
fn stop_counting(proxy: &FaultProxy, machines: Option<&Machines>) -> Result<()> {
    proxy.writes().allow(None);
    machines.map_or(Ok(()), Machines::tell_the_truth)
}

/// Waits for `work`, kills `operator` at `point` meanwhile, and starts it again. Returns what it was killed after; `None` when the
/// work was done without getting there. Afterwards nothing is counted, however it ends.
///
/// # Errors
/// Those of `work`; and when the operator ends by itself, or cannot be started again.
pub(super) async fn killed_once<T>(
    operator: &OperatorProcess,
    proxy: &FaultProxy,
    machines: Option<&Machines>,
    point: KillPoint,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Option<String>)> {
    point.count(proxy, machines)?;
    let done = kill_at(operator, proxy, machines, point, work).await;
    stop_counting(proxy, machines)?;
    done
}

async fn kill_at<T>(
    operator: &OperatorProcess,
    proxy: &FaultProxy,
    machines: Option<&Machines>,
    point: KillPoint,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, Option<String>)> {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        done = &mut work => return Ok((done?, None)),
        () = point.reached(proxy, machines) => {}
        exit = operator.wait() => bail!("the operator ended with {exit}\n{}", operator.log_tail()),
    }
    let between = || {
        let changes = machines.map_or_else(|| Ok(Vec::new()), Machines::unanswered)?;
        let life = Life::ending(proxy.writes(), changes);
        stop_counting(proxy, machines)?;
        Ok(life)
    };
    let life = operator.kill_and_restart(between).await?;
    let done = tokio::select! {
        done = &mut work => done?,
        exit = operator.wait() => bail!("the operator ended with {exit}\n{}", operator.log_tail()),
    };
    Ok((done, Some(life.ended_after().join(" and "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_called_after_what_is_counted() {
        let called = [KillPoint::Write(7), KillPoint::Machine(2)].map(|point| point.to_string());
        assert_eq!(called, ["write 7", "machine 2"]);
    }
}
