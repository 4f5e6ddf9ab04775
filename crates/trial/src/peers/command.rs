//! The command lines of the peers, according to their manuals.

use std::{net::IpAddr, time::Duration};

use super::program::Peer;
use crate::plan::LabEnd;

/// The task of a peer.
#[derive(Clone, Copy)]
pub(super) struct Task<'l> {
    /// The sending end.
    pub(super) from: &'l LabEnd,
    /// The receiving end, with the receiver's port.
    pub(super) to: &'l LabEnd,
    /// UDP payload.
    pub(super) payload_bytes: u32,
    /// Its duration.
    pub(super) duration: Duration,
    /// CPUs of the sending and of the receiving side; empty leaves them to the scheduler.
    pub(super) cpus: (&'l [u32], &'l [u32]),
}

/// The control port of a peer's own receiver.
pub(super) const CONTROL_PORT: u16 = 5201;

/// The most time for a peer to start, shake hands and warm up, including DPDK's environment.
const OVERHEAD: Duration = Duration::from_secs(15);

impl Task<'_> {
    fn target(&self) -> (IpAddr, u16) {
        let address = self.to.addresses[0];
        (address.ip(), address.port())
    }

    /// The longest that a peer may run.
    pub(super) fn bound(&self) -> Duration {
        Duration::from_secs(self.seconds()) + OVERHEAD
    }

    /// Whole seconds, at least one, because peers accept nothing else.
    pub(super) fn seconds(&self) -> u64 {
        self.duration.as_secs_f64().ceil().max(1.0) as u64
    }
}

impl Peer {
    /// The sender's program and arguments.
    pub(super) fn sending(self, task: &Task<'_>) -> Vec<String> {
        let (to, port) = task.target();
        let (source, seconds, payload) = (task.from.addresses[0].ip(), task.seconds(), task.payload_bytes);
        let line = match self {
            Self::Iperf3 => {
                format!("iperf3 -c {to} -p {CONTROL_PORT} -u -b 0 -l {payload} -t {seconds} --json")
            }
            Self::Netperf => format!(
                "netperf -H {to} -p {CONTROL_PORT} -t UDP_STREAM -l {seconds} -- -m {payload} -R 1 -P ,{port}"
            ),
            Self::Sockperf => format!("sockperf throughput -i {to} -p {port} -m {payload} -t {seconds}"),
            Self::Testpmd => {
                let lcores = match task.cpus {
                    ([tx, ..], [rx, ..]) if tx != rx => format!("0@{rx},1@{tx}"),
                    _ => "0,1".into(),
                };
                // Ethernet, IPv4 and UDP headers are 42 bytes; no huge pages, no device but the packet socket.
                format!(
                    "dpdk-testpmd --no-huge -m 512 --no-pci --no-telemetry --no-shconf --lcores {lcores} \
                     --vdev=net_af_packet0,iface={} -- --forward-mode=txonly --txpkts={} --eth-peer=0,{} \
                     --tx-ip={source},{to} --tx-udp=9,{port} --total-num-mbufs=8192 --no-flush-rx \
                     --port-topology=loop --auto-start",
                    task.from.interface,
                    payload + 42,
                    task.to.mac,
                )
            }
            Self::Trafgen => {
                let mut line: Vec<String> = format!("trafgen --no-sock-mem -o {} -P 1", task.from.interface)
                    .split(' ')
                    .map(Into::into)
                    .collect();
                line.push(format!(
                    "{{ eth(da={}, sa={}), ipv4(saddr={source}, daddr={to}), udp(sp=9, dp={port}), \
                     fill(0x00, {payload}) }}",
                    task.to.mac, task.from.mac,
                ));
                return line;
            }
        };
        line.split_ascii_whitespace().map(Into::into).collect()
    }

    /// Its own receiver's program and arguments; it stays in the foreground.
    pub(super) fn receiving(self, task: &Task<'_>) -> Option<Vec<String>> {
        let (to, port) = task.target();
        let line = match self {
            Self::Iperf3 => format!("iperf3 -s -1 -p {CONTROL_PORT}"),
            Self::Netperf => format!("netserver -D -p {CONTROL_PORT}"),
            Self::Sockperf => format!("sockperf server -i {to} -p {port}"),
            Self::Testpmd | Self::Trafgen => return None,
        };
        Some(line.split_ascii_whitespace().map(Into::into).collect())
    }

    /// Whether it sends until it is stopped.
    pub(super) fn sends_without_end(self) -> bool {
        self.makes_frames()
    }

    /// Whether its receiver ends with the first sender.
    pub(super) fn receiver_ends_itself(self) -> bool {
        self == Self::Iperf3
    }
}

#[cfg(test)]
mod tests {
    use wire::MacAddr;

    use super::*;

    fn end(address: &str, mac: u8) -> LabEnd {
        let interface = "lab".into();
        LabEnd { interface, mac: MacAddr([2, 0, 0, 0, 0, mac]), addresses: vec![address.parse().unwrap()] }
    }

    #[test]
    fn all_peers_get_the_same_task() {
        let (from, to) = (end("198.18.0.1:0", 1), end("198.19.0.1:4321", 2));
        let duration = Duration::from_millis(1200);
        let task = Task { from: &from, to: &to, payload_bytes: 18, duration, cpus: (&[0], &[1]) };
        let line = |peer: Peer| peer.sending(&task).join(" ");
        assert_eq!(line(Peer::Iperf3), "iperf3 -c 198.19.0.1 -p 5201 -u -b 0 -l 18 -t 2 --json");
        assert_eq!(line(Peer::Sockperf), "sockperf throughput -i 198.19.0.1 -p 4321 -m 18 -t 2");
        assert_eq!(
            line(Peer::Netperf),
            "netperf -H 198.19.0.1 -p 5201 -t UDP_STREAM -l 2 -- -m 18 -R 1 -P ,4321"
        );
        assert!(line(Peer::Testpmd).contains("--lcores 0@1,1@0 --vdev=net_af_packet0,iface=lab -- "));
        assert!(line(Peer::Testpmd).contains("--txpkts=60 --eth-peer=0,02:00:00:00:00:02 "));
        assert_eq!(
            Peer::Trafgen.sending(&task).last().unwrap(),
            "{ eth(da=02:00:00:00:00:02, sa=02:00:00:00:00:01), ipv4(saddr=198.18.0.1, daddr=198.19.0.1), \
             udp(sp=9, dp=4321), fill(0x00, 18) }"
        );
    }
}
