use testing::Hosts;

use super::*;

fn find(hosts: &Hosts, to: &str, interface: Option<&str>) -> Result<FramePath, FramePathError> {
    let target = SocketAddr::new(to.parse().unwrap(), 4321);
    hosts.a.run(|| FramePath::find(target, None, interface, GivenMacs::default())).unwrap()
}

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

#[test]
fn the_kernel_finds_neighbours_of_both_versions() {
    let Some(hosts) = Hosts::join() else { return };
    for (to, from) in [("198.18.0.2", "198.18.0.1"), ("fd18::2", "fd18::1")] {
        let path = find(&hosts, to, None).unwrap();
        assert_eq!((path.interface.as_str(), path.src_mac, path.dst_mac), ("va", A, B), "{to}");
        assert_eq!((path.local, path.mtu), (from.parse().unwrap(), 1500));
        assert_eq!((path.vlan.len(), path.next_hop), (0, to.parse().unwrap()));
        assert_eq!(find(&hosts, to, Some("va")).unwrap(), path);
    }
}

#[test]
fn a_permanent_neighbour_is_used_and_stays_permanent() {
    let Some(hosts) = Hosts::join() else { return };
    hosts.ip(&hosts.a, "neighbour add 198.18.0.9 lladdr 02:00:00:00:00:09 nud permanent dev va");
    for _ in 0..2 {
        assert_eq!(find(&hosts, "198.18.0.9", None).unwrap().dst_mac, MacAddr([2, 0, 0, 0, 0, 9]));
    }
    let entry = hosts.a.run(|| {
        let mut kernel = RouteSocket::open().unwrap();
        let index = kernel.link_by_name("va").unwrap().index;
        kernel.neighbour(index, "198.18.0.9".parse().unwrap()).unwrap().unwrap()
    });
    assert!(entry.unwrap().is_permanent());
}

#[test]
fn a_router_is_the_next_hop_and_the_routes_mtu_applies() {
    let Some(hosts) = Hosts::join() else { return };
    hosts.ip(&hosts.a, "route add 203.0.113.0/24 via 198.18.0.2 mtu lock 1280");
    let path = find(&hosts, "203.0.113.9", None).unwrap();
    assert_eq!((path.dst_mac, path.next_hop), (B, "198.18.0.2".parse().unwrap()));
    assert_eq!(path.mtu, 1280);
    hosts.ip(&hosts.a, "route add 198.51.100.0/24 via inet6 fd18::2 dev va");
    let path = find(&hosts, "198.51.100.1", None).unwrap();
    assert_eq!((path.dst_mac, path.next_hop), (B, "fd18::2".parse().unwrap()));
}

#[test]
fn an_unreachable_receiver_is_an_error_with_the_reason() {
    let Some(hosts) = Hosts::join() else { return };
    hosts.ip(&hosts.a, "tuntap add dev tun0 mode tun");
    hosts.ip(&hosts.a, "link set tun0 up");
    hosts.ip(&hosts.a, "address add 192.0.2.1/24 dev tun0");
    for (to, interface, said) in [
        ("203.0.113.1", None, "no route to 203.0.113.1"),
        ("192.0.2.2", None, "the route to 192.0.2.2 uses tun0, which has no Ethernet header"),
        ("198.18.0.1", None, "198.18.0.1 is an address of this host, but whole frames need another host"),
        ("127.0.0.1", None, "127.0.0.1 is an address of this host, but whole frames need another host"),
        (
            "198.18.0.255",
            None,
            "198.18.0.255 is a broadcast or multicast address, but frames need a single receiver",
        ),
        ("198.18.0.9", None, "198.18.0.9 does not answer on va: its MAC address is unknown"),
        ("198.18.0.2", Some("vx"), "cannot read interface vx"),
    ] {
        let error = find(&hosts, to, interface).unwrap_err().to_string();
        assert!(error.starts_with(said), "{to} {interface:?}: {error}");
    }
    let given = GivenMacs { src: None, dst: Some(B) };
    let target = "198.18.0.9:4321".parse().unwrap();
    let path = hosts.a.run(|| FramePath::find(target, None, None, given)).unwrap().unwrap();
    assert_eq!(path.dst_mac, B, "the user's address overrides the kernel's");
}

fn path(mtu: u32, tags: &[&str]) -> FramePath {
    FramePath {
        interface: "eth0".into(),
        index: 2,
        route_interface: "eth0.5".into(),
        src_mac: A,
        dst_mac: B,
        vlan: tags.iter().map(|tag| tag.parse().unwrap()).collect(),
        local: "198.18.0.1".parse().unwrap(),
        next_hop: "198.18.0.2".parse().unwrap(),
        mtu,
    }
}

fn sending(frame_bytes: &str) -> TxTraffic {
    TxTraffic {
        workers: vec![traffic::TxWorkerPlan {
            target: "198.18.0.2:4321".parse().unwrap(),
            local: "0.0.0.0:0".parse().unwrap(),
            flows: 1,
            stream: 300,
        }],
        interface: None,
        frames: wire::FrameSpec {
            sizes: wire::Sizes::Frame(frame_bytes.parse().unwrap()),
            ..wire::FrameSpec::default()
        },
        rate_pps: None,
        departures: traffic::Departures::Constant,
        limit: traffic::Limit { count: Some(1), duration_ns: None },
        batch_size: 64,
        seed: 1,
    }
}

#[test]
fn tags_make_frames_larger_and_leave_payloads_unchanged() {
    let mut sent = sending("64");
    path(1500, &["5"]).apply(&mut sent).unwrap();
    assert_eq!(
        (sent.interface.as_deref(), sent.workers[0].local),
        (Some("eth0"), "198.18.0.1:0".parse().unwrap())
    );
    let template = Template::new(&sent.frames).unwrap();
    assert_eq!((template.max_payload_len(), template.max_frame_len()), (18, 64));
    let mut tagged = sending("64");
    tagged.frames.vlan = vec!["9".parse().unwrap()];
    let error = path(1500, &["5"]).apply(&mut tagged).unwrap_err();
    assert_eq!(error.to_string(), "frames through eth0.5 would need more than two VLAN tags");
}

#[test]
fn no_packet_exceeds_the_mtu_of_the_path() {
    path(1500, &[]).apply(&mut sending("1518")).unwrap();
    path(1500, &["5"]).apply(&mut sending("1518")).unwrap();
    let error = path(1400, &[]).apply(&mut sending("64:1,1518:1")).unwrap_err().to_string();
    assert_eq!(error, "IP packets of 1500 bytes are larger than the MTU 1400 of the path to 198.18.0.2");
}
