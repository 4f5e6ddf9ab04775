//! Sends frames and compares each with what it should be.

use std::{
    mem,
    time::{Duration, Instant},
};

use lab::Lab;
use port::{Layer, Received, RxPort, Wait, XdpRx};
use wire::{ProbeHeader, Template, UdpFrame};

use crate::ends::{Rx, Tx};

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The send time in all frames.
pub(crate) const TIME_NS: u64 = 1_700_000_000_123_456_789;
/// Frames sent before the earlier ones have arrived: no more than the veth's own ring holds.
const AHEAD: u32 = 256;

/// Carries frames `0..count`.
pub(crate) fn carry(lab: &Lab, tx: &mut Tx, rx: &mut Rx, template: &Template, count: u32, name: &str) {
    match rx {
        Rx::Udp(port) => compare(lab, tx, port, template, count, name),
        Rx::Uring(port) => compare(lab, tx, port, template, count, name),
        Rx::Packet(port) => compare(lab, tx, port, template, count, name),
        Rx::Xsk(port) => compare(lab, tx, port, template, count, name),
        Rx::Xdp(port) => count_in_the_kernel(lab, tx, port, template, count, name),
    }
}

/// To a receiver that lends its packets.
fn compare<R: RxPort>(lab: &Lab, tx: &mut Tx, rx: &mut R, template: &Template, count: u32, name: &str) {
    let mut check = Check {
        template,
        layer: R::LAYER,
        whole_headers: tx.makes_frames(),
        expected: vec![0; template.max_frame_len()],
        seen: vec![false; count as usize],
        name,
    };
    let (mut sent, mut arrived, since) = (0, 0, Instant::now());
    while arrived < count {
        let until = count.min(arrived + AHEAD);
        if until > sent {
            tx.send(lab, template, sent, until);
            sent = until;
        }
        arrived += rx.recv(Wait::Block, |received| check.look(&received)).unwrap() as u32;
        assert!(since.elapsed() < PATIENCE, "{name}: {arrived} of {count} frames arrived in {PATIENCE:?}");
    }
    assert_eq!(rx.recv(Wait::Spin, |_| ()).unwrap(), 0, "{name}: more frames than were sent");
    assert_eq!(rx.lost().unwrap(), 0, "{name}");
    assert!(check.seen.iter().all(|&seen| seen), "{name}");
}

/// The expectation for each frame.
struct Check<'a> {
    template: &'a Template,
    layer: Layer,
    /// Whether the headers are exactly ours, or the kernel's.
    whole_headers: bool,
    expected: Vec<u8>,
    seen: Vec<bool>,
    name: &'a str,
}

impl Check<'_> {
    fn look(&mut self, received: &Received<'_>) {
        let name = self.name;
        assert!(!received.truncated, "{name}");
        let payload = match self.layer {
            Layer::Payload => received.bytes,
            Layer::Frame => match UdpFrame::parse(received.bytes) {
                Ok(frame) => frame.payload(),
                Err(error) => {
                    panic!("{name}: {error}: {:x?}", &received.bytes[..received.bytes.len().min(80)])
                }
            },
        };
        let sequence = ProbeHeader::read(payload).unwrap().sequence;
        let len = self.template.stamp_frame(&mut self.expected, sequence, TIME_NS);
        let expected = UdpFrame::parse(&self.expected[..len]).unwrap();
        // Not `assert_eq`, which would print thousands of bytes.
        assert!(payload == expected.payload(), "{name}: the payload of frame {sequence}");
        if self.layer == Layer::Frame {
            if self.whole_headers {
                assert!(received.bytes == &self.expected[..len], "{name}: frame {sequence}");
            } else {
                let frame = UdpFrame::parse(received.bytes).unwrap();
                assert_eq!(frame.flow(), expected.flow(), "{name}: frame {sequence}");
                assert_eq!(received.bytes[..14], self.expected[..14], "{name}: frame {sequence}");
                assert_eq!(received.bytes.len(), len, "{name}: frame {sequence}");
            }
            let frame = UdpFrame::parse(received.bytes).unwrap();
            assert_eq!(frame.verify_checksums(), Ok(()), "{name}: frame {sequence}");
        }
        let came_before = mem::replace(&mut self.seen[sequence as usize], true);
        assert!(!came_before, "{name}: frame {sequence} arrived twice");
    }
}

/// To a receiver that counts in the kernel and lends nothing: compares sequence numbers.
fn count_in_the_kernel(lab: &Lab, tx: &mut Tx, rx: &XdpRx, template: &Template, count: u32, name: &str) {
    let since = Instant::now();
    let mut sent = 0;
    while sent < count {
        let until = count.min(sent + AHEAD);
        tx.send(lab, template, sent, until);
        sent = until;
        while rx.read().unwrap().packets() < u64::from(sent) {
            assert!(since.elapsed() < PATIENCE, "{name}: {:?} of {sent} frames", rx.read());
        }
    }
    let counts = rx.read().unwrap();
    let bytes: u64 = (0..count).map(|sequence| template.payload_len(sequence) as u64).sum();
    let stream = counts.streams[0];
    assert_eq!(
        (stream.packets, stream.payload_bytes, counts.foreign),
        (u64::from(count), bytes, 0),
        "{name}"
    );
    assert_eq!(
        (stream.first, stream.span, stream.lost(), stream.duplicates, stream.stale),
        (0, u64::from(count), 0, 0, 0),
        "{name}"
    );
}
