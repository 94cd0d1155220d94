//! The binary; all code is in the library.

use std::process::ExitCode;

use shared_runtime::bootstrap;

fn main() -> ExitCode {
    bootstrap::main(autoscaler_operator::main())
}
