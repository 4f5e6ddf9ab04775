//! The senders whose probes are returned: only those that agreed with the receiver.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bpf::{BpfError, ReturnMap};

use crate::PortError;

/// Addresses that probes may return to, and the number returned. Shared by all of a receiver's ports and the code that admits senders
/// in.
#[derive(Debug, Default)]
pub struct ReturnList {
    senders: RwLock<BTreeMap<IpAddr, u32>>,
    changes: AtomicU64,
    returned: AtomicU64,
    /// The same addresses in the map of a BPF program.
    in_kernel: Mutex<Option<ReturnMap>>,
}

/// A port's own view of a [`ReturnList`]: no lock and no search while the sender stays the same.
#[derive(Debug)]
pub(crate) struct ReturnCheck {
    list: Arc<ReturnList>,
    seen_changes: u64,
    last: Option<(IpAddr, bool)>,
}

impl ReturnList {
    /// Lets probes return to `sender` until [`ReturnList::forget`] was called equally often.
    ///
    /// # Errors
    /// [`PortError::Bpf`] when the program's table is full.
    pub fn allow(&self, sender: IpAddr) -> Result<(), PortError> {
        let sender = sender.to_canonical();
        self.change(sender, |map| map.allow(sender), |times| times + 1)
    }

    /// Takes one permission back.
    ///
    /// # Errors
    /// [`PortError::Bpf`].
    pub fn forget(&self, sender: IpAddr) -> Result<(), PortError> {
        let sender = sender.to_canonical();
        let times = self.senders.read().expect("no holder panics").get(&sender).copied();
        match times {
            None => Ok(()),
            Some(1) => self.change(sender, |map| map.forget(sender), |_| 0),
            Some(_) => self.change(sender, |_| Ok(()), |times| times - 1),
        }
    }

    /// Packets returned so far.
    pub fn returned(&self) -> u64 {
        self.returned.load(Relaxed)
    }

    /// Mirrors this list into a program's map from now on.
    pub(crate) fn keep(&self, map: ReturnMap) {
        *self.in_kernel.lock().expect("no holder panics") = Some(map);
    }

    /// The count of a program, which grows independently.
    pub fn set_returned(&self, packets: u64) {
        self.returned.store(packets, Relaxed);
    }

    fn change(
        &self,
        sender: IpAddr,
        in_kernel: impl FnOnce(&mut ReturnMap) -> Result<(), BpfError>,
        times: impl FnOnce(u32) -> u32,
    ) -> Result<(), PortError> {
        let mut senders = self.senders.write().expect("no holder panics");
        if let Some(map) = self.in_kernel.lock().expect("no holder panics").as_mut() {
            in_kernel(map).map_err(PortError::Bpf)?;
        }
        match times(senders.get(&sender).copied().unwrap_or(0)) {
            0 => senders.remove(&sender),
            times => senders.insert(sender, times),
        };
        self.changes.fetch_add(1, Relaxed);
        Ok(())
    }
}

impl ReturnCheck {
    pub(crate) fn of(list: Arc<ReturnList>) -> Self {
        Self { list, seen_changes: 0, last: None }
    }

    /// Whether this sender's probes are returned.
    #[inline]
    pub(crate) fn allows(&mut self, sender: IpAddr) -> bool {
        let changes = self.list.changes.load(Relaxed);
        match self.last {
            Some((last, allowed)) if last == sender && self.seen_changes == changes => allowed,
            _ => {
                self.seen_changes = changes;
                let senders = self.list.senders.read().expect("no holder panics");
                let allowed = senders.contains_key(&sender.to_canonical());
                self.last = Some((sender, allowed));
                allowed
            }
        }
    }

    pub(crate) fn add_returned(&self, packets: usize) {
        self.list.returned.fetch_add(packets as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_go_back_while_a_sender_agrees_and_to_nobody_else() {
        let list = Arc::new(ReturnList::default());
        let mut check = ReturnCheck::of(list.clone());
        let [one, two]: [IpAddr; 2] = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().unwrap());
        assert!(!check.allows(one));
        list.allow(one).unwrap();
        list.allow("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(check.allows(one) && check.allows("::ffff:192.0.2.1".parse().unwrap()) && !check.allows(two));
        list.forget(one).unwrap();
        assert!(check.allows(one), "two sessions of the same host");
        list.forget(one).unwrap();
        list.forget(two).unwrap();
        assert!(!check.allows(one) && !check.allows(two));
        check.add_returned(2);
        assert_eq!(list.returned(), 2);
    }
}
