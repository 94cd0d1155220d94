//! A headless Chromium, driven through pipes with as much of the `DevTools` protocol as the tests need.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

/// Names that Chromium goes by.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// How long the browser may take for anything, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// Joins the pipes of the child to the descriptors that the browser reads and writes; `$0` is the browser.
const JOIN: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;

/// A page in a browser of its own. Dropping it ends the browser.
pub(crate) struct Page {
    browser: Child,
    sends: ChildStdin,
    hears: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// Exceptions, errors on the console, and requests to the network.
    complaints: Vec<String>,
    profile: tempfile::TempDir,
}

impl Page {
    /// Opens a file in a window of this width, in light or dark.
    pub(crate) fn open(file: &Path, width: u32, scheme: &str) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let mut browser = Command::new("sh")
            .args(["-c", JOIN])
            .arg(find()?)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--remote-debugging-pipe", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            // Its socket's directory is kept here too, where it goes with the profile.
            .env("TMPDIR", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start Chromium")?;
        let sends = browser.stdin.take().context("no pipe")?;
        let mut answers = BufReader::new(browser.stdout.take().context("no pipe")?);
        let (tells, hears) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if tells.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut page =
            Self { browser, sends, hears, session: None, number: 0, complaints: Vec::new(), profile };
        let target = page.call("Target.createTarget", &json!({"url": "about:blank"}))?["targetId"].clone();
        let attached = page.call("Target.attachToTarget", &json!({"targetId": target, "flatten": true}))?;
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), &json!({}))?;
        }
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        page.call("Emulation.setEmulatedMedia", &json!({"features": features}))?;
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        page.call("Emulation.setDeviceMetricsOverride", &size)?;
        page.call("Page.navigate", &json!({"url": format!("file://{}", file.display())}))?;
        page.wait_for("document.readyState === 'complete' && document.querySelectorAll('.spot').length > 0")?;
        Ok(page)
    }

    /// What a JavaScript expression gives.
    pub(crate) fn eval(&mut self, expression: &str) -> Result<Value> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &asked)?;
        ensure!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// A number that a JavaScript expression gives.
    pub(crate) fn count(&mut self, expression: &str) -> Result<u64> {
        let found = self.eval(expression)?;
        found.as_u64().with_context(|| format!("{expression} gives {found}"))
    }

    /// Waits until an expression is true: drawing happens with the next frame.
    pub(crate) fn wait_for(&mut self, expression: &str) -> Result<()> {
        let pause = Duration::from_millis(20);
        for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
            if self.eval(expression)? == json!(true) {
                return Ok(());
            }
            std::thread::sleep(pause);
        }
        bail!("not within {PATIENCE:?}: {expression}")
    }

    /// Clicks with the mouse on the middle of what a selector finds.
    pub(crate) fn click(&mut self, selector: &str) -> Result<()> {
        let script = format!(
            "(() => {{ const found = document.querySelector({selector:?}); found.scrollIntoView({{block: 'center'}}); \
             const box = found.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let at = self.eval(&script)?;
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let (buttons, clicks) = (u8::from(kind == "mousePressed"), u8::from(kind != "mouseMoved"));
            let event = json!({"type": kind, "x": at[0], "y": at[1], "button": if clicks > 0 { "left" } else { "none" },
                "buttons": buttons, "clickCount": clicks});
            self.call("Input.dispatchMouseEvent", &event)?;
        }
        Ok(())
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) -> Result<()> {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", &json!({"type": kind, "key": key}))?;
        }
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// When the page threw, wrote an error on its console, or asked the network for anything.
    pub(crate) fn close(mut self) -> Result<()> {
        self.eval("new Promise((done) => setTimeout(done, 50))")?;
        ensure!(self.complaints.is_empty(), "{}", self.complaints.join("\n"));
        Ok(())
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.sends.write_all(&bytes).context("Chromium has ended")?;
        loop {
            let answer =
                self.hears.recv_timeout(PATIENCE).with_context(|| format!("no answer to {method}"))?;
            if answer["id"] == json!(self.number) {
                if !answer["error"].is_null() {
                    bail!("{method}: {}", answer["error"]);
                }
                return Ok(answer["result"].clone());
            }
            self.listen(&answer);
        }
    }

    fn listen(&mut self, event: &Value) {
        let params = &event["params"];
        let is_wrong = match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => params["type"] == "error" || params["type"] == "warning",
            "Log.entryAdded" => params["entry"]["level"] == "error",
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                !url.starts_with("file:") && !url.starts_with("data:") && !url.starts_with("about:")
            }
            _ => false,
        };
        if is_wrong {
            self.complaints.push(event.to_string());
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.browser.kill().ok();
        self.browser.wait().ok();
        // Its children end a moment later, and write into the profile until then.
        let emptied =
            || std::fs::remove_dir_all(self.profile.path()).is_ok() || !self.profile.path().exists();
        for _ in 0..100 {
            if emptied() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The browser: the one that is named, or one of this machine, or Debian's, which root may install.
fn find() -> Result<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Ok(named.into());
    }
    let found = FOUND.get_or_init(|| installed().or_else(|| install().then(installed).flatten()));
    found.clone().context(
        "there is no Chromium to look at the page with; install one (apt-get install -y chromium), or name one: \
         CHROMIUM=/path/to/chromium",
    )
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .flat_map(|directory| NAMES.map(|name| directory.join(name)))
        .find(|program| program.is_file())
}

/// Whether Debian's package could be installed: as root, with apt.
fn install() -> bool {
    const SCRIPT: &str = "apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium";
    if !nix::unistd::geteuid().is_root() {
        return false;
    }
    eprintln!("installing Debian's Chromium, once: {SCRIPT}");
    let mut install = Command::new("sh");
    install.args(["-c", SCRIPT]).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    install.status().is_ok_and(|status| status.success())
}
