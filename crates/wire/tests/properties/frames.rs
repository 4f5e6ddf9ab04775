//! Our parser and another one read what a template builds.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use wire::{AddressDraws, Addresses, Draw, DrawValue, FrameSpec, Recipe, Template, UdpFrame};

use crate::specs::spec;

fn packets() -> impl Strategy<Value = Vec<(u32, u64)>> {
    prop::collection::vec((any::<u32>(), any::<u64>()), 1..20)
}

proptest! {
    #[test]
    fn what_is_built_reads_back_on_all_layers(spec in spec(), sequence: u32, time_ns: u64) {
        let template = Template::new(&spec).unwrap();
        let mut slot = vec![0xee; template.max_frame_len()];
        let len = template.stamp_frame(&mut slot, sequence, time_ns);
        let frame = UdpFrame::parse(&slot[..len]).unwrap();

        prop_assert_eq!((frame.eth().src(), frame.eth().dst()), (spec.src_mac, spec.dst_mac));
        prop_assert_eq!(frame.eth().tags().collect::<Vec<_>>(), spec.vlan.clone());
        prop_assert_eq!((frame.ttl(), frame.dscp()), (spec.ttl, spec.dscp));
        prop_assert_eq!(frame.flow(), template.flow(sequence));
        prop_assert_eq!(frame.payload().len(), template.payload_len(sequence));
        prop_assert_eq!(len, template.frame_len(sequence));
        let probe = frame.probe().unwrap();
        prop_assert_eq!((probe.sequence, probe.stream), (sequence, spec.stream));
        prop_assert_eq!(probe.raw_time, spec.clock.encode(time_ns));
        prop_assert!(frame.payload()[18..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn after_any_restamps_the_slot_is_as_if_stamped_anew(spec in spec(), packets in packets()) {
        let template = Template::new(&spec).unwrap();
        let (mut slot, mut fresh) = (vec![0xee; template.max_frame_len()], vec![0xee; template.max_frame_len()]);
        template.prime_frame(&mut slot);
        for (sequence, time_ns) in packets {
            let len = template.restamp_frame(&mut slot, sequence, time_ns);
            prop_assert_eq!(UdpFrame::parse(&slot[..len]).unwrap().verify_checksums(), Ok(()));
            prop_assert_eq!(template.stamp_frame(&mut fresh, sequence, time_ns), len);
            prop_assert_eq!(&slot, &fresh);
        }
    }

    #[test]
    fn another_parser_reads_the_same(spec in spec(), sequence: u32, time_ns: u64) {
        let template = Template::new(&spec).unwrap();
        let mut slot = vec![0; template.max_frame_len()];
        let len = template.stamp_frame(&mut slot, sequence, time_ns);
        let ours = UdpFrame::parse(&slot[..len]).unwrap();

        let theirs = SlicedPacket::from_ethernet(&slot[..len]).unwrap();
        prop_assert_eq!(theirs.link_exts.len(), spec.vlan.len());
        let Some(TransportSlice::Udp(udp)) = theirs.transport else { panic!("no UDP") };
        let header = udp.to_header();
        prop_assert_eq!(header.source_port, ours.flow().src_port);
        prop_assert_eq!(header.destination_port, ours.flow().dst_port);
        prop_assert_eq!(udp.payload(), ours.payload());
        let checksum = match (theirs.net, ours.addresses()) {
            (Some(NetSlice::Ipv4(ip)), Addresses::V4 { src, dst }) => {
                let ip = ip.header().to_header();
                prop_assert_eq!((ip.source, ip.destination), (src.octets(), dst.octets()));
                prop_assert_eq!((ip.time_to_live, ip.dscp.value()), (spec.ttl, spec.dscp));
                prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                header.calc_checksum_ipv4(&ip, udp.payload())
            }
            (Some(NetSlice::Ipv6(ip)), Addresses::V6 { src, dst }) => {
                let ip = ip.header().to_header();
                prop_assert_eq!((ip.source, ip.destination), (src.octets(), dst.octets()));
                prop_assert_eq!(ip.hop_limit, spec.ttl);
                header.calc_checksum_ipv6(&ip, udp.payload())
            }
            _ => panic!("the IP versions differ"),
        };
        prop_assert_eq!(Ok(header.checksum), checksum);
    }

    #[test]
    fn the_recipe_says_all_that_a_stamper_needs(spec in spec(), packets in packets()) {
        let template = Template::new(&spec).unwrap();
        for (sequence, time_ns) in packets {
            let mut slot = vec![0; template.max_frame_len()];
            let len = template.stamp_frame(&mut slot, sequence, time_ns);
            prop_assert_eq!(by_recipe(template.recipe(), sequence, time_ns), &slot[..len]);
        }
    }

    #[test]
    fn a_spec_reads_back_from_json(spec in spec()) {
        let json = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(serde_json::from_str::<FrameSpec>(&json).unwrap(), spec);
    }
}

/// Makes a packet only from what [`Recipe`] and [`Draw`] document.
fn by_recipe(recipe: &Recipe, n: u32, time_ns: u64) -> Vec<u8> {
    let mut frame = recipe.base.clone();
    let (mut ipv4_sum, mut udp_sum) = (recipe.ipv4_sum, recipe.udp_sum);
    let mut put = |at: usize, bytes: &[u8]| frame[at..at + bytes.len()].copy_from_slice(bytes);

    match &recipe.addresses {
        AddressDraws::V4 { src, dst } => {
            for (draw, at) in [(src, 12), (dst, 16)].into_iter().filter(|(draw, _)| draw.fixed().is_none()) {
                let bits = value(draw, n);
                put(recipe.ip_at + at, &bits.to_be_bytes());
                ipv4_sum = ipv4_sum.add_word(bits);
                udp_sum = udp_sum.add_word(bits);
            }
        }
        AddressDraws::V6 { src, dst } => {
            for (draw, at) in [(src, 8), (dst, 24)].into_iter().filter(|(draw, _)| draw.fixed().is_none()) {
                let bits = value(draw, n).to_be_bytes();
                put(recipe.ip_at + at, &bits);
                udp_sum = udp_sum.add_bytes(&bits);
            }
        }
    }
    for (draw, at) in [(&recipe.src_port, 0), (&recipe.dst_port, 2)] {
        if draw.fixed().is_none() {
            put(recipe.udp_at + at, &value(draw, n).to_be_bytes());
            udp_sum = udp_sum.add_word(value(draw, n).into());
        }
    }
    let payload_len = value(&recipe.payload_len, n);
    if recipe.payload_len.fixed().is_none() {
        let udp_len = payload_len as u16 + 8;
        put(recipe.udp_at + 4, &udp_len.to_be_bytes());
        udp_sum = udp_sum.add_word(udp_len.into()).add_word(udp_len.into());
        let (at, ip_len) = match recipe.addresses {
            AddressDraws::V4 { .. } => (2, udp_len + 20),
            AddressDraws::V6 { .. } => (4, udp_len),
        };
        put(recipe.ip_at + at, &ip_len.to_be_bytes());
        ipv4_sum = ipv4_sum.add_word(ip_len.into());
    }
    let probe = [&n.to_be_bytes()[..], &recipe.clock.encode(time_ns).to_be_bytes()].concat();
    put(recipe.payload_at + 4, &probe);
    put(recipe.udp_at + 6, &udp_sum.add_bytes(&probe).finish_udp().to_be_bytes());
    if recipe.ip_varies && matches!(recipe.addresses, AddressDraws::V4 { .. }) {
        put(recipe.ip_at + 10, &ipv4_sum.finish().to_be_bytes());
    }
    frame.truncate(recipe.frame_len(payload_len));
    frame
}

fn value<V: DrawValue>(draw: &Draw<V>, n: u32) -> V {
    let (n, mix) = (u64::from(n), |z: u64| {
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    });
    match draw {
        Draw::Fixed(value) => *value,
        Draw::Increment { first, step, cycle } => first.plus((u64::from(*step) * (n % cycle.count())) as u32),
        Draw::Random { first, count, seed } => {
            let random = mix(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 32;
            first.plus(((count * random) >> 32) as u32)
        }
        Draw::List { values, cycle } => values[(n % cycle.count()) as usize],
    }
}
