//! Inputs that were made from public bug reports about node autoscalers, each with what is right: `cargo xtask reports`.
//!
//! A file is what `simulate -f` takes. Lines of it say what is expected, as JSON behind `# expect:`, with `null` for "whatever":
//! `["desired", POOL, N]`, `["out", POD, OUTCOME, POOL, NODE]`, `["victims", POOL, [NODE, …]]`, `["removable", NODE, BOOL]`.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::edits::EditArgs;
use crate::input::{InputError, Objects};
use crate::simulate::{Format, SimulateError, simulated};

/// The time of every report.
const NOW: &str = "2026-11-20T12:00:00Z";
/// What precedes an expectation.
const EXPECT: &str = "# expect:";

/// A file that cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// It cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// Its objects cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It cannot be planned.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// What is printed is no JSON.
    #[error("the plan is no JSON")]
    Plan(#[from] serde_json::Error),
    /// An expectation is not written as it must be, or there is none.
    #[error("{}: {why}", file.display())]
    Expectation {
        /// The file.
        file: PathBuf,
        /// What is the matter.
        why: String,
    },
    /// There is no file in the folder.
    #[error("{} has no file that ends in .yaml", .0.display())]
    Empty(PathBuf),
}

/// What is wrong with the answer to one file; nothing, where it is right.
#[derive(Debug)]
pub struct Verdict {
    /// The name of the file.
    pub file: String,
    /// Each expectation that is not met, with what came instead.
    pub wrong: Vec<String>,
}

/// The verdicts on all files of a folder, by name.
///
/// # Errors
/// When the folder has none, or one cannot be judged.
pub fn of_folder(folder: &Path) -> Result<Vec<Verdict>, ReportError> {
    let unreadable = |error| ReportError::Read(folder.to_owned(), error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        files.extend(path.extension().is_some_and(|kind| kind == "yaml").then_some(path));
    }
    if files.is_empty() {
        return Err(ReportError::Empty(folder.to_owned()));
    }
    files.sort();
    files.iter().map(|file| of_file(file)).collect()
}

fn of_file(file: &Path) -> Result<Verdict, ReportError> {
    let text = std::fs::read_to_string(file).map_err(|error| ReportError::Read(file.to_owned(), error))?;
    let malformed =
        |line: &str| ReportError::Expectation { file: file.to_owned(), why: format!("cannot read {line}") };
    let now: Timestamp = NOW.parse().map_err(|_| malformed(NOW))?;
    let mut objects = Objects::default();
    objects.file(file)?;
    let input = objects.finish(now);
    let (printed, _) = simulated(input, &EditArgs::default(), Format::Json)?;
    let plan: Value = serde_json::from_str(&printed)?;
    let mut wrong = Vec::new();
    let mut expectations = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix(EXPECT)) {
        let expected: Vec<Value> = serde_json::from_str(line).map_err(|_| malformed(line))?;
        let found = found(&plan, &expected).ok_or_else(|| malformed(line))?;
        expectations += 1;
        if !is_met(&expected, &found) {
            wrong.push(format!("{}, and not {}", Value::from(found), line.trim()));
        }
    }
    if expectations == 0 {
        return Err(ReportError::Expectation {
            file: file.to_owned(),
            why: format!("it has no line {EXPECT}"),
        });
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Verdict { file: name, wrong })
}

/// What the plan says where `expected` looks; `null` for an object that it does not mention; `None` for no expectation.
fn found(plan: &Value, expected: &[Value]) -> Option<Vec<Value>> {
    let [kind, name, rest @ ..] = expected else { return None };
    let (list, fields): (_, &[&str]) = match (kind.as_str()?, rest.len()) {
        ("desired", 1) => ("pools", &["desiredReplicas"]),
        ("victims", 1) => ("pools", &["scaleDownNodes"]),
        ("removable", 1) => ("nodes", &["removable"]),
        ("out", 3) => ("pods", &["outcome", "nodePool", "node"]),
        _ => return None,
    };
    let name = name.as_str()?;
    let (namespace, name) =
        name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    let is_meant = |object: &&Value| {
        object["name"] == name && namespace.is_none_or(|namespace| object["namespace"] == namespace)
    };
    let object = plan[list].as_array()?.iter().find(is_meant);
    let of_object = |field: &&str| {
        let value = object.map_or(Value::Null, |object| object[*field].clone());
        match value.as_str() {
            // A pool is meant by its name alone.
            Some(pool) if *field == "nodePool" => Value::from(pool.rsplit('/').next().unwrap_or(pool)),
            _ => value,
        }
    };
    let values = fields.iter().map(of_object);
    Some([kind.clone(), Value::from(name)].into_iter().chain(values).collect())
}

fn is_met(expected: &[Value], found: &[Value]) -> bool {
    expected.iter().zip(found).skip(2).all(|(expected, found)| match (expected, found) {
        (Value::Null, found) => !found.is_null(),
        (Value::Array(expected), Value::Array(found)) => {
            let sorted = |list: &[Value]| {
                let mut names: Vec<String> = list.iter().map(Value::to_string).collect();
                names.sort();
                names
            };
            sorted(expected) == sorted(found)
        }
        (expected, found) => expected == found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_of_the_repository_gets_the_right_answer() {
        let verdicts = of_folder(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/reports"))).unwrap();
        let wrong: Vec<_> = verdicts.iter().filter(|verdict| !verdict.wrong.is_empty()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    const REPORT: &str = r#"# expect: ["desired", "small", 2]
# expect: ["out", "p", "TriggersScaleUp", "small", null]
# expect: ["victims", "small", []]
apiVersion: tandem.dev/v1alpha1
kind: NodePool
metadata: {name: small, namespace: demo}
spec:
  replicas: 1
  maxReplicas: 3
  provider: {simulated: {}}
  template: {spec: {capacity: {cpu: 4, memory: 8Gi}}}
---
apiVersion: tandem.dev/v1alpha1
kind: NodePoolAutoscaler
metadata: {name: all, namespace: demo}
spec: {nodePoolSelector: {}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: demo, creationTimestamp: '2026-11-20T11:59:00Z'}
spec:
  containers: [{name: c, resources: {requests: {cpu: 3}}}]
status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
"#;

    fn judged(text: &str) -> Result<Vec<String>, ReportError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), text).unwrap();
        Ok(of_folder(folder.path())?.remove(0).wrong)
    }

    #[test]
    fn an_answer_that_is_not_expected_is_said_with_what_came() {
        // The missing node is on its way and takes the pod.
        let wrong = judged(REPORT).unwrap();
        assert_eq!(
            wrong,
            [
                r#"["desired","small",1], and not ["desired", "small", 2]"#,
                r#"["out","p","Fits","small",""], and not ["out", "p", "TriggersScaleUp", "small", null]"#,
            ]
        );
        let right = REPORT.replace("\"small\", 2]", "\"demo/small\", 1]").replace("TriggersScaleUp", "Fits");
        assert_eq!(judged(&right).unwrap(), <[&str; 0]>::default());
        // Whatever it is, it must be there.
        let nothing = REPORT.replace(r#"["out", "p""#, r#"["out", "q""#);
        assert!(judged(&nothing).unwrap().iter().any(|wrong| wrong.starts_with(r#"["out","q",null"#)));
    }

    #[test]
    fn a_folder_that_proves_nothing_is_refused() {
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(of_folder(empty.path()), Err(ReportError::Empty(_))));
        for (from, to) in [("\"desired\"", "\"wanted\""), ("# expect:", "# expected:"), ("2]\n", "2\n")] {
            let refused = judged(&REPORT.replace(from, to));
            assert!(matches!(refused, Err(ReportError::Expectation { .. })), "{to}: {refused:?}");
        }
    }
}
