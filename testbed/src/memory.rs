//! How much memory a process has, as the kernel counts it.

use anyhow::{Context as _, Result};

/// Which of the kernel's figures.
#[derive(Clone, Copy, Debug)]
pub enum Field {
    /// What is resident now.
    Resident,
    /// The most that ever was.
    Peak,
}

impl Field {
    const fn name(self) -> &'static str {
        match self {
            Self::Resident => "VmRSS",
            Self::Peak => "VmHWM",
        }
    }
}

/// In MiB. `process` is a process id, or `self`.
///
/// # Errors
/// When there is no such process, or this is not Linux.
pub fn of(process: &str, field: Field) -> Result<f64> {
    let file = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {file}; memory is measured on Linux only"))?;
    parse(&status, field).with_context(|| format!("{file} has no {}", field.name()))
}

fn parse(status: &str, field: Field) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field.name())?.strip_prefix(':'))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_figures_are_found_and_none_where_there_is_none() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse(status, Field::Peak), Some(2.0));
        assert_eq!(parse(status, Field::Resident), Some(1.0));
        assert_eq!(parse("Name:\tx\n", Field::Peak), None);
    }
}
