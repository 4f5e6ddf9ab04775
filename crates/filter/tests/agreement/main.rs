//! Verdicts agree with libpcap's: on a corpus, and on random sentences and frames; in user space and in XDP.
//!
//! `corpus.txt` holds each expression with what libpcap said: how many of the packets match and a fingerprint of which.
//! `LINERATE_BLESS=1` asks tcpdump again and rewrites it.

mod classic;
mod expressions;
mod kernel;
mod packets;
mod reference;
mod tuple;

use std::net::UdpSocket;

use filter::{CbpfRefusal, Filter, FilterSet};
use reference::{Optimised, Reference};
use socket2::{SockFilter, SockRef};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agreement/corpus.txt");
/// What libpcap says when an expression is no sentence, or matches nothing.
const REFUSED: &str = "refused";

#[test]
fn the_corpus_is_judged_as_by_libpcap() {
    let packets = packets::packets();
    if std::env::var_os("LINERATE_BLESS").is_some() {
        let reference = Reference::of("bless", &packets).expect("tcpdump says what is right");
        let lines = corpus().into_iter().map(|(_, expression)| {
            let said =
                reference.verdicts(&expression, Optimised::Yes).map_or(REFUSED.into(), |said| summary(&said));
            format!("{said}\t{expression}\n")
        });
        let lines: String = lines.collect();
        std::fs::write(CORPUS, lines).expect("the corpus can be written");
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
        assert_eq!(now, said, "{expression}: LINERATE_BLESS=1 writes the corpus anew");
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
            // libpcap's optimiser changes verdicts on frames that a test reads past the end of; then either is right.
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
    // What user space says is what libpcap says: the test of the corpus above.
    assert!(judged >= 300, "{judged} expressions with libpcap's verdict were judged in the kernel");
}

/// The second filter's tests are left with nothing to find out, but for a fault that cannot happen any more.
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
fn classic_programs_judge_the_corpus_as_here_and_the_kernel_takes_them() {
    let packets = packets::packets();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket on loopback");
    let mut programs = 0;
    for (_, expression) in corpus() {
        let Ok(filter) = Filter::compile(&expression) else { continue };
        let program = match filter.program() {
            Ok(program) => program,
            Err(CbpfRefusal::Protochain) => continue,
            // What is behind two of them is computed by jumps that classic BPF has not.
            Err(CbpfRefusal::TooLong { .. }) if expression.matches("geneve").count() == 2 => continue,
            Err(error) => panic!("{expression}: {error}"),
        };
        programs += 1;
        for packet in &packets {
            assert_eq!(
                classic::run(&program, packet) > 0,
                filter.matches(packet),
                "{expression} on {packet:02x?}"
            );
        }
        let program: Vec<_> = program.iter().map(|it| SockFilter::new(it.code, it.jt, it.jf, it.k)).collect();
        SockRef::from(&socket)
            .attach_filter(&program)
            .unwrap_or_else(|error| panic!("{expression}: {error}"));
    }
    assert!(programs > 300, "{programs} programs");
}

#[test]
fn a_long_expression_jumps_far() {
    let expression = (0..200).map(|port| format!("dst port {}", 2 * port)).collect::<Vec<_>>().join(" or ");
    let filter = Filter::compile(&expression).expect("long but right");
    let program = filter.program().expect("short enough");
    assert!(program.len() > 256);
    for packet in packets::packets() {
        assert_eq!(classic::run(&program, &packet) > 0, filter.matches(&packet), "{packet:02x?}");
    }
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

/// What libpcap said, and each expression.
fn corpus() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(CORPUS).expect("the corpus is there");
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
