//! Packets that are never diverted, so that no user is locked out.

use std::{
    fmt, fs,
    net::{IpAddr, SocketAddr},
    path::Path,
    str::FromStr,
};

use bpf::TcpSession;
use serde::Serialize;

/// Packets that go to the kernel regardless of the rules. ARP and neighbour discovery always do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Exclusions {
    /// TCP connections of this machine's remote users.
    pub sessions: Vec<Session>,
    /// Networks that manage this machine.
    pub networks: Vec<Network>,
}

/// A TCP connection: the other end, and our port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Session {
    /// The other end.
    pub peer: SocketAddr,
    /// Our port.
    pub local_port: u16,
}

/// A network: `192.0.2.0/24`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Bits of the address that all its members share.
    pub prefix_len: u8,
}

impl Exclusions {
    /// The SSH connections of this process and of its ancestors, as far as they
    /// may be read. `sudo` clears the variable; its parents still have it.
    #[must_use]
    pub fn of_this_session() -> Self {
        Self { sessions: sessions_of(Path::new("/proc"), std::process::id()), networks: Vec::new() }
    }
}

/// What sshd left in the environment of a process or of one of its ancestors.
fn sessions_of(proc: &Path, pid: u32) -> Vec<Session> {
    let mut found = Vec::new();
    let mut at = Some(pid);
    // Real process trees are not deeper.
    for _ in 0..64 {
        let Some(pid) = at.filter(|pid| *pid > 1) else { break };
        let folder = proc.join(pid.to_string());
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        let session = environment
            .split(|byte| *byte == 0)
            .filter_map(|variable| std::str::from_utf8(variable).ok())
            .find_map(|variable| variable.strip_prefix("SSH_CONNECTION=")?.parse().ok());
        if let Some(session) = session.filter(|session| !found.contains(session)) {
            found.push(session);
        }
        // Name in brackets, state, parent: the name may hold anything.
        let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
        at = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
    }
    found
}

impl Session {
    pub(crate) fn for_program(&self) -> TcpSession {
        TcpSession { peer: self.peer, local_port: self.local_port }
    }
}

impl FromStr for Session {
    type Err = ();

    /// From the value of `SSH_CONNECTION`: address and port of the client, then of the server.
    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.split(' ').collect();
        let [address, port, _, local_port] = words[..] else { return Err(()) };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        // As packets have it: a server that listens on `::` says ::ffff:192.0.2.1.
        let address = address.to_canonical();
        let peer = SocketAddr::new(address, port.parse().map_err(|_| ())?);
        Ok(Self { peer, local_port: local_port.parse().map_err(|_| ())? })
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to port {}", self.peer, self.local_port)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix_len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
        let wrong = || format!("'{text}' is no network: write for example 192.0.2.0/24 or 2001:db8::/32");
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix_len = prefix_len.map_or(Ok(width), |len| len.parse().map_err(|_| wrong()))?;
        if prefix_len > width { Err(wrong()) } else { Ok(Self { address, prefix_len }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_is_found_behind_sudo_and_once() {
        let folder = testing::own_folder();
        let ssh = "HOME=/root\0SSH_CONNECTION=::ffff:192.0.2.9 50000 192.0.2.1 22\0";
        for (pid, parent, environment) in
            [(30, 20, "PATH=/bin\0"), (20, 10, "SUDO_USER=a\0"), (10, 5, ssh), (5, 1, ssh)]
        {
            let process = folder.join(pid.to_string());
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("environ"), environment).unwrap();
            fs::write(process.join("stat"), format!("{pid} (a) S (b) S {parent} 0 0")).unwrap();
        }
        let expected = Session { peer: "192.0.2.9:50000".parse().unwrap(), local_port: 22 };
        assert_eq!(sessions_of(&folder, 30), [expected]);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(sessions_of(&folder, 30), []);
    }

    #[test]
    fn a_network_is_an_address_and_a_length() {
        let network: Network = "192.0.2.0/24".parse().unwrap();
        assert_eq!(network.to_string(), "192.0.2.0/24");
        assert_eq!("2001:db8::1".parse::<Network>().unwrap().prefix_len, 128);
        for wrong in ["", "192.0.2.0/33", "192.0.2.0/", "eth0", "192.0.2.0/24/1"] {
            assert!(wrong.parse::<Network>().unwrap_err().contains("is no network"), "{wrong}");
        }
    }
}
