use super::*;
use crate::netns::NetNs;
use std::os::fd::AsFd;
use std::time::Duration;

/// Two namespaces with a pair between them, or `None` with a printed skip if this process may not create any.
fn pair(queues: u32) -> Option<(NetNs, NetNs)> {
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
        queues,
        mtu: 9000,
    };
    near.run(|| RouteSocket::open().unwrap().create_veth(&plan).unwrap()).unwrap();
    Some((near, far))
}

fn socket_in(namespace: &NetNs) -> RouteSocket {
    namespace.run(RouteSocket::open).unwrap().unwrap()
}

#[cfg(target_endian = "little")]
#[test]
fn a_neighbour_is_laid_out_as_linux_neighbour_h_says() {
    let request = neighbour_request(3, "198.19.0.1".parse().unwrap(), [2, 0, 0, 0, 0, 2]);
    #[rustfmt::skip]
    assert_eq!(request.body(), [
        2, 0, 0, 0,  3, 0, 0, 0,  0x80, 0, 0, 0,              // AF_INET, index 3, NUD_PERMANENT
        8, 0,  1, 0,  198, 19, 0, 1,                          // NDA_DST
        10, 0, 2, 0,  2, 0, 0, 0, 0, 2, 0, 0,                 // NDA_LLADDR, padded
    ]);
}

#[test]
fn a_question_for_a_route_is_laid_out_as_linux_rtnetlink_h_says() {
    let request = route_request("198.19.0.1".parse().unwrap());
    let attribute = [8u16.to_ne_bytes(), 1u16.to_ne_bytes(), [198, 19], [0, 1]].concat();
    assert_eq!(request.body(), [&[2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &attribute].concat());
    assert_eq!(route_type(&[2, 32, 0, 0, 255, 2, 0, 2]), Some(libc::RTN_LOCAL));
    assert_eq!(route_type(&[]), None);
}

#[cfg(target_endian = "little")]
#[test]
fn an_address_is_laid_out_as_linux_if_addr_h_says() {
    let request = address_request(3, "2001:2::1".parse().unwrap(), 48);
    let body = request.body();
    assert_eq!(body[..8], [10, 48, 2, 0, 3, 0, 0, 0], "AF_INET6, prefix, IFA_F_NODAD, universe, index");
    assert_eq!(body[8..12], [20, 0, 2, 0], "IFA_LOCAL");
    assert_eq!(body[28..32], [20, 0, 1, 0], "IFA_ADDRESS");
    assert_eq!(body[12..28], [0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn both_ends_are_created_as_asked_and_a_long_dump_tells_the_same() {
    let Some((near, far)) = pair(3) else { return };
    for (namespace, name, last) in [(&near, "near", 1), (&far, "far", 2)] {
        let mut route = socket_in(namespace);
        let link = route.link_by_name(name).unwrap();
        assert_eq!((link.tx_queues, link.rx_queues, link.mtu), (3, 3, 9000));
        assert_eq!(link.mac, Some([2, 0, 0, 0, 0, last]));
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert_eq!(route.link_by_index(link.index).unwrap(), link);
        assert!(route.links().unwrap().contains(&link));
    }
}

#[test]
fn an_end_is_operational_once_both_are_up() {
    let Some((near, far)) = pair(1) else { return };
    let (mut near, mut far) = (socket_in(&near), socket_in(&far));
    let (here, there) = (near.link_by_name("near").unwrap().index, far.link_by_name("far").unwrap().index);
    near.change_flags(here, flag::UP, flag::UP).unwrap();
    assert!(!near.wait_until_up(here, Instant::now()).unwrap());
    far.change_flags(there, flag::UP, flag::UP).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    assert!(near.wait_until_up(here, deadline).unwrap());
    assert!(far.wait_until_up(there, deadline).unwrap());
    far.change_flags(there, 0, flag::UP).unwrap();
    assert_eq!(far.link_by_index(there).unwrap().flags & flag::UP, 0);
}

#[test]
fn an_address_becomes_local_and_another_never_does() {
    let Some((near, _far)) = pair(1) else { return };
    let mut near = socket_in(&near);
    let index = near.link_by_name("near").unwrap().index;
    near.change_flags(index, flag::UP, flag::UP).unwrap();
    for (own, other, prefix) in [("198.18.0.1", "198.18.0.2", 15), ("2001:2::1", "2001:2::2", 48)] {
        let [own, other]: [IpAddr; 2] = [own, other].map(|address| address.parse().unwrap());
        assert!(!near.is_local(own).unwrap(), "before there is any route");
        near.add_address(index, own, prefix).unwrap();
        assert!(near.wait_until_local(own, Instant::now() + Duration::from_secs(10)).unwrap());
        assert!(!near.is_local(other).unwrap());
    }
}

#[test]
fn waiting_ends_at_the_deadline() {
    let Some((near, _far)) = pair(1) else { return };
    let mut near = socket_in(&near);
    let index = near.link_by_name("near").unwrap().index;
    let deadline = Instant::now() + Duration::from_millis(50);
    assert!(!near.wait_until_up(index, deadline).unwrap());
    assert!(Instant::now() >= deadline);
}

#[test]
fn deleting_one_end_takes_the_other_along() {
    let Some((near, far)) = pair(1) else { return };
    let mut near = socket_in(&near);
    let index = near.link_by_name("near").unwrap().index;
    near.delete_link(index).unwrap();
    let error = socket_in(&far).link_by_name("far").unwrap_err();
    assert_eq!(error.to_string(), "cannot read interface far");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "No such device (os error 19)");
}

#[test]
fn a_refusal_tells_what_was_tried_and_the_kernels_words() {
    let Some((near, _far)) = pair(1) else { return };
    let mut near = socket_in(&near);
    let index = near.link_by_name("near").unwrap().index;
    let address = "198.18.0.1".parse().unwrap();
    near.add_address(index, address, 15).unwrap();
    let error = near.add_address(index, address, 15).unwrap_err();
    let told = error.to_string();
    let expected = format!("cannot add address 198.18.0.1/15 to interface number {index} (");
    assert!(told.starts_with(&expected), "{told}");
    assert!(told.contains("already assigned"), "{told}");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "File exists (os error 17)");
}

#[test]
fn counters_that_a_kernel_does_not_have_are_zero_and_new_ones_are_skipped() {
    let bytes: Vec<u8> = (1..=30u64).flat_map(u64::to_ne_bytes).collect();
    let all = LinkStats::parse(&bytes);
    assert_eq!((all.rx_packets, all.tx_packets, all.rx_otherhost_dropped), (1, 2, 25));
    let old = LinkStats::parse(&bytes[..24 * 8]);
    assert_eq!((old.rx_nohandler, old.rx_otherhost_dropped), (24, 0));
    assert_eq!(all.named().nth(6), Some(("rx_dropped", 7)));
    assert_eq!(all.named().count(), 25);
}

#[test]
fn a_message_too_short_for_a_link_is_none() {
    assert_eq!(Link::parse(&[0; 15]), None);
    assert_eq!(Link::parse(&link_header(1, 0, 0)), None);
}

#[test]
fn the_loopback_has_its_addresses() {
    let mut route = RouteSocket::open().unwrap();
    let lo = route.link_by_name("lo").unwrap();
    let addresses = route.addresses(lo.index).unwrap();
    assert!(addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    assert_eq!(address_of(&[0; 7], 0), None);
}
