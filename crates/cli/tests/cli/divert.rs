//! `linerate divert` on a lab, as a user runs it.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabPlan};
use serde_json::Value;
use sys::rtnetlink::{RouteSocket, flag};

use crate::support::{is_root, linerate, own_folder, signal, skip, wait, words};

const PATIENCE: Duration = Duration::from_secs(60);
const FLOODED: u16 = 9;
const VALID: u16 = 10;

/// A lab, and a private folder for the sockets of running commands.
fn lab(test: &str) -> Option<(Lab, PathBuf)> {
    if !is_root() {
        skip("diverting needs root");
        return None;
    }
    let folder = own_folder().join(test);
    fs::create_dir_all(&folder).unwrap();
    let lab = Lab::create(&LabPlan { gro: true, ..LabPlan::default() }).unwrap();
    let loopback = || {
        let mut route = RouteSocket::open().unwrap();
        let loopback = route.link_by_name("lo").unwrap().index;
        route.change_flags(loopback, flag::UP, flag::UP).unwrap();
    };
    lab.rx().run(loopback).unwrap();
    Some((lab, folder))
}

/// A running diversion in the lab's receiving namespace; killed when dropped.
struct Running {
    child: Child,
    folder: PathBuf,
    /// What it has written to stderr since it started diverting.
    complaints: Arc<Mutex<String>>,
}

impl Running {
    /// Starts it, and returns once it diverts.
    fn start(lab: &Lab, folder: PathBuf, args: &[&str], environment: &[(&str, String)]) -> Self {
        let mut command = linerate(&["divert", lab.rx().interface()]);
        command.args(args).args(["--interval", "100ms", "--for", "10m"]);
        command.env("XDG_RUNTIME_DIR", &folder).envs(environment.iter().cloned());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = lab.rx().run(|| command.spawn()).unwrap().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        stderr.read_line(&mut said).unwrap();
        // Metrics are served before anything is diverted.
        if said.starts_with("metrics at ") {
            said.clear();
            stderr.read_line(&mut said).unwrap();
        }
        assert!(said.starts_with("diverting queue"), "{said}");
        // The pipe must be drained, or the diversion blocks.
        let complaints = Arc::new(Mutex::new(String::new()));
        let heard = complaints.clone();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *heard.lock().unwrap() += &format!("{line}\n");
            }
        });
        Self { child, folder, complaints }
    }

    /// Its messages, once these words are among them.
    fn complains(&self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.complaints.lock().unwrap().clone();
            if said.contains(words) {
                return said;
            }
            assert!(Instant::now() < deadline, "no {words} in: {said}");
            thread::yield_now();
        }
    }

    fn ask(&self, args: &[&str]) -> (i32, String, String) {
        let mut command: Command = linerate(&["divert"]);
        words(command.args(args).env("XDG_RUNTIME_DIR", &self.folder).output().unwrap())
    }

    /// Requests the status until it is as expected.
    fn status(&self, wanted: &str, met: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (status, out, err) = self.ask(&["status", "--json"]);
            assert_eq!(status, 0, "{err}");
            let found: Value = serde_json::from_str(&out).unwrap();
            if met(&found[0]) {
                return found[0].clone();
            }
            assert!(Instant::now() < deadline, "status is not {wanted}: {found:#}");
        }
    }

    /// Interrupts it; returns its output.
    fn end(self) -> String {
        signal(&self.child, "INT");
        self.ended()
    }

    /// Its output, after it ended successfully.
    fn ended(mut self) -> String {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert_eq!(wait(&mut self.child).code(), Some(0), "{out}");
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

fn send(lab: &Lab, port: u16, count: usize) {
    let target = (IpAddr::from(lab.rx().ipv4()[0]), port);
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        (0..count).for_each(|_| assert_eq!(socket.send_to(&[0; 18], target).unwrap(), 18));
    };
    lab.tx().run(send).unwrap();
}

/// Datagrams that reached the stack, where no socket listens.
fn delivered(lab: &Lab) -> u64 {
    lab.rx().net_counters().unwrap().value("UdpNoPorts").unwrap()
}

/// The metrics, once they contain these words.
fn page(lab: &Lab, address: SocketAddr, words: &str) -> String {
    let read = || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = lab.rx().run(read).unwrap();
        if page.contains(words) {
            return page;
        }
        assert!(Instant::now() < deadline, "no {words} in: {page}");
    }
}

/// Packets that passed while a busy machine did not let the command renew its deadline.
fn stale(status: &Value) -> u64 {
    let mut lines = status["ledger"]["lines"].as_array().unwrap().iter();
    let stale = lines.find(|line| line["place"] == "came after the queue's deadline");
    stale.map_or(0, |line| line["packets"].as_u64().unwrap())
}

/// Asserts that a rule dropped a flood and all else reached the stack, except what passed without a deadline.
fn drops_all_but_stale(lab: &Lab, status: &Value, flood: u64, valid: u64) {
    let passed = flood - packets(status, 0);
    assert!(passed <= stale(status), "{passed} packets of the flood passed: {status:#}");
    testing::wait_for("what passed", || delivered(lab) >= valid + passed);
    assert_eq!(delivered(lab), valid + passed, "{status:#}");
}

fn packets(status: &Value, rule: usize) -> u64 {
    status["rules"][rule]["packets"].as_u64().unwrap()
}

#[test]
fn rules_reload_without_a_gap_and_queues_change_while_it_runs() {
    let Some((lab, folder)) = lab("divert-rules") else { return };
    let rules = folder.join("rules.txt");
    let both = format!("drop udp dst port {FLOODED}\n");
    fs::write(&rules, &both).unwrap();
    let metrics = lab.rx().run(|| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()).unwrap();
    let running = Running::start(
        &lab,
        folder,
        &["--rules", rules.to_str().unwrap(), "--prometheus", &metrics.to_string()],
        &[],
    );
    send(&lab, FLOODED, 300);
    send(&lab, VALID, 200);
    let status = running.status("all packets", |status| status["ledger"]["arrived"] == 500);
    drops_all_but_stale(&lab, &status, 300, 200);
    assert_eq!(status["schema"], "linerate.divert/1");

    // Every rule set drops the flood, so none of it may reach the stack.
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let flooding = scope.spawn(|| {
            while !stop.load(Relaxed) {
                send(&lab, FLOODED, 100);
                sent.fetch_add(100, Relaxed);
            }
        });
        for round in 1..=3 {
            // The file is replaced atomically: a half-written file is not a rule set.
            let next = rules.with_extension("next");
            fs::write(&next, format!("{both}drop udp dst port {}\n", 1000 + round)).unwrap();
            fs::rename(&next, &rules).unwrap();
            running.status("the new rules", |status| status["reloads"] == round);
        }
        stop.store(true, Relaxed);
        flooding.join().unwrap();
    });
    let flood = 300 + sent.load(Relaxed);
    let status = running.status("the flood", |status| status["ledger"]["arrived"] == flood + 200);
    drops_all_but_stale(&lab, &status, flood, 200);
    assert_eq!(status["ledger"]["unexplained"], 0);

    assert_eq!(running.ask(&["remove-queue", "1"]).0, 0);
    let queues = |status: &Value| status["queues"].as_array().unwrap().len();
    running.status("one queue", |status| queues(status) == 1);
    let (status, _, err) = running.ask(&["remove-queue", "1"]);
    assert!(status == 4 && err.contains("queue 1"), "{err}");
    assert_eq!(running.ask(&["add-queue", "1"]).0, 0);
    running.status("both queues", |status| queues(status) == 2);
    let (_, shown, _) = running.ask(&["status"]);
    assert!(shown.contains("lab-rx in xdp, queue 0, 1") && shown.contains("arrived"), "{shown}");

    let page = page(&lab, metrics, "linerate_divert_arrived_packets_total{run=");
    assert!(page.contains("number=\"1\",rule=\"drop udp dst port 9\""), "{page}");

    // A mistake is reported with its line, and changes nothing.
    let next = rules.with_extension("next");
    fs::write(&next, format!("{both}drop dst prot 7\n")).unwrap();
    fs::rename(&next, &rules).unwrap();
    let told = running.complains("kept the old rules");
    assert!(told.contains(": line 2: cannot use the expression 'dst prot 7'"), "{told}");
    assert!(told.contains("did you mean 'port'?"), "{told}");
    let status = running.status("the old rules", |status| status["reloads"] == 3);
    assert_eq!(status["rules"][1]["rule"], "drop udp dst port 1003");

    // A second diversion is refused, and its plan reports that before anything changes.
    let mut second =
        linerate(&["divert", lab.rx().interface(), "--match", "tcp", "--drop", "all", "--dry-run"]);
    let (status, _, err) = words(lab.rx().run(|| second.output()).unwrap().unwrap());
    assert_eq!(status, 4, "{err}");
    assert!(err.contains("carries the XDP program 'divert'"), "{err}");
    assert!(
        err.contains("hint:  a diversion attached it; stop one of your own with linerate divert stop lab-rx"),
        "{err}"
    );

    // Without its last queue it diverts nothing; it then ends, and answers once everything is undone.
    for queue in ["0", "1"] {
        assert_eq!(running.ask(&["remove-queue", queue]).0, 0);
    }
    assert!(running.ask(&["status"]).1.starts_with("lab-rx in xdp, no queue, "));
    let (status, stopped, err) = running.ask(&["stop"]);
    assert_eq!(status, 0, "{err}");
    assert!(stopped.trim_end().ends_with("0  unexplained"), "{stopped}");
    let carries = || RouteSocket::open().unwrap().xdp_programs(lab.rx().index()).unwrap();
    assert_eq!(lab.rx().run(carries).unwrap(), [0u32; 0]);
    let last = running.ended();
    assert!(last.ends_with(&stopped), "{last}");
}

#[test]
fn only_the_ssh_session_that_started_it_is_exempt() {
    let Some((lab, folder)) = lab("divert-ssh") else { return };
    let listener = lab.rx().run(|| TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
    let target = SocketAddr::new(lab.rx().ipv4()[0].into(), listener.local_addr().unwrap().port());
    let mut session = lab.tx().run(|| TcpStream::connect(target)).unwrap().unwrap();
    let (mut server, client) = listener.accept().unwrap();
    session.set_read_timeout(Some(PATIENCE)).unwrap();
    let variable = format!("{} {} {} {}", client.ip(), client.port(), target.ip(), target.port());
    let running =
        Running::start(&lab, folder, &["--match", "tcp", "--drop", "all"], &[("SSH_CONNECTION", variable)]);
    for number in 0..50u8 {
        session.write_all(&[number]).unwrap();
        let mut got = [0];
        server.read_exact(&mut got).unwrap();
        server.write_all(&got).unwrap();
        session.read_exact(&mut got).unwrap();
        assert_eq!(got, [number]);
    }
    let other = lab.tx().run(|| TcpStream::connect_timeout(&target, Duration::from_millis(300))).unwrap();
    assert_eq!(other.unwrap_err().kind(), ErrorKind::TimedOut);
    let status = running.status("the other's packets", |status| packets(status, 0) > 0);
    let lines = status["ledger"]["lines"].as_array().unwrap();
    let excluded = lines.iter().find(|line| line["place"].as_str().unwrap().starts_with("management"));
    assert!(excluded.unwrap()["packets"].as_u64().unwrap() >= 50, "{status:#}");
    assert_eq!(status["ledger"]["unexplained"], 0);
    running.end();
}

#[test]
fn a_plan_shows_what_steers_other_packets_to_the_threads_cpu_and_the_program_s_cost() {
    let Some((lab, folder)) = lab("plan") else { return };
    let interface = lab.rx().interface();
    let told = |args: &[&str]| -> (String, Value) {
        let mut command = linerate(args);
        command.env("XDG_RUNTIME_DIR", &folder).env("XDG_STATE_HOME", &folder);
        let (status, out, err) = words(lab.rx().run(|| command.output()).unwrap().unwrap());
        assert_eq!(status, 0, "{out}{err}");
        (out.clone(), serde_json::from_str(&out).unwrap_or_default())
    };
    told(&["nic", "apply", interface, "--set", "rps.rx-0=0-1"]);
    let plan = [
        "divert",
        interface,
        "--match",
        "udp",
        "--drop",
        "udp port 9",
        "--where",
        "user",
        "--cpus",
        "0",
        "--dry-run",
    ];
    let (text, _) = told(&plan);
    assert!(text.contains("rps.rx-0 stays as it is"), "{text}");
    assert!(text.contains("the program takes ") && text.contains(" ns here for a packet"), "{text}");
    let (_, plan) = told(&[&plan[..], &["--steer", "--json"]].concat());
    assert_eq!(plan["plan"]["steering"]["settings"][0]["name"], "rps.rx-0", "{plan:#}");
    assert_eq!(plan["plan"]["steering"]["settings"][0]["value"], "1", "{plan:#}");
    assert!(plan["program_ns"].as_u64().is_some_and(|ns| ns < 100_000), "{plan:#}");
}

#[test]
fn a_diversion_ends_with_its_interface_and_reports_it() {
    let Some((lab, folder)) = lab("divert-gone") else { return };
    let mut running =
        Running::start(&lab, folder, &["--match", "udp", "--drop", "all", "--where", "user"], &[]);
    lab.rx().run(|| RouteSocket::open().unwrap().delete_link(lab.rx().index()).unwrap()).unwrap();
    assert_eq!(wait(&mut running.child).code(), Some(4));
    running.complains("lab-rx disappeared, which ended the diversion");
}

#[test]
fn a_recording_shows_which_rule_each_packet_meets() {
    let folder = own_folder();
    let (rules, pcap) = (folder.join("rules"), folder.join("packets.pcap"));
    fs::write(&rules, "drop udp and dst port 9\npass udp\n").unwrap();
    let mut writer = wire::PcapWriter::new(Vec::new()).unwrap();
    let udp = |port: u8| {
        let mut frame = [0; 60];
        (frame[12], frame[14], frame[23], frame[37]) = (8, 0x45, 17, port);
        frame
    };
    let mut arp = [0; 60];
    (arp[12], arp[13]) = (8, 6);
    for (time, frame) in [udp(9), udp(10), arp, [0; 60], udp(9)].iter().enumerate() {
        writer.write(time as u64, frame).unwrap();
    }
    fs::write(&pcap, writer.finish().unwrap()).unwrap();
    let run = |more: &[&str]| {
        let args = ["divert", "test", rules.to_str().unwrap(), "--pcap", pcap.to_str().unwrap()];
        words(linerate(&[&args[..], more].concat()).output().unwrap())
    };
    let (status, out, err) = run(&[]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert_eq!(
        out,
        "        1  rule 1: drop udp and dst port 9\n        2  rule 2: pass udp\n        \
         3  ARP or neighbour discovery: never diverted\n        4  no rule: left to the kernel\n        \
         5  rule 1: drop udp and dst port 9\n         packets              bytes  rule\n               \
         2                120  drop udp and dst port 9\n               1                 60  pass udp\n               \
         1                     no rule matches: left to the kernel\n               \
         1                     ARP or neighbour discovery: never diverted\n"
    );
    let (_, out, _) = run(&["--match", "port 10", "--json"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["rules"][1]["packets"], 1);
    assert_eq!(document["not_matched"], 3);
    assert_eq!(document["packets"][1]["rule"], 2);
    let (status, _, err) = run(&["--match", "udp["]);
    assert_eq!(status, 2, "{err}");
}

#[test]
fn a_shadow_counts_what_it_would_drop_and_the_kernel_gets_it() {
    let Some((lab, folder)) = lab("shadow") else { return };
    let interface = lab.rx().interface();
    let before = delivered(&lab);
    for place in [&["--where", "xdp"][..], &["--where", "user", "--reinject"]] {
        let args = ["divert", interface, "--match", "udp", "--drop", "udp dst port 9", "--shadow", "--json"];
        let mut command = linerate(&[&args[..], place].concat());
        command.env("XDG_RUNTIME_DIR", &folder).env("XDG_STATE_HOME", &folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = lab.rx().run(|| command.spawn()).unwrap().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with("diverting queue 0")));
        send(&lab, FLOODED, 50);
        let mut stop = linerate(&["divert", "stop"]);
        stop.env("XDG_RUNTIME_DIR", &folder);
        assert_eq!(words(lab.rx().run(|| stop.output()).unwrap().unwrap()).0, 0);
        let output = child.wait_with_output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(status["ledger"]["unexplained"], 0, "{status:#}");
        let lines = status["ledger"]["lines"].as_array().unwrap();
        assert!(lines.iter().all(|line| line["fate"] != "dropped"), "{status:#}");
        assert!(packets(&status, 0) + stale(&status) >= 50, "{status:#}");
        assert_eq!(status["queues"][0]["queue"], 0, "a diversion that ended has its queues: {status:#}");
        let zero_copy = &status["queues"][0]["zero_copy"];
        assert_eq!(zero_copy.is_null(), place.len() == 2, "{status:#}");
    }
    assert!(delivered(&lab) - before >= 100);
}

/// Notifications of the command to a service manager.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    heard: Vec<String>,
}

impl Manager {
    fn listening(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, path, heard: Vec::new() }
    }

    /// Waits for a notification with these words, and returns it.
    fn hears(&mut self, words: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let len = self
                .socket
                .recv(&mut bytes)
                .unwrap_or_else(|error| panic!("{words}: {error}: {:?}", self.heard));
            let message = String::from_utf8(bytes[..len].to_vec()).unwrap();
            self.heard.push(message.clone());
            if message.contains(words) {
                return message;
            }
        }
    }
}

#[test]
fn a_service_reloads_its_file_at_sighup_and_keeps_the_old_rules_after_a_mistake() {
    let Some((lab, folder)) = lab("divert-service") else { return };
    let config = folder.join("divert.toml");
    let write = |extra: &str, second: &str| {
        let text = format!(
            "interface = \"{}\"\n{extra}rules = [\"drop udp and dst port {FLOODED}\", {second}]\n",
            lab.rx().interface()
        );
        fs::write(&config, text).unwrap();
    };
    write("queue = \"0-1\"\n", "\"pass all\"");
    let mut manager = Manager::listening(&folder);
    let mut command = linerate(&["divert", "--config", config.to_str().unwrap(), "--for", "10m", "--json"]);
    command
        .env("XDG_RUNTIME_DIR", &folder)
        .env("NOTIFY_SOCKET", &manager.path)
        .env("WATCHDOG_USEC", "400000");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.rx().run(|| command.spawn()).unwrap().unwrap();
    let complaints = child.stderr.take().unwrap();
    let running = Running { child, folder, complaints: Arc::default() };
    manager.hears("READY=1\nSTATUS=diverting queue 0, 1");
    manager.hears("WATCHDOG=1");

    write("queue = \"0-1\"\n", &format!("\"drop udp and dst port {VALID}\""));
    signal(&running.child, "HUP");
    let reloading = manager.hears("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    manager.hears("READY=1\nSTATUS=reloaded rules from");
    send(&lab, VALID, 50);
    let status = running.status("the new rule", |status| packets(status, 1) + stale(status) >= 50);
    assert_eq!((status["reloads"].as_u64(), status["rejected_reloads"].as_u64()), (Some(1), Some(0)));

    // After a mistake, a fixed option that changed, or a missing file, the rules stay, and the manager receives the reason.
    let mistakes = [
        ("queue = \"0-1\"\n", "\"drop dst prot 7\"", "rule 'drop dst prot 7': cannot use the expression"),
        ("queue = \"0\"\n", "\"pass all\"", "cannot change 'queue' of a running diversion"),
    ];
    for (extra, second, why) in mistakes {
        write(extra, second);
        signal(&running.child, "HUP");
        manager.hears("RELOADING=1");
        let told = manager.hears("READY=1");
        assert!(told.contains("STATUS=kept the old rules: ") && told.contains(why), "{told}");
    }
    fs::remove_file(&config).unwrap();
    signal(&running.child, "HUP");
    manager.hears("STATUS=kept the old rules: cannot read");
    send(&lab, VALID, 50);
    let status = running.status("the old rules", |status| packets(status, 1) + stale(status) >= 100);
    assert_eq!((status["reloads"].as_u64(), status["rejected_reloads"].as_u64()), (Some(1), Some(3)));
    assert_eq!(status["rules"][1]["rule"], format!("drop udp and dst port {VALID}"));

    // The old rules still apply; after the end, packets go to the kernel.
    signal(&running.child, "TERM");
    manager.hears("STOPPING=1");
    let last: Value = serde_json::from_str(&running.ended()).unwrap();
    assert_eq!(last["ledger"]["unexplained"], 0, "{last:#}");
    drop(complaints);
}
