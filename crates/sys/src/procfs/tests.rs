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
fn an_address_lies_in_the_function_that_begins_before_it() {
    let text =
        "0000000000000000 t hidden\nffff0020 T late\nffff0010 t early\t[module]\nffff0018 d data\nodd\n";
    let functions = parse_kallsyms(text);
    assert_eq!(functions.at(0xffff_000f), None);
    assert_eq!(functions.at(0xffff_0010), Some("early"));
    assert_eq!(functions.at(0xffff_001f), Some("early"), "data is no function");
    assert_eq!(functions.at(u64::MAX), Some("late"));
}

#[test]
fn this_machine_is_readable_and_counts_on() {
    let before = stat().unwrap();
    assert!(!before.cpus.is_empty());
    assert_eq!(softnet_stat().unwrap().len(), before.cpus.len());
    let counters = net_counters().unwrap();
    assert!(counters.value("UdpInDatagrams").is_some() && counters.value("IpExtInOctets").is_some());
}

/// Text made of the words that these files are made of, so that parsers get past the first line.
fn plausible() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("cpu"),
        Just("cpu0"),
        Just("cpu99999999999"),
        Just("Udp:"),
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
        let _ = (parse_stat(&text), parse_snmp(&text), parse_snmp6(&text), parse_softnet_stat(&text), parse_kallsyms(&text));
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
