//! The BPF program and the template build the same packet.

use lab::LabPlan;
use port::{XdpTx, XdpTxOptions};
use wire::{FrameSpec, ProbeClock, SizeMix, Sizes};

use crate::support::{lab, template};

fn frames(text: &str) -> Sizes {
    Sizes::Frame(text.parse::<SizeMix>().unwrap())
}

fn specs() -> Vec<FrameSpec> {
    let v4 = FrameSpec { sizes: frames("90"), ..FrameSpec::default() };
    let v6 = FrameSpec {
        src_addr: "2001:2::1".parse().unwrap(),
        dst_addr: "2001:2:0:1::1".parse().unwrap(),
        ..v4.clone()
    };
    vec![
        FrameSpec::default(),
        v4.clone(),
        v6.clone(),
        FrameSpec { vlan: vec!["100/5".parse().unwrap()], stream: 7, ..v4.clone() },
        FrameSpec { vlan: vec!["1".parse().unwrap(), "4094".parse().unwrap()], ..v6.clone() },
        FrameSpec {
            src_addr: "10.0.0.0/30".parse().unwrap(),
            dst_port: "list:53,123,443".parse().unwrap(),
            ..v4.clone()
        },
        FrameSpec {
            src_addr: "inc:10.0.0.0/16,step=251".parse().unwrap(),
            dst_addr: "random:198.19.0.0/16,seed=7".parse().unwrap(),
            src_port: "random:0-65535,seed=7".parse().unwrap(),
            dst_port: "inc:1024-2047,step=3".parse().unwrap(),
            sizes: frames("random:64-1518,seed=3"),
            ..FrameSpec::default()
        },
        FrameSpec {
            src_addr: "list:10.0.0.9,10.0.0.1,192.168.7.8".parse().unwrap(),
            dst_addr: "random:0.0.0.0/0".parse().unwrap(),
            sizes: frames("imix"),
            clock: ProbeClock::Micros,
            ..FrameSpec::default()
        },
        FrameSpec {
            src_addr: "2001:2::ffff:ffff:ffff:fff0-2001:2:0:1::10".parse().unwrap(),
            dst_addr: "list:2001:db8::1,fe80::2,::3".parse().unwrap(),
            src_port: "65000-65535".parse().unwrap(),
            sizes: frames("list:86,1518,100,1000"),
            ..v6.clone()
        },
        FrameSpec {
            dst_addr: "random:2001:db8::/96,seed=1".parse().unwrap(),
            sizes: frames("inc:86-1518,step=7"),
            ..v6
        },
    ]
}

#[test]
fn the_first_thousand_packets_and_those_around_the_wrap_are_the_templates() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let side = lab.tx();
    for spec in specs() {
        let template = template(&spec);
        side.run(|| {
            let mut tx = XdpTx::open(template.recipe(), &XdpTxOptions::on(side.index())).unwrap();
            let mut slot = vec![0; template.max_frame_len()];
            for sequence in (0..1000).chain(u32::MAX - 5..=u32::MAX) {
                let time_ns = 1_700_000_000_123_456_789 + u64::from(sequence);
                let len = template.stamp_frame(&mut slot, sequence, time_ns);
                assert_eq!(tx.frame(sequence, time_ns).unwrap(), slot[..len], "packet {sequence} of {spec}");
            }
        })
        .unwrap();
    }
}
