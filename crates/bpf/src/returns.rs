//! The addresses that a measuring program sends probes back to.

use std::{fmt, net::IpAddr};

use aya::maps::{HashMap, MapData};

use crate::error::BpfError;

/// Senders that agreed to receive their probes back; the running program looks here for every probe.
pub struct ReturnMap {
    map: HashMap<MapData, [u64; 3], u32>,
}

impl ReturnMap {
    pub(crate) fn over(map: HashMap<MapData, [u64; 3], u32>) -> Self {
        Self { map }
    }

    /// Allows returning this sender's probes.
    ///
    /// # Errors
    /// [`BpfError::Map`] when the map holds 256 others.
    pub fn allow(&mut self, sender: IpAddr) -> Result<(), BpfError> {
        let refused = BpfError::map(format!("allow returning probes to {sender}"));
        self.map.insert(key(sender), 1, 0).map_err(refused)
    }

    /// Revokes it.
    ///
    /// # Errors
    /// [`BpfError::Map`] when it was not allowed before.
    pub fn forget(&mut self, sender: IpAddr) -> Result<(), BpfError> {
        let refused = BpfError::map(format!("stop returning probes to {sender}"));
        self.map.remove(&key(sender)).map_err(refused)
    }
}

/// `struct returns_key` of `measure.bpf.c`: the address in header order, and its version.
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
