use proptest::prelude::*;

use super::*;

#[test]
fn stat_tells_the_times_of_all_and_of_each_cpu() {
    let text = "cpu  100 2 30 4000 5 6 70 8 9 10\n\
                cpu0 50 1 15 2000 2 3 35 4 5 6\n\
                cpu3 50 1 15\n\
                intr 357942 0 0\nctxt 12\nbtime 1\n";
    let stat = parse_stat(text).unwrap();
    assert_eq!((stat.all.user, stat.all.softirq, stat.all.steal, stat.all.guest_nice), (100, 70, 8, 10));
    assert_eq!(stat.cpus[0].0, 0);
    assert_eq!(stat.cpus[1], (3, CpuTimes { user: 50, nice: 1, system: 15, ..CpuTimes::default() }));
}

#[test]
fn snmp_pairs_names_with_values_and_prefixes_the_protocol() {
    let text = "Tcp: RtoMin MaxConn\nTcp: 200 -1\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 148 0 97\n";
    let counters = parse_snmp(text).unwrap();
    assert_eq!(counters.value("UdpRcvbufErrors"), Some(97));
    assert_eq!(counters.value("TcpRtoMin"), Some(200));
    assert_eq!(counters.value("TcpMaxConn"), None, "no limit is not a number of connections");
    assert_eq!(counters.iter().count(), 4);
}

#[test]
fn snmp_without_values_or_with_other_values_is_refused_by_line() {
    let error = |text| parse_snmp(text).unwrap_err().to_string();
    assert_eq!(error("Udp: InDatagrams\n"), "line 1 is not followed by values");
    assert_eq!(error("Udp: InDatagrams\nTcp: 1\n"), "line 2 is not the values of the protocol above");
    assert_eq!(error("Udp: InDatagrams\nUdp: many\n"), "line 2 is not a list of numbers");
}

#[test]
fn snmp6_is_a_name_and_a_value_on_each_line() {
    let counters = parse_snmp6("Ip6InReceives                   \t1\nUdp6InDatagrams \t25\n").unwrap();
    assert_eq!(counters.value("Udp6InDatagrams"), Some(25));
    assert_eq!(parse_snmp6("Ip6InReceives\n").unwrap_err().line, 1);
}

#[test]
fn softnet_is_hexadecimal_and_older_kernels_have_fewer_columns() {
    let new = "000001c9 0000000a 00000002 0 0 0 0 0 0 00000003 00000004 00000005 00000001 0 0\n";
    assert_eq!(
        parse_softnet_stat(new).unwrap(),
        [SoftnetStat {
            cpu: 1,
            processed: 457,
            dropped: 10,
            time_squeeze: 2,
            received_rps: 3,
            flow_limit: 4,
            backlog: 5
        }]
    );
    let old = parse_softnet_stat("1 2 3\n4 5 6\n").unwrap();
    assert_eq!((old[0].cpu, old[1].cpu, old[1].time_squeeze), (0, 1, 6));
    assert_eq!(parse_softnet_stat("1 2\n").unwrap_err().to_string(), "line 1 is not at least three numbers");
}

#[test]
fn interrupts_tell_the_driver_s_name_and_the_count_of_each_cpu() {
    let text = "           CPU0       CPU2       \n\
                41:       5002          7 PCI-MSIX-0000:00:04.0   1-edge      eth0-rx-0\n\
               LOC:    2540523    1933315   Local timer interrupts\n\
               ERR:          0\n";
    let [queue, timer] = &parse_interrupts(text).unwrap()[..] else {
        panic!("two sources, and a count of errors")
    };
    assert_eq!((queue.irq.as_str(), queue.name.as_str()), ("41", "eth0-rx-0"));
    assert_eq!(queue.by_cpu, [(0, 5002), (2, 7)]);
    assert_eq!((timer.irq.as_str(), timer.name.as_str()), ("LOC", "Local timer interrupts"));
    assert_eq!(
        parse_interrupts("CPU0\nnonsense\n").unwrap_err().to_string(),
        "line 2 is not a source and its counts"
    );
    assert_eq!(parse_interrupts("CPUx\n").unwrap_err().line, 1);
}

#[test]
fn softirqs_are_rounds_of_the_receiving_softirq() {
    let text = "                    CPU0       CPU1       \n      NET_TX:      45396      13039\n      NET_RX:  318 18\n";
    assert_eq!(parse_softirqs(text).unwrap().net_rx, [(0, 318), (1, 18)]);
    assert_eq!(
        parse_softirqs("CPU0\nNET_RX: many\n").unwrap_err().to_string(),
        "line 2 is not a list of counts"
    );
}

#[test]
fn this_machine_is_readable_and_counts_on() {
    let before = stat().unwrap();
    assert!(!before.cpus.is_empty());
    assert_eq!(softnet_stat().unwrap().len(), before.cpus.len());
    assert!(!interrupts().unwrap().is_empty());
    assert!(softirqs().unwrap().net_rx.len() >= before.cpus.len());
    let counters = net_counters().unwrap();
    assert!(counters.value("UdpInDatagrams").is_some() && counters.value("IpExtInOctets").is_some());
}

/// Text made of words from these files, so that parsers get past the first line.
fn plausible() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("cpu"),
        Just("cpu0"),
        Just("cpu99999999999"),
        Just("Udp:"),
        Just("CPU0"),
        Just("NET_RX:"),
        Just("Udp6InErrors"),
        Just(":"),
        Just("0"),
        Just("-1"),
        Just("18446744073709551616"),
        Just("ffffffff"),
        Just("100000000"),
        Just("é"),
    ];
    let separator = prop_oneof![Just(" "), Just("\n"), Just("\t"), Just("")];
    prop::collection::vec((word, separator), 0..60)
        .prop_map(|parts| parts.into_iter().flat_map(|(word, separator)| [word, separator]).collect())
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in prop_oneof![any::<String>(), plausible()]) {
        let _ = (parse_interrupts(&text), parse_softirqs(&text));
        let _ = (parse_stat(&text), parse_snmp(&text), parse_snmp6(&text), parse_softnet_stat(&text));
    }

    #[test]
    fn what_snmp6_shows_is_read_back(values in prop::collection::btree_map("[A-Z][a-zA-Z0-9]{0,20}", any::<u64>(), 0..20)) {
        let text: String = values.iter().map(|(name, value)| format!("{name:<32}\t{value}\n")).collect();
        let read = parse_snmp6(&text).unwrap();
        prop_assert!(read.iter().eq(values.iter().map(|(name, value)| (name.as_str(), *value))));
    }

    #[test]
    fn what_snmp_shows_is_read_back(values in prop::collection::btree_map("[A-Z][a-z]{0,20}", any::<u64>(), 1..20)) {
        let names: Vec<_> = values.keys().cloned().collect();
        let numbers: Vec<_> = values.values().map(u64::to_string).collect();
        let text = format!("Udp: {}\nUdp: {}\n", names.join(" "), numbers.join(" "));
        let read = parse_snmp(&text).unwrap();
        for (name, value) in &values {
            prop_assert_eq!(read.value(&format!("Udp{name}")), Some(*value));
        }
    }
}
