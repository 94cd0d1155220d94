//! Runs a program for one request: no shell, bounded output, and no process left behind when the caller gives up.
//!
//! What it writes to standard error goes to the log and into no message: every user who may read a pool reads its conditions
//! and events, and a script under `set -x` writes its token there.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::str::FromStr;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tracing::{debug, warn};

use super::protocol::{self, Unanswered};
use crate::ProviderError;

/// Most of what a program may print: the list of 5,000 machines with long names is about half of it.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// What is kept of its standard error for the log.
const MAX_ERROR_OUTPUT: u64 = 16 * 1024;
/// Longest excerpt of standard error in the log, in characters.
const MAX_EXCERPT: usize = 2000;
/// Longest name: `exec.NAME` is the value of a label.
const MAX_NAME: usize = 50;

/// A program that the administrator configured, by the name that pools use for it: `NAME=PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    name: String,
    path: PathBuf,
}

/// Why a flag does not configure a program.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProgram {
    /// There is no `=`.
    #[error("it has to be NAME=PATH, such as rack=/opt/providers/rack")]
    NoName,
    /// The name is not one.
    #[error(
        "the name {0:?} is not made of a to z, 0 to 9 and - (at most {MAX_NAME}, - neither first nor last)"
    )]
    Name(String),
    /// The path is not absolute.
    #[error("the path {0:?} is not absolute")]
    Path(String),
}

impl FromStr for Program {
    type Err = InvalidProgram;

    fn from_str(text: &str) -> Result<Self, InvalidProgram> {
        let (name, path) = text.split_once('=').ok_or(InvalidProgram::NoName)?;
        let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty()
            || name.len() > MAX_NAME
            || !name.chars().all(is_known)
            || name.starts_with('-')
            || name.ends_with('-')
        {
            return Err(InvalidProgram::Name(name.to_owned()));
        }
        if !Path::new(path).is_absolute() {
            return Err(InvalidProgram::Path(path.to_owned()));
        }
        Ok(Self { name: name.to_owned(), path: PathBuf::from(path) })
    }
}

/// The processes of a request, which end when it is dropped.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // It may have ended meanwhile.
            _ = killpg(leader, Signal::SIGKILL);
        }
    }
}

impl Program {
    /// The name that pools use for it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs the program with `request` as its standard input, and returns what it printed.
    pub(super) async fn run(&self, request: &str) -> Result<Vec<u8>, Unanswered> {
        let mut child = Command::new(&self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .current_dir("/")
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(format!("it cannot be started: {error}")))?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let mut group = ProcessGroup(leader);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read all of its request may still answer it.
                _ = stdin.write_all(request.as_bytes()).await;
            }
            Ok(())
        };
        let ((), printed, complaint) = tokio::try_join!(write, output(stdout), excerpt(stderr))
            .map_err(|error| Unanswered::Unsaid(format!("its output cannot be read: {error}")))?;
        let status = child
            .wait()
            .await
            .map_err(|error| Unanswered::Unsaid(format!("its end is not known: {error}")))?;
        group.0 = None;
        self.result(status, printed, &complaint)
    }

    fn result(&self, status: ExitStatus, printed: Vec<u8>, complaint: &str) -> Result<Vec<u8>, Unanswered> {
        let program = self.name.as_str();
        if status.success() {
            if !complaint.is_empty() {
                debug!(program, standard_error = complaint, "a provider's program wrote to standard error");
            }
            return Ok(printed);
        }
        warn!(program, %status, standard_error = complaint, "a provider's program failed");
        if let Some(error) = protocol::reported(&printed) {
            return Err(Unanswered::Failed(error));
        }
        let seen = "its standard error is in the log of nodepool-operator";
        let seen = if complaint.is_empty() { "it printed no error" } else { seen };
        let message = format!("{status}: {seen}");
        // One that a signal has ended has no exit status: it may have done its work before.
        Err(if status.code().is_some() { failed(message) } else { Unanswered::Unsaid(message) })
    }

    /// The error with the name and the path of the program, because the administrator has to look there.
    pub(super) fn named(&self, error: ProviderError) -> ProviderError {
        let named = |message: String| format!("{} ({}): {message}", self.name, self.path.display());
        match error {
            ProviderError::Quota(message) => ProviderError::Quota(named(message)),
            ProviderError::Invalid(message) => ProviderError::Invalid(named(message)),
            ProviderError::Unauthorized(message) => ProviderError::Unauthorized(named(message)),
            ProviderError::Transient(message) => ProviderError::Transient(named(message)),
            ProviderError::Unreachable(message) => ProviderError::Unreachable(named(message)),
            ProviderError::Busy(message) => ProviderError::Busy(named(message)),
            ProviderError::Throttled(message, after) => ProviderError::Throttled(named(message), after),
            other @ (ProviderError::Absent(_) | ProviderError::Conflict) => other,
        }
    }
}

fn failed(message: String) -> Unanswered {
    Unanswered::Failed(ProviderError::Transient(message))
}

/// Everything from `pipe`, up to a limit.
async fn output(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut printed = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_OUTPUT + 1).read_to_end(&mut printed).await?;
    }
    if u64::try_from(printed.len()).is_ok_and(|length| length <= MAX_OUTPUT) {
        return Ok(printed);
    }
    Err(io::Error::other(format!("it is longer than {} KiB", MAX_OUTPUT / 1024)))
}

/// The beginning of `pipe` in one line. The rest is read and dropped, so that the program does not block.
async fn excerpt(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut printed = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(MAX_ERROR_OUTPUT).read_to_end(&mut printed).await?;
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    let text = String::from_utf8_lossy(&printed);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(line.chars().filter(|c| !c.is_control()).take(MAX_EXCERPT).collect())
}
