//! Records drivers' answers, byte for byte, for the replayed corpus: `scripts/record-replies` runs it on real ones.

use super::*;
use crate::genl::Family;
use crate::netlink::Refusal;

/// Interfaces to record, separated by spaces; unset: nothing is recorded.
const INTERFACES: &str = "RECORD_REPLIES_OF";

#[test]
fn replies() {
    let Ok(interfaces) = std::env::var(INTERFACES) else { return };
    for interface in interfaces.split_whitespace() {
        let index = crate::rtnetlink::RouteSocket::open().unwrap().link_by_name(interface).unwrap().index;
        let socket = EthtoolSocket::open().unwrap();
        let driver = socket.driver(interface).unwrap().name;
        let tell = |kind: &str, answer: Result<Vec<u8>, String>| {
            let text = answer.map_or_else(|errno| format!("refused {errno}"), |bytes| packed(&bytes));
            println!("reply {driver} {kind} {text}");
        };
        for (kind, answer) in by_netlink(index) {
            tell(kind, answer);
        }
        for (kind, answer) in by_ioctl(&socket, interface) {
            tell(kind, answer);
        }
    }
}

type Answers = Vec<(&'static str, Result<Vec<u8>, String>)>;

fn by_netlink(index: u32) -> Answers {
    let mut answers = Vec::new();
    // Family, command, attribute of the interface, whether it is a dump.
    let mut ethtool = Family::open("ethtool", "5.6").unwrap();
    let groups = [("channels", &CHANNELS), ("rings", &RINGS), ("coalescing", &COALESCING), ("pause", &PAUSE)];
    let commands = groups.map(|(kind, group)| (kind, group.get));
    for (kind, command) in commands.into_iter().chain([("link-modes", 4), ("rss-netlink", 38)]) {
        let mut request = ethtool.request(command, 0);
        request.nested(1 | libc::NLA_F_NESTED as u16, |request| request.u32(1, index));
        answers.extend(asked(kind, &mut ethtool, request));
    }
    let mut netdev = Family::open("netdev", "6.8").unwrap();
    for (kind, command, attribute) in [("queue", 10, 2), ("napi", 11, 1), ("queue-stats", 12, 1)] {
        let mut request = netdev.request(command, libc::NLM_F_DUMP);
        request.u32(attribute, index);
        if kind == "queue-stats" {
            request.u32(4, 1);
        }
        answers.extend(asked(kind, &mut netdev, request));
    }
    answers
}

fn asked(kind: &'static str, family: &mut Family, request: crate::netlink::Request) -> Answers {
    let mut bodies = Vec::new();
    let answer = family.ask(request, |attributes| bodies.push(attributes.0.to_vec()));
    match answer {
        Ok(()) => bodies.into_iter().map(|body| (kind, Ok(body))).collect(),
        Err(Refusal { source, .. }) => vec![(kind, Err(source.to_string()))],
    }
}

fn by_ioctl(socket: &EthtoolSocket, interface: &str) -> Answers {
    let ask = |head: &[u32], length: usize| {
        let mut answer = Buffer::new(head, length);
        let asked = socket.ask(interface, &mut answer, "record");
        asked.map(|()| answer.bytes().to_vec()).map_err(|error| match error {
            EthtoolError::Refused { source, .. } => source.to_string(),
            other => other.to_string(),
        })
    };
    let names = |set: u32| {
        let count = socket.names(interface, set).unwrap().len();
        (count, ask(&[0x1b, set, count as u32], count * reply::NAME))
    };
    let (counters, counter_names) = names(strings::STATISTICS);
    let (features, feature_names) = names(strings::FEATURES);
    let blocks = features.div_ceil(32);
    let rss = socket.rss(interface, 0).map_or(0, |rss| rss.table.len() * 4 + rss.key.len());
    let lengths = socket.rss(interface, 0).unwrap_or_default();
    vec![
        ("driver", ask(&[0x3], 192)),
        ("counter-names", counter_names),
        ("counters", ask(&[0x1d, counters as u32], counters * 8)),
        ("feature-names", feature_names),
        ("features", ask(&[0x3a, blocks as u32], blocks * 16)),
        ("rss", ask(&[0x46, 0, lengths.table.len() as u32, lengths.key.len() as u32, 0, 0], rss)),
        ("rules", ask(&[0x30], layout::LEN - 4)),
    ]
}

/// Hex, with `+N` for a run of N zero bytes: name fields are mostly empty.
fn packed(bytes: &[u8]) -> String {
    let mut text = String::new();
    for run in bytes.chunk_by(|one, next| (*one == 0) == (*next == 0)) {
        if run[0] == 0 && run.len() > 3 {
            text.push_str(&format!("+{}.", run.len()));
        } else {
            text.extend(run.iter().map(|byte| format!("{byte:02x}")));
            text.push('.');
        }
    }
    text
}
