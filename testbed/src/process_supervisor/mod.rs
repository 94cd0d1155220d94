//! The supervisor: a small process that owns every program a test starts, and ends them when the test is gone.
//!
//! A test can end by returning, by a panic, by Ctrl-C or by `kill -9`; in the last two cases none of its own code runs
//! any more. So the programs are children of a separate process, which holds the reading end of a pipe from the test.
//! However the test ends, the kernel closes the pipe, and the supervisor kills its programs and removes their directory.
//! If the supervisor itself is killed, the kernel kills the programs (Linux only: the parent-death signal).
//!
//! A program that has a memory limit is held to it together with all that it starts, and what it started ends with it.
//!
//! It must not depend on which programs it runs.

mod client;
mod exit;
mod memory_limit;
mod protocol;
mod server;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

pub(crate) use client::lock;
pub use client::{ProcessSupervisor, Running};
pub use exit::Exit;
pub use protocol::{ProgramSpec, Signal};

/// First argument that turns a binary into the supervisor; see [`serve_if_asked`].
pub(crate) const SERVE: &str = "__supervise";
/// First argument that turns a binary into the wrapper that ties a program to its supervisor and then becomes the
/// program.
pub(crate) const BECOME: &str = "__become";

/// For tests of a package whose `binary` calls [`serve_if_asked`]: it becomes the supervisor of their programs.
pub fn served_by(binary: &Path) {
    client::set_binary(binary);
}

/// Turns this process into a supervisor if its arguments request it. A binary that starts programs through this crate
/// and is not a test (a test uses the `process_supervisor` binary that Cargo builds next to it) calls this first in
/// `main`, and returns at once when the result is `true`.
///
/// # Errors
/// When the process was started as a supervisor and failed.
pub fn serve_if_asked() -> Result<bool> {
    client::set_self_serving();
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
                    _ => bail!("unknown supervisor argument {}", flag.display()),
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
            let limit = arguments.next().context("the wrapper needs a memory limit")?;
            memory_limit::enter(&limit)?;
            let program = arguments.next().context("the wrapper needs a program")?;
            Err(server::become_program(parent, &program, arguments))
        }
        _ => Ok(false),
    }
}
