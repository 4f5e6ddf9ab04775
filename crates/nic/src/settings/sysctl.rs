//! `sysctl.*`: the machine's settings that limit packet processing, and what each of them limits.

use std::path::PathBuf;

use super::kind::{Kind, Wrong};
use crate::{Card, NicError, card};

pub(super) struct Sysctls;

/// A setting of the whole machine or network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sysctl {
    /// Its name, as in sysctl(8).
    pub name: &'static str,
    /// What it really bounds.
    pub bounds: &'static str,
}

/// The settings that affect packet rates.
pub const SYSCTLS: [Sysctl; 18] = [
    Sysctl { name: "net.core.rmem_max", bounds: "largest receive buffer a socket may request, in bytes" },
    Sysctl { name: "net.core.rmem_default", bounds: "default receive buffer of a socket, in bytes" },
    Sysctl { name: "net.core.wmem_max", bounds: "largest send buffer a socket may request, in bytes" },
    Sysctl { name: "net.core.wmem_default", bounds: "default send buffer of a socket, in bytes" },
    Sysctl {
        name: "net.ipv4.tcp_rmem",
        bounds: "bytes of a TCP connection's receive buffer: minimum, initial, maximum",
    },
    Sysctl {
        name: "net.ipv4.tcp_wmem",
        bounds: "bytes of a TCP connection's send buffer: minimum, initial, maximum",
    },
    Sysctl { name: "net.ipv4.udp_mem", bounds: "pages of all UDP buffers: no pressure, pressure, maximum" },
    Sysctl {
        name: "net.core.netdev_max_backlog",
        bounds: "packets waiting per CPU from RPS, loopback or an interface without NAPI; not a card's ring",
    },
    Sysctl { name: "net.core.netdev_budget", bounds: "packets one round of the receive softirq may take" },
    Sysctl {
        name: "net.core.netdev_budget_usecs",
        bounds: "microseconds one round of the receive softirq may take",
    },
    Sysctl {
        name: "net.core.dev_weight",
        bounds: "packets one poll of the backlog may take; a card's NAPI has its own 64",
    },
    Sysctl { name: "net.core.busy_read", bounds: "microseconds a read of a socket polls the card itself" },
    Sysctl { name: "net.core.busy_poll", bounds: "microseconds poll and select poll the card themselves" },
    Sysctl {
        name: "net.core.rps_sock_flow_entries",
        bounds: "flows whose reader's CPU is remembered for RFS; 0 is off",
    },
    Sysctl {
        name: "net.core.flow_limit_table_len",
        bounds: "buckets of the table that finds a backlog's largest flows",
    },
    Sysctl { name: "net.core.optmem_max", bounds: "bytes of ancillary data per socket" },
    Sysctl { name: "net.core.default_qdisc", bounds: "the queueing discipline of new interfaces" },
    Sysctl {
        name: "net.core.tstamp_allow_data",
        bounds: "whether transmit timestamps may include the packet's data",
    },
];

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}

/// The files separate numbers by tabs; one space reads better.
fn normal(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

impl Kind for Sysctls {
    fn prefix(&self) -> &'static str {
        "sysctl"
    }

    fn read(&self, _: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        let value =
            |sysctl: &Sysctl| Some((sysctl.name.to_owned(), normal(&card::read(&path(sysctl.name)).ok()?)));
        Ok(SYSCTLS.iter().filter_map(value).collect())
    }

    fn resolve(&self, _: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        SYSCTLS.iter().find(|sysctl| sysctl.name == key).ok_or(Wrong::NoSuchKey)?;
        let now = card::read(&path(key)).map_err(|_| Wrong::NoSuchKey)?;
        let (now, value) = (normal(&now), normal(value));
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        let alike = now.split(' ').count() == value.split(' ').count()
            && now.split(' ').zip(value.split(' ')).all(|(now, value)| !is_number(now) || is_number(value));
        if alike { Ok(value) } else { Err(Wrong::Expected(format!("something like '{now}'"))) }
    }

    fn write(&self, _: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        changes.iter().try_for_each(|(key, value)| card::write(&path(key), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_are_one() {
        assert_eq!(normal("4096\t131072\t6291456\n"), "4096 131072 6291456");
        assert_eq!(path("net.core.rmem_max"), PathBuf::from("/proc/sys/net/core/rmem_max"));
    }
}
