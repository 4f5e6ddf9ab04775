//! What `linerate nic` refuses.

use super::Refused;

const KEY: &str = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

pub(crate) const REFUSED: &[Refused] = &[
    (&["nic"], 2, &["Usage: linerate nic"]),
    (&["nic", "show", "nope0"], 4, &["cannot read interface nope0", "hint:  ip link lists"]),
    (&["nic", "flow", "--src", "10.0.0.1", "--dst", "10.0.0.2"], 2, &["--key"]),
    (
        &["nic", "flow", "lo", "--src", "host", "--dst", "10.0.0.2"],
        2,
        &["'host' is not an address: write 10.0.0.1"],
    ),
    (
        &[
            "nic", "flow", "--key", "6d:5a", "--table", "equal:4", "--fields", "sd", "--src", "::1", "--dst",
            "::2",
        ],
        2,
        &["a hash key must have 40 or 52 bytes, not 2"],
    ),
    (
        &[
            "nic", "flow", "--key", KEY, "--table", "equal:4", "--fields", "sdfn", "--src", "10.0.0.1",
            "--dst", "10.0.0.2",
        ],
        2,
        &["fields sdfn hash the ports", "hint:  write --src 10.0.0.1:9"],
    ),
    (
        &[
            "nic", "flow", "--key", KEY, "--table", "equal:0", "--fields", "sd", "--src", "10.0.0.1",
            "--dst", "10.0.0.2",
        ],
        2,
        &["leaves no queue"],
    ),
    (
        &[
            "nic", "flow", "--key", KEY, "--table", "equal:4", "--fields", "sd", "--src", "10.0.0.1",
            "--dst", "::2",
        ],
        2,
        &["10.0.0.1 and ::2 are of different IP versions"],
    ),
    (
        &["nic", "flow", "lo", "--src", "10.0.0.1", "--dst", "10.0.0.2"],
        3,
        &["cannot predict queues on lo: its driver has no indirection table"],
    ),
    (&["nic", "watch", "lo", "--count", "0"], 2, &["must be at least 1"]),
    (&["nic", "watch", "lo", "--interval", "0s"], 2, &["'0s' is too short: must be at least 1ms"]),
    (&["nic", "show", "lo", "--interval", "0s"], 2, &["'0s' is too short"]),
    (&["nic", "advise", "lo", "--interval", "10us"], 2, &["'10us' is too short"]),
    (
        &["nic", "apply", "lo", "--set", "link.mtu=1400", "--measure", "--duration", "0s"],
        2,
        &["'0s' is not a period"],
    ),
    (&["nic", "restore", "lo", "--killed"], 4, &["no saved settings for lo"]),
    (&["nic", "restore", "lo", "--dry-run"], 4, &["no saved settings for lo"]),
    (&["nic", "apply", "lo"], 2, &["--set"]),
    (&["nic", "apply", "lo", "--set", "ring"], 2, &["'ring' is not a setting: write KIND.NAME=VALUE"]),
    (
        &["nic", "apply", "lo", "--set", "ring.rx=5", "--set", "wings.span=2"],
        2,
        &["lo has no setting ring.rx", "unknown setting 'wings.span'", "hint:  linerate nic show"],
    ),
    (&["nic", "apply", "lo", "--plan", "/nonexistent"], 4, &["cannot read /nonexistent", "hint:  a plan is"]),
    (&["nic", "restore", "lo"], 4, &["no saved settings for lo"]),
];
