//! The protocol between a supervisor and its user: one JSON document per line, in both directions.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSpec {
    /// Unique among the programs of one supervisor that run at the same time.
    pub name: String,
    /// The path of the binary.
    pub path: PathBuf,
    /// The arguments, without the program's own name.
    pub args: Vec<String>,
    /// Variables added to the supervisor's environment.
    pub env: Vec<(String, String)>,
    /// The file that standard output and standard error are appended to.
    pub log: PathBuf,
    /// The most memory, in bytes, that it and the programs that it starts may have together; `None` for no limit.
    pub memory_limit: Option<u64>,
}

/// The signals that can be sent to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// SIGTERM: stop gracefully.
    Terminate,
    /// SIGKILL: `kill -9`.
    Kill,
    /// SIGSTOP: freeze, like a long garbage collection or a suspended machine.
    Freeze,
    /// SIGCONT: continue after [`Signal::Freeze`].
    Continue,
}

/// A request with the number that its reply will carry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) op: Op,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Op {
    /// Answered with [`Reply::Started`].
    Start(ProgramSpec),
    /// Sent to the program itself, not to its children. Answered with [`Reply::Done`].
    Signal { pid: u32, signal: Signal },
    /// From now on the supervisor outlives the process that started it. Answered with [`Reply::Done`].
    Stay,
    /// Ends everything. The answer is the end of the connection.
    Stop,
}

/// A message of the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    Reply {
        id: u64,
        reply: Reply,
    },
    Exited {
        pid: u32,
        code: Option<i32>,
        signal: Option<i32>,
        /// The memory limit in bytes, when the kernel has killed a process of the program because of it.
        out_of_memory: Option<u64>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Started { pid: u32 },
    Done,
    Failed { why: String },
}
