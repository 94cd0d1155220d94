//! The test's side of a supervisor.
//!
//! It reads on its own thread and waits on a `tokio::sync::watch`, so that one supervisor can serve tests that each have
//! their own Tokio runtime.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::sync::watch;

use super::SERVE;
use super::exit::Exit;
use super::protocol::{Message, Op, ProgramSpec, Reply, Request, Signal};

/// How long a supervisor may take to kill its programs and remove their directory. Killing is immediate; the rest of the
/// time is for a busy machine.
const CLOSING: Duration = Duration::from_secs(20);
/// How long a supervisor may take until it listens.
const OPENING: Duration = Duration::from_secs(60);
/// Interval between two polls.
const POLL: Duration = Duration::from_millis(5);

/// Set by binaries that can serve as their own supervisor.
static SELF_SERVING: OnceLock<()> = OnceLock::new();
/// The binary that serves as supervisor; set by tests of a package with such a binary.
static SERVED_BY: OnceLock<PathBuf> = OnceLock::new();

pub(super) fn set_self_serving() {
    SELF_SERVING.get_or_init(|| ());
}

pub(super) fn set_binary(binary: &Path) {
    SERVED_BY.get_or_init(|| binary.to_owned());
}

#[derive(Default)]
struct State {
    replies: BTreeMap<u64, Reply>,
    exits: BTreeMap<u32, Exit>,
    closed: bool,
    last_id: u64,
}

struct Shared {
    output: Mutex<Option<Box<dyn Write + Send>>>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

/// A connection to a supervisor. Dropping the connection that started it ends all its programs.
pub struct ProcessSupervisor {
    shared: Arc<Shared>,
    process: Mutex<Option<Child>>,
    /// The standard input of a detached supervisor that this process has started. When it closes, this process is gone.
    starter: Mutex<Option<ChildStdin>>,
}

/// A program that was started through a supervisor.
#[derive(Clone)]
pub struct Running {
    /// The program's own process id.
    pub pid: u32,
    /// The program's specification.
    pub spec: ProgramSpec,
    shared: Arc<Shared>,
}

impl ProcessSupervisor {
    /// Starts a supervisor that ends with this process. `remove` is the directory that it removes last.
    ///
    /// # Errors
    /// When the supervisor's binary is missing or cannot be started.
    pub fn spawn(remove: Option<&Path>) -> Result<Self> {
        let mut command = command()?;
        if let Some(directory) = remove {
            command.arg("--remove").arg(directory);
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the supervisor")?;
        let output = process.stdin.take().context("the supervisor has no standard input")?;
        let input = process.stdout.take().context("the supervisor has no standard output")?;
        Ok(Self {
            shared: Shared::new(input, output),
            process: Mutex::new(Some(process)),
            starter: Mutex::default(),
        })
    }

    /// Starts a supervisor that is reached through `socket`, and that outlives this process once it was asked to
    /// [stay](Self::stay): before that, no later process could find what an interrupted process has left behind.
    ///
    /// # Errors
    /// When it cannot be started or does not answer within ten seconds.
    pub fn spawn_detached(socket: &Path, remove: &Path, log: &Path) -> Result<Self> {
        let log = std::fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut process = command()?
            .arg("--listen")
            .arg(socket)
            .arg("--remove")
            .arg(remove)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the supervisor")?;
        let starter = process.stdin.take();
        let mut connected = Self::connect(socket);
        let mut looks = 0;
        while connected.is_err() && looks < looks_in(OPENING) {
            if let Some(status) = process.try_wait()? {
                bail!("the supervisor ended at its start with {status}");
            }
            looks += 1;
            std::thread::sleep(POLL);
            connected = Self::connect(socket);
        }
        let supervisor = connected?;
        *lock(&supervisor.starter) = starter;
        Ok(supervisor)
    }

    /// Tells a detached supervisor to outlive the process that started it.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn stay(&self) -> Result<()> {
        match self.shared.call(Op::Stay).await? {
            Reply::Done => {
                lock(&self.starter).take();
                Ok(())
            }
            Reply::Failed { why } => bail!(why),
            Reply::Started { .. } => bail!("the supervisor gave an answer that does not fit the question"),
        }
    }

    /// Connects to a supervisor that an earlier process left running. Dropping the connection ends nothing.
    ///
    /// # Errors
    /// When no supervisor listens there.
    pub fn connect(socket: &Path) -> Result<Self> {
        let output = UnixStream::connect(socket)
            .with_context(|| format!("no supervisor answers on {}", socket.display()))?;
        let input = output.try_clone()?;
        Ok(Self { shared: Shared::new(input, output), process: Mutex::new(None), starter: Mutex::default() })
    }

    /// Starts a program.
    ///
    /// # Errors
    /// When it cannot be started. A program that starts and then fails is reported by [`Running::exit`].
    pub async fn start(&self, spec: ProgramSpec) -> Result<Running> {
        match self.shared.call(Op::Start(spec.clone())).await? {
            Reply::Started { pid } => Ok(Running { pid, spec, shared: self.shared.clone() }),
            Reply::Failed { why } => bail!(why),
            Reply::Done => bail!("the supervisor gave an answer that does not fit the question"),
        }
    }

    /// Ends every program and the supervisor, and waits until they are gone.
    ///
    /// # Errors
    /// When they are not gone in time.
    pub fn close(&self) -> Result<()> {
        let Some(mut process) = lock(&self.process).take() else {
            self.shared.ask(Op::Stop)?;
            return poll(|| Ok(lock(&self.shared.state).closed));
        };
        // The supervisor reads the end of its input.
        lock(&self.shared.output).take();
        let closed = poll(|| Ok(process.try_wait()?.is_some()));
        if closed.is_err() {
            process.kill()?;
            process.wait()?;
        }
        closed
    }
}

/// Polls until the supervisor is gone. It blocks, because a drop needs it, too.
fn poll(mut gone: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..looks_in(CLOSING) {
        if gone()? {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    bail!("the supervisor did not end its programs within {CLOSING:?}")
}

fn looks_in(patience: Duration) -> u128 {
    patience.as_millis() / POLL.as_millis()
}

impl Drop for ProcessSupervisor {
    fn drop(&mut self) {
        let owned = lock(&self.process).is_some();
        if owned && let Err(error) = self.close() {
            tracing::error!(%error, "programs may be left behind");
        }
    }
}

impl Running {
    /// How the program ended; `None` while it runs.
    pub fn exit(&self) -> Option<Exit> {
        let state = lock(&self.shared.state);
        state.exits.get(&self.pid).copied().or(state.closed.then_some(Exit::WithSupervisor))
    }

    /// Waits until the program ends.
    pub async fn wait(&self) -> Exit {
        let mut changes = self.shared.changed.subscribe();
        loop {
            if let Some(exit) = self.exit() {
                return exit;
            }
            // The sender lives as long as `self`.
            changes.changed().await.ok();
        }
    }

    /// Sends a signal to the program itself. It is no error if the program has already ended.
    ///
    /// # Errors
    /// When the supervisor is gone or the operating system rejects the signal.
    pub async fn signal(&self, signal: Signal) -> Result<()> {
        if self.exit().is_some() {
            return Ok(());
        }
        match self.shared.call(Op::Signal { pid: self.pid, signal }).await? {
            Reply::Failed { why } if self.exit().is_none() => bail!(why),
            Reply::Failed { .. } | Reply::Done | Reply::Started { .. } => Ok(()),
        }
    }

    /// Asks the program to stop, waits up to `patience`, then kills it.
    ///
    /// # Errors
    /// When the supervisor is gone or the operating system rejects a signal.
    pub async fn stop(&self, patience: Duration) -> Result<Exit> {
        self.signal(Signal::Terminate).await?;
        if let Ok(exit) = tokio::time::timeout(patience, self.wait()).await {
            return Ok(exit);
        }
        self.kill().await
    }

    /// Kills the program (`kill -9`) and waits until it has ended.
    ///
    /// # Errors
    /// When the supervisor is gone or the operating system rejects the signal.
    pub async fn kill(&self) -> Result<Exit> {
        self.signal(Signal::Kill).await?;
        Ok(self.wait().await)
    }
}

impl Shared {
    fn new(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Arc<Self> {
        let shared = Arc::new(Self {
            output: Mutex::new(Some(Box::new(output))),
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        });
        let listener = shared.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(input).lines() {
                let Some(message) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else {
                    break;
                };
                listener.receive(message);
            }
            lock(&listener.state).closed = true;
            listener.changed.send_replace(());
        });
        shared
    }

    fn receive(&self, message: Message) {
        let mut state = lock(&self.state);
        match message {
            Message::Reply { id, reply } => {
                state.replies.insert(id, reply);
            }
            Message::Exited { pid, code, signal, out_of_memory } => {
                state.exits.insert(pid, Exit::of(code, signal, out_of_memory));
            }
        }
        drop(state);
        self.changed.send_replace(());
    }

    fn ask(&self, op: Op) -> Result<u64> {
        let id = {
            let mut state = lock(&self.state);
            if let Op::Start(_) = &op
                && state.closed
            {
                bail!("the supervisor is gone");
            }
            state.last_id += 1;
            state.last_id
        };
        let mut line = serde_json::to_vec(&Request { id, op })?;
        line.push(b'\n');
        let mut output = lock(&self.output);
        let output = output.as_mut().context("the supervisor is closed")?;
        output.write_all(&line).and_then(|()| output.flush()).context("the supervisor is gone")?;
        Ok(id)
    }

    async fn call(&self, op: Op) -> Result<Reply> {
        let mut changes = self.changed.subscribe();
        let id = self.ask(op)?;
        loop {
            {
                let mut state = lock(&self.state);
                if let Some(reply) = state.replies.remove(&id) {
                    return Ok(reply);
                }
                if state.closed {
                    bail!("the supervisor is gone");
                }
            }
            changes.changed().await.ok();
        }
    }
}

/// The command that starts a supervisor, in its own process group so that Ctrl-C in a terminal does not reach it: it ends
/// when it notices that its user is gone.
fn command() -> Result<Command> {
    let mut command = Command::new(binary()?);
    command.arg(SERVE).process_group(0);
    // A production cluster must not become a test cluster: the cluster that a program uses is always an argument.
    command.env_remove("KUBECONFIG");
    Ok(command)
}

fn binary() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell which binary this is")?;
    if SELF_SERVING.get().is_some() {
        return Ok(this);
    }
    if let Some(other) = SERVED_BY.get() {
        return Ok(other.clone());
    }
    // A test is target/<profile>/deps/<name>-<hash>; the package's binaries are in target/<profile>.
    let found = this
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join("process_supervisor"))
        .find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "no `process_supervisor` binary beside {}: cargo builds it with the tests of package e2e; other binaries call \
             testbed::process_supervisor::serve_if_asked first in main",
            this.display()
        )
    })
}

/// Locks a mutex whose data is valid at every moment, so that a panic elsewhere does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
