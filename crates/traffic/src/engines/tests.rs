use port::Buffers;

use crate::engine::{RingOptions, RxOptions, TxOptions};

use super::*;

/// Every label of a row's switches, one switch at a time and all together.
fn labels<S>(name: &str, row: &EngineSide<S>) -> Vec<String> {
    let each = row.switches.iter().map(|switch| format!("{name}+{}", switch.name));
    let all = row.switches.iter().fold(name.to_owned(), |label, switch| format!("{label}+{}", switch.name));
    let all = Some(all).filter(|_| !row.is_exclusive && row.switches.len() > 1);
    [name.to_owned()].into_iter().chain(each).chain(all).collect()
}

#[test]
fn every_engine_and_switch_has_a_label_that_reads_back() {
    let mut seen = 0;
    for engine in engines() {
        for label in engine.tx.iter().flat_map(|row| labels(engine.name, row)) {
            assert_eq!(label.parse::<TxSpec>().unwrap().to_string(), label);
            seen += 1;
        }
        for label in engine.rx.iter().flat_map(|row| labels(engine.name, row)) {
            assert_eq!(label.parse::<RxSpec>().unwrap().to_string(), label);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn every_row_of_the_ladder_is_an_engine() {
    for engine in engines() {
        for row in engine.tx.iter() {
            for label in row.ladder.iter().chain(row.ladder_of_threads) {
                assert_eq!(label.parse::<TxSpec>().unwrap().name(), engine.name);
            }
        }
        for row in engine.rx.iter() {
            for label in row.ladder.iter().chain(row.ladder_of_threads) {
                assert_eq!(label.parse::<RxSpec>().unwrap().name(), engine.name);
            }
        }
    }
}

#[test]
fn saved_engines_keep_all_settings() {
    let given = TxOptions {
        send_buffer_bytes: Some(77),
        message_bytes: Some(9),
        source: Some(port::FileChoice { path: Some("a file".into()), cache: port::FileCache::Cold }),
        returns: true,
        rings: RingOptions { ring_slots: Some(64), ..RingOptions::default() },
        burst: Some(32),
        clones: Some(1000),
    };
    let taken = RxOptions {
        receive_buffer_bytes: Some(78),
        busy_poll_micros: Some(5),
        message_bytes: Some(9),
        rings: RingOptions { buffers: Some(Buffers::Pool), ..RingOptions::default() },
    };
    for engine in engines() {
        for label in engine.tx.iter().flat_map(|row| labels(engine.name, row)) {
            let spec = label.parse::<TxSpec>().unwrap().configured(&given);
            let saved = serde_json::to_value(&spec).unwrap();
            assert_eq!(serde_json::from_value::<TxSpec>(saved).unwrap(), spec, "{label}");
        }
        for label in engine.rx.iter().flat_map(|row| labels(engine.name, row)) {
            let spec = label.parse::<RxSpec>().unwrap().configured(&taken);
            let saved = serde_json::to_value(&spec).unwrap();
            assert_eq!(serde_json::from_value::<RxSpec>(saved).unwrap(), spec, "{label}");
        }
    }
    let saved = serde_json::to_value("udp+gso".parse::<TxSpec>().unwrap().configured(&given)).unwrap();
    assert_eq!(
        (&saved["engine"], &saved["gso"], &saved["send_buffer_bytes"]),
        (&"udp".into(), &true.into(), &77.into())
    );
}

#[test]
fn engines_of_older_records_are_labels() {
    let spec: RxSpec = serde_json::from_str("\"udp+gro+reuseport\"").unwrap();
    assert_eq!(spec.to_string(), "udp+gro+reuseport");
}

#[test]
fn refusals_name_what_was_expected() {
    let message = "dpdk".parse::<TxSpec>().unwrap_err().to_string();
    assert_eq!(
        message,
        format!("unknown sending engine 'dpdk': expected {}", names(|engine| engine.tx.is_some()))
    );
    let message = "pktgen".parse::<RxSpec>().unwrap_err().to_string();
    assert_eq!(
        message,
        format!("unknown receiving engine 'pktgen': expected {}", names(|engine| engine.rx.is_some()))
    );
    let message = "udp+gso".parse::<RxSpec>().unwrap_err().to_string();
    assert_eq!(
        message,
        "unknown switch '+gso' of the receiving engine 'udp': expected +gro, +ovfl, +reuseport"
    );
    let message = "xdp+gso".parse::<TxSpec>().unwrap_err().to_string();
    assert_eq!(message, "unknown switch '+gso' of the sending engine 'xdp': expected none");
    let message = "tcp+file+zerocopy".parse::<TxSpec>().unwrap_err().to_string();
    assert_eq!(message, "'tcp' takes only one of +file, +sendfile, +splice, +zerocopy");
    assert!("".parse::<RxSpec>().is_err());
    assert!("udp+".parse::<TxSpec>().is_err());
    let settings = serde_json::json!({ "engine": "udp", "gso": 3 });
    let message = serde_json::from_value::<TxSpec>(settings).unwrap_err().to_string();
    assert_eq!(
        message,
        "cannot read the settings of the sending engine 'udp': invalid type: integer `3`, expected a boolean"
    );
}

fn names(has: fn(&Engine) -> bool) -> String {
    engines().iter().filter(|engine| has(engine)).map(|engine| engine.name).collect::<Vec<_>>().join(", ")
}
