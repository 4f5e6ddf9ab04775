//! Frames of a run, compiled once and then stamped, packet after packet, into the slots of a ring.
//!
//! A slot is primed once with everything that never changes. From then on a packet costs only its own bytes:
//! varying fields, lengths, sequence, time and checksums. Checksums are not corrected from the slot's old
//! values: the sum of what is constant is known, and the packet's own words are added to it. That is RFC 1624
//! without reading the slot, and two packets in one slot cannot disturb each other.

mod draw;
mod recipe;
mod spec;
#[cfg(test)]
mod tests;

pub use draw::{Cycle, Draw, DrawValue};
pub use recipe::{AddressDraws, Recipe};
pub use spec::{FrameSpec, SpecError};

use crate::{
    flow::{FlowKey, PROTOCOL_UDP},
    ipv4::{self, Ipv4Header},
    ipv6,
    probe::PROBE_LEN,
    size::{FrameSize, MeanFrameSize},
    udp::{self, UdpHeader},
};

/// Frames of a run, ready to be stamped.
///
/// Everything about packet n follows from n, so threads may share a template, and a run can be resumed. The
/// pattern starts again when the sequence wraps at 2^32.
#[derive(Debug, Clone)]
pub struct Template {
    recipe: Recipe,
    mean_frame_size: MeanFrameSize,
}

impl Template {
    /// Compiles the frames of a run.
    ///
    /// # Errors
    /// The first of [`FrameSpec::problems`].
    pub fn new(spec: &FrameSpec) -> Result<Self, SpecError> {
        if let Some(problem) = spec.problems().into_iter().next() {
            return Err(problem);
        }
        let recipe = Recipe::new(spec);
        let sizes = recipe.payload_len.every().map(|bytes| FrameSize::from_payload(bytes, spec.layers()));
        let mean = MeanFrameSize::of(sizes.collect::<Result<Vec<_>, _>>()?);
        Ok(Self { recipe, mean_frame_size: mean.expect("a draw has a value") })
    }

    /// Fills a slot with everything that never changes.
    ///
    /// # Panics
    /// When the slot is shorter than [`Template::max_frame_len`].
    pub fn prime_frame(&self, slot: &mut [u8]) {
        slot[..self.recipe.base.len()].copy_from_slice(&self.recipe.base);
    }

    /// Makes packet `sequence` of a slot that was primed by this template, sent at `time_ns` of the sender's
    /// clock. Returns the length of the frame without FCS.
    ///
    /// # Panics
    /// When the slot is shorter than [`Template::max_frame_len`].
    #[inline]
    pub fn restamp_frame(&self, slot: &mut [u8], sequence: u32, time_ns: u64) -> usize {
        let recipe = &self.recipe;
        let frame = &mut slot[..recipe.base.len()];
        let (mut ipv4_sum, mut udp_sum) = (recipe.ipv4_sum, recipe.udp_sum);

        match &recipe.addresses {
            AddressDraws::V4 { src, dst } => {
                for (draw, field) in [(src, ipv4::SRC), (dst, ipv4::DST)] {
                    if let Some(bits) = draw.varying(sequence) {
                        put(frame, recipe.ip_at + field.start, bits.to_be_bytes());
                        ipv4_sum = ipv4_sum.add(bits);
                        udp_sum = udp_sum.add(bits);
                    }
                }
            }
            AddressDraws::V6 { src, dst } => {
                for (draw, field) in [(src, ipv6::SRC), (dst, ipv6::DST)] {
                    if let Some(bits) = draw.varying(sequence) {
                        put(frame, recipe.ip_at + field.start, bits.to_be_bytes());
                        udp_sum = udp_sum.add_ipv6(bits.into());
                    }
                }
            }
        }
        for (draw, field) in [(&recipe.src_port, udp::SRC_PORT), (&recipe.dst_port, udp::DST_PORT)] {
            if let Some(port) = draw.varying(sequence) {
                put(frame, recipe.udp_at + field.start, port.to_be_bytes());
                udp_sum = udp_sum.add(port.into());
            }
        }

        let mut frame_len = frame.len();
        if let Some(payload_len) = recipe.payload_len.varying(sequence) {
            let udp_len = payload_len as u16 + UdpHeader::LEN as u16;
            put(frame, recipe.udp_at + udp::LEN.start, udp_len.to_be_bytes());
            udp_sum = udp_sum.add(2 * u32::from(udp_len)); // in the pseudo header too
            let (ip_len, field) = match recipe.addresses {
                AddressDraws::V4 { .. } => (udp_len + Ipv4Header::LEN as u16, ipv4::TOTAL_LEN),
                AddressDraws::V6 { .. } => (udp_len, ipv6::PAYLOAD_LEN),
            };
            put(frame, recipe.ip_at + field.start, ip_len.to_be_bytes());
            ipv4_sum = ipv4_sum.add(ip_len.into());
            frame_len = recipe.frame_len(payload_len);
        }

        let time = self.stamp_probe(&mut frame[recipe.payload_at..], sequence, time_ns);
        udp_sum = udp_sum.add(sequence).add((time >> 32) as u32).add(time as u32);
        put(frame, recipe.udp_at + udp::CHECKSUM.start, udp_sum.finish_udp().to_be_bytes());
        if recipe.ipv4_checksum_varies {
            put(frame, recipe.ip_at + ipv4::CHECKSUM.start, ipv4_sum.finish().to_be_bytes());
        }
        frame_len
    }

    /// Writes the whole of packet `sequence` into any slot: [`Template::prime_frame`], then
    /// [`Template::restamp_frame`].
    ///
    /// # Panics
    /// When the slot is shorter than [`Template::max_frame_len`].
    pub fn stamp_frame(&self, slot: &mut [u8], sequence: u32, time_ns: u64) -> usize {
        self.prime_frame(slot);
        self.restamp_frame(slot, sequence, time_ns)
    }

    /// Fills a slot with everything of a UDP payload that never changes.
    ///
    /// # Panics
    /// When the slot is shorter than [`Template::max_payload_len`].
    pub fn prime_payload(&self, slot: &mut [u8]) {
        slot[..self.max_payload_len()].copy_from_slice(self.payload_base());
    }

    /// Makes the payload of packet `sequence` of a slot that was primed by this template; returns its length.
    ///
    /// # Panics
    /// When the slot is shorter than the probe header.
    #[inline]
    pub fn restamp_payload(&self, slot: &mut [u8], sequence: u32, time_ns: u64) -> usize {
        self.stamp_probe(slot, sequence, time_ns);
        self.payload_len(sequence)
    }

    /// Writes the whole payload of packet `sequence` into any slot; returns its length.
    ///
    /// # Panics
    /// When the slot is shorter than [`Template::max_payload_len`].
    pub fn stamp_payload(&self, slot: &mut [u8], sequence: u32, time_ns: u64) -> usize {
        self.prime_payload(slot);
        self.restamp_payload(slot, sequence, time_ns)
    }

    /// The longest frame, without FCS.
    pub fn max_frame_len(&self) -> usize {
        self.recipe.base.len()
    }

    /// The longest UDP payload.
    pub fn max_payload_len(&self) -> usize {
        self.payload_base().len()
    }

    /// The mean frame size over a whole cycle.
    pub fn mean_frame_size(&self) -> MeanFrameSize {
        self.mean_frame_size
    }

    /// The length of packet `sequence` as a frame without FCS.
    #[inline]
    pub fn frame_len(&self, sequence: u32) -> usize {
        self.recipe.frame_len(self.recipe.payload_len.at(sequence))
    }

    /// The UDP payload's length in packet `sequence`.
    #[inline]
    pub fn payload_len(&self, sequence: u32) -> usize {
        self.recipe.payload_len.at(sequence) as usize
    }

    /// The flow of packet `sequence`.
    pub fn flow(&self, sequence: u32) -> FlowKey {
        FlowKey {
            addresses: self.recipe.addresses.at(sequence),
            src_port: self.recipe.src_port.at(sequence),
            dst_port: self.recipe.dst_port.at(sequence),
            protocol: PROTOCOL_UDP,
        }
    }

    /// The template as plain data.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Writes sequence and time into a primed probe header; returns the time as written.
    #[inline]
    fn stamp_probe(&self, payload: &mut [u8], sequence: u32, time_ns: u64) -> u64 {
        let header: &mut [u8; PROBE_LEN] = payload.first_chunk_mut().expect("a payload holds a probe header");
        let time = self.recipe.clock.encode(time_ns);
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        header[8..16].copy_from_slice(&time.to_be_bytes());
        time
    }

    fn payload_base(&self) -> &[u8] {
        let start = self.recipe.payload_at;
        &self.recipe.base[start..start + self.recipe.max_payload_len]
    }
}

#[inline]
fn put<const N: usize>(frame: &mut [u8], at: usize, bytes: [u8; N]) {
    frame[at..at + N].copy_from_slice(&bytes);
}
