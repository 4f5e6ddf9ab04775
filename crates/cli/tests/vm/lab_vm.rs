//! `linerate lab vm` as a new user types it.

use std::{fs, process::Command};

use lab::{NicModel, NicPair, VmPlan};
use serde_json::Value;

use crate::support::LINERATE;

#[test]
fn a_guest_knows_linerate_by_name_and_its_runs_are_saved_on_the_host() {
    let pairs = vec![NicPair::of(NicModel::Igb)];
    if testing::machine(&VmPlan { pairs, ..VmPlan::default() }).is_none() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let words = "lab vm --pair igb -- linerate bench --tx-interface pair1a --rx-interface pair1b --tx udp --rx udp \
                 --trials 1 --duration 200ms --rate 2kpps";
    testing::repeat("a virtual machine may stall or be lost", |_| {
        let mut command = Command::new(LINERATE);
        let output =
            command.args(words.split_whitespace()).env("XDG_STATE_HOME", state.path()).output().unwrap();
        match output.status.code() {
            Some(124 | 125) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            // 1: an emulated machine does not hold every rate.
            Some(0 | 1) => Ok(()),
            _ => panic!("{output:?}"),
        }
    });
    let saved: Vec<_> = fs::read_dir(state.path().join("linerate/runs")).unwrap().collect();
    let [Ok(file)] = saved.as_slice() else { panic!("{saved:?}") };
    let run: Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
    assert!(run["end"]["trials"][0]["delivered"].as_u64().unwrap() > 0, "{run:#}");
}
