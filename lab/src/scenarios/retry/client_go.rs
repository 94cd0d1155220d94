//! The constants of client-go, read from its source: that of the version which the control plane is built from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use conflict_retry::Backoff;
use serde::Deserialize;
use tokio::process::Command;

/// client-go's Go module.
const MODULE: &str = "k8s.io/client-go";

/// What `go mod download` says of a module.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    version: String,
    dir: PathBuf,
}

/// client-go's sources.
pub(super) struct Sources {
    /// Its version, as in `v0.36.3`.
    pub(super) version: String,
    /// `util/retry/util.go`.
    retry: String,
    /// `util/workqueue/default_rate_limiters.go`.
    limiters: String,
}

impl Sources {
    /// The sources in Go's module cache, downloaded if they are missing.
    ///
    /// # Errors
    /// When there is no Go, or it cannot get the module.
    pub(super) async fn find() -> Result<Self> {
        let output = Command::new("go")
            .args(["mod", "download", "-json", MODULE])
            .env("GOWORK", "off")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/control-plane"))
            .output()
            .await
            .context("cannot run go")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "go cannot get {MODULE}: {said}");
        let Downloaded { version, dir } =
            serde_json::from_slice(&output.stdout).context("go said no JSON")?;
        let read = |file: &str| {
            let path = dir.join(file);
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let retry = read("util/retry/util.go")?;
        let limiters = read("util/workqueue/default_rate_limiters.go")?;
        Ok(Self { version, retry, limiters })
    }

    /// The declaration of a backoff, as it is written.
    pub(super) fn declaration(&self, name: &str) -> Result<String> {
        declaration(&self.retry, name)
    }

    /// The backoff called `name`.
    pub(super) fn backoff(&self, name: &str) -> Result<Backoff> {
        backoff(&self.declaration(name)?)
    }

    /// The first and the longest pause of the default limiter of work queues.
    pub(super) fn queue_limits(&self) -> Result<(Duration, Duration)> {
        queue_limits(&self.limiters)
    }
}

fn declaration(source: &str, name: &str) -> Result<String> {
    let begin = format!("var {name} = wait.Backoff{{\n");
    let at = source.find(&begin).with_context(|| format!("there is no {name}"))?;
    let (declared, _) = source[at..].split_once("\n}").with_context(|| format!("{name} has no end"))?;
    Ok(format!("{}\n}}", declared.replace('\t', "    ")))
}

/// The value of a declaration. A field that is not there is zero, as in Go.
fn backoff(declaration: &str) -> Result<Backoff> {
    let (mut steps, mut factor, mut jitter) = (0_i32, 0.0_f64, 0.0_f64);
    let (mut first, mut cap) = (Duration::ZERO, Duration::ZERO);
    for line in declaration.lines().skip(1).filter(|line| *line != "}") {
        let field = line.trim().trim_end_matches(',').split_once(':');
        let (name, value) = field.with_context(|| format!("not a field: {line}"))?;
        let value = value.trim();
        match name {
            "Steps" => steps = value.parse()?,
            "Duration" => first = duration(value)?,
            "Factor" => factor = value.parse()?,
            "Jitter" => jitter = value.parse()?,
            "Cap" => cap = duration(value)?,
            other => bail!("a backoff has no field {other}"),
        }
    }
    Ok(Backoff::new(steps, first, factor, jitter, cap)?)
}

fn queue_limits(source: &str) -> Result<(Duration, Duration)> {
    let (_, function) = source
        .split_once("func DefaultTypedControllerRateLimiter[")
        .context("there is no DefaultTypedControllerRateLimiter")?;
    let (_, arguments) = function
        .split_once("NewTypedItemExponentialFailureRateLimiter[T](")
        .context("its limiter is another one")?;
    let arguments = arguments.split_once(')').and_then(|(arguments, _)| arguments.split_once(','));
    let (first, longest) = arguments.context("its limiter has other arguments")?;
    Ok((duration(first)?, duration(longest)?))
}

/// A duration such as `10 * time.Millisecond`.
fn duration(text: &str) -> Result<Duration> {
    let (count, unit) = text.split_once('*').with_context(|| format!("not a duration: {text}"))?;
    let count = count.trim().parse::<u64>()?;
    match unit.trim() {
        "time.Millisecond" => Ok(Duration::from_millis(count)),
        "time.Second" => Ok(Duration::from_secs(count)),
        other => bail!("not a unit: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "// A comment.\nvar DefaultRetry = wait.Backoff{\n\tSteps:    5,\n\tDuration: 10 * time.Millisecond,\n\tFactor:   1.0,\n\tJitter:   0.1,\n}\n\nvar Other = 1\n";

    #[test]
    fn a_backoff_is_read_from_its_declaration() {
        let declared = declaration(SOURCE, "DefaultRetry").unwrap();
        assert!(declared.ends_with("    Jitter:   0.1,\n}"), "{declared}");
        let wanted = Backoff::new(5, Duration::from_millis(10), 1.0, 0.1, Duration::ZERO).unwrap();
        assert_eq!(backoff(&declared).unwrap(), wanted);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(declaration(SOURCE, "DefaultBackoff").is_err());
        assert!(backoff("var A = wait.Backoff{\n    Steps: 5,\n    Turns: 4,\n}").is_err());
        assert!(backoff("var A = wait.Backoff{\n    Steps: 5,\n    Duration: pause,\n}").is_err());
        assert!(duration("3 * time.Hour").is_err());
    }

    #[test]
    fn the_limits_of_the_work_queue_are_those_of_the_controllers_limiter() {
        let other = "func DefaultTypedItemBasedRateLimiter[T comparable]() {\n\treturn NewTypedItemExponentialFailureRateLimiter[T](time.Millisecond, 1000*time.Second)\n}\n";
        let own = "func DefaultTypedControllerRateLimiter[T comparable]() {\n\treturn NewTypedMaxOfRateLimiter(\n\t\tNewTypedItemExponentialFailureRateLimiter[T](5*time.Millisecond, 1000*time.Second),\n\t)\n}\n";
        let limits = (Duration::from_millis(5), Duration::from_secs(1000));
        assert_eq!(queue_limits(&format!("{own}{other}")).unwrap(), limits);
        assert!(queue_limits(other).is_err());
    }
}
