//! Takes apart what a test program prints: whole lines, announcements of the harness, and the test whose line is begun.
//!
//! An announcement comes from another thread than the lines of tests, and may stand inside one: it is cut out, so that the line
//! around it is whole again.

use toolbox::announcement::Announcement;

/// What a program has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Line(String),
    Announced(Announcement),
    /// The line of this test is begun: a program that runs one test after the other says so before each.
    Begun(String),
}

/// The output of one program, in pieces as it arrives.
#[derive(Default)]
pub(super) struct Output {
    /// The begin of a line whose end has not arrived.
    rest: Vec<u8>,
    /// What stood before an announcement, on its line.
    before: String,
}

impl Output {
    /// The next piece.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Said> {
        self.rest.extend_from_slice(bytes);
        let mut said = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            said.push(self.line(&String::from_utf8_lossy(&line[..end])));
        }
        let begun = format!("{}{}", self.before, String::from_utf8_lossy(&self.rest));
        if let Some(test) = begun.strip_suffix(" ... ").and_then(|line| line.strip_prefix("test ")) {
            said.push(Said::Begun(test.to_owned()));
        }
        said
    }

    fn line(&mut self, line: &str) -> Said {
        if let Some((before, announcement)) = Announcement::split(line) {
            self.before.push_str(before);
            return Said::Announced(announcement);
        }
        Said::Line(std::mem::take(&mut self.before) + line)
    }

    /// At the end of the program: a last line without an end.
    pub(super) fn last(mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        let line = std::mem::take(&mut self.before) + &String::from_utf8_lossy(&rest);
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let mut output = Output::default();
        assert_eq!(output.read(b"runn"), []);
        let line = |text: &str| Said::Line(text.to_owned());
        assert_eq!(output.read(b"ing\ntest a ... ok\nte"), [line("running"), line("test a ... ok")]);
        assert_eq!(output.read(b"st b ... "), [Said::Begun("b".to_owned())]);
        assert_eq!(output.read(b"ok\n"), [line("test b ... ok")]);
        assert_eq!(output.read(b"\xff\nlast"), [line("\u{fffd}")]);
        assert_eq!(output.last(), Some("last".to_owned()));
    }

    #[test]
    fn an_announcement_inside_a_line_leaves_the_line_whole() {
        let mut output = Output::default();
        let announcement = Announcement::Waits("b".to_owned());
        let said = output.read(format!("test a ... {announcement}\n{announcement}\nok\n").as_bytes());
        let announced = Said::Announced(announcement);
        assert_eq!(said, [announced.clone(), announced, Said::Line("test a ... ok".to_owned())]);
        assert_eq!(output.last(), None);
    }
}
