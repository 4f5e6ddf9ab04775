//! Frames of every kind that the language can name, and truncated ones.

/// All of them, in a fixed order.
pub(crate) fn packets() -> Vec<Vec<u8>> {
    let mut whole = Vec::new();
    for packet in ip_packets() {
        for link in LINKS {
            whole.extend(link.around(&packet));
        }
    }
    whole.extend(others());
    whole.extend(chains());
    whole.extend(tunnels());
    let cut = [0, 1, 5, 13, 14, 15, 17, 19, 23, 24, 27, 30, 33, 35, 37, 38, 41, 43, 46, 54, 55, 57, 61, 62];
    let short: Vec<_> = whole
        .iter()
        .enumerate()
        .flat_map(|(index, frame)| {
            let lens = [cut[index % cut.len()], cut[(index * 7 + 3) % cut.len()]];
            lens.map(|len| frame[..len.min(frame.len())].to_vec())
        })
        .collect();
    whole.extend(short);
    whole
}

/// An IP packet and its version.
#[derive(Clone)]
struct Packet {
    v6: bool,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Around {
    Plain,
    Tag(u16),
    TwoTags,
    Label,
    TwoLabels,
    Pppoe,
}

const LINKS: [Around; 8] = [
    Around::Plain,
    Around::Tag(0x8100),
    Around::Tag(0x88a8),
    Around::Tag(0x9100),
    Around::TwoTags,
    Around::Label,
    Around::TwoLabels,
    Around::Pppoe,
];

impl Around {
    fn around(self, packet: &Packet) -> Option<Vec<u8>> {
        let ethertype: u16 = if packet.v6 { 0x86dd } else { 0x0800 };
        let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
        let mut put = |bytes: &[u8]| frame.extend_from_slice(bytes);
        match self {
            Self::Plain => {}
            Self::Tag(tag) => {
                put(&tag.to_be_bytes());
                put(&[0x20, 5]);
            }
            Self::TwoTags => put(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5]),
            Self::Label => put(&[0x88, 0x47, 0, 0, 0x51, 64]),
            Self::TwoLabels => put(&[0x88, 0x47, 0, 0, 0x50, 64, 0, 1, 0x01, 64]),
            Self::Pppoe => {
                put(&[0x88, 0x64, 0x11, 0, 0, 3, 0, 60]);
                put(if packet.v6 { &[0, 0x57] } else { &[0, 0x21] });
            }
        }
        if matches!(self, Self::Plain | Self::Tag(_) | Self::TwoTags) {
            put(&ethertype.to_be_bytes());
        }
        put(&packet.bytes);
        Some(frame)
    }
}

fn ipv4(protocol: u8, options: &[u8], fragment: u16, src: [u8; 4], dst: [u8; 4], payload: &[u8]) -> Packet {
    let words = 5 + options.len() as u8 / 4;
    let len = (usize::from(words) * 4 + payload.len()) as u16;
    let mut bytes = vec![0x40 | words, 0];
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 7]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend(src);
    bytes.extend(dst);
    bytes.extend(options);
    bytes.extend(payload);
    Packet { v6: false, bytes }
}

fn ipv6(next: u8, src: u16, dst: [u8; 16], payload: &[u8]) -> Packet {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next, 64, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(src.to_be_bytes());
    bytes.extend(dst);
    bytes.extend(payload);
    Packet { v6: true, bytes }
}

const NEAR: [u8; 4] = [192, 0, 2, 1];
const FAR: [u8; 4] = [198, 51, 100, 7];
const FAR6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
const ALL6: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn ports(src: u16, dst: u16) -> Vec<u8> {
    let mut bytes = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    bytes.extend([0, 20, 0, 0, 1, 2, 3, 4, 0x50, 0x12, 0, 0, 0, 0, 0, 0, 5, 6, 7, 8]);
    bytes
}

fn ip_packets() -> Vec<Packet> {
    let dns = ports(40_000, 53);
    let web = ports(443, 40_001);
    let mut packets = vec![
        ipv4(17, &[], 0, NEAR, FAR, &dns),
        ipv4(6, &[], 0x4000, FAR, NEAR, &web),
        ipv4(132, &[], 0, NEAR, FAR, &ports(5, 6)),
        ipv4(17, &[1, 1, 1, 0], 0, NEAR, FAR, &dns),
        ipv4(6, &[0x94, 4, 0, 0, 1, 1, 1, 0], 0, NEAR, FAR, &ports(53, 80)),
        ipv4(17, &[], 0x2000, NEAR, FAR, &dns),
        ipv4(17, &[], 0x0005, NEAR, FAR, &dns),
        ipv4(1, &[], 0, NEAR, FAR, &[8, 0, 0, 0, 0, 1, 0, 2]),
        ipv4(1, &[], 0, FAR, NEAR, &[0, 0, 0, 0, 0, 1, 0, 2]),
        ipv6(17, 1, FAR6, &dns),
        ipv6(6, 2, FAR6, &web),
        ipv6(132, 2, FAR6, &ports(53, 53)),
        ipv6(58, 1, ALL6, &[128, 0, 0, 0, 0, 1, 0, 2]),
        ipv6(44, 1, FAR6, &[&[17, 0, 0, 1, 0, 0, 0, 9][..], &dns].concat()),
        ipv6(0, 1, FAR6, &[&[17, 0, 5, 2, 0, 0, 0, 0][..], &dns].concat()),
    ];
    packets.push(ipv4(17, &[], 0, [10, 1, 2, 3], [255; 4], &dns));
    packets
}

fn plain(packet: &Packet) -> Vec<u8> {
    Around::Plain.around(packet).unwrap_or_default()
}

fn ether(dst: [u8; 6], src: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [dst, src].concat();
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// What is not IP, and IP protocols without ports.
fn others() -> Vec<Vec<u8>> {
    let (a, b, all) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6]);
    let mut frames = Vec::new();
    for protocol in [2, 4, 9, 47, 50, 51, 59, 88, 89, 103, 112, 255] {
        frames.push(plain(&ipv4(protocol, &[], 0, NEAR, [224, 0, 0, 5], &ports(1, 2))));
        frames.push(plain(&ipv6(protocol, 1, ALL6, &ports(1, 2))));
    }
    for operation in [1, 2] {
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, operation];
        arp.extend([2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 198, 51, 100, 7]);
        frames.push(ether(all, a, 0x0806, &arp));
        frames.push(ether(b, a, 0x8035, &arp));
        let mut tagged = vec![0, 5, 8, 6];
        tagged.extend(&arp);
        frames.push(ether(all, a, 0x8100, &tagged));
    }
    for kind in
        [0x0600, 0x6001, 0x6002, 0x6004, 0x6007, 0x8137, 0x809b, 0x80f3, 0x8863, 0x8848, 0x9000, 0x88cc]
    {
        frames.push(ether([1, 0x80, 0xc2, 0, 0, 0], b, kind, &[0x11, 9, 0, 3, 0, 4, 1, 2, 3, 4, 5, 6]));
    }
    // 802.2: spanning tree, OSI, NetBEUI, IP, IPX in all its shapes, SNAP, and the control field's kinds.
    let llc: [&[u8]; 17] = [
        &[0x42, 0x42, 3, 0, 0],
        &[0xfe, 0xfe, 3, 0x81, 1, 2, 3, 4, 5],
        &[0xfe, 0xfe, 3, 0x82, 1, 2, 3, 4, 5],
        &[0xf0, 0xf0, 3],
        &[0x06, 0x06, 3],
        &[0xe0, 0xe0, 3],
        &[0xff, 0xff, 0, 30],
        &[0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0x37],
        &[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b],
        &[0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3],
        &[0x10, 0x10, 0, 2],
        &[0x10, 0x10, 1, 2],
        &[0x10, 0x10, 5, 2],
        &[0x10, 0x10, 9, 2],
        &[0x10, 0x10, 0x63],
        &[0x10, 0x10, 0x43],
        &[0x10, 0x10, 0xf3],
    ];
    frames.extend(llc.map(|payload| ether([1, 0x80, 0xc2, 0, 0, 0], a, payload.len() as u16, payload)));
    frames.push(ether(b, a, 1500, &[0x10, 0x10, 0x6f, 0]));
    frames.push(ether(b, a, 1501, &[0x10, 0x10, 0x6f, 0]));
    for pdu in [15, 16, 17, 18, 20, 24, 25, 26, 27, 28] {
        let payload = [0xfe, 0xfe, 3, 0x83, 27, 1, 0, pdu, 1, 0, 0];
        frames.push(ether([1, 0x80, 0xc2, 0, 0, 0x14], a, 11, &payload));
    }
    frames.extend(decnet().map(|payload| ether(b, a, 0x6003, &payload)));
    frames.push(ether(b, a, 0x8864, &[0x11, 0, 0, 9, 0, 4, 0, 0x23, 0x81, 1, 2, 3]));
    frames.push(ether(b, a, 0x8864, &[0x11, 0, 0, 3, 0, 4, 0, 0x31, 0, 0, 0, 0]));
    frames
}

/// Short and long headers with and without padding; from 10.123 to 1.7 or back.
fn decnet() -> [Vec<u8>; 4] {
    let (a, b) = ([0x7b, 0x28], [0x07, 0x04]);
    let mut long = vec![20, 0, 0x06, 0, 0, 0, 0, 0, 0];
    long.extend(a);
    long.extend([0, 0, 0, 0, 0, 0]);
    long.extend(b);
    let mut padded_long = vec![21, 0, 0x81, 0x06, 0, 0, 0, 0, 0, 0];
    padded_long.extend(b);
    padded_long.extend([0, 0, 0, 0, 0, 0]);
    padded_long.extend(a);
    let short = [&[9, 0, 0x02][..], &a, &b, &[0]].concat();
    let padded_short = [&[10, 0, 0x81, 0x02][..], &b, &a, &[0]].concat();
    [short, padded_short, long, padded_long]
}

/// Chains of headers between IP and what it carries.
fn chains() -> Vec<Vec<u8>> {
    let udp = ports(7, 53);
    let mut frames = Vec::new();
    // Each: number of the first header, the headers.
    let v6: [(u8, &[u8]); 9] = [
        (60, &[6, 0, 1, 4, 0, 0, 0, 0]),
        (43, &[17, 0, 0, 0, 0, 0, 0, 0]),
        (0, &[60, 0, 0, 0, 0, 0, 0, 0, 17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (0, &[43, 0, 0, 0, 0, 0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]),
        (59, &[17, 0, 0, 0, 0, 0, 0, 0]),
        (60, &[59, 0, 0, 0, 0, 0, 0, 0]),
        (51, &[17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (60, &[51, 0, 0, 0, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0]),
        (60, &[44, 200, 0, 0, 0, 0, 0, 0]),
    ];
    for (first, headers) in v6 {
        frames.push(plain(&ipv6(first, 1, FAR6, &[headers, &udp].concat())));
    }
    let after = [17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    frames.push(plain(&ipv4(51, &[], 0, NEAR, FAR, &[&after[..], &udp].concat())));
    frames.push(plain(&ipv4(51, &[1, 1, 1, 0], 0, NEAR, FAR, &[&after[..], &udp].concat())));
    frames.push(plain(&ipv4(59, &[], 0, NEAR, FAR, &udp)));
    frames
}

/// Packets in Geneve.
fn tunnels() -> Vec<Vec<u8>> {
    let inner4 = ipv4(17, &[], 0, [10, 0, 0, 1], [10, 0, 0, 2], &ports(9, 53));
    let inner6 = ipv6(6, 9, FAR6, &ports(9, 443));
    let contents = [
        (0x6558, plain(&inner4)),
        (0x6558, plain(&inner6)),
        (0x6558, Around::Tag(0x8100).around(&inner4).unwrap_or_default()),
        (0x6558, Around::Pppoe.around(&inner4).unwrap_or_default()),
        (0x6558, Around::Label.around(&inner4).unwrap_or_default()),
        (0x6558, others().swap_remove(24)),
        (0x0800, inner4.bytes.clone()),
        (0x86dd, inner6.bytes.clone()),
        (0x8847, vec![0, 0, 0x51, 64, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]),
    ];
    let mut frames = Vec::new();
    for (index, (kind, content)) in contents.into_iter().enumerate() {
        for options in [0_u8, 2] {
            let mut payload = ports(5000 + index as u16, 6081)[..4].to_vec();
            payload.extend([0, 0, 0, 0, options, 0]);
            payload.extend(u16::to_be_bytes(kind));
            payload.extend([0, 0, 5 + options, 0]);
            payload.resize(payload.len() + 4 * usize::from(options), 0xee);
            payload.extend(&content);
            let outer4 = ipv4(17, if index % 2 == 0 { &[] } else { &[1, 1, 1, 0] }, 0, NEAR, FAR, &payload);
            let outer6 = ipv6(17, 1, FAR6, &payload);
            frames.push(plain(&outer4));
            frames.push(plain(&outer6));
            if index == 0 {
                frames.extend(Around::Tag(0x8100).around(&outer4));
                let mut again = ports(5, 6081)[..4].to_vec();
                again.extend([0, 0, 0, 0, 0, 0, 0x65, 0x58, 0, 0, 7, 0]);
                again.extend(plain(&outer4));
                frames.push(plain(&ipv4(17, &[], 0, NEAR, FAR, &again)));
            }
        }
    }
    frames
}
