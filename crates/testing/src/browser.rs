//! A headless Chromium driven over its debugging pipe: NUL-ended JSON on descriptors 3 and 4.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::own_folder;

/// A browser that ends when this is dropped, or when a test exceeds its time.
pub struct Browser {
    child: Arc<Mutex<Child>>,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    _done: mpsc::Sender<()>,
    profile: PathBuf,
    session: Option<String>,
    sent: u64,
    events: Vec<Value>,
}

const AT_MOST: Duration = Duration::from_secs(240);

impl Browser {
    /// The Chromium of `CHROMIUM`, or of the search path.
    pub fn find() -> Option<PathBuf> {
        if let Some(named) = env::var_os("CHROMIUM") {
            return Some(named.into());
        }
        let path = env::var_os("PATH")?;
        let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
        env::split_paths(&path)
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .find(|file| file.is_file())
    }

    /// Starts it with one empty page.
    pub fn start(program: &Path) -> Self {
        let name = format!("chromium-{:?}", thread::current().id()).replace(['(', ')'], "");
        let profile = own_folder().join(name);
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"])
            .args(["--disable-quic", "--disable-component-update", "--disable-sync"])
            // the browser cannot resolve any name
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("piped")));
        let child = Arc::new(Mutex::new(child));
        let (done, dropped) = mpsc::channel::<()>();
        let watched = Arc::clone(&child);
        thread::spawn(move || {
            if dropped.recv_timeout(AT_MOST) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = watched.lock().expect("not poisoned").kill();
            }
        });
        let mut browser =
            Self { child, to, from, _done: done, profile, session: None, sent: 0, events: Vec::new() };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.command("Target.createTarget", json!({"url": "about:blank"}));
        let asked = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.command("Target.attachToTarget", asked);
        self.session = session["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.command(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Sends a command and waits for its answer; events on the way are kept.
    pub fn command(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let to = self.to.as_mut().expect("open until dropped");
        to.write_all(message.to_string().as_bytes())
            .and_then(|()| to.write_all(&[0]))
            .expect("a living browser");
        loop {
            let message = self.next(method);
            if message["id"] == json!(self.sent) {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn next(&mut self, waiting_for: &str) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).expect("a living browser");
        assert_eq!(message.pop(), Some(0), "the browser ended while {waiting_for} ran");
        serde_json::from_slice(&message).expect("JSON")
    }

    /// Gives the page this width and 900 pixels of height.
    pub fn resize(&mut self, width: u32) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.command("Emulation.setDeviceMetricsOverride", size);
    }

    /// Opens a file and waits until it is laid out.
    pub fn open(&mut self, file: &Path) {
        self.visit(&format!("file://{}", file.display()));
    }

    /// Opens an address and waits until it is laid out.
    pub fn visit(&mut self, url: &str) {
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        self.command("Page.navigate", json!({"url": url}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next("Page.navigate");
            self.events.push(event);
        }
    }

    /// Opens an address in another tab and closes that tab.
    pub fn visit_and_close(&mut self, url: &str) {
        let session = self.session.take();
        let tab = self.command("Target.createTarget", json!({"url": url}));
        self.command("Target.closeTarget", json!({"targetId": tab["targetId"]}));
        self.session = session;
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        let answer = self.command("Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Saves the whole page as an image.
    pub fn screenshot(&mut self, file: &Path) {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let image = self.command("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        fs::write(file, STANDARD.decode(image["data"].as_str().expect("an image")).expect("base64"))
            .expect("saved");
    }

    /// What the pages wrote to the console or log, and uncaught errors.
    pub fn complaints(&self) -> Vec<String> {
        let methods = ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"];
        let is_one = |event: &&Value| methods.iter().any(|method| event["method"] == *method);
        self.events.iter().filter(is_one).map(Value::to_string).collect()
    }

    /// Addresses that pages requested, other than files, data, and those that begin with `home`.
    pub fn requests_that_leave(&self, home: &str) -> Vec<String> {
        let asked = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        let urls = asked.filter_map(|event| event["params"]["request"]["url"].as_str());
        let mut seen = 0;
        let is_own = |url: &str| ["file:", "data:", home].iter().any(|start| url.starts_with(start));
        let leaving = urls.inspect(|_| seen += 1).filter(|url| !is_own(url));
        let leaving = leaving.map(String::from).collect();
        assert!(seen > 0, "the page's own requests were not seen, so that others would not be seen either");
        leaving
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // the end of its pipe ends the browser and its children
        drop(self.to.take());
        let mut rest = Vec::new();
        while self.from.read_until(0, &mut rest).is_ok_and(|read| read > 0) {
            rest.clear();
        }
        let _ = self.child.lock().map(|mut child| child.wait());
        let _ = fs::remove_dir_all(&self.profile);
    }
}
