//! Ways to lose a packet in the lab, a row each.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    scene::PORT,
    ways::{
        At::{self, Receiver, Sender},
        Listener::{self, Filtered, Full, Nobody, Tcp},
        REST, SENT,
        Traffic::{self, Four, Six},
        Way, way,
    },
};

const TO_4: Traffic = Traffic::Udp("198.19.0.1:4321", 20);
const TO_6: Traffic = Traffic::Udp("[2001:2:0:1::1]:4321", 20);
const AT_4: &str = "198.19.0.1:4321";
const AT_6: &str = "[2001:2:0:1::1]:4321";

/// The receiving side as a router towards `tap`, 192.0.2.0/24 and 2001:db8::/64, with one neighbour each.
macro_rules! router {
    ($more:literal) => {
        concat!(
            "echo 1 > /proc/sys/net/ipv4/ip_forward
             echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
             ip link set tap addrgenmode none
             ip link set tap up
             ip address add 192.0.2.1/24 dev tap
             ip address add 2001:db8::1/64 dev tap nodad
             ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev tap
             ip neigh add 2001:db8::9 lladdr 02:00:00:00:00:09 dev tap
            ",
            $more
        )
    };
}

/// The same frames to the router's neighbours.
#[expect(clippy::ptr_arg, reason = "rows of the table hold functions of a frame that may grow")]
fn forwarded_4(frame: &mut Vec<u8>) {
    frame[30..34].copy_from_slice(&[192, 0, 2, 9]);
}

#[expect(clippy::ptr_arg, reason = "rows of the table hold functions of a frame that may grow")]
fn forwarded_6(frame: &mut Vec<u8>) {
    frame[38..54].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
}

/// Makes the payload of a datagram larger.
fn larger_4(frame: &mut Vec<u8>, bytes: u16) {
    frame.resize(14 + usize::from(bytes), 0);
    frame[16..18].copy_from_slice(&bytes.to_be_bytes());
    frame[38..40].copy_from_slice(&(bytes - 20).to_be_bytes());
}

fn larger_6(frame: &mut Vec<u8>, bytes: u16) {
    frame.resize(14 + usize::from(bytes), 0);
    frame[18..20].copy_from_slice(&(bytes - 40).to_be_bytes());
    frame[58..60].copy_from_slice(&(bytes - 40).to_be_bytes());
}

/// Puts an extension header of eight bytes before the datagram.
fn extended_6(frame: &mut Vec<u8>, kind: u8, header: [u8; 8]) {
    frame[20] = kind;
    frame.splice(54..54, header);
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
}

fn fragment_6(frame: &mut Vec<u8>) {
    extended_6(frame, 44, [17, 0, 0, 1, 0, 0, 0, 7]);
}

/// A TCP segment instead of the datagram.
fn tcp_4(frame: &mut Vec<u8>, words: u8, flags: u8, checksum: bool) {
    frame[23] = 6;
    frame.truncate(34);
    let [high, low] = PORT.to_be_bytes();
    frame.extend([0x10, 0, high, low, 0, 0, 0, 1, 0, 0, 0, 0, words << 4, flags, 1, 0, 0, 0, 0, 0]);
    frame[16..18].copy_from_slice(&40u16.to_be_bytes());
    if checksum {
        let pseudo = [&frame[26..34], &[0, 6, 0, 20]].concat();
        let sum = wire::Checksum::ZERO.add_bytes(&pseudo).add_bytes(&frame[34..]).finish();
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
    }
}

const EGRESS: &str = "tc qdisc add dev lab-tx clsact
    tc filter add dev lab-tx egress bpf direct-action bytecode '1,6 0 0 2,'";
const INGRESS: &str = "tc qdisc add dev lab-rx clsact
    tc filter add dev lab-rx ingress bpf direct-action bytecode '1,6 0 0 2,'";

#[rustfmt::skip]
fn ways() -> Vec<Way> {
    vec![
        // On the way out: the sender's own protocols.
        way!("no route, v4", Sender, tx "", rx "", Nobody, Traffic::Udp("203.0.113.1:9", 20), NoRoute SENT),
        way!("no route, v6", Sender, tx "", rx "", Nobody, Traffic::Udp("[2001:db8:7::1]:9", 20), NoRoute SENT),
        way!("interface down, v4", Sender, tx "ip link set lab-tx down", rx "", Nobody, TO_4, NoRoute SENT),
        way!("neighbour unknown, v4", Sender,
            tx "ip neigh del 198.19.0.1 dev lab-tx
                echo 10 > /proc/sys/net/ipv4/neigh/lab-tx/retrans_time_ms
                ip link set lo up; ip link set lab-tx arp on",
            rx "ip link set lab-rx arp off", Nobody, TO_4, Neighbour SENT),
        way!("nft output, v4", Sender, tx "nft 'add table inet t; add chain inet t o { type filter hook output priority 0; }; add rule inet t o udp dport 4321 drop'",
            rx "", Nobody, TO_4, Firewall SENT),
        way!("nft output, v6", Sender, tx "nft 'add table inet t; add chain inet t o { type filter hook output priority 0; }; add rule inet t o udp dport 4321 drop'",
            rx "", Nobody, TO_6, Firewall SENT),
        way!("nft postrouting, v4", Sender, tx "nft 'add table inet t; add chain inet t o { type filter hook postrouting priority 0; }; add rule inet t o udp dport 4321 drop'",
            rx "", Nobody, TO_4, Firewall SENT),
        way!("nft postrouting, v6", Sender, tx "nft 'add table inet t; add chain inet t o { type filter hook postrouting priority 0; }; add rule inet t o udp dport 4321 drop'",
            rx "", Nobody, TO_6, Firewall SENT),
        way!("nft output with a limit, v4", Sender, tx "nft 'add table inet t; add chain inet t o { type filter hook output priority 0; }; add rule inet t o udp dport 4321 limit rate over 1/hour burst 40 packets drop'",
            rx "", Nobody, TO_4, Firewall 60),
        way!("nft egress, v4", Sender, tx "nft 'add table netdev t; add chain netdev t o { type filter hook egress device lab-tx priority 0; }; add rule netdev t o udp dport 4321 drop'",
            rx "", Nobody, TO_4, Firewall SENT),
        way!("nft egress, v6", Sender, tx "nft 'add table netdev t; add chain netdev t o { type filter hook egress device lab-tx priority 0; }; add rule netdev t o udp dport 4321 drop'",
            rx "", Nobody, TO_6, Firewall SENT),
        way!("iptables OUTPUT, v4", Sender, tx "iptables -A OUTPUT -p udp --dport 4321 -j DROP", rx "", Nobody, TO_4, Firewall SENT),
        way!("ip6tables OUTPUT, v6", Sender, tx "ip6tables -A OUTPUT -p udp --dport 4321 -j DROP", rx "", Nobody, TO_6, Firewall SENT),
        way!("xfrm blocks what leaves, v4", Sender, tx "ip xfrm policy add dst 198.19.0.1 dir out action block", rx "", Nobody, TO_4, Ipsec SENT),
        way!("xfrm blocks what leaves, v6", Sender, tx "ip xfrm policy add dst 2001:2:0:1::1 dir out action block", rx "", Nobody, TO_6, Ipsec SENT),
        way!("xfrm has no state, v4", Sender, tx "ip xfrm policy add dst 198.19.0.1 dir out tmpl src 198.18.0.1 dst 198.19.0.1 proto esp mode tunnel", rx "", Nobody, TO_4, Ipsec SENT),
        way!("xfrm has no state, v6", Sender, tx "ip xfrm policy add dst 2001:2:0:1::1 dir out tmpl src 2001:2::1 dst 2001:2:0:1::1 proto esp mode tunnel", rx "", Nobody, TO_6, Ipsec SENT),
        // The queueing discipline and the interface.
        way!("tc egress, v4", Sender, tx EGRESS, rx "", Nobody, TO_4, TcEgress SENT),
        way!("tc egress, v6", Sender, tx EGRESS, rx "", Nobody, TO_6, TcEgress SENT),
        way!("bfifo, v4", Sender, tx "tc qdisc add dev lab-tx root bfifo limit 10", rx "", Nobody, TO_4, Qdisc SENT),
        way!("bfifo, v6", Sender, tx "tc qdisc add dev lab-tx root bfifo limit 10", rx "", Nobody, TO_6, Qdisc SENT),
        way!("a packet larger than tbf's burst", Sender, tx "tc qdisc add dev lab-tx root tbf rate 1mbit burst 500 limit 4000", rx "", Nobody, Traffic::Udp(AT_4, 1000), Qdisc SENT),
        way!("a class of htb without room", Sender,
            tx "tc qdisc add dev lab-tx root handle 1: htb default 10
                tc class add dev lab-tx parent 1: classid 1:10 htb rate 10mbit
                tc qdisc add dev lab-tx parent 1:10 bfifo limit 10", rx "", Nobody, TO_4, Qdisc SENT),
        way!("larger than the peer accepts, v4", Sender, tx "", rx "ip link set lab-rx mtu 600", Nobody, Traffic::Udp(AT_4, 1000), PeerMtu SENT),
        way!("larger than the peer accepts, v6", Sender, tx "", rx "ip link set lab-rx mtu 1280", Nobody, Traffic::Udp(AT_6, 1400), PeerMtu SENT),
        way!("larger than the peer accepts, seen there", Receiver, tx "", rx "ip link set lab-rx mtu 600", Nobody, Traffic::Udp(AT_4, 1000), ReceivingInterface SENT),
        way!("the peer is down, v4", Sender, tx "", rx "ip link set lab-rx down", Nobody, TO_4, PeerRing SENT),
        way!("the peer is down, v6", Sender, tx "", rx "ip link set lab-rx down", Nobody, TO_6, PeerRing SENT),
        way!("vxlan without a remote", Sender,
            tx "ip link add name v type vxlan id 7 dstport 4789
                ip link set v addrgenmode none; ip link set v up
                ip address add 192.0.2.1/24 dev v; ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev v",
            rx "", Nobody, Traffic::Udp("192.0.2.9:9", 20), DriverTx SENT),
        // On the way in: before IP.
        way!("tc ingress, v4", Receiver, tx "", rx INGRESS, Nobody, TO_4, TcIngress SENT),
        way!("tc ingress, v6", Receiver, tx "", rx INGRESS, Nobody, TO_6, TcIngress SENT),
        way!("nft ingress, v4", Receiver, tx "", rx "nft 'add table netdev t; add chain netdev t i { type filter hook ingress device lab-rx priority 0; }; add rule netdev t i udp dport 4321 drop'", Nobody, TO_4, Firewall SENT),
        way!("nft ingress, v6", Receiver, tx "", rx "nft 'add table netdev t; add chain netdev t i { type filter hook ingress device lab-rx priority 0; }; add rule netdev t i udp dport 4321 drop'", Nobody, TO_6, Firewall SENT),
        way!("an unknown ethertype", Receiver, tx "", rx "", Nobody, Four(|frame| frame[12..14].copy_from_slice(&[0x88, 0xb5])), NoHandler SENT),
        way!("another host's, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[5] ^= 0x77), OtherHost SENT),
        way!("another host's, v6", Receiver, tx "", rx "", Nobody, Six(|frame| frame[5] ^= 0x77), OtherHost SENT),
        way!("a bridge with nowhere to go", Receiver, tx "",
            rx "ip link add name bridge0 type bridge mcast_snooping 0; ip link set bridge0 addrgenmode none; ip link set lab-rx master bridge0
                ip link set bridge0 up; ip link set lab-rx promisc on",
            Nobody, Four(|frame| frame[5] ^= 0x77), OtherHost SENT),
        // IP's header and addresses.
        way!("the wrong version, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[14] = 0x55), IpHeader SENT),
        way!("the wrong version, v6", Receiver, tx "", rx "", Nobody, Six(|frame| frame[14] = 0x50), IpHeader SENT),
        way!("a short header, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[14] = 0x44), IpHeader SENT),
        way!("a total length beyond the frame, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[16] = 4), IpHeader SENT),
        way!("a payload length beyond the frame, v6", Receiver, tx "", rx "", Nobody, Six(|frame| frame[18] = 4), IpHeader SENT),
        way!("a total length below the header's, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[17] = 12), IpHeader SENT),
        way!("IP's checksum, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[24] = 1), Checksum SENT),
        way!("a source route, v4", Receiver, tx "", rx "", Nobody, Four(|frame| {
            frame[14] = 0x47;
            frame.splice(34..34, [0x83, 7, 4, 198, 19, 0, 1, 0]);
            frame[17] += 8;
        }), IpHeader SENT),
        way!("an unknown hop-by-hop option, v6", Receiver, tx "", rx "", Nobody,
            Six(|frame| extended_6(frame, 0, [17, 0, 0x7e, 4, 0, 0, 0, 0])), IpHeader SENT),
        way!("a routing header of type 0, v6", Receiver, tx "", rx "", Nobody,
            Six(|frame| extended_6(frame, 43, [17, 0, 0, 1, 0, 0, 0, 0])), IpHeader SENT),
        way!("reverse path, v4", Receiver, tx "", rx "echo 1 > /proc/sys/net/ipv4/conf/lab-rx/rp_filter", Nobody,
            Four(|frame| frame[26..30].copy_from_slice(&[203, 0, 113, 5])), IpAddress SENT),
        way!("a source of loopback, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[26..30].copy_from_slice(&[127, 0, 0, 5])), IpAddress SENT),
        way!("a source of loopback, v6", Receiver, tx "", rx "", Nobody, Six(|frame| { frame[22..38].fill(0); frame[37] = 1; }), IpHeader SENT),
        way!("a multicast source, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[26] = 225), IpAddress SENT),
        way!("a multicast source, v6", Receiver, tx "", rx "", Nobody, Six(|frame| frame[22] = 0xff), IpHeader SENT),
        way!("a source of our own, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[26..30].copy_from_slice(&[198, 19, 0, 2])), IpAddress SENT),
        way!("a destination of loopback, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[30..34].copy_from_slice(&[127, 0, 0, 1])), IpAddress SENT),
        way!("a destination of loopback, v6", Receiver, tx "", rx "", Nobody, Six(|frame| { frame[38..54].fill(0); frame[53] = 1; }), IpHeader SENT),
        way!("a destination that is not ours, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[30..34].copy_from_slice(&[203, 0, 113, 5])), IpAddress SENT),
        way!("a destination that is not ours, v6", Receiver, tx "", rx "", Nobody, Six(|frame| frame[39] = 9), NoRoute SENT),
        way!("a destination of class E, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[30..34].copy_from_slice(&[241, 0, 113, 5])), IpAddress SENT),
        way!("a group not joined, v4", Receiver, tx "", rx "", Nobody, Four(|frame| {
            frame[..6].copy_from_slice(&[1, 0, 0x5e, 1, 2, 3]);
            frame[30..34].copy_from_slice(&[239, 1, 2, 3]);
        }), OtherHost SENT),
        way!("a group not joined, v6", Receiver, tx "", rx "", Nobody, Six(|frame| {
            frame[..6].copy_from_slice(&[0x33, 0x33, 1, 2, 3, 4]);
            frame[38..54].copy_from_slice(&[0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        }), OtherHost SENT),
        way!("IPv6 is disabled", Receiver, tx "", rx "echo 1 > /proc/sys/net/ipv6/conf/lab-rx/disable_ipv6", Nobody,
            Six(|_| ()), IpInput SENT),
        // Fragments.
        way!("fragments and no room for them, v4", Receiver, tx "",
            rx "echo 0 > /proc/sys/net/ipv4/ipfrag_low_thresh; echo 0 > /proc/sys/net/ipv4/ipfrag_high_thresh", Nobody,
            Four(|frame| frame[20] = 0x20), Reassembly SENT),
        way!("fragments and no room for them, v6", Receiver, tx "",
            rx "echo 0 > /proc/sys/net/ipv6/ip6frag_low_thresh; echo 0 > /proc/sys/net/ipv6/ip6frag_high_thresh", Nobody,
            Six(fragment_6), Reassembly SENT),
        // Firewalls and policies on the way in.
        way!("nft prerouting, v4", Receiver, tx "", rx "nft 'add table inet t; add chain inet t i { type filter hook prerouting priority 0; }; add rule inet t i udp dport 4321 drop'", Nobody, TO_4, Firewall SENT),
        way!("nft prerouting, v6", Receiver, tx "", rx "nft 'add table inet t; add chain inet t i { type filter hook prerouting priority 0; }; add rule inet t i udp dport 4321 drop'", Nobody, TO_6, Firewall SENT),
        way!("nft input, v4", Receiver, tx "", rx "nft 'add table inet t; add chain inet t i { type filter hook input priority 0; }; add rule inet t i udp dport 4321 drop'", Nobody, TO_4, Firewall SENT),
        way!("nft input, v6", Receiver, tx "", rx "nft 'add table inet t; add chain inet t i { type filter hook input priority 0; }; add rule inet t i udp dport 4321 drop'", Nobody, TO_6, Firewall SENT),
        way!("nft rejects, v4", Receiver, tx "", rx "nft 'add table inet t; add chain inet t i { type filter hook input priority 0; }; add rule inet t i udp dport 4321 reject'", Nobody, TO_4, Firewall SENT),
        way!("nft, no way back to the source, v6", Receiver, tx "", rx "nft 'add table inet t; add chain inet t i { type filter hook prerouting priority 0; }; add rule inet t i udp dport 4321 fib saddr . iif oif missing drop'", Nobody,
            Six(|frame| frame[23] = 9), Firewall SENT),
        way!("iptables INPUT, v4", Receiver, tx "", rx "iptables -A INPUT -p udp --dport 4321 -j DROP", Nobody, TO_4, Firewall SENT),
        way!("ip6tables INPUT, v6", Receiver, tx "", rx "ip6tables -A INPUT -p udp --dport 4321 -j DROP", Nobody, TO_6, Firewall SENT),
        way!("xfrm blocks what comes, v4", Receiver, tx "", rx "ip xfrm policy add src 198.18.0.1 dir in action block", Listener::Udp(AT_4), TO_4, Ipsec SENT),
        way!("xfrm blocks what comes, v6", Receiver, tx "", rx "ip xfrm policy add src 2001:2::/64 dir in action block", Listener::Udp(AT_6), TO_6, Ipsec SENT),
        way!("xfrm wants ESP, v4", Receiver, tx "", rx "ip xfrm policy add src 198.18.0.1 dir in tmpl src 198.18.0.1 dst 198.19.0.1 proto esp mode tunnel", Listener::Udp(AT_4), TO_4, Ipsec SENT),
        // Transports.
        way!("an unknown protocol, v4", Receiver, tx "", rx "", Nobody, Four(|frame| frame[23] = 253), IpProtocol SENT),
        way!("an unknown protocol, v6", Receiver, tx "", rx "", Nobody, Six(|frame| frame[20] = 253), IpProtocol SENT),
        way!("a UDP length beyond the packet, v4", Receiver, tx "", rx "", Listener::Udp(AT_4), Four(|frame| frame[39] += 20), TransportHeader SENT),
        way!("a UDP length beyond the packet, v6", Receiver, tx "", rx "", Listener::Udp(AT_6), Six(|frame| frame[59] += 20), TransportHeader SENT),
        way!("a UDP length below the header's, v4", Receiver, tx "", rx "", Listener::Udp(AT_4), Four(|frame| frame[39] = 7), TransportHeader SENT),
        way!("a packet shorter than UDP's header, v4", Receiver, tx "", rx "", Listener::Udp(AT_4), Four(|frame| frame[17] = 24), TransportHeader SENT),
        way!("a TCP header length below the least, v4", Receiver, tx "", rx "", Tcp(AT_4), Four(|frame| tcp_4(frame, 4, 4, true)), TransportHeader SENT),
        way!("UDP's checksum, v4", Receiver, tx "", rx "", Listener::Udp(AT_4), Four(|frame| frame[40..42].copy_from_slice(&[0xba, 0xd1])), Checksum SENT),
        way!("UDP's checksum, v6", Receiver, tx "", rx "", Listener::Udp(AT_6), Six(|frame| frame[60..62].copy_from_slice(&[0xba, 0xd1])), Checksum SENT),
        way!("TCP's checksum, v4", Receiver, tx "", rx "", Tcp(AT_4), Four(|frame| tcp_4(frame, 5, 4, false)), Checksum SENT),
        way!("a useless TCP segment, v4", Receiver, tx "", rx "", Tcp(AT_4), Four(|frame| tcp_4(frame, 5, 4, true)), Tcp SENT),
        way!("no socket, v4", Receiver, tx "", rx "", Nobody, TO_4, NoSocket SENT),
        way!("no socket, v6", Receiver, tx "", rx "", Nobody, TO_6, NoSocket SENT),
        way!("no TCP socket, v4", Receiver, tx "", rx "", Nobody, Four(|frame| tcp_4(frame, 5, 2, true)), NoSocket SENT),
        way!("a socket of another address", Receiver, tx "", rx "", Listener::Udp("198.19.0.2:4321"), TO_4, NoSocket SENT),
        way!("a broadcast without a socket, v4", Receiver, tx "", rx "", Nobody,
            Four(|frame| { frame[..6].fill(0xff); frame[30..34].fill(0xff); }), NoSocket SENT),
        way!("a socket's filter, v4", Receiver, tx "", rx "", Filtered(AT_4), TO_4, SocketFilter SENT),
        way!("a socket's filter, v6", Receiver, tx "", rx "", Filtered(AT_6), TO_6, SocketFilter SENT),
        way!("a receive buffer, v4", Receiver, tx "", rx "", Full(AT_4), TO_4, ReceiveBuffer REST),
        way!("a receive buffer, v6", Receiver, tx "", rx "", Full(AT_6), TO_6, ReceiveBuffer REST),
        // Routers.
        way!("a router without a route, v4", Receiver, tx "", rx router!(""), Nobody, Four(|frame| frame[30..34].copy_from_slice(&[203, 0, 113, 1])), NoRoute SENT),
        way!("a router without a route, v6", Receiver, tx "", rx router!(""), Nobody, Six(|frame| frame[39] = 9), NoRoute SENT),
        way!("an unreachable route, v4", Receiver, tx "", rx router!("ip route add unreachable 203.0.113.0/24"), Nobody, Four(|frame| frame[30..34].copy_from_slice(&[203, 0, 113, 1])), NoRoute SENT),
        way!("an unreachable route, v6", Receiver, tx "", rx router!("ip route add unreachable 2001:db8:7::/48"), Nobody,
            Six(|frame| { forwarded_6(frame); frame[43] = 7; }), NoRoute SENT),
        way!("a prohibited route, v4", Receiver, tx "", rx router!("ip route add prohibit 203.0.113.0/24"), Nobody, Four(|frame| frame[30..34].copy_from_slice(&[203, 0, 113, 1])), NoRoute SENT),
        way!("a prohibited route, v6", Receiver, tx "", rx router!("ip route add prohibit 2001:db8:7::/48"), Nobody,
            Six(|frame| { forwarded_6(frame); frame[43] = 7; }), NoRoute SENT),
        way!("a blackhole, v4", Receiver, tx "", rx router!("ip route add blackhole 203.0.113.0/24"), Nobody, Four(|frame| frame[30..34].copy_from_slice(&[203, 0, 113, 1])), NoRoute SENT),
        way!("a blackhole, v6", Receiver, tx "", rx router!("ip route add blackhole 2001:db8:7::/48"), Nobody,
            Six(|frame| { forwarded_6(frame); frame[43] = 7; }), NoRoute SENT),
        way!("no hops left, v4", Receiver, tx "", rx router!(""), Nobody, Four(|frame| { forwarded_4(frame); frame[22] = 1; }), IpHeader SENT),
        way!("no hops left, v6", Receiver, tx "", rx router!(""), Nobody, Six(|frame| { forwarded_6(frame); frame[21] = 1; }), IpHeader SENT),
        way!("larger than the next MTU, v4", Receiver, tx "", rx router!("ip link set tap mtu 600"), Nobody,
            Four(|frame| { forwarded_4(frame); larger_4(frame, 1000); frame[20] = 0x40; }), TooBig SENT),
        way!("larger than the next MTU, v6", Receiver, tx "", rx router!("ip link set tap mtu 1280"), Nobody,
            Six(|frame| { forwarded_6(frame); larger_6(frame, 1400); }), TooBig SENT),
        way!("nft forward, v4", Receiver, tx "", rx router!("nft 'add table inet t; add chain inet t f { type filter hook forward priority 0; policy drop; }'"), Nobody, Four(forwarded_4), Firewall SENT),
        way!("nft forward, v6", Receiver, tx "", rx router!("nft 'add table inet t; add chain inet t f { type filter hook forward priority 0; policy drop; }'"), Nobody, Six(forwarded_6), Firewall SENT),
        way!("xfrm blocks what is forwarded, v4", Receiver, tx "", rx router!("ip xfrm policy add src 198.18.0.1 dir fwd action block"), Nobody, Four(forwarded_4), Ipsec SENT),
        way!("xfrm blocks what is forwarded, v6", Receiver, tx "", rx router!("ip xfrm policy add src 2001:2::1 dir fwd action block"), Nobody, Six(forwarded_6), Ipsec SENT),
        way!("xfrm blocks what a router sends, v4", Receiver, tx "", rx router!("ip xfrm policy add dst 192.0.2.9 dir out action block"), Nobody, Four(forwarded_4), Ipsec SENT),
        // Smaller than these packets, larger than the router's own.
        way!("a router's queueing discipline", Receiver, tx "", rx router!("tc qdisc add dev tap root tbf rate 1mbit burst 500 limit 4000"), Nobody,
            Four(|frame| { forwarded_4(frame); larger_4(frame, 600); }), Qdisc SENT),
        way!("a router's neighbour, v4", Receiver, tx "",
            rx router!("echo 10 > /proc/sys/net/ipv4/neigh/tap/retrans_time_ms; ip neigh del 192.0.2.9 dev tap"), Nobody, Four(forwarded_4), Neighbour SENT),
        way!("a router's neighbour, v6", Receiver, tx "",
            rx router!("echo 10 > /proc/sys/net/ipv6/neigh/tap/retrans_time_ms; ip neigh del 2001:db8::9 dev tap"), Nobody, Six(forwarded_6), Neighbour SENT),
    ]
}

/// Rows run in parallel: most of the time they wait for the kernel to attach and detach programs.
fn all_of(at: At) {
    const AT_ONCE: usize = 4;
    let ways = ways();
    assert!(ways.len() >= 60, "{}", ways.len());
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(way) = ways.get(next.fetch_add(1, Ordering::Relaxed)) {
            if way.at == at {
                let found = way.faults();
                faults.lock().unwrap().extend(found);
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| _ = scope.spawn(work)));
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn each_way_to_lose_a_packet_on_its_way_out_is_named_once() {
    all_of(At::Sender);
}

#[test]
fn each_way_to_lose_a_packet_on_its_way_in_is_named_once() {
    all_of(At::Receiver);
}
