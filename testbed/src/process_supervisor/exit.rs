//! How a program ended.

use std::fmt;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this exit code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// The kernel killed it, or a program that it had started, because they had more memory than this many bytes.
    OutOfMemory(u64),
    /// It ended with its supervisor.
    WithSupervisor,
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
            Self::OutOfMemory(limit) => {
                write!(
                    formatter,
                    "a kill by the kernel: it needed more memory than its limit of {} MiB",
                    limit >> 20
                )
            }
            Self::WithSupervisor => formatter.write_str("the end of its supervisor"),
        }
    }
}

impl Exit {
    /// From what the supervisor reports.
    pub(super) fn of(code: Option<i32>, signal: Option<i32>, out_of_memory: Option<u64>) -> Self {
        match (out_of_memory, signal) {
            // Whatever it made of the end of a program that it had started: its pod would not have lived on.
            (Some(limit), _) => Self::OutOfMemory(limit),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(code.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_because_of_memory_is_said_with_the_limit_whatever_the_program_made_of_it() {
        let limit = Some(256 << 20);
        for (exit, said) in [
            (Exit::of(Some(7), None, None), "exit code 7"),
            (Exit::of(None, Some(9), None), "signal 9"),
            (Exit::of(None, Some(9), limit), "its limit of 256 MiB"),
            (Exit::of(Some(0), None, limit), "its limit of 256 MiB"),
        ] {
            assert!(exit.to_string().ends_with(said), "{exit}");
        }
    }
}
