//! A server, agents and coordinators as a user starts them.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use testing::{own_folder, skip};

/// Longer than anything takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A linerate command with its files in the test's own folder.
pub(crate) fn linerate(args: &[&str]) -> Command {
    let folder = own_folder();
    let runtime = folder.join("run");
    fs::create_dir_all(&runtime).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(args).env("XDG_STATE_HOME", &folder).env("TMPDIR", &folder).env("XDG_RUNTIME_DIR", runtime);
    command.stdin(Stdio::null());
    command
}

/// Exit status, standard output and standard error.
pub(crate) fn run(args: &[&str]) -> (i32, String, String) {
    let output = linerate(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// The program, or a loud skip.
#[track_caller]
pub(crate) fn server_program() -> Option<PathBuf> {
    let found = fleet::find_server(Path::new("/nonexistent"));
    if found.is_none() {
        skip("nats-server is not installed: scripts/setup test");
    }
    found
}

/// A process that is killed on drop, with its lines of output.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, said: Vec::new() }
    }

    /// Waits until it prints a line with `text`.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error) => panic!("it never printed '{text}' ({error}): {:#?}", self.said),
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for its end; returns its status and all its output.
    pub(crate) fn finish(mut self) -> (i32, String) {
        let status = self.child.wait().unwrap().code().unwrap_or(-1);
        self.said.extend(self.lines.iter());
        (status, self.said.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap();
    assert!(status.success());
}

/// `fleet up`, ended by Ctrl-C.
pub(crate) struct Up {
    pub(crate) process: Process,
    pub(crate) url: String,
    /// Processes of the agents, by name.
    pub(crate) agents: Vec<(String, u32)>,
}

impl Up {
    /// As root; without, a loud skip.
    #[track_caller]
    pub(crate) fn start(agents: u32, more: &[&str]) -> Option<Self> {
        server_program()?;
        if !matches!(lab::gain_access(), Ok(lab::Access::Privileged)) {
            skip("a trial fleet's namespaces need root");
            return None;
        }
        let number = agents.to_string();
        let mut args = vec!["fleet", "up", "--port", "0", "--here", &number];
        args.extend(more);
        let mut process = Process::start(linerate(&args));
        let mut found = Vec::new();
        for _ in 0..agents {
            let line = process.wait_for(": process ");
            let (name, number) = line.split_once(": process ").unwrap();
            found.push((name.to_owned(), number.parse().unwrap()));
        }
        let line = process.wait_for("LINERATE_NATS=");
        let (_, url) = line.split_once("LINERATE_NATS=").unwrap();
        Some(Self { process, url: url.trim().into(), agents: found })
    }

    pub(crate) fn agent(&self, name: &str) -> u32 {
        self.agents.iter().find(|(other, _)| other == name).unwrap().1
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.process.signal("INT");
        self.process.child.wait().ok();
    }
}

/// A command in an agent's network namespace.
pub(crate) fn in_host(up: &Up, agent: &str, command: &[&str]) -> Command {
    let words = fs::read(format!("/proc/{}/cmdline", up.agent(agent))).unwrap();
    let words: Vec<&str> = words.split(|byte| *byte == 0).map(|word| str::from_utf8(word).unwrap()).collect();
    let at = words.iter().position(|word| *word == "--netns").unwrap();
    let mut inside = Command::new("nsenter");
    inside.arg(format!("--net={}", words[at + 1])).args(command);
    inside
}

/// The same with its files in the test's own folder.
pub(crate) fn with_files(mut command: Command) -> Command {
    let folder = own_folder();
    command.env("XDG_STATE_HOME", &folder).env("XDG_RUNTIME_DIR", folder.join("run"));
    command
}

/// A nats-server for one test, with its port and its configuration.
pub(crate) struct Nats {
    pub(crate) child: Child,
    pub(crate) port: u16,
    program: PathBuf,
    config: PathBuf,
}

impl Nats {
    #[track_caller]
    pub(crate) fn start(config: &str) -> Option<Self> {
        let program = server_program()?;
        // This port was free a moment ago; a server that is started again needs the same one.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = own_folder();
        let file = folder.join("nats.conf");
        let store = folder.join("store");
        // With an operator, a server with storage also requires a system account.
        let has_store = !config.contains("operator:");
        let stores = has_store.then(|| format!("jetstream {{ store_dir: \"{}\" }}", store.display()));
        let text = format!("listen: \"127.0.0.1:{port}\"\n{}\n{config}\n", stores.unwrap_or_default());
        fs::write(&file, text).unwrap();
        let mut nats = Self { child: Self::spawn(&program, &file), port, program, config: file };
        nats.wait();
        Some(nats)
    }

    fn spawn(program: &Path, config: &Path) -> Child {
        let mut command = Command::new(program);
        command.arg("-c").arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    fn wait(&mut self) {
        let port = self.port;
        testing::wait_for("nats-server", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn again(&mut self) {
        self.child = Self::spawn(&self.program, &self.config);
        self.wait();
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// An agent on loopback.
pub(crate) fn agent(url: &str, name: &str, role: &str, more: &[&str]) -> Process {
    let label = format!("role={role}");
    let mut args = vec!["agent", "--nats", url, "--name", name, "--label", &label, "--address", "127.0.0.1"];
    args.extend(more);
    let mut process = Process::start(linerate(&args));
    process.wait_for("is ready");
    process
}

/// A plan in a file.
pub(crate) fn plan(text: &str) -> String {
    let file = own_folder().join("plan.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A run's status, record and messages.
pub(crate) fn fleet_run(url: &str, text: &str, more: &[&str]) -> (i32, Value, String) {
    let file = plan(text);
    let mut args = vec!["fleet", "run", &file, "--nats", url, "--json", "--no-save"];
    args.extend(more);
    let (status, out, err) = run(&args);
    (status, serde_json::from_str(&out).unwrap_or(Value::Null), err)
}

/// Asserts that each due packet was sent or is the generator's shortfall, and that each sent packet was delivered or is on a
/// line of the ledger. Sending or reading too late on a busy machine is not a fault of the fleet.
#[track_caller]
pub(crate) fn whole(trial: &Value, due: u64, words: &str) {
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number in {trial:#}\n{words}"));
    let lines =
        trial["ledger"]["lines"].as_array().unwrap_or_else(|| panic!("no ledger in {trial:#}\n{words}"));
    let lost: u64 = lines.iter().map(|line| number(&line["packets"])).sum();
    let (sent, delivered) = (number(&trial["sent"]), number(&trial["delivered"]));
    assert!(delivered > 0, "{words}\n{trial:#}");
    assert_eq!(sent, delivered + lost, "{words}\n{trial:#}");
    assert_eq!(trial["ledger"]["unexplained"], 0, "{words}\n{trial:#}");
    assert_eq!(sent + number(&trial["receipt"]["shortfall"]), due, "{words}\n{trial:#}");
}
