//! A real browser without a window, driven over its pipes (the DevTools protocol).

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{Scratch, run, until};

pub(crate) struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: String,
    calls: u64,
    /// Requests of pages over the network.
    pub(crate) requested: Vec<String>,
    /// Exceptions and errors of pages.
    pub(crate) complaints: Vec<String>,
}

impl Browser {
    /// Opens a page in a window of this size.
    pub(crate) fn open(scratch: &Scratch, url: &str, size: (u32, u32)) -> Browser {
        let (to, from) = (scratch.text("to-browser"), scratch.text("from-browser"));
        run("mkfifo", &[&to, &from]);
        let profile = scratch.text("profile");
        let child = Command::new("sh")
            .args(["-c", "exec chromium --headless --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe --user-data-dir=\"$1\" about:blank 3<\"$2\" 4>\"$3\"", "sh", &profile, &to, &from])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(&to).unwrap();
        let from = BufReader::new(File::open(&from).unwrap());
        let mut browser = Browser {
            child,
            to,
            from,
            session: String::new(),
            calls: 0,
            requested: Vec::new(),
            complaints: Vec::new(),
        };
        let made = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": made["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", target);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let mobile = size.0 < 600;
        let screen =
            json!({ "width": size.0, "height": size.1, "deviceScaleFactor": 1, "mobile": mobile });
        browser.call("Emulation.setDeviceMetricsOverride", screen);
        browser.call("Page.navigate", json!({ "url": url }));
        browser
    }

    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                let url = parameters["request"]["url"].as_str().unwrap();
                self.requested.push(url.to_owned());
            }
            Some("Runtime.exceptionThrown") => self.complaints.push(parameters.to_string()),
            Some("Log.entryAdded") if parameters["entry"]["source"] != "network" => {
                self.complaints.push(parameters.to_string());
            }
            _ => {}
        }
    }

    /// The value of an expression on the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let wanted = json!({ "expression": expression, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", wanted);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].take()
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, what: &str, expression: &str) {
        until(what, || self.value(expression) == true);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its whole process group, which is its own.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}
