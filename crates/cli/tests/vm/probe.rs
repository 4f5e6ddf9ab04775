//! `linerate probe` on each driver, and kernel pktgen.

use lab::{Kernel, NicModel};
use serde_json::Value;

use crate::support::Guest;

/// The line about a path.
fn finding<'f>(findings: &'f Value, path: &str) -> &'f Value {
    findings.as_array().unwrap().iter().find(|finding| finding["engine"] == path).unwrap()
}

fn script(pairs: usize) -> String {
    let tries = (1..=pairs).map(|pair| {
        format!(
            "ip link set pair{pair}a up; ip link set pair{pair}b up\n\
             linerate probe pair{pair}a --try --json > /share/{pair}.json || [ $? = 3 ] || exit 1\n"
        )
    });
    tries.collect()
}

#[test]
fn each_driver_is_tried_and_what_it_lacks_is_reported() {
    let cards = [NicModel::Igb, NicModel::Virtio, NicModel::Vmxnet3, NicModel::E1000];
    let Some(guest) = Guest::prepare(Kernel::Latest, &cards) else { return };
    let bench = |rest: &str, file: &str| {
        format!(
            "linerate bench --trials 1 --duration 300ms --rate 2kpps --no-save --json --tx pktgen --tx-interface pair1a \
             --rx-interface pair1b {rest} > /share/{file}.json || [ $? = 1 ] || exit 1\n"
        )
    };
    let plain = bench("--rx udp,xdp", "pktgen");
    let bursts = bench("--rx xdp --burst 4 --clone 10 --tx-usecs 30 --tx-ring 512", "bursts");
    let done = guest.run(&(plain + &bursts + &script(cards.len())));
    let detail = |pair: usize, path: &str| {
        let findings = done.json(&format!("{pair}.json"));
        let finding = finding(&findings, path);
        (finding["works"].as_bool().unwrap(), finding["detail"].as_str().unwrap().to_owned())
    };
    for pair in [1, 2] {
        assert_eq!(detail(pair, "xsk send"), (true, "zero-copy".into()));
        assert_eq!(detail(pair, "xsk receive"), (true, "native, zero-copy".into()));
    }
    let copied = "with a copy of each frame; zero-copy is refused: ";
    assert!(
        detail(3, "xsk receive").1.starts_with(&format!("native, {copied}")),
        "{:?}",
        detail(3, "xsk receive")
    );
    assert!(
        detail(4, "xsk receive").1.starts_with(&format!("generic, {copied}")),
        "{:?}",
        detail(4, "xsk receive")
    );
    let (works, words) = detail(4, "xdp native");
    assert!(!works && words.starts_with("native XDP is not supported by pair4a"), "{words}");
    for pair in 1..=cards.len() {
        assert_eq!(detail(pair, "pktgen"), (true, "the kernel's generator".into()));
        assert!(detail(pair, "xdp generic").0);
    }
    // A socket and an XDP program recognise its packets, and none is lost uncounted.
    let run = done.json("pktgen.json");
    for trial in run["end"]["trials"].as_array().unwrap() {
        assert!(trial["delivered"].as_u64().unwrap() > 0, "{trial}");
        assert_eq!(trial["ledger"]["unexplained"], 0, "{trial}");
    }
    assert_eq!(run["end"]["trials"].as_array().unwrap().len(), 2, "{run}");
    // A burst may exceed what the emulated card takes at once, which it does not count.
    let trial = &done.json("bursts.json")["end"]["trials"][0];
    let options = &trial["tx"]["options"];
    assert_eq!((&options["burst"], &options["clones"]), (&4.into(), &10.into()), "{trial}");
    assert!(trial["delivered"].as_u64().unwrap() > 0, "{trial}");
}

#[test]
fn an_older_kernel_copies_where_the_newest_does_not() {
    let Some(guest) = Guest::prepare(Kernel::V6_1, &[NicModel::Igb]) else { return };
    let done = guest.run(&script(1));
    let findings = done.json("1.json");
    let words = finding(&findings, "xsk receive")["detail"].as_str().unwrap();
    assert!(words.starts_with("native, with a copy of each frame; zero-copy is refused: "), "{words}");
}
