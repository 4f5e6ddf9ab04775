//! The addresses that a measuring program sends probes back to.

use std::{fmt, net::IpAddr};

use aya::maps::{HashMap, MapData};

use crate::error::BpfError;

/// Senders who agreed that their probes come back; while the program runs, it looks here for every probe.
pub struct ReturnMap {
    map: HashMap<MapData, [u64; 3], u32>,
}

impl ReturnMap {
    pub(crate) fn over(map: HashMap<MapData, [u64; 3], u32>) -> Self {
        Self { map }
    }

    /// Lets this sender's probes go back.
    ///
    /// # Errors
    /// [`BpfError::Map`] when 256 others are there.
    pub fn allow(&mut self, sender: IpAddr) -> Result<(), BpfError> {
        let refused = BpfError::map(format!("let probes go back to {sender}"));
        self.map.insert(key(sender), 1, 0).map_err(refused)
    }

    /// Lets them no more.
    ///
    /// # Errors
    /// [`BpfError::Map`] when it was not allowed before.
    pub fn forget(&mut self, sender: IpAddr) -> Result<(), BpfError> {
        let refused = BpfError::map(format!("let probes no longer go back to {sender}"));
        self.map.remove(&key(sender)).map_err(refused)
    }
}

/// `struct returns_key` of `measure.bpf.c`: the address as it stands in a header, and its version.
fn key(address: IpAddr) -> [u64; 3] {
    match address {
        IpAddr::V4(address) => [u32::from_ne_bytes(address.octets()).into(), 0, 0],
        IpAddr::V6(address) => {
            let octets = address.octets();
            let half = |at: usize| u64::from_ne_bytes(*octets[at..].first_chunk().expect("16 octets"));
            [half(0), half(8), 1]
        }
    }
}

impl fmt::Debug for ReturnMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReturnMap").finish_non_exhaustive()
    }
}
