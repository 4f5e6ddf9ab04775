//! What `linerate recv` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (
        &["recv", "--engine", "pci", "--device", "lo"],
        2,
        &[
            "the engine pci takes the card from its kernel driver",
            "allow it: --take-device; senders' handshakes",
        ],
    ),
    (
        &["recv", "--take-device", "--device", "lo"],
        2,
        &["the engine udp takes no card", "hint:  omit --take-device"],
    ),
    (
        &["recv", "192.0.2.77"],
        4,
        &["cannot bind UDP 192.0.2.77:4321", "hint:  listen on an address of this host"],
    ),
    (&["recv", "--interval", "0s"], 2, &["'0s' is too short: must be at least 1ms"]),
    (&["recv", "--duration", "0s"], 2, &["'0s' is not a period: must be above zero, for example 10s"]),
    (&["recv", "nowhere"], 2, &["'nowhere' is not an address to listen on"]),
    (&["recv", "--work", "2ms"], 2, &["--work must be at most 1ms per packet"]),
    (&["recv", "--threads", "0"], 2, &["must be from 1 to 255"]),
    (&["recv", "--cpus", "3-1"], 2, &["'3-1' is not a list of CPUs"]),
    (&["recv", "--engine", "xdp"], 2, &["the engine xdp needs --device", "hint:  ip link lists"]),
    (&["recv", "--engine", "dpdk"], 2, &["unknown receiving engine 'dpdk': expected udp, "]),
    (
        &["recv", "--engine", "packet", "--device", "lo", "--gro", "--stamp", "loop"],
        2,
        &["--gro works only with the engine udp", "does not have this timestamp source", "--stamp kernel"],
    ),
    (&["recv", "0", "--engine", "packet", "--device", "lo"], 2, &["the engine packet needs a port"]),
    (&["recv", "--device", "nope0"], 4, &["cannot use interface nope0: No such device"]),
    (
        &["recv", "--engine", "xsk+busypoll", "--device", "lo", "--reflect"],
        2,
        &["the engine xsk+busypoll cannot return packets", "hint:  use --engine xsk"],
    ),
    (
        &["recv", "--engine", "uring", "--reflect"],
        2,
        &["the engine uring cannot return packets", "hint:  use --engine udp"],
    ),
    (
        &["recv", "--engine", "uring", "--gro"],
        2,
        &["unknown switch '+gro' of the receiving engine 'uring': expected +reuseport"],
    ),
    (
        &["recv", "--clocks", "none", "--clock-bound", "1ms"],
        2,
        &["--clock-bound needs synchronised clocks", "hint:  add --clocks synchronised"],
    ),
    (
        &["recv", "--clocks", "same-host", "--ptp4l", "/var/run/ptp4l"],
        2,
        &["--ptp4l needs synchronised clocks", "hint:  use --clocks auto or synchronised"],
    ),
    (
        &["recv", "--engine", "tcp"],
        2,
        &[
            "error: the engine tcp receives only in the lab: linerate send sends packets\nhint:  linerate bench --tx tcp",
        ],
    ),
    (&["recv", "--stats", "all"], 2, &["invalid value 'all'"]),
    (&["recv", "status", "--pid", "1"], 4, &["process 1 is not a receiver of this user"]),
];
