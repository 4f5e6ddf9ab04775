//! The descriptor ring: how many buffers the card owns, how it fetches their descriptors and how it writes
//! finished ones back.

use serde::{Deserialize, Serialize};

use crate::{
    parameter::{Parameter, Problems},
    stages::bus::DescriptorTraffic,
};

/// A queue's descriptors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ring {
    /// Descriptors of each queue's ring.
    pub descriptors: u32,
    /// Bytes of a descriptor.
    pub descriptor_bytes: u32,
    /// Descriptors that the card holds on the chip.
    pub on_chip: u32,
    /// Descriptors that one bus read fetches.
    pub fetch_batch: u32,
    /// The card fetches when it holds no more than this many.
    pub fetch_below: u32,
    /// A card whose packet buffer holds more than this ends a read early (STOP#), to move frames instead; `None` never
    /// does.
    pub stop_above_bytes: Option<u64>,
    /// Descriptors that such a read has fetched when it ends.
    pub stop_after: u32,
    /// Finished descriptors that are written back together.
    pub writeback_batch: u32,
    /// Time from the frame that completes such a group to the request to write it back, in nanoseconds.
    pub writeback_delay_ns: f64,
    /// Descriptors between two tail writes; the card cannot use descriptors refilled since the last one.
    pub tail_batch: u32,
    /// A frame without a descriptor is dropped at once instead of waiting in the packet buffer.
    pub drop_when_empty: bool,
    /// What the ring models.
    pub kind: RingKind,
}

/// What the ring models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingKind {
    /// A card's descriptor ring.
    Card,
    /// The kernel's input queue of a CPU or a veth: slots, no card; a full one drops.
    Backlog,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            descriptors: 512,
            descriptor_bytes: 16,
            on_chip: 64,
            fetch_batch: 16,
            fetch_below: 32,
            stop_above_bytes: None,
            stop_after: 16,
            writeback_batch: 4,
            writeback_delay_ns: 0.0,
            tail_batch: 16,
            drop_when_empty: false,
            kind: RingKind::Card,
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter::new("ring.descriptors", "descriptors", "descriptors of each queue's ring (ethtool -G rx)")
        .short("ring")
        .source("ixgbe: 512; e1000 and igb: 256"),
    Parameter::new("ring.descriptor_bytes", "bytes", "bytes of a descriptor")
        .source("Intel 8254x manual section 3.2.3"),
    Parameter::new("ring.on_chip", "descriptors", "descriptors that the card can hold on the chip")
        .source("RDR paper: four groups of 16 between pauses"),
    Parameter::new("ring.fetch_batch", "descriptors", "descriptors fetched by one bus read")
        .source("RDR paper: groups of 16"),
    Parameter::new("ring.fetch_below", "descriptors", "the card fetches when it holds no more than this")
        .source("Intel 8254x manual section 13.4.46: PTHRESH, 0 there"),
    Parameter::new(
        "ring.stop_above_bytes",
        "bytes",
        "a packet buffer fuller than this ends a read of descriptors early (STOP#); null: never",
    )
    .source("RDR paper: STOP# when the receive buffer is nearly full"),
    Parameter::new("ring.stop_after", "descriptors", "descriptors that such a read has fetched when it ends")
        .source("one cache line of 64 bytes holds 4"),
    Parameter::new("ring.writeback_batch", "descriptors", "finished descriptors written back together")
        .source("RDR paper: 4; one 64-byte cache line, 8254x manual WTHRESH"),
    Parameter::new("ring.writeback_delay_ns", "ns", "from the group's last frame to its write-back")
        .source("RDR paper: 25 CLK of 15.15 ns"),
    Parameter::new("ring.tail_batch", "descriptors", "descriptors between two tail writes of the driver")
        .source("Linux e1000, E1000_RX_BUFFER_WRITE: 16"),
    Parameter::new(
        "ring.drop_when_empty",
        "",
        "drop a frame without a descriptor instead of keeping it waiting",
    )
    .source("Intel 82599 datasheet: SRRCTL.DROP_EN"),
    Parameter::new("ring.kind", "", "card, or backlog: the kernel's own input queue"),
];

impl Ring {
    pub(crate) fn check(&self, problems: &mut Problems) {
        problems.range("ring.descriptors", self.descriptors, 1, 1 << 20);
        problems.range("ring.descriptor_bytes", self.descriptor_bytes, 1, 256);
        problems.range("ring.on_chip", self.on_chip, 1, 1 << 20);
        problems.range("ring.fetch_batch", self.fetch_batch, 1, 1 << 16);
        problems.range("ring.stop_after", self.stop_after, 1, 1 << 16);
        problems.range("ring.writeback_batch", self.writeback_batch, 1, 1 << 16);
        problems.range("ring.tail_batch", self.tail_batch, 1, 1 << 16);
        problems.duration_ns("ring.writeback_delay_ns", self.writeback_delay_ns);
        let ring = self.descriptors;
        for (name, batch) in
            [("ring.tail_batch", self.tail_batch), ("ring.writeback_batch", self.writeback_batch)]
        {
            if batch >= ring && ring > 0 {
                problems.add(
                    name,
                    format!(
                        "a batch of {batch} needs a larger ring than {ring}: the card would own no descriptor"
                    ),
                );
            }
        }
        if self.fetch_batch > self.on_chip {
            let (batch, on_chip) = (self.fetch_batch, self.on_chip);
            problems.add(
                "ring.fetch_batch",
                format!("{batch} descriptors of one read do not fit into ring.on_chip, which is {on_chip}"),
            );
        }
        if self.fetch_below >= self.on_chip {
            let (below, on_chip) = (self.fetch_below, self.on_chip);
            problems
                .add("ring.fetch_below", format!("{below} is not below ring.on_chip, which is {on_chip}"));
        }
    }

    /// How the descriptors cross the bus.
    pub fn traffic(&self) -> DescriptorTraffic {
        DescriptorTraffic {
            descriptor_bytes: self.descriptor_bytes,
            fetch_batch: self.fetch_batch,
            writeback_batch: self.writeback_batch,
        }
    }
}

/// The counters of one ring. All of them only grow; their differences are the occupancies.
#[derive(Debug, Clone)]
pub(crate) struct Descriptors {
    tail_batch: u64,
    /// Descriptors the driver has refilled, ever.
    filled: u64,
    /// Descriptors published to the card, ever: `filled` up to the last tail write.
    pub(crate) published: u64,
    /// Descriptors the card has requested, ever.
    pub(crate) fetched: u64,
    /// Descriptors that lie on the card unused.
    pub(crate) on_chip: u32,
    /// Descriptors that are crossing the bus to the card.
    pub(crate) fetching: u32,
}

impl Descriptors {
    /// A full ring of which the card has fetched what it can hold, as after the interface came up.
    pub(crate) fn new(ring: &Ring) -> Self {
        let mut new = Self {
            tail_batch: u64::from(ring.tail_batch),
            filled: u64::from(ring.descriptors),
            published: 0,
            fetched: 0,
            on_chip: 0,
            fetching: 0,
        };
        new.publish();
        new.on_chip = new.published.min(u64::from(ring.on_chip)) as u32;
        new.fetched = u64::from(new.on_chip);
        new
    }

    /// Refills until the tail moves next; at least 1.
    #[inline]
    pub(crate) fn until_tail(&self) -> u64 {
        self.tail_batch - (self.filled - 1) % self.tail_batch
    }

    /// The driver has refilled this many more descriptors.
    #[inline]
    pub(crate) fn fill(&mut self, n: u64) {
        self.filled += n;
        self.publish();
    }

    /// The driver writes a multiple of the batch to the tail once it has filled that index, and the card may
    /// use the descriptors before it.
    #[inline]
    fn publish(&mut self) {
        self.published = (self.filled - 1) / self.tail_batch * self.tail_batch;
    }

    /// Descriptors in memory that the card may fetch.
    #[inline]
    pub(crate) fn fetchable(&self) -> u64 {
        self.published - self.fetched
    }

    /// Whether the card has, gets or could get a descriptor.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.on_chip > 0 || self.fetching > 0 || self.fetchable() > 0
    }

    /// Descriptors the card may still use, wherever they are.
    pub(crate) fn owned_by_card(&self) -> u64 {
        self.fetchable() + u64::from(self.on_chip) + u64::from(self.fetching)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_ring_of_256_gives_the_card_240_as_the_e1000_does() {
        let mut descriptors = Descriptors::new(&Ring { descriptors: 256, ..Ring::default() });
        assert_eq!((descriptors.published, descriptors.until_tail()), (240, 1));
        descriptors.fill(1);
        assert_eq!((descriptors.published, descriptors.until_tail()), (256, 16));
        descriptors.fill(15);
        assert_eq!(descriptors.published, 256);
        descriptors.fill(1);
        assert_eq!(descriptors.published, 272);
    }

    #[test]
    fn a_tail_per_descriptor_keeps_one_back() {
        let ring = Ring { descriptors: 8, tail_batch: 1, ..Ring::default() };
        assert_eq!(Descriptors::new(&ring).published, 7);
    }
}
