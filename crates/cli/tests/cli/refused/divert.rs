//! What `linerate divert` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (
        &["divert"],
        2,
        &["the following required arguments were not provided", "<INTERFACE>", "--match <EXPR>"],
    ),
    (&["divert", "nope0", "--match", "udp", "--drop", "all"], 4, &["cannot use interface nope0", "ip link"]),
    (&["divert", "lo", "--match", "all"], 2, &["say what to do with matching packets", "add --keep EXPR"]),
    (&["divert", "lo", "--match", "all", "--drop", "all", "--keep", "all"], 2, &["cannot be used with"]),
    (&["divert", "lo", "--match", "all", "--drop", "all", "--queue", "x"], 2, &["not a list of queues"]),
    (&["divert", "lo", "--match", "all", "--drop", "all", "--queue", "7"], 2, &["lo has no receive queue 7"]),
    (&["divert", "lo", "--match", "all", "--limit", "10"], 2, &["rate '10' has no unit"]),
    (&["divert", "lo", "--match", "all", "--limit", "50%"], 2, &["cannot limit to 50%"]),
    (
        &["divert", "lo", "--match", "all", "--limit", "1kpps", "--per", "x"],
        2,
        &["'x' cannot have a limit of its own"],
    ),
    (
        &["divert", "lo", "--match", "all", "--drop", "all", "--per", "source"],
        2,
        &["--per needs --limit", "hint:  add --limit RATE"],
    ),
    (
        &["divert", "lo", "--match", "udp dst prot 53", "--drop", "all"],
        2,
        &["cannot use the expression 'udp dst prot 53'", "udp dst prot 53\n               ^^^^"],
    ),
    (
        &["divert", "lo", "--match", "tcp", "--drop", ""],
        2,
        &["--drop: the expression is empty: write all for every packet"],
    ),
    (
        &["divert", "lo", "--match", " ", "--keep", ""],
        2,
        &["--match: the expression is empty", "--keep: the expression is empty"],
    ),
    (&["divert", "lo", "--rules", "/nonexistent"], 4, &["cannot read /nonexistent"]),
    (&["divert", "lo", "--match", "all", "--drop", "all", "--management", "x"], 2, &["is no network"]),
    (
        &["divert", "lo", "--match", "all", "--drop", "all", "--reinject", "--spin"],
        2,
        &["--reinject needs packets in this process", "--spin needs", "hint:  add --where user"],
    ),
    (&["divert", "lo", "--match", "all", "--drop", "all", "--card", "ring"], 2, &["ring"]),
    (
        &["divert", "lo", "--match", "all", "--drop", "all", "--card", "ring.rx=1", "--steer"],
        2,
        &["cannot be used with"],
    ),
    (
        &["divert", "lo", "--match", "all", "--drop", "all", "--interval", "0s"],
        2,
        &["'0s' is too short: must be at least 1ms"],
    ),
    (&["divert", "lo", "--match", "all", "--drop", "all", "--for", "0s"], 2, &["'0s' is not a period"]),
    (&["divert", "status", "nope0"], 4, &["no diversion of this user is running on nope0", "hint:"]),
    (&["divert", "stop", "nope0"], 4, &["no diversion of this user is running on nope0"]),
    (&["divert", "add-queue"], 2, &["<QUEUE>"]),
    (
        &["divert", "remove-queue", "1", "--interface", "nope0"],
        4,
        &["no diversion of this user is running on nope0"],
    ),
];
