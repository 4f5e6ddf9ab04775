use super::*;

const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81000100 T entry_SYSCALL_64\nffffffff81000200 T udp_sendmsg\n\
    ffffffff81000300 T __dev_queue_xmit\nffffffff81000400 T handle_softirqs\nffffffff81000500 T udp_rcv\n\
    ffffffff81000600 T asm_sysvec_apic_timer_interrupt\nffffffff81000700 T memset\nffffffff81001000 T _etext\n";

fn names() -> CountNames {
    CountNames { kernel: KernelSymbols::of_text(KALLSYMS).unwrap(), program: OwnSymbols::default() }
}

/// A sender whose packets a softirq on top of it receives, a receiver, a tick, and another thread.
const TEXT: &str = "count\n\
    node 3 1 0 ffffffff81000100\n\
    node 4 3 ffffffff81000110 ffffffff81000200\n\
    node 5 4 ffffffff81000210 ffffffff81000300\n\
    node 6 5 ffffffff81000310 ffffffff81000400\n\
    node 7 6 ffffffff81000410 ffffffff81000500\n\
    node 8 7 ffffffff81000508 ffffffff81000600\n\
    node 9 2 0 ffffffff81000100\n\
    block 1 555555555000 100 0 0\n\
    block 3 ffffffff81000100 200 0 0\n\
    block 4 ffffffff81000200 300 0 0\n\
    block 4 ffffffff81000700 10 6390 6400\n\
    block 5 ffffffff81000300 400 0 0\n\
    block 6 ffffffff81000400 500 0 0\n\
    block 7 ffffffff81000500 600 0 0\n\
    block 8 ffffffff81000600 700 0 0\n\
    block 9 ffffffff81000100 800 0 0\n\
    block 0 555555555000 50 0 0\n\
    end\n";

fn counts() -> TrialCounts {
    read_counts(TEXT).unwrap().remove(0)
}

#[test]
fn each_instruction_belongs_to_one_side_and_stage() {
    let found = counts().fold(&names(), 10, 5);
    assert_eq!(found.total, 3660);
    let sides = [
        found.sender_user_per_packet,
        found.sender_kernel_per_packet,
        found.softirq_per_packet,
        found.receiver_user_per_packet,
        found.receiver_kernel_per_packet,
        found.interrupts_per_packet,
        found.other_per_packet,
    ];
    assert_eq!(sides, [10.0, 91.0, 110.0, 0.0, 160.0, 70.0, 5.0].map(Some));
    let stages: Vec<_> = found.stages.iter().map(|s| (s.side, s.stage, s.per_packet)).collect();
    assert_eq!(
        stages,
        [
            (Side::Sender, Stage::Qdisc, 40.0),
            (Side::Sender, Stage::Udp, 31.0),
            (Side::Sender, Stage::Syscall, 20.0),
            (Side::Sender, Stage::User, 10.0),
            (Side::Softirq, Stage::Napi, 50.0),
            (Side::Softirq, Stage::Udp, 60.0),
            (Side::Receiver, Stage::Syscall, 160.0),
            (Side::Interrupts, Stage::Udp, 70.0),
            (Side::Other, Stage::User, 5.0),
        ]
    );
    let in_stages: f64 =
        found.stages.iter().map(|s| s.per_packet * if s.side == Side::Receiver { 5.0 } else { 10.0 }).sum();
    assert_eq!(in_stages, found.total as f64);
    assert_eq!(found.stacks.iter().map(|stack| stack.instructions).sum::<u64>(), found.total);
}

#[test]
fn a_thread_s_cost_includes_the_softirqs_and_interrupts_on_top_of_it() {
    assert_eq!((counts().of_senders(), counts().of_receivers()), (2810, 800));
}

#[test]
fn string_instructions_count_once_and_their_bytes_separately() {
    let found = counts().fold(&names(), 10, 5);
    let memset = found.functions.iter().find(|f| f.function == "memset").unwrap();
    assert_eq!((memset.per_packet, memset.string_bytes_per_packet, memset.stage), (1.0, 640.0, Stage::Udp));
    assert_eq!(found.string_bytes_per_packet, Some(640.0));
    assert_eq!(counts().ns_of_senders(), 2810 + 6390, "the clock counts each repetition");
}

#[test]
fn functions_have_their_names_in_the_source() {
    let names = ["veth_xdp_rcv.constprop.0", "kmem_cache_alloc_node_noprof", "ip_rcv"].map(source_name);
    assert_eq!(names, ["veth_xdp_rcv", "kmem_cache_alloc_node", "ip_rcv"]);
}

#[test]
fn stacks_name_every_caller() {
    let found = counts().fold(&names(), 10, 5);
    let udp_rcv = found.stacks.iter().find(|stack| stack.frames.ends_with(";udp_rcv")).unwrap();
    let frames = "softirq;entry_SYSCALL_64;udp_sendmsg;__dev_queue_xmit;handle_softirqs;udp_rcv";
    assert_eq!((udp_rcv.frames.as_str(), udp_rcv.instructions), (frames, 600));
}

#[test]
fn without_packets_no_figure_is_per_packet() {
    let found = counts().fold(&names(), 0, 0);
    assert_eq!(
        (found.sender_user_per_packet, found.receiver_kernel_per_packet, found.total),
        (None, None, 3660)
    );
}

#[test]
fn an_abandoned_or_incomplete_count_is_left_out() {
    let twice = format!("{TEXT}{TEXT}forget\ncount\nblock 0 1 1 0 0\n");
    assert_eq!(read_counts(&twice).unwrap(), [counts()]);
    assert_eq!(read_counts("").unwrap(), []);
}

#[test]
fn a_line_of_an_unknown_format_is_named() {
    for (text, words) in [
        ("count\nnode 3 1 0\n", "line 2 of the counter's file has an unknown format: node 3 1 0"),
        ("block 0 1 1 0 0\n", "line 1 of the counter's file has an unknown format: block 0 1 1 0 0"),
        ("count\nnode 4 1 0 0\n", "line 2 of the counter's file has an unknown format: node 4 1 0 0"),
        ("count\nblock 3 1 1 0 0\n", "line 2 of the counter's file has an unknown format: block 3 1 1 0 0"),
    ] {
        assert_eq!(read_counts(text).unwrap_err().to_string(), words);
    }
    assert_eq!(CountError::Hidden.to_string(), "the guest's table of functions has no addresses");
    let missing = CountNames::of(KALLSYMS, Path::new("/nothing/here")).unwrap_err();
    assert_eq!(missing.to_string(), "cannot read this program's file for the names of its functions");
}
