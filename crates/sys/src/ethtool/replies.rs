//! For any answer of a driver, parsers neither panic nor allocate more than the answer's size.

use proptest::prelude::*;

use super::*;
use crate::netlink::Request;

fn answer(values: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut request = Request::new(0, 0, &[]);
    values.iter().for_each(|(kind, payload)| request.attribute(*kind, payload));
    request.body().to_vec()
}

fn word(value: u32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

#[test]
fn an_igbs_answers_are_read() {
    let channels = answer(&[(4, word(1)), (5, word(8)), (8, word(1)), (9, word(4))]);
    assert_eq!(
        CHANNELS.parse(&channels),
        [("other-max", 1), ("combined-max", 8), ("other", 1), ("combined", 4)]
    );
    let rings = answer(&[(2, word(4096)), (5, word(4096)), (6, word(256)), (9, word(256)), (13, vec![0])]);
    assert_eq!(
        RINGS.parse(&rings),
        [("rx-max", 4096), ("tx-max", 4096), ("rx", 256), ("tx", 256), ("tx-push", 0)]
    );
    assert_eq!(COALESCING.parse(&answer(&[(2, word(3)), (6, word(3))])), [("rx-usecs", 3), ("tx-usecs", 3)]);
    assert_eq!(
        PAUSE.parse(&answer(&[(2, vec![1]), (3, vec![1]), (4, vec![0])])),
        [("autoneg", 1), ("rx", 1), ("tx", 0)]
    );
    let table: Vec<u8> = (0..128u32).flat_map(|bucket| (bucket / 32).to_ne_bytes()).collect();
    let rss = Rss::parse(&answer(&[(3, word(1)), (4, table)]));
    assert_eq!((rss.function, rss.table.len(), rss.table[127], rss.key.len()), (Some(1), 128, 3, 0));
}

#[test]
fn odd_answers_are_read_as_far_as_they_make_sense() {
    assert_eq!(CHANNELS.parse(&answer(&[(9, word(0))])), [("combined", 0)], "no queue at all");
    assert_eq!(CHANNELS.parse(&answer(&[(9, vec![1, 2])])), [], "half a number");
    assert_eq!(Rss::parse(&answer(&[(4, Vec::new())])).table, [0u32; 0], "a table of length 0");
    assert_eq!(Rss::parse(&answer(&[(4, vec![1; 7])])).table.len(), 1, "a truncated table");
    let link = LinkMode::parse(&answer(&[(5, word(u32::MAX)), (6, vec![0xff])]));
    assert_eq!(link, LinkMode::default(), "a link without carrier");
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for group in [CHANNELS, RINGS, COALESCING, PAUSE] {
            prop_assert!(group.parse(&bytes).len() <= group.parameters.len());
        }
        prop_assert!(Rss::parse(&bytes).table.len() * 4 <= bytes.len());
        let rss = parse_rss(&bytes, 0);
        prop_assert!(rss.table.len() * 4 + rss.key.len() <= bytes.len());
        LinkMode::parse(&bytes);
        if let Some(rule) = FlowRule::from_bytes(&bytes) {
            rule.matches();
        }
    }

    #[test]
    fn any_bytes_are_a_rule(bytes in prop::collection::vec(any::<u8>(), 172)) {
        let rule = FlowRule::from_bytes(&bytes).unwrap();
        prop_assert_eq!(rule.to_bytes(), bytes);
        if let Some(matches) = rule.matches() {
            prop_assert_eq!(FlowRule::new(&matches, rule.action(), Some(rule.place())).matches(), Some(matches));
        }
    }

    #[test]
    fn requests_carry_the_kernels_numbers(value: u32) {
        for group in [CHANNELS, RINGS, COALESCING, PAUSE] {
            for parameter in group.parameters.iter().filter(|parameter| parameter.writable) {
                let mut request = Request::new(0, 0, &[]);
                group.append(&mut request, parameter.name, value);
                let expected = if parameter.is_switch() { u32::from(value != 0) } else { value };
                prop_assert_eq!(group.parse(request.body()), [(parameter.name, expected)]);
            }
        }
    }
}
