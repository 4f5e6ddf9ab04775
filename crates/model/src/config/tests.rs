use super::*;
use crate::stages::{buffers::BufferPolicy, bus::BusKind};

fn problems(config: &Config) -> Vec<&'static str> {
    match config.validate() {
        Err(ConfigError::Invalid(problems)) => problems.iter().map(|p| p.parameter).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn every_field_of_the_configuration_is_a_documented_parameter_and_the_other_way_round() {
    let json = serde_json::to_value(Config::default()).unwrap();
    let mut fields: Vec<String> = json
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(section, values)| {
            values.as_object().unwrap().keys().map(move |f| format!("{section}.{f}"))
        })
        .collect();
    let mut documented: Vec<String> = parameters().map(|p| p.name.to_string()).collect();
    fields.sort();
    documented.sort();
    assert_eq!(fields, documented);
}

#[test]
fn short_names_are_unique() {
    let mut names: Vec<_> = parameters().flat_map(|p| [p.name, p.short]).filter(|n| !n.is_empty()).collect();
    names.sort_unstable();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
}

#[test]
fn the_default_is_valid_and_survives_json() {
    let config = Config::default();
    config.validate().unwrap();
    let json = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
}

#[test]
fn all_problems_are_told_at_once() {
    let mut config = Config::default();
    config.ring.descriptors = 0;
    config.packet_buffer.bytes = 10;
    config.traffic.ports = 0;
    config.socket.bytes = 1;
    let found = problems(&config);
    for expected in ["ring.descriptors", "packet_buffer.bytes", "traffic.ports", "socket.bytes"] {
        assert!(found.contains(&expected), "{expected} is not in {found:?}");
    }
}

#[test]
fn contradictions_are_refused_with_what_and_why() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    };
    assert_eq!(
        refused(&|c| {
            c.ring.tail_batch = 512;
            c.poll.refill_after = 0;
        }),
        "cannot simulate this configuration:\n  ring.tail_batch: a batch of 512 needs a larger ring than 512: \
         the card would own no descriptor"
    );
    assert_eq!(
        refused(&|c| c.packet_buffer.bytes = 63),
        "cannot simulate this configuration:\n  packet_buffer.bytes: 63 bytes cannot hold one frame of 64 bytes"
    );
    assert!(refused(&|c| c.ring.descriptors = 24).contains("needs a ring of at least 32, not 24"));
    assert!(refused(&|c| c.run.warmup_us = 1e6).contains("leaves no time"));
    assert!(refused(&|c| c.buffers.policy = BufferPolicy::FillRing).contains("af-xdp"));
    assert!(refused(&|c| c.rss.bypass_ratio = 0.5).contains("no rss.bypass_queue"));
    assert!(refused(&|c| c.app.recv_ns = f64::NAN).contains("app.recv_ns: NaN ns"));
    assert!(
        refused(&|c| c.set("table", "equal:2").unwrap()).contains("it names queue 1 of 1, counted from 0")
    );
    assert!(refused(&|c| c.set("mix", "10:1").unwrap()).contains("64 to 65553"));
    assert!(refused(&|c| c.set("mix", "64-1518").unwrap()).contains("sizes with their weights"));
}

#[test]
fn parameters_are_set_by_dotted_and_by_short_name() {
    let mut config = Config::default();
    config.set("ring", "64").unwrap();
    config.set("policy", "alloc").unwrap();
    config.set("bus.kind", "pci-x").unwrap();
    config.set("rate", "1000").unwrap();
    config.set("rx_usecs", "3").unwrap();
    config.set("reuseport", "true").unwrap();
    assert_eq!((config.ring.descriptors, config.buffers.policy), (64, BufferPolicy::Realloc));
    assert_eq!((config.bus.kind, config.traffic.offered_pps), (BusKind::PciX, Some(1000.0)));
    assert_eq!((config.moderation.rx_usecs, config.socket.reuseport), (3.0, true));
    config.set("rate", "null").unwrap();
    assert_eq!(config.traffic.offered_pps, None);
}

#[test]
fn rates_and_times_may_have_units() {
    let mut config = Config::default();
    config.set("rate", "100kpps").unwrap();
    config.set("rx_usecs", "1ms").unwrap();
    config.set("traffic.link_bps", "2.5Gbps").unwrap();
    config.set("app.recv_ns", "2us").unwrap();
    assert_eq!((config.traffic.offered_pps, config.moderation.rx_usecs), (Some(1e5), 1000.0));
    assert_eq!((config.traffic.link_bps, config.app.recv_ns), (2_500_000_000, 2000.0));
    config.set("rate", "max").unwrap();
    assert_eq!(config.traffic.offered_pps, None);
    assert!(config.set("rate", "10Gbps").is_err(), "bits are no frames");
}

#[test]
fn unknown_names_and_wrong_values_are_refused_in_words() {
    let mut config = Config::default();
    assert_eq!(
        config.set("descriptors", "64").unwrap_err().to_string(),
        "unknown parameter 'descriptors'; did you mean ring.descriptors?"
    );
    let error = config.set("policy", "magic").unwrap_err().to_string();
    assert!(error.starts_with("cannot set buffers.policy to 'magic': unknown variant"), "{error}");
    for (name, value, words) in [
        ("ring", "-1", "cannot set ring.descriptors to '-1': not a whole number"),
        ("ring", "many", "cannot set ring.descriptors to 'many': not a whole number"),
        ("rate", "10Gbps", "cannot set traffic.offered_pps to '10Gbps': not a number"),
        ("reuseport", "maybe", "cannot set socket.reuseport to 'maybe': must be true or false"),
    ] {
        assert_eq!(config.set(name, value).unwrap_err().to_string(), words);
    }
    assert_eq!(config, Config::default());
}
