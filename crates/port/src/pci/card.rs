//! Intel's 82540EM (e1000) and 82574L (e1000e), limited to what a ring needs: reset, link, filters, rings, counters.
//!
//! Registers and their order: 8254x Family Software Developer's Manual (317453), 82574 Datasheet, section 10.

use std::{
    thread,
    time::{Duration, Instant},
};

use sys::pci::{Card, CardId, PciError, Register, Registers, RxRing, TakenCard, TxRing};

use crate::PortError;

/// The value of a register of single bits.
trait Bits: Copy + From<u32> + Into<u32> {
    fn has(self, bits: Self) -> bool {
        self.into() & bits.into() == bits.into()
    }

    fn with(self, bits: Self) -> Self {
        Self::from(self.into() | bits.into())
    }

    fn without(self, bits: Self) -> Self {
        Self::from(self.into() & !bits.into())
    }
}

macro_rules! bits {
    ($(#[doc = $doc:literal] $name:ident { $($bit:ident = $value:expr,)+ })+) => {$(
        #[doc = $doc]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        struct $name(u32);

        impl $name {
            $(const $bit: Self = Self($value);)+
        }

        impl From<u32> for $name {
            fn from(value: u32) -> Self {
                Self(value)
            }
        }

        impl From<$name> for u32 {
            fn from(bits: $name) -> u32 {
                bits.0
            }
        }

        impl Bits for $name {}
    )+};
}

bits! {
    /// Device control.
    Control {
        LINK_RESET = 1 << 3,
        AUTO_SPEED = 1 << 5,
        SET_LINK_UP = 1 << 6,
        INVERT_LOSS = 1 << 7,
        RESET = 1 << 26,
        PHY_RESET = 1 << 31,
    }
    /// Device status.
    Status { LINK_UP = 1 << 1, GONE = u32::MAX, }
    /// Receive control.
    Receive { OFF = 0, ENABLE = 1 << 1, LONG_FRAMES = 1 << 5, BROADCAST = 1 << 15, STRIP_FCS = 1 << 26, }
    /// Transmit control: COLLISIONS are its threshold of 15 and distance of 64 for full duplex.
    Transmit { OFF = 0, ENABLE = 1 << 1, PAD = 1 << 3, COLLISIONS = 15 << 4 | 64 << 12, }
    /// Access to a register of the PHY.
    Phy { READ = 2 << 26 | 1 << 21, WRITE = 1 << 26 | 1 << 21, READY = 1 << 28, }
}

const CTRL: Register<Control> = Register::at(0x0000);
const STATUS: Register<Status> = Register::at(0x0008);
const MDIC: Register<Phy> = Register::at(0x0020);
const ICR: Register = Register::at(0x00c0);
const IMS: Register = Register::at(0x00d0);
const IMC: Register = Register::at(0x00d8);
const RCTL: Register<Receive> = Register::at(0x0100);
const TCTL: Register<Transmit> = Register::at(0x0400);
const TIPG: Register = Register::at(0x0410);
const RDBAL: Register = Register::at(0x2800);
const RDBAH: Register = Register::at(0x2804);
const RDLEN: Register = Register::at(0x2808);
pub(super) const RDH: Register = Register::at(0x2810);
pub(super) const RDT: Register = Register::at(0x2818);
const TDBAL: Register = Register::at(0x3800);
const TDBAH: Register = Register::at(0x3804);
const TDLEN: Register = Register::at(0x3808);
const TDH: Register = Register::at(0x3810);
pub(super) const TDT: Register = Register::at(0x3818);
const TXDCTL: Register = Register::at(0x3828);
const CRCERRS: Register = Register::at(0x4000);
const RLEC: Register = Register::at(0x4040);
pub(super) const MPC: Register = Register::at(0x4010);
const GPTC: Register = Register::at(0x4080);
pub(super) const RNBC: Register = Register::at(0x40a0);
const RUC: Register = Register::at(0x40a4);
const RFC: Register = Register::at(0x40a8);
const ROC: Register = Register::at(0x40ac);
const MTA: u32 = 0x5200;
const RAL: Register = Register::at(0x5400);
const RAH: Register = Register::at(0x5404);

/// Interrupt causes of a receiver: a frame, few free descriptors, a frame without one.
const RX_CAUSES: u32 = 1 << 7 | 1 << 6 | 1 << 4;
/// The valid bit of an address register.
const ADDRESS_VALID: u32 = 1 << 31;
/// The manual's recommended gaps between frames on copper: 8, 8 and 6.
const GAPS: u32 = 8 | 8 << 10 | 6 << 20;
/// 82574: write each descriptor back, count in descriptors.
const WRITE_BACK_EACH: u32 = 1 << 24 | 1 << 22 | 1 << 16;
/// The PHY's control register, and its bits.
const PHY_CONTROL: u32 = 0;
const PHY_POWER_DOWN: u32 = 1 << 11;
const PHY_NEGOTIATE_ANEW: u32 = 1 << 12 | 1 << 9;

/// Cards that this driver knows.
const KNOWN: [(CardId, &str); 2] = [
    (CardId { vendor: 0x8086, device: 0x100e }, "82540EM"),
    (CardId { vendor: 0x8086, device: 0x10d3 }, "82574L"),
];
/// QEMU, whose cards do not clear their counters of missed frames on read.
const QEMU: u16 = 0x1af4;

/// How long QEMU's 82540EM accepts no frames after a write to receive control (`flush_queue_timer`): the queue in front of
/// the card holds 10,000 frames and drops more without counting them.
const QEMU_DEAF: Duration = Duration::from_millis(1100);

/// How long a card may take for its reset.
const RESET_AT_MOST: Duration = Duration::from_secs(1);
/// How long link negotiation may take: 2 to 4 seconds on copper.
const LINK_AT_MOST: Duration = Duration::from_secs(10);

/// The name of a card that this driver knows.
pub(super) fn model(card: &Card) -> Result<&'static str, PortError> {
    let found = KNOWN.iter().find(|(id, _)| *id == card.id);
    found.map(|(_, name)| *name).ok_or_else(|| PortError::UnknownCard {
        interface: card.interface.clone(),
        vendor: card.id.vendor,
        device: card.id.device,
    })
}

/// A counter of the card, and its total so far.
#[derive(Debug)]
struct Counter {
    register: Register,
    /// Whether reading clears it, as the manual says.
    clears: bool,
    before: u32,
    total: u64,
}

impl Counter {
    fn new(register: Register, clears: bool) -> Self {
        Self { register, clears, before: 0, total: 0 }
    }

    fn start(&mut self, registers: &Registers) {
        self.before = registers.read(self.register);
        self.total = 0;
    }

    fn read(&mut self, registers: &Registers) -> u64 {
        let now: u32 = registers.read(self.register);
        self.total += if self.clears {
            now.into()
        } else {
            u64::from(now.wrapping_sub(std::mem::replace(&mut self.before, now)))
        };
        self.total
    }
}

/// The card's counters of frames that it did not deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PciCounters {
    /// Lost because the packet buffer was full, or the ring had no descriptors (MPC).
    pub missed: u64,
    /// Arrived without a descriptor (RNBC): kept in the packet buffer, or also in `missed`.
    pub without_descriptor: u64,
    /// Broken on the wire: check sequence, length (CRCERRS, RLEC, RUC, RFC, ROC).
    pub broken: u64,
}

/// The owner of the registers.
enum Owned {
    Real(Box<TakenCard>),
    Pretended(Registers),
}

/// A card that this process drives.
pub(super) struct IntelCard {
    owned: Owned,
    missed: Counter,
    without_descriptor: Counter,
    broken: [Counter; 5],
    sent: Counter,
}

impl IntelCard {
    /// Resets a card and starts its link, without rings.
    pub(super) fn reset(taken: TakenCard) -> Result<Self, PortError> {
        let clears = taken.card.subsystem_vendor != QEMU;
        let card = Self::of(Owned::Real(Box::new(taken)), clears);
        card.silence();
        let registers = card.registers();
        registers.write(CTRL, registers.read(CTRL).with(Control::RESET));
        // The card does not answer for a short time.
        thread::sleep(Duration::from_millis(10));
        card.wait("reset", RESET_AT_MOST, |registers| !registers.read(CTRL).has(Control::RESET))?;
        card.silence();
        if registers.read(STATUS) == Status::GONE {
            return Err(card.silent("find the registers of"));
        }
        let control = registers
            .read(CTRL)
            .without(Control::LINK_RESET)
            .without(Control::PHY_RESET)
            .without(Control::INVERT_LOSS)
            .with(Control::AUTO_SPEED)
            .with(Control::SET_LINK_UP);
        registers.write(CTRL, control);
        card.wake_phy()?;
        Ok(card)
    }

    /// A card that is not real.
    pub(super) fn pretended(registers: Registers) -> Self {
        Self::of(Owned::Pretended(registers), false)
    }

    fn of(owned: Owned, clears: bool) -> Self {
        Self {
            owned,
            missed: Counter::new(MPC, clears),
            without_descriptor: Counter::new(RNBC, clears),
            broken: [CRCERRS, RLEC, RUC, RFC, ROC].map(|register| Counter::new(register, clears)),
            // All cards clear counters of good frames on read.
            sent: Counter::new(GPTC, true),
        }
    }

    #[inline]
    pub(super) fn registers(&self) -> &Registers {
        match &self.owned {
            Owned::Real(taken) => &taken.registers,
            Owned::Pretended(registers) => registers,
        }
    }

    fn address(&self) -> String {
        match &self.owned {
            Owned::Real(taken) => format!("{} ({})", taken.card.interface, taken.card.address),
            Owned::Pretended(_) => "a card".into(),
        }
    }

    fn silent(&self, tried: &'static str) -> PortError {
        let source = std::io::ErrorKind::TimedOut.into();
        PciError::Step { tried, object: self.address(), source }.into()
    }

    fn wait(
        &self,
        tried: &'static str,
        at_most: Duration,
        is_done: impl Fn(&Registers) -> bool,
    ) -> Result<(), PortError> {
        let deadline = Instant::now() + at_most;
        while !is_done(self.registers()) {
            if Instant::now() > deadline {
                return Err(self.silent(tried));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// No interrupts, no frames in or out.
    fn silence(&self) {
        let registers = self.registers();
        registers.write(IMC, u32::MAX);
        registers.write(RCTL, Receive::OFF);
        registers.write(TCTL, Transmit::OFF);
        registers.read(ICR);
    }

    /// Turns the card's interrupts into events, all masked.
    pub(super) fn use_interrupts(&mut self) -> Result<(), PortError> {
        match &mut self.owned {
            Owned::Real(taken) => Ok(taken.use_interrupts()?),
            Owned::Pretended(_) => Ok(()),
        }
    }

    pub(super) fn unmask_interrupts(&self) {
        self.registers().write(IMS, RX_CAUSES);
    }

    /// Masks interrupts and clears their causes.
    pub(super) fn mask_interrupts(&self) -> Result<(), PortError> {
        let registers = self.registers();
        registers.write(IMC, u32::MAX);
        registers.read(ICR);
        match &self.owned {
            Owned::Real(taken) => taken.allow_interrupt().map_err(|source| self.interrupt_failed(source)),
            Owned::Pretended(_) => Ok(()),
        }
    }

    /// Waits for an interrupt; returns whether one came.
    pub(super) fn wait_for_interrupt(&self, at_most: Duration) -> Result<bool, PortError> {
        match &self.owned {
            Owned::Real(taken) => {
                taken.wait_for_interrupt(at_most).map_err(|source| self.interrupt_failed(source))
            }
            Owned::Pretended(_) => Ok(false),
        }
    }

    fn interrupt_failed(&self, source: std::io::Error) -> PortError {
        PciError::Step { tried: "wait for interrupts of", object: self.address(), source }.into()
    }

    /// How the card is reached.
    pub(super) fn access(&self) -> &'static str {
        match &self.owned {
            Owned::Real(taken) => taken.way().name(),
            Owned::Pretended(_) => "pretended",
        }
    }

    /// The kernel's driver powers the PHY down with the interface.
    fn wake_phy(&self) -> Result<(), PortError> {
        let control = self.phy(Phy::READ, 0)?;
        if control & PHY_POWER_DOWN != 0 {
            self.phy(Phy::WRITE, control & !PHY_POWER_DOWN | PHY_NEGOTIATE_ANEW)?;
        }
        Ok(())
    }

    fn phy(&self, how: Phy, value: u32) -> Result<u32, PortError> {
        let order = how.with(Phy(PHY_CONTROL << 16)).with(Phy(value & 0xffff));
        self.registers().write(MDIC, order);
        self.wait("access the PHY of", RESET_AT_MOST, |registers| registers.read(MDIC).has(Phy::READY))?;
        Ok(u32::from(self.registers().read(MDIC)) & 0xffff)
    }

    /// Waits for the link.
    pub(super) fn wait_for_link(&self) -> Result<(), PortError> {
        self.wait("wait for the link of", LINK_AT_MOST, |registers| {
            registers.read(STATUS).has(Status::LINK_UP)
        })
    }

    /// Waits until the card accepts frames after a write to receive control.
    pub(super) fn wait_until_receiving(&self) -> Result<(), PortError> {
        if let Owned::Real(taken) = &self.owned
            && taken.card.subsystem_vendor == QEMU
            && taken.card.id == KNOWN[0].0
        {
            thread::sleep(QEMU_DEAF);
        }
        self.wait_for_link()
    }

    /// Receives into a ring: frames to the card's own address and broadcasts, of any length.
    pub(super) fn receive(&mut self, ring: &RxRing) {
        if let Owned::Real(taken) = &self.owned {
            let [a, b, c, d, e, f] = taken.card.mac;
            taken.registers.write(RAL, u32::from_le_bytes([a, b, c, d]));
            taken.registers.write(RAH, u32::from_le_bytes([e, f, 0, 0]) | ADDRESS_VALID);
        }
        let registers = self.registers();
        (0..128).for_each(|group| registers.write(Register::at(MTA + 4 * group), 0u32));
        let address = ring.device_address();
        registers.write(RDBAL, address as u32);
        registers.write(RDBAH, (address >> 32) as u32);
        registers.write(RDLEN, ring.slots() * 16);
        registers.write(RDH, 0u32);
        registers.write(RDT, 0u32);
        let control =
            Receive::ENABLE.with(Receive::BROADCAST).with(Receive::STRIP_FCS).with(Receive::LONG_FRAMES);
        registers.write(RCTL, control);
        registers.write(RDT, ring.tail());
        self.start_counters();
    }

    /// Sends from a ring.
    pub(super) fn transmit(&mut self, ring: &TxRing) {
        let registers = self.registers();
        let address = ring.device_address();
        registers.write(TDBAL, address as u32);
        registers.write(TDBAH, (address >> 32) as u32);
        registers.write(TDLEN, ring.slots() * 16);
        registers.write(TDH, 0u32);
        registers.write(TDT, 0u32);
        registers.write(TIPG, GAPS);
        if let Owned::Real(taken) = &self.owned
            && taken.card.id == KNOWN[1].0
        {
            registers.write(TXDCTL, WRITE_BACK_EACH);
        }
        registers.write(TCTL, Transmit::ENABLE.with(Transmit::PAD).with(Transmit::COLLISIONS));
        self.start_counters();
    }

    fn counters_mut(&mut self) -> (&Registers, [&mut Counter; 3], &mut [Counter; 5]) {
        let registers = match &self.owned {
            Owned::Real(taken) => &taken.registers,
            Owned::Pretended(registers) => registers,
        };
        (registers, [&mut self.missed, &mut self.without_descriptor, &mut self.sent], &mut self.broken)
    }

    fn start_counters(&mut self) {
        let (registers, counters, broken) = self.counters_mut();
        counters.into_iter().chain(broken).for_each(|counter| counter.start(registers));
    }

    /// Frames missed so far.
    pub(super) fn missed(&mut self) -> u64 {
        let (registers, [missed, ..], _) = self.counters_mut();
        missed.read(registers)
    }

    /// Good frames sent so far.
    pub(super) fn sent(&mut self) -> u64 {
        let (registers, [.., sent], _) = self.counters_mut();
        sent.read(registers)
    }

    /// All counters of frames that the card did not deliver.
    pub(super) fn counters(&mut self) -> PciCounters {
        let (registers, [missed, without_descriptor, _], broken) = self.counters_mut();
        PciCounters {
            missed: missed.read(registers),
            without_descriptor: without_descriptor.read(registers),
            broken: broken.iter_mut().map(|counter| counter.read(registers)).sum(),
        }
    }
}

impl Drop for IntelCard {
    /// Stops the card before its memory is reused.
    fn drop(&mut self) {
        self.silence();
        // Lets DMA in progress finish.
        thread::sleep(Duration::from_millis(if matches!(self.owned, Owned::Real(_)) { 10 } else { 0 }));
    }
}
