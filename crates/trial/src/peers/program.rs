//! The other generators, and the requirements of each.

use std::{env, fmt, os::unix::fs::PermissionsExt, path::PathBuf, str::FromStr};

use measure::Skipped;
use serde::{Deserialize, Serialize};

/// Another generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// iperf3 over UDP; needs its own receiver.
    Iperf3,
    /// netperf's UDP_STREAM; needs its own receiver.
    Netperf,
    /// sockperf's throughput test.
    Sockperf,
    /// DPDK's testpmd over AF_PACKET, sending only.
    Testpmd,
    /// netsniff-ng's trafgen.
    Trafgen,
}

impl Peer {
    /// All, in the order of the table.
    pub const ALL: [Self; 5] = [Self::Iperf3, Self::Netperf, Self::Sockperf, Self::Trafgen, Self::Testpmd];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Netperf => "netperf",
            Self::Sockperf => "sockperf",
            Self::Testpmd => "testpmd",
            Self::Trafgen => "trafgen",
        }
    }

    /// The required programs, the sending one first.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Iperf3 => &["iperf3"],
            Self::Netperf => &["netperf", "netserver"],
            Self::Sockperf => &["sockperf"],
            Self::Testpmd => &["dpdk-testpmd"],
            Self::Trafgen => &["trafgen"],
        }
    }

    /// The first letters of its threads' names.
    pub(super) fn threads(self) -> &'static [&'static str] {
        match self {
            // DPDK names its workers, and changed the names once.
            Self::Testpmd => &["dpdk-", "lcore-"],
            other => other.programs(),
        }
    }

    /// Its Debian packages.
    fn packages(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Netperf => "netperf, section non-free",
            Self::Sockperf => "sockperf",
            Self::Testpmd => "dpdk-dev, librte-net-af-packet23 and librte-mempool-ring23",
            Self::Trafgen => "netsniff-ng",
        }
    }

    /// Whether it sends only to a receiver of its own.
    pub fn needs_own_receiver(self) -> bool {
        matches!(self, Self::Iperf3 | Self::Netperf)
    }

    /// Whether it makes whole frames, bypassing the kernel's UDP.
    pub fn makes_frames(self) -> bool {
        matches!(self, Self::Testpmd | Self::Trafgen)
    }

    /// Why it is unavailable, if so; `is_one_size` is whether all packets have the same size.
    pub fn why_not(self, is_one_size: bool, ipv6: bool) -> Option<Skipped> {
        let missing = self.programs().iter().find(|program| find(program).is_none());
        let reason = match missing {
            Some(program) => format!("{program} is not installed (Debian: {})", self.packages()),
            None if !is_one_size => "sends packets of one size only".into(),
            None if ipv6 && self.makes_frames() => "makes IPv4 frames only".into(),
            None => return None,
        };
        Some(Skipped { engine: format!("{} (tx)", self.name()), reason })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|peer| peer.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown peer '{text}': expected one of {known}")
        })
    }
}

/// The first executable file of that name in `PATH` or the folders of administrators' programs.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_their_usual_names() {
        for peer in Peer::ALL {
            assert_eq!(peer.name().parse(), Ok(peer));
        }
        let unknown = "iperf2".parse::<Peer>().unwrap_err();
        assert_eq!(
            unknown,
            "unknown peer 'iperf2': expected one of iperf3, netperf, sockperf, trafgen, testpmd"
        );
    }

    #[test]
    fn programs_are_found_where_the_shell_finds_them() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
