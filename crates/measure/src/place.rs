//! Places where packets are lost, in the order a packet meets them.
//!
//! Records hold a place's name ([`Place::name`]); files of drivers' counters and metrics hold its id.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

macro_rules! places {
    ($($(#[doc = $doc:literal])+ $variant:ident = $id:literal, $name:literal, $unit:ident, $remedy:literal;)+) => {
        /// A place where packets are lost; the order is the one a packet meets them in.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Place {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Place {
            /// All places, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in data files and metrics.
            pub fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)+ }
            }

            /// Its name in a ledger.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The unit of its counter.
            pub fn unit(self) -> Unit {
                match self { $(Self::$variant => Unit::$unit,)+ }
            }

            /// The meaning of a loss there.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii_start(),)+ }
            }

            /// The remedy, as a command if possible; `DEV` is the interface.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)+ }
            }
        }
    };
}

places! {
    /// A socket could not send: its send buffer was full, or the kernel had no memory.
    SocketSend = "socket-send", "socket send", Packets,
        "sysctl -w net.core.wmem_max=8388608, and a larger SO_SNDBUF";
    /// No route to the destination.
    NoRoute = "no-route", "no route", Packets, "ip route get ADDRESS";
    /// The next hop's hardware address is unknown, or too many packets wait for it.
    Neighbour = "neighbour", "neighbour unknown", Packets,
        "ip neigh show dev DEV; sysctl -w net.ipv4.neigh.default.unres_qlen_bytes=1048576";
    /// A packet is larger than the MTU on its path and must not be fragmented.
    TooBig = "too-big", "larger than the MTU", Packets,
        "ip link set dev DEV mtu N along the whole path, or send smaller packets";
    /// A queueing discipline refused a packet: its limit was reached.
    Qdisc = "qdisc", "qdisc full", Buffers, "tc -s qdisc show dev DEV; tc qdisc replace dev DEV root fq limit 20000";
    /// A tc filter or action dropped a packet on its way out.
    TcEgress = "tc-egress", "tc filter, sending", Buffers, "tc -s filter show dev DEV egress";
    /// The sending driver dropped a packet: its ring was full or stopped, or the packet did not fit it.
    DriverTx = "driver-tx", "sending interface", Frames, "ethtool -G DEV tx 4096";
    /// The far end of a veth has a smaller MTU, and a veth does not fragment.
    PeerMtu = "peer-mtu", "larger than the peer's MTU", Frames, "ip link set dev PEER mtu N: both ends the same";
    /// The far end of a veth refused a packet: the ring between them was full, or it was down.
    PeerRing = "peer-ring", "peer's receive ring full", Frames,
        "echo 1 > /sys/class/net/PEER/threaded, and a CPU of its own for its threads (taskset): the softirq there is too slow";
    /// Packets left the sending host's driver and never reached the receiving host's: a cable, a switch, a router, a card.
    BetweenHosts = "between-hosts", "between the hosts", Packets,
        "the ports' counters of the switches between, ethtool -S DEV on both hosts; a lower rate";
    /// The card had no descriptor or no room in its FIFO when a frame arrived: the host drained it too slowly.
    NicMissed = "nic-missed", "card out of buffers", Frames,
        "ethtool -G DEV rx 4096; ethtool -L DEV combined N; then faster receiving CPUs";
    /// Frames arrived corrupt: check sequence, length or alignment.
    BadFrame = "bad-frame", "broken frames", Frames,
        "look at cable, optics and MTU: ethtool -m DEV; ip -s -s link show dev DEV";
    /// The card refused good frames: addressed to others, longer than its setting, or dropped by a steering rule.
    NicFiltered = "nic-filtered", "filtered by the card", Frames,
        "ip link show dev DEV (MAC, MTU); ethtool -n DEV (rules)";
    /// The hypervisor or cloud refused packets over the instance's allowance.
    Allowance = "allowance", "over the instance's allowance", Packets, "a larger instance, or fewer packets";
    /// The receiving driver dropped a frame: no memory, or a descriptor with an error.
    DriverRx = "driver-rx", "receiving driver", Frames, "look at memory pressure: grep -i free /proc/meminfo; dmesg";
    /// An XDP program returned XDP_DROP.
    XdpDrop = "xdp-drop", "XDP drop", Frames, "it is a program's decision: bpftool net show dev DEV";
    /// An XDP program failed: XDP_ABORTED or an unknown verdict.
    XdpAborted = "xdp-aborted", "XDP aborted", Frames, "bpftool prog tracelog; the program has a fault";
    /// An XDP redirect failed, by errno.
    XdpRedirect = "xdp-redirect", "XDP redirect failed", Frames,
        "the target needs NAPI (ethtool -K PEER gro on) or an XDP program, room in its ring, and on some cards a queue for each CPU (ENXIO: ethtool -L DEV combined N)";
    /// The driver could not send a packet of XDP_TX.
    XdpTx = "xdp-tx", "XDP transmit failed", Frames, "ethtool -G DEV tx 4096; a queue a CPU: ethtool -L DEV";
    /// The fill ring of an AF_XDP socket had no frame for the packet.
    XskFillEmpty = "xsk-fill-empty", "AF_XDP fill ring empty", Frames,
        "more frames, or a receiver that returns them faster";
    /// A packet was larger than the frames of an AF_XDP socket.
    XskFrameSmall = "xsk-frame-small", "AF_XDP frame too small", Frames, "frames of 4096 bytes";
    /// The RX ring of an AF_XDP socket was full.
    XskRingFull = "xsk-ring-full", "AF_XDP RX ring full", Frames, "a larger RX ring, or a faster receiver";
    /// The kernel could not use a descriptor.
    XskInvalid = "xsk-invalid", "AF_XDP invalid descriptor", Frames, "the application writes descriptors outside its memory";
    /// The CPU's input backlog was full (`netif_rx`, RPS).
    Backlog = "backlog", "receive backlog full", Frames,
        "sysctl -w net.core.netdev_max_backlog=10000, or --threaded-napi in the lab";
    /// The receiving interface dropped it for a reason that no other line names.
    ReceivingInterface = "rx-interface", "receiving interface", Frames, "ip -s -s link show dev DEV; ethtool -S DEV";
    /// A copy for a packet socket was dropped: its ring or buffer was full. The packet itself went on.
    PacketRing = "packet-ring", "packet ring full", Frames, "the reader does not keep up: more threads, or more blocks";
    /// A tc filter or action dropped a packet on its way in.
    TcIngress = "tc-ingress", "tc filter, receiving", Buffers, "tc -s filter show dev DEV ingress";
    /// No protocol handles frames of that type.
    NoHandler = "no-handler", "no protocol handler", Packets, "tcpdump -ni DEV -e shows the frames";
    /// The hardware address is another machine's: flooded by a switch, or promiscuous mode; or the VLAN is not configured here.
    OtherHost = "other-host", "addressed to another host", Packets, "ip link show dev DEV: is it promiscuous?";
    /// IP rejected the header: version, length, time to live.
    IpHeader = "ip-header", "IP header", Packets, "nstat -az Ip*InHdrErrors; tcpdump -ni DEV -v";
    /// The addresses are not allowed: not local, martian, or against the reverse-path filter.
    IpAddress = "ip-address", "IP address", Packets,
        "sysctl -w net.ipv4.conf.DEV.rp_filter=2; ip addr show dev DEV";
    /// Fragments were never reassembled.
    Reassembly = "reassembly", "fragments not reassembled", Packets, "sysctl -w net.ipv4.ipfrag_high_thresh=16777216";
    /// IP dropped it before the transport: out of memory, or by policy (IPv6 disabled).
    IpInput = "ip-input", "IP input", Packets, "nstat -az Ip*InDiscards";
    /// No transport protocol and no raw socket takes this IP payload.
    IpProtocol = "ip-protocol", "no transport protocol", Packets, "nstat -az Ip*InUnknownProtos; tcpdump -ni DEV -v";
    /// A firewall rule dropped it: nftables, iptables, conntrack.
    Firewall = "firewall", "firewall", Packets, "nft list ruleset; iptables -L -v; nft monitor trace";
    /// IPsec refused it: a policy blocks it or requires encryption, or no state matches.
    Ipsec = "ipsec", "IPsec", Packets, "cat /proc/net/xfrm_stat; ip -s xfrm policy; ip -s xfrm state";
    /// UDP or TCP rejected the header: its length does not fit the packet.
    TransportHeader = "transport-header", "transport header", Packets,
        "nstat -az UdpInErrors TcpInErrs; tcpdump -ni DEV -v";
    /// No socket is bound to that address and port.
    NoSocket = "no-socket", "no socket", Packets, "ss -lunp: start the receiver, or stop the sender";
    /// A checksum is wrong.
    Checksum = "checksum", "bad checksum", Packets, "ethtool -K PEER tx off shows whether the sender's checksum offload causes them";
    /// A filter on the socket rejected it (SO_ATTACH_FILTER, or its cgroup).
    SocketFilter = "socket-filter", "socket filter", Packets, "ss -0b; bpftool cgroup tree";
    /// The owner had locked the socket and its backlog was full.
    SocketBacklog = "socket-backlog", "socket backlog full", Packets, "sysctl -w net.core.rmem_max=8388608, and SO_RCVBUF";
    /// The socket's receive buffer was full: the application does not read fast enough.
    ReceiveBuffer = "receive-buffer", "receive buffer full", Packets,
        "sysctl -w net.core.rmem_max=26214400, and SO_RCVBUF (linerate: --receive-buffer); or more readers with SO_REUSEPORT";
    /// The application closed its socket before reading it.
    NotRead = "not-read", "never read by the application", Packets, "read until the queue is empty before closing";
    /// TCP discarded it: old, duplicate, or wrong for the connection's state. The stream lost nothing.
    Tcp = "tcp", "TCP segments refused", Packets, "nstat -az 'TcpExt*'; ss -ti";
}

/// Where packets were lost: one of the places, or a case without a place. Its text form is the one of records.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum LossPlace {
    /// One of the places.
    At(Place),
    /// No receiver could report on these packets.
    Unobserved,
    /// A counter whose meaning is not known moved.
    UnknownCounter,
    /// Free text: a model's places, drop reasons without a place, places of other versions.
    Other(String),
}

impl LossPlace {
    const UNOBSERVED: &str = "unobserved";
    const UNKNOWN_COUNTER: &str = "unknown counter";

    /// The text in records and tables.
    pub fn as_str(&self) -> &str {
        match self {
            Self::At(place) => place.name(),
            Self::Unobserved => Self::UNOBSERVED,
            Self::UnknownCounter => Self::UNKNOWN_COUNTER,
            Self::Other(words) => words,
        }
    }

    /// The place, if it is a known one.
    pub fn known(&self) -> Option<Place> {
        match self {
            Self::At(place) => Some(*place),
            _ => None,
        }
    }
}

impl fmt::Display for LossPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<Place> for LossPlace {
    fn from(place: Place) -> Self {
        Self::At(place)
    }
}

impl From<String> for LossPlace {
    fn from(words: String) -> Self {
        match Place::ALL.iter().find(|place| place.name() == words) {
            Some(place) => Self::At(*place),
            None if words == Self::UNOBSERVED => Self::Unobserved,
            None if words == Self::UNKNOWN_COUNTER => Self::UnknownCounter,
            None => Self::Other(words),
        }
    }
}

impl From<&str> for LossPlace {
    fn from(words: &str) -> Self {
        words.to_owned().into()
    }
}

impl From<LossPlace> for String {
    fn from(place: LossPlace) -> Self {
        match place {
            LossPlace::Other(words) => words,
            known => known.as_str().to_owned(),
        }
    }
}

impl PartialEq<str> for LossPlace {
    fn eq(&self, words: &str) -> bool {
        self.as_str() == words
    }
}

impl PartialEq<&str> for LossPlace {
    fn eq(&self, words: &&str) -> bool {
        self.as_str() == *words
    }
}

impl Place {
    /// The place of this name in data files, metrics or ledgers.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|place| place.id() == name || place.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_the_places_as_they_are() {
        const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ledger.md");
        const BEGIN: &str = "<!-- places: written by `make bless` -->\n";
        const END: &str = "<!-- end of places -->\n";
        let mut table =
            "| place | id | unit | a loss there means | remedy |\n|---|---|---|---|---|\n".to_owned();
        for place in Place::ALL {
            let unit = format!("{:?}", place.unit()).to_lowercase();
            let (name, id, meaning, remedy) = (place.name(), place.id(), place.meaning(), place.remedy());
            table += &format!("| {name} | `{id}` | {unit} | {meaning} | {} |\n", remedy.replace('|', "\\|"));
        }
        let text = std::fs::read_to_string(FILE).unwrap();
        let (before, rest) = text.split_once(BEGIN).expect("the table has a start mark");
        let (found, after) = rest.split_once(END).expect("the table has an end mark");
        if std::env::var_os("LINERATE_BLESS").is_some() {
            std::fs::write(FILE, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        } else {
            assert_eq!(found, table, "run make bless to update the table");
        }
    }

    #[test]
    fn every_place_is_found_by_its_names_and_says_what_helps() {
        for &place in Place::ALL {
            assert_eq!(Place::named(place.id()), Some(place));
            assert_eq!(Place::named(place.name()), Some(place), "names differ");
            assert!(place.meaning().ends_with('.') && place.remedy().len() > 6, "{place:?}");
        }
        assert_eq!(Place::named("elsewhere"), None);
    }

    #[test]
    fn a_place_reads_back_from_a_record_as_what_it_was() {
        let other = LossPlace::Other("dropped: SOMETHING_NEW".into());
        let all = Place::ALL.iter().map(|place| LossPlace::At(*place));
        for place in all.chain([LossPlace::Unobserved, LossPlace::UnknownCounter, other]) {
            let text = serde_json::to_string(&place).unwrap();
            assert_eq!(text, format!("\"{}\"", place.as_str()));
            assert_eq!(serde_json::from_str::<LossPlace>(&text).unwrap(), place);
        }
        assert_eq!(
            LossPlace::from("receive-buffer"),
            LossPlace::Other("receive-buffer".into()),
            "an id is not a name"
        );
    }
}
