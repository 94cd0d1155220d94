//! Prints a scenario to the terminal while it runs.

use std::io::{IsTerminal as _, Write as _};

use crate::bill;
use crate::event::{RecordedRequest, Table, TranscriptEvent, What};
use crate::redact::plain;
use crate::scenario::Scenario;

/// Width of the printed lines.
const WIDTH: usize = 100;

/// Prints to standard error, because standard output is for results.
#[derive(Clone, Copy)]
pub struct Narrator {
    colour: bool,
}

impl Narrator {
    /// Uses colours on a terminal, unless `NO_COLOR` is set.
    pub fn new() -> Self {
        Self { colour: std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    /// Prints a scenario's title.
    pub fn begin(self, scenario: &Scenario) {
        let title = format!("── {} ── {}", scenario.name, scenario.title);
        line(&format!("\n{}", self.paint("1;36", &title)));
    }

    /// Prints the progress of a run that is not narrated.
    pub fn progress(scenario: &Scenario, place: usize, of: usize) {
        line(&format!("{place} of {of}: {}", scenario.name));
    }

    /// Prints an event.
    pub fn event(self, event: &TranscriptEvent) {
        match &event.what {
            What::Say { text } => {
                line("");
                for wrapped in wrap(&plain(text), WIDTH) {
                    line(&wrapped);
                }
            }
            What::Request(request) => self.request(request),
            What::Act { actor, text } => {
                line(&format!("  {}  {}", self.paint("1", &format!("{actor:<12}")), plain(text)));
            }
            What::Table(table) => Self::table(table),
            What::Costs { strategies } => Self::table(&bill::table(strategies)),
            What::Quote { text } => {
                for quoted in plain(text).lines() {
                    line(&format!("  │ {quoted}"));
                }
            }
            What::Check { claim, holds } => {
                let mark =
                    if *holds { self.paint("32", "✓") } else { self.paint("1;31", "✗ IT IS NOT SO:") };
                line(&format!("  {mark} {}", plain(claim)));
            }
        }
    }

    /// Prints a scenario's conclusion.
    pub fn end(self, scenario: &Scenario) {
        line("");
        for wrapped in wrap(scenario.lesson, WIDTH) {
            line(&self.paint("1", &wrapped));
        }
    }

    fn table(table: &Table) {
        for row in columns(table, plain) {
            line(&format!("  {row}"));
        }
    }

    fn request(self, request: &RecordedRequest) {
        let text = request_line(request, str::to_owned, str::to_owned, false);
        let colour = match request.code {
            0 | 500.. => "31",
            409 => "1;33",
            400..=499 => "33",
            _ => "2",
        };
        for (index, part) in text.lines().enumerate() {
            line(&if index == 0 { format!("  {}", self.paint(colour, part)) } else { format!("  {part}") });
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl Default for Narrator {
    fn default() -> Self {
        Self::new()
    }
}

/// A request in one line, with the server's message in a second line if there is one and it is not repeated.
pub(crate) fn request_line(
    request: &RecordedRequest,
    version: impl Fn(&str) -> String,
    message: impl Fn(&str) -> String,
    is_repeated: bool,
) -> String {
    let RecordedRequest { actor, verb, target, from, code, reason, generation, items, .. } = request;
    let from = from.as_deref().map(|from| format!("from {}", version(from))).unwrap_or_default();
    let mut text = format!("{actor:<12}  {verb:<9}  {target:<28}  {from:<14}  → {code}");
    if *code == 0 {
        text = format!("{actor:<12}  {verb:<9}  {target:<28}  {from:<14}  → no answer");
    }
    if !reason.is_empty() {
        text.push_str(&format!(" {reason}"));
    }
    if let Some(stored) = &request.version {
        text.push_str(&format!("  {}", version(stored)));
    }
    if let Some(generation) = generation {
        text.push_str(&format!("  (generation {generation})"));
    }
    if let Some(items) = items {
        text.push_str(&format!("  {items} item{}", if *items == 1 { "" } else { "s" }));
    }
    if !request.message.is_empty() && !is_repeated {
        text.push_str(&format!("\n{:<12}  {}", "", message(&request.message)));
    }
    text
}

/// A table in aligned columns, with a rule under the head.
pub(crate) fn columns(table: &Table, text: impl Fn(&str) -> String) -> Vec<String> {
    let rows: Vec<Vec<String>> = std::iter::once(&table.head)
        .chain(&table.rows)
        .map(|row| row.iter().map(|cell| text(cell)).collect())
        .collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect();
    lines.insert(1, widths.iter().map(|width| "─".repeat(*width)).collect::<Vec<_>>().join("  "));
    lines
}

/// A text in lines of at most `width` characters, broken between words.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for paragraph in text.lines() {
        for word in paragraph.split_whitespace() {
            let length = lines.last().map_or(0, |line| line.chars().count());
            if length > 0 && length + 1 + word.chars().count() > width {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        lines.push(String::new());
    }
    lines.retain(|line| !line.is_empty());
    lines
}

fn line(text: &str) {
    // Nothing can be done about a closed terminal.
    writeln!(std::io::stderr(), "{text}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one\ntwo", 7), ["one", "two"]);
    }

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let mut table = Table::new(&["a", "long"]);
        table.row(&[&"wide", &1]);
        assert_eq!(columns(&table, str::to_owned), ["a     long", "────  ────", "wide  1"]);
    }
}
