//! Whether a licence expression of a crate can be met with the licences that are allowed.
//!
//! The grammar is SPDX's (<https://spdx.github.io/spdx-spec/v2.3/SPDX-license-expressions/>), and the slash that crates
//! wrote before Cargo knew it.

/// Whether `expression` holds with `allowed`; `None` when it does not parse.
pub(crate) fn is_met(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let met = parser.alternatives()?;
    parser.words.is_empty().then_some(met)
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn alternatives(&mut self) -> Option<bool> {
        let mut met = self.together()?;
        while self.takes("OR") {
            met |= self.together()?;
        }
        Some(met)
    }

    fn together(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.takes("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.takes("(") {
            let met = self.alternatives()?;
            return self.takes(")").then_some(met);
        }
        let mut name = self.word()?.to_owned();
        if self.takes("WITH") {
            name = format!("{name} WITH {}", self.word()?);
        }
        Some(self.allowed.contains(&name))
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }

    fn word(&mut self) -> Option<&str> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        (!["(", ")", "OR", "AND", "WITH"].contains(word)).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_met_by_one_alternative_and_by_every_part_of_it() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for (expression, met) in [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("GPL-3.0-only OR MIT", Some(true)),
            ("GPL-3.0-only AND MIT", Some(false)),
            ("GPL-3.0-only AND Zlib OR MIT", Some(true)),
            ("GPL-3.0-only AND (Zlib OR MIT)", Some(false)),
            ("(MIT OR Zlib) AND Apache-2.0", Some(true)),
            ("Unlicense/MIT", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("MIT Zlib", None),
            ("(MIT", None),
            ("OR", None),
        ] {
            assert_eq!(is_met(expression, &allowed), met, "{expression:?}");
        }
    }
}
