//! The cables between two machines: a stream of frames each, and the monitors of both emulators, which pull and plug them in.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::plan::NicModel;
use super::qemu::{CableEnds, Side, cable_id};

/// A cable to pull or to plug in, as `guest/cable.sh` writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CableOrder {
    /// Which, from 1.
    number: usize,
    is_on: bool,
}

impl CableOrder {
    /// The least byte that is an order: the other marks are letters.
    pub(crate) const FIRST: u8 = 128;

    /// The order of a byte from [`Self::FIRST`].
    pub(crate) fn of(byte: u8) -> Self {
        let order = byte - Self::FIRST;
        Self { number: usize::from(order >> 1), is_on: order & 1 == 1 }
    }

    /// The same for the monitor.
    fn request(self) -> String {
        let Self { number, is_on } = self;
        let name = cable_id(number);
        format!("{{\"execute\":\"set_link\",\"arguments\":{{\"name\":\"{name}\",\"up\":{is_on}}}}}\n")
    }
}

/// The monitors of two machines, by side, while these run.
#[derive(Debug, Default)]
pub(crate) struct Monitors([Mutex<Option<UnixStream>>; 2]);

impl Monitors {
    fn of(&self, side: Side) -> &Mutex<Option<UnixStream>> {
        match side {
            Side::A => &self.0[0],
            Side::B => &self.0[1],
        }
    }
}

/// What one of two machines has to do with the other.
#[derive(Debug)]
pub(crate) struct Seat<'s> {
    side: Side,
    /// Kept while the machine runs or may be started again: the other one's cable stays plugged in.
    ends: Vec<(NicModel, OwnedFd)>,
    monitors: &'s Monitors,
    ends_when: &'s AtomicBool,
}

impl<'s> Seat<'s> {
    /// Two places, with cables between them. The second one's script is asked to end by the flag.
    pub(crate) fn two(
        models: &[NicModel],
        monitors: &'s Monitors,
        flags: [&'s AtomicBool; 2],
    ) -> io::Result<[Self; 2]> {
        let mut seats = [Side::A, Side::B].map(|side| Self {
            side,
            ends: Vec::new(),
            monitors,
            ends_when: flags[usize::from(side == Side::B)],
        });
        for model in models {
            let (a, b) = UnixStream::pair()?;
            seats[0].ends.push((*model, a.into()));
            seats[1].ends.push((*model, b.into()));
        }
        Ok(seats)
    }

    pub(crate) fn side(&self) -> Side {
        self.side
    }

    pub(crate) fn models(&self) -> impl Iterator<Item = NicModel> {
        self.ends.iter().map(|(model, _)| *model)
    }

    /// Whether its script shall end.
    pub(crate) fn is_to_end(&self) -> bool {
        self.ends_when.load(Ordering::Relaxed)
    }

    /// Carried out at both ends.
    pub(crate) fn carry_out(&self, order: CableOrder) {
        for monitor in &self.monitors.0 {
            if let Some(monitor) = &mut *monitor.lock().expect("no holder panics") {
                // Fails only when that machine has ended.
                monitor.write_all(order.request().as_bytes()).ok();
            }
        }
    }

    /// Descriptors for a machine that is about to start.
    pub(crate) fn open(&self) -> io::Result<OpenCables> {
        let (mut monitor, monitor_end) = UnixStream::pair()?;
        monitor.write_all(b"{\"execute\":\"qmp_capabilities\"}\n")?;
        let ends = self.ends.iter().map(|(model, end)| Ok((*model, end.try_clone()?)));
        let ends = ends.collect::<io::Result<_>>()?;
        *self.monitors.of(self.side).lock().expect("no holder panics") = Some(monitor);
        Ok(OpenCables { side: self.side, ends, monitor: monitor_end.into() })
    }
}

/// One machine's descriptors.
#[derive(Debug)]
pub(crate) struct OpenCables {
    side: Side,
    ends: Vec<(NicModel, OwnedFd)>,
    monitor: OwnedFd,
}

impl OpenCables {
    /// In the emulator's form.
    pub(crate) fn numbers(&self) -> CableEnds {
        CableEnds {
            side: self.side,
            ends: self.ends.iter().map(|(model, end)| (*model, end.as_raw_fd())).collect(),
            monitor: self.monitor.as_raw_fd(),
        }
    }

    /// For the emulator to keep.
    pub(crate) fn into_descriptors(self) -> impl Iterator<Item = OwnedFd> {
        self.ends.into_iter().map(|(_, end)| end).chain([self.monitor])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_byte_and_a_request() {
        let [off, on] = [130, 147].map(|byte| CableOrder::of(byte).request());
        assert_eq!(off, "{\"execute\":\"set_link\",\"arguments\":{\"name\":\"cable1\",\"up\":false}}\n");
        assert!(on.contains("\"cable9\"") && on.contains("true"), "{on}");
    }
}
