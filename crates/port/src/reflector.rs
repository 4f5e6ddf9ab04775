//! Receives packets, and returns them after they were read.

use crate::{Joined, Layer, Loss, PortError, Received, RxPort, TimeSource, Wait};

/// A port that returns probes to senders that agreed, after they were read.
pub struct Reflector<P, B> {
    pub(crate) rx: P,
    pub(crate) back: B,
}

/// The return path of a port's packets.
pub trait Back {
    /// Queues a complete packet, if it may return.
    fn take(&mut self, received: &Received<'_>);

    /// Sends the queued packets; packets that cannot be sent at once are dropped.
    ///
    /// # Errors
    /// When the path is broken.
    fn send(&mut self) -> Result<(), PortError>;
}

impl<P: RxPort, B: Back> RxPort for Reflector<P, B> {
    const LAYER: Layer = P::LAYER;
    const PACKETS_TELL_LOSSES: bool = P::PACKETS_TELL_LOSSES;

    fn recv(&mut self, wait: Wait, mut sink: impl FnMut(Received<'_>)) -> Result<usize, PortError> {
        let Self { rx, back } = self;
        let packets = rx.recv(wait, |received| {
            sink(received);
            if !received.truncated {
                back.take(&received);
            }
        })?;
        back.send()?;
        Ok(packets)
    }

    fn queue(&self) -> Option<u32> {
        self.rx.queue()
    }

    fn time_source(&self) -> TimeSource {
        self.rx.time_source()
    }

    fn joined(&self) -> Option<Joined> {
        self.rx.joined()
    }

    fn lost_seen(&self) -> u64 {
        self.rx.lost_seen()
    }

    fn lost(&mut self) -> Result<u64, PortError> {
        self.rx.lost()
    }

    fn losses(&mut self) -> Result<Vec<Loss>, PortError> {
        self.rx.losses()
    }
}
