//! Packets between XDP and every other way to send or see them.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use lab::{Lab, LabPlan};
use port::{
    CountOptions, Counts, PortError, ProbeAction, SendPath, XdpMode, XdpRx, XdpTx, XdpTxOptions, probe_xdp,
};
use wire::{FrameSpec, PROBE_LEN, ProbeHeader, SizeMix, Sizes, UdpFrame};

use crate::support::{Capture, OnDrop, lab, napis, template};
use testing::wait_for;

const PORT: u16 = 4321;

/// Frames of these sizes from the sending side's first address to the receiving side's.
fn spec(lab: &Lab, family: usize, sizes: &str) -> FrameSpec {
    let address = |side: &lab::Side| [IpAddr::V4(side.ipv4()[0]), IpAddr::V6(side.ipv6()[0])][family];
    FrameSpec {
        src_mac: wire::MacAddr(lab.tx().mac()),
        dst_mac: wire::MacAddr(lab.rx().mac()),
        src_addr: address(lab.tx()).into(),
        dst_addr: address(lab.rx()).into(),
        src_port: "1000-1999".parse().unwrap(),
        dst_port: PORT.into(),
        sizes: Sizes::Frame(sizes.parse::<SizeMix>().unwrap()),
        ..FrameSpec::default()
    }
}

fn open_tx(lab: &Lab, spec: &FrameSpec, path: SendPath) -> Result<XdpTx, PortError> {
    let side = lab.tx();
    let options = XdpTxOptions { path, ..XdpTxOptions::on(side.index()) };
    side.run(|| XdpTx::open(template(spec).recipe(), &options)).unwrap()
}

fn open_rx(lab: &Lab, mode: XdpMode, options: &CountOptions) -> XdpRx {
    let side = lab.rx();
    side.run(|| XdpRx::open(side.index(), mode, options)).unwrap().unwrap()
}

/// Sends packets in calls of 1000.
fn send(lab: &Lab, tx: &mut XdpTx, packets: usize) {
    lab.tx()
        .run(|| {
            for _ in 0..packets / 1000 {
                assert_eq!(tx.send(1000, 77).unwrap().taken, 1000);
            }
            assert_eq!(tx.send(packets % 1000, 77).unwrap().taken, packets % 1000);
        })
        .unwrap();
}

fn read_until(rx: &XdpRx, packets: u64) -> Counts {
    let mut counts = Counts::default();
    wait_for(&format!("{packets} packets"), || {
        counts = rx.read().unwrap();
        counts.packets() >= packets
    });
    counts
}

#[test]
fn a_hundred_thousand_packets_arrive_none_lost_none_twice() {
    for (mode, path, queues) in [
        (XdpMode::Native, SendPath::Tx, 1),
        (XdpMode::Native, SendPath::Map, 1),
        (XdpMode::Native, SendPath::Tx, 2),
    ] {
        let Some(lab) = lab(&LabPlan { queues, ..LabPlan::default() }) else { return };
        let rx = open_rx(&lab, mode, &CountOptions { queues, ..CountOptions::default() });
        let mut tx = open_tx(&lab, &spec(&lab, 0, "64"), path).unwrap();
        send(&lab, &mut tx, 100_000);
        let counts = read_until(&rx, 100_000);
        assert_eq!(counts.foreign, 0);
        let stream = counts.streams[0];
        assert_eq!((stream.packets, stream.payload_bytes), (100_000, 1_800_000), "{path:?}");
        assert_eq!(
            (stream.first, stream.span, stream.lost(), stream.duplicates),
            (0, 100_000, 0, 0),
            "{path:?}"
        );
        assert_eq!(rx.read_queues().unwrap().iter().map(|queue| queue.packets).sum::<u64>(), 100_000);
        assert_eq!(counts.streams[1..].iter().map(|stream| stream.packets).sum::<u64>(), 0);
    }
}

#[test]
fn vlans_both_families_and_all_sizes_are_counted() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let rx = open_rx(&lab, XdpMode::Native, &CountOptions::default());
    let mut stream = 0;
    for tags in 0..3 {
        for family in 0..2 {
            for sizes in ["96", "1518", "random:96-1518", "imix"] {
                if family == 1 && sizes == "imix" {
                    continue; // its smallest frame has no room for the probe header
                }
                stream += 1;
                let vlan = vec!["7".parse().unwrap(); tags];
                let sizes = if tags > 0 { sizes.replace("imix", "list:96,594,1518") } else { sizes.into() };
                let spec = FrameSpec { vlan, stream, ..spec(&lab, family, &sizes) };
                let mut tx = open_tx(&lab, &spec, SendPath::Tx).unwrap();
                let template = template(&spec);
                send(&lab, &mut tx, 1500);
                let bytes: u64 = (0..1500).map(|sequence| template.payload_len(sequence) as u64).sum();
                let count = read_until(&rx, 1500 * u64::from(stream)).streams[usize::from(stream)];
                assert_eq!((count.packets, count.payload_bytes, count.lost()), (1500, bytes, 0), "{spec}");
            }
        }
    }
}

#[test]
fn jumbo_frames_arrive_as_long_as_they_fit_in_a_page() {
    let Some(lab) = lab(&LabPlan { mtu: 9000, ..LabPlan::default() }) else { return };
    let rx = open_rx(&lab, XdpMode::Native, &CountOptions::default());
    let mut tx = open_tx(&lab, &spec(&lab, 0, "random:64-3076"), SendPath::Tx).unwrap();
    send(&lab, &mut tx, 1000);
    assert_eq!(read_until(&rx, 1000).streams[0].lost(), 0);
    let mut tx = open_tx(&lab, &spec(&lab, 0, "9000"), SendPath::Tx).unwrap();
    let error = lab.tx().run(|| tx.send(1, 0)).unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "making XDP live frames of 8996 bytes is not supported by this kernel: each must fit in a page"
    );
}

#[test]
fn two_senders_have_streams_of_their_own() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let rx = open_rx(&lab, XdpMode::Native, &CountOptions { streams: 3, ..CountOptions::default() });
    let spec = |stream| FrameSpec { stream, ..spec(&lab, 0, "64") };
    let mut one = open_tx(&lab, &spec(1), SendPath::Tx).unwrap();
    let two = template(&spec(2));
    let mut two = lab.tx().run(|| one.beside(two.recipe())).unwrap().unwrap();
    thread::scope(|scope| {
        for tx in [&mut one, &mut two] {
            scope.spawn(|| send(&lab, tx, 20_000));
        }
    });
    drop(one); // the other's rings stay
    send(&lab, &mut two, 1000);
    let counts = read_until(&rx, 41_000);
    assert_eq!(counts.streams[1..].iter().map(|stream| stream.packets).collect::<Vec<_>>(), [20_000, 21_000]);
}

#[test]
fn the_kernels_own_udp_receiver_takes_every_packet() {
    for family in 0..2 {
        let Some(lab) = lab(&LabPlan { gro: true, ..LabPlan::default() }) else { return };
        let spec = FrameSpec {
            src_port: "random:1000-1999".parse().unwrap(),
            ..spec(&lab, family, "random:82-1518")
        };
        let template = template(&spec);
        let target = [IpAddr::V4(lab.rx().ipv4()[0]), IpAddr::V6(lab.rx().ipv6()[0])][family];
        let socket = lab.rx().run(|| UdpSocket::bind(SocketAddr::new(target, PORT))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut tx = open_tx(&lab, &spec, SendPath::Tx).unwrap();
        let mut payload = [0; 2048];
        let mut expected = [0; 2048];
        for call in 0..200 {
            lab.tx().run(|| tx.send(10, 99)).unwrap().unwrap();
            for sequence in call * 10..call * 10 + 10 {
                let (len, from) = socket.recv_from(&mut payload).unwrap();
                let expected_len = template.stamp_payload(&mut expected, sequence, 99);
                assert_eq!(payload[..len], expected[..expected_len]);
                assert_eq!(from.port(), template.flow(sequence).src_port);
            }
        }
    }
}

#[test]
fn on_the_wire_are_the_bytes_of_the_template_though_pages_are_recycled() {
    const PACKETS_A_CALL: u32 = 5000;
    for vlan in [vec![], vec!["100/5".parse().unwrap()]] {
        let Some(lab) = lab(&LabPlan { gro: true, ..LabPlan::default() }) else { return };
        let spec = FrameSpec {
            src_addr: "random:198.18.0.0/16".parse().unwrap(),
            vlan,
            ..spec(&lab, 0, "random:82-1518")
        };
        let (template, tagged) = (template(&spec), !spec.vlan.is_empty());
        let mut capture = lab.rx().run(Capture::open).unwrap();
        let mut tx = open_tx(&lab, &spec, SendPath::Tx).unwrap();
        let is_enough = &AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let sends = || {
                    while !is_enough.load(Relaxed) && tx.send(PACKETS_A_CALL as usize, 1_234_567_890).is_ok()
                    {
                    }
                };
                lab.tx().run(sends).unwrap();
            });
            let _enough = OnDrop(|| is_enough.store(true, Relaxed));
            let mut slot = vec![0; template.max_frame_len()];
            let mut in_recycled_pages = 0;
            // The capture's buffer is small: it captures some of the packets.
            while in_recycled_pages < 300 {
                let frame = capture.next();
                // The port is not read: packets other than datagrams are ICMP errors.
                let Ok(udp) = UdpFrame::parse(&frame) else { continue };
                let probe = udp.probe().unwrap();
                udp.verify_checksums().unwrap();
                let mut len = template.stamp_frame(&mut slot, probe.sequence, 1_234_567_890);
                if tagged {
                    slot.copy_within(16..len, 12); // the kernel keeps the tag apart
                    len -= 4;
                }
                assert_eq!(frame, slot[..len], "packet {} of {spec}", probe.sequence);
                in_recycled_pages += u32::from(probe.sequence % PACKETS_A_CALL > 1000);
            }
        });
    }
}

#[test]
fn sockets_packets_are_counted_and_told_from_foreign_ones() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let Some(lab) = lab(&LabPlan::default()) else { return };
        let options =
            CountOptions { streams: 8, tag_inverse: 1, queues: 2, verdict: ProbeAction::Drop, work_ns: 0 };
        let rx = open_rx(&lab, mode, &options);
        let target = SocketAddr::new(lab.rx().ipv4()[0].into(), PORT);
        let inbox = lab.rx().run(|| UdpSocket::bind(target)).unwrap().unwrap();
        inbox.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let socket = lab.tx().run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        let say = |sequence, stream, len| {
            let mut payload = [0; 100];
            ProbeHeader { sequence, raw_time: 0, stream }.write(&mut payload);
            socket.send_to(&payload[..len], target).unwrap();
        };
        // In order: 0, 1, 5 (2 to 4 missing), 3 late, 5 again, 300, 5 stale; stream 1 begins late and wraps.
        for sequence in [0, 1, 5, 3, 5, 300, 5] {
            say(sequence, 3, 40);
        }
        for sequence in [u32::MAX, u32::MAX - 1, 0, 1, u32::MAX] {
            say(sequence, 1, 18);
        }
        say(0, 9, PROBE_LEN); // without room for the tag: stream 0
        say(0, 8, 18); // beyond the streams: foreign
        socket.send_to(b"hello", target).unwrap();
        for expected_len in [18, 5] {
            assert_eq!(inbox.recv(&mut [0; 100]).unwrap(), expected_len, "foreign packets pass");
        }
        let counts = read_until(&rx, 13);
        assert_eq!((counts.packets(), counts.foreign), (13, 2), "{mode}");
        let [zero, one, three] = [0, 1, 3].map(|stream| counts.streams[stream]);
        assert_eq!((zero.packets, zero.payload_bytes, zero.lost()), (1, 16, 0));
        assert_eq!((one.packets, one.first, one.span), (5, u32::MAX - 1, 4));
        assert_eq!((one.reordered, one.duplicates, one.lost()), (1, 1, 0));
        assert_eq!((three.packets, three.payload_bytes, three.span), (7, 280, 301));
        assert_eq!((three.reordered, three.duplicates, three.stale), (1, 1, 1));
        assert_eq!(three.lost(), 301 - 6);
        assert_eq!(rx.read_queues().unwrap().iter().map(|queue| queue.packets).sum::<u64>(), 13);
    }
}

#[test]
fn counted_packets_can_go_on_to_the_kernel() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let rx = open_rx(
        &lab,
        XdpMode::Native,
        &CountOptions { verdict: ProbeAction::Pass, ..CountOptions::default() },
    );
    let target = SocketAddr::new(lab.rx().ipv4()[0].into(), PORT);
    let socket = lab.rx().run(|| UdpSocket::bind(target)).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut tx = open_tx(&lab, &spec(&lab, 0, "64"), SendPath::Tx).unwrap();
    send(&lab, &mut tx, 10);
    for _ in 0..10 {
        assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 18);
    }
    assert_eq!(rx.read().unwrap().packets(), 10);
}

#[test]
fn a_peer_without_receive_rings_is_no_silence_but_an_error() {
    for path in [SendPath::Tx, SendPath::Map] {
        let Some(lab) = lab(&LabPlan::default()) else { return };
        let mut tx = open_tx(&lab, &spec(&lab, 0, "64"), path).unwrap();
        let error = lab.tx().run(|| tx.send(64, 0)).unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no frame sent by XDP on lab-tx arrives: its peer has no receive rings; attach an XDP program there, or \
             turn GRO on (ethtool -K PEER gro on)"
        );
        assert_eq!(lab.rx().link().unwrap().stats.rx_packets, 0);
    }
}

#[test]
fn a_sender_on_a_veth_changes_nothing_on_either_end() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let looks = || [lab.tx(), lab.rx()].map(|side| (side.features().unwrap(), napis(side)));
    let before = looks();
    let _tx = open_tx(&lab, &spec(&lab, 0, "64"), SendPath::Tx).unwrap();
    assert_eq!(looks(), before);
}

#[test]
fn a_foreign_program_on_the_sending_end_stays_and_does_not_matter() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let Some(lab) = lab(&LabPlan::default()) else { return };
        let rx = open_rx(&lab, XdpMode::Native, &CountOptions::default());
        let side = lab.tx();
        let foreign =
            side.run(|| XdpRx::open(side.index(), mode, &CountOptions::default())).unwrap().unwrap();
        send(&lab, &mut open_tx(&lab, &spec(&lab, 0, "64"), SendPath::Tx).unwrap(), 100);
        read_until(&rx, 100);
        drop(foreign);
    }
}

#[test]
fn an_interface_of_another_namespace_is_told_at_once() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let template = template(&spec(&lab, 0, "64"));
    let options = XdpTxOptions::on(4_000_000);
    let error = lab.tx().run(|| XdpTx::open(template.recipe(), &options)).unwrap().unwrap_err();
    assert_eq!(error.to_string(), "cannot attach XDP to interface number 4000000 (native)");
}

#[test]
fn all_of_xdp_works_on_a_veth_and_generic_on_loopback() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let veth = lab.rx().run(|| probe_xdp(lab.rx().index())).unwrap();
    assert!(veth.native.is_ok() && veth.generic.is_ok() && veth.live_frames.is_ok(), "{veth:?}");
    assert_eq!(napis(lab.rx()), []);
    let loopback = lab.rx().run(|| probe_xdp(1)).unwrap();
    assert!(loopback.generic.is_ok());
    assert_eq!(loopback.native.unwrap_err().to_string(), "native XDP is not supported by lo");
    assert_eq!(loopback.live_frames.unwrap_err().to_string(), "native XDP is not supported by lo");
}
