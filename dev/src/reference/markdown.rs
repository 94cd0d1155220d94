//! Texts as cells of Markdown tables.

/// The first line of every page: what it is made from and how.
pub(super) fn head(title: &str, source: &str) -> String {
    format!(
        "<!-- Generated from {source} by `cargo xtask reference`; change that, not this file. -->\n\n# {title}\n\n"
    )
}

/// The head of a table.
pub(super) fn table(columns: &[&str]) -> String {
    format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()))
}

/// A row of a table.
pub(super) fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// A text in one line, in which nothing but code between backticks is Markdown.
pub(super) fn prose(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = line.split('`').enumerate().map(|(index, part)| {
        let part = part.replace('|', r"\|");
        let is_code = index % 2 == 1;
        if is_code { part } else { part.replace('<', "&lt;").replace('*', r"\*").replace('[', r"\[") }
    });
    parts.collect::<Vec<_>>().join("`")
}

/// A text as code.
pub(super) fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', r"\|"))
}

/// Several texts as code, with commas.
pub(super) fn codes<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_and_only_its_code_is_markdown() {
        assert_eq!(prose("one\n\n  two | <b> `a*|b` *c* [d](e)"), r"one two \| &lt;b> `a*\|b` \*c\* \[d](e)");
        assert_eq!(codes(["a|b", "c"]), r"`a\|b`, `c`");
        assert_eq!(table(&["a", "b"]) + &row(&["1", "2"]), "| a | b |\n|---|---|\n| 1 | 2 |\n");
    }
}
