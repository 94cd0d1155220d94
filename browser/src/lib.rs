//! A headless Chromium for the tests of pages that have scripts, driven through pipes with as much of the `DevTools`
//! protocol as they need.

mod chromium;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

/// How long the browser may take for anything, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a page is watched before it is closed.
const MOMENT: Duration = Duration::from_millis(50);
/// Joins the pipes of the child to the descriptors that the browser reads and writes; `$0` is the browser.
const JOIN: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;

/// A page in a browser of its own. Dropping it ends the browser.
#[derive(Debug)]
pub struct Page {
    browser: Child,
    sends: ChildStdin,
    hears: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// Exceptions, errors on the console, and requests to the network.
    complaints: Vec<String>,
    profile: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// One browser at a time in a test program: several would take the machine from the tests beside them, whose operators then lose
/// their leases.
static TURN: Mutex<()> = Mutex::new(());

impl Page {
    /// Opens an address (`file:///…`) in a window of this width, in light or dark, and waits until it is loaded.
    pub fn open(address: &str, width: u32, scheme: &str) -> Result<Self> {
        let mut page = Self::start(width, scheme)?;
        page.visit(address)?;
        Ok(page)
    }

    /// The same, where the reader has turned scripts off: only those of the test run.
    pub fn open_without_scripts(address: &str, width: u32, scheme: &str) -> Result<Self> {
        let mut page = Self::start(width, scheme)?;
        page.call("Emulation.setScriptExecutionDisabled", &json!({"value": true}))?;
        page.visit(address)?;
        Ok(page)
    }

    /// An empty page.
    fn start(width: u32, scheme: &str) -> Result<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = tempfile::tempdir()?;
        let mut browser = Command::new("sh")
            .args(["-c", JOIN])
            .arg(chromium::find()?)
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
        let mut page = Self {
            browser,
            sends,
            hears,
            session: None,
            number: 0,
            complaints: Vec::new(),
            profile,
            _turn: turn,
        };
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
        Ok(page)
    }

    fn visit(&mut self, address: &str) -> Result<()> {
        let begun = self.call("Page.navigate", &json!({"url": address}))?;
        ensure!(begun["errorText"].is_null(), "{address}: {}", begun["errorText"]);
        // The page before it is complete, too.
        self.wait_for(&format!(
            "document.readyState === 'complete' && document.URL === new URL({}).href",
            json!(address)
        ))
    }

    /// The address of the page that is shown: another one after a link was followed.
    pub fn address(&mut self) -> Result<String> {
        // The browser answers, not the page, which may be on its way out.
        let target = self.call("Target.getTargetInfo", &json!({}))?;
        let shown = target["targetInfo"]["url"].as_str();
        shown.map(str::to_owned).with_context(|| format!("no address in {target}"))
    }

    /// What a JavaScript expression gives.
    pub fn eval(&mut self, expression: &str) -> Result<Value> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &asked)?;
        ensure!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// A number that a JavaScript expression gives.
    pub fn count(&mut self, expression: &str) -> Result<u64> {
        let found = self.eval(expression)?;
        found.as_u64().with_context(|| format!("{expression} gives {found}"))
    }

    /// Waits until an expression is true: drawing happens with the next frame.
    pub fn wait_for(&mut self, expression: &str) -> Result<()> {
        self.wait(expression, |page| Ok(page.eval(expression)? == json!(true)))
    }

    /// Waits until a page is shown whose address ends like this.
    pub fn wait_for_address(&mut self, end: &str) -> Result<()> {
        self.wait(end, |page| Ok(page.address()?.ends_with(end)))
    }

    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let pause = Duration::from_millis(20);
        for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
            if is_so(self)? {
                return Ok(());
            }
            std::thread::sleep(pause);
        }
        bail!("not within {PATIENCE:?}: {what}")
    }

    /// Clicks with the mouse on the middle of what a selector finds.
    pub fn click(&mut self, selector: &str) -> Result<()> {
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
    pub fn press(&mut self, key: &str) -> Result<()> {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", &json!({"type": kind, "key": key}))?;
        }
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// When the page threw, wrote an error on its console, or asked the network for anything.
    pub fn close(mut self) -> Result<()> {
        // For what it does a moment later. A timer of the page would not run where scripts are off.
        std::thread::sleep(MOMENT);
        self.eval("0")?;
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
