//! A dropped packet as text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bpf::DropSample;

/// `198.18.0.1:1000 → 198.19.0.1:53 UDP`; `None` when it is not an IP packet, or was not copied.
pub fn flow_words(sample: &DropSample) -> Option<String> {
    let bytes = &sample.bytes[..];
    let (from, to, protocol, ports): (IpAddr, IpAddr, u8, usize) = match bytes.first()? >> 4 {
        4 => {
            let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
            let header = usize::from(bytes[0] & 0xf) * 4;
            // Only the first fragment has ports.
            let fragment = u16::from_be_bytes([*bytes.get(6)?, *bytes.get(7)?]) & 0x1fff;
            let ports = if fragment == 0 { header } else { usize::MAX };
            (address(12)?.into(), address(16)?.into(), *bytes.get(9)?, ports)
        }
        6 => {
            let address =
                |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?));
            (address(8)?.into(), address(24)?.into(), *bytes.get(6)?, 40)
        }
        _ => return None,
    };
    let port = |at: usize| {
        let at = ports.checked_add(at)?;
        Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
    };
    let name = match protocol {
        1 | 58 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        other => format!("protocol {other}"),
    };
    match (port(0), port(2)) {
        (Some(source), Some(destination)) if matches!(protocol, 6 | 17) => {
            let end = |address: IpAddr, port: u16| std::net::SocketAddr::from((address, port));
            Some(format!("{} → {} {name}", end(from, source), end(to, destination)))
        }
        _ => Some(format!("{from} → {to} {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(bytes: Vec<u8>) -> DropSample {
        DropSample { bytes, ..DropSample::default() }
    }

    #[test]
    fn packets_are_told_by_addresses_ports_and_protocol() {
        let mut four = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 19, 0, 2];
        assert_eq!(
            flow_words(&sample(four.clone())).unwrap(),
            "198.18.0.1 → 198.19.0.2 UDP",
            "no ports copied"
        );
        four.extend([0x03, 0xe8, 0, 53]);
        assert_eq!(flow_words(&sample(four.clone())).unwrap(), "198.18.0.1:1000 → 198.19.0.2:53 UDP");
        four[7] = 1;
        assert_eq!(flow_words(&sample(four)).unwrap(), "198.18.0.1 → 198.19.0.2 UDP", "a later fragment");
        let mut six = vec![0; 44];
        (six[0], six[6], six[23], six[39]) = (0x60, 6, 1, 2);
        six[41] = 80;
        assert_eq!(flow_words(&sample(six)).unwrap(), "[::1]:80 → [::2]:0 TCP");
        assert_eq!(flow_words(&sample(vec![0x00; 40])), None);
        assert_eq!(flow_words(&sample(Vec::new())), None);
    }
}
