use wire::{HashFields, RssKey};

use super::*;
use crate::{
    FilterAt,
    buckets::Hashed,
    error::DivertError,
    rules::{Rule, RuleVerdict},
};

fn card(driver: &str, queues: u32) -> Card {
    Card {
        driver: driver.into(),
        queues,
        lro: false,
        strips_tags: false,
        flow_rules: true,
        rules_are_off: false,
        rules: Vec::new(),
        has_table: true,
        hashing: None,
        hands_on: Vec::new(),
        program: None,
        index: 0,
    }
}

fn plan(expression: &str, queues: Vec<u32>) -> DivertPlan {
    DivertPlan {
        selection: Some(expression.parse().unwrap()),
        rules: vec![Rule::new(RuleVerdict::Drop, Expression::all())],
        ..DivertPlan::bare("eth7", queues, FilterAt::Xdp)
    }
}

fn planned(plan: &DivertPlan, card: &Card, steer: Steer) -> Steering {
    Steering::plan(plan, card, steer, PathBuf::new())
}

fn asks(steering: &Steering) -> Vec<String> {
    words(&steering.asks())
}

fn left(steering: &Steering) -> Vec<String> {
    steering.left.iter().map(|Left { packets, why }| format!("{packets}: {why}")).collect()
}

fn words(settings: &[Setting]) -> Vec<String> {
    settings.iter().map(|setting| format!("{}={}", setting.name, setting.value)).collect()
}

#[test]
fn nothing_joins_packets_or_hands_others_to_a_threads_cpu() {
    let of = |name: &str, value: &str| Setting::new(name, value);
    let hands_on =
        vec![of("rps.rx-0", "0-3"), of("rps.rx-1", "2"), of("rps.rx-2", "1"), of("rfs.rx-0", "64")];
    let card = Card { lro: true, strips_tags: true, hands_on, ..card("mlx5_core", 4) };
    let mut plan = DivertPlan { cpus: vec![2], ..plan("udp dst port 53", vec![3]) };
    let cleared = [
        "feature.rx-lro=off",
        "rps.rx-0=0-1,3",
        "rps.rx-1=none",
        "rfs.rx-0=0",
        "feature.rx-vlan-hw-parse=off",
    ];
    assert_eq!(words(&Steering::clearing(&plan.cpus, &card)), cleared);

    let told =
        |plan: &DivertPlan| -> Vec<String> { plan.steps(&card).into_iter().map(|step| step.does).collect() };
    assert!(told(&plan).iter().any(|step| step.contains("rps.rx-0 stays as it is")), "{:#?}", told(&plan));
    assert!(plan.problems(&card).iter().any(|problem| matches!(problem, DivertError::Joins { .. })));

    let steering = planned(&plan, &card, Steer::ToQueues);
    assert!(!steering.may_fail, "with the offload on, nothing would be diverted rightly");
    assert_eq!(asks(&steering)[..cleared.len()], cleared);
    plan.steering = Some(steering);
    assert!(plan.problems(&card).is_empty());
    assert!(!told(&plan).iter().any(|step| step.contains("stays as it is")));
    assert!(told(&plan)[0].contains("feature.rx-lro=off"), "{:#?}", told(&plan));

    plan.cpus.clear();
    let left = [cleared[0], cleared[4]];
    assert_eq!(words(&Steering::clearing(&plan.cpus, &card)), left, "no thread has a CPU");
}

#[test]
fn a_flow_becomes_the_table_without_the_queue_and_a_rule_a_family() {
    let steering = planned(&plan("udp and dst port 53", vec![2]), &card("mlx5_core", 4), Steer::ToQueues);
    assert_eq!(
        asks(&steering),
        [
            "rule.any=udp4 dst-port 53 queue 2",
            "rule.any=udp6 dst-port 53 queue 2",
            "rss.table=weights:1,1,0,1",
        ]
    );
    assert_eq!((left(&steering), steering.queues), (vec![], vec![2]));
    for expression in
        ["tcp and src net 192.0.2.0/24 and dst port 80", "udp and dst portrange 1024-2049", "icmp"]
    {
        for setting in planned(&plan(expression, vec![0]), &card("mlx5_core", 2), Steer::ToQueues).asks() {
            assert!(setting.to_string().parse::<Setting>().is_ok(), "{setting}");
            assert!(setting.name != "rule.any" || parse_rule(&setting.value, None).is_some(), "{setting}");
        }
    }
}

#[test]
fn a_card_without_ipv6_takes_the_rest_and_the_program_picks_on_every_queue() {
    let card = Card { rules_are_off: true, ..card("ixgbe", 4) };
    let plan = plan("udp and dst port 53", vec![2]).steered(&card, Steer::ToQueues, PathBuf::new());
    let steering = plan.steering.as_ref().unwrap();
    assert_eq!(
        asks(steering),
        ["feature.rx-ntuple-filter=on", "rule.any=udp4 dst-port 53 queue 2", "rss.table=weights:1,1,0,1",]
    );
    assert_eq!(left(steering), ["udp6 packets of 'udp and dst port 53': ixgbe takes no rules for IPv6"]);
    assert_eq!(plan.queues, [2, 0, 1, 3], "what stays with the program comes anywhere");
    let steps: Vec<String> = plan.steps(&card).into_iter().map(|step| step.does).collect();
    assert!(steps[0].contains("which ends the card's automatic flow director (ATR) meanwhile"), "{steps:#?}");
    assert!(steps[3].starts_with("the program selects udp6 packets of"), "{steps:#?}");
    assert!(steps[4].contains("the card steers some of them to its queue, the others arrive on any"));
}

#[test]
fn a_card_that_takes_no_rules_leaves_all_to_the_program() {
    let card = card("igb", 4);
    let plan = plan("udp", vec![1]).steered(&card, Steer::ToQueues, PathBuf::new());
    let steering = plan.steering.as_ref().unwrap();
    assert_eq!(asks(steering), [""; 0], "a table without the queue helps nobody");
    assert_eq!(left(steering), ["udp: igb takes rules of Ethernet types and MAC addresses only"]);
    assert_eq!(plan.queues, [1, 0, 2, 3]);
    let steps = plan.steps(&card);
    assert!(!steps.iter().any(|step| step.does.contains("the card steers")), "{steps:#?}");
}

/// As igb hashes: both addresses of UDP, and the ports of TCP, too.
fn hashing() -> Hashing {
    let of = |v6, protocol, fields| Hashed { v6, protocol, fields };
    Hashing {
        table: (0..128).map(|bucket| bucket / 32).collect(),
        key: RssKey::microsoft(),
        fields: vec![
            of(false, 17, HashFields::Addresses),
            of(true, 17, HashFields::Addresses),
            of(false, 6, HashFields::AddressesAndPorts),
        ],
    }
}

#[test]
fn a_card_without_rules_steers_flows_by_the_bucket_of_their_hash() {
    let card = Card { hashing: Some(hashing()), has_table: true, ..card("igb", 4) };
    // The first example of Microsoft's "Verifying the RSS Hash Calculation": its hash of the addresses is 0x323e8fc2.
    let flow = "udp and src host 66.9.149.187 and dst host 161.142.100.80";
    let plan = plan(flow, vec![1]).steered(&card, Steer::ToQueues, PathBuf::new());
    let steering = plan.steering.as_ref().unwrap();
    assert_eq!(left(steering), [""; 0]);
    assert_eq!(plan.queues, [1], "every other queue is the kernel's");
    let number = 0x323e_8fc2 % 128;
    let bucket = Bucket { number, of: 128, queue: 1, packets: flow.into() };
    assert_eq!(steering.buckets, [bucket]);
    let asks = asks(steering);
    let table: Vec<u32> = asks[0]
        .strip_prefix("rss.table=queues:")
        .unwrap()
        .split(',')
        .map(|queue| queue.parse().unwrap())
        .collect();
    let expected = |(at, old): (usize, &u32)| match (at, old) {
        (at, _) if at == number => 1,
        (at, 1) => [0, 2, 3][(at - 32) % 3],
        (_, old) => *old,
    };
    assert_eq!(table, hashing().table.iter().enumerate().map(expected).collect::<Vec<u32>>());
    let steps: Vec<String> = plan.steps(&card).into_iter().map(|step| step.does).collect();
    assert!(
        steps[1].starts_with(&format!(
            "bucket {number} of 128 in that table steers {flow} to queue 1, with every"
        )),
        "{steps:#?}"
    );
    assert!(steps[2].contains("the card's table steers them there, with a few others"), "{steps:#?}");

    // The same flow's ports, where they are hashed, too: 0x51ccc178.
    let tcp = "tcp and src host 66.9.149.187 and dst host 161.142.100.80 and src port 2794 and dst port 1766";
    let steering = planned(&self::plan(tcp, vec![1]), &card, Steer::ToQueues);
    assert_eq!(steering.buckets[0].number, 0x51cc_c178 % 128);
}

#[test]
fn a_flow_whose_hash_is_not_known_stays_with_the_program() {
    let card = Card { hashing: Some(hashing()), has_table: true, ..card("igb", 4) };
    for (flow, why) in [
        ("udp and dst host 161.142.100.80", "both addresses"),
        ("tcp and src host 66.9.149.187 and dst host 161.142.100.80", "both ports"),
        ("icmp and src host 66.9.149.187 and dst host 161.142.100.80", "known of UDP or TCP flows only"),
    ] {
        let steering = planned(&plan(flow, vec![1]), &card, Steer::ToQueues);
        assert_eq!((asks(&steering).len(), steering.left.len()), (0, 1), "{flow}: {steering:#?}");
        assert!(steering.left[0].why.contains(why), "{flow}: {steering:#?}");
    }
}

#[test]
fn a_card_with_one_mask_gets_the_rules_that_fit_it() {
    let some = "udp and (dst port 53 or dst port 123 or src net 192.0.2.0/24)";
    let steering = planned(&plan(some, vec![0]), &card("ixgbe", 2), Steer::ToQueues);
    assert_eq!(
        asks(&steering)[..2],
        ["rule.any=udp4 dst-port 53 queue 0", "rule.any=udp4 dst-port 123 queue 0"]
    );
    assert!(
        left(&steering).contains(&format!(
            "'udp4 src 192.0.2.0/24' of '{some}': ixgbe has one mask for all rules of a port, and 'udp4 dst-port 53' \
             has another"
        )),
        "{:#?}",
        left(&steering)
    );

    let card = Card { rules: vec!["tcp4 src 10.0.0.1 drop".into()], ..card("ixgbe", 2) };
    let steering = planned(&plan("udp and dst port 53 and ip", vec![0]), &card, Steer::ToQueues);
    assert_eq!(steering.rules, []);
    assert_eq!(
        left(&steering),
        [
            "'udp4 dst-port 53' of 'udp and dst port 53 and ip': ixgbe has one mask for all rules of a port, and the card's \
          rule 'tcp4 src 10.0.0.1 drop' has another"
        ]
    );

    let kinds = "ip and (udp dst port 53 or tcp src port 80 or udp src port 9)";
    let steering = planned(&plan(kinds, vec![0]), &self::card("i40e", 2), Steer::ToQueues);
    let rules: Vec<&str> = steering.rules.iter().map(|(rule, _)| rule.as_str()).collect();
    assert_eq!(rules, ["udp4 dst-port 53 queue 0", "tcp4 src-port 80 queue 0"], "a mask for each kind");
}

#[test]
fn ranges_and_networks_are_masks_where_a_card_has_them() {
    assert_eq!(blocks(1024, 2049), [(1024, 2047), (2048, 2049)]);
    assert_eq!(blocks(1, 6), [(1, 1), (2, 3), (4, 5), (6, 6)]);
    assert_eq!(blocks(0, 65535), [(0, 65535)]);
    assert_eq!(blocks(65535, 65535), [(65535, 65535)]);
    let with = |driver: &str, expression: &str| {
        planned(&plan(expression, vec![0]), &card(driver, 4), Steer::ToQueues)
    };
    let steering = with("mlx5_core", "ip and udp and src net 192.0.2.0/23 and dst portrange 1024-2049");
    let rules: Vec<&str> = steering.rules.iter().map(|(rule, _)| rule.as_str()).collect();
    assert_eq!(
        rules,
        [
            "udp4 src 192.0.2.0/23 dst-port 1024-2047 queue 0",
            "udp4 src 192.0.2.0/23 dst-port 2048-2049 queue 0"
        ]
    );
    for (driver, expression, why) in [
        (
            "i40e",
            "udp and src net 192.0.2.0/24",
            "udp4 packets of 'udp and src net 192.0.2.0/24': i40e takes no rules of parts of addresses",
        ),
        (
            "i40e",
            "ip and udp dst portrange 2-3",
            "udp4 packets of 'ip and udp dst portrange 2-3': i40e takes no rules of ranges of ports",
        ),
        (
            "ixgbe",
            "icmp",
            "IPv4 packets of protocol 1 of 'icmp': ixgbe takes no rules of protocols other than TCP, UDP and SCTP",
        ),
        ("mlx5_core", "ip and udp portrange 1-65534", "its ports need more than 8 rules with a mask each"),
        ("mlx5_core", "udp[8] = 1", "says more than addresses, protocols and ports"),
        ("mlx5_core", "all", "says more than addresses, protocols and ports, or less"),
        ("ena", "udp", "ena takes no flow rules"),
    ] {
        let found = left(&with(driver, expression));
        assert!(found[0].contains(why), "{expression}: {found:#?}");
    }
}

#[test]
fn several_queues_get_a_context_or_the_rules_in_turn() {
    let flows = plan("ip and udp and (dst port 53 or dst port 54)", vec![2, 3]);
    let steering = planned(&flows, &card("mlx5_core", 4), Steer::ToQueues);
    assert_eq!(
        asks(&steering),
        [
            "context.new=weights:0,0,1,1",
            "rule.any=udp4 dst-port 53 to that context",
            "rule.any=udp4 dst-port 54 to that context",
            "rss.table=weights:1,1,0,0",
        ]
    );
    let steering = planned(&flows, &card("ixgbe", 4), Steer::ToQueues);
    assert_eq!(
        asks(&steering),
        [
            "rule.any=udp4 dst-port 53 queue 2",
            "rule.any=udp4 dst-port 54 queue 3",
            "rss.table=weights:1,1,0,0",
        ]
    );
    for (queues, of, why) in
        [(vec![0, 1], 2, "every queue is diverted"), (vec![0], 1, "has one receive queue")]
    {
        let steering = planned(&plan("udp", queues), &card("mlx5_core", of), Steer::ToQueues);
        assert!(left(&steering)[0].contains(why), "{:?}", steering.left);
    }
}

#[test]
fn a_card_drops_what_is_only_dropped_and_nobody_is_locked_out() {
    let mut plan = plan("all", vec![0, 1]);
    plan.selection = None;
    plan.rules =
        ["drop udp and dst port 9", "drop tcp and dst port 22", "pass icmp", "drop udp and dst port 10"]
            .map(|rule| rule.parse().unwrap())
            .to_vec();
    plan.exclusions.sessions = vec!["192.0.2.9 4242 192.0.2.1 22".parse().unwrap()];
    let card = card("mlx5_core", 2);
    let steering = planned(&plan, &card, Steer::Drop);
    assert_eq!(
        asks(&steering),
        ["rule.any=udp4 dst-port 9 drop", "rule.any=udp6 dst-port 9 drop", "rule.any=tcp6 dst-port 22 drop"]
    );
    assert_eq!(
        left(&steering),
        [
            "pass icmp: a card drops, and does nothing else",
            "drop udp and dst port 10: a rule before it does not drop",
            "tcp and dst port 22: the session 192.0.2.9:4242 to port 22 is among them, which is never diverted",
        ]
    );
    plan.exclusions.networks = vec!["198.51.100.0/24".parse().unwrap()];
    let steering = planned(&plan, &card, Steer::Drop);
    assert_eq!(asks(&steering), ["rule.any=udp6 dst-port 9 drop", "rule.any=tcp6 dst-port 22 drop"]);
    plan.rules = vec!["drop udp and src net 203.0.113.0/24 and dst host 203.0.113.1".parse().unwrap()];
    assert_eq!(
        asks(&planned(&plan, &card, Steer::Drop)),
        ["rule.any=udp4 src 203.0.113.0/24 dst 203.0.113.1 drop"],
        "no packet of the management network's"
    );
}
