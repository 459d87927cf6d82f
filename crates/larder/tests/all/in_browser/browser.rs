//! Chromium without a window, driven over two pipes: its debugging protocol is JSON, and a message ends in a
//! zero byte.
//!
//! The driver keeps all that the browser reports: lines of its console, requests, violations of a policy.

use larder_testkit::PATIENCE;
use larder_testkit::folder::Folder;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

/// The variable that names the folder for pictures; if it is not set, none are kept.
const PICTURES: &str = "LARDER_PAGE_PICTURES";

/// Only one browser runs at a time: two would be slow on a small machine.
static ALONE: Mutex<()> = Mutex::new(());

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last_id: u64,
    session: String,
    /// The events that the browser has sent.
    events: Vec<Value>,
    _folder: Folder,
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts a browser of this width and height with an empty page.
    pub fn start(width: u32, height: u32) -> Browser {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Folder::new("page");
        let mut command = Command::new("sh");
        // The debugging protocol uses descriptors 3 and 4.
        command.args(["-c", "exec chromium \"$@\" 3<&0 4>&1 1>/dev/null 2>&1", "sh"]);
        command.args([
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--no-first-run",
            "--disable-gpu",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
        ]);
        command.arg(format!("--user-data-dir={}", folder.display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh");
        let (to, out) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (tell, from) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut message = Vec::new();
            while out.read_until(0, &mut message).is_ok_and(|bytes| bytes > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if tell.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut browser = Browser {
            child,
            to,
            from,
            last_id: 0,
            session: String::new(),
            events: Vec::new(),
            _folder: folder,
            _alone: alone,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let violations = "self.violations = []; addEventListener('securitypolicyviolation', e => violations.push(e.violatedDirective + ' ' + e.blockedURI));";
        browser.begin_with(violations);
        browser.resize(width, height);
        browser
    }

    /// Calls a method of the browser; returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let told = self.from.recv_timeout(left).unwrap_or_else(|_| panic!("{method} is not answered"));
            if told["id"] == id {
                assert!(told["error"].is_null(), "{method}: {}", told["error"]);
                return told["result"].clone();
            }
            self.events.push(told);
        }
    }

    /// Has each page that is opened later run this script before its own.
    pub fn begin_with(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script }));
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Sets the preferences that the system reports, such as a dark theme.
    pub fn prefer(&mut self, features: &[(&str, &str)]) {
        let features: Vec<Value> =
            features.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.wait("document.readyState === 'complete'");
    }

    /// The value of an expression on the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let ask = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let told = self.call("Runtime.evaluate", ask);
        assert!(told["exceptionDetails"].is_null(), "{expression}: {}", told["exceptionDetails"]);
        told["result"]["value"].clone()
    }

    pub fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression}: {value}")).to_owned()
    }

    /// Waits until the expression is true.
    pub fn wait(&mut self, expression: &str) {
        let began = Instant::now();
        while self.value(expression) != true {
            assert!(
                began.elapsed() < PATIENCE,
                "never: {expression}; page: {}",
                self.value("document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Bytes of the page's heap after a garbage collection.
    pub fn heap_bytes(&mut self) -> f64 {
        self.call("Performance.enable", json!({}));
        self.call("HeapProfiler.collectGarbage", json!({}));
        let told = self.call("Performance.getMetrics", json!({}));
        let metrics = told["metrics"].as_array().expect("metrics");
        let heap = metrics.iter().find(|metric| metric["name"] == "JSHeapUsedSize");
        heap.and_then(|metric| metric["value"].as_f64()).unwrap_or_else(|| panic!("no heap: {told}"))
    }

    /// Presses and releases a key.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "Home" => 36,
            _ => panic!("{key} is not known"),
        };
        let mut event =
            json!({ "type": "rawKeyDown", "key": key, "code": key, "windowsVirtualKeyCode": code });
        if key == "Enter" {
            event["type"] = "keyDown".into();
            event["text"] = "\r".into();
        }
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = "keyUp".into();
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Keeps a picture of the whole page, if the variable is set.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os(PICTURES) else { return };
        let size =
            self.value("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]");
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let how = json!({ "captureBeyondViewport": true, "format": "png", "clip": clip });
        let told = self.call("Page.captureScreenshot", how);
        let bytes =
            base64::engine::general_purpose::STANDARD.decode(told["data"].as_str().expect("a picture"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = PathBuf::from(folder).join(format!("{name}.png"));
        std::fs::write(&path, bytes.expect("base64")).expect("a file");
    }

    /// Checks that the page has written nothing to its console, has broken no policy, and has sent requests
    /// only to its server. With `but_network` the browser's messages about a server that was gone are
    /// ignored.
    pub fn is_quiet(&mut self, origin: &str, but_network: bool) {
        // The browser reports all earlier events before it replies to this.
        assert_eq!(self.value("self.violations"), json!([]));
        let mut said = Vec::new();
        for event in &self.events {
            let (method, params) = (event["method"].as_str().unwrap_or_default(), &event["params"]);
            match method {
                "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" => said.push(event.to_string()),
                "Log.entryAdded" if !but_network || params["entry"]["source"] != "network" => {
                    said.push(event.to_string());
                }
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str().unwrap_or_default();
                    if !url.starts_with(origin) && !url.starts_with("data:") && url != "about:blank" {
                        said.push(format!("asked for {url}"));
                    }
                }
                _ => {}
            }
        }
        assert!(said.is_empty(), "{said:#?}");
    }
}
