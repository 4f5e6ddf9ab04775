//! What `linerate model` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["model", "--from", "run.json", "--loss-ratio", "2"], 2, &["'2' is not a share"]),
    (&["model", "--preset", "nope"], 2, &["unknown preset 'nope'", "hint:  linerate model --list"]),
    (&["model", "--set", "ring=0"], 2, &["ring.descriptors: 0 is not between 1"]),
    (&["model", "--set", "ring"], 2, &["'ring' is not a setting", "hint:  write --set NAME=VALUE"]),
    (&["model", "--from", "/nope"], 4, &["cannot read /nope"]),
    (
        &["model", "--set", "ring.fetch_batch=65"],
        2,
        &["65 descriptors of one read do not fit into ring.on_chip, which is 64"],
    ),
    (&["model", "plan", "--flood", "max"], 2, &["the rate of a flood cannot be max", "hint:  try 300Mpps"]),
    (&["model", "plan", "--set", "queues=0"], 2, &["queues: 0 is not between 1"]),
    (&["model", "plan", "--preset", "pktgen"], 2, &["the preset 'pktgen' has no receive queue"]),
    (&["model", "plan", "--from", "/nope"], 4, &["cannot read /nope"]),
    (&["bench", "rdr", "--payload", "10"], 2, &["a payload of 10 bytes is out of range"]),
];
