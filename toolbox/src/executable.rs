//! Programs that are written to be run at once.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Writes the program `contents`, in place of an earlier one. When this returns, it can be run.
///
/// A process of its own writes it. If this one had it open for writing, another thread that starts a process in that moment would hand
/// the open file on, and Linux runs no file that is open for writing (`ETXTBSY`, "Text file busy").
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let (text, new) = (path.with_extension("text"), path.with_extension("new"));
    std::fs::write(&text, contents).with_context(cannot)?;
    let installed = Command::new("install").args(["-m", "0755"]).arg(&text).arg(&new).status();
    std::fs::remove_file(&text).with_context(cannot)?;
    let status = installed.context("cannot run install")?;
    ensure!(status.success(), "cannot write {}: install ended with {status}", path.display());
    std::fs::rename(&new, path).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_runs_as_soon_as_it_is_written_whatever_other_threads_start() {
        let one = || {
            let directory = tempfile::tempdir().unwrap();
            let program = directory.path().join("program");
            for number in 0..100 {
                write(&program, format!("#!/bin/sh\nexit {}\n", number % 7)).unwrap();
                assert_eq!(Command::new(&program).status().unwrap().code(), Some(number % 7));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(one);
            }
        });
    }
}
