use super::*;
use crate::{Addresses, MacAddr, ProbeClock, ProbeHeader, SizeMix, Sizes, UdpFrame, Values};

fn stamped(spec: &FrameSpec, sequence: u32, time_ns: u64) -> Vec<u8> {
    let template = Template::new(spec).unwrap();
    let mut slot = vec![0xee; template.max_frame_len()];
    let len = template.stamp_frame(&mut slot, sequence, time_ns);
    slot.truncate(len);
    slot
}

fn frames(text: &str) -> Sizes {
    Sizes::Frame(text.parse().unwrap())
}

fn payloads(text: &str) -> Sizes {
    Sizes::Payload(text.parse().unwrap())
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|c| !c.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn the_smallest_ipv4_frame_has_these_bytes() {
    // IPv4: 4500 + 002e + 4000 + 4011 + c612 + 0001 + c613 + 0001 = 25166; 5166 + 2 = 5168; ~ = ae97.
    // UDP: c612 + 0001 + c613 + 0001 + 0011 + 001a + 0009 + 0009 + 001a + be9b + e955 + 0000 + 0007
    //      + 0000 + 0001 + 0000 + 0002 = 33478; 3478 + 3 = 347b; ~ = cb84.
    let expected = hex("020000000002 020000000001 0800
         4500 002e 0000 4000 4011 ae97 c6120001 c6130001
         0009 0009 001a cb84
         be9be955 00000007 0000000100000002 0000");
    let time_ns = 0x0000_0001_0000_0002;
    assert_eq!(stamped(&FrameSpec::default(), 7, time_ns), expected);
}

#[test]
fn an_ipv6_frame_behind_two_tags_has_these_bytes() {
    let spec = FrameSpec {
        vlan: vec!["802.1ad:7".parse().unwrap(), "100/5".parse().unwrap()],
        src_addr: "2001:db8::1".parse().unwrap(),
        dst_addr: "2001:db8::2".parse().unwrap(),
        src_port: Values::Fixed(0x1234),
        dst_port: Values::Fixed(53),
        ttl: 3,
        dscp: 46,
        clock: ProbeClock::Micros,
        stream: 0x0102,
        sizes: payloads("18"),
        ..FrameSpec::default()
    };
    // Time: 2 s and 5 µs. Sum: 2 * (2001 + 0db8) + 1 + 2 + 0011 + 001a + 1234 + 0035 + 001a + be9b + e955
    // + ffff + ffff + 0000 + 0002 + 0000 + 0005 + 0102 = 4171a; 171a + 4 = 171e; ~ = e8e1.
    let expected = hex("020000000002 020000000001 88a80007 8100a064 86dd
         6b800000 001a 11 03 20010db8000000000000000000000001 20010db8000000000000000000000002
         1234 0035 001a e8e1
         be9be955 ffffffff 00000002 00000005 0102");
    assert_eq!(stamped(&spec, u32::MAX, 2_000_005_999), expected);
}

#[test]
fn varying_fields_step_together() {
    let spec = FrameSpec {
        src_addr: "10.0.0.0/30".parse().unwrap(),
        dst_port: "list:53,123".parse().unwrap(),
        ..FrameSpec::default()
    };
    let template = Template::new(&spec).unwrap();
    let flows: Vec<String> = (0..5).map(|n| template.flow(n).to_string()).collect();
    assert_eq!(
        flows,
        [
            "udp 10.0.0.0:9 > 198.19.0.1:53",
            "udp 10.0.0.1:9 > 198.19.0.1:123",
            "udp 10.0.0.2:9 > 198.19.0.1:53",
            "udp 10.0.0.3:9 > 198.19.0.1:123",
            "udp 10.0.0.0:9 > 198.19.0.1:53",
        ]
    );
}

#[test]
fn two_fields_with_one_seed_vary_apart() {
    let spec = FrameSpec {
        src_port: "random:0-65535,seed=7".parse().unwrap(),
        dst_port: "random:0-65535,seed=7".parse().unwrap(),
        ..FrameSpec::default()
    };
    let template = Template::new(&spec).unwrap();
    let alike = (0..100).map(|n| template.flow(n)).filter(|flow| flow.src_port == flow.dst_port).count();
    assert!(alike < 3, "{alike} of 100 packets have equal ports");
}

#[test]
fn a_short_frame_in_the_slot_of_a_long_one_is_clean() {
    let spec = FrameSpec { sizes: frames("list:1518,64"), ..FrameSpec::default() };
    let template = Template::new(&spec).unwrap();
    let mut slot = vec![0xee; template.max_frame_len()];
    assert_eq!(template.stamp_frame(&mut slot, 0, 0), 1514);
    assert_eq!(template.restamp_frame(&mut slot, 1, 0), 60);
    assert_eq!(slot[..60], stamped(&spec, 1, 0));
    assert!(slot[60..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_short_payload_is_padded_to_sixty_bytes() {
    let spec = FrameSpec { sizes: payloads("16"), ..FrameSpec::default() };
    let bytes = stamped(&spec, 0, 0);
    assert_eq!(bytes.len(), 60);
    assert_eq!(UdpFrame::parse(&bytes).unwrap().payload_range(), 42..58);
    let template = Template::new(&spec).unwrap();
    assert_eq!((template.max_frame_len(), template.max_payload_len()), (60, 16));
    assert_eq!(template.mean_frame_size().bytes(), 64.0);
}

#[test]
fn sockets_get_the_payload_of_the_same_packet() {
    let spec = FrameSpec { stream: 5, sizes: frames("imix"), ..FrameSpec::default() };
    let template = Template::new(&spec).unwrap();
    let mut payload = vec![0xee; template.max_payload_len()];
    for sequence in 0..24 {
        let frame = stamped(&spec, sequence, 99);
        let len = template.stamp_payload(&mut payload, sequence, 99);
        assert_eq!(payload[..len], *UdpFrame::parse(&frame).unwrap().payload());
        assert_eq!((len, frame.len()), (template.payload_len(sequence), template.frame_len(sequence)));
        let probe = ProbeHeader { sequence, raw_time: 99, stream: 5 };
        assert_eq!(ProbeHeader::read(&payload), Some(probe));
    }
}

#[test]
fn the_mean_counts_sizes_by_their_weight() {
    let mean = |sizes| {
        let template = Template::new(&FrameSpec { sizes, ..FrameSpec::default() }).unwrap();
        template.mean_frame_size().bytes()
    };
    assert_eq!(mean(frames("imix")), (7.0 * 64.0 + 4.0 * 594.0 + 1518.0) / 12.0);
    assert_eq!(mean(frames("inc:64-164,step=100")), 114.0);
    assert_eq!(mean(frames("random:64-66")), 65.0);
    assert_eq!(mean(payloads("list:16,18,20")), (64.0 + 64.0 + 66.0) / 3.0);
}

#[test]
fn all_problems_are_told_at_once() {
    let spec = FrameSpec {
        src_mac: MacAddr::BROADCAST,
        vlan: vec!["1".parse().unwrap(); 3],
        dst_addr: "::1".parse().unwrap(),
        dscp: 64,
        sizes: Sizes::Payload(SizeMix::imix()),
        ..FrameSpec::default()
    };
    let problems: Vec<String> = spec.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "3 VLAN tags: at most two are supported",
            "source 198.18.0.1 and destination ::1 are of different IP versions",
            "DSCP 64 is out of range: from 0 to 63 (46 is expedited forwarding)",
            "source MAC ff:ff:ff:ff:ff:ff is a group address: its first byte must be even",
            "imix is a mix of frame sizes: give it as frame size, not as payload",
        ]
    );
    assert_eq!(Template::new(&spec).unwrap_err(), spec.problems()[0]);
}

#[test]
fn sizes_that_cannot_be_are_refused_wherever_they_stand() {
    let refused = |sizes: Sizes, stream| {
        let spec = FrameSpec { sizes, stream, ..FrameSpec::default() };
        Template::new(&spec).unwrap_err().to_string()
    };
    assert!(refused(frames("63"), 0).starts_with("frame size 63 is out of range"));
    assert!(refused(frames("64-65554"), 0).starts_with("frame size 65554 is out of range"));
    assert!(refused(frames("list:64,1"), 0).starts_with("frame size 1 is out of range"));
    assert!(refused(frames("64:1,10:1"), 0).starts_with("frame size 10 is out of range"));
    assert!(refused(payloads("random:15-20"), 0).starts_with("payload 15 is out of range"));
    assert_eq!(
        refused(payloads("17"), 3),
        "a payload of 17 bytes has no room for the stream tag 3: use at least 18 bytes of payload, or stream 0"
    );
    let v6 = FrameSpec {
        src_addr: "::1".parse().unwrap(),
        dst_addr: "::2".parse().unwrap(),
        sizes: frames("imix"),
        ..FrameSpec::default()
    };
    assert_eq!(
        Template::new(&v6).unwrap_err().to_string(),
        "a frame of 64 bytes leaves 0 bytes of UDP payload, but the probe header needs 16: use at least 82"
    );
}

#[test]
fn a_spec_reads_back_from_json_and_prints_as_a_line() {
    let spec = FrameSpec {
        vlan: vec!["100/5".parse().unwrap()],
        dst_addr: "random:198.19.0.0/24,seed=7".parse().unwrap(),
        dst_port: "inc:1024-2047".parse().unwrap(),
        sizes: frames("imix"),
        ..FrameSpec::default()
    };
    let json = serde_json::to_value(&spec).unwrap();
    assert_eq!(json["dst_addr"], "random:198.19.0.0/24,seed=7");
    assert_eq!(json["sizes"], serde_json::json!({"frame": "imix"}));
    assert_eq!(serde_json::from_value::<FrameSpec>(json).unwrap(), spec);
    assert_eq!(serde_json::from_str::<FrameSpec>("{}").unwrap(), FrameSpec::default());
    let refused = |json: &str| serde_json::from_str::<FrameSpec>(json).unwrap_err().to_string();
    assert!(refused(r#"{"dst_prt": "53"}"#).contains("unknown field `dst_prt`"));
    assert!(refused(r#"{"dst_port": true}"#).contains("expected a text or a whole number"));
    assert!(refused(r#"{"dst_port": 65536}"#).contains("'65536' is not a port"));
    let bare: FrameSpec =
        serde_json::from_str(r#"{"dst_port": 53, "vlan": [7], "sizes": {"frame": 68}}"#).unwrap();
    let quoted = r#"{"dst_port": "53", "vlan": ["7"], "sizes": {"frame": "68"}}"#;
    assert_eq!(bare, serde_json::from_str(quoted).unwrap());
    assert_eq!(
        spec.to_string(),
        "02:00:00:00:00:01 > 02:00:00:00:00:02, vlan 100/5, udp from 198.18.0.1 port 9 to \
         random:198.19.0.0/24,seed=7 port inc:1024-2047, ttl 64, dscp 0, stream 0, \
         frames of imix bytes with FCS"
    );
}

#[test]
fn the_recipe_holds_no_trace_of_what_varies() {
    let spec = FrameSpec {
        src_addr: "10.1.2.3-10.1.2.9".parse().unwrap(),
        dst_port: "1000-1001".parse().unwrap(),
        sizes: frames("64-100"),
        ..FrameSpec::default()
    };
    let recipe = Template::new(&spec).unwrap().recipe().clone();
    assert_eq!((recipe.ip_at, recipe.udp_at, recipe.payload_at), (14, 34, 42));
    assert!(recipe.ip_varies);
    for varying in [16..18, 24..26, 26..30, 36..38, 38..40, 40..42, 46..58] {
        assert!(recipe.base[varying.clone()].iter().all(|byte| *byte == 0), "{varying:?}");
    }
    assert!(matches!(recipe.addresses.at(0), Addresses::V4 { src, .. } if src.octets() == [10, 1, 2, 3]));
}

#[test]
#[should_panic(expected = "range end index 60")]
fn a_slot_that_is_too_short_is_our_bug() {
    let template = Template::new(&FrameSpec::default()).unwrap();
    template.stamp_frame(&mut [0; 59], 0, 0);
}
