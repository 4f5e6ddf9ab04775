//! Fuzz bodies for the crate `wire`: for any bytes, nothing panics and built frames are correct.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::{
    EthView, FrameSpec, HashFields, Ipv4View, Ipv6View, MacAddr, PcapReader, PcapWriter, ProbeHeader, Rate,
    RssKey, SizeMix, Sizes, Spread, Template, UdpFrame, UdpView, Values, VlanTag, parse_duration,
};

/// Reads the input as a frame and as each header.
pub fn headers(input: &[u8]) {
    if let Ok(frame) = UdpFrame::parse(input) {
        let range = frame.payload_range();
        assert_eq!(&input[range], frame.payload());
        let _ = (frame.flow().to_string(), frame.ttl(), frame.dscp(), frame.probe());
        let _ = frame.verify_checksums();
    }
    if let Ok(eth) = EthView::new(input) {
        assert_eq!(eth.header_len(), 14 + 4 * eth.tags().len());
        assert_eq!(eth.payload().len(), input.len() - eth.header_len());
        let _ = (eth.src(), eth.dst(), eth.ethertype());
    }
    if let Ok(ip) = Ipv4View::new(input) {
        assert!(ip.header_len() + ip.payload().len() <= input.len());
        let _ = (ip.src(), ip.dst(), ip.ttl(), ip.dscp(), ip.protocol(), ip.is_fragment());
        let _ = ip.checksum() == ip.right_checksum();
    }
    if let Ok(ip) = Ipv6View::new(input) {
        assert!(40 + ip.payload().len() <= input.len());
        let _ = (ip.src(), ip.dst(), ip.hop_limit(), ip.dscp(), ip.next_header());
    }
    if let Ok(udp) = UdpView::new(input) {
        assert!(8 + udp.payload().len() <= input.len());
        let _ = (udp.src_port(), udp.dst_port(), udp.checksum());
    }
    let _ = ProbeHeader::read(input);
}

/// Builds a spec from the input, and frames from the spec if it is valid.
pub fn template(input: &[u8]) {
    let mut bytes = Bytes(input);
    let spec = spec(&mut bytes);
    let template = match Template::new(&spec) {
        Ok(template) => template,
        Err(error) => return assert_eq!(error, spec.problems()[0]),
    };
    assert!(spec.problems().is_empty());
    let mut slot = vec![bytes.next(); template.max_frame_len()];
    template.prime_frame(&mut slot);
    for _ in 0..4 {
        let (sequence, time_ns) = (bytes.number() as u32, bytes.number());
        let len = template.restamp_frame(&mut slot, sequence, time_ns);
        let frame = UdpFrame::parse(&slot[..len]).expect("what is built is UDP");
        frame.verify_checksums().expect("what is built has right checksums");
        assert_eq!(frame.flow(), template.flow(sequence));
        let probe = frame.probe().expect("what is built is a probe");
        assert_eq!((probe.sequence, probe.raw_time), (sequence, spec.clock.encode(time_ns)));
        assert_eq!(probe.stream, spec.stream);
        assert_eq!(frame.payload().len(), template.payload_len(sequence));
    }
}

/// Reads the input as a rate, as sizes and as every other text; text that parses reads back from its own output.
pub fn grammar(input: &[u8]) {
    fn reads_back<T: std::str::FromStr + ToString + PartialEq>(text: &str) {
        if let Ok(value) = text.parse::<T>() {
            assert!(value.to_string().parse::<T>().is_ok_and(|read| read == value), "{text}");
        }
    }
    let Ok(text) = str::from_utf8(input) else { return };
    reads_back::<Rate>(text);
    reads_back::<SizeMix>(text);
    reads_back::<Values<u16>>(text);
    reads_back::<Values<IpAddr>>(text);
    reads_back::<MacAddr>(text);
    reads_back::<VlanTag>(text);
    reads_back::<Spread>(text);
    reads_back::<RssKey>(text);
    reads_back::<HashFields>(text);
    let _ = parse_duration(text);
}

/// Reads the input as a pcap file; the frames written again are the same.
pub fn pcap(input: &[u8]) {
    let Ok(mut reader) = PcapReader::new(input) else { return };
    let mut writer = PcapWriter::new(Vec::new()).expect("a vector takes everything");
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = reader.next_frame() {
        writer.write(frame.time_ns, frame.bytes).expect("what was read can be written");
        frames.push((frame.time_ns, frame.bytes.to_vec()));
    }
    let file = writer.finish().expect("a vector takes everything");
    let mut reader = PcapReader::new(&file[..]).expect("what was written is a pcap file");
    for (time_ns, bytes) in frames {
        let frame = reader.next_frame().expect("whole").expect("as many frames as were written");
        assert_eq!((frame.time_ns, frame.bytes), (time_ns, &bytes[..]));
    }
    assert_eq!(reader.next_frame().expect("whole"), None);
}

/// Input taken byte by byte; zeros follow its end.
struct Bytes<'i>(&'i [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        u64::from_be_bytes([(); 8].map(|()| self.next()))
    }

    /// One of the rules, over values near each other; a rejected rule leaves the field unchanged.
    fn values<T: wire::Item>(&mut self, field: &mut Values<T>, value: impl Fn(u32) -> T) {
        let (a, b) = (self.number() as u32, u32::from(self.next()));
        let (first, last) = (value(a), value(a.saturating_add(b)));
        let text = match self.next() % 4 {
            0 => format!("{first}"),
            1 => format!("inc:{first}-{last},step={}", self.next()),
            2 => format!("random:{first}-{last},seed={}", self.number()),
            _ => format!("list:{last},{first}"),
        };
        if let Ok(values) = text.parse() {
            *field = values;
        }
    }
}

fn spec(bytes: &mut Bytes<'_>) -> FrameSpec {
    let mut spec = FrameSpec::default();
    let shape = bytes.next();
    let address = |bits: u32| -> IpAddr {
        match shape & 1 {
            0 => Ipv4Addr::from_bits(bits).into(),
            _ => Ipv6Addr::from_bits(u128::from(bits) << 16 | 0xffff_0000).into(),
        }
    };
    if shape & 1 != 0 {
        (spec.src_addr, spec.dst_addr) = (address(1).into(), address(2).into());
    }
    for _ in 0..shape >> 1 & 3 {
        spec.vlan.extend(VlanTag::new(u16::from(bytes.next())));
    }
    spec.src_mac = MacAddr([(); 6].map(|()| bytes.next()));
    bytes.values(&mut spec.src_addr, address);
    bytes.values(&mut spec.dst_addr, address);
    bytes.values(&mut spec.src_port, |bits| bits as u16);
    bytes.values(&mut spec.dst_port, |bits| bits as u16);
    (spec.ttl, spec.dscp) = (bytes.next(), bytes.next());
    spec.stream = u16::from(bytes.next());
    let mut sizes = Values::Fixed(64);
    bytes.values(&mut sizes, |bits| bits & 0x7ff);
    let mix = if shape & 8 == 0 { SizeMix::Values(sizes) } else { SizeMix::imix() };
    spec.sizes = if shape & 16 == 0 { Sizes::Frame(mix) } else { Sizes::Payload(mix) };
    spec
}
