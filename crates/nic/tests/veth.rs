//! Settings of real interfaces in the test's own namespace: changed, read back, restored.

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{PoisonError, RwLock},
};

mod support;

use nic::{Card, Readback, Session, SessionError, Setting, Settings, read_settings, restore, restore_killed};
use sys::{
    netns::NetNs,
    rtnetlink::{RouteSocket, VethEnd, VethPair, flag},
};

/// A child process has all descriptors until exec, including those that lock an interface.
static STARTS: RwLock<()> = RwLock::new(());

/// Runs `work` in a new namespace that has a veth pair `near` and `far`; skips loudly without the privilege.
fn with_veth(work: impl FnOnce() + Send) {
    let _nobody_starts = STARTS.read().unwrap_or_else(PoisonError::into_inner);
    in_namespace(work);
}

/// The same while no other test runs, for tests that start processes.
fn with_veth_alone(work: impl FnOnce() + Send) {
    let _alone = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    in_namespace(work);
}

fn in_namespace(work: impl FnOnce() + Send) {
    let Ok(namespace) = NetNs::create() else {
        return testing::skip("a namespace needs CAP_SYS_ADMIN");
    };
    let inside = namespace.try_clone().unwrap();
    namespace
        .run(move || {
            let mut route = RouteSocket::open().unwrap();
            let end = |name, last| VethEnd { name, mac: [2, 0, 0, 0, 0, last] };
            route
                .create_veth(&VethPair {
                    near: end("near", 1),
                    far: end("far", 2),
                    far_namespace: std::os::fd::AsFd::as_fd(&inside),
                    queues: 4,
                    mtu: 1500,
                })
                .unwrap();
            work();
        })
        .unwrap();
}

fn settings() -> Settings {
    read_settings(&mut Card::open("near").unwrap()).unwrap().settings
}

fn set(texts: &[&str]) -> Vec<Setting> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Settings of every kind that a veth has.
const MANY: [&str; 9] = [
    "link.mtu=1400",
    "link.tx-queue-len=77",
    "feature.rx-gro=on",
    "feature.tx-udp-segmentation=off",
    "rps.rx-0=0",
    "rfs.rx-1=64",
    "napi.gro-flush-timeout-ns=20000",
    "napi.defer-hard-irqs=2",
    "sysctl.net.ipv4.tcp_rmem=4096 65536 1048576",
];

#[test]
fn a_dropped_session_leaves_everything_as_it_was() {
    with_veth(|| {
        let state = tempfile::tempdir().unwrap();
        let before = settings();
        let mut session = Session::begin("near", state.path()).unwrap();
        let applied = session.apply(&set(&MANY)).unwrap();
        assert_eq!(applied.outcomes.len(), MANY.len());
        for outcome in &applied.outcomes {
            assert_eq!(outcome.verdict, Readback::Done, "{outcome:?}");
        }
        let during = settings();
        for text in MANY {
            let (name, value) = text.split_once('=').unwrap();
            assert_eq!(during[name], value, "{name}");
        }
        drop(session);
        assert_eq!(settings(), before);
        assert_eq!(journals(state.path()), 0);
    });
}

#[test]
fn what_is_kept_is_restored_to_the_very_first_state() {
    with_veth(|| {
        let state = tempfile::tempdir().unwrap();
        let before = settings();
        for text in ["link.mtu=1400", "link.mtu=1300", "feature.rx-gro=on"] {
            let mut session = Session::begin("near", state.path()).unwrap();
            session.apply(&set(&[text])).unwrap();
            session.keep().unwrap();
        }
        assert_eq!(settings()["link.mtu"], "1300");
        let restored = restore("near", state.path()).unwrap();
        assert_eq!((restored.changes.len(), restored.left.len()), (2, 0));
        let named: Vec<_> = restored.undone.iter().map(|saved| saved.settings.join(" ")).collect();
        assert_eq!(named, ["feature.rx-gro", "link.mtu", "link.mtu"], "newest first");
        assert!(restored.undone.iter().all(|saved| !saved.killed && saved.pid == std::process::id()));
        assert_eq!((settings(), journals(state.path())), (before, 0));
        let again = restore("near", state.path()).unwrap_err();
        assert_eq!(again.to_string(), "no saved settings for near");
    });
}

fn put_up() {
    for name in ["near", "far"] {
        let mut route = RouteSocket::open().unwrap();
        let index = route.link_by_name(name).unwrap().index;
        route.change_flags(index, flag::UP, flag::UP).unwrap();
    }
}

#[test]
fn what_needs_another_setting_is_undone_while_that_is_there() {
    with_veth(|| {
        put_up();
        let state = tempfile::tempdir().unwrap();
        let before = settings();
        // Without GRO a veth has no NAPI instance, and so no thread to change.
        for steps in [
            &[&["feature.rx-gro=on", "napi.threaded=on"][..]][..],
            &[&["feature.rx-gro=on"], &["napi.threaded=on"], &["feature.rx-gro=off"]],
        ] {
            for texts in steps {
                let mut session = Session::begin("near", state.path()).unwrap();
                session.apply(&set(texts)).unwrap();
                session.keep().unwrap();
            }
            assert_eq!(settings()["napi.threaded"], "on");
            let restored = restore("near", state.path()).unwrap();
            assert_eq!(restored.left, [], "{steps:?}");
            assert_eq!(restored.undone.len(), steps.len());
            assert_eq!(settings(), before, "{steps:?}");
        }
        // Both at once the other way round: no fixed order of kinds works for both.
        let mut session = Session::begin("near", state.path()).unwrap();
        session.apply(&set(&["feature.rx-gro=on", "napi.threaded=on"])).unwrap();
        let applied = session.apply(&set(&["feature.rx-gro=off", "napi.threaded=off"])).unwrap();
        assert!(applied.outcomes.iter().all(|outcome| outcome.verdict == Readback::Done), "{applied:?}");
        assert_eq!(settings(), before);
    });
}

#[test]
fn after_any_sequence_of_settings_everything_can_be_restored() {
    with_veth(|| {
        put_up();
        let table: [(&str, &[&str]); 12] = [
            ("link.mtu", &["1300", "1400"]),
            ("link.tx-queue-len", &["77", "1000"]),
            ("feature.rx-gro", &["on", "off"]),
            ("feature.tx-udp-segmentation", &["on", "off"]),
            ("channels.rx", &["1", "2", "4"]),
            ("channels.tx", &["1", "2", "4"]),
            ("rps.rx-0", &["0", "none"]),
            ("rfs.rx-1", &["64", "0"]),
            ("napi.threaded", &["on", "off"]),
            ("napi.rx-0.threaded", &["on", "off"]),
            ("napi.gro-flush-timeout-ns", &["20000", "0"]),
            ("napi.rx-1.defer-hard-irqs", &["2", "0"]),
        ];
        let seed = std::env::var("LINERATE_SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
        let kept = support::random_sequences("near", &table, 60, seed);
        assert!(kept > 60, "{kept} changes were kept");
    });
}

#[test]
fn a_second_session_is_refused_and_a_dropped_one_keeps_an_earlier_journal() {
    with_veth(|| {
        let state = tempfile::tempdir().unwrap();
        let mut first = Session::begin("near", state.path()).unwrap();
        first.apply(&set(&["link.mtu=1400"])).unwrap();
        let refused = [
            Session::begin("near", state.path()).map(|_| ()).unwrap_err(),
            restore("near", state.path()).map(|_| ()).unwrap_err(),
        ];
        for error in refused {
            let expected = format!("near is being changed by process {}", std::process::id());
            assert_eq!(error.to_string(), expected);
        }
        // Another interface is not locked.
        drop(Session::begin("far", state.path()).unwrap());
        first.keep().unwrap();
        let mut second = Session::begin("near", state.path()).unwrap();
        second.apply(&set(&["link.mtu=1200"])).unwrap();
        drop(second);
        assert_eq!(settings()["link.mtu"], "1400");
        restore("near", state.path()).unwrap();
        assert_eq!(settings()["link.mtu"], "1500");
    });
}

#[test]
fn a_refusal_in_the_middle_takes_everything_back() {
    with_veth(|| {
        let state = tempfile::tempdir().unwrap();
        let before = settings();
        let mut session = Session::begin("near", state.path()).unwrap();
        // The MTU changes first; no kernel has this CPU, so this change is refused.
        let error = session.apply(&set(&["link.mtu=1400", "rps.rx-0=8000"])).unwrap_err();
        let SessionError::RolledBack { cause, left } = &error else { panic!("{error}") };
        assert_eq!(cause.to_string(), "cannot set rps.rx-0 of near to 8000");
        assert_eq!(left.len(), 0);
        assert_eq!(settings(), before);
        drop(session);
        assert_eq!((settings(), journals(state.path())), (before, 0));
    });
}

#[test]
fn everything_wrong_is_said_at_once_and_nothing_changes() {
    with_veth(|| {
        let state = tempfile::tempdir().unwrap();
        let before = settings();
        let mut session = Session::begin("near", state.path()).unwrap();
        let wrong = [
            "link.mtu=1400",
            "ring.rx=512",
            "wings.span=3",
            "feature.rx-gro=maybe",
            "rps.rx-0=3-1",
            "rule.1=x",
            "rule.any=udp4 dst 10.0.0.7 queue 1",
            "context.new=equal:2",
        ];
        let SessionError::Problems { problems } = session.apply(&set(&wrong)).unwrap_err() else {
            panic!("problems are collected")
        };
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts[1..],
            [
                "unknown setting 'wings.span'",
                "feature.rx-gro cannot be 'maybe': write on or off",
                "rps.rx-0 cannot be '3-1': write a list like 0,2-3, or none",
                "rule.1 cannot be 'x': write a rule like 'udp4 dst 10.0.0.0/24 dst-port 53 queue 2' (or drop, or \
                 context N), or none",
                "near has no setting rule.any that can be changed",
                "near has no setting context.new that can be changed",
            ]
        );
        assert_eq!(texts[0], "near has no setting ring.rx that can be changed");
        assert_eq!((settings(), journals(state.path())), (before, 0));
    });
}

#[test]
fn an_interface_renamed_or_removed_midway_is_an_error_with_words() {
    with_veth_alone(|| {
        let state = tempfile::tempdir().unwrap();
        let mut session = Session::begin("near", state.path()).unwrap();
        session.apply(&set(&["link.mtu=1400"])).unwrap();
        let index = session.card().index();
        rename("near", "other");
        // Files and ioctls use the name: the card takes over the new one.
        session.apply(&set(&["feature.rx-gro=on"])).unwrap();
        drop(session);
        let restored = read_settings(&mut Card::open("other").unwrap()).unwrap().settings;
        assert_eq!(restored["link.mtu"], "1500");

        let mut session = Session::begin("other", state.path()).unwrap();
        session.apply(&set(&["link.mtu=1400"])).unwrap();
        RouteSocket::open().unwrap().delete_link(index).unwrap();
        let error = session.undo().unwrap_err().to_string();
        assert_eq!(error, format!("cannot read interface number {index}"));
    });
}

#[test]
fn what_a_killed_command_left_is_undone_without_what_a_finished_one_changed() {
    if support::be_a_victim() {
        return;
    }
    with_veth_alone(|| {
        let test = "what_a_killed_command_left_is_undone_without_what_a_finished_one_changed";
        let state = tempfile::tempdir().unwrap();
        let before = settings();
        let mut session = Session::begin("near", state.path()).unwrap();
        session.apply(&set(&["link.tx-queue-len=77"])).unwrap();
        session.keep().unwrap();
        let none = restore_killed("near", state.path()).unwrap_err();
        assert_eq!(none.to_string(), "no saved settings for near");
        let mut victim = halted_victim("near", state.path(), test, &["link.mtu=1400"]);
        let busy = restore_killed("near", state.path()).unwrap_err();
        assert_eq!(busy.to_string(), format!("near is being changed by process {}", victim.id()));
        victim.kill().unwrap();
        victim.wait().unwrap();

        let refused = Session::begin("near", state.path()).unwrap_err();
        let SessionError::Unfinished { owner: by, .. } = &refused else { panic!("{refused}") };
        assert_eq!(by.pid, victim.id());
        assert_eq!(refused.to_string(), format!("{by} ended without undoing its changes of near"));
        let restored = restore_killed("near", state.path()).unwrap();
        let texts: Vec<String> = restored.changes.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["link.mtu: 1400 -> 1500"]);
        assert_eq!((restored.undone.len(), restored.kept.len()), (1, 1));
        assert!(restored.undone[0].killed && restored.undone[0].pid == victim.id());
        assert!(!restored.kept[0].killed && restored.kept[0].pid == std::process::id());
        assert_eq!(settings()["link.tx-queue-len"], "77");
        restore("near", state.path()).unwrap();
        assert_eq!((settings(), journals(state.path())), (before, 0));
    });
}

#[test]
fn killed_at_any_moment_everything_can_be_restored() {
    if support::be_a_victim() {
        return;
    }
    with_veth_alone(|| {
        let test = "killed_at_any_moment_everything_can_be_restored";
        let changed = support::kill_and_restore("near", test, &MANY, 200);
        // The moments are before, during and after the change; some hit each phase.
        assert!((1..200).contains(&changed), "{changed} of 200 kills came while something was changed");
    });
}

fn rename(from: &str, to: &str) {
    let status = std::process::Command::new("ip").args(["link", "set", from, "name", to]).status().unwrap();
    assert!(status.success());
}

fn journals(state: &Path) -> usize {
    std::fs::read_dir(state.join("nic")).map_or(0, Iterator::count)
}

/// A process that has changed an interface and waits to be killed.
fn halted_victim(interface: &str, state: &Path, test: &str, settings: &[&str]) -> Child {
    let order = [&[interface, state.to_str().unwrap()], settings].concat().join("|");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(support::VICTIM, &order).env(support::HALTS, "1");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "changed"), "the other process failed");
    child
}
