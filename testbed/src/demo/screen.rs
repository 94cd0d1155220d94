//! The output that the user of the demo sees: one line for each event, with the time since the start.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Result;
use tokio::time::Instant;

use super::costs::{DemoCosts, refusals};
use super::maker::Maker;

/// Prints the events, and the table at the end.
pub(super) struct Screen {
    began: Instant,
    json: bool,
    colour: bool,
}

impl Screen {
    pub(super) fn new(json: bool) -> Self {
        let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { began: Instant::now(), json, colour }
    }

    /// Prints one line: the component, and what happened. On standard error, so that standard output holds only the
    /// table.
    pub(super) fn say(&self, who: &str, what: &str) {
        let seconds = self.began.elapsed().as_secs_f64();
        let (bold, dim, plain) = if self.colour { ("\x1b[1m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        // A closed terminal cannot be handled.
        writeln!(std::io::stderr(), "{dim}{seconds:6.1}s{plain}  {bold}{who:<10}{plain}  {what}").ok();
    }

    /// Prints a heading between two parts of the demo.
    pub(super) fn part(&self, title: &str) {
        let (bold, plain) = if self.colour { ("\x1b[1;36m", "\x1b[0m") } else { ("", "") };
        writeln!(std::io::stderr(), "\n{bold}── {title}{plain}").ok();
    }

    /// Prints the output of a command, indented.
    pub(super) fn quote(text: &str) {
        for line in text.trim_end().lines() {
            writeln!(std::io::stderr(), "           {line}").ok();
        }
    }

    /// Prints the tables, and how to read them.
    pub(super) fn costs(&self, costs: &DemoCosts, maker: Maker, strategy: &str) -> Result<()> {
        let mut out = std::io::stdout();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(costs)?)?;
            return Ok(());
        }
        self.part(&format!("What it cost, from the API server's audit log (write strategy: {strategy})"));
        let DemoCosts { pool, provider_objects } = costs;
        writeln!(out, "\n{pool}")?;
        let conflicts = pool.conflicts();
        let cost = if strategy == "lazy" { "thrown away" } else { "done again" };
        let summary = match conflicts {
            0 => "No request was answered 409: no write was refused because of another".to_owned(),
            1 => format!("1 request was answered 409 Conflict and its work {cost}"),
            many => format!("{many} requests were answered 409 Conflict and their work {cost}"),
        };
        writeln!(out, "{summary}.")?;
        writeln!(
            out,
            "The writer admin is this demo's kubectl. REQ/OK is reads and writes per write that was granted. GENERATION moved\n\
             with the spec alone, RESOURCEVERSION with every change of any field: that is why a write made from a copy can be\n\
             refused for a change that does not matter."
        )?;
        if let (Some(costs), Some(objects)) = (provider_objects, maker.objects()) {
            self.part(&format!("Who wrote {objects}"));
            writeln!(out, "\n{costs}")?;
            writeln!(out, "{}", refusals(costs))?;
        }
        if maker.is_program() {
            writeln!(
                out,
                "The program keeps the machines, not the API server: there is no table of who wrote them."
            )?;
        }
        if strategy != "lazy" {
            writeln!(out, "Compare: cargo demo -- --write-strategy lazy")?;
        }
        Ok(())
    }
}
