//! From the kernel's drop reasons to places. Names: `include/net/dropreason-core.h`; a kernel may have more.

use measure::Place;

/// The place of a reason, `None` for one without a place: it is shown by its name. `function` is where
/// the kernel dropped it: it distinguishes unspecific reasons.
pub(crate) fn place_of(reason: &str, function: &str) -> Option<Place> {
    Some(match reason {
        "NO_SOCKET" => Place::NoSocket,
        "SOCKET_CLOSE" | "QUEUE_PURGE" => Place::NotRead,
        "SOCKET_FILTER" | "BPF_CGROUP_EGRESS" | "SECURITY_HOOK" => Place::SocketFilter,
        "SOCKET_RCVBUFF" | "PROTO_MEM" => Place::ReceiveBuffer,
        "SOCKET_BACKLOG" => Place::SocketBacklog,
        "UDP_CSUM" | "TCP_CSUM" | "IP_CSUM" | "ICMP_CSUM" | "SKB_CSUM" => Place::Checksum,
        "NETFILTER_DROP" => Place::Firewall,
        "XFRM_POLICY" => Place::Ipsec,
        "OTHERHOST" => Place::OtherHost,
        // IP's and the transports' functions share the reason.
        "PKT_TOO_SMALL" | "HDR_TRUNC" if is_of_transport(function) => Place::TransportHeader,
        "PKT_TOO_SMALL" | "IP_INHDR" | "IPV6_BAD_EXTHDR" | "HDR_TRUNC" | "TCP_MINTTL" => Place::IpHeader,
        "IP_RPFILTER"
        | "IP_INADDRERRORS"
        | "IP_LOCAL_SOURCE"
        | "IP_INVALID_SOURCE"
        | "IP_LOCALNET"
        | "IP_INVALID_DEST"
        | "UNICAST_IN_L2_MULTICAST"
        | "MAC_INVALID_SOURCE" => Place::IpAddress,
        "IP_INNOROUTES" | "IP_OUTNOROUTES" => Place::NoRoute,
        // IPv6 uses it for a wrong version and for an unknown option.
        "UNHANDLED_PROTO" if function.starts_with("ip6_") => Place::IpHeader,
        "UNHANDLED_PROTO" | "INVALID_PROTO" => Place::NoHandler,
        "IP_NOPROTO" => Place::IpProtocol,
        "IPV6DISABLED" => Place::IpInput,
        "TC_EGRESS" => Place::TcEgress,
        "TC_INGRESS" | "TC_COOKIE_ERROR" | "TC_CHAIN_NOTFOUND" | "TC_RECLASSIFY_LOOP" => Place::TcIngress,
        "CAKE_FLOOD" | "DUALPI2_STEP_DROP" => Place::Qdisc,
        "CPU_BACKLOG" => Place::Backlog,
        "XDP" if function == "do_xdp_generic" => Place::XdpRedirect,
        "XDP" => Place::XdpDrop,
        // Packets written to a TUN or TAP descriptor enter through this function.
        _ if function == "tun_get_user" => Place::ReceivingInterface,
        "FULL_RING" | "DEV_READY" | "DEV_HDR" | "TAP_FILTER" | "TAP_TXFILTER" | "SKB_GSO_SEG" => {
            Place::DriverTx
        }
        // A bridge has no port for it; a tunnel has no end.
        "NO_TX_TARGET" if function.starts_with("br_") => Place::OtherHost,
        "NO_TX_TARGET" => Place::DriverTx,
        "PKT_TOO_BIG" => Place::TooBig,
        "DUP_FRAG" | "FRAG_REASM_TIMEOUT" | "FRAG_TOO_FAR" => Place::Reassembly,
        "PACKET_SOCK_ERROR" => Place::PacketRing,
        "NOT_SPECIFIED" => return unspecified(function),
        _ if reason.starts_with("QDISC_") || reason.starts_with("FQ_") => Place::Qdisc,
        _ if reason.starts_with("NEIGH_") => Place::Neighbour,
        _ if reason.starts_with("TCP_") => Place::Tcp,
        _ => return None,
    })
}

fn is_of_transport(function: &str) -> bool {
    ["udp", "tcp_v"].iter().any(|name| function.contains(name))
}

/// Code without a reason, by its function.
fn unspecified(function: &str) -> Option<Place> {
    match function {
        "veth_xmit" | "veth_forward_skb" => Some(Place::PeerRing),
        "____dev_forward_skb" | "__dev_forward_skb" | "__dev_forward_skb2" => Some(Place::PeerMtu),
        "veth_xdp_rcv_skb" | "netif_receive_generic_xdp" | "do_xdp_generic" => Some(Place::XdpDrop),
        "packet_rcv" | "tpacket_rcv" => Some(Place::PacketRing),
        "__dev_direct_xmit" => Some(Place::DriverTx),
        // Multicast of groups not joined here: mostly sent by other hosts when an interface comes up.
        "ip6_mc_input" => Some(Place::OtherHost),
        // A bridge's port is not in the frame's VLAN.
        _ if function.contains("allowed_ingress") || function == "br_handle_vlan" => Some(Place::OtherHost),
        // A blackhole.
        "dst_discard_out" | "ip_error" => Some(Place::NoRoute),
        // A policy of IPsec refused to forward it; other errors there have their own reasons.
        "ip6_forward" => Some(Place::Ipsec),
        _ if function.starts_with("xfrm") => Some(Place::Ipsec),
        "ipv6_rthdr_rcv" => Some(Place::IpHeader),
        _ if function.contains("udp") => Some(Place::TransportHeader),
        _ if function.starts_with("neigh_") => Some(Place::Neighbour),
        "ip_defrag" | "ip6_frag_queue" | "ipv6_frag_rcv" => Some(Place::Reassembly),
        "ip_fragment" | "ip_do_fragment" | "ip6_fragment" => Some(Place::TooBig),
        // Drivers name their transmit function like this: igb_xmit_frame, mlx5e_xmit, start_xmit.
        _ if function.contains("_xmit") => Some(Place::DriverTx),
        _ => None,
    }
}

/// Code that drops for two causes without a reason: a sample packet, from its IP header on, distinguishes them.
pub(crate) fn place_by_packet(reason: &str, function: &str, packet: &[u8]) -> Option<Place> {
    if reason != "NOT_SPECIFIED" {
        return None;
    }
    let is_four = packet.first()? >> 4 == 4;
    match function {
        // IP looked up a route, and checked source-route options.
        "ip_rcv_finish_core" if is_four && packet[0] & 15 > 5 => Some(Place::IpHeader),
        "ip_rcv_finish_core" if is_four && packet.get(16)? >> 4 == 14 => Some(Place::OtherHost),
        // Broadcast and multicast without a socket, and packets too short for a header.
        "__udp4_lib_rcv" if is_four => {
            let (header, total) = (u16::from(packet[0] & 15) * 4, [*packet.get(2)?, *packet.get(3)?]);
            Some(datagram_of(u16::from_be_bytes(total).saturating_sub(header)))
        }
        "__udp6_lib_rcv" if !is_four => {
            Some(datagram_of(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?])))
        }
        "__udp4_lib_mcast_deliver" | "__udp6_lib_mcast_deliver" => Some(Place::NoSocket),
        _ => None,
    }
}

fn datagram_of(bytes: u16) -> Place {
    const HEADER: u16 = 8;
    if bytes < HEADER { Place::TransportHeader } else { Place::NoSocket }
}

/// The name of an error number as in `errno.h`, for those that XDP returns.
pub(crate) fn errno_name(errno: u32) -> String {
    let name = match errno {
        0 => "no room",
        6 => "ENXIO",
        12 => "ENOMEM",
        14 => "EFAULT",
        16 => "EBUSY",
        19 => "ENODEV",
        22 => "EINVAL",
        28 => "ENOSPC",
        56 => "EBADRQC",
        90 => "EMSGSIZE",
        95 => "EOPNOTSUPP",
        100 => "ENETDOWN",
        105 => "ENOBUFS",
        _ => return format!("errno {errno}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_places_and_new_ones_are_shown_by_name() {
        assert_eq!(place_of("NO_SOCKET", ""), Some(Place::NoSocket));
        assert_eq!(place_of("QDISC_OVERLIMIT", ""), Some(Place::Qdisc));
        assert_eq!(place_of("TCP_OLD_DATA", ""), Some(Place::Tcp));
        assert_eq!(place_of("TCP_CSUM", ""), Some(Place::Checksum), "before the rest of TCP's");
        assert_eq!(place_of("DEV_READY", "tun_net_xmit"), Some(Place::DriverTx));
        assert_eq!(place_of("DEV_READY", "tun_get_user"), Some(Place::ReceivingInterface));
        assert_eq!(place_of("SOMETHING_NEW", ""), None);
    }

    #[test]
    fn a_reason_that_says_nothing_is_told_by_its_function() {
        assert_eq!(place_of("NOT_SPECIFIED", "veth_xmit"), Some(Place::PeerRing));
        assert_eq!(place_of("NOT_SPECIFIED", "igb_xmit_frame"), Some(Place::DriverTx));
        assert_eq!(place_of("NOT_SPECIFIED", "ip6_mc_input"), Some(Place::OtherHost));
        assert_eq!(place_of("NOT_SPECIFIED", "some_function"), None);
        assert_eq!(place_of("PKT_TOO_SMALL", "ip_rcv_core"), Some(Place::IpHeader));
        assert_eq!(place_of("PKT_TOO_SMALL", "__udp4_lib_rcv"), Some(Place::TransportHeader));
    }

    #[test]
    fn where_a_function_drops_for_two_reasons_a_packet_tells() {
        let place = |function, packet: &[u8]| place_by_packet("NOT_SPECIFIED", function, packet);
        let mut packet = [0; 20];
        (packet[0], packet[3], packet[16]) = (0x45, 40, 239);
        assert_eq!(place("ip_rcv_finish_core", &packet), Some(Place::OtherHost));
        assert_eq!(place("__udp4_lib_rcv", &packet), Some(Place::NoSocket));
        packet[3] = 27;
        assert_eq!(place("__udp4_lib_rcv", &packet), Some(Place::TransportHeader));
        packet[0] = 0x46;
        assert_eq!(place("ip_rcv_finish_core", &packet), Some(Place::IpHeader));
        assert_eq!(place("ip_rcv_finish_core", &[0x45]), None);
        assert_eq!(place("ip_rcv_finish_core", &[]), None, "nothing was copied");
        assert_eq!(place_by_packet("NO_SOCKET", "__udp4_lib_rcv", &packet), None);
    }
}
