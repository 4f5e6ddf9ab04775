//! Frames as bytes, and the arithmetic of sizes and rates.
//!
//! Pure: no device, clock, thread or file. Everything here works on byte slices and numbers that the caller passes in.
//!
//! ```
//! use wire::{FrameSpec, LinkSpeed, Rate, Template, UdpFrame};
//!
//! let spec = FrameSpec { dst_port: "inc:1024-2047".parse()?, ..FrameSpec::default() };
//! let template = Template::new(&spec)?;
//! let mut slot = vec![0; template.max_frame_len()];
//! template.prime_frame(&mut slot);
//! for sequence in 0..3 {
//!     let len = template.restamp_frame(&mut slot, sequence, 1_000_000);
//!     let frame = UdpFrame::parse(&slot[..len])?;
//!     assert_eq!(frame.flow().dst_port, 1024 + sequence as u16);
//!     assert_eq!(frame.probe().unwrap().sequence, sequence);
//!     frame.verify_checksums()?;
//! }
//!
//! let rate: Rate = "100%".parse()?;
//! let pps = rate.to_pps(template.mean_frame_size(), Some(LinkSpeed::from_bps(10_000_000_000)))?;
//! assert_eq!(pps.unwrap().round(), 14_880_952.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod checksum;
mod eth;
mod flow;
mod frame;
mod header;
mod indirection;
mod ipv4;
mod ipv6;
mod likeness;
mod mac;
mod mix;
mod pcap;
mod pcapng;
mod probe;
mod rate;
mod size;
mod tags;
mod template;
mod text;
mod toeplitz;
mod udp;
mod values;
mod vlan;

pub use checksum::{Checksum, update_checksum};
pub use eth::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, EthHeader, EthView, MAX_VLAN_TAGS};
pub use flow::{Addresses, FlowKey, PROTOCOL_TCP, PROTOCOL_UDP};
pub use frame::{BadChecksum, NotUdp, PlainHeaders, UdpFrame, turn_frame_back};
pub use header::{HeaderError, Layer};
pub use indirection::{IndirectionTable, Spread, SpreadError};
pub use ipv4::{Ipv4Header, Ipv4View};
pub use ipv6::{Ipv6Header, Ipv6View};
pub use likeness::Likeness;
pub use mac::{MacAddr, MacError};
pub use mix::{MixError, SizeMix, Sizes, WeightedSize, Weights};
pub use pcap::{PcapError, PcapFrame, PcapReader, PcapWriter};
pub use pcapng::PcapngWriter;
pub use probe::{PROBE_LEN, PROBE_MAGIC, PROBE_TAGGED_LEN, ProbeClock, ProbeHeader, RETURNED_MAGIC};
pub use rate::{LinkSpeed, Rate, RateError};
pub use size::{FrameSize, Layers, MeanFrameSize, SizeError, parse_duration, parse_ratio};
pub use tags::StreamTags;
pub use template::{AddressDraws, Cycle, Draw, DrawValue, FrameSpec, Recipe, SpecError, Template};
pub use toeplitz::{HashFields, RssKey, Toeplitz, ToeplitzError};
pub use udp::{UdpHeader, UdpView};
pub use values::{Item, List, Span, Values, ValuesError};
pub use vlan::{VlanError, VlanProtocol, VlanTag};
