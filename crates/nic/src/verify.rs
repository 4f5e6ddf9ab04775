//! Which queue a flow's packets actually take: marked packets are sent from the other end of the cable, and the queues'
//! counters show where they arrived.

use std::{
    io,
    time::{Duration, Instant},
};

use serde::Serialize;
use sys::{
    packet::{PacketSocket, TxRing, TxRingLayout},
    rtnetlink::RouteSocket,
};
use thiserror::Error;
use wire::{FlowKey, FrameSpec, MacAddr, PROTOCOL_UDP, SizeMix, Sizes, Template, Values};

use crate::{Card, NicError, QueueCounts, counters::read_queue_counts_again, read_queue_counts};

/// Sends marked packets to a card and finds their queues.
pub struct Verifier {
    socket: PacketSocket,
    ring: TxRing,
    via: String,
    src_mac: MacAddr,
    dst_mac: MacAddr,
    packets: u32,
    frame_bytes: usize,
}

/// Where a flow's packets arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// The receive queue that counted them; `None` when no queue or several counted them.
    pub queue: Option<u32>,
    /// Packets sent.
    pub sent: u32,
    /// Packets that all queues together counted in that time, including other traffic.
    pub counted: u64,
}

/// Why queues cannot be verified.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The card could not be queried.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The sending interface.
    #[error("cannot send marked packets from {via}")]
    Send {
        /// The interface's name.
        via: String,
        /// The cause.
        source: io::Error,
    },
    /// An interface without a hardware address.
    #[error("{interface} has no Ethernet address")]
    NoMac {
        /// The interface's name.
        interface: String,
    },
    /// The driver does not count by queue.
    #[error("the driver of {interface} does not count packets by queue")]
    NotCounted {
        /// The interface's name.
        interface: String,
    },
    /// Only UDP is sent.
    #[error("marked packets are UDP, not {flow}")]
    NotUdp {
        /// The flow.
        flow: String,
    },
}

/// The smallest frame with IPv6, UDP and room for a mark, in bytes.
const FRAME_BYTES: usize = 96;
/// How long marked packets may take to be counted.
const ARRIVAL: Duration = Duration::from_millis(500);

impl Verifier {
    /// Prepares to send `packets` packets per flow from interface `via` to `card`. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// [`VerifyError`].
    pub fn new(card: &mut Card, via: &str, packets: u32) -> Result<Self, VerifyError> {
        Self::with_frames(card, via, packets, FRAME_BYTES)
    }

    /// The same with frames of `frame_bytes` bytes, at least 96, including the FCS.
    ///
    /// # Errors
    /// [`VerifyError`].
    pub fn with_frames(
        card: &mut Card,
        via: &str,
        packets: u32,
        frame_bytes: usize,
    ) -> Result<Self, VerifyError> {
        let frame_bytes = frame_bytes.max(FRAME_BYTES);
        let mac = |name: &str, mac: Option<[u8; 6]>| {
            mac.map(MacAddr).ok_or_else(|| VerifyError::NoMac { interface: name.into() })
        };
        let peer =
            RouteSocket::open().and_then(|mut route| route.link_by_name(via)).map_err(NicError::from)?;
        let own = card.link()?;
        let failed = |source| VerifyError::Send { via: via.into(), source };
        let socket = PacketSocket::open().map_err(failed)?;
        let layout = TxRingLayout::new(packets.next_power_of_two().max(64) as usize, frame_bytes);
        let ring = socket.transmit_ring(layout).map_err(failed)?;
        socket.bind_to_send(peer.index).map_err(failed)?;
        Ok(Self {
            socket,
            ring,
            via: via.into(),
            src_mac: mac(via, peer.mac)?,
            dst_mac: mac(card.name(), own.mac)?,
            packets: packets.max(1),
            frame_bytes,
        })
    }

    /// Sends one flow's packets and waits until they are counted.
    ///
    /// # Errors
    /// [`VerifyError::NotCounted`] when no queue has a counter.
    pub fn observe(&mut self, card: &mut Card, flow: &FlowKey) -> Result<Observed, VerifyError> {
        let before = read_queue_counts(card)?;
        Ok(self.observe_since(card, &before, flow)?.0)
    }

    /// The same for many flows, one after the other: each reading of the counters ends one flow and begins the next.
    ///
    /// # Errors
    /// As [`Verifier::observe`].
    pub fn observe_all(&mut self, card: &mut Card, flows: &[FlowKey]) -> Result<Vec<Observed>, VerifyError> {
        let mut before = read_queue_counts(card)?;
        let mut all = Vec::with_capacity(flows.len());
        for flow in flows {
            let (observed, after) = self.observe_since(card, &before, flow)?;
            all.push(observed);
            before = after;
        }
        Ok(all)
    }

    fn observe_since(
        &mut self,
        card: &mut Card,
        before: &QueueCounts,
        flow: &FlowKey,
    ) -> Result<(Observed, QueueCounts), VerifyError> {
        if before.rx.is_empty() {
            return Err(VerifyError::NotCounted { interface: card.name().into() });
        }
        self.send(flow, self.packets)?;
        let deadline = Instant::now() + ARRIVAL;
        loop {
            let after = read_queue_counts_again(card, before)?;
            let (counted, queue) = arrived(before, &after, self.packets.into());
            if counted >= u64::from(self.packets) || Instant::now() > deadline {
                return Ok((Observed { queue, sent: self.packets, counted }, after));
            }
        }
    }

    /// Sends packets of one flow as fast as possible, and returns how many left.
    ///
    /// # Errors
    /// [`VerifyError::Send`].
    pub fn flood(&mut self, flow: &FlowKey, packets: u64) -> Result<u64, VerifyError> {
        let mut sent = 0;
        while sent < packets {
            let burst = (packets - sent).min(self.ring.slots() as u64);
            self.send(flow, burst as u32)?;
            sent += burst;
        }
        Ok(sent)
    }

    fn send(&mut self, flow: &FlowKey, packets: u32) -> Result<(), VerifyError> {
        if flow.protocol != PROTOCOL_UDP {
            return Err(VerifyError::NotUdp { flow: flow.to_string() });
        }
        let via = self.via.clone();
        let failed = |source| VerifyError::Send { via: via.clone(), source };
        let spec = FrameSpec {
            src_mac: self.src_mac,
            dst_mac: self.dst_mac,
            src_addr: Values::Fixed(flow.addresses.src()),
            dst_addr: Values::Fixed(flow.addresses.dst()),
            src_port: Values::Fixed(flow.src_port),
            dst_port: Values::Fixed(flow.dst_port),
            sizes: Sizes::Frame(SizeMix::Values(Values::Fixed(self.frame_bytes as u32))),
            ..FrameSpec::default()
        };
        let template = Template::new(&spec)
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error.to_string())))?;
        let mut slot = vec![0; template.max_frame_len()];
        template.prime_frame(&mut slot);
        let (mut sequence, mut left) = (0, packets as usize);
        let deadline = Instant::now() + ARRIVAL;
        // A slot is free again once the driver has sent its frame.
        while left > 0 || self.ring.waiting() > 0 {
            left -= self.ring.fill(left, |frame| {
                let len = template.restamp_frame(&mut slot, sequence, 0);
                sequence += 1;
                frame[..len].copy_from_slice(&slot[..len]);
                len
            });
            let sent = self.socket.transmit();
            self.ring.count_taken();
            match sent {
                Err(error)
                    if error.raw_os_error() != Some(ENOBUFS) && error.kind() != io::ErrorKind::WouldBlock =>
                {
                    return Err(failed(error));
                }
                _ if Instant::now() > deadline => return Err(failed(io::ErrorKind::TimedOut.into())),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The interface refused a frame, which stays in its slot.
const ENOBUFS: i32 = 105;

/// Packets that arrived on all queues, and the one queue that got at least as many as were sent.
fn arrived(before: &QueueCounts, after: &QueueCounts, sent: u64) -> (u64, Option<u32>) {
    let grown = |queue: &u32| {
        let was = before.rx.get(queue).map_or(0, |count| count.packets);
        after.rx.get(queue).map_or(0, |count| count.packets.saturating_sub(was))
    };
    let counted = after.rx.keys().map(grown).sum();
    let mut full = after.rx.keys().copied().filter(|queue| grown(queue) >= sent);
    let queue = full.next().filter(|_| full.next().is_none());
    (counted, queue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QueueCount;

    fn counts(packets: &[u64]) -> QueueCounts {
        let rx = (0..)
            .zip(packets.iter().map(|packets| QueueCount { packets: *packets, ..QueueCount::default() }));
        QueueCounts { rx: rx.collect(), ..QueueCounts::default() }
    }

    #[test]
    fn the_queue_that_got_them_all_is_theirs() {
        assert_eq!(arrived(&counts(&[5, 5]), &counts(&[6, 13]), 8), (9, Some(1)));
        assert_eq!(arrived(&counts(&[5, 5]), &counts(&[9, 9]), 8), (8, None));
        assert_eq!(arrived(&counts(&[5, 5]), &counts(&[13, 13]), 8), (16, None));
    }
}
