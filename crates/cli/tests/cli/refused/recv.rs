//! What `linerate recv` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (
        &["recv", "192.0.2.77"],
        4,
        &["cannot bind UDP 192.0.2.77:4321", "hint:  listen on an address of this host"],
    ),
    (&["recv", "nowhere"], 2, &["'nowhere' is no address to listen on"]),
    (&["recv", "--threads", "0"], 2, &["0 is not in 1..=255"]),
    (&["recv", "--cpus", "3-1"], 2, &["'3-1' is not a list of CPUs"]),
];
