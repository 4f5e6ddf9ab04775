//! What `linerate recv` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (
        &["recv", "192.0.2.77"],
        4,
        &["cannot bind UDP 192.0.2.77:4321", "hint:  listen on an address of this host"],
    ),
    (&["recv", "--interval", "0s"], 2, &["'0s' is too short: write 1ms or more"]),
    (&["recv", "--duration", "0s"], 2, &["'0s' is no time: write for example 10s"]),
    (&["recv", "nowhere"], 2, &["'nowhere' is no address to listen on"]),
    (&["recv", "--work", "2ms"], 2, &["--work is 1ms a packet at most"]),
    (&["recv", "--threads", "0"], 2, &["0 is not in 1..=255"]),
    (&["recv", "--cpus", "3-1"], 2, &["'3-1' is not a list of CPUs"]),
    (&["recv", "--engine", "xdp"], 2, &["the engine xdp needs --device", "hint:  ip link lists"]),
    (&["recv", "--engine", "dpdk"], 2, &["unknown receiving engine 'dpdk': expected udp, "]),
    (
        &["recv", "--engine", "packet", "--device", "lo", "--gro", "--stamp", "loop"],
        2,
        &["--gro is for the engine udp", "packets are not stamped like that", "--stamp kernel"],
    ),
    (
        &["recv", "0", "--engine", "packet", "--device", "lo"],
        2,
        &["the engine packet cannot choose a port by itself"],
    ),
    (&["recv", "--device", "nope0"], 4, &["cannot use interface nope0: No such device"]),
    (
        &["recv", "--engine", "xsk+busypoll", "--device", "lo", "--reflect"],
        2,
        &["the engine xsk+busypoll sends nothing back", "hint:  --engine xsk does"],
    ),
    (
        &["recv", "--engine", "uring", "--reflect"],
        2,
        &["the engine uring sends nothing back", "hint:  --engine udp does"],
    ),
    (
        &["recv", "--engine", "uring", "--gro"],
        2,
        &["unknown switch '+gro' of the receiving engine 'uring': expected +reuseport"],
    ),
    (
        &["recv", "--clocks", "none", "--clock-bound", "1ms"],
        2,
        &["--clock-bound is about clocks that are kept together", "hint:  --clocks synchronised"],
    ),
    (
        &["recv", "--clocks", "same-host", "--ptp4l", "/var/run/ptp4l"],
        2,
        &["--ptp4l is about clocks that are kept together", "hint:  --clocks auto or synchronised"],
    ),
    (
        &["recv", "--engine", "tcp"],
        2,
        &[
            "error: the engine tcp receives in the lab alone: senders offer packets\nhint:  linerate bench --tx tcp",
        ],
    ),
    (&["recv", "--stats", "all"], 2, &["invalid value 'all'"]),
    (&["recv", "status", "--pid", "1"], 4, &["process 1 is no receiver of this user"]),
];
