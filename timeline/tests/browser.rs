//! Looks at the page in a real browser: it draws, its filters and keys work, it loads nothing, and nothing goes wrong on
//! the way.

use std::path::{Path, PathBuf};

use anyhow::Result;
use browser::Page;
use clap::Parser;
use serde_json::{Value, json};
use timeline::{NamespacePage, Phase, ServerLog};

const ROWS: &str = "document.querySelectorAll('#table tbody tr').length";
const SPOTS: &str = "document.querySelectorAll('.spot').length";
const WRITERS: &str =
    "[...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[1].textContent)";

/// A command with the page's arguments, as `cargo lab timeline` has them.
#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: timeline::Args,
}

/// A log as an API server writes it.
#[derive(Default)]
struct Log {
    lines: Vec<Value>,
}

impl Log {
    fn add(&mut self, at: u32, user: &str, verb: &str, name: &str, code: u16, (base, left): (u32, u32)) {
        let moment =
            |at: u32| format!("2026-01-01T00:{:02}:{:02}.{:03}000Z", at / 60_000, at / 1000 % 60, at % 1000);
        let response = if code < 300 {
            json!({"metadata": {"resourceVersion": left.to_string(), "generation": 1}})
        } else {
            json!({"kind": "Status"})
        };
        self.lines.push(json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "1",
            "stage": "ResponseComplete", "requestURI": "/", "verb": verb, "user": {"username": user},
            "userAgent": "agent/1", "objectRef": {"resource": "pools", "namespace": "a", "name": name},
            "responseStatus": {"code": code, "reason": if code == 409 { "Conflict" } else { "" },
                "message": if code == 409 { "</script><script>console.error('escaped')</script><!--" } else { "" }},
            "requestObject": {"metadata": {"resourceVersion": base.to_string()}}, "responseObject": response,
            "requestReceivedTimestamp": moment(at), "stageTimestamp": moment(at + 4),
        }));
    }

    /// The file of an API server.
    fn written(&self, directory: &Path) -> Result<PathBuf> {
        let log = directory.join("audit.log");
        std::fs::write(&log, self.lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        Ok(log)
    }

    /// Makes the page, from the arguments that a user would give.
    fn page(&self, directory: &Path) -> Result<PathBuf> {
        let (log, page) = (self.written(directory)?, directory.join("page.html"));
        let arguments = ["timeline", "--object", "pools", "--out"].map(Path::new).into_iter();
        let Command { args } = Command::try_parse_from(arguments.chain([page.as_path(), log.as_path()]))?;
        Ok(timeline::page_of_objects(args)?.path)
    }
}

/// Alice and Bob change one pool; Bob is refused once, and reads it again. Carol has a pool of her own.
fn small() -> Log {
    let mut log = Log::default();
    log.add(0, "alice", "update", "shared", 200, (1, 2));
    log.add(100, "bob", "update", "shared", 409, (1, 0));
    log.add(200, "bob", "get", "shared", 200, (0, 2));
    log.add(300, "bob", "update", "shared", 200, (2, 3));
    log.add(400, "carol", "update", "own", 200, (4, 5));
    log.add(500, "carol", "update", "own", 422, (5, 0));
    log
}

/// Opens the page, and waits until it has drawn.
fn open(file: &Path, width: u32, scheme: &str) -> Result<Page> {
    let mut page = Page::open(&format!("file://{}", file.display()), width, scheme)?;
    page.wait_for(&format!("{SPOTS} > 0"))?;
    Ok(page)
}

#[test]
fn filters_change_the_drawing_and_the_table() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut page = open(&small().page(directory.path())?, 1400, "light")?;
    assert_eq!((page.count(ROWS)?, page.count(SPOTS)?), (6, 6));

    page.click("[data-group=writers] label:nth-of-type(2)")?;
    page.wait_for(&format!("{ROWS} === 3 && {SPOTS} === 3"))?;
    assert_eq!(page.eval(WRITERS)?, json!(["alice", "carol", "carol"]));
    page.click("[data-group=writers] label:nth-of-type(2)")?;

    page.click("[data-group=outcomes] input[value=granted]")?;
    page.wait_for(&format!("{ROWS} === 3"))?;
    page.click("[data-group=outcomes] input[value=granted]")?;

    page.click("[data-group=objects] label:nth-of-type(1)")?;
    page.wait_for(&format!("{ROWS} === 2"))?;
    assert_eq!(page.eval(WRITERS)?, json!(["carol", "carol"]));
    page.close()
}

#[test]
fn a_409_tells_what_it_cost_and_who_was_first() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut page = open(&small().page(directory.path())?, 1400, "dark")?;
    page.click("[data-do=next]")?;
    page.wait_for("document.querySelectorAll('.spot.chosen').length === 1")?;
    let detail = page.eval("document.getElementById('detail').textContent")?;
    for said in [
        "409 Conflict",
        "2 requests and 204 ms",
        "Its copy was made old byupdate by alice",
        "</script><script>",
    ] {
        assert!(detail.as_str().is_some_and(|text| text.contains(said)), "{said}: {detail}");
    }
    assert_eq!(page.eval("document.querySelector('tr[aria-current]').cells[1].textContent")?, json!("bob"));
    assert_eq!(page.count("document.querySelectorAll('.beaten').length - 1")?, 1, "one beside the legend's");
    assert_eq!(page.eval("document.querySelector('.price').textContent")?, json!("+2 requests, 204 ms"));
    page.close()
}

#[test]
fn the_drawing_can_be_used_with_keys_and_read_aloud() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut page = open(&small().page(directory.path())?, 360, "light")?;
    assert_eq!(page.count("document.documentElement.scrollWidth")?, 360, "nothing sticks out of a phone");

    page.eval("document.getElementById('drawing').focus()")?;
    page.press("ArrowRight")?;
    page.press("ArrowRight")?;
    let focused = "document.activeElement.getAttribute('aria-label')";
    page.wait_for(&format!("{focused}?.includes('bob, update, pools/shared, 409 Conflict') ?? false"))?;
    page.press("+")?;
    page.wait_for(&format!("{ROWS} < 6"))?;
    assert!(page.eval(focused)?.as_str().is_some_and(|text| text.contains("bob")), "a zoom keeps the focus");
    page.press("0")?;
    page.wait_for(&format!("{ROWS} === 6"))?;

    let unnamed = "[...document.querySelectorAll('button, .spot, input')].filter((one) => \
                   !(one.getAttribute('aria-label') || one.textContent || one.closest('label')?.textContent)).length";
    assert_eq!(page.count(unnamed)?, 0, "everything that can be used has a name");
    assert_eq!(page.count("document.querySelectorAll('table > caption').length")?, 2);
    assert_eq!(page.count("document.querySelectorAll('main, header, h1').length")?, 3);
    let told = page.eval("document.getElementById('alternative').textContent")?;
    assert!(told.as_str().is_some_and(|text| text.contains("6 requests, 1 of them answered 409")), "{told}");
    page.close()
}

#[test]
fn phases_are_named_in_the_drawing_and_read_aloud() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let second = "2026-01-01T00:00:00";
    let phase = |name: &str, began: &str, ended: &str| -> Result<Phase> {
        let [began, ended] = [began, ended].map(|part| format!("{second}.{part}Z"));
        Ok(Phase { name: name.to_owned(), began: began.parse()?, ended: ended.parse()? })
    };
    let wanted = NamespacePage {
        logs: vec![ServerLog { path: small().written(directory.path())?, has_nodes: false }],
        namespaces: vec!["a".to_owned()],
        title: "phases",
        source: "a log",
        setup_user: "admin",
        phases: vec![phase("lazy", "000", "250")?, phase("guarded", "300", "504")?],
    };
    let written = timeline::page_of_namespaces(wanted, &directory.path().join("page.html"))?;
    let mut page = open(&written.path, 1400, "light")?;
    let names = page.eval("[...document.querySelectorAll('.phase text')].map((one) => one.textContent)")?;
    assert_eq!(names, json!(["lazy", "guarded"]));
    let told = page.eval("document.getElementById('alternative').textContent")?;
    assert!(told.as_str().is_some_and(|text| text.contains("lazy from +0.0 ms to +250.0 ms")), "{told}");
    page.close()
}

#[test]
fn thousands_of_requests_stay_drawable() -> Result<()> {
    let mut log = Log::default();
    for number in 0..4_000 {
        let user = format!("writer-{}", number % 30);
        let code = if number % 7 == 0 { 409 } else { 200 };
        log.add(number * 37, &user, "update", "shared", code, (number, number + 1));
    }
    let directory = tempfile::tempdir()?;
    let mut page = open(&log.page(directory.path())?, 1400, "light")?;
    assert_eq!(page.count("document.querySelectorAll('[data-group=writers] input:checked').length")?, 16);
    assert_eq!(page.count(ROWS)?, 100);
    let elements = page.count("document.querySelectorAll('#drawing *').length")?;
    assert!((1_000..20_000).contains(&elements), "{elements} elements");
    page.click("#more")?;
    page.wait_for(&format!("{ROWS} === 300"))?;
    page.click("[data-do=in]")?;
    page.wait_for("document.querySelector('#table caption').textContent.includes('stretch of time')")?;
    page.close()
}
