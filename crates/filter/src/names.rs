//! What names mean. This crate queries neither the network nor system files: the caller provides their contents.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Resolves the names in an expression.
pub trait Names {
    /// The addresses of a host; none when it is unknown.
    fn host(&self, name: &str) -> Vec<IpAddr>;
    /// The network of that name and its mask.
    fn network(&self, name: &str) -> Option<(Ipv4Addr, Ipv4Addr)>;
    /// The ports of a service.
    fn service(&self, name: &str) -> Option<Service>;
    /// The number of a protocol over IP.
    fn protocol(&self, name: &str) -> Option<u8>;
    /// The Ethernet address of a host.
    fn ether(&self, name: &str) -> Option<[u8; 6]>;
}

/// What an expression can refer to beyond the frame.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// What names mean.
    pub names: &'c dyn Names,
    /// The mask of the interface's IPv4 network, for `ip broadcast`; 0.0.0.0 when it has no IPv4 address: then only
    /// 0.0.0.0 and 255.255.255.255 are broadcasts.
    pub netmask: Ipv4Addr,
    /// Whether expressions may name sets of networks (`src set bad`), which the caller of the filter looks up.
    pub has_sets: bool,
}

/// The ports of a service, by protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Service {
    /// Over TCP.
    pub tcp: Option<u16>,
    /// Over UDP.
    pub udp: Option<u16>,
}

/// The well-known services and protocols (IANA's registries), and system files, passed as text.
///
/// ```
/// use filter::{Names, NameTables};
///
/// let names = NameTables::default().hosts("192.0.2.7 web web.example\n").services("game 4321/udp # ours\n");
/// assert_eq!(names.host("web"), ["192.0.2.7".parse::<std::net::IpAddr>()?]);
/// assert_eq!(names.service("game").and_then(|game| game.udp), Some(4321));
/// assert_eq!(names.service("domain").and_then(|dns| dns.tcp), Some(53));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct NameTables {
    hosts: HashMap<String, Vec<IpAddr>>,
    networks: HashMap<String, u32>,
    services: HashMap<String, Service>,
    protocols: HashMap<String, u8>,
    ethers: HashMap<String, [u8; 6]>,
}

impl NameTables {
    /// With the names of a file like `/etc/hosts`; invalid lines are skipped, here and below.
    #[must_use]
    pub fn hosts(mut self, text: &str) -> Self {
        for (address, names) in lines(text) {
            let Ok(address) = address.parse::<IpAddr>() else { continue };
            for name in names {
                self.hosts.entry(name.to_owned()).or_default().push(address);
            }
        }
        self
    }

    /// With the names of a file like `/etc/networks`.
    #[must_use]
    pub fn networks(mut self, text: &str) -> Self {
        for (name, mut rest) in lines(text) {
            let Some(number) = rest.next().and_then(network_number) else { continue };
            for name in std::iter::once(name).chain(rest) {
                self.networks.insert(name.to_owned(), number);
            }
        }
        self
    }

    /// With the names of a file like `/etc/services`.
    #[must_use]
    pub fn services(mut self, text: &str) -> Self {
        for (name, mut rest) in lines(text) {
            let Some((port, protocol)) = rest.next().and_then(|field| field.split_once('/')) else {
                continue;
            };
            let Ok(port) = port.parse() else { continue };
            for name in std::iter::once(name).chain(rest) {
                let service = self.services.entry(name.to_owned()).or_default();
                match protocol {
                    "tcp" => service.tcp = service.tcp.or(Some(port)),
                    "udp" => service.udp = service.udp.or(Some(port)),
                    _ => {}
                }
            }
        }
        self
    }

    /// With the names of a file like `/etc/protocols`.
    #[must_use]
    pub fn protocols(mut self, text: &str) -> Self {
        for (name, mut rest) in lines(text) {
            let Some(number) = rest.next().and_then(|field| field.parse().ok()) else { continue };
            for name in std::iter::once(name).chain(rest) {
                self.protocols.insert(name.to_owned(), number);
            }
        }
        self
    }

    /// With the names of a file like `/etc/ethers`.
    #[must_use]
    pub fn ethers(mut self, text: &str) -> Self {
        for (address, names) in lines(text) {
            let bytes: Option<Vec<_>> =
                address.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
            let Some(Ok(address)) = bytes.map(<[u8; 6]>::try_from) else { continue };
            for name in names {
                self.ethers.insert(name.to_owned(), address);
            }
        }
        self
    }
}

impl Names for NameTables {
    fn host(&self, name: &str) -> Vec<IpAddr> {
        let known = self.hosts.get(name).cloned();
        known.unwrap_or_else(|| if name == "localhost" { LOCALHOST.to_vec() } else { Vec::new() })
    }

    fn network(&self, name: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let known = self.networks.get(name).copied().or((name == "loopback").then_some(127));
        let (number, mask) = shifted(known?);
        Some((number.into(), mask.into()))
    }

    fn service(&self, name: &str) -> Option<Service> {
        self.services.get(name).copied().or_else(|| {
            let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
            let (_, port, over) = SERVICES.iter().find(|(known, ..)| *known == name)?;
            let on = |letter| over.contains(letter).then_some(*port);
            Some(Service { tcp: on('t'), udp: on('u') })
        })
    }

    fn protocol(&self, name: &str) -> Option<u8> {
        let known = || PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
        self.protocols.get(name).copied().or_else(known)
    }

    fn ether(&self, name: &str) -> Option<[u8; 6]> {
        self.ethers.get(name).copied()
    }
}

/// A network's number shifted to its place in an address, and the mask of its bytes.
pub(crate) fn shifted(mut number: u32) -> (u32, u32) {
    let mut mask = u32::MAX;
    while number != 0 && number >> 24 == 0 {
        (number, mask) = (number << 8, mask << 8);
    }
    (number, mask)
}

fn network_number(text: &str) -> Option<u32> {
    let bytes: Option<Vec<u8>> = text.split('.').map(|byte| byte.parse().ok()).collect();
    let mut bytes = bytes.filter(|bytes| bytes.len() <= 4)?;
    // `127.0.0.0` is written for network 127.
    while bytes.len() > 1 && bytes.last() == Some(&0) {
        bytes.pop();
    }
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// First word and other words of each line that is not empty; `#` begins a comment.
fn lines(text: &str) -> impl Iterator<Item = (&str, std::str::SplitWhitespace<'_>)> {
    text.lines().filter_map(|line| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        Some((words.next()?, words))
    })
}

/// RFC 6761, section 6.3.
const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// IANA's Service Name and Transport Protocol Port Number Registry, from Debian's netbase: over TCP, UDP.
const SERVICES: &[(&str, u16, &str)] = &[
    ("echo", 7, "tu"),
    ("discard", 9, "tu"),
    ("daytime", 13, "tu"),
    ("chargen", 19, "tu"),
    ("ftp-data", 20, "t"),
    ("ftp", 21, "t"),
    ("ssh", 22, "t"),
    ("telnet", 23, "t"),
    ("smtp", 25, "t"),
    ("time", 37, "tu"),
    ("whois", 43, "t"),
    ("tacacs", 49, "tu"),
    ("domain", 53, "tu"),
    ("bootps", 67, "u"),
    ("bootpc", 68, "u"),
    ("tftp", 69, "u"),
    ("gopher", 70, "t"),
    ("finger", 79, "t"),
    ("http", 80, "t"),
    ("kerberos", 88, "tu"),
    ("pop3", 110, "t"),
    ("sunrpc", 111, "tu"),
    ("nntp", 119, "t"),
    ("ntp", 123, "u"),
    ("netbios-ns", 137, "u"),
    ("netbios-dgm", 138, "u"),
    ("netbios-ssn", 139, "t"),
    ("imap2", 143, "t"),
    ("snmp", 161, "tu"),
    ("snmp-trap", 162, "tu"),
    ("bgp", 179, "t"),
    ("ldap", 389, "tu"),
    ("https", 443, "tu"),
    ("microsoft-ds", 445, "t"),
    ("submissions", 465, "t"),
    ("isakmp", 500, "u"),
    ("syslog", 514, "u"),
    ("route", 520, "u"),
    ("dhcpv6-client", 546, "u"),
    ("dhcpv6-server", 547, "u"),
    ("rtsp", 554, "tu"),
    ("submission", 587, "t"),
    ("ipp", 631, "t"),
    ("ldaps", 636, "tu"),
    ("ldp", 646, "tu"),
    ("domain-s", 853, "tu"),
    ("rsync", 873, "t"),
    ("imaps", 993, "t"),
    ("pop3s", 995, "t"),
    ("openvpn", 1194, "tu"),
    ("ms-sql-s", 1433, "t"),
    ("l2f", 1701, "u"),
    ("radius", 1812, "tu"),
    ("radius-acct", 1813, "tu"),
    ("mqtt", 1883, "t"),
    ("nfs", 2049, "tu"),
    ("mysql", 3306, "t"),
    ("stun", 3478, "tu"),
    ("ipsec-nat-t", 4500, "u"),
    ("vxlan", 4789, "u"),
    ("sip", 5060, "tu"),
    ("sip-tls", 5061, "tu"),
    ("xmpp-client", 5222, "t"),
    ("mdns", 5353, "u"),
    ("postgresql", 5432, "t"),
    ("amqp", 5672, "t"),
    ("geneve", 6081, "u"),
    ("redis", 6379, "t"),
    ("http-alt", 8080, "t"),
];

/// Other names of these services, from Debian's netbase.
const ALIASES: &[(&str, &str)] = &[
    ("imap", "imap2"),
    ("jabber-client", "xmpp-client"),
    ("kerberos-sec", "kerberos"),
    ("kerberos5", "kerberos"),
    ("krb5", "kerberos"),
    ("l2tp", "l2f"),
    ("mail", "smtp"),
    ("nicname", "whois"),
    ("null", "discard"),
    ("pop-3", "pop3"),
    ("portmapper", "sunrpc"),
    ("postgres", "postgresql"),
    ("radacct", "radius-acct"),
    ("readnews", "nntp"),
    ("routed", "route"),
    ("router", "route"),
    ("sink", "discard"),
    ("smtps", "submissions"),
    ("snmptrap", "snmp-trap"),
    ("source", "chargen"),
    ("ssmtp", "submissions"),
    ("timserver", "time"),
    ("ttytst", "chargen"),
    ("untp", "nntp"),
    ("urd", "submissions"),
    ("webcache", "http-alt"),
    ("www", "http"),
];

/// IANA's Assigned Internet Protocol Numbers.
const PROTOCOLS: &[(&str, u8)] = &[
    ("ip", 0),
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("dccp", 33),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("skip", 57),
    ("ipv6-icmp", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("rspf", 73),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("ax.25", 93),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("fc", 133),
    ("mobility-header", 135),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("manet", 138),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
];
