//! Emitters pass packets on; for most engines a port, in whose slots packets are stamped.

use port::{Layer, PortError, Sent, TxPort};
use wire::Template;

/// Builds the next packets of a stream and passes them on.
pub(crate) trait Emit {
    /// Minimum time between calls, in nanoseconds.
    const LEAST_GAP_NS: u64 = 0;

    /// The most packets for the next call.
    fn batch_size(&self) -> usize;

    /// Builds up to `packets` new ones, sent at `time_ns`; see [`TxPort::send`] about those that were not accepted.
    fn emit(&mut self, packets: usize, time_ns: u64) -> Result<Emitted, PortError>;

    /// After the last call: see [`TxPort::settle`].
    fn settle(&mut self) -> Result<usize, PortError> {
        Ok(0)
    }
}

/// The result of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Emitted {
    pub(crate) sent: Sent,
    /// UDP payload bytes of the filled packets.
    pub(crate) payload_bytes: u64,
}

/// A port and the template that is stamped into its slots.
pub(crate) struct Stamped<P> {
    port: P,
    template: Template,
    sequence: u32,
}

impl<P: TxPort> Stamped<P> {
    pub(crate) fn new(mut port: P, template: Template) -> Self {
        port.prime(|slot| match P::LAYER {
            Layer::Payload => template.prime_payload(slot),
            Layer::Frame => template.prime_frame(slot),
        });
        Self { port, template, sequence: 0 }
    }

    pub(crate) fn port(&self) -> &P {
        &self.port
    }
}

impl<P: TxPort> Emit for Stamped<P> {
    fn batch_size(&self) -> usize {
        self.port.batch_size()
    }

    #[inline]
    fn emit(&mut self, packets: usize, time_ns: u64) -> Result<Emitted, PortError> {
        let mut payload_bytes = 0;
        let sent = self.port.send(packets, |slot| {
            let sequence = self.sequence;
            self.sequence = sequence.wrapping_add(1);
            payload_bytes += self.template.payload_len(sequence) as u64;
            match P::LAYER {
                Layer::Payload => self.template.restamp_payload(slot, sequence, time_ns),
                Layer::Frame => self.template.restamp_frame(slot, sequence, time_ns),
            }
        })?;
        Ok(Emitted { sent, payload_bytes })
    }

    fn settle(&mut self) -> Result<usize, PortError> {
        self.port.settle()
    }
}
