//! A hash that is stable across builds, machines and versions of Rust. It is for names, not for security.

use std::hash::Hasher as _;

use fnv::FnvHasher;

/// 64-bit FNV-1a.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Five characters of `0-9a-z` for `text`.
pub fn short(text: &str) -> String {
    let mut rest = fnv1a(text.as_bytes());
    (0..5)
        .filter_map(|_| {
            let digit = u32::try_from(rest % 36).ok().and_then(|digit| char::from_digit(digit, 36));
            rest /= 36;
            digit
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_answers_its_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn short_hashes_have_five_characters_that_a_node_name_may_contain() {
        for text in ["", "default/web", "kube-system/a.b.c"] {
            let short = short(text);
            assert_eq!(short.len(), 5);
            assert!(short.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        }
    }
}
