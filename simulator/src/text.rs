//! Text for people: lists of names, and tables.

use std::fmt::Write as _;

/// Number of objects that a message names; the rest is counted.
const MOST_NAMED: usize = 10;

/// The first names, and how many more there are.
pub(crate) fn named(names: &[String]) -> String {
    let first = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

pub(crate) fn yes_or_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// Rows with columns padded to the widest cell. A table without rows is printed as a note that it is empty.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:<width$}   ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if rows.len() == 1 {
        text.push_str("(none)\n");
    }
    text
}
