//! What `main` does with an operator: a runtime for it, and the exit code that follows from how it ended.

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use crate::error::chain;

/// For `main`: runs `operator` on a multi-threaded runtime. An error is printed with its causes, and the exit code is
/// 1.
pub fn main<E>(operator: impl Future<Output = Result<(), E>>) -> ExitCode
where
    E: std::error::Error + 'static,
{
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(failed) => return report(&failed),
    };
    let ended = runtime.block_on(operator);
    // No remaining task may keep the process alive: a reconcile past its deadline, a watch.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => report(&failed),
    }
}

fn report(failed: &(dyn std::error::Error + 'static)) -> ExitCode {
    eprintln!("error: {}", chain(failed));
    ExitCode::FAILURE
}
