//! Receives through AF_XDP, and returns probes to senders that agreed: from the frame they arrived in, on its queue.

use std::sync::Arc;

use bpf::{Redirect, Stamp};
use sys::{clock, xsk::XskStatistics};
use wire::turn_frame_back;

use super::{After, XskQueue, XskQueueOptions, XskRxOptions, interface, receive_losses, rx::attach};
use crate::{
    Layer, Loss, PortError, Received, RxPort, TimeSource, Wait,
    returns::{ReturnCheck, ReturnList},
};

/// An [`XskRx`](super::XskRx) that returns some of its packets.
pub struct XskReflector {
    queue: XskQueue,
    stamp: TimeSource,
    /// The interface's MAC address, which timestamps overwrite.
    mac: [u8; 6],
    check: ReturnCheck,
    lost: u64,
    _redirect: Arc<Redirect>,
}

impl XskReflector {
    /// As [`XskRx::open`](super::XskRx::open); busy polling and one memory for all queues are not supported.
    ///
    /// # Errors
    /// As for [`XskRx::open`](super::XskRx::open).
    ///
    /// # Panics
    /// As for [`XskRx::open`](super::XskRx::open).
    pub fn open(options: &XskRxOptions, list: &Arc<ReturnList>) -> Result<Vec<Self>, PortError> {
        let mut queues = Vec::new();
        let (mut index, mut mac) = (0, [0; 6]);
        for queue in options.queues.iter().copied() {
            let link = interface(&options.interface, queue)?;
            (index, mac) = (link.index, link.mac.unwrap_or_default());
            queues.push(XskQueue::open(&XskQueueOptions {
                interface: options.interface.clone(),
                queue,
                shape: options.shape,
                batch_size: u32::try_from(options.batch_size.max(1)).unwrap_or(u32::MAX),
                copy_mode: options.copy_mode,
            })?);
        }
        let slots = options.queues.iter().max().map_or(0, |queue| queue + 1);
        let (mut redirect, _) = attach(options, index, slots).map_err(PortError::Bpf)?;
        for queue in &queues {
            redirect.insert(queue.queue(), queue).map_err(PortError::Bpf)?;
        }
        let redirect = Arc::new(redirect);
        let port = |queue| Self {
            queue,
            stamp: options.stamp,
            mac,
            check: ReturnCheck::of(list.clone()),
            lost: 0,
            _redirect: redirect.clone(),
        };
        Ok(queues.into_iter().map(port).collect())
    }

    fn statistics(&mut self) -> Result<XskStatistics, PortError> {
        let counted = self.queue.statistics()?;
        self.lost = counted.rx_lost();
        Ok(counted)
    }
}

impl RxPort for XskReflector {
    const LAYER: Layer = Layer::Frame;

    fn recv(&mut self, wait: Wait, mut sink: impl FnMut(Received<'_>)) -> Result<usize, PortError> {
        let Self { queue, stamp, mac, check, .. } = self;
        let is_stamped = *stamp != TimeSource::Loop;
        let mut read_ns = None;
        let turn = queue.turn_whole(wait, |frame, packet| {
            let bytes = &mut frame[packet];
            let mut arrived_ns = None;
            if is_stamped && bytes.len() >= mac.len() {
                let now_ns = *read_ns.get_or_insert_with(clock::monotonic_ns);
                arrived_ns = Stamp::of(bytes).map(|stamp| stamp.arrival_ns(now_ns));
                bytes[..mac.len()].copy_from_slice(mac);
            }
            sink(Received { bytes, truncated: false, arrived_ns, source: None });
            match turn_frame_back(bytes, |sender| check.allows(sender)) {
                Some(_) => After::Send(bytes.len()),
                None => After::Recycle,
            }
        })?;
        queue.push_through()?;
        check.add_returned(turn.sent);
        Ok(turn.received)
    }

    fn time_source(&self) -> TimeSource {
        self.stamp
    }

    fn queue(&self) -> Option<u32> {
        Some(self.queue.queue())
    }

    fn lost_seen(&self) -> u64 {
        self.lost
    }

    fn lost(&mut self) -> Result<u64, PortError> {
        Ok(self.statistics()?.rx_lost())
    }

    fn losses(&mut self) -> Result<Vec<Loss>, PortError> {
        Ok(receive_losses(&self.statistics()?).to_vec())
    }
}
