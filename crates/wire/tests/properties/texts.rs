//! Every type with a text form reads back what it prints.

use std::{fmt, str::FromStr};

use proptest::prelude::*;
use wire::{
    FrameSize, HashFields, MacAddr, Rate, RssKey, SizeMix, Spread, Values, VlanTag, WeightedSize, Weights,
    parse_duration,
};

use crate::specs::{addresses, ports, vlan_tag};

/// The text of a value reads as that value.
fn reads_back<T>(value: T) -> Result<(), TestCaseError>
where
    T: FromStr<Err: fmt::Display> + fmt::Display + fmt::Debug + PartialEq,
{
    let text = value.to_string();
    match text.parse::<T>() {
        Ok(read) => prop_assert_eq!(read, value),
        Err(error) => prop_assert!(false, "{}: {}", text, error),
    }
    Ok(())
}

/// Text that parses prints as text that parses the same, and nothing panics.
fn any_text<T>(text: &str) -> Result<(), TestCaseError>
where
    T: FromStr<Err: fmt::Display> + fmt::Display + fmt::Debug + PartialEq,
{
    match text.parse::<T>() {
        Ok(value) => reads_back(value),
        Err(error) => {
            prop_assert!(!error.to_string().is_empty());
            Ok(())
        }
    }
}

proptest! {
    #[test]
    fn mac_addresses_read_back(bytes: [u8; 6]) {
        reads_back(MacAddr(bytes))?;
    }

    #[test]
    fn vlan_tags_read_back(tag in vlan_tag()) {
        reads_back(tag)?;
    }

    #[test]
    fn values_read_back(ports in ports(), v4 in addresses(false), v6 in addresses(true)) {
        reads_back(ports)?;
        reads_back(v4)?;
        reads_back(v6)?;
    }

    #[test]
    fn networks_read_back(bits: u32, len in 0..=32u8) {
        let first = std::net::Ipv4Addr::from_bits(bits & u32::MAX.checked_shl((32 - len).into()).unwrap_or(0));
        let values: Values<std::net::IpAddr> = format!("random:{first}/{len}").parse().unwrap();
        reads_back(values)?;
    }

    #[test]
    fn weights_read_back_and_their_cycle_keeps_them(parts in prop::collection::vec((1..2000u32, 1..50u32), 1..6)) {
        let sizes: Vec<_> = parts.iter().map(|&(bytes, weight)| WeightedSize { bytes, weight }).collect();
        let weights = Weights::new(sizes.clone()).unwrap();
        let cycle = weights.cycle();
        for size in &sizes {
            let asked: u32 = sizes.iter().filter(|other| other.bytes == size.bytes).map(|other| other.weight).sum();
            let sent = cycle.iter().filter(|bytes| **bytes == size.bytes).count() as u64;
            let sum: u64 = sizes.iter().map(|size| u64::from(size.weight)).sum();
            prop_assert_eq!(sent * sum, u64::from(asked) * cycle.len() as u64);
        }
        reads_back(SizeMix::Weighted(weights))?;
    }

    #[test]
    fn keys_and_spreads_read_back(key: [u8; 40], numbers in prop::collection::vec(any::<u32>(), 1..20)) {
        reads_back(RssKey::new(&key).unwrap())?;
        reads_back(Spread::Equal(numbers[0]))?;
        reads_back(Spread::Weights(numbers.clone()))?;
        reads_back(Spread::Queues(numbers))?;
    }

    #[test]
    fn rates_read_back(number in 1e-3..1e12f64) {
        for rate in [Rate::Pps(number), Rate::Bps(number), Rate::BpsL1(number), Rate::PercentOfLine(number % 100.0 + 1e-9)] {
            reads_back(rate)?;
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in texts()) {
        any_text::<MacAddr>(&text)?;
        any_text::<VlanTag>(&text)?;
        any_text::<Values<u16>>(&text)?;
        any_text::<Values<std::net::IpAddr>>(&text)?;
        any_text::<SizeMix>(&text)?;
        any_text::<RssKey>(&text)?;
        any_text::<HashFields>(&text)?;
        any_text::<Spread>(&text)?;
        any_text::<Rate>(&text)?;
        any_text::<FrameSize>(&text)?;
        if let Err(error) = parse_duration(&text) {
            prop_assert!(error.to_string().contains(&text));
        }
    }
}

/// Any text, and texts from pieces of the grammars, which get further into the parser.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "inc:",
        "random:",
        "list:",
        "equal:",
        "weights:",
        "queues:",
        "imix",
        "max",
        "802.1ad:",
        "10.0.0.0",
        "2001:db8::",
        "0",
        "1",
        "9",
        "64",
        "65536",
        "4294967296",
        "-",
        "/",
        ",",
        ":",
        ".",
        "step=",
        "seed=",
        "dei",
        "k",
        "M",
        "G",
        "m",
        "pps",
        "bps",
        "bpsl1",
        "%",
        "s",
        "µ",
        "02",
        "ff",
        " ",
    ]);
    prop_oneof![".{0,20}", prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())]
}
