//! Connections that a change of an interface would cut, for example SSH logins through it.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use crate::{Card, NicError};

/// The remote ends of inbound connections through the interface: SSH sessions and others
/// to a listening port.
///
/// # Errors
/// When the interface is gone.
pub fn connections_through(card: &mut Card) -> Result<Vec<SocketAddr>, NicError> {
    let addresses = card.route.addresses(card.index())?;
    let text = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let sockets: Vec<Socket> =
        [text("tcp"), text("tcp6")].iter().flat_map(|text| text.lines().filter_map(parse)).collect();
    Ok(inbound(&sockets, &addresses))
}

/// One TCP socket of `/proc/net/tcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
}

const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

fn inbound(sockets: &[Socket], addresses: &[IpAddr]) -> Vec<SocketAddr> {
    let listening: BTreeSet<u16> =
        sockets.iter().filter(|socket| socket.state == LISTEN).map(|socket| socket.local.port()).collect();
    let cut = sockets.iter().filter(|socket| {
        socket.state == ESTABLISHED
            && addresses.contains(&socket.local.ip())
            && (socket.local.port() == 22 || listening.contains(&socket.local.port()))
    });
    cut.map(|socket| socket.remote).collect()
}

/// `  0: 0100007F:0016 0200007F:A1B2 01 …`: number, local, remote, state, each in hex.
fn parse(line: &str) -> Option<Socket> {
    let mut words = line.split_ascii_whitespace();
    words.next()?.strip_suffix(':')?.parse::<u32>().ok()?;
    let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
    Some(Socket { local, remote, state: u8::from_str_radix(words.next()?, 16).ok()? })
}

/// Words of 32 bits in the machine's order; an IPv4 address may be mapped into an IPv6 one.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let octets: [u8; 16] = [word(0)?, word(1)?, word(2)?, word(3)?].concat().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue
   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000
   1: 0101A8C0:0016 0201A8C0:C001 01 00000000:00000000 02:000A
   2: 0101A8C0:0050 0301A8C0:C002 01 00000000:00000000 02:000A
   3: 0101A8C0:C003 0401A8C0:01BB 01 00000000:00000000 02:000A";
    const TCP6: &str =
        "   0: 0000000000000000FFFF00000101A8C0:0016 0000000000000000FFFF00000501A8C0:C004 01 0 0";

    #[test]
    fn who_came_in_through_the_interface_is_found() {
        let sockets: Vec<Socket> =
            [TCP, TCP6].iter().flat_map(|text| text.lines().filter_map(parse)).collect();
        let ends = |address: &str| -> Vec<String> {
            inbound(&sockets, &[address.parse().unwrap()]).iter().map(ToString::to_string).collect()
        };
        assert_eq!(ends("192.168.1.1"), ["192.168.1.2:49153", "192.168.1.3:49154", "192.168.1.5:49156"]);
        assert_eq!(ends("192.168.1.9"), [""; 0]);
    }
}
