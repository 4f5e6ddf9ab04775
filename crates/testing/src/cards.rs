//! A fake card: answers ethtool's requests byte by byte like a driver, with its errors and limits.
//!
//! The limits are from the drivers' sources in Linux 6.x: `ixgbe_ethtool.c`, `i40e_ethtool.c`, `en_fs_ethtool.c` of mlx5,
//! `ena_ethtool.c` and `igb_ethtool.c`.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sys::ethtool::{EthtoolEnd, EthtoolSocket};

/// The driver that a [`FakeCard`] imitates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeDriver {
    /// No IPv6, one mask for all rules, the caller chooses locations, rules only when turned on.
    Ixgbe,
    /// Whole fields only, one mask per kind of packet, the caller chooses locations.
    I40e,
    /// Any masks, IPv6, contexts, the card chooses locations.
    Mlx5,
    /// A table and no rules.
    Ena,
    /// A table, and rules of Ethernet types only.
    Igb,
}

/// A card in memory.
#[derive(Debug)]
pub struct FakeCard {
    driver: FakeDriver,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    switched_on: bool,
    table: Vec<u32>,
    contexts: BTreeMap<u32, Vec<u32>>,
    /// `struct ethtool_rx_flow_spec` and the context, by location.
    rules: BTreeMap<u32, (Vec<u8>, u32)>,
    /// Requests that changed something, by name, in order.
    log: Vec<&'static str>,
    /// Refuses further rules with "no space".
    is_full: bool,
}

const QUEUES: u32 = 8;
const BUCKETS: usize = 128;
const KEY: usize = 40;
const NTUPLE: &str = "rx-ntuple-filter";
const FEATURES: [&str; 3] = ["rx-checksum", "rx-gro", NTUPLE];

const EINVAL: i32 = 22;
const ENOENT: i32 = 2;
const ENOSPC: i32 = 28;
const EOPNOTSUPP: i32 = 95;

/// Offsets in `struct ethtool_rxnfc`.
mod nfc {
    pub(super) const DATA: usize = 8;
    pub(super) const SPEC: usize = 16;
    pub(super) const SPEC_LEN: usize = 168;
    /// `rule_cnt`, and `rss_context` in its place.
    pub(super) const COUNT: usize = 184;
    pub(super) const PLACES: usize = 188;
    /// Within the specification.
    pub(super) const VALUES: usize = 4;
    pub(super) const MASKS: usize = 76;
    pub(super) const COOKIE: usize = 152;
    pub(super) const LOCATION: usize = 160;
}

const TO_CONTEXT: u32 = 0x2000_0000;
const DISCARD: u64 = u64::MAX;
const LOC_SPECIAL: u64 = 0x8000_0000;

impl FakeDriver {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Ixgbe, Self::I40e, Self::Mlx5, Self::Ena, Self::Igb];

    /// The driver's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ixgbe => "ixgbe",
            Self::I40e => "i40e",
            Self::Mlx5 => "mlx5_core",
            Self::Ena => "ena",
            Self::Igb => "igb",
        }
    }

    /// Size of its rule table.
    fn places(self) -> u32 {
        match self {
            // (1024 << pballoc) - 2, for the smallest.
            Self::Ixgbe => 2046,
            Self::I40e => 512,
            Self::Mlx5 => 1024,
            Self::Igb => 16,
            Self::Ena => 0,
        }
    }
}

impl FakeCard {
    /// A card in its driver's initial state: rules off on ixgbe and igb.
    pub fn new(driver: FakeDriver) -> Arc<Self> {
        let state = State {
            switched_on: !matches!(driver, FakeDriver::Ixgbe | FakeDriver::Igb),
            table: default_table(),
            contexts: BTreeMap::new(),
            rules: BTreeMap::new(),
            log: Vec::new(),
            is_full: false,
        };
        Arc::new(Self { driver, state: Mutex::new(state) })
    }

    /// A socket whose requests this card answers.
    pub fn socket(self: &Arc<Self>) -> EthtoolSocket {
        EthtoolSocket::over(self.clone())
    }

    /// Its receive queues.
    pub fn queues(&self) -> u32 {
        QUEUES
    }

    /// Takes the requests that changed something, by name, in order.
    pub fn take_log(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().log)
    }

    /// Where hashes lead.
    pub fn table(&self) -> Vec<u32> {
        self.state().table.clone()
    }

    /// Where its rules are.
    pub fn places(&self) -> Vec<u32> {
        self.state().rules.keys().copied().collect()
    }

    /// Refuses further rules with "no space", or accepts them again.
    pub fn fill(&self, is_full: bool) {
        self.state().is_full = is_full;
    }

    /// What a driver may do when a program or a zero-copy socket is attached: reset to its own table, without rules.
    pub fn reset(&self) {
        let mut state = self.state();
        state.table = default_table();
        state.rules.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_contexts(&self) -> bool {
        self.driver == FakeDriver::Mlx5
    }

    fn has_rules(&self) -> bool {
        self.driver != FakeDriver::Ena
    }

    fn insert(&self, state: &mut State, request: &mut [u8]) -> Result<(), i32> {
        if !self.has_rules() || !state.switched_on {
            return Err(EOPNOTSUPP);
        }
        let mut spec = request[nfc::SPEC..][..nfc::SPEC_LEN].to_vec();
        let kind = word(&spec, 0);
        let mut location = word(&spec, nfc::LOCATION);
        let context = word(request, nfc::COUNT);
        if location == u32::MAX && self.driver == FakeDriver::Mlx5 {
            location =
                (0..self.driver.places()).rev().find(|at| !state.rules.contains_key(at)).ok_or(ENOSPC)?;
        }
        if location >= self.driver.places() {
            return Err(if self.driver == FakeDriver::Mlx5 { ENOSPC } else { EINVAL });
        }
        if kind & TO_CONTEXT != 0 && !self.has_contexts() {
            return Err(EINVAL);
        }
        let cookie = u64::from_ne_bytes(spec[nfc::COOKIE..][..8].try_into().expect("8 bytes"));
        if cookie != DISCARD && kind & TO_CONTEXT == 0 && cookie >= u64::from(QUEUES) {
            return Err(EINVAL);
        }
        if kind & TO_CONTEXT != 0 && !state.contexts.contains_key(&context) {
            return Err(ENOENT);
        }
        self.check(state, kind & !TO_CONTEXT, &spec)?;
        if state.is_full {
            return Err(ENOSPC);
        }
        spec[nfc::LOCATION..][..4].copy_from_slice(&location.to_ne_bytes());
        request[nfc::SPEC + nfc::LOCATION..][..4].copy_from_slice(&location.to_ne_bytes());
        state.rules.insert(location, (spec, context));
        Ok(())
    }

    /// Whether the driver accepts a rule of this kind with these masks.
    fn check(&self, state: &State, kind: u32, spec: &[u8]) -> Result<(), i32> {
        let masks = &spec[nfc::MASKS..nfc::COOKIE];
        let is_ip4 = kind == 0x0d;
        match self.driver {
            FakeDriver::Igb => Err(EINVAL),
            FakeDriver::Ena => Err(EOPNOTSUPP),
            FakeDriver::Mlx5 => match kind {
                // TCP, UDP and any protocol; no SCTP.
                0x01 | 0x02 | 0x05 | 0x06 | 0x0d | 0x0e => Ok(()),
                _ => Err(EINVAL),
            },
            FakeDriver::Ixgbe => {
                let takes = matches!(kind, 0x01..=0x03) || is_ip4 && masks[14] == 0;
                if !takes {
                    return Err(EINVAL);
                }
                let other = state.rules.values().next();
                let same = other.is_none_or(|(other, _)| {
                    other[nfc::MASKS..nfc::COOKIE] == *masks
                        && (word(other, 0) & !TO_CONTEXT == 0x0d) == is_ip4
                });
                if same { Ok(()) } else { Err(EINVAL) }
            }
            FakeDriver::I40e => {
                let (fields, is_right): (&[usize], bool) = match kind {
                    0x01..=0x03 => (&[4, 4, 2, 2], true),
                    0x05..=0x07 => (&[16, 16, 2, 2], true),
                    0x0d => (&[4, 4], spec[nfc::VALUES + 13] == 1 && masks[14] == 0),
                    0x0e => (&[16, 16], masks[37] == 0),
                    _ => (&[], false),
                };
                if !is_right {
                    return Err(EOPNOTSUPP);
                }
                let mut at = 0;
                for field in fields {
                    let mask = &masks[at..at + field];
                    if !mask.iter().all(|byte| *byte == 0) && !mask.iter().all(|byte| *byte == 0xff) {
                        return Err(EOPNOTSUPP);
                    }
                    at += field;
                }
                let of_kind = state.rules.values().find(|(other, _)| word(other, 0) == kind);
                let same = of_kind.is_none_or(|(other, _)| other[nfc::MASKS..nfc::COOKIE] == *masks);
                if same { Ok(()) } else { Err(EOPNOTSUPP) }
            }
        }
    }

    fn scaling(&self, state: &mut State, request: &mut [u8], is_change: bool) -> Result<(), i32> {
        let (context, buckets) = (word(request, 4), word(request, 8) as usize);
        if context != 0 && !self.has_contexts() {
            return Err(EOPNOTSUPP);
        }
        if !is_change {
            let table = match context {
                0 => state.table.clone(),
                _ => state.contexts.get(&context).ok_or(ENOENT)?.clone(),
            };
            put(request, 8, BUCKETS as u32);
            put(request, 12, KEY as u32);
            put(request, 16, 1);
            if buckets != 0 {
                table.iter().enumerate().for_each(|(at, queue)| put(request, 24 + at * 4, *queue));
                request[24 + table.len() * 4..][..KEY].fill(0x6d);
            }
            return Ok(());
        }
        let is_new = context == u32::MAX;
        if buckets == 0 && context != 0 {
            return state.contexts.remove(&context).map(drop).ok_or(ENOENT);
        }
        if buckets == u32::MAX as usize {
            return Ok(());
        }
        let table = match buckets {
            0 => default_table(),
            BUCKETS => (0..BUCKETS).map(|at| word(request, 24 + at * 4)).collect(),
            _ => return Err(EINVAL),
        };
        if table.iter().any(|queue| *queue >= QUEUES) {
            return Err(EINVAL);
        }
        match context {
            0 => state.table = table,
            _ if is_new => {
                let number = (1..).find(|number| !state.contexts.contains_key(number)).expect("a number");
                state.contexts.insert(number, table);
                put(request, 4, number);
            }
            number => *state.contexts.get_mut(&number).ok_or(ENOENT)? = table,
        }
        Ok(())
    }

    fn features(&self) -> Vec<(&'static str, bool)> {
        FEATURES
            .into_iter()
            .filter(|name| *name != NTUPLE || self.has_rules())
            .map(|name| (name, true))
            .collect()
    }

    fn answered(&self, request: &mut [u8]) -> Result<(), i32> {
        let mut state = self.state();
        let state = &mut *state;
        let on = |name: &str, state: &State| name != NTUPLE || state.switched_on;
        match word(request, 0) {
            // ETHTOOL_GDRVINFO
            0x03 => {
                let name = self.driver.name().as_bytes();
                request[4..][..name.len()].copy_from_slice(name);
            }
            // ETHTOOL_GSSET_INFO
            0x37 => match word(request, 8) {
                0x10 => put(request, 16, self.features().len() as u32),
                _ => put(request, 8, 0),
            },
            // ETHTOOL_GSTRINGS
            0x1b => {
                for (at, (name, _)) in self.features().into_iter().enumerate() {
                    request[12 + at * 32..][..name.len()].copy_from_slice(name.as_bytes());
                }
            }
            // ETHTOOL_GFEATURES
            0x3a => {
                let features = self.features();
                let bits = |is: &dyn Fn(&str) -> bool| {
                    let set = features.iter().enumerate().filter(|(_, (name, _))| is(name));
                    set.fold(0, |bits, (at, _)| bits | 1_u32 << at)
                };
                put(request, 8, bits(&|_| true));
                put(request, 12, bits(&|name| on(name, state)));
                put(request, 16, bits(&|name| on(name, state)));
            }
            // ETHTOOL_SFEATURES
            0x3b => {
                let at = self.features().iter().position(|(name, _)| *name == NTUPLE);
                if let Some(at) = at.filter(|at| word(request, 8) >> at & 1 == 1) {
                    let asked = word(request, 12) >> at & 1 == 1;
                    // Turning the feature off deletes all rules.
                    if !asked {
                        state.rules.clear();
                    }
                    state.switched_on = asked;
                    state.log.push(if asked { "ntuple on" } else { "ntuple off" });
                }
            }
            // ETHTOOL_GRXCLSRLCNT
            0x2e if self.has_rules() => {
                put(request, nfc::COUNT, state.rules.len() as u32);
                let data = if self.driver == FakeDriver::Mlx5 { LOC_SPECIAL } else { 0 };
                request[nfc::DATA..][..8].copy_from_slice(&data.to_ne_bytes());
            }
            // ETHTOOL_GRXCLSRLALL
            0x30 if self.has_rules() => {
                let places = u64::from(self.driver.places());
                request[nfc::DATA..][..8].copy_from_slice(&places.to_ne_bytes());
                put(request, nfc::COUNT, state.rules.len() as u32);
                for (at, place) in state.rules.keys().enumerate() {
                    put(request, nfc::PLACES + at * 4, *place);
                }
            }
            // ETHTOOL_GRXCLSRULE
            0x2f if self.has_rules() => {
                let place = word(request, nfc::SPEC + nfc::LOCATION);
                let (spec, context) = state.rules.get(&place).ok_or(ENOENT)?;
                request[nfc::SPEC..][..nfc::SPEC_LEN].copy_from_slice(spec);
                put(request, nfc::COUNT, *context);
            }
            // ETHTOOL_SRXCLSRLDEL
            0x31 if self.has_rules() => {
                let place = word(request, nfc::SPEC + nfc::LOCATION);
                state.rules.remove(&place).ok_or(ENOENT)?;
                state.log.push("delete rule");
            }
            // ETHTOOL_SRXCLSRLINS
            0x32 => {
                self.insert(state, request)?;
                state.log.push("insert rule");
            }
            // ETHTOOL_GRSSH and ETHTOOL_SRSSH
            0x46 => self.scaling(state, request, false)?,
            0x47 => {
                self.scaling(state, request, true)?;
                state.log.push("set table");
            }
            _ => return Err(EOPNOTSUPP),
        }
        Ok(())
    }
}

impl EthtoolEnd for FakeCard {
    fn answer(&self, _interface: &str, request: &mut [u8]) -> io::Result<()> {
        self.answered(request).map_err(io::Error::from_raw_os_error)
    }
}

fn default_table() -> Vec<u32> {
    (0..QUEUES).cycle().take(BUCKETS).collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}
