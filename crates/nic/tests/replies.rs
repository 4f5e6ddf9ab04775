//! Replays answers of real drivers: `scripts/record-replies` recorded them in the virtual machine, one file per driver.
//! `LINERATE_BLESS=1` writes the result of reading each.

use std::{collections::BTreeMap, env, fmt::Write, fs, path::PathBuf};

use nic::{Table, queue_counts};
use proptest::prelude::*;
use sys::{
    ethtool::{
        CHANNELS, COALESCING, LinkMode, PAUSE, RINGS, Rss, parse_driver, parse_features, parse_names,
        parse_places, parse_rss, parse_statistics,
    },
    netdev::{Napi, Queue, QueueStats},
};

#[path = "../../../fuzz/src/nic.rs"]
#[expect(unreachable_pub, reason = "the fuzz crate exports it")]
mod bodies;

/// The answers of a driver by kind of request, in order; or the text of the error.
type Answers = BTreeMap<String, Vec<Result<Vec<u8>, String>>>;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/replies")
}

fn corpus() -> BTreeMap<String, Answers> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let driver = path.file_stem().unwrap().to_str().unwrap().to_owned();
            all.insert(driver, answers(&fs::read_to_string(&path).unwrap()));
        }
    }
    all
}

fn answers(text: &str) -> Answers {
    let mut answers = Answers::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (kind, bytes) = line.split_once(' ').unwrap();
        let answer = match bytes.strip_prefix("refused ") {
            Some(words) => Err(words.to_owned()),
            None => Ok(unpacked(bytes)),
        };
        answers.entry(kind.to_owned()).or_default().push(answer);
    }
    answers
}

/// Hex in pieces that end with a dot; `+N` stands for N zero bytes.
fn unpacked(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in text.split('.').filter(|piece| !piece.is_empty()) {
        match piece.strip_prefix('+') {
            Some(zeros) => bytes.resize(bytes.len() + zeros.parse::<usize>().unwrap(), 0),
            None => {
                let pairs = piece.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
                bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
            }
        }
    }
    bytes
}

/// The result of reading one driver's answers, as text.
fn read(answers: &Answers) -> String {
    let mut text = String::new();
    for (kind, all) in answers {
        for answer in all {
            let what = match answer {
                Err(refusal) => format!("refused: {refusal}"),
                Ok(bytes) => read_one(kind, bytes, answers),
            };
            writeln!(text, "{kind}: {what}").unwrap();
        }
    }
    text
}

fn read_one(kind: &str, bytes: &[u8], answers: &Answers) -> String {
    let group = |group: &sys::ethtool::Group| {
        let values: Vec<String> =
            group.parse(bytes).iter().map(|(name, value)| format!("{name} {value}")).collect();
        values.join(", ")
    };
    let scaling = |rss: &Rss| {
        let table = Table::of(&rss.table);
        let spread = table.buckets_per_queue;
        format!(
            "function {:?}, {} buckets {spread:?}, key {} bytes",
            rss.function,
            table.buckets,
            rss.key.len()
        )
    };
    let names = |of: &str| parse_names(answers[of][0].as_ref().unwrap());
    match kind {
        "channels" => group(&CHANNELS),
        "rings" => group(&RINGS),
        "coalescing" => group(&COALESCING),
        "pause" => group(&PAUSE),
        "link-modes" => format!("{:?}", LinkMode::parse(bytes)),
        "rss-netlink" => scaling(&Rss::parse(bytes)),
        "rss" => scaling(&parse_rss(bytes, 0)),
        "queue" => {
            let Queue { id, receives, napi } = Queue::parse(bytes).unwrap();
            format!("{} {id}, NAPI {}", if receives { "rx" } else { "tx" }, napi.is_some())
        }
        "napi" => {
            let napi = Napi::parse(bytes).unwrap();
            format!("interrupt {}, {:?}", napi.interrupt.is_some(), napi.polling)
        }
        "queue-stats" => format!("{:?}", QueueStats::parse(bytes).unwrap()),
        "driver" => {
            let driver = parse_driver(bytes);
            format!("{}, firmware '{}', at {}", driver.name, driver.firmware, driver.bus)
        }
        "counter-names" => format!("{} of them", parse_names(bytes).len()),
        "feature-names" => format!("{} of them", parse_names(bytes).len()),
        "counters" => {
            let counters = parse_statistics(&names("counter-names"), bytes).unwrap();
            let counts = queue_counts(&counters);
            format!("{} of them, by queue rx {:?} tx {:?}", counters.len(), counts.rx, counts.tx)
        }
        "features" => {
            let features = parse_features(&names("feature-names"), bytes);
            let changeable = features.iter().filter(|feature| feature.changeable).count();
            let on: Vec<&str> = features
                .iter()
                .filter(|feature| feature.active)
                .map(|feature| feature.name.as_str())
                .collect();
            format!("{changeable} of {} can be changed; on: {}", features.len(), on.join(" "))
        }
        "rules" => format!("{:?}", parse_places(bytes)),
        other => panic!("{other}"),
    }
}

#[test]
fn each_driver_is_read_as_it_answered() {
    let corpus = corpus();
    let drivers: Vec<&str> = corpus.keys().map(String::as_str).collect();
    assert_eq!(drivers, ["e1000", "e1000e", "igb", "veth", "virtio_net", "vmxnet3"]);
    for (driver, answers) in &corpus {
        let (path, now) = (folder().join(format!("{driver}.read")), read(answers));
        if env::var_os("LINERATE_BLESS").is_some() {
            fs::write(&path, &now).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), now, "{}", path.display());
    }
}

/// Every parser, including those for answers of other kinds.
fn read_in_every_way(bytes: &[u8]) {
    bodies::ethtool_netlink(bytes);
    bodies::ethtool_ioctl(bytes);
    bodies::netdev(bytes);
    bodies::counters(bytes);
}

#[test]
fn an_answer_cut_short_anywhere_is_read_as_far_as_it_goes() {
    for (_, answers) in corpus() {
        for bytes in answers.into_values().flatten().flatten() {
            // All short lengths, and for long answers every length around a field's end.
            let lengths = (0..bytes.len()).filter(|length| *length < 64 || *length % 32 < 2);
            lengths.for_each(|length| read_in_every_way(&bytes[..length]));
        }
    }
}

proptest! {
    #[test]
    fn an_answer_with_wrong_bytes_is_no_danger(
        which: prop::sample::Index,
        wrong in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let all: Vec<Vec<u8>> =
            corpus().into_values().flat_map(BTreeMap::into_values).flatten().flatten().collect();
        let mut bytes = which.get(&all).clone();
        if bytes.is_empty() {
            return Ok(());
        }
        for (place, byte) in wrong {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        read_in_every_way(&bytes);
    }

    #[test]
    fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_in_every_way(&bytes);
    }
}
