//! What `linerate send` refuses.

use super::Refused;

/// More than a floating point number can hold.
const NINES: &str = concat!(
    "9999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999",
    "9999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999",
    "9999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999",
    "999999999",
    "pps"
);

pub(crate) const REFUSED: &[Refused] = &[
    (
        &["send", "127.0.0.1", "--engine", "pci", "--interface", "lo"],
        2,
        &["the engine pci takes the card from its kernel driver", "allow it: --take-device with --interface"],
    ),
    (
        &["send", "127.0.0.1", "--take-device", "--interface", "lo", "--dst-mac", "02:00:00:00:00:01"],
        2,
        &["the engine udp takes no card", "hint:  omit --take-device"],
    ),
    (&["send"], 2, &["<TARGET>"]),
    (
        &["send", "127.0.0.1", "--engine", "xsk", "--no-handshake"],
        4,
        &[
            "127.0.0.1 is an address of this host, but whole frames need another host",
            "hint:  use --engine udp",
        ],
    ),
    (
        &["send", "127.0.0.1", "--engine", "uring", "--reflect"],
        2,
        &["the engine uring cannot receive returned packets", "hint:  use --engine udp"],
    ),
    (
        &["send", "127.0.0.1", "--engine", "udp+gro"],
        2,
        &["unknown switch '+gro' of the sending engine 'udp'"],
    ),
    (
        &["send", "8.8.8.8", "--no-handshake"],
        4,
        &["8.8.8.8 may belong to someone else", "hint:  run linerate recv there"],
    ),
    (
        &["send", "127.0.0.1", "--no-handshake", "--max-loss", "0"],
        2,
        &["--max-loss needs a receiver that counts", "hint:  omit --no-handshake"],
    ),
    (&["send", "224.0.0.1", "--no-handshake"], 4, &["224.0.0.1 may belong to someone else"]),
    (&["send", "127.0.0.1", "--i-am-allowed-to-send-there"], 2, &["--no-handshake"]),
    (&["send", "127.0.0.1:0"], 2, &["has port 0"]),
    (&["send", "not a host"], 2, &["is neither an address nor a known host"]),
    (&["send", "127.0.0.1:1"], 4, &["no receiver answers at 127.0.0.1:1"]),
    (
        &["send", "127.0.0.1", "--bind", "192.0.2.77", "--no-handshake"],
        4,
        &["cannot bind UDP 192.0.2.77:0", "hint:  --bind takes an address of this host"],
    ),
    (
        &["send", "127.0.0.1", "--interface", "nope0", "--no-handshake"],
        4,
        &["cannot use interface nope0: No such device", "hint:  ip link lists"],
    ),
    (&["send", "127.0.0.1", "[::1]:4321", "--no-handshake"], 2, &["of different IP versions", "in two runs"]),
    (
        &["send", "127.0.0.1", "127.0.0.2", "--threads", "1", "--no-handshake"],
        2,
        &["2 targets need at least as many threads"],
    ),
    (
        &["send", "127.0.0.1", "--gso", "--frame-size", "imix", "--no-handshake"],
        2,
        &["--gso needs payloads of one size"],
    ),
    (&["send", "127.0.0.1", "--vlan", "7", "--no-handshake"], 2, &["the engine udp cannot set --vlan"]),
    (
        &["send", "127.0.0.1", "--reflect", "--no-handshake"],
        2,
        &["'--reflect' cannot be used with '--no-handshake'"],
    ),
    (
        &["send", "127.0.0.1", "--reflect", "--flows", "65"],
        2,
        &["--reflect supports at most 64 flows, not 65", "hint:  lower --flows"],
    ),
    (&["send", "127.0.0.1", "--flows", "0"], 2, &["'0' is not a number of flows: must be 1 to"]),
    (
        &["send", "127.0.0.1", "--duration", "0s"],
        2,
        &["'0s' is not a period: must be above zero, for example 10s"],
    ),
    (&["send", "127.0.0.1", "--interval", "0s"], 2, &["'0s' is too short: must be at least 1ms"]),
    (&["send", "127.0.0.1", "--rate", NINES], 2, &["at most 1e15 a second: write for example 100kpps"]),
    (&["send", "127.0.0.1", "--flows", NINES], 2, &["is not a number of flows"]),
    (&["send", "127.0.0.1", "--count", "0"], 2, &["must be at least 1"]),
    (&["send", "--write-pcap", "/tmp/x.pcap"], 2, &["--count"]),
    (&["send", "--write-pcap", "/nonexistent/x.pcap", "-n", "1"], 4, &["cannot write /nonexistent/x.pcap"]),
];
