//! Real drivers in virtual machines: the guest runs this very program again, with the name of its part.

use std::{
    env, fs,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use lab::{NicModel, NicPair, Vm, VmError, VmPlan, VmStatus};
use nic::{
    Card, Prediction, Session, SessionError, Setting, Steering, Verdict, Verifier, card_interrupts,
    read_counters, read_queue_counts,
};
use sys::rtnetlink::{RouteSocket, flag};
use wire::FlowKey;

mod support;

/// In the guest's environment: the part to run.
const PART: &str = "NIC_TEST_PART";

/// How often a process is killed: `NIC_TEST_KILLS=200` takes about ten minutes.
fn kills() -> u32 {
    env::var("NIC_TEST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(24)
}

/// Runs a part of this file in a guest with these pairs; skips loudly where the packages are missing.
fn in_a_guest(part: &str, pairs: &[NicModel]) {
    let plan = VmPlan {
        pairs: pairs.iter().copied().map(NicPair::of).collect(),
        cpus: 4,
        memory_mib: 1536,
        time_limit: Duration::from_secs(180 + u64::from(kills()) * 6),
        ..VmPlan::default()
    };
    let vm = match Vm::prepare(&plan) {
        Ok(vm) => vm,
        Err(error @ VmError::NotThere { .. }) => {
            assert!(env::var_os("LINERATE_REQUIRE_ALL").is_none(), "{error}");
            return eprintln!("skipped: {error}; make test-nic downloads it");
        }
        Err(error) => panic!("{error}"),
    };
    let exe = env::current_exe().unwrap();
    let script = format!(
        "NIC_TEST_KILLS={} {PART}={part} RUST_BACKTRACE=0 {} --exact {part} --nocapture 2>&1",
        kills(),
        exe.display()
    );
    let outcome = vm.outcome(&script).unwrap();
    println!("{}", outcome.stdout);
    assert_eq!(outcome.status, VmStatus::Exited(0), "{}\n{}", outcome.stdout, outcome.stderr);
}

fn is_guest() -> bool {
    env::var_os(PART).is_some()
}

/// Puts both ends of pair `n` up and waits for their carriers.
fn up(n: u32) -> (Card, String) {
    let mut route = RouteSocket::open().unwrap();
    let names = [format!("pair{n}a"), format!("pair{n}b")];
    for file in ["all", "default"] {
        fs::write(format!("/proc/sys/net/ipv6/conf/{file}/disable_ipv6"), "1").ok();
    }
    for name in &names {
        let index = route.link_by_name(name).unwrap().index;
        route.change_flags(index, flag::UP, flag::UP).unwrap();
    }
    for name in &names {
        let index = route.link_by_name(name).unwrap().index;
        let deadline = Instant::now() + Duration::from_secs(15);
        assert!(route.wait_until_up(index, deadline).unwrap(), "{name} comes up");
    }
    let [a, b] = names;
    (Card::open(&a).unwrap(), b)
}

fn set(texts: &[&str]) -> Vec<Setting> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn flows(kind: &str, count: u16) -> Vec<FlowKey> {
    let end = |address: String, port: u16| SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
    let flow = |n: u16| {
        let (src, dst) = match kind {
            "addresses" => {
                (end(format!("198.18.{}.{}", n >> 8, n & 255), 9), end(format!("198.19.{}.1", n % 7), 9))
            }
            "ports" => (end("198.18.0.1".into(), 1024 + n), end("198.19.0.1".into(), 9 + n % 5)),
            _ => (end(format!("2001:2::{n:x}"), 1024 + n), end("2001:2:0:1::1".into(), 53)),
        };
        FlowKey::udp(src, dst).unwrap()
    };
    (0..count).map(flow).collect()
}

/// Every flow's predicted queue is where its packets are counted.
fn assert_predicted(card: &mut Card, via: &str, flows: &[FlowKey]) {
    let steering = Steering::read(card).unwrap();
    let mut verifier = Verifier::new(card, via, 1).unwrap();
    let before = read_queue_counts(card).unwrap();
    let mut expected = vec![0u64; before.rx.len()];
    for (flow, observed) in flows.iter().zip(verifier.observe_all(card, flows).unwrap()) {
        let Prediction { queue, .. } = steering.predict(flow).unwrap();
        assert_eq!(observed.queue, queue, "{flow}: {observed:?}");
        expected[queue.unwrap() as usize] += 1;
    }
    let after = read_queue_counts(card).unwrap();
    let grown: Vec<u64> =
        after.rx.iter().map(|(queue, count)| count.packets - before.rx[queue].packets).collect();
    assert_eq!(grown, expected, "and nothing else arrived");
}

#[test]
fn igb_flows_go_where_they_are_predicted() {
    if !is_guest() {
        return in_a_guest("igb_flows_go_where_they_are_predicted", &[NicModel::Igb]);
    }
    let (mut card, via) = up(1);
    let state = tempfile::tempdir().unwrap();
    let mut session = Session::begin(card.name(), state.path()).unwrap();
    let explicit = "rss.table=queues:3,1,2,0,0,2,1,3,3,3,1,0,2,2,0,1";
    let (equal, weights) = ("rss.table=equal:4", "rss.table=weights:0,1,0,3");
    for (fields, kind, tables) in [
        ("sd", "addresses", [equal, explicit]),
        ("sdfn", "ports", [equal, weights]),
        ("sdfn", "ipv6", [weights, explicit]),
    ] {
        for table in tables {
            let udp4 = format!("rss.fields.udp4={fields}");
            let udp6 = format!("rss.fields.udp6={fields}");
            session.apply(&set(&[table, &udp4, &udp6])).unwrap();
            let since = Instant::now();
            assert_predicted(&mut card, &via, &flows(kind, 1000));
            println!(
                "1000 flows by {kind}, {fields}, {table}: all predicted, {:.1} s",
                since.elapsed().as_secs_f64()
            );
        }
    }
}

#[test]
fn igb_does_what_is_set_and_the_page_says_what_it_made_of_it() {
    if !is_guest() {
        return in_a_guest("igb_does_what_is_set_and_the_page_says_what_it_made_of_it", &[NicModel::Igb]);
    }
    let (mut card, via) = up(1);
    let before = support::all_settings(card.name());
    let state = tempfile::tempdir().unwrap();
    let mut session = Session::begin(card.name(), state.path()).unwrap();
    for channels in ["1", "2", "8", "4"] {
        let applied = session.apply(&set(&[&format!("channels.combined={channels}")])).unwrap();
        assert!(applied.outcomes.iter().all(|outcome| outcome.verdict == Verdict::Done), "{applied:?}");
        assert_eq!(applied.link_is_up, (!applied.outcomes.is_empty()).then_some(true));
        let queues = read_queue_counts(&mut card).unwrap().rx.len();
        assert_eq!(queues.to_string(), channels);
    }
    // Fewer channels than a table that was set by hand names.
    session.apply(&set(&["rss.table=weights:0,1,0,3"])).unwrap();
    session.apply(&set(&["channels.combined=2", "rss.table=weights:1,3"])).unwrap();
    assert_eq!(support::all_settings(card.name())["rss.table"].matches('1').count(), 96);
    session.apply(&set(&["channels.combined=4"])).unwrap();

    let applied = session.apply(&set(&["ring.rx=100", "ring.tx=4096"])).unwrap();
    let said: Vec<_> =
        applied.outcomes.iter().map(|outcome| (outcome.now.as_deref(), outcome.verdict)).collect();
    assert_eq!(said, [(Some("104"), Verdict::Rounded), (Some("4096"), Verdict::Done)]);

    for usecs in [0u64, 3, 50, 1000] {
        session.apply(&set(&[&format!("coalesce.rx-usecs={usecs}")])).unwrap();
        interrupts_are_as_moderated(&mut card, &via, usecs);
    }

    for (wrong, words) in [
        ("ring.rx=8192", "ring.rx cannot be '8192': write a number up to 4096"),
        ("channels.combined=16", "channels.combined cannot be '16': write a number up to 8"),
        ("coalesce.rx-frames=4", "pair1a has no setting coalesce.rx-frames that can be changed"),
        ("rss.key=6d:5a", "pair1a has no setting rss.key that can be changed"),
    ] {
        let Err(SessionError::Problems { problems }) = session.apply(&set(&[wrong])) else {
            panic!("{wrong}")
        };
        assert_eq!(problems[0].to_string(), words);
    }
    let rule = "rule.any=udp4 dst 198.19.0.1 dst-port 53 queue 2";
    let refused = session.apply(&set(&["coalesce.rx-usecs=20", rule])).unwrap_err();
    let SessionError::RolledBack { cause, left } = &refused else { panic!("{refused}") };
    assert!(cause.to_string().starts_with("cannot set rule.any of pair1a to udp4 dst"), "{cause}");
    assert_eq!(left.len(), 0);
    assert_eq!(support::all_settings(card.name())["coalesce.rx-usecs"], "1000");
    let busy = Session::begin(card.name(), state.path()).unwrap_err().to_string();
    assert_eq!(busy, format!("pair1a is being changed by process {}", std::process::id()));
    let undone = session.undo().unwrap();
    assert_eq!(undone.left, []);
    assert_eq!(support::all_settings(card.name()), before);
}

/// With µs of moderation no more than one interrupt each; without, a packet that comes alone has one of its own.
fn interrupts_are_as_moderated(card: &mut Card, via: &str, usecs: u64) {
    const LONE_PACKETS: u64 = 50;
    const BURSTS: u64 = 100;
    let total = |card: &Card| -> u64 {
        let interrupts = card_interrupts(card).unwrap();
        interrupts.iter().filter(|one| one.rx_queue.is_some()).map(|one| one.total()).sum()
    };
    let flow = flows("ports", 1)[0];
    let (packets, rounds) = if usecs == 0 { (1, LONE_PACKETS) } else { (32, BURSTS) };
    let mut verifier = Verifier::new(card, via, packets).unwrap();
    let (start, before) = (Instant::now(), total(card));
    for _ in 0..rounds {
        let observed = verifier.observe(card, &flow).unwrap();
        assert_eq!(observed.counted, u64::from(packets));
    }
    let (elapsed, fired) = (start.elapsed(), total(card) - before);
    println!(
        "rx-usecs {usecs}: {} packets, {fired} interrupts in {:.2} s",
        rounds * u64::from(packets),
        elapsed.as_secs_f64()
    );
    match (elapsed.as_micros() as u64).checked_div(usecs) {
        None => {
            assert!(fired >= LONE_PACKETS, "{fired} interrupts for {LONE_PACKETS} packets that came alone")
        }
        Some(most) => {
            assert!(fired <= most + rounds, "{fired} interrupts in {elapsed:?} at {usecs} µs");
            let sent = rounds * u64::from(packets);
            assert!(fired < sent, "{fired} interrupts for {sent} packets");
        }
    }
}

#[test]
fn igb_killed_at_any_moment_is_restored() {
    if support::be_a_victim() {
        return;
    }
    if !is_guest() {
        return in_a_guest("igb_killed_at_any_moment_is_restored", &[NicModel::Igb]);
    }
    let (card, _) = up(1);
    let test = "igb_killed_at_any_moment_is_restored";
    // A reset takes its time; settings that need none are killed in between more often.
    let light = [
        "coalesce.rx-usecs=50",
        "rss.fields.udp4=sdfn",
        "rss.table=weights:0,1,0,3",
        "rps.rx-2=0-3",
        "irq.pair1a-rx-1=2",
        "napi.defer-hard-irqs=5",
        "sysctl.net.core.netdev_budget=600",
    ];
    let heavy = [&["link.mtu=1400", "feature.rx-gro=off", "channels.combined=2", "ring.rx=512"], &light[..2]]
        .concat();
    let since = Instant::now();
    let changed = [
        support::kill_and_restore(card.name(), test, &light, kills() - kills() / 4),
        support::kill_and_restore(card.name(), test, &heavy, kills() / 4),
    ];
    println!(
        "200 kills, {changed:?} of them while something was changed, {:.0} s",
        since.elapsed().as_secs_f64()
    );
    assert!(changed.iter().all(|changed| *changed > 0), "{changed:?}");
}

#[test]
fn other_drivers_say_what_they_lack_and_e1000_counts_what_it_missed() {
    let pairs = [NicModel::E1000, NicModel::E1000e, NicModel::Vmxnet3, NicModel::Virtio];
    if !is_guest() {
        return in_a_guest("other_drivers_say_what_they_lack_and_e1000_counts_what_it_missed", &pairs);
    }
    let state = tempfile::tempdir().unwrap();
    let lacks = |n: u32, texts: &[&str]| {
        let mut session = Session::begin(&format!("pair{n}a"), state.path()).unwrap();
        for text in texts {
            let Err(SessionError::Problems { problems }) = session.apply(&set(&[text])) else {
                panic!("{text}")
            };
            let name = text.split_once('=').unwrap().0;
            assert_eq!(
                problems[0].to_string(),
                format!("pair{n}a has no setting {name} that can be changed")
            );
        }
        session
    };
    let (mut e1000, via) = up(1);
    lacks(1, &["channels.combined=1", "coalesce.rx-usecs=3", "rss.table=equal:1", "rss.key=6d"]);
    lacks(2, &["channels.combined=1", "rss.table=equal:1"]);
    let (vmxnet3, _) = up(3);
    let mut session = lacks(3, &["coalesce.rx-usecs=3", "pause.rx=on"]);
    let refused = session.apply(&set(&["channels.combined=2"])).unwrap_err().to_string();
    assert!(
        refused.contains("cannot set channels.combined of pair3a to 2; everything is as it was"),
        "{refused}"
    );
    let applied = session.apply(&set(&["ring.rx=100"])).unwrap();
    assert_eq!(
        (applied.outcomes[0].now.as_deref(), applied.outcomes[0].verdict),
        (Some("128"), Verdict::Rounded)
    );
    drop(session);
    drop(vmxnet3);
    up(4);
    let mut session = lacks(4, &["pause.rx=on"]);
    let accepted = session.apply(&set(&["coalesce.adaptive-rx=on"]));
    match accepted {
        Ok(applied) => assert_eq!(applied.outcomes[0].verdict, Verdict::Ignored, "{applied:?}"),
        Err(error) => assert!(error.to_string().contains("everything is as it was"), "{error}"),
    }

    // Every packet that was sent was received or missed, exactly.
    let before = read_counters(&mut e1000).unwrap();
    let mut verifier = Verifier::new(&mut e1000, &via, 1).unwrap();
    let flow = flows("ports", 1)[0];
    let sent = verifier.flood(&flow, 20_000).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let (received, missed) = loop {
        let after = read_counters(&mut e1000).unwrap();
        let grown = |name: &str| after[name] - before[name];
        // QEMU's counter of missed packets is not cleared when it is read: only the first reading after is exact.
        let (received, missed) = (grown("rx_packets"), grown("rx_missed_errors"));
        if received + missed >= sent || Instant::now() > deadline {
            break (received, missed);
        }
    };
    println!("e1000: {sent} sent, {received} received, {missed} missed");
    assert_eq!(received + missed, sent);
}
