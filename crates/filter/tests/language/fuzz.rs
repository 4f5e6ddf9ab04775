//! The body of the fuzz target, on random input.

#[path = "../../../../fuzz/src/filter.rs"]
#[expect(unreachable_pub, reason = "the fuzz crate exports it")]
mod body;

const WORDS: &str = "ip ip6 arp tcp udp icmp host net port portrange proto protochain src dst and or not ( ) [ ] : + - * / \
    % & | ^ << >> = != < > <= >= len vlan mpls pppoes geneve llc i ether broadcast multicast less greater byte 0 1 5 53 \
    0x45 4294967295 10 10.1 10.0.0.1 2001:db8::1 ::/0 /24 mask 255.0.0.0 1:2:3:4:5:6 domain foo \\tcp isis l1 decnet gateway";

#[test]
fn whatever_is_written_all_forms_of_a_filter_agree() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let words: Vec<_> = WORDS.split_whitespace().collect();
    for _ in 0..5_000 {
        let mut input = Vec::new();
        for _ in 0..rng.usize(0..14) {
            input.extend(words[rng.usize(0..words.len())].bytes());
            input.extend(rng.bool().then_some(b' '));
        }
        if rng.u8(0..4) == 0 && !input.is_empty() {
            let at = rng.usize(0..input.len());
            input[at] = rng.u8(..);
        }
        input.push(b'\n');
        input.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45].iter().take(rng.usize(0..16)));
        input.extend(std::iter::repeat_with(|| rng.u8(..)).take(40));
        body::expression(&input);
    }
}
