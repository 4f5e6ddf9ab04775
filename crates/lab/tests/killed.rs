//! A lab leaves nothing behind, no matter when its process is killed.
//!
//! This executable starts itself again; the child creates one lab after another and sends traffic in it until it
//! is killed at a random moment.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::{Access, Lab, LabPlan};
use sys::capability::Capability;
use sys::netns::NetNs;
use sys::rtnetlink::RouteSocket;

mod support;

use support::{again, as_nobody, role, skipped};
use testing::wait_for;

/// Kills for each kind of user.
const ROUNDS: usize = 100;
/// About the time that the child needs to start and to use a few labs. Every second kill counts it from the
/// child's start, the others from its first lab, so that a slow machine has labs to kill too.
const LATEST_KILL: Duration = Duration::from_millis(60);
/// How long a child may wait for its first lab while the kernel tears down those of earlier children: once, on a shared
/// machine, it took more than 30 s.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    if let Some(role) = role() {
        return create_labs_until_killed(&role);
    }
    let seed = env::var("LINERATE_SEED").map_or_else(|_| from_the_clock(), |seed| seed.parse().unwrap());
    println!("LINERATE_SEED={seed}");
    let mut random = Random(seed | 1);
    let is_root = Capability::SysAdmin.held() && Capability::NetAdmin.held();
    if is_root {
        kill_many_times("root", &mut random, || again("root"));
    }
    let as_user = |role| {
        let mut command = again(role);
        if is_root {
            as_nobody(&mut command);
        }
        command
    };
    // A child finds out whether a user may have namespaces, because that changes the process.
    if !as_user("try").status().unwrap().success() {
        return skipped("a user without rights may not have network namespaces here");
    }
    kill_many_times("user", &mut random, || as_user("user"));
    ExitCode::SUCCESS
}

/// A child's report about a lab before it sends traffic in it.
#[derive(Debug, Clone)]
enum Trace {
    /// A namespace, by its inode and by its cookie: inodes are reused, cookies never.
    Namespace { inode: u64, cookie: u64 },
    /// A NAPI thread of the kernel, by its id and its unique name.
    KernelThread { pid: u32, name: String },
}

fn create_labs_until_killed(role: &str) -> ExitCode {
    let access = match lab::gain_access() {
        Ok(access) => access,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    assert_eq!(access == Access::Privileged, role == "root");
    if role == "try" {
        return ExitCode::SUCCESS;
    }
    let plans = [false, true].map(|threaded_napi| LabPlan { threaded_napi, ..LabPlan::default() });
    for plan in plans.iter().cycle() {
        let lab = Lab::create(plan).unwrap();
        report(&lab).unwrap();
        send_for(Duration::from_millis(3), &lab).unwrap();
    }
    unreachable!("it goes on until killed")
}

fn report(lab: &Lab) -> io::Result<()> {
    let mut lines = String::new();
    for side in [lab.tx(), lab.rx()] {
        let namespace = side.namespace();
        lines += &format!("namespace {} {}\n", namespace.inode()?, namespace.cookie()?);
        for napi in side.napis().unwrap() {
            lines += &format!("thread {} napi/{}-{}\n", napi.thread.unwrap(), side.interface(), napi.id);
        }
    }
    io::stdout().write_all(lines.as_bytes())
}

fn send_for(time: Duration, lab: &Lab) -> io::Result<()> {
    let target = lab.rx().run(|| UdpSocket::bind((lab.rx().ipv6()[0], 0))).unwrap()?;
    let address = target.local_addr()?;
    lab.tx()
        .run(|| {
            let source = UdpSocket::bind((lab.tx().ipv6()[0], 0))?;
            let end = Instant::now() + time;
            while Instant::now() < end {
                source.send_to(&[0; 32], address)?;
            }
            Ok(())
        })
        .unwrap()
}

fn kill_many_times(user: &str, random: &mut Random, command: impl Fn() -> Command) {
    let links_before = links_here();
    let mut traces = Vec::new();
    let mut without_a_lab = 0;
    for round in 0..ROUNDS {
        let from = [From::Start, From::FirstLab][round % 2];
        let seen = kill_after(random.up_to(LATEST_KILL), from, command());
        without_a_lab += usize::from(seen.is_empty());
        let namespaces = seen.iter().filter(|trace| matches!(trace, Trace::Namespace { .. }));
        let left: Vec<_> = namespaces.filter(|trace| is_left(trace)).collect();
        assert!(left.is_empty(), "still referenced after the kill: {left:?}");
        assert_eq!(links_here(), links_before);
        traces.extend(seen);
    }
    // The kernel ends a namespace some time after its last user; its NAPI threads show when.
    wait_for("every kernel thread of a lab to end", || !traces.iter().any(is_left));
    println!(
        "{user}: {ROUNDS} kills, {without_a_lab} of them before the first lab; {} namespaces and NAPI threads, \
         nothing left",
        traces.len()
    );
    assert!(traces.len() > ROUNDS / 2, "too few labs were ever alive to show anything");
}

/// The start of a delay.
#[derive(Clone, Copy)]
enum From {
    Start,
    FirstLab,
}

/// Starts a child, kills it at that moment, and returns its output until then.
fn kill_after(moment: Duration, from: From, mut command: Command) -> Vec<Trace> {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (said, hear) = channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reader = thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(said.send(line))));
    let mut traces = Vec::new();
    if let From::FirstLab = from {
        traces.extend(Trace::parse(&hear.recv_timeout(PATIENCE).unwrap()));
    }
    let deadline = Instant::now() + moment;
    loop {
        match hear.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => traces.extend(Trace::parse(&line)),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the child ended before the kill: {}", child.wait().unwrap())
            }
        }
    }
    kill(&mut child);
    reader.join().unwrap();
    traces.extend(hear.try_iter().filter_map(|line| Trace::parse(&line)));
    traces
}

fn kill(child: &mut Child) {
    use std::os::unix::process::ExitStatusExt;
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

impl Trace {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["namespace", inode, cookie] => {
                Some(Self::Namespace { inode: inode.parse().ok()?, cookie: cookie.parse().ok()? })
            }
            ["thread", pid, name] => {
                Some(Self::KernelThread { pid: pid.parse().ok()?, name: name.to_owned() })
            }
            _ => None,
        }
    }
}

/// Whether a process still uses the namespace, or the thread still runs.
fn is_left(trace: &Trace) -> bool {
    match trace {
        Trace::Namespace { inode, cookie } => {
            let link = format!("net:[{inode}]");
            namespace_links().any(|path| leads_to(&path, &link) && has_cookie(&path, *cookie))
        }
        Trace::KernelThread { pid, name } => {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|now| now.trim_end() == name)
        }
    }
}

/// Every reference to a namespace: each process's own, and its descriptors.
fn namespace_links() -> impl Iterator<Item = PathBuf> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let processes = entries(Path::new("/proc")).filter(|path| path.join("ns").exists());
    processes.flat_map(move |process| entries(&process.join("fd")).chain([process.join("ns/net")]))
}

fn leads_to(path: &Path, link: &str) -> bool {
    fs::read_link(path).is_ok_and(|target| target.as_os_str() == link)
}

/// If this user may not look, the inode must suffice; a namespace that is gone by now is not the one.
fn has_cookie(path: &Path, cookie: u64) -> bool {
    match NetNs::open(path).and_then(|namespace| namespace.cookie()) {
        Ok(found) => found == cookie,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn links_here() -> Vec<String> {
    RouteSocket::open().unwrap().links().unwrap().into_iter().map(|link| link.name).collect()
}

fn from_the_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Marsaglia's xorshift64: enough to choose moments.
struct Random(u64);

impl Random {
    fn up_to(&mut self, most: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        most.mul_f64(self.0 as f64 / u64::MAX as f64)
    }
}
