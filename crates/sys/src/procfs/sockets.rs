//! `/proc/net/udp` and `udp6`: sockets, their unread memory and their drops. Columns: `udp4_format_sock` in
//! `net/ipv4/udp.c`.

use super::line::{ParseError, lines};

/// A UDP socket of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpSocketState {
    /// `socket:[<n>]` under `/proc/<pid>/fd`.
    pub inode: u64,
    /// The local port.
    pub port: u16,
    /// Memory of datagrams that the application has not read.
    pub unread_bytes: u64,
    /// Buffers dropped since it was opened.
    pub dropped: u64,
}

/// Reads `udp` or `udp6`: a line of names, and a line for each socket.
pub fn parse_udp_sockets(text: &str) -> Result<Vec<UdpSocketState>, ParseError> {
    let mut sockets = Vec::new();
    for (line, bad) in lines(text).skip(1) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // sl local remote st tx:rx tr:when retransmits uid timeout inode ref pointer drops
        let [_, local, _, _, queues, _, _, _, _, inode, _, _, dropped] = words[..] else {
            return Err(bad("13 columns of a socket"));
        };
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let port = local.rsplit(':').next().and_then(hexadecimal).and_then(|port| u16::try_from(port).ok());
        let unread = queues.split_once(':').and_then(|(_, unread)| hexadecimal(unread));
        let socket = (inode.parse().ok(), port, unread, dropped.parse().ok());
        let (Some(inode), Some(port), Some(unread_bytes), Some(dropped)) = socket else {
            return Err(bad("a socket's numbers"));
        };
        sockets.push(UdpSocketState { inode, port, unread_bytes, dropped });
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_read_with_their_unread_bytes_and_drops() {
        let text = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
             \x20 62: 0100007F:0035 00000000:0000 07 00000000:00000900 00:00000000 00000000   101        0 18242 2 0000000000000000 17\n";
        let [socket] = parse_udp_sockets(text).unwrap()[..] else { panic!("one socket") };
        assert_eq!(socket, UdpSocketState { inode: 18242, port: 53, unread_bytes: 0x900, dropped: 17 });
        assert!(parse_udp_sockets("names\n1: 2\n").unwrap_err().to_string().contains("13 columns"));
        assert!(parse_udp_sockets("names\n1 a:zz c 4 5:6 7 8 9 10 11 12 13 14\n").is_err());
    }

    #[test]
    fn a_datagram_that_nobody_reads_stands_in_the_socket_s_line() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        socket.send_to(&[0; 100], to).unwrap();
        let sockets = crate::procfs::udp_sockets().unwrap();
        let own = sockets.iter().find(|other| other.port == to.port() && other.unread_bytes > 0).unwrap();
        assert_eq!(own.dropped, 0);
    }
}
