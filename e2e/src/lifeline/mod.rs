//! The lifeline: a small process that owns every program a test starts, and ends them when the test is gone.
//!
//! A test can end by returning, by a panic, by Ctrl-C or by `kill -9`; in the last two no code of its own runs any
//! more. So the programs are children of a process of their own, which holds the reading end of a pipe from the test.
//! However the test ends, the kernel closes the pipe, and the lifeline kills its programs and removes their directory.
//! Should the lifeline itself be killed, the kernel kills the programs (Linux only: the parent-death signal).
//!
//! It must not know what the programs are.

mod client;
mod protocol;
mod server;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

pub(crate) use client::lock;
pub use client::{Exit, Lifeline, Running};
pub use protocol::{ProgramSpec, Signal};

/// First argument that turns a binary into the lifeline; see [`serve_if_asked`].
pub(crate) const SERVE: &str = "__lifeline";
/// First argument that turns a binary into the wrapper which ties a program to its lifeline and becomes the program.
pub(crate) const BECOME: &str = "__become";

/// For tests of a package whose `binary` calls [`serve_if_asked`]: it holds what they start.
pub fn served_by(binary: &Path) {
    client::this_one_can_serve(binary);
}

/// Turns this process into a lifeline if its arguments say so. A binary that starts programs through this crate and
/// is no test (a test uses the `lifeline` binary that Cargo builds beside it) calls this first in `main`, and returns
/// at once when the answer is `true`.
///
/// # Errors
/// When the process was asked to be a lifeline and could not do its work.
pub fn serve_if_asked() -> Result<bool> {
    client::this_binary_can_serve();
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == SERVE => {
            let mut listen = None;
            let mut remove = None;
            while let Some(flag) = arguments.next() {
                let value = arguments.next().map(PathBuf::from);
                match flag.to_str() {
                    Some("--listen") => listen = value,
                    Some("--remove") => remove = value,
                    _ => bail!("unknown lifeline argument {}", flag.display()),
                }
            }
            server::serve(listen, remove)?;
            Ok(true)
        }
        Some(first) if first == BECOME => {
            let parent = arguments
                .next()
                .and_then(|id| id.to_str()?.parse().ok())
                .context("the wrapper needs its parent's process id")?;
            let program = arguments.next().context("the wrapper needs a program")?;
            Err(server::become_program(parent, &program, arguments))
        }
        _ => Ok(false),
    }
}
