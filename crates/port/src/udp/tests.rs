use super::*;

#[test]
fn buffers_that_gro_joined_are_counted_with_their_datagrams() {
    let local = "127.0.0.1:0".parse().unwrap();
    let mut rx = UdpRx::open(&UdpRxOptions { gro: true, ..UdpRxOptions::at(local) }).unwrap();
    let to = UdpTxOptions::to(rx.local_address().unwrap(), 32);
    let mut tx = UdpTx::open(&UdpTxOptions { gso: true, ..to }).unwrap();
    // A message is one buffer on loopback, which passes it on unchanged.
    for datagrams in [5, 1, 3] {
        assert_eq!(tx.send(datagrams, |_| 32).unwrap().taken, datagrams);
    }
    let mut received = 0;
    while received < 9 {
        received += rx.recv(Wait::Block, |_| {}).unwrap();
    }
    assert_eq!(rx.joined(), Some(Joined { buffers: 3, datagrams: 9, fewest: 1, most: 5 }));
}

#[test]
fn without_gro_nothing_is_joined() {
    let rx = UdpRx::open(&UdpRxOptions::at("127.0.0.1:0".parse().unwrap())).unwrap();
    assert_eq!(rx.joined(), None);
}

#[test]
fn joined_buffers_of_several_workers_add_up() {
    let mut one = Joined::default();
    one.add(2, 7);
    let mut other = Joined::default();
    other.add(0, 1);
    assert_eq!(other, Joined::default());
    other.add(1, 3);
    let both = Joined { buffers: 3, datagrams: 17, fewest: 3, most: 7 };
    assert_eq!((one.plus(other), other.plus(one), both.plus(Joined::default())), (both, both, both));
}
