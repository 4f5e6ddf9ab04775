//! The language's keywords and named numbers.

/// The keyword that a spelling stands for.
pub(crate) fn keyword(spelling: &str) -> Option<&'static str> {
    Some(match spelling {
        "link" | "ppp" | "slip" | "fddi" | "tr" | "wlan" => "ether",
        "es-is" => "esis",
        "is-is" => "isis",
        "direction" => "dir",
        "address1" => "addr1",
        "address2" => "addr2",
        "address3" => "addr3",
        "address4" => "addr4",
        "length" => "len",
        "on" => "ifname",
        "ruleset" => "rset",
        "rulenum" => "rnr",
        "subrulenum" => "srnr",
        "lsu" => "lssu",
        _ => return keywords().find(|known| *known == spelling),
    })
}

/// The keywords, by their main spelling.
pub(crate) fn keywords() -> impl Iterator<Item = &'static str> {
    KEYWORDS.split_whitespace()
}

const KEYWORDS: &str = "
    src dst host net set mask port portrange proto protochain gateway ether arp rarp ip ip6 sctp tcp udp
    icmp icmp6 igmp igrp pim vrrp carp ah esp radio atalk aarp decnet lat sca moprc mopdl iso esis isis
    l1 l2 iih lsp snp csnp psnp clnp stp ipx netbeui type subtype dir addr1 addr2 addr3 addr4 ra ta less
    greater byte broadcast multicast and or not len inbound outbound ifindex vlan mpls pppoed pppoes
    geneve lane llc metac bcc oam oamf4 oamf4ec oamf4sc sc ilmic vpi vci connectmsg metaconnect ifname
    rset rnr srnr reason action fisu lssu msu hfisu hlssu hmsu sio opc dpc sls hsio hopc hdpc hsls
";

/// Names of header fields' offsets and of their values (pcap-filter(7), at its end).
pub(super) const NUMBERS: &[(&str, u32)] = &[
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-multicastlistenerreportv1", 131),
    ("icmp6-multicastlistenerdone", 132),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("icmp6-redirect", 137),
    ("icmp6-routerrenum", 138),
    ("icmp6-nodeinformationquery", 139),
    ("icmp6-nodeinformationresponse", 140),
    ("icmp6-ineighbordiscoverysolicit", 141),
    ("icmp6-ineighbordiscoveryadvert", 142),
    ("icmp6-multicastlistenerreportv2", 143),
    ("icmp6-homeagentdiscoveryrequest", 144),
    ("icmp6-homeagentdiscoveryreply", 145),
    ("icmp6-mobileprefixsolicit", 146),
    ("icmp6-mobileprefixadvert", 147),
    ("icmp6-certpathsolicit", 148),
    ("icmp6-certpathadvert", 149),
    ("icmp6-multicastrouteradvert", 151),
    ("icmp6-multicastroutersolicit", 152),
    ("icmp6-multicastrouterterm", 153),
    ("tcpflags", 13),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
];
