//! The syntax tree of an expression, before it refers to bytes.

use std::{net::Ipv6Addr, ops::Range};

use crate::lexer::Dotted;

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// From left to right: "and" binds no closer than "or".
    Chain(Box<Node>, Vec<(Link, Node)>),
    Not(Box<Node>),
    Leaf(Primitive, Range<usize>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    And,
    Or,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Primitive {
    Protocol(Protocol),
    Match(Qualifiers, Id),
    Relation(Arith, Relation, Arith),
    Broadcast(Option<Protocol>),
    Multicast(Option<Protocol>),
    Less(u32),
    Greater(u32),
    Byte(u32, Relation, u32),
    Vlan(Option<u32>),
    Mpls(Option<u32>),
    Pppoed,
    Pppoes(Option<u32>),
    Geneve(Option<u32>),
    Llc(Option<LlcType>),
}

/// What a name or number refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Qualifiers {
    pub(crate) protocol: Option<Protocol>,
    pub(crate) direction: Option<Direction>,
    pub(crate) kind: Option<IdKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Src,
    Dst,
    Or,
    And,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdKind {
    Host,
    Net,
    Set,
    Port,
    PortRange,
    Proto,
    ProtoChain,
    Gateway,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Id {
    Number(u32),
    Name(String),
    Dotted(Dotted),
    DottedPrefix(Dotted, u32),
    DottedMask(Dotted, Dotted),
    Ipv6(Ipv6Addr),
    Ipv6Prefix(Ipv6Addr, u32),
    Mac([u8; 6]),
}

/// Unsigned arithmetic in 32 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arith {
    Number(u32),
    Len,
    Load { protocol: Protocol, index: Box<Arith>, size: u32, at: Range<usize> },
    Op(Op, Box<Arith>, Box<Arith>, Range<usize>),
    Neg(Box<Arith>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

impl Op {
    /// The operation's bits in an arithmetic eBPF instruction.
    pub(crate) fn bpf_code(self) -> u8 {
        match self {
            Self::Add => 0x00,
            Self::Sub => 0x10,
            Self::Mul => 0x20,
            Self::Div => 0x30,
            Self::Or => 0x40,
            Self::And => 0x50,
            Self::Shl => 0x60,
            Self::Shr => 0x70,
            Self::Mod => 0x90,
            Self::Xor => 0xa0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

/// 802.2 frames by the two lowest bits of their control field, and single commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LlcType {
    Information,
    Supervisory,
    Unnumbered,
    SupervisoryCommand(u8),
    UnnumberedCommand(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Ether,
    Ip,
    Ip6,
    Arp,
    Rarp,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmp6,
    Igmp,
    Igrp,
    Pim,
    Vrrp,
    Carp,
    Ah,
    Esp,
    Radio,
    Atalk,
    Aarp,
    Decnet,
    Lat,
    Sca,
    Moprc,
    Mopdl,
    Iso,
    Esis,
    Isis,
    Clnp,
    IsisPdu(IsisPdu),
    Stp,
    Ipx,
    Netbeui,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IsisPdu {
    L1,
    L2,
    Iih,
    Lsp,
    Snp,
    Csnp,
    Psnp,
}

impl Protocol {
    pub(crate) fn named(word: &str) -> Option<Self> {
        Some(match word {
            "ether" => Self::Ether,
            "ip" => Self::Ip,
            "ip6" => Self::Ip6,
            "arp" => Self::Arp,
            "rarp" => Self::Rarp,
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "sctp" => Self::Sctp,
            "icmp" => Self::Icmp,
            "icmp6" => Self::Icmp6,
            "igmp" => Self::Igmp,
            "igrp" => Self::Igrp,
            "pim" => Self::Pim,
            "vrrp" => Self::Vrrp,
            "carp" => Self::Carp,
            "ah" => Self::Ah,
            "esp" => Self::Esp,
            "radio" => Self::Radio,
            "atalk" => Self::Atalk,
            "aarp" => Self::Aarp,
            "decnet" => Self::Decnet,
            "lat" => Self::Lat,
            "sca" => Self::Sca,
            "moprc" => Self::Moprc,
            "mopdl" => Self::Mopdl,
            "iso" => Self::Iso,
            "esis" => Self::Esis,
            "isis" => Self::Isis,
            "clnp" => Self::Clnp,
            "l1" => Self::IsisPdu(IsisPdu::L1),
            "l2" => Self::IsisPdu(IsisPdu::L2),
            "iih" => Self::IsisPdu(IsisPdu::Iih),
            "lsp" => Self::IsisPdu(IsisPdu::Lsp),
            "snp" => Self::IsisPdu(IsisPdu::Snp),
            "csnp" => Self::IsisPdu(IsisPdu::Csnp),
            "psnp" => Self::IsisPdu(IsisPdu::Psnp),
            "stp" => Self::Stp,
            "ipx" => Self::Ipx,
            "netbeui" => Self::Netbeui,
            _ => return None,
        })
    }
}
