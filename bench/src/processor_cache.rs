//! How much memory the processor has near it, as the kernel counts it.

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

#[cfg(test)]
mod tests {
    use super::*;

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
