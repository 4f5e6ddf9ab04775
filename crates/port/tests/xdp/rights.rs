//! Errors name the missing capability.

use std::{env, os::unix::process::CommandExt, process::Command};

use lab::LabPlan;
use port::probe_xdp;

use crate::support::lab;

/// The user without any rights.
const NOBODY: u32 = 65534;
const INTERFACE: &str = "XDP_TEST_INTERFACE";

/// The work of the other process; nothing under the harness.
#[test]
fn in_another_process() {
    let Ok(interface) = env::var(INTERFACE) else { return };
    let abilities = probe_xdp(interface.parse().unwrap());
    for outcome in [abilities.native, abilities.generic, abilities.live_frames] {
        println!("\nsaid: {}", outcome.unwrap_err());
    }
}

#[test]
fn without_rights_the_capability_is_named() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.rx();
    let mut again = Command::new("/proc/self/exe");
    again.args(["--exact", "rights::in_another_process", "--nocapture"]);
    again.env(INTERFACE, side.index().to_string()).uid(NOBODY).gid(NOBODY);
    let child = side.run(|| again.output()).unwrap().unwrap();
    let text = String::from_utf8(child.stdout).unwrap();
    let said: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("said: ")).collect();
    let missing =
        |program| format!("cannot load the BPF program '{program}': it needs CAP_BPF over the whole machine");
    assert_eq!(said, [missing("pass"), missing("pass"), missing("pass")], "{text}");
}
