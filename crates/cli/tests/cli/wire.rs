//! The ledger of a trial between two hosts: each end counts only this trial's packets, and losses are named where they
//! happen.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStderr, Command, Stdio},
};

use serde_json::Value;
use sys::{
    netdev::{NapiPolling, NetdevSocket},
    rtnetlink::RouteSocket,
};
use testing::{Hosts, in_namespace};

use crate::{
    hosts::{receiver, send},
    support::{Recv, in_folder, linerate, own_folder, skip},
};

const ROOM: [&str; 2] = ["--receive-buffer", "32000000"];

/// The ledger's lines: place, host and packets.
fn lines(trial: &Value) -> Vec<(String, String, u64)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = trial["ledger"]["lines"].as_array().unwrap();
    lines
        .iter()
        .map(|line| (text(&line["place"]), text(&line["host"]), line["packets"].as_u64().unwrap()))
        .collect()
}

/// Sends 2000 packets from host A to host B; returns the trial.
fn trial(hosts: &Hosts, args: &[&str]) -> Value {
    let mut all = vec!["198.18.0.2", "--count", "2000", "--rate", "20kpps"];
    all.extend(args);
    let (_, run) = send(hosts, &all);
    let trial = run["end"]["trials"][0].clone();
    assert_eq!(trial["sent"], 2000, "{run}");
    trial
}

fn is(place: &str, host: &str, packets: u64) -> (String, String, u64) {
    (place.into(), host.into(), packets)
}

#[test]
fn losses_are_named_at_the_right_host() {
    let Some(hosts) = Hosts::join() else { return };
    let _receiver = receiver(&hosts, &ROOM);
    let quiet = trial(&hosts, &[]);
    assert_eq!(lines(&quiet), [], "{quiet:#}");
    assert_eq!((&quiet["wire"]["left"], &quiet["wire"]["seen"]), (&2000.into(), &2000.into()), "{quiet:#}");
    assert!(quiet["wire"]["cost_ns"].is_f64() && quiet["wire"]["doubts"].is_null(), "{quiet:#}");

    // The sender's queueing discipline.
    hosts.run(&hosts.a, "tc", "qdisc add dev va root tbf rate 4mbit burst 2000 limit 2000");
    let slow = trial(&hosts, &[]);
    hosts.run(&hosts.a, "tc", "qdisc del dev va root");
    let lost = 2000 - slow["delivered"].as_u64().unwrap();
    assert!(lost > 0);
    assert_eq!(lines(&slow), [is("qdisc full", "sender", lost)], "{slow:#}");
    assert_eq!(slow["wire"]["left"], slow["delivered"]);

    // The switch.
    hosts.run(&hosts.switch, "tc", "qdisc add dev sb root tbf rate 4mbit burst 2000 limit 2000");
    let lossy = trial(&hosts, &[]);
    hosts.run(&hosts.switch, "tc", "qdisc del dev sb root");
    let lost = 2000 - lossy["delivered"].as_u64().unwrap();
    assert!(lost > 0);
    assert_eq!(lines(&lossy), [is("between the hosts", "", lost)], "{lossy:#}");
    assert_eq!((&lossy["wire"]["left"], &lossy["wire"]["seen"]), (&2000.into(), &lossy["delivered"]));

    // The receiver's firewall.
    for words in [
        "add table inet loss",
        "add chain inet loss input { type filter hook input priority 0; }",
        "add rule inet loss input udp dport 4321 numgen inc mod 4 0 drop",
    ] {
        hosts.run(&hosts.b, "nft", words);
    }
    let refused = trial(&hosts, &[]);
    hosts.run(&hosts.b, "nft", "delete table inet loss");
    assert_eq!(lines(&refused), [is("firewall", "receiver", 500)], "{refused:#}");
    assert_eq!(refused["wire"]["seen"], 2000);
    for trial in [&slow, &lossy, &refused] {
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    }
}

/// Starts a sender on host A whose ledger has this value at its end.
struct Foreign(Child);

impl Foreign {
    /// Ten times the rate of the trial, to the same host.
    fn start(hosts: &Hosts, target: &str) -> Self {
        let args = ["send", target, "--no-handshake", "--rate", "20kpps", "--duration", "120s", "--no-save"];
        let mut command = linerate(&args);
        in_namespace(&mut command, &hosts.a);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn foreign_traffic_at_ten_times_the_rate_is_in_no_line() {
    let Some(hosts) = Hosts::join() else { return };
    let _receiver = receiver(&hosts, &ROOM);
    // To another port, and probe packets without a tag to the same one.
    let _foreign = [Foreign::start(&hosts, "198.18.0.2:9999"), Foreign::start(&hosts, "198.18.0.2:4321")];
    let slow = ["198.18.0.2", "--count", "1000", "--rate", "4kpps"];
    let exact = |run: &Value, left: u64, seen: u64| {
        let trial = &run["end"]["trials"][0];
        assert_eq!(
            (&trial["wire"]["left"], &trial["wire"]["seen"]),
            (&left.into(), &seen.into()),
            "{trial:#}"
        );
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
        trial.clone()
    };
    let (_, run) = send(&hosts, &slow);
    assert_eq!(lines(&exact(&run, 1000, 1000)), []);
    // Every fourth packet to the port is dropped, of all traffic; the line holds only this trial's.
    for words in [
        "add table inet loss",
        "add chain inet loss input { type filter hook input priority 0; }",
        "add rule inet loss input udp dport 4321 numgen inc mod 4 0 drop",
    ] {
        hosts.run(&hosts.b, "nft", words);
    }
    let (_, run) = send(&hosts, &slow);
    hosts.run(&hosts.b, "nft", "delete table inet loss");
    let trial = exact(&run, 1000, 1000);
    let lost = 1000 - trial["delivered"].as_u64().unwrap();
    assert_eq!(lines(&trial), [is("firewall", "receiver", lost)], "{trial:#}");
    // The same on the way between the hosts.
    for words in [
        "add table netdev loss",
        "add chain netdev loss here { type filter hook ingress device sa priority 0; }",
        "add rule netdev loss here udp dport 4321 numgen inc mod 4 0 drop",
    ] {
        hosts.run(&hosts.switch, "nft", words);
    }
    let (_, run) = send(&hosts, &slow);
    let trial = &run["end"]["trials"][0];
    let lost = 1000 - trial["delivered"].as_u64().unwrap();
    assert!(lost > 0);
    assert_eq!(lines(trial), [is("between the hosts", "", lost)], "{trial:#}");
}

#[test]
fn without_a_witness_nothing_is_attached_and_the_way_is_unknown() {
    let Some(hosts) = Hosts::join() else { return };
    let _receiver = receiver(&hosts, &ROOM);
    let trial = trial(&hosts, &["--no-witness"]);
    assert!(trial["wire"].is_null(), "{trial:#}");
    assert_eq!(trial["delivered"], 2000);
}

#[test]
fn losses_of_protocols_and_sockets_and_of_a_smaller_mtu_are_named_too() {
    let Some(hosts) = Hosts::join() else { return };
    // A socket whose reader is too slow.
    let slow = receiver(&hosts, &["--receive-buffer", "4096", "--work", "500us"]);
    let full = trial(&hosts, &[]);
    let lost = 2000 - full["delivered"].as_u64().unwrap();
    assert!(lost > 0);
    assert_eq!(lines(&full), [is("receive buffer full", "receiver", lost)], "{full:#}");
    drop(slow);
    let _receiver = receiver(&hosts, &ROOM);
    // IPsec's policies.
    let policy = "src 198.18.0.1 dst 198.18.0.2 proto udp dport 4321 dir in";
    hosts.ip(&hosts.b, &format!("xfrm policy add {policy} action block"));
    let blocked = trial(&hosts, &[]);
    hosts.ip(&hosts.b, &format!("xfrm policy delete {policy}"));
    assert_eq!(lines(&blocked), [is("IPsec", "receiver", 2000)], "{blocked:#}");
    assert_eq!(blocked["wire"]["seen"], 2000);
    // The far end of the sender's veth is narrower than the near one.
    hosts.ip(&hosts.switch, "link set sa mtu 1400");
    // The control connection still works.
    for (host, dev, last) in [(&hosts.a, "va", 1), (&hosts.b, "vb", 2)] {
        hosts.ip(host, &format!("route replace 198.18.0.0/24 dev {dev} src 198.18.0.{last} advmss 1200"));
    }
    let wide = trial(&hosts, &["--frame-size", "1500"]);
    hosts.ip(&hosts.switch, "link set sa mtu 1500");
    assert_eq!(lines(&wide), [is("larger than the peer's MTU", "sender", 2000)], "{wide:#}");
    assert_eq!((&wide["wire"]["left"], &wide["wire"]["seen"]), (&0.into(), &0.into()));
    for trial in [&full, &blocked, &wide] {
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
    }
}

#[test]
fn engines_at_the_driver_have_the_same_ledger() {
    let Some(hosts) = Hosts::join() else { return };
    hosts.give_switch_rings();
    let _receiver = receiver(&hosts, &["--allow-attach", ROOM[0], ROOM[1]]);
    for words in [
        "add table netdev loss",
        "add chain netdev loss here { type filter hook ingress device sa priority 0; }",
        "add rule netdev loss here udp dport 4321 numgen inc mod 4 0 drop",
    ] {
        hosts.run(&hosts.switch, "nft", words);
    }
    for (tx, rx) in [("packet", "packet"), ("xsk", "xsk"), ("xdp", "xdp"), ("packet+qdisc", "udp")] {
        let trial = trial(&hosts, &["--engine", tx, "--rx", rx]);
        assert_eq!(lines(&trial), [is("between the hosts", "", 500)], "{tx} → {rx}: {trial:#}");
        assert_eq!(trial["ledger"]["unexplained"], 0, "{tx} → {rx}: {trial:#}");
        assert_eq!(
            (&trial["wire"]["left"], &trial["wire"]["seen"]),
            (&2000.into(), &1500.into()),
            "{trial:#}"
        );
    }
}

/// Reads a child's standard error until a line begins with this.
fn until_it_says(child: &mut Child, begin: &str) -> BufReader<ChildStderr> {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.lines().last().is_some_and(|line| line.starts_with(begin)) {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    stderr
}

/// Another command's XDP program drops each packet at the receiver, and the ledger names it.
fn trial_under_a_foreign_program(hosts: &Hosts) -> Value {
    let folder = own_folder();
    let args = ["divert", "vb", "--match", "udp dst port 4321", "--drop", "all", "--for", "10m"];
    let mut command = linerate(&args);
    in_namespace(&mut command, &hosts.b).env("XDG_RUNTIME_DIR", &folder);
    let spawned = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut diverting = Foreign(spawned);
    let _said = until_it_says(&mut diverting.0, "diverting queue");
    let trial = trial(hosts, &[]);
    assert_eq!(lines(&trial), [is("XDP drop", "receiver", 2000)], "{trial:#}");
    trial
}

#[test]
fn drops_of_another_xdp_program_are_named_at_the_receiver() {
    let Some(hosts) = Hosts::join() else { return };
    let _receiver = receiver(&hosts, &ROOM);
    let trial = trial_under_a_foreign_program(&hosts);
    assert_eq!((&trial["delivered"], &trial["ledger"]["unexplained"]), (&0.into(), &0.into()), "{trial:#}");
}

/// A receiver without CAP_SYSLOG, to which the kernel does not show the addresses of its functions.
fn receiver_in_the_dark(hosts: &Hosts) -> Recv {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-syslog", "--inh-caps=-syslog", env!("CARGO_BIN_EXE_linerate")]);
    command.args(["recv", "--no-save"]).args(ROOM);
    in_namespace(in_folder(&mut command, own_folder()), &hosts.b).stdin(Stdio::null());
    Recv::listening(command)
}

#[test]
fn drops_are_named_where_the_kernel_hides_its_functions() {
    let Some(hosts) = Hosts::join() else { return };
    let _receiver = receiver_in_the_dark(&hosts);
    let trial = trial_under_a_foreign_program(&hosts);
    assert_eq!(trial["ledger"]["unexplained"], 0, "{trial:#}");
}

/// Polls the switch's port towards host A from a thread at idle priority, so that its ring overflows; `None` if this kernel
/// does not show or accept that.
fn starve_switch(hosts: &Hosts) -> Option<()> {
    hosts.give_switch_rings();
    let thread = hosts.switch.run(|| {
        let link = RouteSocket::open().ok()?.link_by_name("sa").ok()?;
        let mut netdev = NetdevSocket::open().ok()?;
        let polling = NapiPolling { threaded: Some(1), ..NapiPolling::default() };
        for napi in netdev.napis(link.index).ok()? {
            netdev.set_napi(napi.id, &polling).ok()?;
        }
        let threads: Vec<u32> = netdev
            .napis(link.index)
            .ok()?
            .iter()
            .filter_map(|napi| {
                napi.pin(0).ok()?;
                napi.thread
            })
            .collect();
        (!threads.is_empty()).then_some(threads)
    });
    for thread in thread.unwrap()? {
        hosts.run(&hosts.switch, "chrt", &format!("-i -p 0 {thread}"));
    }
    Some(())
}

#[test]
fn overflows_of_the_senders_ring_are_named_at_the_sender() {
    let Some(hosts) = Hosts::join() else { return };
    if starve_switch(&hosts).is_none() {
        return skip("NAPI threads by netlink need Linux 6.17");
    }
    let _receiver = receiver(&hosts, &ROOM);
    testing::repeat("the thread that empties the ring got a CPU in time", |_| {
        let args = ["198.18.0.2", "--count", "20000", "--engine", "xdp", "--cpus", "0"];
        let (_, run) = send(&hosts, &args);
        let trial = &run["end"]["trials"][0];
        assert_eq!(
            (&trial["sent"], &trial["ledger"]["unexplained"]),
            (&20_000.into(), &0.into()),
            "{trial:#}"
        );
        let refused = 20_000 - trial["wire"]["left"].as_u64().unwrap();
        if refused == 0 {
            return Err("every packet found room".into());
        }
        // A switch short of CPU time may also lose some of the others.
        let at_the_sender = lines(trial).into_iter().filter(|(_, host, _)| host == "sender");
        let expected = [is("XDP redirect failed", "sender", refused)];
        assert_eq!(at_the_sender.collect::<Vec<_>>(), expected, "{trial:#}");
        Ok(())
    });
}
