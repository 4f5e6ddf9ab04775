use std::{io::Read, net::TcpListener, sync::Arc};

use super::*;

fn ip(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

/// A connection's two ends.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, peer)
}

#[test]
fn every_address_leaves_half_of_the_streams_to_the_next() {
    let room = Arc::<Room>::default();
    let (ours, _peer) = pair();
    let places: Vec<_> = (0..9).map(|number| room.enter(ip(number), &ours).unwrap()).collect();
    let mut seats = Vec::new();
    let mut most = Vec::new();
    for place in &places {
        let mut streams = 0;
        while let Ok(seat) = place.seat(1, true) {
            streams += seat.streams.len();
            seats.push(seat);
        }
        most.push(streams);
    }
    assert_eq!(most, [128, 64, 32, 16, 8, 4, 2, 1, 0]);
}

#[test]
fn too_many_streams_are_refused_with_the_share() {
    let room = Arc::<Room>::default();
    let (ours, _peer) = pair();
    let (one, two) = (room.enter(ip(1), &ours).unwrap(), room.enter(ip(2), &ours).unwrap());
    let _seat = one.seat(55, true).unwrap();
    let refused = two.seat(101, true).err().unwrap();
    assert_eq!(
        refused,
        "101 more streams are too many: an address may have 100 while others have 55; this one has 0"
    );
    let seat = two.seat(100, true).unwrap();
    assert_eq!(seat.streams.len(), 100);
    assert!(seat.streams.iter().all(|stream| (1..=MOST_STREAMS).contains(stream)));
}

#[test]
fn sessions_of_one_address_leave_room_for_others() {
    let room = Arc::<Room>::default();
    let (ours, _peer) = pair();
    let mut places = Vec::new();
    for (number, share) in [(0, 32), (1, 16), (2, 8)] {
        for _ in 0..share {
            places.push(room.enter(ip(number), &ours).unwrap());
            // All of them are senders: no place is free for another.
            let number = places.last().unwrap().number;
            room.inside().connections.iter_mut().find(|one| one.number == number).unwrap().is_sender = true;
        }
        assert!(room.enter(ip(number), &ours).is_err(), "{number}");
    }
    let refused = room.enter(ip(0), &ours).err().unwrap();
    assert_eq!(refused, "too many connections: 32 from 10.0.0.0 and 24 from others");
}

#[test]
fn the_oldest_connection_without_an_offer_makes_room_for_a_new_one() {
    let room = Arc::<Room>::default();
    let pairs: Vec<_> = (0..33).map(|_| pair()).collect();
    let places: Vec<_> = pairs[..32].iter().map(|(ours, _)| room.enter(ip(1), ours).unwrap()).collect();
    let _seat = places[0].seat(1, true).unwrap();
    let _newest = room.enter(ip(1), &pairs[32].0).unwrap();
    let mut closed = &pairs[1].1;
    assert_eq!(closed.read(&mut [0]).unwrap(), 0, "the second is closed, because the first has joined");
    pairs[0].1.set_nonblocking(true).unwrap();
    assert!((&pairs[0].1).read(&mut [0]).is_err(), "still open");
}

#[test]
fn the_addresses_of_an_ipv6_host_share() {
    let holder = |text: &str| Holder::of(text.parse().unwrap());
    assert_eq!(holder("2001:2::1"), holder("2001:2::ffff:2"));
    assert_ne!(holder("2001:2:0:1::1"), holder("2001:2::1"));
    assert_ne!(holder("fe80::1"), holder("fe80::2"));
    assert_eq!(holder("::ffff:10.0.0.1"), Holder(ip(1)));
    assert_ne!(holder("10.0.0.1"), holder("10.0.0.2"));
}
