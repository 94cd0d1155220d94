//! What a lifeline and its user say to each other: one JSON document a line, in both directions.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSpec {
    /// Unique among the programs of one lifeline that run at the same time.
    pub name: String,
    /// The binary.
    pub path: PathBuf,
    /// Its arguments, without its own name.
    pub args: Vec<String>,
    /// Variables added to the lifeline's environment.
    pub env: Vec<(String, String)>,
    /// The file that standard output and standard error are appended to.
    pub log: PathBuf,
}

/// The signals a program can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// SIGTERM: please stop.
    Terminate,
    /// SIGKILL: `kill -9`.
    Kill,
    /// SIGSTOP: freeze, as a long garbage collection or a suspended machine would.
    Freeze,
    /// SIGCONT: go on after [`Signal::Freeze`].
    Continue,
}

/// A request with the number its reply will carry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) op: Op,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Op {
    /// Replied with [`Reply::Started`].
    Start(ProgramSpec),
    /// Goes to the program itself, not to its children. Replied with [`Reply::Done`].
    Signal { pid: u32, signal: Signal },
    /// From now on the end of the process that started the lifeline ends nothing. Replied with [`Reply::Done`].
    Stay,
    /// Ends everything. The reply is the end of the connection.
    Stop,
}

/// What the lifeline says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    Reply { id: u64, reply: Reply },
    Exited { pid: u32, code: Option<i32>, signal: Option<i32> },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Started { pid: u32 },
    Done,
    Failed { why: String },
}
