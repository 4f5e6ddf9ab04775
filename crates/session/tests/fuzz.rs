//! The body of the control protocol's fuzz target, on random input.

use measure::{Cost, Endpoint, LedgerLine};
use proptest::prelude::*;
use session::{Message, Offer, PROTOCOL, Progress, Report};

#[path = "../../../fuzz/src/control.rs"]
#[expect(unreachable_pub, reason = "the fuzz crate exports it")]
mod control;

fn messages() -> impl Strategy<Value = Message> {
    let offer = (any::<u16>(), any::<u32>(), proptest::option::of(0.0..1e12)).prop_map(
        |(streams, payload_bytes, rate_pps)| {
            let version = "1".into();
            let (duration_s, count) = (None, Some(3));
            Message::Offer(Offer {
                protocol: PROTOCOL,
                version,
                streams,
                payload_bytes,
                rate_pps,
                duration_s,
                count,
                reflect: false,
                profile: false,
                receiver: None,
                witness: true,
                kept: None,
            })
        },
    );
    let report = (any::<u64>(), "[ -~é→]{0,200}").prop_map(|(delivered, place)| {
        Message::Report(Box::new(Report {
            delivered,
            lines: vec![LedgerLine::new(place, delivered, "x")],
            rx: Endpoint::default(),
            cost: Cost::default(),
            cpus: Vec::new(),
            senders: 1,
            profile: None,
            wire: None,
            clocks: None,
        }))
    });
    prop_oneof![
        offer,
        report,
        (any::<u64>(), any::<u64>()).prop_map(|(packets, payload_bytes)| Message::Progress(Progress {
            packets,
            payload_bytes,
            dropped: 0
        })),
        any::<u64>().prop_map(|sent| Message::Done { sent }),
        // Other characters are escaped, which has its own test.
        "[ -~é→]{0,200}".prop_map(|reason| Message::Refuse { reason }),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        control::line(&bytes);
    }

    #[test]
    fn a_damaged_message_is_read_or_refused(message in messages(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut line = serde_json::to_vec(&message).unwrap();
        prop_assert_eq!(Message::parse(&line).unwrap(), message);
        let at = at.index(line.len());
        line[at] = byte;
        control::line(&line);
    }
}
