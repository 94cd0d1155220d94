//! Reads an audit log line by line. Keeps the selected requests, and reports what is wrong with the file.

use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::counts::Counts;
use crate::line::{Head, LoggedRequest};
use crate::seen::Seen;
use crate::select::Selection;
use crate::spans::Spans;

/// Maximum length of a line, in bytes. An API server refuses much smaller objects.
const LONGEST: u64 = 64 << 20;
/// Number of lines that are not audit events after which the file is not an audit log.
const FOREIGN: usize = 100;
/// Maximum number of requests on a page.
pub(crate) const MOST: usize = 20_000;

/// The result of reading.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) requests: Vec<LoggedRequest>,
    pub(crate) spans: Spans,
    pub(crate) counts: Counts,
    /// Requests about the objects that came after [`MOST`].
    pub(crate) left_out: usize,
    /// What the user should know about the file.
    pub(crate) warnings: Vec<String>,
    seen: Seen,
    events: usize,
    incomplete: usize,
    bad: Vec<usize>,
    bad_count: usize,
    first_bad: Option<String>,
}

impl Log {
    /// Adds the file's selected requests.
    ///
    /// # Errors
    /// When it cannot be read, or is not an audit log; the error says what it is.
    pub(crate) fn read_file(&mut self, path: &Path, selection: &Selection) -> Result<()> {
        let name = path.display();
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!("there is no file {name}"),
            Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
        };
        ensure!(!metadata.is_dir(), "{name} is a directory; name the log file in it");
        let file = std::fs::File::open(path).with_context(|| format!("cannot read {name}"))?;
        self.read(BufReader::with_capacity(1 << 20, file), &name.to_string(), selection)
    }

    /// Like [`Self::read_file`], from any reader; `name` is for messages.
    ///
    /// # Errors
    /// Like [`Self::read_file`].
    pub(crate) fn read(&mut self, mut from: impl BufRead, name: &str, selection: &Selection) -> Result<()> {
        let start = from.fill_buf().with_context(|| format!("cannot read {name}"))?;
        ensure!(!start.is_empty(), "{name} is empty");
        ensure!(
            !start.starts_with(&[0x1f, 0x8b]),
            "{name} is compressed; unpack it first: gunzip --keep {name}"
        );
        let (mut line, mut number) = (Vec::new(), 0);
        loop {
            line.clear();
            let read = from.by_ref().take(LONGEST).read_until(b'\n', &mut line);
            if read.with_context(|| format!("cannot read {name}"))? == 0 {
                break;
            }
            number += 1;
            let is_whole = line.ends_with(b"\n");
            if let Err(error) = self.line(line.trim_ascii(), selection) {
                self.count_bad(number, is_whole, &error, &line);
            }
            if self.events == 0 && (self.bad_count >= FOREIGN || line.len() as u64 >= LONGEST) {
                break;
            }
        }
        self.check_log(name)
    }

    fn line(&mut self, line: &[u8], selection: &Selection) -> Result<()> {
        if line.is_empty() {
            return Ok(());
        }
        let head = Head::parse(line)?;
        self.events += 1;
        if !head.is_complete() {
            self.incomplete += 1;
            return Ok(());
        }
        if !head.is_request() {
            return Ok(());
        }
        let (Some(object), Some((received, completed))) = (head.object(), head.times()) else {
            return Ok(());
        };
        self.seen.add(object, head.code());
        if selection.has_namespace(&object.namespace) {
            self.counts.add(&head, object, completed, line);
        }
        // A list is not about one object, and the renewal of a lease does not belong to a reconcile.
        let is_lease = object.resource == "leases";
        let (writer, may_be_shown) = (head.writer(), head.verb() != "list" && selection.may_cover(object));
        let request = if may_be_shown { head.request(line) } else { None };
        let request = request.filter(|request| selection.covers(&request.object));
        if request.is_some() || !is_lease {
            self.spans.add(writer, received, completed, request.is_some());
        }
        if let Some(request) = request {
            if self.requests.len() < MOST {
                self.requests.push(request);
            } else {
                self.left_out += 1;
            }
        }
        Ok(())
    }

    fn count_bad(&mut self, number: usize, is_whole: bool, error: &anyhow::Error, line: &[u8]) {
        if !is_whole && self.events > 0 {
            self.warnings
                .push(format!("the last line (line {number}) is not whole and was left out, as in a log that is still written"));
            return;
        }
        if self.bad_count == 0 {
            let start: String = String::from_utf8_lossy(line).trim().chars().take(60).collect();
            self.first_bad = Some(format!("line {number} begins with “{}”: {error:#}", start.escape_debug()));
        }
        self.bad_count += 1;
        if self.bad.len() < 5 {
            self.bad.push(number);
        }
    }

    /// Checks that what was read so far is an audit log, and adds warnings about it.
    fn check_log(&mut self, name: &str) -> Result<()> {
        if self.events == 0 {
            let why = self.first_bad.take().unwrap_or_else(|| "it has no line that says anything".to_owned());
            bail!("{name} is not an audit log: {why}");
        }
        ensure!(
            self.incomplete < self.events,
            "{name} has no event of stage ResponseComplete, and no other stage says what came of a request; \
             take ResponseComplete out of omitStages in the audit policy"
        );
        if self.bad_count > 0 {
            let numbers: Vec<String> = self.bad.iter().map(usize::to_string).collect();
            let more = if self.bad_count > self.bad.len() { ", …" } else { "" };
            let (lines, are) = if self.bad_count == 1 {
                ("line", "is no audit event and was")
            } else {
                ("lines", "are no audit events and were")
            };
            self.warnings.push(format!(
                "{} {lines} of {name} {are} left out (line {}{more})",
                self.bad_count,
                numbers.join(", ")
            ));
            (self.bad_count, self.first_bad) = (0, None);
            self.bad.clear();
        }
        Ok(())
    }

    /// Fails if no selected object was found, and adds a warning for each one that was not.
    ///
    /// # Errors
    /// The error names what the log has instead.
    pub(crate) fn check_found(&mut self, selection: &Selection) -> Result<()> {
        ensure!(!self.requests.is_empty(), "{}", self.seen.explain(selection));
        if selection.whole_namespaces {
            return Ok(());
        }
        for wanted in &selection.objects {
            let alone = Selection { objects: vec![wanted.clone()], ..selection.clone() };
            if !self.requests.iter().any(|request| alone.covers(&request.object)) {
                self.warnings.push(self.seen.explain(&alone));
            }
        }
        Ok(())
    }

    /// A suggestion if no object was selected.
    pub(crate) fn suggest(&self) -> String {
        self.seen.suggest()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::line::tests::line;

    fn selection(object: &str) -> Selection {
        Selection { objects: vec![object.parse().unwrap()], ..Selection::default() }
    }

    fn read(text: &[u8]) -> Result<Log> {
        let mut log = Log::default();
        log.read(text, "x.log", &selection("nodepools/x"))?;
        Ok(log)
    }

    fn good(at: i64) -> String {
        format!("{}\n", line(at, "u", "update", 200, json!({})))
    }

    #[test]
    fn a_file_that_is_not_an_audit_log_is_refused_with_the_reason() {
        let not_complete = line(0, "u", "get", 200, json!({"stage": "RequestReceived"})).to_string();
        for (text, said) in [
            (&b""[..], "x.log is empty"),
            (b"\n\n", "x.log is not an audit log: it has no line that says anything"),
            (b"\x1f\x8b\x08\x00", "gunzip --keep x.log"),
            (b"I1121 hello\n", "line 1 begins with \u{201c}I1121 hello\u{201d}: it is not JSON"),
            (b"\xff\xfe\x00\n", "not an audit log"),
            (b"{\"a\": 1}\n", "not an Event of audit.k8s.io/v1"),
            (not_complete.as_bytes(), "take ResponseComplete out of omitStages"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_missing_file_and_a_directory_are_named() {
        let mut log = Log::default();
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing.log");
        let error = log.read_file(&missing, &selection("pods")).unwrap_err().to_string();
        assert!(error.starts_with("there is no file"), "{error}");
        let error = log.read_file(directory.path(), &selection("pods")).unwrap_err().to_string();
        assert!(error.contains("is a directory"), "{error}");
    }

    #[test]
    fn a_last_line_that_is_cut_off_is_left_out_with_a_warning() {
        let text = good(0) + &good(10) + good(20).get(..90).unwrap();
        let log = read(text.as_bytes()).unwrap();
        assert_eq!(log.requests.len(), 2);
        assert_eq!(log.warnings.len(), 1);
        assert!(log.warnings[0].starts_with("the last line (line 3) is not whole"));
    }

    #[test]
    fn a_last_line_without_an_end_of_line_is_read() {
        let text = good(0) + good(10).trim_end();
        let log = read(text.as_bytes()).unwrap();
        assert_eq!((log.requests.len(), log.warnings.len()), (2, 0));
    }

    #[test]
    fn foreign_lines_between_are_counted_and_numbered() {
        let text = format!("{}nonsense\n\n{}{{}}\n", good(0), good(10));
        let log = read(text.as_bytes()).unwrap();
        assert_eq!(log.requests.len(), 2);
        assert_eq!(log.warnings, ["2 lines of x.log are no audit events and were left out (line 2, 5)"]);
    }

    #[test]
    fn a_long_foreign_file_is_not_read_to_its_end() {
        let mut log = Log::default();
        let endless = BufReader::new(std::io::repeat(b'\n'));
        let text = "foreign\n".repeat(FOREIGN).into_bytes();
        let error = log.read(text.chain(endless), "x.log", &selection("pods")).unwrap_err().to_string();
        assert!(error.contains("is not an audit log"), "{error}");
    }

    #[test]
    fn requests_about_other_objects_lists_and_watches_are_not_shown() {
        let about =
            |verb, name| line(0, "u", verb, 200, json!({"objectRef": {"name": name}})).to_string() + "\n";
        let text = [about("get", "x"), about("get", "y"), about("list", "x"), about("watch", "x")].concat();
        assert_eq!(read(text.as_bytes()).unwrap().requests.len(), 1);
        let mut none = read(about("get", "y").as_bytes()).unwrap();
        let error = none.check_found(&selection("nodepools/x")).unwrap_err().to_string();
        assert_eq!(error, "no request in the log is about nodepools/x. The log has nodepools/y");
    }

    #[test]
    fn an_object_that_is_not_there_beside_one_that_is_gives_a_warning() {
        let mut log = read(good(0).as_bytes()).unwrap();
        let mut both = selection("nodepools/x");
        both.objects.push("nodepools/z".parse().unwrap());
        log.check_found(&both).unwrap();
        assert_eq!(log.warnings, ["no request in the log is about nodepools/z. The log has nodepools/x"]);
    }

    #[test]
    fn a_create_with_a_generated_name_is_found_by_the_name_in_its_answer() {
        let with = json!({"objectRef": {"name": ""}, "responseObject": {"metadata": {"name": "x"}}});
        let text = line(0, "u", "create", 201, with).to_string();
        assert_eq!(read(text.as_bytes()).unwrap().requests[0].object.name, "x");
    }

    #[test]
    fn more_than_a_page_holds_is_counted() {
        let text = good(0).repeat(MOST + 3);
        let log = read(text.as_bytes()).unwrap();
        assert_eq!((log.requests.len(), log.left_out), (MOST, 3));
    }
}
