//! What no tracked file may be: large, as built programs are, or one that names directories of the machine it was written on.

use std::sync::LazyLock;

use regex::Regex;

/// Most bytes of a file.
const MOST: u64 = 1024 * 1024;

/// A path below `/root`, `/home` or `/Users`, not as a part of another path.
#[expect(clippy::expect_used, reason = "a constant, which a test compiles")]
static HOME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:^|[^A-Za-z0-9_./-])/(?:root|home|Users)/[A-Za-z0-9._-]+").expect("a regular expression")
});

/// What is wrong with a file of this content, of which only texts are searched.
pub(crate) fn complaints(file: &str, bytes: &[u8]) -> Vec<String> {
    let mut complaints = Vec::new();
    let size = bytes.len() as u64;
    if size > MOST {
        complaints.push(format!("{file}: {size} bytes, {MOST} are the most; is it built?"));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        for (number, line) in text.lines().enumerate() {
            if let Some(found) = HOME.find(line) {
                let path = found.as_str().trim_start_matches(|c| c != '/');
                complaints.push(format!("{file}:{}: {path} is a path of one machine", number + 1));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_and_paths_of_a_machine_are_named() {
        let large = vec![0xff; 1024 * 1024 + 1];
        assert!(complaints("a", &large)[0].contains("are the most"));
        // Put together here, because this file is searched too.
        for directory in ["root", "home", "Users"] {
            let text = format!("one\nhostPath:map[path:/{directory}/somebody/x]\n");
            let found = complaints("a", text.as_bytes());
            assert!(
                found.len() == 1 && found[0].starts_with(&format!("a:2: /{directory}/somebody")),
                "{found:?}"
            );
        }
        for fine in ["/usr/home/x", "docs/home/page", "the root/leaf", "/root", "https://x/home/y"] {
            assert!(complaints("a", fine.as_bytes()).is_empty(), "{fine}");
        }
    }
}
