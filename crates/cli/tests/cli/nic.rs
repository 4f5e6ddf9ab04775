//! `linerate nic` as a user meets it.

use std::process::Command;

use crate::support::{as_nobody, in_folder, is_root, json, linerate, own_folder, run, skip, words};

const KEY: &str = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

#[test]
fn flows_go_to_the_queues_of_microsofts_test_vectors() {
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
fn the_page_of_loopback_shows_what_it_lacks() {
    let (status, text, err) = run(&["nic", "show", "lo", "--interval", "1ms"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(text.contains("ring            not supported by this driver"), "{text}");
    assert!(!text.contains("driver , version"), "{text}");
    let (status, value) = json(&["nic", "show", "lo", "--interval", "1ms", "--json"]);
    assert_eq!(status, 0);
    for kind in ["ring", "rss", "context", "rule"] {
        assert_eq!(value["absent"][kind], "not supported by this driver");
    }
    assert_eq!(value["settings"]["link.mtu"], value["link"]["mtu_bytes"].to_string());
}

#[test]
fn a_user_without_privilege_may_look_but_not_change() {
    if !is_root() {
        return skip("only root can change its user");
    }
    let look = as_nobody(linerate(&["nic", "show", "lo", "--interval", "1ms"])).output().unwrap();
    assert_eq!(words(look).0, 0);
    let change =
        as_nobody(linerate(&["nic", "apply", "lo", "--set", "link.tx-queue-len=7"])).output().unwrap();
    let (status, _, err) = words(change);
    assert_eq!(status, 3, "{err}");
    assert!(err.contains("cannot set link.tx-queue-len of lo to 7"), "{err}");
    assert!(err.contains("all settings are unchanged"), "{err}");
}

/// A command in a new network namespace with a veth pair `near` and `far`.
fn in_namespace(script: &str) -> Option<Command> {
    if !is_root() {
        skip("a network namespace needs root");
        return None;
    }
    let mut command = linerate(&[]);
    let setup = "set -e; ip link add near type veth peer name far; L=$0";
    let mut shell = Command::new("unshare");
    shell.args(["-n", "bash", "-c", &format!("{setup}; {script}"), command.get_program().to_str()?]);
    in_folder(&mut shell, own_folder()).stdin(std::process::Stdio::null());
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
    assert!(out.contains("near already has these settings"), "{out}");
    let mtus: Vec<&str> =
        out.lines().filter_map(|line| line.split(" mtu ").nth(1)?.split(' ').next()).collect();
    assert_eq!(mtus, ["1500", "1400", "1500"], "{out}");
    assert!(out.ends_with("nothing to restore\n"), "{out}");
}

#[test]
fn restore_undoes_a_killed_command_but_not_what_apply_changed() {
    let script = "ip link set near up; ip link set far up; \
                  $L nic apply near --set link.tx-queue-len=77; \
                  $L divert near --match udp --drop all --card link.mtu=1400 > /dev/null & divert=$!; \
                  looks=0; until ip -o link show near | grep -q 'mtu 1400'; do looks=$((looks + 1)); [ $looks -lt 1500 ]; sleep 0.02; done; \
                  $L nic restore --dry-run; \
                  kill -KILL $divert; wait $divert || echo killed $?; \
                  $L nic apply near --set link.mtu=1300 || echo unfinished $?; \
                  $L nic restore --dry-run; $L nic restore; ip -o link show near; \
                  $L nic restore --dry-run; $L nic restore; ip -o link show near; $L nic restore";
    let Some(mut command) = in_namespace(script) else { return };
    let (status, out, err) = words(command.output().unwrap());
    assert_eq!(status, 0, "{out}{err}");
    let masked: String = out.chars().filter(|letter| !letter.is_ascii_digit()).collect();
    let (apply, killed) = (
        "linerate nic apply near --set link.tx-queue-len= (process )",
        "linerate divert near --match udp --drop all --card link.mtu= (process , killed)",
    );
    for text in [
        format!("near:\n  {killed}: link.mtu\nnear:\n  undoing {killed}\n  link.mtu:  -> \n"),
        format!("near:\n  {apply}: link.tx-queue-len\nnear:\n  undoing {apply}\n  link.tx-queue-len:  -> \n"),
    ] {
        assert!(masked.contains(&text), "{text}\n{out}{err}");
    }
    assert!(out.contains("unfinished 4\n") && out.contains("link.mtu: 1400 -> 1500"), "{out}{err}");
    assert!(out.contains(" mtu 1500 ") && out.ends_with("nothing to restore\n"), "{out}{err}");
    assert_eq!((out.matches(" qlen 77").count(), out.matches(" qlen 1000").count()), (1, 1), "{out}{err}");
    for text in [
        "ended without undoing its changes of near\nhint:  linerate nic restore near --killed undoes them",
        "near: being changed by linerate divert near --match udp --drop all --card link.mtu=1400 (process ",
        "near: kept the changes of linerate nic apply near --set link.tx-queue-len=77 (process ",
        "); undo them with linerate nic restore near",
    ] {
        assert!(err.contains(text), "{text}\n{out}{err}");
    }
}

#[test]
fn a_named_interface_is_restored_completely() {
    let script = "for mtu in 1400 1300; do $L nic apply near --set link.mtu=$mtu > /dev/null; done; \
                  ip link set near up; ip link set far up; \
                  $L divert near --match udp --drop all --card link.tx-queue-len=77 > /dev/null & divert=$!; \
                  looks=0; until ip -o link show near | grep -q 'qlen 77'; do looks=$((looks + 1)); [ $looks -lt 1500 ]; sleep 0.02; done; \
                  kill -KILL $divert; wait $divert || true; \
                  $L nic restore near; ip -o link show near; $L nic restore";
    let Some(mut command) = in_namespace(script) else { return };
    let (status, out, err) = words(command.output().unwrap());
    assert_eq!(status, 0, "{out}{err}");
    let undone: Vec<&str> = out.lines().filter(|line| line.contains("undoing")).collect();
    assert_eq!(undone.len(), 3, "{out}");
    assert!(undone[0].contains("tx-queue-len=77") && undone[0].ends_with(", killed)"), "{out}");
    assert!(undone[1].contains("mtu=1300") && undone[2].contains("mtu=1400"), "newest first: {out}");
    assert!(out.contains(" mtu 1500 ") && out.contains(" qlen 1000"), "{out}");
    assert!(out.ends_with("nothing to restore\n"), "{out}");
}

#[test]
fn a_measured_change_stays_only_if_more_packets_arrive() {
    // A veth pair drops frames larger than the receiving end's MTU: the rate follows the MTU.
    let script = "ip link set near address 02:00:00:00:00:01 mtu 1000; ip link set near up; ip link set far up; \
                  ip addr add 198.18.0.1/24 dev far; ip neigh replace 198.18.0.2 lladdr 02:00:00:00:00:01 dev far; \
                  $L send 198.18.0.2:9 --interface far --no-handshake --rate 2kpps --frame-size 1200 --duration 10m \
                  --no-save >/dev/null 2>&1 & load=$!; trap 'kill $load' EXIT; \
                  looks=0; until ip -s -o link show far | grep -q 'TX:.*\\\\ *[1-9][0-9][0-9]'; do looks=$((looks + 1)); [ $looks -lt 1500 ]; sleep 0.02; done; \
                  m='--measure --duration 400ms'; \
                  $L nic apply near --set link.mtu=1500 $m --json; echo; \
                  $L nic apply near --set link.mtu=1000 $m --json || echo status $?; echo; \
                  $L nic apply near --set link.tx-queue-len=7 $m || echo status $?; \
                  ip -o link show near; kill $load; \
                  $L nic apply near --set link.tx-queue-len=7 $m || echo status $?";
    let Some(mut command) = in_namespace(script) else { return };
    let (_, out, err) = words(command.output().unwrap());
    let mut parts = out.split("\n\n");
    let mut document = || -> serde_json::Value {
        let part = parts.next().unwrap();
        let end = part.rfind('}').unwrap_or_else(|| panic!("{out}{err}"));
        serde_json::from_str(&part[..=end]).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
    };
    let better = document();
    assert_eq!((&better["kept"], &better["measured"]["better"]), (&true.into(), &true.into()), "{better}");
    assert_eq!(better["taken_back"], serde_json::Value::Null);
    let worse = document();
    assert_eq!((&worse["kept"], &worse["measured"]["better"]), (&false.into(), &false.into()), "{worse}");
    assert_eq!(worse["taken_back"]["changes"][0]["to"], "1500", "{worse}");
    assert_eq!(worse["outcomes"][0]["verdict"], "done", "{worse}");
    let rest = parts.collect::<Vec<_>>().join("\n\n");
    assert!(rest.contains("no increase with 95 % confidence\nreverted: everything is as it was\n"), "{out}");
    assert!(rest.contains(" mtu 1500 ") && rest.contains(" qlen 1000"), "{out}");
    assert!(rest.contains("no packets arrived before or after: --measure needs a card under load"), "{out}");
    assert_eq!(out.matches("status 1").count(), 3, "{out}{err}");
}

#[test]
fn an_interrupted_measurement_reverts_the_change() {
    let script = "ip link set near up; ip link set far up; \
                  $L nic apply near --set link.mtu=1400 --measure --duration 1s & apply=$!; \
                  looks=0; until ip -o link show near | grep -q 'mtu 1400'; do looks=$((looks + 1)); [ $looks -lt 1500 ]; sleep 0.02; done; \
                  $L nic apply near --set link.mtu=1300 || echo second $?; \
                  kill -INT $apply; wait $apply || echo first $?; ip -o link show near; $L nic restore";
    let Some(mut command) = in_namespace(script) else { return };
    let (_, out, err) = words(command.output().unwrap());
    assert!(err.contains("near is being changed by process"), "{out}{err}");
    assert!(err.contains("hint:  wait until it ends"), "{out}{err}");
    assert!(err.contains("interrupted while measuring; all changes are undone"), "{out}{err}");
    assert!(out.contains("second 4\n") && out.contains("first 1\n"), "{out}{err}");
    assert!(out.contains(" mtu 1500 ") && out.ends_with("nothing to restore\n"), "{out}{err}");
}

#[test]
fn every_document_is_json_also_after_an_interface_is_renamed_or_removed() {
    let script = "ip link set near up; ip link set far up; \
                  for sub in 'show near --interval 1ms' 'advise near --interval 1ms' 'apply near --set link.mtu=1400'; do \
                  $L nic $sub --json; echo; done; \
                  $L nic watch near --interval 10ms --count 1 --json-stream; echo; \
                  ip link set near down; ip link set near name other; \
                  $L nic apply near --set link.mtu=1300 --json || echo refused $?; \
                  $L nic restore --json; echo; ip -o link show other; \
                  $L nic apply other --set link.mtu=1400 > /dev/null; ip link del other; \
                  $L nic restore other || echo gone $?";
    let Some(mut command) = in_namespace(script) else { return };
    let (_, out, err) = words(command.output().unwrap());
    let mut parts = out.split("\n\n");
    for part in parts.by_ref().take(4) {
        let value: serde_json::Value =
            serde_json::from_str(part).unwrap_or_else(|error| panic!("{error}: {part}{err}"));
        assert!(value.is_object() || value.is_array(), "{value}");
    }
    let rest: String = parts.collect::<Vec<_>>().join("\n\n");
    assert!(rest.starts_with("refused 4\n"), "{rest}{err}");
    assert!(rest.contains("\"other\"") && rest.contains(" mtu 1500 "), "{rest}{err}");
    assert!(rest.ends_with("gone 4\n"), "{rest}{err}");
    assert!(err.contains("cannot read interface other"), "{err}");
}

#[test]
fn a_page_fits_a_narrow_terminal() {
    let Some(mut command) = in_namespace(
        "command -v script > /dev/null || { echo no script; exit 0; }; \
         COLUMNS=40 script -qec \"$L nic show near --interval 1ms\" /dev/null",
    ) else {
        return;
    };
    let (status, out, err) = words(command.output().unwrap());
    if out == "no script\n" {
        return skip("needs script(1) for a terminal");
    }
    assert_eq!(status, 0, "{out}{err}");
    assert!(out.contains("queue rx-") || out.contains("link"), "{out}");
    let too_long: Vec<&str> = out
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        // A single entry that is too long is not wrapped.
        .filter(|line| {
            line.chars().count() > 40 && line.trim_start().contains("  ") && line.starts_with("   ")
        })
        .collect();
    assert_eq!(too_long, [""; 0], "{out}");
}
