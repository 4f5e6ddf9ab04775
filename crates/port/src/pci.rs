//! The path through a card's own descriptor rings, without a kernel driver: Intel's e1000 and e1000e.
//!
//! The card is taken from the kernel only with consent. A guard process returns it however this process ends
//! ([`sys::pci`]). Receiving polls, or sleeps until the card interrupts.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use measure::{Place, RingUse};
use sys::pci::{BUFFER_BYTES, Card, DmaMemory, DmaParts, PciError, RxRing, TakenCard, TxRing, Way};
use sys::rtnetlink::RouteSocket;

use crate::{Layer, Loss, PortError, Received, RxPort, Sent, TxPort, Wait};

mod access;
mod buffers;
mod card;
mod frames;
mod pretended;
mod service;
mod trace;

pub use access::CardAccess;
pub use buffers::Buffers;
pub use card::PciCounters;
pub use pretended::PretendedCard;

use buffers::Policy;
use card::{IntelCard, RDH, RDT, TDT, model};
use frames::Assembler;
use service::Service;
use trace::Trace;

/// How to open a [`PciRx`] or [`PciTx`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciOptions {
    /// The interface whose card is taken.
    pub interface: String,
    /// Consent to take the card from the kernel.
    pub take_device: bool,
    /// How the card is reached.
    pub access: CardAccess,
    /// Sleep until the card interrupts instead of polling, in [`Wait::Block`].
    pub interrupts: bool,
    /// Descriptors of the ring: a multiple of 8, 16 to 4096.
    pub ring_slots: u32,
    /// Descriptors passed to the card by one write of the tail register.
    pub tail_batch: u32,
    /// Frames a call, at most.
    pub batch_size: usize,
    /// The buffer policy.
    pub buffers: Buffers,
    /// How many descriptors ahead the CPU prefetches frames; 0: none.
    pub prefetch: u32,
    /// Record head, tail and missed frames at each poll, which reads two more registers.
    pub trace: bool,
}

impl PciOptions {
    /// As in the kernel's driver: 256 descriptors, 16 per tail write.
    pub fn on(interface: &str) -> Self {
        Self {
            interface: interface.into(),
            take_device: false,
            access: CardAccess::default(),
            interrupts: false,
            ring_slots: 256,
            tail_batch: 16,
            batch_size: 64,
            buffers: Buffers::default(),
            prefetch: 0,
            trace: false,
        }
    }

    fn check(&self) -> Result<(), PortError> {
        let slots = self.ring_slots;
        if !(16..=4096).contains(&slots) || !slots.is_multiple_of(8) {
            return Err(PortError::RingSlots { slots });
        }
        if self.tail_batch == 0 || self.tail_batch > slots / 2 {
            return Err(PortError::TailBatch { descriptors: self.tail_batch, slots });
        }
        if self.prefetch > slots / 2 {
            return Err(PortError::Prefetch { descriptors: self.prefetch, slots });
        }
        Ok(())
    }

    /// The interface's addresses. In another network namespace it has none here, and cannot be taken anyway.
    fn addresses(&self) -> Vec<IpAddr> {
        let found = RouteSocket::open().and_then(|mut route| {
            let link = route.link_by_name(&self.interface)?;
            route.addresses(link.index)
        });
        found.unwrap_or_default()
    }

    /// Takes the card from the kernel and resets it.
    fn take(&self, spare: usize) -> Result<(IntelCard, DmaMemory), PortError> {
        self.check()?;
        if !self.take_device {
            return Err(PortError::NoConsent { interface: self.interface.clone() });
        }
        let card = Card::of_interface(&self.interface)?;
        model(&card)?;
        let room = (self.ring_slots as usize, self.ring_slots as usize + spare);
        let way = self.access.way(&card);
        // Before the card is taken.
        if self.interrupts && way == Way::Sysfs {
            return Err(PciError::NoInterrupts { interface: self.interface.clone() }.into());
        }
        let (taken, memory) = TakenCard::take(card, &self.addresses(), way, room)?;
        let mut card = IntelCard::reset(taken)?;
        if self.interrupts {
            card.use_interrupts()?;
        }
        Ok((card, memory))
    }
}

/// Receives from a card's ring.
pub struct PciRx {
    // Dropped first: the card stops and its driver is bound before the memory is freed.
    card: IntelCard,
    ring: RxRing,
    policy: Policy,
    frames: Assembler,
    service: Service,
    trace: Option<Trace>,
    batch_size: usize,
    missed: u64,
    has_interrupts: bool,
    interrupts: u64,
    interface: String,
}

/// How long a receiver sleeps without an interrupt.
const SLEEP_AT_MOST: Duration = Duration::from_millis(20);

impl PciRx {
    /// Takes the card of an interface for receiving; returns once its link is up.
    ///
    /// # Errors
    /// [`PortError::NoConsent`], [`PortError::Pci`], [`PortError::UnknownCard`]: then the kernel has the card as before.
    pub fn open(options: &PciOptions) -> Result<Self, PortError> {
        let (card, memory) = options.take(options.buffers.spare(options.ring_slots))?;
        let port = Self::over(card, memory, options);
        port.card.wait_until_receiving()?;
        Ok(port)
    }

    fn over(mut card: IntelCard, memory: DmaMemory, options: &PciOptions) -> Self {
        let slots = options.ring_slots as usize;
        let spare = options.buffers.spare(options.ring_slots);
        let DmaParts { mut tables, mut buffers } = memory.into_parts(&[options.ring_slots], slots + spare);
        let spare = buffers.split_off(slots);
        let ring = RxRing::new(tables.remove(0), buffers);
        card.receive(&ring);
        Self {
            card,
            policy: Policy::new(options.buffers, spare, options.ring_slots),
            ring,
            frames: Assembler::new(),
            service: Service::new(options.tail_batch, options.prefetch),
            trace: options.trace.then(|| Trace::new(options.ring_slots)),
            batch_size: options.batch_size,
            missed: 0,
            has_interrupts: options.interrupts,
            interrupts: 0,
            interface: options.interface.clone(),
        }
    }

    /// The card's interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Sleeps until a frame arrives, or for [`SLEEP_AT_MOST`].
    fn sleep(&mut self) -> Result<(), PortError> {
        self.card.unmask_interrupts();
        // A frame that came before has caused its interrupt already.
        let is_idle = self.ring.done(0).is_none();
        if is_idle && self.card.wait_for_interrupt(SLEEP_AT_MOST)? {
            self.interrupts += 1;
        }
        self.card.mask_interrupts()
    }

    /// The card's counters of frames that it did not deliver.
    pub fn counters(&mut self) -> PciCounters {
        self.card.counters()
    }
}

impl RxPort for PciRx {
    const LAYER: Layer = Layer::Frame;

    fn recv(&mut self, wait: Wait, sink: impl FnMut(Received<'_>)) -> Result<usize, PortError> {
        if let Some(trace) = &mut self.trace {
            self.missed = self.card.missed();
            let registers = self.card.registers();
            trace.note((registers.read(RDH), registers.read(RDT), self.missed));
        }
        let Self { card, ring, policy, frames, service, .. } = self;
        let registers = card.registers();
        let write_tail = |tail| registers.write(RDT, tail);
        let received = match policy {
            Policy::Recycle(policy) => {
                service.take((ring, frames, policy), self.batch_size, write_tail, sink)
            }
            Policy::Pool(policy) => service.take((ring, frames, policy), self.batch_size, write_tail, sink),
            Policy::Realloc(policy) => {
                service.take((ring, frames, policy), self.batch_size, write_tail, sink)
            }
        };
        if received == 0 && wait == Wait::Block {
            if self.has_interrupts {
                self.sleep()?;
            } else {
                thread::yield_now();
            }
        }
        Ok(received)
    }

    fn queue(&self) -> Option<u32> {
        Some(0)
    }

    fn ring(&mut self) -> Option<RingUse> {
        Some(RingUse {
            without_descriptor: self.card.counters().without_descriptor,
            refill_ns: self.service.refill_ns(),
            refills_timed: self.service.timed,
            refills: self.service.refills,
            tail_writes: self.service.tail_writes,
            access: self.card.access().into(),
            interrupts: self.interrupts,
            trace: self.trace.as_ref().map(Trace::so_far),
        })
    }

    fn lost_seen(&self) -> u64 {
        self.missed + self.frames.dropped.all()
    }

    fn lost(&mut self) -> Result<u64, PortError> {
        self.missed = self.card.missed();
        Ok(self.lost_seen())
    }

    fn losses(&mut self) -> Result<Vec<Loss>, PortError> {
        let counters = self.card.counters();
        self.missed = counters.missed;
        let dropped = self.frames.dropped;
        Ok(vec![
            Loss {
                place: Place::NicMissed,
                packets: counters.missed,
                source: "MPC (missed packets count)",
                remedy: "--ring-slots 4096; --buffers recycle; a CPU of its own for the receiver",
            },
            Loss {
                place: Place::BadFrame,
                packets: counters.broken + dropped.broken,
                source: "CRCERRS + RLEC + RUC + RFC + ROC + descriptors with errors",
                remedy: Place::BadFrame.remedy(),
            },
            Loss {
                place: Place::DriverRx,
                packets: dropped.nonsense,
                source: "descriptors without length, end or room",
                remedy: "frames of at most 16384 bytes",
            },
        ])
    }
}

/// Sends through a card's ring.
pub struct PciTx {
    // Dropped first, as in `PciRx`.
    card: IntelCard,
    ring: TxRing,
    tail_batch: u32,
    batch_size: usize,
}

/// How long the card may take to send its frames.
const DRAIN_AT_MOST: Duration = Duration::from_secs(1);

impl PciTx {
    /// Takes the card of an interface for sending frames of at most `frame_bytes` without FCS; returns once its link is
    /// up.
    ///
    /// # Errors
    /// As [`PciRx::open`]; [`PortError::FrameBeyondSlot`].
    pub fn open(options: &PciOptions, frame_bytes: usize) -> Result<Self, PortError> {
        if frame_bytes > BUFFER_BYTES {
            return Err(PortError::FrameBeyondSlot { bytes: frame_bytes, most: BUFFER_BYTES });
        }
        let (card, memory) = options.take(0)?;
        let port = Self::over(card, memory, options);
        port.card.wait_for_link()?;
        Ok(port)
    }

    fn over(mut card: IntelCard, memory: DmaMemory, options: &PciOptions) -> Self {
        let slots = options.ring_slots as usize;
        let DmaParts { mut tables, buffers } = memory.into_parts(&[options.ring_slots], slots);
        let ring = TxRing::new(tables.remove(0), buffers);
        card.transmit(&ring);
        let batch_size = options.batch_size.clamp(1, slots / 2);
        Self { card, ring, tail_batch: options.tail_batch, batch_size }
    }

    /// Waits until the card has sent all its frames, and returns its count of good frames sent (GPTC).
    ///
    /// # Errors
    /// [`PortError::Pci`] when it does not.
    pub fn finish(&mut self) -> Result<u64, PortError> {
        let deadline = Instant::now() + DRAIN_AT_MOST;
        loop {
            self.ring.reclaim();
            if self.ring.with_card() == 0 {
                return Ok(self.card.sent());
            }
            if Instant::now() > deadline {
                let left = self.ring.with_card();
                return Err(PortError::NotSent { frames: left });
            }
            thread::yield_now();
        }
    }
}

impl TxPort for PciTx {
    const LAYER: Layer = Layer::Frame;

    fn batch_size(&self) -> usize {
        self.batch_size
    }

    fn prime(&mut self, fill: impl FnMut(&mut [u8])) {
        self.ring.buffers_mut().for_each(fill);
    }

    fn send(&mut self, packets: usize, mut fill: impl FnMut(&mut [u8]) -> usize) -> Result<Sent, PortError> {
        self.ring.reclaim();
        let fits = packets.min(self.ring.free() as usize);
        let mut unwritten = 0;
        for _ in 0..fits {
            self.ring.push(&mut fill);
            unwritten += 1;
            if unwritten == self.tail_batch {
                unwritten = 0;
                self.card.registers().write(TDT, self.ring.tail());
            }
        }
        if unwritten > 0 {
            self.card.registers().write(TDT, self.ring.tail());
        }
        if fits == 0 && packets > 0 {
            thread::yield_now();
        }
        let turned_away = usize::from(fits < packets);
        Ok(Sent { filled: fits, taken: fits, turned_away, ..Sent::default() })
    }
}

impl Drop for PciTx {
    fn drop(&mut self) {
        // Frames that the card does not send in time were counted as sent; the trial's ledger shows them.
        self.finish().ok();
    }
}

#[cfg(test)]
mod tests;
