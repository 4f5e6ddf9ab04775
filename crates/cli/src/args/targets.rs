//! Addresses as users write them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs},
    str::FromStr,
};

use sys::rtnetlink::RouteSocket;

/// The default port, the same as udpreceiver's.
const PORT: u16 = 4321;

/// A receiver's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target(pub(crate) SocketAddr);

/// An address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) address: SocketAddr,
    /// Whether the user named the address; otherwise any will do.
    pub(crate) any: bool,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return if address.port() == 0 { Err(format!("'{text}' has port 0")) } else { Ok(Self(address)) };
        }
        if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(Self((address, PORT).into()));
        }
        if let Some(scoped) = link_local(text) {
            return scoped.map(Self);
        }
        let named = if text.contains(':') { text.to_owned() } else { format!("{text}:{PORT}") };
        let found = named.to_socket_addrs().ok().and_then(|mut all| all.next());
        found.map(Self).ok_or_else(|| {
            format!(
                "'{text}' is neither an address nor a known host: write ADDRESS, ADDRESS:PORT or [V6]:PORT"
            )
        })
    }
}

/// An IPv6 address with its interface, by name or number: `fe80::1%eth0`, `[fe80::1%2]:53`. `None` for other texts.
fn link_local(text: &str) -> Option<Result<SocketAddr, String>> {
    let (bare, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (bare, behind) = rest.split_once(']')?;
            let port = if behind.is_empty() { PORT } else { behind.strip_prefix(':')?.parse().ok()? };
            (bare, port)
        }
        None => (text, PORT),
    };
    let (address, interface) = bare.split_once('%')?;
    let address: Ipv6Addr = address.parse().ok()?;
    if port == 0 {
        return Some(Err(format!("'{text}' has port 0")));
    }
    let scope = interface.parse().ok().filter(|number| *number > 0).or_else(|| {
        let link = RouteSocket::open().and_then(|mut route| route.link_by_name(interface));
        Some(link.ok()?.index)
    });
    Some(match scope {
        Some(scope) => Ok(SocketAddrV6::new(address, port, 0, scope).into()),
        None => Err(format!("'{text}' names the interface '{interface}', which does not exist")),
    })
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self { address: (Ipv6Addr::UNSPECIFIED, port).into(), any: true });
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self { address, any: false });
        }
        let address: IpAddr = text.trim_matches(['[', ']']).parse().map_err(|_| {
            format!("'{text}' is not an address to listen on: write ADDRESS:PORT, [V6]:PORT, ADDRESS or PORT")
        })?;
        Ok(Self { address: (address, PORT).into(), any: false })
    }
}

impl Listen {
    /// The same port on every IPv4 address, for kernels without IPv6.
    pub(crate) fn ipv4(self) -> SocketAddr {
        (Ipv4Addr::UNSPECIFIED, self.address.port()).into()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.any { self.address.port().fmt(f) } else { self.address.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_with_and_without_port() {
        for (text, address) in [
            ("192.0.2.1", "192.0.2.1:4321"),
            ("192.0.2.1:53", "192.0.2.1:53"),
            ("2001:db8::1", "[2001:db8::1]:4321"),
            ("[2001:db8::1]", "[2001:db8::1]:4321"),
            ("[2001:db8::1]:53", "[2001:db8::1]:53"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), address);
        }
        for (text, address) in [
            ("fe80::1%lo", "[fe80::1%1]:4321"),
            ("fe80::1%2", "[fe80::1%2]:4321"),
            ("[fe80::1%lo]:53", "[fe80::1%1]:53"),
            ("[fe80::1%7]", "[fe80::1%7]:4321"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), address);
        }
        let missing = "fe80::1%nowhere".parse::<Target>().unwrap_err();
        assert!(missing.contains("the interface 'nowhere', which does not exist"), "{missing}");
        assert!("[fe80::1%lo]:0".parse::<Target>().unwrap_err().contains("port 0"));
        assert!("192.0.2.1:0".parse::<Target>().unwrap_err().contains("port 0"));
        assert!("192.0.2.999".parse::<Target>().unwrap_err().contains("neither an address"));
    }

    #[test]
    fn listening_on_a_port_or_an_address() {
        let listen: Listen = "53".parse().unwrap();
        assert!(listen.any && listen.address.port() == 53 && listen.ipv4().to_string() == "0.0.0.0:53");
        assert_eq!("10.0.0.1".parse::<Listen>().unwrap().to_string(), "10.0.0.1:4321");
        assert_eq!("[::1]:9".parse::<Listen>().unwrap().to_string(), "[::1]:9");
        assert!("nowhere".parse::<Listen>().unwrap_err().contains("not an address to listen on"));
    }
}
