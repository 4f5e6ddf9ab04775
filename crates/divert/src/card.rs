//! The facts about a card that a plan needs.

use nic::{Setting, Settings};
use serde::Serialize;
use sys::{
    ethtool::{EthtoolSocket, rx_queues},
    rtnetlink::RouteSocket,
};

use crate::{buckets::Hashing, error::DivertError};

/// An interface's driver, queues and settings, as far as a diversion depends on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Card {
    /// The driver, such as `igb` or `veth`.
    pub driver: String,
    /// Its receive queues.
    pub queues: u32,
    /// Whether large receive offload joins packets before XDP sees them.
    pub lro: bool,
    /// Whether the card removes VLAN tags before a program sees them, and can be set not to.
    pub strips_tags: bool,
    /// Whether the card has rules that steer flows to queues.
    pub flow_rules: bool,
    /// Whether they must be enabled first.
    pub rules_are_off: bool,
    /// Its existing rules.
    pub rules: Vec<String>,
    /// Whether its table of receive side scaling can be read.
    pub has_table: bool,
    /// How it spreads flows, if known.
    pub hashing: Option<Hashing>,
    /// Settings by which the kernel passes packets of the queues to other CPUs: `rps.*` that name some, `rfs.*` above 0.
    pub hands_on: Vec<Setting>,
    /// The XDP program already attached: the kernel's number, and the name if it may be read.
    pub program: Option<(u32, String)>,
    /// The interface's number.
    pub(crate) index: u32,
}

impl Card {
    /// Reads an interface's facts from the kernel.
    ///
    /// # Errors
    /// [`DivertError::Interface`].
    pub fn read(interface: &str) -> Result<Self, DivertError> {
        Self::over(interface, EthtoolSocket::open().ok(), nic::Card::open(interface).ok())
    }

    /// As [`Card::read`], with a substitute for the card.
    ///
    /// # Errors
    /// As [`Card::read`].
    pub fn over(
        interface: &str,
        ethtool: Option<EthtoolSocket>,
        settings: Option<nic::Card>,
    ) -> Result<Self, DivertError> {
        let missing = |source| DivertError::Interface { interface: interface.into(), source };
        let link =
            RouteSocket::open().and_then(|mut route| route.link_by_name(interface)).map_err(missing)?;
        let queues = rx_queues(&link);
        let driver = ethtool.as_ref().and_then(|ethtool| ethtool.driver(interface).ok());
        let features =
            ethtool.as_ref().and_then(|ethtool| ethtool.features(interface).ok()).unwrap_or_default();
        let feature = |name: &str| features.iter().find(|feature| feature.name == name);
        let mut settings = settings;
        let hashing = settings.as_mut().and_then(Hashing::of);
        let read = settings.and_then(|mut card| nic::read_settings(&mut card).ok());
        let settings = read.map(|reading| reading.settings).unwrap_or_default();
        let driver = driver.map(|driver| driver.name).or(link.kind).unwrap_or_default();
        Ok(Self {
            // A veth's metadata comes from its peer; settings of this end do not change it.
            strips_tags: driver != "veth"
                && feature("rx-vlan-hw-parse").is_some_and(|feature| feature.active && feature.changeable),
            driver,
            queues,
            lro: feature("rx-lro").is_some_and(|feature| feature.active),
            flow_rules: feature("rx-ntuple-filter")
                .is_some_and(|feature| feature.active || feature.changeable),
            rules_are_off: feature("rx-ntuple-filter")
                .is_some_and(|feature| !feature.active && feature.changeable),
            rules: settings
                .iter()
                .filter(|(name, _)| name.starts_with("rule."))
                .map(|(_, rule)| rule.clone())
                .collect(),
            has_table: settings.contains_key("rss.table"),
            hashing,
            hands_on: hands_on(&settings),
            program: bpf::foreign_program(link.index),
            index: link.index,
        })
    }
}

fn hands_on(settings: &Settings) -> Vec<Setting> {
    let is_on = |name: &str, value: &str| match name.split_once('.') {
        Some(("rps", _)) => value != "none",
        Some(("rfs", _)) => value != "0",
        _ => false,
    };
    let on = settings.iter().filter(|(name, value)| is_on(name, value));
    on.map(|(name, value)| Setting::new(name.clone(), value)).collect()
}
