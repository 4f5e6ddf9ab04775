//! Bodies for answers of drivers and the kernel about a card: for any bytes, nothing panics, and no parsed
//! value is longer than the answer.

use sys::{
    ethtool::{
        CHANNELS, COALESCING, FlowRule, LinkMode, PAUSE, RINGS, Rss, parse_driver, parse_features,
        parse_names, parse_places, parse_rss, parse_statistics,
    },
    netdev::{Napi, Queue, QueueStats},
};

/// Attributes of ethtool's netlink family.
pub fn ethtool_netlink(input: &[u8]) {
    for group in [CHANNELS, RINGS, COALESCING, PAUSE] {
        assert!(group.parse(input).len() <= group.parameters.len());
    }
    let rss = Rss::parse(input);
    assert!(rss.table.len() * 4 <= input.len() && rss.key.len() <= input.len());
    let _ = LinkMode::parse(input);
    let _ = nic::Table::of(&rss.table);
}

/// The structures that ethtool's ioctls fill.
pub fn ethtool_ioctl(input: &[u8]) {
    let rss = parse_rss(input, 0);
    assert!(rss.table.len() * 4 + rss.key.len() <= input.len());
    let names = parse_names(input);
    assert!(names.len() * 32 <= input.len());
    assert!(parse_features(&names, input).len() <= names.len());
    if let Some(counters) = parse_statistics(&names, input) {
        assert_eq!(counters.len(), names.len());
        let _ = nic::queue_counts(&counters);
    }
    assert!(parse_places(input).len() * 4 <= input.len());
    let _ = parse_driver(input);
    if let Some(rule) = FlowRule::from_bytes(input) {
        assert_eq!(rule.to_bytes(), input);
        let text = nic::rule_text(&rule);
        let again = nic::parse_rule(&text, Some(rule.place())).expect("a rule's text is a rule");
        assert_eq!(nic::rule_text(&again), text);
    }
}

/// Attributes of the netdev family: queues, NAPI instances, counts.
pub fn netdev(input: &[u8]) {
    let _ = (Queue::parse(input), QueueStats::parse(input), Napi::parse(input));
}

/// Names of a driver's counters, one per line, each with a large count; and the kernel's table of interrupts.
pub fn counters(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let counters: Vec<(String, u64)> =
        text.lines().map(|name| (name.to_owned(), (name.len() as u64) << 56 | 1)).collect();
    let counts = nic::queue_counts(&counters);
    assert!(counts.rx.len() + counts.tx.len() <= counters.len());
    assert!(nic::parse_interrupts(&text).len() <= text.lines().count());
}
