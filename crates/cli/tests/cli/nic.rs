//! `linerate nic` as a user meets it.

use std::process::Command;

use crate::support::{as_nobody, is_root, json, linerate, run, skip, words};

const KEY: &str = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

#[test]
fn flows_go_where_microsofts_vectors_say() {
    for (src, dst, fields, hash) in [
        ("66.9.149.187:2794", "161.142.100.80:1766", "sdfn", 0x51cc_c178_u32),
        ("66.9.149.187", "161.142.100.80", "sd", 0x323e_8fc2),
        ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", "sdfn", 0x4020_7d3d),
        ("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", "sd", 0x2cc1_8cd5),
    ] {
        let args = [
            "nic", "flow", "--key", KEY, "--table", "equal:4", "--fields", fields, "--src", src, "--dst", dst,
        ];
        let (status, value) = json(&[&args[..], &["--json"]].concat());
        assert_eq!(status, 0);
        assert_eq!(value["hash"], hash);
        assert_eq!(value["hash_hex"], format!("{hash:08x}"));
        assert_eq!(value["bucket"], hash & 127);
        assert_eq!(value["queue"], hash & 127 & 3);
        let (_, text, _) = run(&args);
        assert!(text.contains(&format!("{hash:08x}")), "{text}");
    }
}

#[test]
fn the_page_of_the_loopback_says_what_it_does_not_have() {
    let (status, text, err) = run(&["nic", "show", "lo", "--interval", "1ms"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(text.contains("ring            not supported by this driver"), "{text}");
    let (status, value) = json(&["nic", "show", "lo", "--interval", "1ms", "--json"]);
    assert_eq!(status, 0);
    assert_eq!(value["absent"]["ring"], "not supported by this driver");
    assert_eq!(value["settings"]["link.mtu"], value["link"]["mtu_bytes"].to_string());
}

#[test]
fn a_user_without_rights_may_look_and_not_change() {
    if !is_root() {
        return skip("only root becomes somebody else");
    }
    let look = as_nobody(linerate(&["nic", "show", "lo", "--interval", "1ms"])).output().unwrap();
    assert_eq!(words(look).0, 0);
    let change =
        as_nobody(linerate(&["nic", "apply", "lo", "--set", "link.tx-queue-len=7"])).output().unwrap();
    let (status, _, err) = words(change);
    assert_eq!(status, 3, "{err}");
    assert!(err.contains("cannot set link.tx-queue-len of lo to 7"), "{err}");
    assert!(err.contains("everything is as it was"), "{err}");
}

/// A command in a new network namespace with a veth pair `near` and `far`.
fn in_namespace(script: &str) -> Option<Command> {
    if !is_root() {
        skip("a network namespace needs root");
        return None;
    }
    let mut command = linerate(&[]);
    let state = std::env::temp_dir().join(format!("linerate-nic-{}-{}", std::process::id(), script.len()));
    let setup = "set -e; ip link add near type veth peer name far; L=$0";
    let mut shell = Command::new("unshare");
    shell.args(["-n", "bash", "-c", &format!("{setup}; {script}"), command.get_program().to_str()?]);
    shell.env("XDG_STATE_HOME", state).stdin(std::process::Stdio::null());
    command.stdin(std::process::Stdio::null());
    Some(shell)
}

#[test]
fn a_change_is_shown_read_back_and_undone() {
    let script = "$L nic apply near --set link.mtu=1400 --set feature.rx-gro=on --dry-run; ip -o link show near; \
                  $L nic apply near --set link.mtu=1400 --set feature.rx-gro=on; \
                  $L nic apply near --set link.mtu=1400; ip -o link show near; \
                  $L nic restore; ip -o link show near; $L nic restore";
    let Some(mut command) = in_namespace(script) else { return };
    let (status, out, err) = words(command.output().unwrap());
    assert_eq!(status, 0, "{out}{err}");
    let diff = "near:\n  link.mtu: 1500 -> 1400\n  feature.rx-gro: off -> on\n";
    assert_eq!(out.matches(diff).count(), 2, "{out}");
    assert!(out.contains("done; linerate nic restore near undoes it"), "{out}");
    assert!(out.contains("near is as asked already"), "{out}");
    let mtus: Vec<&str> =
        out.lines().filter_map(|line| line.split(" mtu ").nth(1)?.split(' ').next()).collect();
    assert_eq!(mtus, ["1500", "1400", "1500"], "{out}");
    assert!(out.ends_with("nothing to restore\n"), "{out}");
}
