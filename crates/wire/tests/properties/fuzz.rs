//! The bodies of the fuzz targets, on random input: they run everywhere, without a nightly compiler.

use proptest::prelude::*;
use wire::{FrameSpec, PcapWriter, Template};

#[path = "../../../../fuzz/src/wire.rs"]
#[expect(unreachable_pub, reason = "the fuzz crate exports them")]
mod bodies;

/// A frame to start from, some of its bytes changed: random bytes alone never get past the EtherType.
fn nearly_frames() -> impl Strategy<Value = Vec<u8>> {
    let frame = crate::specs::spec().prop_map(|spec: FrameSpec| {
        let template = Template::new(&spec).expect("the specs are valid");
        let mut frame = vec![0; template.max_frame_len()];
        template.stamp_frame(&mut frame, 0, 0);
        frame
    });
    nearly(frame)
}

/// A pcap file of one frame, some of its bytes changed.
fn nearly_pcaps() -> impl Strategy<Value = Vec<u8>> {
    nearly(prop::collection::vec(any::<u8>(), 0..40).prop_map(|frame| {
        let mut writer = PcapWriter::new(Vec::new()).expect("a vector takes everything");
        writer.write(1, &frame).expect("a short frame fits");
        writer.write(2, &frame).expect("a short frame fits");
        writer.finish().expect("a vector takes everything")
    }))
}

fn nearly(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (bytes, changes, any::<prop::sample::Index>()).prop_map(|(mut bytes, changes, cut)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len().min(60));
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 4);
        bytes
    })
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

proptest! {
    #[test]
    fn headers_hold(input in prop_oneof![any_bytes(), nearly_frames()]) {
        bodies::headers(&input);
    }

    #[test]
    fn templates_hold(input in any_bytes()) {
        bodies::template(&input);
    }

    #[test]
    fn grammars_hold(input in prop_oneof![any_bytes(), ".{0,20}".prop_map(String::into_bytes)]) {
        bodies::grammar(&input);
    }

    #[test]
    fn pcap_files_hold(input in prop_oneof![any_bytes(), nearly_pcaps()]) {
        bodies::pcap(&input);
    }
}
