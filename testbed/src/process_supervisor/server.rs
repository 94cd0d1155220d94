//! The supervisor's own side: starts programs, reports their ends, and ends them all when its user is gone.
//!
//! It runs on one thread, because the kernel's parent-death signal is tied to the *thread* that started a child.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal;
use nix::sys::signal::{kill, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal as signals};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::BECOME;
use super::memory_limit::{MemoryLimit, UNLIMITED};
use super::protocol::{Message, Op, ProgramSpec, Reply, Request, Signal};

/// An event in a supervisor.
enum Event {
    Connected(UnboundedSender<Message>),
    Asked(Request, UnboundedSender<Message>),
    /// The process at the other end of standard input is gone.
    Abandoned,
    Ended {
        pid: u32,
        status: ExitStatus,
        out_of_memory: Option<u64>,
    },
}

/// Serves until the user is gone or requests a stop, then kills every program and removes `remove`.
pub(super) fn serve(listen: Option<PathBuf>, remove: Option<PathBuf>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(run(listen.as_deref()));
    // Reading standard input cannot be interrupted; it ends with the process.
    runtime.shutdown_background();
    if let Some(socket) = listen {
        // Absent when it could not be bound.
        std::fs::remove_file(socket).ok();
    }
    if let Some(directory) = remove
        && directory.exists()
    {
        std::fs::remove_dir_all(&directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    served
}

async fn run(listen: Option<&Path>) -> Result<()> {
    let (sender, mut events) = unbounded_channel();
    let mut terminate = signals(SignalKind::terminate())?;
    let mut interrupt = signals(SignalKind::interrupt())?;
    // Registered but never read: closing the terminal must not end a control plane that was left running on purpose.
    let _hangup = signals(SignalKind::hangup())?;
    match listen {
        Some(socket) => {
            let listener = UnixListener::bind(socket)
                .with_context(|| format!("cannot listen on {}", socket.display()))?;
            tokio::spawn(accept(listener, sender.clone()));
            // No request arrives there, but it closes when the process that started this one ends.
            tokio::spawn(read_requests(tokio::io::stdin(), tokio::io::sink(), sender.clone(), true));
        }
        None => {
            tokio::spawn(read_requests(tokio::io::stdin(), tokio::io::stdout(), sender.clone(), true));
        }
    }
    let mut programs = Programs { live: BTreeMap::new(), sender };
    let mut users: Vec<UnboundedSender<Message>> = Vec::new();
    let mut stays = false;
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
        };
        match event {
            Some(Event::Abandoned) if stays => {}
            None | Some(Event::Abandoned | Event::Asked(Request { id: _, op: Op::Stop }, _)) => break,
            Some(Event::Connected(user)) => users.push(user),
            Some(Event::Asked(request, user)) => {
                stays |= matches!(request.op, Op::Stay);
                let reply = programs
                    .execute(request.op)
                    .unwrap_or_else(|error| Reply::Failed { why: format!("{error:#}") });
                // A user that is gone needs no reply.
                user.send(Message::Reply { id: request.id, reply }).ok();
            }
            Some(Event::Ended { pid, status, out_of_memory }) => {
                programs.live.remove(&pid);
                let (code, signal) = (status.code(), status.signal());
                users.retain(|user| user.send(Message::Exited { pid, code, signal, out_of_memory }).is_ok());
            }
        }
    }
    for pid in programs.live.keys() {
        killpg(process(*pid)?, signal::SIGKILL).ok();
    }
    while !programs.live.is_empty() {
        if let Some(Event::Ended { pid, status: _, out_of_memory: _ }) = events.recv().await {
            programs.live.remove(&pid);
        }
    }
    Ok(())
}

async fn accept(listener: UnixListener, sender: UnboundedSender<Event>) {
    while let Ok((connection, _)) = listener.accept().await {
        let (input, output) = connection.into_split();
        tokio::spawn(read_requests(input, output, sender.clone(), false));
    }
}

/// One connection. With `vital`, the supervisor ends when the connection does.
async fn read_requests(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    sender: UnboundedSender<Event>,
    vital: bool,
) {
    let (to_user, messages) = unbounded_channel();
    tokio::spawn(write_messages(output, messages));
    let mut alive = sender.send(Event::Connected(to_user.clone())).is_ok();
    let mut lines = BufReader::new(input).lines();
    while alive && let Ok(Some(line)) = lines.next_line().await {
        alive = match serde_json::from_str(&line) {
            Ok(request) => sender.send(Event::Asked(request, to_user.clone())).is_ok(),
            Err(_) => false,
        };
    }
    if vital {
        sender.send(Event::Abandoned).ok();
    }
}

async fn write_messages(mut output: impl AsyncWrite + Unpin, mut messages: UnboundedReceiver<Message>) {
    while let Some(message) = messages.recv().await {
        let Ok(mut line) = serde_json::to_vec(&message) else {
            return;
        };
        line.push(b'\n');
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

struct Programs {
    live: BTreeMap<u32, String>,
    sender: UnboundedSender<Event>,
}

impl Programs {
    fn execute(&mut self, op: Op) -> Result<Reply> {
        match op {
            Op::Start(spec) => self.start(&spec).map(|pid| Reply::Started { pid }),
            Op::Signal { pid, signal } => {
                // Only a child of this process that is not known to have ended is signalled, so that an id that now
                // belongs to another process is left alone.
                if !self.live.contains_key(&pid) {
                    bail!("process {pid} has ended");
                }
                kill(process(pid)?, number(signal))
                    .with_context(|| format!("cannot signal process {pid}"))?;
                Ok(Reply::Done)
            }
            Op::Stay | Op::Stop => Ok(Reply::Done),
        }
    }

    fn start(&mut self, spec: &ProgramSpec) -> Result<u32> {
        if let Some(pid) = self.live.iter().find(|(_, name)| **name == spec.name).map(|(pid, _)| pid) {
            bail!("{} runs already, as process {pid}", spec.name);
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&spec.log)
            .with_context(|| format!("cannot open the log {}", spec.log.display()))?;
        let limit = spec.memory_limit.map(MemoryLimit::prepare);
        let mut child = Command::new(myself()?)
            .arg(BECOME)
            .arg(std::process::id().to_string())
            .arg(limit.as_ref().map_or_else(|| UNLIMITED.into(), MemoryLimit::argument))
            .arg(&spec.path)
            .args(&spec.args)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            // Its own process group: Ctrl-C in the terminal is for the test, and grandchildren can be killed with it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", spec.path.display()))?;
        let pid = child.id().with_context(|| format!("{} has no process id", spec.name))?;
        self.live.insert(pid, spec.name.clone());
        let sender = self.sender.clone();
        tokio::spawn(async move {
            // Waiting for a child fails only if another task waited for it, and none does.
            let status = child.wait().await.unwrap_or_default();
            let out_of_memory = match limit {
                Some(limit) => limit.close().await,
                None => None,
            };
            sender.send(Event::Ended { pid, status, out_of_memory }).ok();
        });
        Ok(pid)
    }
}

/// Ties this process to `parent`, then becomes `program` under the same process id. Returns only on failure.
pub(super) fn become_program(
    parent: i32,
    program: &OsStr,
    arguments: impl Iterator<Item = OsString>,
) -> anyhow::Error {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(signal::SIGKILL) {
        return anyhow::Error::new(error).context("cannot ask for the parent-death signal");
    }
    // The parent may have died before the line above took effect.
    if nix::unistd::getppid().as_raw() != parent {
        return anyhow::anyhow!("the supervisor is gone");
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    anyhow::Error::new(error).context(format!("cannot start {}", program.display()))
}

/// This running binary, even if a build has replaced the file since.
fn myself() -> Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe().context("cannot tell which binary this is")
}

fn process(pid: u32) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(pid)?))
}

fn number(signal: Signal) -> signal::Signal {
    match signal {
        Signal::Terminate => signal::SIGTERM,
        Signal::Kill => signal::SIGKILL,
        Signal::Freeze => signal::SIGSTOP,
        Signal::Continue => signal::SIGCONT,
    }
}
