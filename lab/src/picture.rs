//! The picture of a run: a sequence diagram as SVG, drawn from the same events as the page.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::event::{RecordedRequest, Table, TranscriptEvent, What};
use crate::narrate::wrap;
use crate::redact::Redactions;

/// Most rows of a picture whose run is longer: about what fits on a screen.
const MOST_STEPS: usize = 14;
/// Rows more than that which are drawn all the same: one row says as much as "and 1 more request".
const SLACK: usize = 2;
/// Most results below the steps.
const MOST_RESULTS: usize = 4;
/// Whose lane is the last one, also for what it does by itself.
const SERVER: &str = "API server";
/// Least distance between actors, and the distance between rows, in pixels.
const LANE: usize = 112;
const ROW: usize = 38;
/// Width of the arrows' labels, and of the answers.
const LABELS: usize = 300;
const ANSWERS: usize = 250;
/// Width of a character, and of one in a name, which is bold: those of a wide font.
const CHARACTER: usize = 7;
const NAME_CHARACTER: usize = 8;
/// Height of the actors' names.
const HEAD: usize = 46;
/// Most characters of a result in one line.
const RESULT_WIDTH: usize = 96;

/// The columns of an excerpt of a long run. Such a table is drawn as its requests.
const EXCERPT: [&str; 6] = ["attempt", "who", "sends", "to", "from", "answer"];
/// The columns of a table of requests from the audit log. It is drawn, too.
pub const LOGGED: [&str; 4] = ["who", "sends", "to", "answer"];

/// One row.
struct Step {
    actor: String,
    /// What is sent, or done.
    label: String,
    /// What a write begins from; empty where that is not said.
    from: String,
    /// What comes back; empty for an act.
    answer: String,
    /// A second line of the answer: why it was refused.
    because: String,
    kind: Kind,
    /// What the page says before it.
    said: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Granted,
    Refused,
    Act,
}

impl Kind {
    const fn class(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Granted => "granted",
            Self::Refused => "refused",
            Self::Act => "act",
        }
    }
}

/// The steps and results of the part of a run that is drawn.
#[derive(Default)]
struct Story {
    steps: Vec<Step>,
    /// Requests that did not fit.
    more: usize,
    /// Each with the number of steps before it.
    results: Vec<(usize, String)>,
    said: String,
    /// Who wrote the newest version of each object, and that version.
    newest: HashMap<String, (String, String)>,
}

/// The picture of the run from its `first` narrated part with requests on (1: the first); `None` without any request.
pub fn draw(title: &str, events: &[TranscriptEvent], names: &Redactions, first: usize) -> Option<String> {
    let mut story = Story::default();
    let mut part = 0;
    let mut is_counted = false;
    for event in events.iter().filter(|event| !event.live) {
        if let What::Say { text } = &event.what {
            story.said = names.text(text);
            is_counted = false;
            continue;
        }
        let has_steps = matches!(&event.what, What::Request(_) | What::Act { .. }) || is_drawn(&event.what);
        if has_steps && !is_counted {
            part += 1;
            is_counted = true;
        }
        match &event.what {
            What::Request(request) => story.request(request, names, part >= first),
            What::Act { actor, text } if part >= first => story.act(actor, &names.text(text)),
            What::Table(table) if is_drawn(&event.what) && part >= first => story.excerpt(table, names),
            What::Check { claim, .. } if part >= first && !story.steps.is_empty() => {
                story.results.push((story.steps.len(), names.text(claim)));
            }
            _ => {}
        }
    }
    story.cut();
    let has_requests = story.steps.iter().any(|step| step.kind != Kind::Act);
    has_requests.then(|| story.svg(title))
}

/// Whether it is a table of requests.
fn is_drawn(what: &What) -> bool {
    matches!(what, What::Table(table) if table.head == EXCERPT || table.head == LOGGED)
}

impl Story {
    /// Leaves the end of a long run out, with what came of it.
    fn cut(&mut self) {
        if self.steps.len() > MOST_STEPS + SLACK {
            let rest = self.steps.split_off(MOST_STEPS);
            self.more = rest.iter().filter(|step| step.kind != Kind::Act).count();
        }
        let drawn = self.steps.len();
        self.results.retain(|(before, _)| *before <= drawn);
    }

    fn request(&mut self, request: &RecordedRequest, names: &Redactions, is_drawn: bool) {
        let RecordedRequest { actor, verb, target, from, code, reason, generation, items, .. } = request;
        let object = object_of(target);
        let stored = request.version.as_deref().map(|version| names.version(version));
        let mut answer = if *code == 0 { "no answer".to_owned() } else { code.to_string() };
        for part in
            [Some(reason.clone()).filter(|reason| !reason.is_empty()), stored.clone()].into_iter().flatten()
        {
            write!(answer, " {part}").ok();
        }
        if let Some(generation) = generation {
            write!(answer, " · generation {generation}").ok();
        }
        if let Some(items) = items {
            write!(answer, " · {items} item{}", if *items == 1 { "" } else { "s" }).ok();
        }
        let mut because = String::new();
        if *code == 409
            && let (Some(from), Some((writer, newest))) = (from, self.newest.get(object))
        {
            let from = names.version(from);
            if *newest != from {
                because = format!("{from} is old: {writer} wrote {newest}");
            }
        }
        if let Some(stored) = &stored
            && request.is_write()
            && request.succeeded()
        {
            self.newest.insert(object.to_owned(), (actor.clone(), stored.clone()));
        }
        if is_drawn {
            let from =
                from.as_deref().map(|from| format!(" from {}", names.version(from))).unwrap_or_default();
            let kind = match request {
                _ if !request.succeeded() => Kind::Refused,
                _ if request.is_write() => Kind::Granted,
                _ => Kind::Read,
            };
            let (actor, label, said) = (actor.clone(), format!("{verb} {target}"), self.said.clone());
            self.steps.push(Step { actor, label, from, answer, because, kind, said });
        }
    }

    fn act(&mut self, actor: &str, text: &str) {
        let label = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (from, answer, because) = (String::new(), String::new(), String::new());
        let (actor, said) = (actor.to_owned(), self.said.clone());
        self.steps.push(Step { actor, label, from, answer, because, kind: Kind::Act, said });
    }

    fn excerpt(&mut self, table: &Table, names: &Redactions) {
        let place = |name: &str| table.head.iter().position(|head| head == name);
        for row in &table.rows {
            let column = |name: &str| place(name).and_then(|place| row.get(place)).map_or("", String::as_str);
            let (verb, from, answer) = (column("sends"), column("from"), column("answer"));
            if answer.is_empty() {
                // It says that some are left out.
                continue;
            }
            let from = if from.is_empty() { String::new() } else { format!(" from {}", names.text(from)) };
            let is_write = !matches!(verb, "GET" | "LIST" | "WATCH");
            let kind = match () {
                () if !answer.starts_with('2') => Kind::Refused,
                () if is_write => Kind::Granted,
                () => Kind::Read,
            };
            let (label, answer) = (names.text(&format!("{verb} {}", column("to"))), names.text(answer));
            let (actor, because, said) = (column("who").to_owned(), String::new(), self.said.clone());
            self.steps.push(Step { actor, label, from, answer, because, kind, said });
        }
    }

    fn svg(&self, title: &str) -> String {
        let mut actors: Vec<&str> = Vec::new();
        for step in &self.steps {
            if step.actor != SERVER && !actors.contains(&step.actor.as_str()) {
                actors.push(&step.actor);
            }
        }
        let longest = actors.iter().map(|actor| actor.chars().count()).max().unwrap_or_default();
        let between = LANE.max(NAME_CHARACTER * (longest + 2));
        let server = between * actors.len() + LABELS;
        let place = |actor: &str| actors.iter().position(|known| *known == actor);
        let lane = |actor: &str| place(actor).map_or(server, |place| between / 2 + between * place);
        let width = server + ANSWERS;
        let frame = Frame { labels: between * actors.len() - between / 2 + 10, server, width };
        let most = RESULT_WIDTH.min((width - 30) / CHARACTER);
        let results: Vec<Vec<String>> =
            self.results.iter().take(MOST_RESULTS).map(|(_, result)| wrap(result, most)).collect();
        let lines: usize = results.iter().map(Vec::len).sum::<usize>() + usize::from(self.more > 0);
        let bottom = HEAD + ROW * self.steps.len() + 16;
        let height = bottom + 20 * lines + 8;

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{}\">\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n",
            escaped(title)
        );
        for (name, x) in actors.iter().map(|actor| (*actor, lane(actor))).chain([(SERVER, server)]) {
            writeln!(svg, "<path class=\"lane\" d=\"M{x} {}V{bottom}\"/>", HEAD - 14).ok();
            writeln!(svg, "<text class=\"name\" x=\"{x}\" y=\"22\">{}</text>", escaped(name)).ok();
        }
        for (place, step) in self.steps.iter().enumerate() {
            let y = HEAD + ROW * place + 20;
            step.draw(&mut svg, lane(&step.actor), &frame, y);
        }
        let mut y = bottom + 12;
        if self.more > 0 {
            let plural = if self.more == 1 { "request" } else { "requests" };
            writeln!(
                svg,
                "<text class=\"more\" x=\"10\" y=\"{y}\">… and {} more {plural}: see the transcript</text>",
                self.more
            )
            .ok();
            y += 20;
        }
        for result in &results {
            for (place, line) in result.iter().enumerate() {
                let mark = if place == 0 { "✓ " } else { "   " };
                writeln!(
                    svg,
                    "<text class=\"result\" x=\"10\" y=\"{y}\" xml:space=\"preserve\">{mark}{}</text>",
                    escaped(line)
                )
                .ok();
                y += 20;
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Where the columns of a picture begin, in pixels.
struct Frame {
    labels: usize,
    server: usize,
    width: usize,
}

impl Step {
    fn draw(&self, svg: &mut String, lane: usize, frame: &Frame, y: usize) {
        let Self { said, kind, .. } = self;
        writeln!(svg, "<g class=\"step {}\" data-said=\"{}\">", kind.class(), escaped(said)).ok();
        match kind {
            Kind::Act => self.act(svg, lane, frame, y),
            Kind::Read | Kind::Granted | Kind::Refused => self.request(svg, lane, frame, y),
        }
        svg.push_str("</g>\n");
    }

    /// A dot, and what is done, in up to two lines.
    fn act(&self, svg: &mut String, lane: usize, frame: &Frame, y: usize) {
        let most = (frame.width - lane - 20) / CHARACTER;
        let mut lines = wrap(&self.label, most);
        if lines.len() > 2 {
            let rest = lines.split_off(1).join(" ");
            lines.push(rest);
        }
        writeln!(svg, "<circle class=\"dot\" cx=\"{lane}\" cy=\"{y}\" r=\"4\"/>").ok();
        let top = if lines.len() > 1 { y - 4 } else { y + 4 };
        for (place, line) in lines.iter().enumerate() {
            text(svg, "", lane + 10, top + 16 * place, &shortened(line, most));
        }
    }

    /// An arrow with what is sent above it and, where there is no room, its base below it; and the answer.
    fn request(&self, svg: &mut String, lane: usize, frame: &Frame, y: usize) {
        let Self { label, from, answer, because, kind, .. } = self;
        let Frame { labels, server, .. } = *frame;
        let (end, most) = (server - 8, (server - labels - 12) / CHARACTER);
        writeln!(svg, "<path class=\"arrow shaft\" d=\"M{lane} {y}H{end}\"/>").ok();
        writeln!(svg, "<path class=\"arrow\" d=\"M{end} {y}m-7 -4l7 4l-7 4\"/>").ok();
        let one = format!("{label}{from}");
        if one.chars().count() <= most {
            text(svg, "", labels, y - 6, &one);
        } else {
            text(svg, "", labels, y - 6, &shortened(label, most));
            text(svg, "because", labels, y + 13, &shortened(from.trim(), most));
        }
        let mark = if *kind == Kind::Refused { "✗ " } else { "" };
        let up = if because.is_empty() { 4 } else { 0 };
        writeln!(svg, "<circle class=\"dot\" cx=\"{server}\" cy=\"{y}\" r=\"4\"/>").ok();
        let most = (ANSWERS - 10) / CHARACTER;
        text(svg, "answer", server + 10, y + up, &shortened(&format!("{mark}{answer}"), most));
        text(svg, "because", server + 10, y + 13, &shortened(because, most));
    }
}

/// A line of text, if there is any.
fn text(svg: &mut String, class: &str, x: usize, y: usize, line: &str) {
    if line.is_empty() {
        return;
    }
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    writeln!(svg, "<text{class} x=\"{x}\" y=\"{y}\">{}</text>", escaped(line)).ok();
}

/// The object of a request's target: without its subresource.
fn object_of(target: &str) -> &str {
    let mut slashes = target.match_indices('/').map(|(place, _)| place);
    slashes.nth(1).map_or(target, |second| &target[..second])
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Light, and dark where the reader's system is. A text has the page's colour around it, so that no lane runs through it. The site has rules of its own, for its themes.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#24292f;stroke:#fff;stroke-width:3px;stroke-linejoin:round;paint-order:stroke}.page{fill:#fff}.name{font-weight:600;text-anchor:middle}.lane{stroke:#d0d7de;stroke-width:1.5}\
.arrow{fill:none;stroke:#57606a;stroke-width:1.5}.read .shaft{stroke-dasharray:3 3}.dot{fill:#57606a}\
.granted .arrow{stroke:#1a7f37}.granted .dot{fill:#1a7f37}.granted .answer{fill:#1a7f37;font-weight:600}\
.refused .arrow{stroke:#cf222e}.refused .dot{fill:#cf222e}.refused .answer{fill:#cf222e;font-weight:600}.because,.more{font-size:12px;fill:#57606a}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3;stroke:#0d1117}.page{fill:#0d1117}.lane{stroke:#30363d}.arrow{stroke:#8b949e}.dot{fill:#8b949e}\
.granted .arrow{stroke:#3fb950}.granted .dot,.granted .answer{fill:#3fb950}.refused .arrow{stroke:#f85149}.refused .dot,.refused .answer{fill:#f85149}.because,.more{fill:#8b949e}}";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn event(what: What) -> TranscriptEvent {
        TranscriptEvent { at: Duration::ZERO, live: false, what }
    }

    fn request(
        actor: &str,
        verb: &'static str,
        from: Option<&str>,
        code: u16,
        version: Option<&str>,
    ) -> TranscriptEvent {
        let reason = if code == 409 { "Conflict".to_owned() } else { String::new() };
        event(What::Request(Box::new(RecordedRequest {
            actor: actor.to_owned(),
            verb,
            target: "pools/workers/status".to_owned(),
            from: from.map(str::to_owned),
            code,
            reason,
            version: version.map(str::to_owned),
            ..RecordedRequest::default()
        })))
    }

    fn run() -> Vec<TranscriptEvent> {
        vec![
            event(What::Say { text: "Alice <reads>.".to_owned() }),
            request("alice", "GET", None, 200, Some("10")),
            event(What::Say { text: "Bob is first.".to_owned() }),
            request("bob", "MERGE", None, 200, Some("12")),
            request("alice", "PUT", Some("10"), 409, None),
            event(What::Check { claim: "nothing of Alice's is written".to_owned(), holds: true }),
        ]
    }

    #[test]
    fn a_refused_write_says_whose_write_made_its_copy_old() {
        let events = run();
        let svg = draw("t", &events, &Redactions::of(&events, "ns"), 1).unwrap();
        assert!(svg.contains("v1 is old: bob wrote v2"), "{svg}");
        assert!(svg.contains("✓ nothing of Alice's is written"), "{svg}");
        assert!(svg.contains("data-said=\"Alice &lt;reads&gt;.\""), "{svg}");
        assert_eq!(svg.matches("class=\"step").count(), 3);
        assert!(!svg.contains("\n\n"), "an empty line ends raw HTML in Markdown");
    }

    #[test]
    fn a_later_part_knows_what_was_written_before_it() {
        let events = run();
        let svg = draw("t", &events, &Redactions::of(&events, "ns"), 2).unwrap();
        assert_eq!(svg.matches("class=\"step").count(), 2);
        assert!(svg.contains("v1 is old: bob wrote v2"), "{svg}");
    }

    #[test]
    fn a_run_without_requests_has_no_picture_and_a_long_one_says_what_is_left_out() {
        let said = vec![event(What::Say { text: "Nothing.".to_owned() })];
        assert!(draw("t", &said, &Redactions::of(&said, "ns"), 1).is_none());
        let long: Vec<_> = (0..20).map(|_| request("alice", "GET", None, 200, Some("1"))).collect();
        let svg = draw("t", &long, &Redactions::of(&long, "ns"), 1).unwrap();
        assert!(svg.contains("and 6 more requests"), "{svg}");
        let svg = draw("t", &long[..15], &Redactions::of(&long, "ns"), 1).unwrap();
        assert_eq!((svg.matches("class=\"step").count(), svg.contains(" more ")), (15, false), "{svg}");
    }

    #[test]
    fn what_is_too_long_for_a_line_has_a_second_one() {
        let base = "test /spec/replicas = 3 and /metadata/generation = 4";
        let patch = request("alice", "JSON", Some(base), 200, Some("7"));
        let typed = "upgrade workers ./chart --set machine=large ".repeat(3);
        let typed = event(What::Act { actor: "helm".to_owned(), text: typed });
        let events = vec![patch, typed];
        let svg = draw("t", &events, &Redactions::of(&events, "ns"), 1).unwrap();
        assert!(svg.contains(">JSON pools/workers/status<"), "{svg}");
        assert!(svg.contains(">from test /spec/replicas = 3"), "{svg}");
        assert_eq!(svg.matches("upgrade workers").count(), 3, "{svg}");
    }

    #[test]
    fn a_table_of_the_audit_log_is_drawn_and_lanes_are_as_wide_as_names() {
        let mut table = Table::new(&LOGGED);
        table.row(&[&"replicaset-controller", &"CREATE", &"pods", &"201"]);
        let events = vec![event(What::Table(table))];
        let svg = draw("t", &events, &Redactions::of(&events, "ns"), 1).unwrap();
        assert!(svg.contains("class=\"step granted\"") && svg.contains(">CREATE pods<"), "{svg}");
        assert!(svg.contains("x=\"92\" y=\"22\">replicaset-controller<"), "{svg}");
    }
}
