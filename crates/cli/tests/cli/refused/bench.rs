//! What `linerate bench` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["bench", "--rate", "10m"], 2, &["rate '10m' has no unit", "10Mpps for packets"]),
    (&["bench", "--rate", "10Mpp"], 2, &["unknown unit 'Mpp'"]),
    (&["bench", "--rate", "50%"], 2, &["a rate in % needs a link speed"]),
    (&["bench", "--frame-size", "63"], 2, &["frame size 63 is out of range: from 64"]),
    (&["bench", "--frame-size", "70000"], 2, &["out of range"]),
    (&["bench", "--frame-size", "64", "--ipv6"], 2, &["the probe header needs 16: the smallest is 82"]),
    (&["bench", "--payload", "15"], 2, &["payload 15 is out of range: from 16"]),
    (&["bench", "--frame-size", "64", "--payload", "18"], 2, &["cannot be used with"]),
    (&["bench", "--duration", "10"], 2, &["'10' is not a duration: write for example 500ms"]),
    (&["bench", "--duration", "0s"], 2, &["a trial of no time measures nothing", "hint:  try --duration 1s"]),
    (&["bench", "--trials", "0"], 2, &["0 is not in 1..="]),
    (&["bench", "--tx", "dpdk"], 2, &["there is no sending engine 'dpdk'"]),
    (&["bench", "--rx", "udp+gso"], 2, &["the receiving engine 'udp' has no switch 'gso'"]),
    (&["bench", "--departures", "uniform"], 2, &["write constant, poisson or burst:N"]),
    (
        &["bench", "--tx-cpus", "999"],
        4,
        &["CPU 999 is absent or not allowed here", "hint:  this process may use CPUs"],
    ),
    (&["bench", "--interface", "eth9"], 2, &["--peer"]),
    (
        &["bench", "--peer", "127.0.0.1:1", "--trials", "1"],
        4,
        &["no receiver answers at 127.0.0.1:1: Connection refused", "hint:  start linerate recv there"],
    ),
    (
        &["bench", "--save", "/nonexistent/run.json"],
        4,
        &["cannot write /nonexistent/run.json: No such file or directory", "hint:  give another file"],
    ),
    (&["bench", "--save", "/"], 4, &["cannot write /: is a directory"]),
    (&["bench", "--json", "--json-stream"], 2, &["cannot be used with"]),
    (&["bench", "--peers=iperf2"], 2, &["no peer is called 'iperf2': there is iperf3"]),
    (&["bench", "--max-loss", "2"], 2, &["'2' is not a share: write for example 0.001 or 0.1%"]),
    (
        &["bench", "/nonexistent.toml"],
        4,
        &["cannot read /nonexistent.toml", "hint:  a scenario is a TOML file"],
    ),
    (
        &["bench", "pacin"],
        2,
        &["there is no scenario 'pacin'", "hint:  did you mean pacing? linerate bench list describes"],
    ),
    (&["bench", "pacing", "--trials", "0"], 2, &["0 is not in 1..="]),
    (
        &["bench", "/etc/passwd"],
        2,
        &["/etc/passwd: not a scenario file", "hint:  it begins with: scenario = 1"],
    ),
];
