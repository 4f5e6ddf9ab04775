//! Settings of the card for the time of a diversion: made through the journal of [`nic`], undone with the diversion, and after
//! a kill by `linerate nic restore`.

use std::path::PathBuf;

use nic::{Session, SessionError, Setting};
use serde::Serialize;

use crate::{card::Card, error::DivertError};

/// Settings of the card for the time of a diversion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Steering {
    /// The settings, all or none of which are made.
    pub settings: Vec<Setting>,
    /// Whether the diversion begins without them where the card refuses: the program then picks the packets on every
    /// queue, as it does in any case.
    pub may_fail: bool,
    /// Where the journal goes.
    #[serde(skip)]
    pub state: PathBuf,
}

/// The offload that joins packets before a program can see them.
pub(crate) const LRO: &str = "feature.rx-lro";
/// The offload that takes VLAN tags off before a program can see them.
pub(crate) const VLAN: &str = "feature.rx-vlan-hw-parse";

impl Steering {
    /// What keeps packets from a diversion, or their VLAN tags, and others off the CPUs of its threads: large receive offload, VLAN
    /// offload, and the kernel's own steering where it may lead to the CPU of a queue's thread.
    pub(crate) fn clearing(cpus: &[u32], card: &Card) -> Vec<Setting> {
        let lro = card.lro.then(|| Setting::new(LRO, "off"));
        let others = card.hands_on.iter().filter(|_| !cpus.is_empty()).filter_map(|setting| {
            // Flow steering follows the reader of a socket, wherever that runs.
            if setting.name.starts_with("rfs.") {
                return Some(Setting::new(setting.name.clone(), 0));
            }
            let named = nic::cpus_of_list(&setting.value)?;
            let left: Vec<u32> = named.iter().copied().filter(|cpu| !cpus.contains(cpu)).collect();
            (left.len() < named.len()).then(|| Setting::new(setting.name.clone(), nic::cpu_list(&left)))
        });
        let vlan = card.strips_tags.then(|| Setting::new(VLAN, "off"));
        lro.into_iter().chain(others).chain(vlan).collect()
    }

    pub(crate) fn tells(&self, name: &str) -> bool {
        self.settings.iter().any(|setting| setting.name == name)
    }

    /// Tells the card; what the answer holds undoes it when it goes. Nothing where the card refused and may.
    pub(crate) fn apply(&self, interface: &str) -> Result<(Option<Session>, Option<String>), DivertError> {
        let applied = || -> Result<Session, SessionError> {
            let mut session = Session::begin(interface, &self.state)?;
            session.apply(&self.settings)?;
            Ok(session)
        };
        match applied() {
            Ok(session) => Ok((Some(session), None)),
            // What could not be taken back needs somebody's eyes.
            Err(SessionError::RolledBack { cause, left }) if self.may_fail && left.is_empty() => {
                Ok((None, Some(cause.to_string())))
            }
            Err(source) => Err(DivertError::Card { interface: interface.into(), source: Box::new(source) }),
        }
    }

    /// A card that starts anew for a program or a zero-copy socket may forget its table; rules are the driver's list.
    pub(crate) fn remind(&self, interface: &str, session: &mut Session) -> Result<(), DivertError> {
        let named: Vec<Setting> =
            self.settings.iter().filter(|setting| !setting.name.ends_with(".any")).cloned().collect();
        let again = session.apply(&named);
        let refused = |source| DivertError::Card { interface: interface.into(), source: Box::new(source) };
        again.map(drop).map_err(refused)
    }
}
