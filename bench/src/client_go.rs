//! The writers in Go: a small program built from `bench/client-go`, kept running, which gets one session at a time.

use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use fnv::FnvHasher;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use toolbox::messages::inform;
use toolbox::workspace::target_directory;

use crate::session::{Report, Session};

const BINARY: &str = "client-go-writers";
/// The program's sources.
const SOURCES: [&str; 3] = ["go.mod", "go.sum", "main.go"];
/// Lines of a failed build that are shown.
const SHOWN: usize = 20;

/// The running program. It ends with its standard input.
pub(crate) struct ClientGo {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl ClientGo {
    /// Builds it if necessary, and starts it.
    pub(crate) async fn start(kubeconfig: &Path, namespace: &str) -> Result<Self> {
        let program = tokio::task::spawn_blocking(built).await??;
        let mut child = Command::new(&program)
            .arg("-kubeconfig")
            .arg(kubeconfig)
            .args(["-namespace", namespace])
            .args(["-group", "bench.tandem.dev", "-version", "v1", "-resource", "counters"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let input = child.stdin.take().context("the Go writers have no standard input")?;
        let output = child.stdout.take().context("the Go writers have no standard output")?;
        Ok(Self { input, output: BufReader::new(output).lines(), _child: child })
    }

    /// One turn.
    pub(crate) async fn run(&mut self, session: &Session) -> Result<Report> {
        let mut line = serde_json::to_string(session)?;
        line.push('\n');
        self.input.write_all(line.as_bytes()).await.context("the Go writers have ended")?;
        self.input.flush().await.context("the Go writers have ended")?;
        let line = self.output.next_line().await?.context("the Go writers have ended")?;
        let report: Report = serde_json::from_str(&line).context("the Go writers said something else")?;
        match &report.error {
            Some(error) => bail!("the Go writers failed: {error}"),
            None => Ok(report),
        }
    }
}

/// The program's path; it is built when it is not there or its sources have changed.
fn built() -> Result<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("client-go");
    let cache = target_directory().join("bench-client-go").join(key(&module)?);
    let program = cache.join(BINARY);
    if program.is_file() {
        return Ok(program);
    }
    std::fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    inform(&format!("building the client-go writers: about a minute, once; kept in {}", cache.display()));
    // Built aside and moved, so that a build which is interrupted leaves nothing that looks complete.
    let aside = tempfile::tempdir_in(&cache).context("cannot create a directory to build in")?;
    let made = aside.path().join(BINARY);
    let build = std::process::Command::new("go")
        .args(["build", "-trimpath", "-o"])
        .arg(&made)
        .arg(".")
        .env("GOWORK", "off")
        .current_dir(&module)
        .output();
    let output = match build {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "no go toolchain in PATH, and the client-go writers must be built with it; install Go \
             (https://go.dev/dl), or measure without them: --without-client-go"
        ),
        Err(error) => return Err(error).context("cannot run go"),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().collect();
        let from = lines.len().saturating_sub(SHOWN);
        bail!(
            "building the client-go writers failed ({}) in {}:\n{}",
            output.status,
            module.display(),
            lines.get(from..).unwrap_or_default().join("\n")
        );
    }
    std::fs::rename(&made, &program).with_context(|| format!("cannot keep {BINARY}"))?;
    Ok(program)
}

/// A hash of the program's sources.
fn key(module: &Path) -> Result<String> {
    // Stable between Rust versions, which the standard hasher is not guaranteed to be.
    let mut hasher = FnvHasher::default();
    for name in SOURCES {
        let path = module.join(name);
        hasher.write(&std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    Ok(format!("{:016x}", hasher.finish()))
}
