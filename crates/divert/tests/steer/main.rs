//! Steering on fake cards, which answer byte by byte as their drivers do; and the same on a real one:
//! `make test-steer IF=eth1` sets that card as a diversion would, reads it back, and undoes it.

use std::{env, path::Path, sync::Arc};

use divert::{Card, DivertPlan, Expression, FilterAt, Hashed, Hashing, Rule, RuleVerdict, Steer, Steered};
use nic::{Session, Settings};
use sys::{ethtool::EthtoolSocket, netns::NetNs};
use testing::{FakeCard, FakeDriver};
use wire::{HashFields, RssKey};

/// A card under test: one in memory, or the interface of this name.
#[derive(Clone)]
enum Bed {
    Fake(Arc<FakeCard>),
    Real(String),
}

impl Bed {
    fn interface(&self) -> &str {
        match self {
            // Other requests go to loopback, which has no queues or interrupts.
            Self::Fake(_) => "lo",
            Self::Real(name) => name,
        }
    }

    fn nic(&self) -> nic::Card {
        match self {
            Self::Fake(card) => nic::Card::over("lo", card.socket()).unwrap(),
            Self::Real(name) => nic::Card::open(name).unwrap(),
        }
    }

    fn card(&self) -> Card {
        let ethtool = match self {
            Self::Fake(card) => card.socket(),
            Self::Real(_) => EthtoolSocket::open().unwrap(),
        };
        let mut read = Card::over(self.interface(), Some(ethtool), Some(self.nic())).unwrap();
        if let Self::Fake(card) = self {
            read.queues = card.queues();
        }
        read
    }

    fn settings(&self) -> Settings {
        nic::read_settings(&mut self.nic()).unwrap().settings
    }

    fn rules(&self) -> Vec<String> {
        let settings = self.settings();
        let rules = settings.iter().filter(|(name, _)| name.starts_with("rule."));
        rules.map(|(name, value)| format!("{name}={value}")).collect()
    }

    fn plan(&self, rules: &[&str], queues: &[u32], steer: Steer, state: &Path) -> DivertPlan {
        let plan = DivertPlan {
            rules: rules
                .iter()
                .map(|text| Rule::new(RuleVerdict::Drop, text.parse::<Expression>().unwrap()))
                .collect(),
            ..DivertPlan::bare(self.interface(), queues.iter().copied(), FilterAt::Xdp)
        };
        plan.steered(&self.card(), steer, state.to_owned())
    }

    fn apply(&self, plan: &DivertPlan, state: &Path) -> Steered {
        let session = Session::with(self.nic(), state).unwrap();
        plan.steering.as_ref().unwrap().apply_in(session).unwrap()
    }
}

/// Runs a test on each kind of card, in a namespace of its own: a card's lock belongs to one.
fn on_each(test: impl Fn(FakeDriver, &Arc<FakeCard>, &Bed) + Sync) {
    for driver in FakeDriver::ALL {
        let Ok(namespace) = NetNs::create() else { return testing::skip("a namespace needs CAP_SYS_ADMIN") };
        let card = FakeCard::new(driver);
        namespace.run(|| test(driver, &card, &Bed::Fake(card.clone()))).unwrap();
    }
}

/// What holds for any card: every request is steered or left with a reason, the card has what is said to be
/// steered, and everything is undone.
fn keeps_its_word(bed: &Bed, rules: &[&str], queues: &[u32], steer: Steer) -> Vec<String> {
    let state = tempfile::tempdir().unwrap();
    let before = bed.settings();
    let plan = bed.plan(rules, queues, steer, state.path());
    let asked = plan.steering.as_ref().unwrap().clone();
    let mut steered = bed.apply(&plan, state.path());
    let refused = steered.left.len() - asked.left.len();
    assert_eq!(asked.rules.len(), steered.rules.len() + refused, "{steered:#?}");
    let there = bed.rules();
    for rule in &steered.rules {
        assert!(there.contains(rule), "{rule} is said to be there, and there are {there:?}");
    }
    assert!(steered.left.iter().all(|left| !left.why.is_empty() && !left.packets.is_empty()));
    if steered.rules.is_empty() {
        assert_eq!(bed.settings(), before, "what steers nothing changes nothing");
    } else if let Some(table) = bed.settings().get("rss.table").filter(|_| steer == Steer::ToQueues) {
        assert_ne!(Some(table), before.get("rss.table"), "others go elsewhere");
    }
    // A program or a zero-copy socket resets the card.
    let steered_settings = bed.settings();
    if let Bed::Fake(card) = bed {
        card.reset();
        steered.repair().unwrap();
        assert_eq!(bed.settings(), steered_settings, "repaired");
    }
    assert_eq!(steered.repair().unwrap(), nic::Repaired::default(), "nothing to repair");
    let found = steered.rules.clone();
    drop(steered);
    assert_eq!(bed.settings(), before, "undone");
    assert_eq!(std::fs::read_dir(state.path().join("nic")).map_or(0, Iterator::count), 0, "no journal");
    found
}

const DNS: &str = "udp and dst port 53";

#[test]
fn each_card_takes_what_its_driver_takes() {
    on_each(|driver, card, bed| {
        let found = keeps_its_word(bed, &[DNS], &[2], Steer::ToQueues);
        let (expected, log): (&[&str], &[&str]) = match driver {
            FakeDriver::Ixgbe => (
                &["rule.2045=udp4 dst-port 53 queue 2"],
                &[
                    "ntuple on",
                    "insert rule",
                    "set table", // and repaired
                    "set table",
                    "insert rule", // and undone
                    "delete rule",
                    "set table",
                    "ntuple off",
                ],
            ),
            FakeDriver::I40e => (
                &["rule.511=udp4 dst-port 53 queue 2", "rule.510=udp6 dst-port 53 queue 2"],
                &[
                    "insert rule",
                    "insert rule",
                    "set table",
                    "set table",
                    "insert rule",
                    "insert rule",
                    "delete rule",
                    "delete rule",
                    "set table",
                ],
            ),
            FakeDriver::Mlx5 => (
                &["rule.1023=udp4 dst-port 53 queue 2", "rule.1022=udp6 dst-port 53 queue 2"],
                &[
                    "insert rule",
                    "insert rule",
                    "set table",
                    "set table",
                    "insert rule",
                    "insert rule",
                    "delete rule",
                    "delete rule",
                    "set table",
                ],
            ),
            FakeDriver::Ena | FakeDriver::Igb => (&[], &[]),
        };
        let mut found: Vec<&str> = found.iter().map(String::as_str).collect();
        found.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{driver:?}");
        let mut did = card.take_log();
        let mut log = log.to_vec();
        assert_eq!(did.first(), log.first(), "{driver:?}: rules are switched on first");
        assert_eq!(
            did.last().filter(|last| **last == "ntuple off"),
            log.last().filter(|last| **last == "ntuple off")
        );
        did.sort_unstable();
        log.sort_unstable();
        assert_eq!(did, log, "{driver:?}");
    });
}

#[test]
fn masks_kinds_and_queues_of_every_sort_keep_their_word() {
    on_each(|_, _, bed| {
        for (rules, queues, steer) in [
            (&["udp and src net 192.0.2.0/24"][..], &[1][..], Steer::ToQueues),
            (&["tcp and dst portrange 1024-2049", "udp and dst port 9"], &[1], Steer::ToQueues),
            (&["ip and src host 192.0.2.1", "ip and udp dst port 9"], &[0], Steer::ToQueues),
            (&["icmp", "sctp dst port 9"], &[7], Steer::ToQueues),
            (&[DNS, "udp src port 53", "tcp dst port 80"], &[4, 5, 6, 7], Steer::ToQueues),
            (&["udp[8] = 1"], &[3], Steer::ToQueues),
            (&[DNS, "ip and udp src port 19"], &[0], Steer::Drop),
        ] {
            keeps_its_word(bed, rules, queues, steer);
        }
    });
}

#[test]
fn a_rule_that_a_card_has_no_room_for_stays_with_the_program() {
    on_each(|driver, card, bed| {
        let state = tempfile::tempdir().unwrap();
        let before = bed.settings();
        card.fill(true);
        let plan = bed.plan(&[DNS], &[2], Steer::ToQueues, state.path());
        let steered = bed.apply(&plan, state.path());
        assert_eq!(steered.rules, [""; 0]);
        if driver == FakeDriver::Mlx5 {
            let left: Vec<String> =
                steered.left.iter().map(|left| format!("{}: {}", left.packets, left.why)).collect();
            assert!(
                left[0].starts_with("'udp4 dst-port 53' of 'udp and dst port 53': the card refused: "),
                "{left:?}"
            );
            assert!(left[0].contains("No space left on device"), "{left:?}");
        }
        assert_eq!(bed.settings(), before, "{driver:?}: neither the table nor the switch stays changed");
    });
}

#[test]
fn several_queues_have_a_context_where_the_card_has_them() {
    on_each(|driver, card, bed| {
        let found = keeps_its_word(bed, &["ip and udp dst port 53"], &[4, 5, 6, 7], Steer::ToQueues);
        let expected = match driver {
            FakeDriver::Mlx5 => "rule.1023=udp4 dst-port 53 context 1",
            FakeDriver::Ixgbe => "rule.2045=udp4 dst-port 53 queue 4",
            FakeDriver::I40e => "rule.511=udp4 dst-port 53 queue 4",
            FakeDriver::Ena | FakeDriver::Igb => return assert_eq!(found, [""; 0]),
        };
        assert_eq!(found, [expected]);
        assert!(card.table().iter().all(|queue| *queue < 8) && card.places().is_empty());
    });
}

#[test]
fn a_users_rule_and_table_outlive_a_diversion_and_a_reset() {
    on_each(|driver, _, bed| {
        if matches!(driver, FakeDriver::Ena | FakeDriver::Igb) {
            return;
        }
        let state = tempfile::tempdir().unwrap();
        let mut session = Session::with(bed.nic(), state.path()).unwrap();
        let settings = ["feature.rx-ntuple-filter=on", "rule.3=udp4 dst-port 7 queue 1", "rss.table=equal:4"];
        session.apply(&settings.map(|text| text.parse().unwrap())).unwrap();
        session.keep().unwrap();
        let before = bed.settings();
        let plan = bed.plan(&[DNS], &[2], Steer::ToQueues, state.path());
        let mut steered = bed.apply(&plan, state.path());
        assert!(steered.rules.len() > usize::from(driver != FakeDriver::Ixgbe), "{steered:?}");
        let steady = bed.settings();
        if let Bed::Fake(card) = bed {
            card.reset();
        }
        steered.repair().unwrap();
        assert_eq!(bed.settings(), steady);
        if let Bed::Fake(card) = bed {
            card.reset();
        }
        drop(steered);
        assert_eq!(bed.settings(), before, "{driver:?}");
    });
}

#[test]
fn a_card_with_one_mask_refuses_another_and_says_so() {
    let Ok(namespace) = NetNs::create() else { return testing::skip("a namespace needs CAP_SYS_ADMIN") };
    let bed = Bed::Fake(FakeCard::new(FakeDriver::Ixgbe));
    namespace
        .run(|| {
            let mut session = Session::with(bed.nic(), Path::new("/nowhere/that/is")).unwrap();
            assert!(session.diff(&["rule.3=udp6 queue 1".parse().unwrap()]).is_ok());
            drop(session);
            let state = tempfile::tempdir().unwrap();
            let mut session = Session::with(bed.nic(), state.path()).unwrap();
            let on = ["feature.rx-ntuple-filter=on", "rule.3=udp4 src 10.0.0.1 queue 1"];
            session.apply(&on.map(|text| text.parse().unwrap())).unwrap();
            let error = session.apply(&["rule.4=udp4 dst-port 9 queue 1".parse().unwrap()]).unwrap_err();
            assert!(error.to_string().contains("cannot set rule.4"), "{error}");
            session.keep().unwrap();
            let plan = bed.plan(&["ip and udp dst port 9"], &[2], Steer::ToQueues, state.path());
            let left = &plan.steering.as_ref().unwrap().left;
            assert!(
                left[0].why.ends_with("the card's rule 'udp4 src 10.0.0.1 queue 1' has another"),
                "{left:?}"
            );
            assert_eq!(plan.queues, [2, 0, 1, 3, 4, 5, 6, 7]);
        })
        .unwrap();
}

/// The card of `make test-steer`; its packets are steered during the test.
#[test]
fn a_real_card_keeps_its_word() {
    let Ok(name) = env::var("LINERATE_STEER_IF") else { return };
    let bed = Bed::Real(name);
    let card = bed.card();
    println!("{} ({}), {} queues, rules: {}", bed.interface(), card.driver, card.queues, card.flow_rules);
    let last = card.queues - 1;
    // The discard port, which no service uses.
    let discard = "udp and dst port 9";
    for (rules, queues, steer) in [
        (&[discard][..], vec![last], Steer::ToQueues),
        (&["udp and src net 192.0.2.0/24 and dst port 9"], vec![last], Steer::ToQueues),
        (&["udp and dst portrange 8-9"], vec![last], Steer::ToQueues),
        (&[discard, "udp src port 9"], (card.queues / 2..card.queues).collect(), Steer::ToQueues),
        (&[discard], vec![last], Steer::Drop),
    ] {
        let found = keeps_its_word(&bed, rules, &queues, steer);
        println!("{steer:?} of {rules:?} on {queues:?}: {found:?}");
    }
}

#[test]
fn a_card_without_rules_gets_a_table_that_is_repaired_and_undone() {
    on_each(|driver, card, bed| {
        if driver != FakeDriver::Igb {
            return;
        }
        let state = tempfile::tempdir().unwrap();
        let before = bed.settings();
        let fields = Hashed { v6: false, protocol: 17, fields: HashFields::Addresses };
        let hashing = Hashing { table: card.table(), key: RssKey::microsoft(), fields: vec![fields] };
        let flow = "udp and src host 66.9.149.187 and dst host 161.142.100.80";
        let plan = DivertPlan {
            rules: vec![Rule::new(RuleVerdict::Drop, flow.parse::<Expression>().unwrap())],
            ..DivertPlan::bare(bed.interface(), [2], FilterAt::Xdp)
        };
        let mut told = bed.card();
        told.hashing = Some(hashing);
        let plan = plan.steered(&told, Steer::ToQueues, state.path().to_owned());
        let mut steered = bed.apply(&plan, state.path());
        let number = 0x323e_8fc2 % card.table().len();
        assert_eq!(
            steered.rules,
            [format!("rss.table bucket {number} of {} to queue 2", card.table().len())]
        );
        let only_it = || {
            let table = card.table();
            let leading: Vec<usize> = (0..table.len()).filter(|at| table[*at] == 2).collect();
            assert_eq!(leading, [number]);
        };
        only_it();
        card.reset();
        steered.repair().unwrap();
        only_it();
        drop(steered);
        assert_eq!(bed.settings(), before, "undone");
    });
}
