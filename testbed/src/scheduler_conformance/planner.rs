//! Calls the planner, by running `autoscaler-operator simulate` on the objects.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::operators::OperatorKind;

/// Environment variable with a binary to use instead of this workspace's own: an earlier release, or one with a
/// deliberate change.
pub const PLANNER_VARIABLE: &str = "TANDEM_PLANNER";

/// Namespace and name of an object.
pub type Key = (String, String);

/// The planner's answer for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimulatedResult {
    /// There is room on an existing node.
    Fits,
    /// A new node of this pool (`namespace/name`) takes it.
    TriggersScaleUp(String),
    /// No node takes it and no pool helps, for these reasons.
    Unschedulable(String),
}

/// The planner's answer.
#[derive(Clone, Debug, Default)]
pub struct SimulatedAnswer {
    /// The answer for each pending pod.
    pub pods: BTreeMap<Key, SimulatedResult>,
    /// How many nodes each pool should have, by its name.
    pub replicas: BTreeMap<String, i64>,
    /// The warnings on standard error.
    pub warnings: String,
}

/// Runs the released binary.
#[derive(Clone, Debug)]
pub struct SimulatedPlanner {
    binary: PathBuf,
}

impl SimulatedPlanner {
    /// Builds the binary, unless [`PLANNER_VARIABLE`] names one.
    ///
    /// # Errors
    /// When Cargo cannot build it.
    pub async fn build() -> Result<Self> {
        let binary = match std::env::var_os(PLANNER_VARIABLE) {
            Some(named) => named.into(),
            None => OperatorKind::Autoscaler.binary().await?,
        };
        Ok(Self { binary })
    }

    /// Runs the planner on `objects`.
    ///
    /// # Errors
    /// When the program fails, or its output does not have the documented form.
    pub async fn ask(&self, objects: &[Arc<Value>]) -> Result<SimulatedAnswer> {
        let list = serde_json::to_vec(&list(objects))?;
        let mut child = Command::new(&self.binary)
            .args(["simulate", "-f", "-", "-o", "json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {}", self.binary.display()))?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        let feed = async {
            // A program that does not read its input closes it early; its exit code is what counts.
            stdin.write_all(&list).await.ok();
            drop(stdin);
        };
        let ((), output) = tokio::join!(feed, child.wait_with_output());
        let output = output?;
        let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            bail!("simulate failed: {warnings}");
        }
        read(&serde_json::from_slice(&output.stdout)?, warnings)
    }
}

/// The objects as a file that `simulate` reads: the record of a disagreement.
pub fn list(objects: &[Arc<Value>]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": objects.iter().map(|object| (**object).clone()).collect::<Vec<Value>>()})
}

fn read(report: &Value, warnings: String) -> Result<SimulatedAnswer> {
    let mut answer = SimulatedAnswer { warnings, ..SimulatedAnswer::default() };
    for pool in report["pools"].as_array().context("no pools in the answer")? {
        let desired = pool["desiredReplicas"].as_i64().context("no desiredReplicas in the answer")?;
        answer.replicas.insert(text(pool, "name"), desired);
    }
    for pod in report["pods"].as_array().context("no pods in the answer")? {
        let prediction = match text(pod, "outcome").as_str() {
            "Fits" => SimulatedResult::Fits,
            "TriggersScaleUp" => SimulatedResult::TriggersScaleUp(text(pod, "nodePool")),
            "Unschedulable" => SimulatedResult::Unschedulable(pod["reasons"].to_string()),
            other => bail!("an unknown outcome: {other}"),
        };
        answer.pods.insert((text(pod, "namespace"), text(pod, "name")), prediction);
    }
    Ok(answer)
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_is_documented_and_nothing_else_is() {
        let pod = |outcome: &str| json!({"namespace": "a", "name": "p", "outcome": outcome, "nodePool": "b/c", "node": "", "reasons": []});
        let report = |outcome: &str| {
            let pool = json!({"namespace": "b", "name": "c", "desiredReplicas": 3});
            read(&json!({"pools": [pool], "pods": [pod(outcome)], "nodes": []}), String::new())
        };
        for (outcome, prediction) in [
            ("Fits", SimulatedResult::Fits),
            ("TriggersScaleUp", SimulatedResult::TriggersScaleUp("b/c".into())),
            ("Unschedulable", SimulatedResult::Unschedulable("[]".into())),
        ] {
            let answer = report(outcome).unwrap();
            assert_eq!(answer.pods[&("a".into(), "p".into())], prediction);
            assert_eq!(answer.replicas["c"], 3);
        }
        report("Perhaps").unwrap_err();
        read(&json!({}), String::new()).unwrap_err();
    }
}
