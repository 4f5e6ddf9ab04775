use super::*;
use crate::netns::NetNs;
use crate::rtnetlink::{VethEnd, VethPair, flag};
use std::os::fd::AsFd;
use std::time::Duration;

const NEAR: &str = "198.18.0.1";
const FAR: &str = "198.18.0.2";

#[cfg(target_endian = "little")]
#[test]
fn a_question_and_its_answer_are_laid_out_as_linux_rtnetlink_h_says() {
    let question =
        RouteQuestion { to: FAR.parse().unwrap(), from: Some(NEAR.parse().unwrap()), interface: Some(3) };
    #[rustfmt::skip]
    assert_eq!(question.request().body(), [
        2, 32, 32, 0,  0, 0, 0, 0,  0, 0, 0, 0,   // AF_INET, 32 bits of each address
        8, 0, 1, 0,  198, 18, 0, 2,               // RTA_DST
        8, 0, 2, 0,  198, 18, 0, 1,               // RTA_SRC
        8, 0, 4, 0,  3, 0, 0, 0,                  // RTA_OIF
    ]);
    #[rustfmt::skip]
    let answer = [
        2, 32, 0, 0,  254, 3, 0, 1,  0, 0, 0, 0,  // RTN_UNICAST
        8, 0, 4, 0,  7, 0, 0, 0,                  // RTA_OIF
        8, 0, 5, 0,  198, 18, 0, 254,             // RTA_GATEWAY
        8, 0, 7, 0,  198, 18, 0, 1,               // RTA_PREFSRC
        12, 0, 8, 0,  8, 0, 2, 0, 0x78, 5, 0, 0,  // RTA_METRICS: RTAX_MTU 1400
    ];
    let route = Route::parse(&answer).unwrap();
    assert_eq!((route.kind, route.interface, route.mtu), (RouteKind::Unicast, 7, Some(1400)));
    assert_eq!(route.gateway, Some("198.18.0.254".parse().unwrap()));
    assert_eq!(route.source, Some(NEAR.parse().unwrap()));
    assert_eq!(Route::parse(&answer[..8]), None, "cut short");
    // RTA_VIA: AF_INET6 and a link-local router.
    let mut via = vec![2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0, 22, 0, 18, 0, 10, 0, 0xfe, 0x80];
    via.extend([0; 13]);
    via.push(1);
    assert_eq!(Route::parse(&via).unwrap().gateway, Some("fe80::1".parse().unwrap()));
}

#[test]
fn a_neighbour_is_valid_when_its_address_is_known_and_was_not_given_up() {
    let neighbour = |state, mac: Option<[u8; 6]>| Neighbour { state, mac };
    let mac = Some([2, 0, 0, 0, 0, 1]);
    assert!(neighbour(libc::NUD_STALE, mac).is_valid() && neighbour(libc::NUD_PERMANENT, mac).is_valid());
    assert!(!neighbour(libc::NUD_FAILED, mac).is_valid() && neighbour(libc::NUD_FAILED, None).has_failed());
    assert!(!neighbour(libc::NUD_INCOMPLETE, None).is_valid());
    assert!(!neighbour(libc::NUD_REACHABLE, None).is_valid(), "no Ethernet address");
}

/// Two hosts on one cable, with addresses but without neighbours.
fn hosts() -> Option<(NetNs, NetNs)> {
    let (near, far) = match NetNs::create().and_then(|near| Ok((near, NetNs::create()?))) {
        Ok(namespaces) => namespaces,
        Err(error) => {
            testing::skip(format_args!("no namespace: {error}"));
            return None;
        }
    };
    let plan = VethPair {
        near: VethEnd { name: "near", mac: [2, 0, 0, 0, 0, 1] },
        far: VethEnd { name: "far", mac: [2, 0, 0, 0, 0, 2] },
        far_namespace: far.as_fd(),
        queues: 1,
        mtu: 1500,
    };
    near.run(|| RouteSocket::open().unwrap().create_veth(&plan).unwrap()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    for (namespace, name) in [(&near, "near"), (&far, "far")] {
        let mut route = namespace.run(RouteSocket::open).unwrap().unwrap();
        let index = route.link_by_name(name).unwrap().index;
        route.change_flags(index, flag::UP, flag::UP).unwrap();
        let last: u8 = if name == "near" { 1 } else { 2 };
        route.add_address(index, [198, 18, 0, last].into(), 24).unwrap();
    }
    for (namespace, name) in [(&near, "near"), (&far, "far")] {
        let mut route = namespace.run(RouteSocket::open).unwrap().unwrap();
        let index = route.link_by_name(name).unwrap().index;
        assert!(route.wait_until_up(index, deadline).unwrap());
    }
    Some((near, far))
}

#[test]
fn the_kernel_finds_a_neighbour_when_it_is_to_be_used_and_gives_up_on_one_that_is_not_there() {
    let Some((near, _far)) = hosts() else { return };
    let mut route = near.run(RouteSocket::open).unwrap().unwrap();
    let index = route.link_by_name("near").unwrap().index;
    let (there, nowhere): (IpAddr, IpAddr) = (FAR.parse().unwrap(), "198.18.0.9".parse().unwrap());
    assert_eq!(route.neighbour(index, there).unwrap(), None);
    let deadline = Instant::now() + Duration::from_secs(30);
    route.use_neighbour(index, there).unwrap();
    route.use_neighbour(index, nowhere).unwrap();
    let found = route.wait_for_neighbour(index, there, deadline).unwrap().unwrap();
    assert_eq!((found.mac, found.is_valid()), (Some([2, 0, 0, 0, 0, 2]), true));
    let missing = route.wait_for_neighbour(index, nowhere, deadline).unwrap().unwrap();
    assert!(missing.has_failed() && !missing.is_valid());
}

#[test]
fn routes_are_told_by_what_becomes_of_packets() {
    let Some((near, _far)) = hosts() else { return };
    let mut route = near.run(RouteSocket::open).unwrap().unwrap();
    let index = route.link_by_name("near").unwrap().index;
    let mut to = |to: &str| {
        route.route(&RouteQuestion { to: to.parse().unwrap(), from: None, interface: None }).unwrap()
    };
    let direct = to(FAR).unwrap();
    assert_eq!((direct.kind, direct.interface, direct.gateway), (RouteKind::Unicast, index, None));
    assert_eq!(direct.source, Some(NEAR.parse().unwrap()));
    assert_eq!(to(NEAR).unwrap().kind, RouteKind::Local);
    assert_eq!(to("198.18.0.255").unwrap().kind, RouteKind::Many);
    assert_eq!(to("203.0.113.1"), None, "no default route");
}
