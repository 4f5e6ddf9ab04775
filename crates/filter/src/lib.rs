//! tcpdump's filter language for Ethernet frames: `udp and dst port 53 and net 198.51.100.0/24`.
//!
//! This crate compiles expressions without libpcap, to code that runs in user space and to eBPF for XDP.
//!
//! ```
//! use filter::Filter;
//!
//! let dns = Filter::compile("ip and udp dst port 53")?;
//! let mut frame = [0; 64];
//! frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]); // IPv4, a header of five words
//! frame[23] = 17; // UDP
//! frame[36..38].copy_from_slice(&53_u16.to_be_bytes());
//! assert!(dns.matches(&frame));
//!
//! let error = Filter::compile("udp dst prot 53").unwrap_err();
//! assert_eq!(error.marked("udp dst prot 53"), "udp dst prot 53\n        ^^^^");
//! # Ok::<(), filter::FilterError>(())
//! ```
//!
//! Several filters in order, as rules are; in user space, and as a function for a BPF program:
//!
//! ```
//! use filter::{Filter, FilterSet};
//!
//! let rules = ["arp or icmp", "udp dst port 53", ""].map(|rule| Filter::compile(rule).expect("valid expressions"));
//! let rules = FilterSet::new(&rules);
//! assert_eq!(rules.first_match(&[0; 60]), Some(2));
//! let body = rules.to_ebpf(&[1, 2, 3], 0, 4096)?;
//! assert!(body.len() < 100);
//! # Ok::<(), filter::EbpfRefusal>(())
//! ```
//!
//! Matching packets of which only the first bytes are available, as in tracepoints and flow records: a test of bytes
//! beyond those does not match. `len` is then the number of bytes available.
//!
//! ```
//! use filter::{Filter, FilterError};
//!
//! /// How many of the packets belong to the flow, by their first bytes.
//! fn of_flow<'h>(flow: &str, heads: impl Iterator<Item = &'h [u8]>) -> Result<usize, FilterError> {
//!     let flow = Filter::compile(flow)?;
//!     Ok(heads.filter(|head| flow.matches(head)).count())
//! }
//!
//! let mut head = [0; 42];
//! head[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
//! head[23] = 17;
//! head[26..30].copy_from_slice(&[192, 0, 2, 1]);
//! let heads = [&head[..], &head[..30], &head[..20]];
//! assert_eq!(of_flow("udp and src host 192.0.2.1", heads.into_iter())?, 2);
//! # Ok::<(), FilterError>(())
//! ```
#![forbid(unsafe_code)]

mod ast;
mod ebpf;
mod error;
mod filter;
mod graph;
mod lexer;
mod lower;
mod names;
mod parse;
mod run;
mod tuple;
mod value;

pub use ebpf::{EbpfInstruction, EbpfRefusal};
pub use error::{FilterError, FilterErrorKind};
pub use filter::{Filter, FilterSet};
pub use names::{Context, NameTables, Names, Service};
pub use tuple::{Prefix, TupleRule};
pub use value::{Member, Side};
