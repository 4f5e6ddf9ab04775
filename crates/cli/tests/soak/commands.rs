//! What is run: commands of all kinds, in a place of their own.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use serde_json::Value;
use sys::netns::NetNs;
use testing::{Hosts, in_namespace};

use crate::faults::{Fault, Save};

/// Two hosts, and a folder with `run`, `state`, `saved`, and a small file system `full`.
pub(crate) struct Place {
    pub(crate) hosts: Hosts,
    pub(crate) folder: PathBuf,
}

/// Mounts that only the command and its children see. The exec keeps the process's id, for signals.
const INSIDE: &str =
    "mount --bind \"$0/run\" /run && mount -t tmpfs -o size=16k full \"$0/full\" && exec \"$@\"";

impl Place {
    /// Only root has one; `None` otherwise.
    pub(crate) fn new() -> Option<Self> {
        let hosts = Hosts::join()?;
        let folder = testing::own_folder();
        for part in ["run", "state", "saved", "full", "tmp"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        Some(Self { hosts, folder })
    }

    /// Restores what the last fault took.
    pub(crate) fn mend(&mut self) {
        let is_there = |host: &NetNs, name: &str| {
            let mut command = Command::new("ip");
            command.args(["link", "show", "dev", name]);
            in_namespace(&mut command, host).output().unwrap().status.success()
        };
        if !is_there(&self.hosts.a, "va") {
            self.hosts = Hosts::join().expect("root gets hosts again");
        }
    }

    pub(crate) fn command(&self, host: &NetNs, args: &[&str]) -> Command {
        let program = env::var("LINERATE_SOAK_PROGRAM");
        let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_linerate").into());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", INSIDE]).arg(&self.folder).arg(program).args(args);
        command.env("XDG_STATE_HOME", self.folder.join("state")).env("TMPDIR", self.folder.join("tmp"));
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        in_namespace(&mut command, host);
        command
    }
}

pub(crate) enum Job {
    /// A ladder in its own lab.
    Lab {
        tx: &'static str,
        rx: &'static str,
        sweep: bool,
    },
    /// A receiver on one host, a sender on the other.
    Pair {
        engine: &'static str,
        stats: &'static str,
    },
    /// A command on host A's interface.
    On(&'static [&'static str]),
    Model,
}

pub(crate) fn random_job(random: &mut Rng) -> Job {
    const ENGINES: [&str; 4] = ["udp", "packet", "xsk", "xdp"];
    const ON: [&[&str]; 7] = [
        &["ledger", "va", "--duration", "2s", "--json"],
        &["nic", "show", "va", "--json"],
        &["nic", "apply", "va", "--set", "feature.rx-gro=on", "--set", "napi.threaded=on"],
        &["nic", "apply", "va", "--set", "feature.tx-checksum-ip-generic=on"],
        &["nic", "restore"],
        &["divert", "va", "--match", "udp port 4321", "--drop", "udp", "--duration", "2s", "--json"],
        &["probe", "--json"],
    ];
    let engine = |random: &mut Rng| ENGINES[random.usize(0..ENGINES.len())];
    match random.u8(0..10) {
        0..4 => Job::Lab { tx: engine(random), rx: engine(random), sweep: random.bool() },
        4..7 => Job::Pair { engine: engine(random), stats: if random.bool() { "basic" } else { "counter" } },
        7..9 => Job::On(ON[random.usize(0..ON.len())]),
        _ => Job::Model,
    }
}

impl Job {
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Lab { tx, rx, sweep } => format!("bench {tx} → {rx}{}", if *sweep { " swept" } else { "" }),
            Self::Pair { engine, stats } => format!("send {engine} to recv --stats {stats}"),
            Self::On(args) => args.join(" "),
            Self::Model => "model".into(),
        }
    }

    pub(crate) fn start(&self, place: &Place, run: u32, save: Save) -> Running {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = |of: &str| {
            let folder = place.folder.join(if save == Save::Full { "full" } else { "saved" });
            folder.join(format!("{run}-{number}-{of}.json"))
        };
        let mut running = Running { processes: Vec::new(), is_lab: matches!(self, Self::Lab { .. }) };
        let mut start = |host: &NetNs, args: &[&str], saved: Option<PathBuf>| {
            let mut command = place.command(host, args);
            if let Some(saved) = &saved {
                command.arg("--save").arg(saved);
            }
            running.processes.push(Process::start(command, saved, &place.folder, number));
        };
        let host = &place.hosts;
        match self {
            Self::Lab { tx, rx, sweep } => {
                let mut args = vec!["bench", "--tx", tx, "--rx", rx, "--duration", "300ms", "--plain"];
                args.extend(if *sweep { &["--sweep", "frame-size=64,512"][..] } else { &[] });
                start(&host.a, &args, Some(name("bench")));
            }
            Self::Pair { engine, stats } => {
                let port = 5000 + number % 1000;
                let (at, to) = (format!("0.0.0.0:{port}"), format!("198.18.0.2:{port}"));
                start(
                    &host.b,
                    &["recv", &at, "--once", "--duration", "20s", "--stats", stats, "--plain"],
                    Some(name("recv")),
                );
                // The handshake is tried again by the sender's own patience.
                thread::sleep(Duration::from_millis(700));
                start(
                    &host.a,
                    &["send", &to, "--engine", engine, "--duration", "1s", "--rate", "5kpps", "--plain"],
                    Some(name("send")),
                );
            }
            Self::On(args) => start(&host.a, args, None),
            Self::Model => start(&host.a, &["model"], Some(name("model"))),
        }
        running
    }
}

pub(crate) struct Running {
    pub(crate) processes: Vec<Process>,
    is_lab: bool,
}

pub(crate) struct Process {
    pub(crate) child: Child,
    saved: Option<PathBuf>,
    output: PathBuf,
}

impl Process {
    fn start(mut command: Command, saved: Option<PathBuf>, folder: &Path, number: u32) -> Self {
        let part = saved
            .as_ref()
            .and_then(|file| file.file_stem())
            .map_or("on".into(), |stem| stem.to_string_lossy().into_owned());
        let output = folder.join(format!("output-{number}-{part}"));
        let file = File::create(&output).unwrap();
        let child =
            command.stdout(file.try_clone().unwrap()).stderr(file).spawn().expect("the command starts");
        Self { child, saved, output }
    }

    pub(crate) fn signal(&self, name: &str) {
        Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).output().unwrap();
    }

    fn wait(&mut self, at_most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + at_most;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Running {
    /// Waits for the end; what is wrong with it and with what it saved.
    pub(crate) fn faults(mut self, longest: Duration, fault: Fault) -> Vec<String> {
        let mut faults = Vec::new();
        for process in &mut self.processes {
            let status = process.wait(longest);
            let text = fs::read_to_string(&process.output).unwrap_or_default();
            let end = text.chars().rev().take(600).collect::<Vec<_>>().into_iter().rev().collect::<String>();
            match status {
                None => faults.push(format!("still runs after {longest:?}: {end}")),
                Some(status) if text.contains("panicked at") || status.code() == Some(101) => {
                    faults.push(format!("panics: {end}"));
                }
                Some(status) if status.code().is_none() && !fault.kills() => {
                    faults.push(format!("{status}: {end}"))
                }
                Some(status)
                    if fault == Fault::None && self.is_lab && status.code().is_some_and(|code| code > 1) =>
                {
                    faults.push(format!("{status}: {end}"));
                }
                Some(_) => {}
            }
            faults.extend(
                process.saved.as_ref().filter(|file| file.exists()).and_then(|file| wrong(file, self.is_lab)),
            );
            fs::remove_file(&process.output).ok();
        }
        faults
    }
}

/// What is wrong with a saved record.
fn wrong(file: &Path, is_lab: bool) -> Option<String> {
    let text = fs::read_to_string(file).unwrap();
    let run = match report::read_json(&text) {
        Ok(run) => run,
        Err(error) => return Some(format!("{}: {error}", file.display())),
    };
    let trials: Vec<Value> =
        run.end.trials.iter().map(|trial| serde_json::to_value(trial).unwrap()).collect();
    let open = |trial: &&Value| trial["ledger"]["unexplained"].as_i64().is_some_and(|packets| packets != 0);
    let residue = trials.iter().find(open).filter(|_| is_lab)?;
    Some(format!(
        "{} has a residue: {} sent, {} delivered, {}",
        file.display(),
        residue["sent"],
        residue["delivered"],
        residue["ledger"]
    ))
}
