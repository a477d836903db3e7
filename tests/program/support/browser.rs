//! Chromium without a window, driven over the DevTools protocol: messages of JSON over two pipes, each ended by a zero.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::process::{Running, TIMEOUT};

/// Names the folder for screenshots; without it there are none.
const SCREENSHOTS: &str = "FOREBAY_TEST_SCREENSHOTS";

/// A browser with one tab.
pub(crate) struct Browser {
    orders: ChildStdin,
    messages: Receiver<Value>,
    /// Number of the last order.
    last: u64,
    session: Option<String>,
    /// Messages that are no answers, in their order.
    seen: VecDeque<Value>,
    _process: Running,
    _profile: TempDir,
}

impl Browser {
    /// Starts it, with a window of 1280 x 900 points, and opens this address.
    pub(crate) fn open(address: &str) -> Browser {
        let profile = TempDir::new().unwrap();
        // Chromium takes orders from descriptor 3 and answers to 4.
        let mut process = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null",
                "sh",
            ])
            .args(["--headless", "--remote-debugging-pipe", "--disable-gpu"])
            // It opens pages of the tests alone, and as root it has no sandbox.
            .args(["--no-sandbox", "--no-first-run", "--disable-dev-shm-usage"])
            .args(["--disable-background-networking", "--disable-sync"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (process.stdin.take().unwrap(), process.stdout.take());
        let stderr = process.stderr.take().unwrap();
        let (sender, messages) = channel();
        thread::spawn(move || {
            let ended = |bytes: &Vec<u8>| bytes.last() == Some(&0);
            let mut answers = BufReader::new(answers.unwrap());
            let mut bytes = Vec::new();
            while answers.read_until(0, &mut bytes).is_ok() && ended(&bytes) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
                bytes.clear();
            }
            // It has ended: the reason, such as that it is not installed.
            let mut why = String::new();
            let _ = BufReader::new(stderr).read_to_string(&mut why);
            let _ = sender.send(json!({ "ended": why }));
        });
        let mut browser = Browser {
            orders,
            messages,
            last: 0,
            session: None,
            seen: VecDeque::new(),
            _process: Running(process),
            _profile: profile,
        };
        let target = browser.order("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.order("Target.attachToTarget", attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.order(&format!("{domain}.enable"), json!({}));
        }
        browser.looks(1280, 900, "light");
        browser.order("Page.navigate", json!({ "url": address }));
        browser.until("document.readyState === 'complete'");
        browser
    }

    /// Gives an order, and returns its result.
    #[track_caller]
    pub(crate) fn order(&mut self, method: &str, parameters: Value) -> Value {
        match self.try_order(method, parameters) {
            Ok(result) => result,
            Err(problem) => panic!("{method}: {problem}"),
        }
    }

    fn try_order(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.last += 1;
        let mut order = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        let mut bytes = order.to_string().into_bytes();
        bytes.push(0);
        // If it has ended, the answer tells why.
        let _ = self.orders.write_all(&bytes);
        // The page goes on sending messages, whether the answer comes or not.
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut message = match self.messages.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => return Err("not within time".to_owned()),
                Err(RecvTimeoutError::Disconnected) => return Err("it has ended".to_owned()),
            };
            if let Some(why) = message.get("ended") {
                return Err(format!("chromium has ended: {why}"));
            }
            if message["id"] != self.last {
                self.seen.push_back(message);
                continue;
            }
            return match message.get("error") {
                Some(error) => Err(error.to_string()),
                None => Ok(message["result"].take()),
            };
        }
    }

    fn try_eval(&mut self, script: &str) -> Result<Value, String> {
        let parameters =
            json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let mut result = self.try_order("Runtime.evaluate", parameters)?;
        match result.get("exceptionDetails") {
            Some(exception) => Err(exception.to_string()),
            None => Ok(result["result"]["value"].take()),
        }
    }

    /// The value of a JavaScript expression in the page.
    #[track_caller]
    pub(crate) fn eval(&mut self, script: &str) -> Value {
        match self.try_eval(script) {
            Ok(value) => value,
            Err(problem) => panic!("{script}: {problem}"),
        }
    }

    /// Waits until a JavaScript expression in the page is true.
    #[track_caller]
    pub(crate) fn until(&mut self, condition: &str) {
        let script = format!(
            "new Promise((done) => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 20); look(); }})"
        );
        if let Err(problem) = self.try_eval(&script) {
            let shown = self.try_eval("document.body.innerText");
            panic!("{condition}: {problem}; the page: {shown:?}");
        }
    }

    /// Sets the size of the window in points, and the colours that its user prefers, `light` or `dark`.
    pub(crate) fn looks(&mut self, width: u32, height: u32, scheme: &str) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        self.order("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let media = json!({ "features": features });
        self.order("Emulation.setEmulatedMedia", media);
    }

    /// Presses a key such as `Tab` or `ArrowLeft`.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            "Escape" => (27, None),
            "ArrowLeft" => (37, None),
            "Home" => (36, None),
            "End" => (35, None),
            _ => panic!("no code for {key}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if let ("keyDown", Some(text)) = (kind, text) {
                event["text"] = json!(text);
            }
            self.order("Input.dispatchKeyEvent", event);
        }
    }

    /// Types text into the element that has the focus.
    pub(crate) fn types(&mut self, text: &str) {
        self.order("Input.insertText", json!({ "text": text }));
    }

    /// Requests of the page so far, their addresses.
    pub(crate) fn requests(&mut self) -> Vec<String> {
        // So that everything before it has arrived.
        self.eval("1");
        let sent = |one: &&Value| one["method"] == "Network.requestWillBeSent";
        let requests = self.seen.iter().filter(sent);
        requests
            .map(|one| one["params"]["request"]["url"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Asserts that the page has reached `address` alone, that nothing in it failed or was refused, and that it has
    /// opened no dialog of the browser.
    #[track_caller]
    pub(crate) fn is_well_behaved(&mut self, address: &str) {
        for request in self.requests() {
            assert!(request.starts_with(address), "{request}");
        }
        let complaints: Vec<_> = self.seen.iter().filter(|one| is_complaint(one)).collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }

    /// Keeps what is seen now in the folder that `FOREBAY_TEST_SCREENSHOTS` names, if it does.
    pub(crate) fn photograph(&mut self, name: &str) {
        let Some(folder) = std::env::var_os(SCREENSHOTS) else {
            return;
        };
        let shot = self.order("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = BASE64_STANDARD.decode(shot["data"].as_str().unwrap());
        fs::create_dir_all(&folder).unwrap();
        let path = PathBuf::from(folder).join(format!("{name}.png"));
        fs::write(path, bytes.unwrap()).unwrap();
    }
}

fn is_complaint(message: &Value) -> bool {
    let parameters = &message["params"];
    let bad = |level: &Value| level == "error" || level == "warning" || level == "assert";
    match message["method"].as_str() {
        Some("Runtime.exceptionThrown" | "Page.javascriptDialogOpening") => true,
        Some("Runtime.consoleAPICalled") => bad(&parameters["type"]),
        Some("Log.entryAdded") => bad(&parameters["entry"]["level"]),
        _ => false,
    }
}
