//! Engines as users name them: `udp`, `udp+gso`, `udp+gro+reuseport`, `packet`, `xsk`, `xdp`.

use std::{collections::BTreeMap, fmt, str::FromStr};

use engine::{
    PacketRxPlan, PacketTxPlan, PktgenTxPlan, RxEngine, TcpRxPlan, TcpSend, TcpTxPlan, TxEngine, UdpRxPlan,
    UdpTxPlan, XdpRxPlan, XdpTxPlan, XskRxPlan, XskTxPlan,
};
use measure::Endpoint;
use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;

/// A sending engine with its switches; its text form is the ladder's label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TxSpec(pub TxEngine);

/// A receiving engine with its switches; its text form is the ladder's label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RxSpec(pub RxEngine);

/// An engine or switch that nobody defined.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// No such engine.
    #[error("there is no {side} engine '{name}': there is {known}")]
    UnknownEngine {
        /// `sending` or `receiving`.
        side: &'static str,
        /// What was written.
        name: String,
        /// The engines there are.
        known: String,
    },
    /// Switches of which one is enough.
    #[error("the sending engine '{engine}' has one of its switches at a time, not {switches}")]
    Exclusive {
        /// The engine.
        engine: &'static str,
        /// What was written.
        switches: String,
    },
    /// No such switch.
    #[error("the {side} engine '{engine}' has no switch '{switch}': it has {known}")]
    UnknownSwitch {
        /// `sending` or `receiving`.
        side: &'static str,
        /// The engine.
        engine: String,
        /// What was written.
        switch: String,
        /// The switches there are.
        known: String,
    },
}

/// Bytes a message of a stream, unless they are asked for.
const MESSAGE_BYTES: u32 = 65_536;

/// Engines of a side and their switches.
type Known = [(&'static str, &'static [&'static str])];

const SENDING: &Known = &[
    ("udp", &["gso"]),
    ("packet", &["qdisc"]),
    ("xsk", &["busypoll"]),
    ("xdp", &[]),
    ("pktgen", &[]),
    ("tcp", &["file", "sendfile", "zerocopy"]),
];
const RECEIVING: &Known = &[
    ("udp", &["gro", "ovfl", "reuseport"]),
    ("packet", &[]),
    ("xsk", &["busypoll", "sharedumem"]),
    ("xdp", &["generic"]),
    ("tcp", &["trunc"]),
];

/// The engine and the switches of a text, each of them known.
fn parse<'t>(text: &'t str, side: &'static str, all: &Known) -> Result<(&'t str, Vec<&'t str>), SpecError> {
    let mut parts = text.split('+');
    let name = parts.next().unwrap_or_default();
    let Some((_, switches)) = all.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
        return Err(SpecError::UnknownEngine { side, name: name.into(), known: names.join(", ") });
    };
    let given: Vec<&str> = parts.collect();
    match given.iter().find(|switch| !switches.contains(switch)) {
        None => Ok((name, given)),
        Some(switch) => Err(SpecError::UnknownSwitch {
            side,
            engine: name.into(),
            switch: (*switch).into(),
            known: if switches.is_empty() { "none".into() } else { switches.join(", ") },
        }),
    }
}

impl TxSpec {
    /// The engine's name without switches.
    pub fn engine(&self) -> &'static str {
        match self.0 {
            TxEngine::Udp(_) => "udp",
            TxEngine::Packet(_) => "packet",
            TxEngine::Xsk(_) => "xsk",
            TxEngine::Xdp(_) => "xdp",
            TxEngine::Pktgen(_) => "pktgen",
            TxEngine::Tcp(_) => "tcp",
        }
    }

    /// The sending side as the record names it.
    pub fn endpoint(&self, threads: usize, cpus: &[u32], batch_size: usize, flows: usize) -> Endpoint {
        let mut options =
            BTreeMap::from([("batch_size".into(), json!(batch_size)), ("flows".into(), json!(flows))]);
        match &self.0 {
            TxEngine::Udp(udp) => {
                options.insert("gso".into(), json!(udp.gso));
                options.insert("send_buffer_bytes".into(), json!(udp.send_buffer_bytes));
            }
            TxEngine::Packet(packet) => {
                options.insert("qdisc_bypass".into(), json!(packet.qdisc_bypass));
            }
            TxEngine::Tcp(tcp) => {
                options.insert("message_bytes".into(), json!(tcp.message_bytes));
                options.insert("send_buffer_bytes".into(), json!(tcp.send_buffer_bytes));
            }
            TxEngine::Xsk(xsk) => {
                options.insert("busy_poll".into(), json!(xsk.busy_poll));
            }
            TxEngine::Xdp(_) | TxEngine::Pktgen(_) => {}
        }
        Endpoint {
            engine: self.engine().into(),
            label: self.to_string(),
            threads: threads as u32,
            cpus: cpus.to_vec(),
            options,
        }
    }

    fn switches(&self) -> Vec<(&'static str, bool)> {
        match &self.0 {
            TxEngine::Udp(udp) => vec![("gso", udp.gso)],
            TxEngine::Packet(packet) => vec![("qdisc", !packet.qdisc_bypass)],
            TxEngine::Tcp(tcp) => vec![
                ("file", tcp.send == TcpSend::ReadWrite),
                ("sendfile", tcp.send == TcpSend::SendFile),
                ("zerocopy", tcp.send == TcpSend::ZeroCopy),
            ],
            TxEngine::Xsk(xsk) => vec![("busypoll", xsk.busy_poll)],
            TxEngine::Xdp(_) | TxEngine::Pktgen(_) => Vec::new(),
        }
    }
}

impl RxSpec {
    /// The engine's name without switches.
    pub fn engine(&self) -> &'static str {
        match self.0 {
            RxEngine::Udp(_) => "udp",
            RxEngine::Packet(_) => "packet",
            RxEngine::Xsk(_) => "xsk",
            RxEngine::Xdp(_) => "xdp",
            RxEngine::Tcp(_) => "tcp",
        }
    }

    fn switches(&self) -> Vec<(&'static str, bool)> {
        match &self.0 {
            RxEngine::Udp(udp) => {
                vec![("gro", udp.gro), ("ovfl", udp.drop_counts), ("reuseport", udp.reuse_port)]
            }
            RxEngine::Packet(_) => Vec::new(),
            RxEngine::Xsk(xsk) => vec![("busypoll", xsk.busy_poll), ("sharedumem", xsk.shared_umem)],
            RxEngine::Xdp(xdp) => vec![("generic", xdp.generic)],
            RxEngine::Tcp(tcp) => vec![("trunc", tcp.truncate)],
        }
    }
}

impl FromStr for TxSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (engine, switches) = parse(text, "sending", SENDING)?;
        let has = |switch| switches.contains(&switch);
        Ok(Self(match engine {
            "packet" => TxEngine::Packet(PacketTxPlan { qdisc_bypass: !has("qdisc") }),
            "xsk" => TxEngine::Xsk(XskTxPlan { busy_poll: has("busypoll") }),
            "xdp" => TxEngine::Xdp(XdpTxPlan {}),
            "pktgen" => TxEngine::Pktgen(PktgenTxPlan {}),
            "tcp" => {
                let send = match switches.as_slice() {
                    [] => TcpSend::Copy,
                    ["file"] => TcpSend::ReadWrite,
                    ["sendfile"] => TcpSend::SendFile,
                    ["zerocopy"] => TcpSend::ZeroCopy,
                    _ => return Err(SpecError::Exclusive { engine: "tcp", switches: switches.join(", ") }),
                };
                TxEngine::Tcp(TcpTxPlan { send, message_bytes: MESSAGE_BYTES, send_buffer_bytes: None })
            }
            _ => TxEngine::Udp(UdpTxPlan { gso: has("gso"), ..UdpTxPlan::default() }),
        }))
    }
}

impl FromStr for RxSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (engine, switches) = parse(text, "receiving", RECEIVING)?;
        let has = |switch| switches.contains(&switch);
        Ok(Self(match engine {
            "packet" => RxEngine::Packet(PacketRxPlan {}),
            "xsk" => RxEngine::Xsk(XskRxPlan { busy_poll: has("busypoll"), shared_umem: has("sharedumem") }),
            "xdp" => RxEngine::Xdp(XdpRxPlan { generic: has("generic") }),
            "tcp" => RxEngine::Tcp(TcpRxPlan {
                truncate: has("trunc"),
                message_bytes: MESSAGE_BYTES,
                receive_buffer_bytes: None,
            }),
            _ => RxEngine::Udp(UdpRxPlan {
                gro: has("gro"),
                drop_counts: has("ovfl"),
                reuse_port: has("reuseport"),
                receive_buffer_bytes: None,
                busy_poll_micros: None,
            }),
        }))
    }
}

impl fmt::Display for TxSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.engine())?;
        write_switches(f, &self.switches())
    }
}

impl fmt::Display for RxSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.engine())?;
        write_switches(f, &self.switches())
    }
}

fn write_switches(f: &mut fmt::Formatter<'_>, switches: &[(&str, bool)]) -> fmt::Result {
    switches.iter().filter(|(_, on)| *on).try_for_each(|(name, _)| write!(f, "+{name}"))
}

impl TryFrom<String> for TxSpec {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<TxSpec> for String {
    fn from(spec: TxSpec) -> Self {
        spec.to_string()
    }
}

impl TryFrom<String> for RxSpec {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<RxSpec> for String {
    fn from(spec: RxSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_read_back() {
        for text in [
            "udp",
            "udp+gso",
            "packet",
            "packet+qdisc",
            "xsk",
            "xsk+busypoll",
            "xdp",
            "pktgen",
            "tcp",
            "tcp+sendfile",
            "tcp+file",
            "tcp+zerocopy",
        ] {
            assert_eq!(text.parse::<TxSpec>().unwrap().to_string(), text);
        }
        for text in [
            "udp",
            "udp+gro",
            "udp+reuseport",
            "udp+gro+reuseport",
            "packet",
            "xsk",
            "xsk+busypoll",
            "xsk+sharedumem",
            "xsk+busypoll+sharedumem",
            "xdp",
            "xdp+generic",
            "tcp",
            "tcp+trunc",
        ] {
            assert_eq!(text.parse::<RxSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refusals_name_what_there_is() {
        let message = "dpdk".parse::<TxSpec>().unwrap_err().to_string();
        assert_eq!(message, "there is no sending engine 'dpdk': there is udp, packet, xsk, xdp, pktgen, tcp");
        let message = "udp+gso".parse::<RxSpec>().unwrap_err().to_string();
        assert_eq!(message, "the receiving engine 'udp' has no switch 'gso': it has gro, ovfl, reuseport");
        let message = "xsk+gso".parse::<TxSpec>().unwrap_err().to_string();
        assert_eq!(message, "the sending engine 'xsk' has no switch 'gso': it has busypoll");
        let message = "tcp+file+zerocopy".parse::<TxSpec>().unwrap_err().to_string();
        assert_eq!(message, "the sending engine 'tcp' has one of its switches at a time, not file, zerocopy");
        assert!("".parse::<RxSpec>().is_err());
        assert!("udp+".parse::<TxSpec>().is_err());
    }
}
