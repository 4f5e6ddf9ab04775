use super::*;
use crate::{Counters, Driver, Link, QueueCounts, Reading, Setting, Settings, Table};

fn page(settings: &[(&str, &str)], table: &[u32]) -> Page {
    let settings: Settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Page {
        interface: "eth0".into(),
        index: 2,
        mac: None,
        driver: Driver { name: "igb".into(), ..Driver::default() },
        pcie: None,
        numa_node: None,
        link: Link { rx_queues: 8, ..Link::default() },
        limits: vec![("channels.combined".into(), 8), ("ring.rx".into(), 4096)],
        settings: Reading { settings, ..Reading::default() },
        table: (!table.is_empty()).then(|| Table::of(table)),
        queues: Vec::new(),
        interrupts: Vec::new(),
        counts: QueueCounts::default(),
        xdp_programs: Vec::new(),
        counters: Counters::new(),
    }
}

fn igb() -> Page {
    page(
        &[
            ("channels.combined", "4"),
            ("ring.rx", "256"),
            ("coalesce.rx-usecs", "3"),
            ("rss.fields.udp4", "sd"),
            ("rss.fields.udp6", "sdfn"),
            ("pause.tx", "off"),
        ],
        &[0, 1, 2, 3],
    )
}

fn four_cpus() -> Surroundings {
    Surroundings { cpus: (0..4).map(|cpu| (cpu, None)).collect(), ..Surroundings::default() }
}

fn titles(page: &Page, around: &Surroundings, goal: Goal) -> Vec<String> {
    advise(page, around, goal).into_iter().map(|finding| finding.title).collect()
}

#[test]
fn an_igb_as_it_comes_hashes_addresses_only() {
    let findings = advise(&igb(), &four_cpus(), Goal::Pps);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].title, "UDP between two hosts is one flow");
    assert_eq!(findings[0].change, [Setting::new("rss.fields.udp4", "sdfn")]);
}

#[test]
fn what_an_igb_calls_3_us_is_said_to_be_a_mode() {
    let evidence = |usecs: &str| {
        let findings = advise(&page(&[("coalesce.rx-usecs", usecs)], &[]), &four_cpus(), Goal::Latency);
        findings
            .into_iter()
            .find(|finding| finding.title == "a single packet waits for others")
            .unwrap()
            .evidence
    };
    let mode = "coalesce.rx-usecs is 3 (an adaptive mode of this driver, not a time), adaptive-rx off";
    assert_eq!(evidence("3"), mode);
    assert_eq!(evidence("50"), "coalesce.rx-usecs is 50, adaptive-rx off");
}

#[test]
fn what_moves_comes_first() {
    let around = Surroundings { moved: Counters::from([("rx_missed_errors".into(), 7)]), ..four_cpus() };
    let findings = advise(&igb(), &around, Goal::Pps);
    assert_eq!(findings[0].title, "the card finds no free descriptor");
    assert_eq!(findings[0].evidence, "rx_missed_errors grew by 7; ring.rx is 256 of 4096");
    assert_eq!(findings[0].change, [Setting::new("ring.rx", 4096)]);
}

#[test]
fn queues_that_the_table_leaves_out_and_uneven_ones_are_told() {
    let mut page = igb();
    page.table = Some(Table::of(&[0, 0, 1, 1]));
    let around = Surroundings { queue_packets: vec![9000, 1000, 0, 0], ..four_cpus() };
    let titles = titles(&page, &around, Goal::Pps);
    assert!(titles.contains(&"2 of 4 receive queues get no packets".to_owned()), "{titles:?}");
    assert!(titles.contains(&"the busiest queue takes 3.6 times an even share".to_owned()), "{titles:?}");
}

#[test]
fn each_goal_wants_another_moderation() {
    let mut page = igb();
    assert!(
        titles(&page, &four_cpus(), Goal::Latency).contains(&"a single packet waits for others".to_owned())
    );
    page.settings.settings.insert("coalesce.rx-usecs".into(), "0".into());
    assert!(titles(&page, &four_cpus(), Goal::Pps).contains(&"every packet interrupts".to_owned()));
    assert!(titles(&page, &four_cpus(), Goal::Latency).is_empty());
}

#[test]
fn an_interface_that_tells_nothing_gets_no_advice_and_no_panic() {
    let mut empty = page(&[], &[]);
    empty.limits.clear();
    for goal in [Goal::Pps, Goal::Latency] {
        assert_eq!(titles(&empty, &Surroundings::default(), goal), [""; 0]);
    }
    assert_eq!(
        titles(&empty, &Surroundings::default(), Goal::Bypass),
        ["no rule can steer a flow to one queue"]
    );
}

#[test]
fn cpus_that_change_speed_or_sleep_deeply_are_named() {
    use sys::cpu_control::{CpuControl, IdleState};
    let deep = IdleState { name: "C6".into(), exit_latency_us: 133, is_disabled: false };
    let control = CpuControl {
        governors: vec!["powersave".into()],
        turbo: Some(true),
        smt: Some(true),
        idle_states: vec![IdleState::default(), deep],
        ..CpuControl::default()
    };
    let quiet = page(&[], &[]);
    let found = |control: CpuControl| {
        let around = Surroundings { control: Some(control), ..Surroundings::default() };
        titles(&quiet, &around, Goal::Pps)
    };
    assert_eq!(
        found(control.clone()),
        [
            "the governor powersave changes the CPUs' frequency",
            "idle CPUs take 133 µs or more to wake up",
            "two CPUs share each core (SMT)",
            "turbo frequencies depend on temperature and on how many cores are busy",
        ]
    );
    // As --hold-cpu leaves them.
    let held = CpuControl {
        governors: vec!["performance".into()],
        wake_up_limit_us: Some(0),
        turbo: Some(false),
        smt: Some(false),
        ..control
    };
    assert_eq!(found(held), [""; 0]);
}

#[test]
fn fewer_queues_than_cpus_fail_redirects_only_with_a_program_and_where_the_driver_does_so() {
    let title = "XDP redirects to this card fail on CPUs without a queue";
    let card = |driver: &str, queues: &str, programs: Vec<u32>| Page {
        driver: Driver { name: driver.into(), ..Driver::default() },
        xdp_programs: programs,
        ..page(&[("channels.combined", queues)], &[])
    };
    let found = |page: &Page| {
        let findings = advise(page, &four_cpus(), Goal::Bypass);
        findings.into_iter().find(|finding| finding.title == title).map(|finding| finding.change)
    };
    assert_eq!(found(&card("mlx5_core", "2", vec![7])), Some(vec![Setting::new("channels.combined", "4")]));
    assert_eq!(found(&card("mlx5_core", "4", vec![7])), None);
    assert_eq!(found(&card("mlx5_core", "2", Vec::new())), None);
    assert_eq!(found(&card("igb", "2", vec![7])), None);
    let few = Page { limits: vec![("channels.combined".into(), 2)], ..card("i40e", "2", vec![7]) };
    assert_eq!(found(&few), Some(Vec::new()), "the card has no more queues");
}
