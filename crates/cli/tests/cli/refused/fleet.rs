//! What `linerate agent` and `linerate fleet` refuse before they connect to a server.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["fleet", "up", "--here", "1"], 2, &["--here"]),
    (&["fleet", "run", "/nonexistent.toml"], 2, &["cannot read the plan /nonexistent.toml"]),
    (&["agent", "--name", "a.b"], 2, &["'a.b' is not a name for an agent", "letters, digits, - and _"]),
    (&["agent", "--label", "x"], 2, &["NAME=VALUE"]),
    (&["agent", "--limits", "/nonexistent.toml"], 4, &["cannot read the limits /nonexistent.toml"]),
    (&["agent", "--max-rate", "1Gbps"], 2, &["packets per second"]),
];
