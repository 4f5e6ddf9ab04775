//! Which packets a witness counts.

use bpf::{Streams, Way, Witness};
use lab::LabPlan;
use wire::{FrameSpec, Sizes, Template, Values};

use crate::support::lab;

const PORT: u16 = 4321;

fn frame(spec: FrameSpec) -> Vec<u8> {
    let template = Template::new(&spec).unwrap();
    let mut frame = vec![0; template.max_frame_len()];
    template.stamp_frame(&mut frame, 0, 0);
    frame
}

#[test]
fn packets_of_the_streams_are_counted_whatever_their_headers_and_tags_are() {
    let Some(lab) = lab(&LabPlan::default()) else { return };
    let usual = |stream| FrameSpec {
        dst_port: Values::Fixed(PORT),
        stream,
        sizes: Sizes::Payload("18".parse().unwrap()),
        ..FrameSpec::default()
    };
    let with_options = {
        let mut frame = frame(usual(7));
        // Four bytes of "no operation" behind the addresses.
        frame.splice(34..34, [1; 4]);
        frame[14] = 0x46;
        frame
    };
    let v6 = |text: &str| Values::Fixed(text.parse().unwrap());
    let frames = [
        ("usual", 7, frame(usual(7))),
        ("another stream", 8, frame(usual(8))),
        ("another port", 0, frame(FrameSpec { dst_port: Values::Fixed(PORT + 1), ..usual(7) })),
        ("VLAN", 7, frame(FrameSpec { vlan: vec!["5".parse().unwrap()], ..usual(7) })),
        ("IPv6", 7, frame(FrameSpec { src_addr: v6("fd00::1"), dst_addr: v6("fd00::2"), ..usual(7) })),
        ("options", 7, with_options),
        (
            "no room for a tag",
            0,
            frame(FrameSpec { sizes: Sizes::Payload("16".parse().unwrap()), ..usual(0) }),
        ),
        ("another's payload", 0, {
            let mut frame = frame(usual(7));
            frame[42] ^= 1;
            frame
        }),
    ];
    let index = lab.rx().index();
    for tags in [vec![7], vec![7, 8], vec![7, 9], vec![9, 8], vec![0, 9]] {
        let streams = Streams { port: PORT, tags: tags.clone() };
        lab.rx()
            .run(|| {
                let witness = Witness::attach(index, Way::In, &streams).unwrap();
                for (what, tag, frame) in &frames {
                    let before = witness.read().unwrap().packets;
                    witness.cost(frame).unwrap();
                    let grown = witness.read().unwrap().packets - before;
                    let has_tag =
                        !matches!(*what, "another port" | "another's payload") && tags.contains(tag);
                    assert_eq!(grown > 0, has_tag, "{what}, tags {tags:?}");
                }
            })
            .unwrap();
    }
}
