//! The probe header at the start of the UDP payload, as kernel pktgen writes it.
//!
//! 16 bytes in network order: magic, sequence, then the time: seconds and microseconds (mainline
//! `net/core/pktgen.c`, `struct pktgen_hdr`) or 64 bits of nanoseconds (the pgrx fork). A payload of 18 bytes or more
//! also carries a stream tag, by which a receiver distinguishes linerate's senders; pktgen's packets hold zero there.

use serde::{Deserialize, Serialize};

/// First four bytes of every probe, `PKTGEN_MAGIC`.
pub const PROBE_MAGIC: u32 = 0xbe9b_e955;
/// First four bytes of a probe on its way back. Its halves are those of the other magic, swapped, so that no checksum
/// changes and no reflector returns a probe twice.
pub const RETURNED_MAGIC: u32 = PROBE_MAGIC.rotate_left(16);
/// Bytes of the probe header.
pub const PROBE_LEN: usize = 16;
/// Bytes of the probe header and the stream tag behind it.
pub const PROBE_TAGGED_LEN: usize = 18;

/// How the last eight bytes of the probe header encode the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeClock {
    /// 32-bit seconds and 32-bit microseconds of the wall clock: mainline pktgen.
    Micros,
    /// 64-bit nanoseconds of the monotonic clock: the pgrx fork.
    #[default]
    Nanos,
}

/// A probe header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeHeader {
    /// Number of the packet within its stream, wrapping at 2^32.
    pub sequence: u32,
    /// The eight time bytes as one number; see [`ProbeHeader::time_ns`].
    pub raw_time: u64,
    /// The stream tag, 0 when the payload is too short to carry one.
    pub stream: u16,
}

impl ProbeHeader {
    /// Reads the header of a UDP payload; `None` when it is too short or has another magic.
    #[inline]
    pub fn read(payload: &[u8]) -> Option<Self> {
        Self::read_behind(PROBE_MAGIC.to_be_bytes(), payload)
    }

    /// Reads the header of a returned probe.
    #[inline]
    pub fn read_returned(payload: &[u8]) -> Option<Self> {
        Self::read_behind(RETURNED_MAGIC.to_be_bytes(), payload)
    }

    /// Reads the header that begins with these bytes: those of [`PROBE_MAGIC`] or of [`RETURNED_MAGIC`].
    // Always inline: then fields that the caller does not use are not read.
    #[inline(always)]
    pub fn read_behind(magic: [u8; 4], payload: &[u8]) -> Option<Self> {
        let header: &[u8; PROBE_LEN] = payload.first_chunk()?;
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[..4] != magic {
            return None;
        }
        let raw_time = u64::from(word(8)) << 32 | u64::from(word(12));
        let stream = match payload.get(PROBE_LEN..PROBE_TAGGED_LEN) {
            Some(tag) => u16::from_be_bytes([tag[0], tag[1]]),
            None => 0,
        };
        Some(Self { sequence: word(4), raw_time, stream })
    }

    /// Writes the header at the start of a UDP payload.
    ///
    /// # Panics
    /// When the payload is shorter than [`PROBE_LEN`].
    #[inline]
    pub fn write(&self, payload: &mut [u8]) {
        let header: &mut [u8; PROBE_LEN] = payload.first_chunk_mut().expect("a payload holds a probe header");
        header[0..4].copy_from_slice(&PROBE_MAGIC.to_be_bytes());
        header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[8..16].copy_from_slice(&self.raw_time.to_be_bytes());
        if let Some(tag) = payload.get_mut(PROBE_LEN..PROBE_TAGGED_LEN) {
            tag.copy_from_slice(&self.stream.to_be_bytes());
        }
    }

    /// Marks a probe's payload as returned; `false` when it is not a probe.
    #[inline]
    pub fn turn_back(payload: &mut [u8]) -> bool {
        let is_probe = payload.len() >= PROBE_LEN && payload[..4] == PROBE_MAGIC.to_be_bytes();
        if is_probe {
            payload[..4].copy_from_slice(&RETURNED_MAGIC.to_be_bytes());
        }
        is_probe
    }

    /// Which clock the time bytes seem to show, `None` when they are empty. Nanoseconds since boot would look like a wall
    /// clock only after 73 years.
    #[inline]
    pub fn likely_clock(&self) -> Option<ProbeClock> {
        const SECONDS_1987: u64 = 1 << 29;
        let (seconds, micros) = (self.raw_time >> 32, self.raw_time & 0xffff_ffff);
        if self.raw_time == 0 {
            return None;
        }
        let is_wall = seconds >= SECONDS_1987 && micros < 1_000_000;
        Some(if is_wall { ProbeClock::Micros } else { ProbeClock::Nanos })
    }

    /// The send time in nanoseconds of the sender's clock, decoded as `clock` says.
    #[inline]
    pub fn time_ns(&self, clock: ProbeClock) -> u64 {
        match clock {
            ProbeClock::Nanos => self.raw_time,
            ProbeClock::Micros => {
                (self.raw_time >> 32) * 1_000_000_000 + (self.raw_time & 0xffff_ffff) * 1000
            }
        }
    }
}

impl ProbeClock {
    /// Nanoseconds as the eight time bytes of a header.
    #[inline]
    pub fn encode(self, time_ns: u64) -> u64 {
        match self {
            Self::Nanos => time_ns,
            Self::Micros => ((time_ns / 1_000_000_000) << 32) | (time_ns % 1_000_000_000 / 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_pktgens() {
        let mut payload = [0u8; 18];
        let raw_time = ProbeClock::Micros.encode(1_700_000_000_123_456_789);
        ProbeHeader { sequence: 7, raw_time, stream: 0x0102 }.write(&mut payload);
        assert_eq!(
            payload,
            [0xbe, 0x9b, 0xe9, 0x55, 0, 0, 0, 7, 0x65, 0x53, 0xf1, 0x00, 0, 1, 0xe2, 0x40, 1, 2]
        );
    }

    #[test]
    fn what_was_written_reads_back_on_both_clocks() {
        for clock in [ProbeClock::Micros, ProbeClock::Nanos] {
            let mut payload = [0u8; 32];
            let time_ns = 1_700_000_000_123_456_000;
            let written = ProbeHeader { sequence: u32::MAX, raw_time: clock.encode(time_ns), stream: 9 };
            written.write(&mut payload);
            let read = ProbeHeader::read(&payload).unwrap();
            assert_eq!(read, written);
            assert_eq!(read.time_ns(clock), time_ns);
        }
    }

    #[test]
    fn a_probe_turns_back_once() {
        let mut payload = [0u8; 18];
        let sent = ProbeHeader { sequence: 7, raw_time: 8, stream: 9 };
        sent.write(&mut payload);
        assert_eq!(ProbeHeader::read_returned(&payload), None);
        assert!(ProbeHeader::turn_back(&mut payload));
        assert_eq!((ProbeHeader::read(&payload), ProbeHeader::read_returned(&payload)), (None, Some(sent)));
        assert!(!ProbeHeader::turn_back(&mut payload), "a returned probe is left alone");
        assert!(!ProbeHeader::turn_back(&mut [0; 18]));
    }

    #[test]
    fn the_clock_is_told_by_its_numbers() {
        let told = |raw_time| ProbeHeader { sequence: 0, raw_time, stream: 0 }.likely_clock();
        assert_eq!(told(ProbeClock::Micros.encode(1_700_000_000_123_456_000)), Some(ProbeClock::Micros));
        for uptime_ns in [1, 1_000_000, 86_400_000_000_000, 10 * 365 * 86_400_000_000_000] {
            assert_eq!(told(ProbeClock::Nanos.encode(uptime_ns)), Some(ProbeClock::Nanos));
        }
        assert_eq!(told(0), None, "pktgen can omit the time");
    }

    #[test]
    fn foreign_and_short_payloads_are_not_probes() {
        assert_eq!(ProbeHeader::read(&[0; 64]), None);
        assert_eq!(ProbeHeader::read(&PROBE_MAGIC.to_be_bytes()), None);
        let mut short = [0u8; 16];
        ProbeHeader { sequence: 1, raw_time: 2, stream: 3 }.write(&mut short);
        assert_eq!(ProbeHeader::read(&short).unwrap().stream, 0);
    }
}
