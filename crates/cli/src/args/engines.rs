//! Help texts about engines, made from the registry.

use traffic::{Engine, RxFacts, RxLayer, RxSpec, TimeSource, TxSpec, engines};

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn listed<S: AsRef<str>>(names: &[S], and: &str) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match &names[..] {
        [] => String::new(),
        [name] => (*name).into(),
        [names @ .., last] => format!("{} {and} {last}", names.join(", ")),
    }
}

fn senders() -> impl Iterator<Item = &'static str> {
    engines().iter().filter(|engine| engine.tx.is_some()).map(|engine| engine.name)
}

/// Receiving engines, each with its description.
fn receivers() -> impl Iterator<Item = (&'static str, RxFacts)> {
    let facts = |engine: &'static Engine| {
        engine.rx.as_ref()?;
        Some((engine.name, engine.name.parse::<RxSpec>().ok()?.facts()))
    };
    engines().iter().filter_map(facts)
}

/// The names of all sending engines, or of all receiving ones.
pub(crate) fn engine_names(of_senders: bool) -> Vec<&'static str> {
    if of_senders { senders().collect() } else { receivers().map(|(name, _)| name).collect() }
}

/// Help for the senders of a ladder.
pub(crate) fn senders_of_a_ladder() -> String {
    format!("Sending engines: {} [default: all that are available]", senders().collect::<Vec<_>>().join(", "))
}

/// Whether an engine can send packets to other hosts; streams and cards without a driver work only in the lab.
pub(crate) fn sends_packets(engine: &TxSpec) -> bool {
    let facts = engine.facts();
    facts.message_bytes.is_none() && !facts.takes_device
}

/// Engines that send packets to other hosts.
pub(crate) fn packet_senders() -> Vec<&'static str> {
    senders().filter(|name| name.parse().is_ok_and(|engine| sends_packets(&engine))).collect()
}

/// Engines that take a card from the kernel to send.
fn card_senders() -> Vec<&'static str> {
    let takes = |engine: TxSpec| engine.facts().takes_device;
    senders().filter(|name| name.parse().is_ok_and(takes)).collect()
}

/// Engines that build whole frames, and leave the interface to the kernel.
pub(crate) fn frame_senders() -> String {
    let is_one = |engine: TxSpec| engine.facts().makes_frames && !engine.facts().takes_device;
    let names: Vec<&str> = senders().filter(|name| name.parse().is_ok_and(is_one)).collect();
    listed(&names, "or")
}

/// Engines that receive the probes that receivers reflect.
pub(crate) fn returning_senders() -> String {
    let is_one = |name: &&str| name.parse().is_ok_and(|engine: TxSpec| engine.options().contains(&"reflect"));
    let names: Vec<&str> = senders().filter(is_one).collect();
    listed(&names, "or")
}

/// Help for `send --engine`.
pub(crate) fn sender() -> String {
    format!(
        "Sending engine: {}; those that build whole frames use the kernel's routes and neighbours; {} takes the card from \
         the kernel (--take-device)",
        packet_senders().join(", "),
        listed(&card_senders(), "or")
    )
}

/// Help for the receivers of a ladder.
pub(crate) fn receivers_of_a_ladder() -> String {
    let names: Vec<&str> = receivers().map(|(name, _)| name).collect();
    format!("Receiving engines: {} [default: all that are available]", names.join(", "))
}

/// Help for `recv --engine`.
pub(crate) fn receiver() -> String {
    let packets = receivers().filter(|(_, facts)| facts.reads != RxLayer::Stream);
    let names: Vec<&str> = packets.map(|(name, _)| name).collect();
    format!(
        "Receiving engine: {}; those below the sockets count probe packets to any port and address, and need --device; {} \
         takes the card from the kernel (--take-device)",
        names.join(", "),
        listed(&card_senders(), "or")
    )
}

/// The default timestamp source of each engine.
fn default_stamps() -> String {
    let by = |stamp: TimeSource| {
        let names: Vec<&str> = receivers()
            .filter(|(_, facts)| facts.stamps.first() == Some(&stamp))
            .map(|(name, _)| name)
            .collect();
        (!names.is_empty()).then(|| listed(&names, "and"))
    };
    let words = [
        (TimeSource::Kernel, "the kernel"),
        (TimeSource::Poll, "a program, once per poll"),
        (TimeSource::Program, "a program, once per packet"),
        (TimeSource::Card, "the card"),
        (TimeSource::Loop, "the receiving loop"),
    ];
    let each = words.into_iter().filter_map(|(stamp, words)| Some(format!("{words} for {}", by(stamp)?)));
    each.collect::<Vec<_>>().join(", ")
}

/// Help for `recv --stamp`.
pub(crate) fn stamp() -> String {
    format!("Timestamp source of received packets [default: {}]", default_stamps())
}

/// Help for `bench --stamp`.
pub(crate) fn stamp_of_a_ladder() -> String {
    format!("Timestamp source of receivers that support it [default: {}]", default_stamps())
}

#[cfg(test)]
mod tests {
    use traffic::EngineSide;

    use super::*;

    #[test]
    fn help_names_every_engine_that_can_do_it() {
        for engine in engines() {
            assert_eq!(senders_of_a_ladder().contains(engine.name), engine.tx.is_some(), "{}", engine.name);
            assert_eq!(receivers_of_a_ladder().contains(engine.name), engine.rx.is_some(), "{}", engine.name);
        }
        assert_eq!(packet_senders().first(), Some(&"udp"));
        assert!(packet_senders().contains(&"packet") && !packet_senders().contains(&"tcp"), "{}", sender());
        assert!(receiver().contains("udp, ") && !receiver().contains("tcp"), "{}", receiver());
        assert!(stamp().ends_with("a program, once per poll for xsk and xdp]"), "{}", stamp());
        assert_eq!(listed(&["a", "b", "c"], "and"), "a, b and c");
    }

    /// One side of an engine as a cell of the table in docs/engines.md.
    fn cell<S>(side: Option<&EngineSide<S>>) -> String {
        let Some(side) = side else { return "-".into() };
        let switches = side.switches.iter().map(|switch| format!("; `+{}`: {}", switch.name, switch.about));
        side.about.to_owned() + &switches.collect::<String>()
    }

    #[test]
    fn the_table_of_engines_in_the_documents_is_the_registry() {
        const BEGIN: &str = "<!-- engines: `make bless` writes this table -->\n";
        const END: &str = "<!-- /engines -->";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines.md");
        let document = std::fs::read_to_string(path).unwrap();
        let (before, rest) = document.split_once(BEGIN).unwrap();
        let (found, after) = rest.split_once(END).unwrap();
        let rows = engines().iter().map(|engine| {
            format!("| `{}` | {} | {} |\n", engine.name, cell(engine.tx.as_ref()), cell(engine.rx.as_ref()))
        });
        let table = format!("| engine | sends | receives |\n|---|---|---|\n{}", rows.collect::<String>());
        if std::env::var_os("LINERATE_BLESS").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        } else {
            assert_eq!(found, table, "run make bless");
        }
    }
}
