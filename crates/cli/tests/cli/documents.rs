//! Runs each command of the documents as written, on host A, which has the documents' interfaces and addresses.

use std::{
    fs,
    os::{fd::AsFd, unix::fs::symlink},
    process::{Child, Command, Stdio},
    time::Duration,
};

use sys::rtnetlink::{RouteSocket, VethEnd, VethPair};
use testing::{Hosts, Shown, in_namespace, own_folder, repository, shown_commands};

use crate::{
    hosts::receiver,
    support::{in_folder, signal, wait},
};

/// Commands that are not run here, by their first words, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("make ", "make test runs this test; make build builds a release"),
    ("linerate lab vm", "needs an emulated machine: crates/cli/tests/vm"),
    ("linerate bench --exact", "needs an emulated machine: crates/cli/tests/vm"),
    ("linerate bench\0", "takes a minute: bench::the_whole_ladder"),
    ("linerate bench --tx udp,uring,uring+sqpoll", "takes a minute: bench::"),
    ("linerate bench 10gbe", "takes minutes"),
    ("linerate bench ndr", "takes minutes: search::"),
    ("linerate bench rdr", "simulates for a minute"),
    ("linerate bench single-rx-queue", "takes minutes: divert::"),
    ("linerate bench apu4d4", "needs a card with several queues: crates/cli/tests/vm"),
    ("linerate bench --tx-interface", "needs two cards"),
    ("linerate bench --peer ", "takes minutes: hosts::"),
    ("linerate tune\0", "takes minutes: tune::"),
    ("linerate tune --goal", "takes minutes: tune::"),
    ("linerate tune --tx", "takes minutes: tune::"),
    ("linerate tune --peer", "takes minutes: tune::"),
    ("linerate report 10gbe.json", "needs a run that takes minutes"),
    ("linerate report rdr.json", "needs a run that takes minutes"),
    ("linerate report ndr-udp.json", "needs a run that takes minutes"),
    ("linerate report tune.json", "needs a run that takes minutes"),
    ("linerate report apu4d4.json", "needs a run that takes minutes"),
    ("linerate nic apply", "a veth pair has neither rings nor RSS: nic::, crates/nic/tests/vm"),
    ("linerate nic restore", "needs changed settings: nic::"),
    ("linerate nic spread", "a veth pair has no RSS: nic::"),
    ("linerate send 192.0.2.7 --reflect", "needs a receiver that returns packets: stats::"),
    ("linerate recv status", "needs a running receiver: stats::"),
    ("linerate recv --engine xdp", "has a test of its own: stats::"),
    ("linerate divert eth0 --match 'udp and dst port 53' --queue 3", "needs a card with four queues: steer"),
    ("linerate divert status", "needs a running diversion: divert::"),
    ("linerate divert stop", "needs a running diversion: divert::"),
    ("kill ", "needs a running diversion: divert::"),
    ("linerate fleet ", "needs a server and agents: crates/cli/tests/fleet"),
    ("linerate agent ", "needs a server and a coordinator: crates/cli/tests/fleet"),
    ("sudo ", "needs a user who may become root"),
];

/// Commands that run until they are interrupted, or for ten seconds.
const ENDLESS: [&str; 5] =
    ["linerate recv", "linerate nic watch", "linerate ledger", "linerate divert eth0", "linerate send 192"];

fn begins(command: &str, with: &str) -> bool {
    match with.strip_suffix('\0') {
        Some(whole) => command.split('#').next().unwrap_or_default().trim_end() == whole,
        None => command.starts_with(with),
    }
}

/// The environment of the documents' commands: files in the working folder, interfaces, and receivers.
fn prepare(hosts: &Hosts) {
    let folder = own_folder();
    symlink(repository().join("packaging"), folder.join("packaging")).unwrap();
    fs::write(folder.join("rules.txt"), "drop udp and src net 203.0.113.0/24\n").unwrap();
    fs::write(folder.join("bad.txt"), "203.0.113.0/24\n2001:db8:bad::/48\n").unwrap();
    let second = VethPair {
        near: VethEnd { name: "sc", mac: [2, 0, 0, 0, 1, 3] },
        far: VethEnd { name: "eth1", mac: [2, 0, 0, 0, 0, 3] },
        far_namespace: hosts.a.as_fd(),
        queues: 4,
        mtu: 1500,
    };
    hosts.switch.run(|| RouteSocket::open().unwrap().create_veth(&second).unwrap()).unwrap();
    hosts.ip(&hosts.switch, "link set sc master sw");
    hosts.ip(&hosts.switch, "link set sc up");
    hosts.ip(&hosts.a, "link set eth1 up");
    hosts.ip(&hosts.a, "link set va down");
    hosts.ip(&hosts.a, "link set va name eth0");
    hosts.ip(&hosts.a, "link set eth0 up");
    for (host, interface, addresses) in [
        (&hosts.a, "eth0", &["192.0.2.2/24", "2001:db8::2/64 nodad"][..]),
        (&hosts.a, "eth1", &["192.0.2.3/24"]),
        (&hosts.b, "vb", &["192.0.2.7/24", "192.0.2.8/24", "2001:db8::7/64 nodad"]),
    ] {
        for address in addresses {
            let (address, flags) =
                address.split_once(' ').map_or((*address, ""), |(first, rest)| (first, rest));
            hosts.ip(host, format!("address add {address} dev {interface} {flags}").trim_end());
        }
    }
}

fn shell(hosts: &Hosts, command: &str) -> Command {
    let folder = own_folder();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_linerate")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    in_folder(&mut shell, folder.clone());
    // `exec` lets signals reach the command.
    shell.args(["-c", &format!("exec {command}")]).env("PATH", path).current_dir(folder).stdin(Stdio::null());
    in_namespace(&mut shell, &hosts.a);
    shell
}

/// Runs a command to its end; an endless one is interrupted after it had time to start.
fn run(hosts: &Hosts, command: &str) -> (Option<i32>, String) {
    let mut shell = shell(hosts, command);
    let log = own_folder().join("log");
    let file = fs::File::create(&log).unwrap();
    shell.stdout(file.try_clone().unwrap()).stderr(file);
    let mut child: Child = shell.spawn().unwrap();
    if ENDLESS.iter().any(|endless| begins(command, endless)) && !command.contains("--dry-run") {
        std::thread::sleep(Duration::from_millis(700));
        if child.try_wait().unwrap().is_none() {
            signal(&child, "INT");
        }
    }
    let status = wait(&mut child).code();
    (status, fs::read_to_string(&log).unwrap())
}

#[test]
fn every_command_of_the_documents_works_as_written() {
    let Some(hosts) = Hosts::join() else { return };
    prepare(&hosts);
    let networks = ["--allow", "192.0.2.0/24", "--allow", "2001:db8::/64", "--allow-attach"];
    let _receiver = receiver(&hosts, &networks);
    for file in ["RUN.json", "BASELINE.json", "OTHER.json", "DIR/1.json", "DIR/2.json"] {
        fs::create_dir_all(own_folder().join("DIR")).unwrap();
        let short = "linerate bench --tx udp --rx udp --rate 10kpps --trials 2 --duration 50ms --no-lossless";
        let (status, words) = run(&hosts, &format!("{short} --save {file}"));
        assert!(matches!(status, Some(0 | 1)), "{words}");
    }
    let (status, words) = run(&hosts, "linerate send --write-pcap recorded.pcap -n 10");
    assert!(matches!(status, Some(0 | 1)), "{words}");

    let is_run = |shown: &Shown| !ELSEWHERE.iter().any(|(with, _)| begins(&shown.command, with));
    let mut wrong = String::new();
    let mut done = 0;
    for shown in shown_commands().into_iter().filter(is_run) {
        let began = std::time::Instant::now();
        let (status, words) = run(&hosts, &shown.command);
        eprintln!("{:5.1} s, status {status:?}: {shown}", began.elapsed().as_secs_f64());
        // 1: a goal was missed, as on a busy machine. 3: `probe` lists an engine that this kernel lacks.
        match status {
            Some(0 | 1) => done += 1,
            Some(3) if shown.command.starts_with("linerate probe") => done += 1,
            _ => wrong.push_str(&format!("{shown}: {status:?}\n{words}\n")),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(done > 20, "{done} commands");
}

#[test]
fn every_exception_is_used() {
    let all = shown_commands();
    for (with, why) in ELSEWHERE {
        assert!(
            all.iter().any(|shown| begins(&shown.command, with)),
            "no command begins with '{with}' ({why})"
        );
    }
}
