//! The ledger of a live machine as a document: `linerate.ledger/1`, described by `schema/linerate.ledger.1.schema.json`.

use measure::{CpuShare, InterruptAccounting, LedgerLine, Place, Unit};
use serde::{Serialize, Serializer};
use serde_json::json;

/// The schema's name and version, in every document.
pub const LEDGER_SCHEMA: &str = "linerate.ledger/1";

/// Everything about one interval.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LedgerDocument {
    /// Always [`LEDGER_SCHEMA`].
    pub schema: &'static str,
    /// `None`: all interfaces but loopback.
    pub interface: Option<String>,
    /// The interfaces' drivers, each once.
    pub drivers: Vec<String>,
    /// The requested flows.
    pub flow: Option<String>,
    /// Length of the time in seconds.
    pub duration_s: f64,
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Frames received per second.
    pub rx_pps: f64,
    /// Frames sent per second.
    pub tx_pps: f64,
    /// Lost packets.
    pub lost_packets: u64,
    /// The same per second.
    pub lost_pps: f64,
    /// Where packets were lost, in the order a packet meets the places.
    pub lines: Vec<LossRate>,
    /// The most frequent drop reasons of the kernel; `None` when they were not watched.
    pub reasons: Option<Vec<DropReason>>,
    /// UDP sockets of the namespace that hold datagrams unread or dropped some.
    pub sockets: Vec<UdpSocketUse>,
    /// Whether the kernel reports losses of AF_XDP sockets; those losses are lines.
    pub sees_af_xdp: bool,
    /// Drivers' counters of unknown meaning that moved.
    pub unknown_counters: Vec<UnknownCounter>,
    /// The time of each CPU, by use.
    pub cpus: Vec<CpuShare>,
    /// How the kernel accounts for time in interrupts.
    pub interrupt_accounting: InterruptAccounting,
    /// The work of all CPUs per packet received and sent; `None` when nothing was counted or no packet moved.
    pub hardware: Option<PerPacket>,
    /// Why nothing was counted, as text.
    pub no_hardware_counters: Option<String>,
    /// The cost of watching.
    pub cost: WatchCost,
}

/// A ledger line and how fast it grew.
#[derive(Debug, Clone, PartialEq)]
pub struct LossRate {
    /// The line.
    pub line: LedgerLine,
    /// Its packets per second.
    pub pps: f64,
}

/// A drop reason of the kernel.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Reason"))]
pub struct DropReason {
    /// The reason's name.
    pub reason: String,
    /// The function that dropped them.
    pub function: String,
    /// Socket buffers (skbs) dropped.
    pub buffers: u64,
    /// Packets in them.
    pub packets: u64,
    /// Packets per second.
    pub pps: f64,
    /// One of the packets.
    pub flow: Option<String>,
    /// The socket's local port.
    pub port: Option<u16>,
    /// The process that holds the socket.
    pub pid: Option<u32>,
    /// The process's name.
    pub process: Option<String>,
}

/// A UDP socket and its application.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "UdpSocket"))]
pub struct UdpSocketUse {
    /// Its local port.
    pub port: u16,
    /// Memory of datagrams that the application has not read yet.
    pub unread_bytes: u64,
    /// Buffers that did not fit, or that it refused.
    pub dropped: u64,
    /// The process that holds it.
    pub pid: Option<u32>,
    /// The process's name.
    pub process: Option<String>,
}

/// A driver's counter of unknown meaning.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Unknown"))]
pub struct UnknownCounter {
    /// The interface.
    pub interface: String,
    /// The counter's name.
    pub counter: String,
    /// Its increase.
    pub grown_by: u64,
}

/// The CPUs' work per packet, including all other work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PerPacket {
    /// CPU cycles.
    pub cycles: f64,
    /// Instructions, if counted.
    pub instructions: Option<f64>,
    /// Cache misses, if counted.
    pub cache_misses: Option<f64>,
}

/// The cost of watching.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Cost"))]
pub struct WatchCost {
    /// This process, as a share of one CPU.
    pub process_cpu_ratio: f64,
    /// The program in the kernel, as a share of one CPU.
    pub program_cpu_ratio: f64,
    /// Drops that the program saw.
    pub events: u64,
    /// Drops missing in the counts by reason.
    pub events_lost: u64,
    /// The program's time per drop.
    pub ns_per_event: Option<f64>,
}

impl Default for LedgerDocument {
    /// Nothing watched, nothing lost.
    fn default() -> Self {
        Self {
            schema: LEDGER_SCHEMA,
            interface: None,
            drivers: Vec::new(),
            flow: None,
            duration_s: 0.0,
            rx_packets: 0,
            tx_packets: 0,
            rx_pps: 0.0,
            tx_pps: 0.0,
            lost_packets: 0,
            lost_pps: 0.0,
            lines: Vec::new(),
            reasons: None,
            sockets: Vec::new(),
            sees_af_xdp: false,
            unknown_counters: Vec::new(),
            cpus: Vec::new(),
            interrupt_accounting: InterruptAccounting::Unknown,
            hardware: None,
            no_hardware_counters: None,
            cost: WatchCost::default(),
        }
    }
}

impl LedgerDocument {
    /// As indented JSON.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("the document is JSON")
    }

    /// One line of a stream; `kind` distinguishes an interval from the whole time.
    pub fn to_line(&self, kind: &str) -> String {
        json!({ kind: self }).to_string()
    }
}

impl LossRate {
    /// Whether these packets did not arrive: a copy or a repetition is no loss.
    pub fn is_loss(&self) -> bool {
        !matches!(self.line.place.known(), Some(Place::Tcp | Place::PacketRing | Place::OtherHost))
    }
}

/// A line as in the document.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Line {
    id: Option<&'static str>,
    place: String,
    packets: u64,
    pps: f64,
    /// The unit of the counter; `packets` is already in packets.
    unit: Unit,
    source: String,
    meaning: Option<&'static str>,
    remedy: Option<String>,
    /// Whether these packets did not arrive: a copy or a repetition is no loss.
    is_loss: bool,
}

impl Serialize for LossRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let LedgerLine { place, packets, source, unit, remedy, host: _ } = &self.line;
        let known = place.known();
        let line = Line {
            id: known.map(Place::id),
            place: place.to_string(),
            packets: *packets,
            pps: self.pps,
            unit: *unit,
            source: source.clone(),
            meaning: known.map(Place::meaning),
            remedy: remedy.clone(),
            is_loss: self.is_loss(),
        };
        line.serialize(serializer)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for LossRate {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Line::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Line::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn generated() -> Value {
        let mut schema = schemars::schema_for!(LedgerDocument).to_value();
        schema["$id"] = json!("https://linerate.invalid/schema/linerate.ledger.1.schema.json");
        schema["title"] = json!(LEDGER_SCHEMA);
        schema["properties"]["schema"]["const"] = json!(LEDGER_SCHEMA);
        schema
    }

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/linerate.ledger.1.schema.json");
        let text = serde_json::to_string_pretty(&generated()).unwrap() + "\n";
        if std::env::var_os("LINERATE_BLESS").is_some() {
            std::fs::write(file, &text).unwrap();
        }
        assert!(std::fs::read_to_string(file).unwrap() == text, "make bless rewrites it");
    }

    #[test]
    fn a_line_has_the_id_and_meaning_of_its_place_and_whether_it_is_a_loss() {
        let rate = |line| LossRate { line, pps: 2.5 };
        let full = LedgerLine::at(Place::PacketRing, 5, "PACKET_STATISTICS tp_drops");
        let unnamed = LedgerLine::new("dropped: NEW", 1, "kfree_skb NEW");
        let document = LedgerDocument { lines: vec![rate(full), rate(unnamed)], ..LedgerDocument::default() };
        let shown: Value = serde_json::from_str(&document.to_text()).unwrap();
        assert_eq!(shown["schema"], LEDGER_SCHEMA);
        assert_eq!(
            shown["lines"],
            json!([
                {"id": "packet-ring", "place": "packet ring full", "packets": 5, "pps": 2.5, "unit": "frames",
                 "source": "PACKET_STATISTICS tp_drops", "meaning": Place::PacketRing.meaning(),
                 "remedy": Place::PacketRing.remedy(), "is_loss": false},
                {"id": null, "place": "dropped: NEW", "packets": 1, "pps": 2.5, "unit": "packets",
                 "source": "kfree_skb NEW", "meaning": null, "remedy": null, "is_loss": true},
            ])
        );
        let line: Value = serde_json::from_str(&document.to_line("end")).unwrap();
        assert_eq!(line["end"], shown, "a stream's line is the document by its kind");
    }
}
