//! How much memory a process has, as the kernel counts it.

use anyhow::Context as _;

/// Which of the kernel's figures.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
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

/// The size of the processor's largest cache in bytes, as the kernel counts it; `None` where it does not say.
pub(crate) fn last_level_cache() -> Option<usize> {
    let caches = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let size = |entry: std::io::Result<std::fs::DirEntry>| {
        bytes(std::fs::read_to_string(entry.ok()?.path().join("size")).ok()?.trim())
    };
    caches.filter_map(size).max()
}

/// A size such as `32K` or `480M`.
fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    Some(number.parse::<usize>().ok()? << shift)
}

/// In MiB. `process` is a process id, or `self`.
pub(crate) fn of(process: &str, field: Field) -> anyhow::Result<f64> {
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

    #[test]
    fn a_cache_is_as_large_as_the_kernel_says() {
        for (text, size) in [("48K", Some(49_152)), ("491520K", Some(503_316_480)), ("2M", Some(2 << 20))] {
            assert_eq!(bytes(text), size);
        }
        for text in ["", "K", "12", "x1K"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
