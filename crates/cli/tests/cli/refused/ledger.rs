//! What `linerate ledger` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["ledger", "nope0"], 4, &["cannot read interface nope0", "hint:  ip link lists"]),
    (
        &["ledger", "--flow", "udp prot 53"],
        2,
        &["--flow:", "udp prot 53", "    ^", "hint:  use tcpdump's filter language"],
    ),
    (&["ledger", "--interval", "1"], 2, &["--interval"]),
    (&["ledger", "--interval", "0s"], 2, &["'0s' is too short: must be at least 1ms", "--interval"]),
    (&["ledger", "--duration", "0s"], 2, &["'0s' is not a period: must be above zero, for example 10s"]),
    (&["ledger", "--flow", ""], 2, &["--flow: the expression is empty", "hint:  try --flow"]),
    (&["ledger", "--flow", "  "], 2, &["--flow: the expression is empty"]),
    (&["ledger", "--prometheus", "here"], 2, &["'here' is not an address to listen on"]),
    (&["ledger", "--json", "--json-stream"], 2, &["cannot be used with"]),
    (&["ledger", "--drivers", "/nonexistent.toml"], 4, &["cannot read /nonexistent.toml"]),
    (&["ledger", "--drivers", "/dev/null", "--duration", "x"], 2, &["--duration"]),
];
