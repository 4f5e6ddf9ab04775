//! Verdicts agree with libpcap's: on a corpus, and on random expressions and frames; in user space and in XDP.
//!
//! `corpus.txt` holds each expression with libpcap's result: how many of the packets match and a fingerprint of which.
//! `LINERATE_BLESS=1` runs tcpdump again and rewrites it.

mod expressions;
mod kernel;
mod packets;
mod reference;
mod tuple;

use filter::{Filter, FilterSet};
use reference::{Optimised, Reference};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agreement/corpus.txt");
/// libpcap's errors for an expression that does not parse, or that matches nothing.
const REFUSED: &str = "refused";

#[test]
fn the_corpus_is_judged_as_by_libpcap() {
    let packets = packets::packets();
    if std::env::var_os("LINERATE_BLESS").is_some() {
        let reference = Reference::of("bless", &packets).expect("tcpdump gives the expected result");
        let lines = corpus().into_iter().map(|(_, expression)| {
            let said =
                reference.verdicts(&expression, Optimised::Yes).map_or(REFUSED.into(), |said| summary(&said));
            format!("{said}\t{expression}\n")
        });
        let lines: String = lines.collect();
        std::fs::write(CORPUS, lines).expect("the corpus is writable");
    }
    let corpus = corpus();
    let judged = corpus.iter().filter(|(said, _)| said != REFUSED).count();
    assert!(judged >= 300, "{judged} expressions with verdicts");
    let mut wrong = Vec::new();
    for (said, expression) in &corpus {
        let ours = match Filter::compile(expression) {
            Ok(filter) if filter.matches_nothing() => REFUSED.into(),
            Ok(filter) => summary(&packets.iter().map(|packet| filter.matches(packet)).collect::<Vec<_>>()),
            Err(_) => REFUSED.into(),
        };
        if ours != *said {
            wrong.push(format!("{expression}: libpcap {said}, here {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), corpus.len(), wrong.join("\n"));
}

#[test]
fn the_corpus_is_what_this_machines_libpcap_says() {
    let packets = packets::packets();
    let Some(reference) = Reference::of("corpus", &packets) else { return };
    for (said, expression) in corpus() {
        let now =
            reference.verdicts(&expression, Optimised::Yes).map_or(REFUSED.into(), |said| summary(&said));
        assert_eq!(now, said, "{expression}: LINERATE_BLESS=1 rewrites the corpus");
    }
}

#[test]
fn random_sentences_are_judged_as_by_libpcap() {
    let mut rng = seeded();
    let packets = packets::packets();
    let packets: Vec<_> = packets.iter().map(|packet| expressions::changed(&mut rng, packet)).collect();
    let Some(reference) = Reference::of("random", &packets) else { return };
    let (mut compared, mut inconsistent) = (0, 0);
    for _ in 0..250 {
        let expression = expressions::sentence(&mut rng, 3);
        let ours = Filter::compile(&expression);
        let theirs = reference.verdicts(&expression, Optimised::Yes);
        let (filter, theirs) = match (ours, theirs) {
            (Ok(filter), Ok(theirs)) => (filter, theirs),
            (Ok(filter), Err(said)) => {
                // An empty answer and none are the same.
                let nothing = packets.iter().all(|packet| !filter.matches(packet));
                assert!(nothing && said.contains("rejects all"), "{expression}: libpcap: {said}");
                continue;
            }
            (Err(error), Ok(_)) => panic!("{expression}: {error}"),
            (Err(_), Err(_)) => continue,
        };
        compared += 1;
        let differs = |a: &[bool]| packets.iter().zip(a).position(|(packet, a)| filter.matches(packet) != *a);
        if let Some(first) = differs(&theirs) {
            // libpcap's optimiser changes verdicts on frames when a test reads past the end; then either verdict is accepted.
            let plain = reference.verdicts(&expression, Optimised::No).expect("the same sentence");
            inconsistent += 1;
            let between = packets.iter().enumerate().find(|(index, packet)| {
                let ours = filter.matches(packet);
                ours != theirs[*index] && ours != plain[*index]
            });
            assert_eq!(between, None, "{expression} on {:02x?}", packets[first]);
        }
    }
    assert!(compared > 150, "{compared} compared");
    println!("{compared} compared, {inconsistent} where libpcap's optimiser changes verdicts");
}

#[test]
fn the_corpus_is_judged_in_the_kernel_as_here() {
    let Some(mut loader) = kernel::Loader::new() else { return };
    let packets = packets::packets();
    let mut judged = 0;
    for (said, expression) in corpus() {
        let Ok(filter) = Filter::compile(&expression) else { continue };
        judged += usize::from(said != REFUSED);
        let kernel = loader.load(&FilterSet::new([&filter])).unwrap_or_else(|error| {
            panic!("{expression}: {error:?}");
        });
        for packet in packets.iter().filter(|packet| packet.len() >= kernel::LEAST_FRAME) {
            assert_eq!(kernel.matches(packet), filter.matches(packet), "{expression} on {packet:02x?}");
        }
    }
    // User space agrees with libpcap: the corpus test above shows it.
    assert!(judged >= 300, "{judged} expressions with libpcap's verdict were judged in the kernel");
}

/// The second filter's tests are all decided, except for a fault that can no longer happen.
#[test]
fn the_kernel_takes_filters_that_follow_from_those_before_them() {
    let Some(mut loader) = kernel::Loader::new() else { return };
    for expressions in [
        &["(194 * len) = 64 or ip6", "tcp src and dst portrange 20725-56866 or pppoes 3 and ip broadcast"][..],
        &["dst host 2001:db8::1", "(len <= 2 or src and dst net 10)", "(net 192.0.2.0/31 or ip6 proto 209)"],
    ] {
        let filters: Vec<_> = expressions.iter().map(|it| Filter::compile(it).expect(it)).collect();
        loader.load(&FilterSet::new(&filters)).unwrap_or_else(|error| panic!("{expressions:?}: {error:?}"));
    }
}

#[test]
fn random_rules_are_judged_in_the_kernel_as_here() {
    let Some(mut loader) = kernel::Loader::new() else { return };
    let mut rng = seeded();
    let packets = packets::packets();
    for _ in 0..600 {
        let filters: Vec<_> = (0..rng.usize(1..5))
            .filter_map(|_| Filter::compile(&expressions::sentence(&mut rng, 2)).ok())
            .collect();
        let expressions: Vec<_> = filters.iter().map(Filter::expression).collect();
        let set = FilterSet::new(&filters);
        let kernel = loader.load(&set).unwrap_or_else(|error| panic!("{expressions:?}: {error:?}"));
        for _ in 0..80 {
            let packet = &packets[rng.usize(0..packets.len())];
            let packet = expressions::changed(&mut rng, packet);
            let one_by_one = filters.iter().position(|filter| filter.matches(&packet));
            assert_eq!(set.first_match(&packet), one_by_one, "{expressions:?} on {packet:02x?}");
            if packet.len() >= kernel::LEAST_FRAME {
                assert_eq!(kernel.answer(&packet), one_by_one, "{expressions:?} on {packet:02x?}");
            }
        }
    }
}

#[test]
fn a_conjunction_matches_what_each_of_both_matches_by_itself_here_and_in_the_kernel() {
    let mut loader = kernel::Loader::new();
    let mut rng = seeded();
    let packets = packets::packets();
    let mut matched = 0;
    for round in 0..1500 {
        let mut filter = || loop {
            // Each may begin with a tag, a label or a session; negated ones match often.
            let sentence = match rng.u8(0..3) {
                0 => expressions::sentence(&mut rng, 2),
                1 => expressions::conjunction(&mut rng),
                _ => format!("not ({})", expressions::sentence(&mut rng, 2)),
            };
            if let Ok(filter) = Filter::compile(&sentence) {
                return filter;
            }
        };
        let (one, other) = (filter(), filter());
        let both = one.and(&other);
        let name = both.expression();
        // Loading takes most of the time.
        let loads = round < 300;
        let kernel = loader.as_mut().filter(|_| loads).map(|loader| {
            loader.load(&FilterSet::new([&both])).unwrap_or_else(|error| panic!("{name}: {error:?}"))
        });
        for _ in 0..80 {
            let packet = &packets[rng.usize(0..packets.len())];
            let packet = expressions::changed(&mut rng, packet);
            let expected = one.matches(&packet) && other.matches(&packet);
            matched += usize::from(expected);
            assert_eq!(both.matches(&packet), expected, "{name} on {packet:02x?}");
            if let Some(kernel) = kernel.as_ref().filter(|_| packet.len() >= kernel::LEAST_FRAME) {
                assert_eq!(kernel.matches(&packet), expected, "{name} in the kernel on {packet:02x?}");
            }
            if let Some(rules) = both.tuple_rules().filter(|_| tuple::is_whole(&packet)) {
                let holds = rules.iter().any(|rule| tuple::holds(rule, &packet));
                assert_eq!(holds, expected, "{name}: {rules:?} on {packet:02x?}");
            }
        }
    }
    assert!(matched > 1000, "{matched} packets matched");
}

/// Frames by tag, IP version and destination port, and of each pair of expressions the frames that both match.
#[test]
fn each_part_of_a_conjunction_reads_the_frame_from_its_start() {
    let frames = [
        ("v4 9", udp_frame(&[], false, 9)),
        ("v4 10", udp_frame(&[], false, 10)),
        ("v6 9", udp_frame(&[], true, 9)),
        ("5 v4 9", udp_frame(&[5], false, 9)),
        ("5 v6 9", udp_frame(&[5], true, 9)),
        ("5 v6 10", udp_frame(&[5], true, 10)),
        ("7 v4 9", udp_frame(&[7], false, 9)),
        ("7 5 v4 9", udp_frame(&[7, 5], false, 9)),
    ];
    let cases: [(&str, &str, &[&str]); 12] = [
        ("", "udp", &["v4 9", "v4 10", "v6 9"]),
        ("udp", "", &["v4 9", "v4 10", "v6 9"]),
        ("udp", "dst port 9", &["v4 9", "v6 9"]),
        ("ip", "ip6", &[]),
        ("vlan 5", "udp", &[]),
        ("vlan 5", "vlan and udp", &["5 v4 9", "5 v6 9", "5 v6 10"]),
        ("vlan and udp", "vlan 5", &["5 v4 9", "5 v6 9", "5 v6 10"]),
        ("vlan", "vlan 5", &["5 v4 9", "5 v6 9", "5 v6 10"]),
        ("vlan 7", "vlan and vlan 5", &["7 5 v4 9"]),
        ("vlan", "not udp", &["5 v4 9", "5 v6 9", "5 v6 10", "7 v4 9", "7 5 v4 9"]),
        (
            "udp or (vlan and udp)",
            "dst port 9 or (vlan and dst port 9)",
            &["v4 9", "v6 9", "5 v4 9", "5 v6 9", "7 v4 9"],
        ),
        ("ip6 or vlan 5", "ip or vlan and ip6", &["5 v6 9", "5 v6 10"]),
    ];
    let mut loader = kernel::Loader::new();
    for (one, other, expected) in cases {
        let [first, second] = [one, other].map(|text| Filter::compile(text).expect(text));
        let both = first.and(&second);
        let found = |matches: &dyn Fn(&[u8]) -> bool| -> Vec<&str> {
            frames.iter().filter(|(_, frame)| matches(frame)).map(|(name, _)| *name).collect()
        };
        assert_eq!(found(&|frame| both.matches(frame)), expected, "{one} | {other}");
        let Some(loader) = &mut loader else { continue };
        let kernel = loader.load(&FilterSet::new([&both])).expect("the kernel takes it");
        assert_eq!(found(&|frame| kernel.matches(frame)), expected, "{one} | {other} in the kernel");
    }
}

/// A UDP packet behind VLAN tags, the outer one first.
fn udp_frame(tags: &[u16], v6: bool, dst_port: u16) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
    for tag in tags {
        frame.extend([0x81, 0x00]);
        frame.extend(tag.to_be_bytes());
    }
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, 17, 64]);
        frame.extend(std::net::Ipv6Addr::LOCALHOST.octets().repeat(2));
    } else {
        frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    }
    frame.extend([0x9c, 0x40]);
    frame.extend(dst_port.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.extend([0; 18]);
    frame
}

#[test]
fn tuple_rules_say_the_same_as_their_filter() {
    let mut rng = seeded();
    let packets = packets::packets();
    let mut tuples = 0;
    for round in 0..3000 {
        let corpus = if round == 0 { corpus() } else { Vec::new() };
        let sentence = expressions::conjunction(&mut rng);
        for expression in corpus.into_iter().map(|(_, expression)| expression).chain([sentence]) {
            let Ok(filter) = Filter::compile(&expression) else { continue };
            let Some(rules) = filter.tuple_rules() else { continue };
            tuples += 1;
            for packet in packets.iter().filter(|packet| tuple::is_whole(packet)) {
                let holds = rules.iter().any(|rule| tuple::holds(rule, packet));
                assert_eq!(holds, filter.matches(packet), "{expression}: {rules:?} on {packet:02x?}");
            }
        }
    }
    assert!(tuples > 1000, "{tuples} with rules");
}

/// libpcap's result for each expression.
fn corpus() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(CORPUS).expect("the corpus exists");
    let lines = text.lines().map(|line| {
        let (said, expression) = line.split_once('\t').unwrap_or(("", line));
        (said.to_owned(), expression.to_owned())
    });
    lines.collect()
}

/// How many, and a fingerprint of which (FNV-1a).
fn summary(verdicts: &[bool]) -> String {
    let hash = verdicts.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, verdict| {
        (hash ^ u64::from(*verdict)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}:{hash:016x}", verdicts.iter().filter(|verdict| **verdict).count())
}

/// A generator whose seed is printed; `LINERATE_SEED` repeats a run.
fn seeded() -> fastrand::Rng {
    let seed = std::env::var("LINERATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("LINERATE_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
