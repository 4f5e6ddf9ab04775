//! Recognises a probe like an earlier one by comparing the frames' bytes in place.

use crate::{
    eth::EthHeader,
    frame::UdpFrame,
    ipv4::Ipv4Header,
    probe::{PROBE_TAGGED_LEN, ProbeHeader},
    udp::UdpHeader,
};

/// A probe with plain headers (IPv4 without tags and options), reduced to the bytes that every probe of its flow with the
/// same time shares: all headers except fields that change from packet to packet and do not matter here. Comparing words
/// takes a third of the instructions that parsing headers takes; `make bench-stats` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Likeness {
    words: [u64; WORDS],
    frame_len: usize,
}

/// From the EtherType to the end of the stream tag.
const START: usize = EthHeader::LEN - 2;
const PAYLOAD: usize = EthHeader::LEN + Ipv4Header::LEN + UdpHeader::LEN;
const WORDS: usize = (PAYLOAD + PROBE_TAGGED_LEN - START) / 8;
const _: () = assert!(START + 8 * WORDS == PAYLOAD + PROBE_TAGGED_LEN, "whole words");
/// Offsets of the probe's number and its time.
const NUMBER: usize = PAYLOAD + 4;
const TIME: usize = PAYLOAD + 8;

/// The bytes that must be the same.
const MASKS: [u64; WORDS] = [
    u64::from_ne_bytes([0xff, 0xff, 0xff, 0, 0xff, 0xff, 0, 0]), // EtherType, version, no type of service, length, no identification
    u64::from_ne_bytes([0xff, 0xff, 0, 0xff, 0, 0, 0xff, 0xff]), // fragment, no TTL, protocol, no checksum, source
    u64::MAX,                                                    // source, destination, source port
    u64::from_ne_bytes([0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff]), // destination port, length, no checksum, magic
    u64::from_ne_bytes([0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff]),       // magic, no number, time
    u64::MAX,                                                       // time, tag
];

/// Of those, the bytes of the send time.
const TIMES: [u64; WORDS] = [
    0,
    0,
    0,
    0,
    u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0xff, 0xff]),
    u64::from_ne_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
];

impl Likeness {
    /// From a frame that holds a probe with a stream tag and plain headers; `None` for any other frame.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (payload, _) = UdpFrame::plain(frame)?;
        ProbeHeader::read(payload).or_else(|| ProbeHeader::read_returned(payload))?;
        let has_tag = payload.len() >= PROBE_TAGGED_LEN;
        has_tag.then_some(Self { words: words_of(frame)?, frame_len: frame.len() })
    }

    /// The number of the probe in another frame when that frame is like this one: same flow, same lengths, same rest of
    /// the probe header.
    #[inline(always)]
    pub fn number(&self, frame: &[u8]) -> Option<u32> {
        let words = words_of(frame)?;
        // Comparing the arrays would call memcmp.
        let differ = |at: usize| words[at] ^ self.words[at];
        let differ = differ(0) | differ(1) | differ(2) | differ(3) | differ(4) | differ(5);
        let is_like = differ == 0 && frame.len() == self.frame_len;
        let number = frame.get(NUMBER..)?.first_chunk().filter(|_| is_like)?;
        Some(u32::from_be_bytes(*number))
    }

    /// The number and the time ([`ProbeHeader::raw_time`]) of the probe in another frame that differs from this one only
    /// in those; later frames must have its time.
    #[inline]
    pub fn follow(&mut self, frame: &[u8]) -> Option<(u32, u64)> {
        let words = words_of(frame)?;
        let differs = |at: usize| (words[at] ^ self.words[at]) & !TIMES[at] != 0;
        if (0..WORDS).any(differs) || frame.len() != self.frame_len {
            return None;
        }
        self.words = words;
        let number = frame.get(NUMBER..)?.first_chunk()?;
        let time = frame.get(TIME..)?.first_chunk()?;
        Some((u32::from_be_bytes(*number), u64::from_be_bytes(*time)))
    }
}

#[inline(always)]
fn words_of(frame: &[u8]) -> Option<[u64; WORDS]> {
    let bytes: &[u8; 8 * WORDS] = frame.get(START..)?.first_chunk()?;
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
    Some(std::array::from_fn(|at| word(at) & MASKS[at]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowKey, FrameSpec, Sizes, Template, Values};

    fn frame(payload_len: &str, src_addr: &str, number: u32) -> Vec<u8> {
        let spec = FrameSpec {
            src_addr: Values::Fixed(src_addr.parse().unwrap()),
            sizes: Sizes::Payload(payload_len.parse().unwrap()),
            stream: if payload_len == "17" { 0 } else { 3 },
            ..FrameSpec::default()
        };
        let template = Template::new(&spec).unwrap();
        let mut frame = vec![0; template.max_frame_len()];
        template.prime_frame(&mut frame);
        let len = template.restamp_frame(&mut frame, number, 1234);
        frame[..len].to_vec()
    }

    /// All that a receiver reads from a frame, except the number.
    fn asked(frame: &[u8]) -> Option<(FlowKey, usize, ProbeHeader, u32)> {
        let parsed = UdpFrame::parse(frame).ok()?;
        let probe = parsed.probe()?;
        Some((parsed.flow(), parsed.payload().len(), ProbeHeader { sequence: 0, ..probe }, probe.sequence))
    }

    #[test]
    fn the_next_packet_of_a_stream_is_like_the_one_before() {
        for payload_len in ["18", "19", "1000"] {
            let like = Likeness::of(&frame(payload_len, "10.0.0.1", 7)).unwrap();
            for number in [8, 0, u32::MAX] {
                assert_eq!(like.number(&frame(payload_len, "10.0.0.1", number)), Some(number));
            }
            assert_eq!(like.number(&frame(payload_len, "10.0.0.9", 8)), None);
            assert_eq!(like.number(&frame("100", "10.0.0.1", 8)), None);
            assert_eq!(like.number(&[]), None);
        }
    }

    /// Every byte in turn, every value: a frame that counts as alike parses to the same result, and only bytes that
    /// decide nothing may differ.
    #[test]
    fn whatever_is_like_it_parses_to_the_same() {
        let whole = frame("40", "10.0.0.1", 7);
        let like = Likeness::of(&whole).unwrap();
        let (flow, payload_len, rest, _) = asked(&whole).unwrap();
        let mut may_differ = Vec::new();
        for at in 0..whole.len() {
            let mut alike = 0;
            for other in 0..=u8::MAX {
                let mut frame = whole.clone();
                frame[at] = other;
                let mut latest = like;
                let followed = latest.follow(&frame);
                if let Some((sequence, raw_time)) = followed {
                    let header = ProbeHeader { raw_time, ..rest };
                    assert_eq!(
                        asked(&frame),
                        Some((flow, payload_len, header, sequence)),
                        "byte {at} is {other}"
                    );
                    assert_eq!(latest.number(&frame), Some(sequence), "byte {at} is {other}");
                }
                let tells_when = (50..58).contains(&at);
                let Some(number) = like.number(&frame) else {
                    assert_eq!(followed.is_some(), tells_when, "byte {at} is {other}");
                    continue;
                };
                assert!(followed.is_some(), "byte {at} is {other}");
                assert_eq!(asked(&frame), Some((flow, payload_len, rest, number)), "byte {at} is {other}");
                alike += 1;
            }
            assert!(alike == 1 || alike == 256, "byte {at}: {alike}");
            if alike == 256 {
                may_differ.push(at);
            }
        }
        let decides_nothing: Vec<usize> =
            [0..12, 15..16, 18..20, 22..23, 24..26, 40..42, 46..50, 60..whole.len()]
                .into_iter()
                .flatten()
                .collect();
        assert_eq!(may_differ, decides_nothing);
        for len in 0..whole.len() {
            let cut = &whole[..len];
            assert_eq!((like.number(cut), like.clone().follow(cut)), (None, None), "cut to {len}");
        }
    }

    #[test]
    fn only_tagged_probes_in_plain_headers_have_a_likeness() {
        assert_eq!(Likeness::of(&frame("17", "10.0.0.1", 7)), None, "no tag");
        assert_eq!(Likeness::of(&[0; 60]), None);
        let mut other = frame("18", "10.0.0.1", 7);
        other[42] ^= 1;
        assert_eq!(Likeness::of(&other), None, "no probe");
        let plain = frame("18", "10.0.0.1", 7);
        let tagged: Vec<u8> = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
        assert_eq!(Likeness::of(&tagged), None);
    }
}
