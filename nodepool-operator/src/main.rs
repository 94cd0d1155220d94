//! The binary; all code is in the library.

use std::process::ExitCode;

use shared_runtime::bootstrap;

fn main() -> ExitCode {
    bootstrap::main(nodepool_operator::main())
}
