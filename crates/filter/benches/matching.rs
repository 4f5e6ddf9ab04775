//! Nanoseconds for a verdict on a 64-byte frame (60 without FCS): a UDP packet to port 53.

use divan::{Bencher, black_box};
use filter::{Filter, FilterSet};

fn main() {
    divan::main();
}

const EXPRESSIONS: [&str; 8] = [
    "ip",
    "udp dst port 53",
    "udp and dst port 53 and net 198.51.100.0/24",
    "tcp port 443",
    "host 192.0.2.1 or port 53",
    "port 53 or 80 or 443 or 8080 or 5060",
    "ip6 and udp dst port 53",
    "udp[0:2] & 0xff00 = ip[0] << 8",
];

fn frame() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[192, 0, 2, 9, 198, 51, 100, 7]);
    frame[34..38].copy_from_slice(&[0x9c, 0x40, 0, 53]);
    frame
}

#[divan::bench(args = EXPRESSIONS)]
fn verdict(bencher: Bencher<'_, '_>, expression: &str) {
    let filter = Filter::compile(expression).expect("a sentence");
    let frame = frame();
    bencher.bench(|| filter.matches(black_box(&frame)));
}

#[divan::bench(args = [1, 10, 100])]
fn verdict_of_rules(bencher: Bencher<'_, '_>, rules: u32) {
    let rules: Vec<_> = (0..rules)
        .map(|rule| Filter::compile(&format!("udp and dst port {}", 1000 + rule)).expect("a sentence"))
        .collect();
    let rules = FilterSet::new(&rules);
    let frame = frame();
    bencher.bench(|| rules.first_match(black_box(&frame)));
}

#[divan::bench(args = EXPRESSIONS)]
fn compile(bencher: Bencher<'_, '_>, expression: &str) {
    bencher.bench(|| Filter::compile(black_box(expression)));
}
