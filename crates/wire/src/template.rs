//! Frames of a run, compiled once and then stamped, packet after packet, into the slots of a ring.
//!
//! A slot is primed once with everything that never changes. After that a packet costs only its own bytes: varying
//! fields, lengths, sequence, time and checksums. Checksums are not updated from the slot's old values: the sum of the
//! constant part is known, and the packet's own words are added to it. That is RFC 1624 without reading the slot, and two
//! packets in one slot cannot disturb each other.

mod draw;
mod recipe;
mod spec;
#[cfg(test)]
mod tests;

pub use draw::{Cycle, Draw, DrawValue};
pub use recipe::{AddressDraws, Recipe};
pub use spec::{FrameSpec, SpecError};

use crate::{
    checksum::Checksum,
    flow::{FlowKey, PROTOCOL_UDP},
    ipv4::{self, Ipv4Header},
    ipv6,
    probe::PROBE_LEN,
    size::{FrameSize, MeanFrameSize},
    udp::{self, UdpHeader},
};

/// Frames of a run, ready to stamp.
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
        Ok(Self { recipe, mean_frame_size: mean.expect("a draw always has a value") })
    }

    /// Fills a slot with everything that never changes.
    ///
    /// # Panics
    /// When the slot is shorter than [`Template::max_frame_len`].
    pub fn prime_frame(&self, slot: &mut [u8]) {
        slot[..self.recipe.base.len()].copy_from_slice(&self.recipe.base);
    }

    /// Writes packet `sequence` into a slot that this template primed, sent at `time_ns` of the sender's
    /// clock. Returns the length of the frame without FCS.
    ///
    /// # Panics
    /// When the slot is shorter than [`Template::max_frame_len`].
    #[inline]
    pub fn restamp_frame(&self, slot: &mut [u8], sequence: u32, time_ns: u64) -> usize {
        let recipe = &self.recipe;
        let frame = &mut slot[..recipe.base.len()];
        let (mut udp_sum, frame_len) = match recipe.ip_varies {
            true => self.restamp_ip(frame, sequence),
            false => (recipe.udp_sum, frame.len()),
        };
        let datagram: &mut [u8; UdpHeader::LEN + PROBE_LEN] =
            frame[recipe.udp_at..].first_chunk_mut().expect("a frame holds a UDP and a probe header");
        for (draw, field) in [(&recipe.src_port, udp::SRC_PORT), (&recipe.dst_port, udp::DST_PORT)] {
            if let Some(port) = draw.varying(sequence) {
                datagram[field].copy_from_slice(&port.to_be_bytes());
                udp_sum = udp_sum.add_word(port.into());
            }
        }
        let time = self.stamp_probe(&mut datagram[UdpHeader::LEN..], sequence, time_ns);
        udp_sum = udp_sum.add_word(sequence).add_word((time >> 32) as u32).add_word(time as u32);
        datagram[udp::CHECKSUM].copy_from_slice(&udp_sum.finish_udp().to_be_bytes());
        frame_len
    }

    /// Writes packet `sequence` whole into any slot: [`Template::prime_frame`], then
    /// [`Template::restamp_frame`].
    ///
    /// # Panics
    /// When the slot is shorter than [`Template::max_frame_len`].
    pub fn stamp_frame(&self, slot: &mut [u8], sequence: u32, time_ns: u64) -> usize {
        self.prime_frame(slot);
        self.restamp_frame(slot, sequence, time_ns)
    }

    /// Fills a slot with the constant part of a UDP payload.
    ///
    /// # Panics
    /// When the slot is shorter than [`Template::max_payload_len`].
    pub fn prime_payload(&self, slot: &mut [u8]) {
        slot[..self.max_payload_len()].copy_from_slice(self.payload_base());
    }

    /// Writes the payload of packet `sequence` into a slot that this template primed; returns its length.
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

    /// Stamps what varies below UDP: addresses, lengths and the IPv4 checksum. Returns the sum for the UDP
    /// checksum so far, and the frame's length.
    #[inline]
    fn restamp_ip(&self, frame: &mut [u8], sequence: u32) -> (Checksum, usize) {
        let recipe = &self.recipe;
        let (header, datagram) = frame[recipe.ip_at..].split_at_mut(recipe.udp_at - recipe.ip_at);
        let mut udp_sum = recipe.udp_sum;
        let payload_len = recipe.payload_len.varying(sequence);
        let udp_len = payload_len.map(|len| len as u16 + UdpHeader::LEN as u16);
        if let Some(udp_len) = udp_len {
            datagram[udp::LEN].copy_from_slice(&udp_len.to_be_bytes());
            udp_sum = udp_sum.add_word(2 * u32::from(udp_len)); // it is in the pseudo header too
        }
        match &recipe.addresses {
            AddressDraws::V4 { src, dst } => {
                let mut ipv4_sum = recipe.ipv4_sum;
                for (draw, field) in [(src, ipv4::SRC), (dst, ipv4::DST)] {
                    if let Some(bits) = draw.varying(sequence) {
                        header[field].copy_from_slice(&bits.to_be_bytes());
                        ipv4_sum = ipv4_sum.add_word(bits);
                        udp_sum = udp_sum.add_word(bits);
                    }
                }
                if let Some(udp_len) = udp_len {
                    let total_len = udp_len + Ipv4Header::LEN as u16;
                    header[ipv4::TOTAL_LEN].copy_from_slice(&total_len.to_be_bytes());
                    ipv4_sum = ipv4_sum.add_word(total_len.into());
                }
                header[ipv4::CHECKSUM].copy_from_slice(&ipv4_sum.finish().to_be_bytes());
            }
            AddressDraws::V6 { src, dst } => {
                for (draw, field) in [(src, ipv6::SRC), (dst, ipv6::DST)] {
                    if let Some(bits) = draw.varying(sequence) {
                        header[field].copy_from_slice(&bits.to_be_bytes());
                        udp_sum = udp_sum.add_ipv6(bits.into());
                    }
                }
                if let Some(udp_len) = udp_len {
                    header[ipv6::PAYLOAD_LEN].copy_from_slice(&udp_len.to_be_bytes());
                }
            }
        }
        (udp_sum, payload_len.map_or(recipe.base.len(), |len| recipe.frame_len(len)))
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
