//! Classic pcap files of Ethernet frames, over any `Read` or `Write`.
//!
//! Written with nanoseconds in this machine's byte order; read with micro- or nanoseconds in either order
//! (draft-ietf-opsawg-pcap). Own code: the available crate brings second versions of three others.

use std::io::{self, ErrorKind, Read, Write};

use thiserror::Error;

const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;
const VERSION_MAJOR: u16 = 2;
const VERSION_MINOR: u16 = 4;
const LINKTYPE_ETHERNET: u32 = 1;
/// The low bits of the link type field; the rest may describe an FCS.
const LINKTYPE_MASK: u32 = 0x0fff_ffff;
/// The longest frame that can be written or read; libpcap has the same limit.
const SNAP_LEN: u32 = 262_144;

/// Writes frames to a pcap file.
#[derive(Debug)]
pub struct PcapWriter<W> {
    output: W,
}

/// Reads frames from a pcap file.
#[derive(Debug)]
pub struct PcapReader<R> {
    input: R,
    /// A record's header, then its frame.
    buffer: Vec<u8>,
    frames_read: u64,
    swapped: bool,
    nanos: bool,
}

/// A frame of a pcap file, lent until the next is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcapFrame<'r> {
    /// Capture time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Length on the link; larger than the data here when the capture truncated it.
    pub original_len: u32,
    /// Its bytes.
    pub bytes: &'r [u8],
}

/// Why a pcap file cannot be written or read.
#[derive(Debug, Error)]
pub enum PcapError {
    /// Reading or writing failed.
    #[error("cannot {action} of a pcap file")]
    Io {
        /// What was tried: `write a frame`, `read the header`, and so on.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Another format.
    #[error("this is not a pcap file: it starts with {magic:#010x}{}", pcapng_hint(*magic))]
    NotPcap {
        /// The first four bytes.
        magic: u32,
    },
    /// Frames of another kind of link.
    #[error("the pcap file holds frames of link type {link_type}; only Ethernet (1) is read")]
    LinkType {
        /// The number in the file.
        link_type: u32,
    },
    /// An impossible length or time: the file is corrupt.
    #[error("the pcap file is corrupt at frame {number}: length {len} bytes and {fraction} in the second")]
    Broken {
        /// Counted from 1.
        number: u64,
        /// The length in its record.
        len: u32,
        /// The fraction of a second in its record, in the file's unit.
        fraction: u32,
    },
    /// A frame that the format cannot hold.
    #[error(
        "a frame of {len} bytes at {time_ns} ns does not fit a pcap file: at most 262144 bytes, until 2106"
    )]
    DoesNotFit {
        /// Bytes of the frame.
        len: usize,
        /// Its time.
        time_ns: u64,
    },
}

fn pcapng_hint(magic: u32) -> &'static str {
    if magic == MAGIC_PCAPNG { ", which is pcapng: convert it with editcap -F nsecpcap" } else { "" }
}

impl<W: Write> PcapWriter<W> {
    /// Starts a file. Pass a buffered writer: it is faster.
    ///
    /// # Errors
    /// [`PcapError::Io`] when the header cannot be written.
    pub fn new(mut output: W) -> Result<Self, PcapError> {
        let mut header = [0; 24];
        header[0..4].copy_from_slice(&MAGIC_NANOS.to_ne_bytes());
        header[4..6].copy_from_slice(&VERSION_MAJOR.to_ne_bytes());
        header[6..8].copy_from_slice(&VERSION_MINOR.to_ne_bytes());
        header[16..20].copy_from_slice(&SNAP_LEN.to_ne_bytes());
        header[20..24].copy_from_slice(&LINKTYPE_ETHERNET.to_ne_bytes());
        output.write_all(&header).map_err(while_trying("write the header"))?;
        Ok(Self { output })
    }

    /// Adds a whole frame, captured `time_ns` after 1970.
    ///
    /// # Errors
    /// [`PcapError::Io`], or [`PcapError::DoesNotFit`] for a frame above 262144 bytes or a time after 2106.
    pub fn write(&mut self, time_ns: u64, frame: &[u8]) -> Result<(), PcapError> {
        let does_not_fit = || PcapError::DoesNotFit { len: frame.len(), time_ns };
        let len = u32::try_from(frame.len()).ok().filter(|len| *len <= SNAP_LEN).ok_or_else(does_not_fit)?;
        let seconds = u32::try_from(time_ns / 1_000_000_000).map_err(|_| does_not_fit())?;
        let nanos = (time_ns % 1_000_000_000) as u32;
        let mut record = [0; 16];
        for (field, value) in record.chunks_exact_mut(4).zip([seconds, nanos, len, len]) {
            field.copy_from_slice(&value.to_ne_bytes());
        }
        self.output.write_all(&record).map_err(while_trying("write a frame"))?;
        self.output.write_all(frame).map_err(while_trying("write a frame"))
    }

    /// The output, which holds whole frames.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// [`PcapError::Io`] when the rest cannot be written.
    pub fn finish(mut self) -> Result<W, PcapError> {
        self.output.flush().map_err(while_trying("write the end"))?;
        Ok(self.output)
    }
}

impl<R: Read> PcapReader<R> {
    /// Reads the file's header. Pass a buffered reader: it is faster.
    ///
    /// # Errors
    /// [`PcapError`] when it cannot be read, is another format, or holds no Ethernet.
    pub fn new(mut input: R) -> Result<Self, PcapError> {
        let mut header = [0; 24];
        input.read_exact(&mut header).map_err(while_trying("read the header"))?;
        let magic = u32_at(&header, 0, false);
        let (swapped, nanos) = match magic {
            MAGIC_NANOS => (false, true),
            MAGIC_MICROS => (false, false),
            _ if magic.swap_bytes() == MAGIC_NANOS => (true, true),
            _ if magic.swap_bytes() == MAGIC_MICROS => (true, false),
            _ => return Err(PcapError::NotPcap { magic }),
        };
        match u32_at(&header, 20, swapped) & LINKTYPE_MASK {
            LINKTYPE_ETHERNET => Ok(Self { input, buffer: Vec::new(), frames_read: 0, swapped, nanos }),
            link_type => Err(PcapError::LinkType { link_type }),
        }
    }

    /// The next frame, `None` at the end.
    ///
    /// # Errors
    /// [`PcapError`] when the file ends within a frame, cannot be read, or is broken.
    pub fn next_frame(&mut self) -> Result<Option<PcapFrame<'_>>, PcapError> {
        if self.fill(16)? == 0 {
            return Ok(None);
        }
        self.frames_read += 1;
        let [seconds, fraction, len, original_len] =
            [0, 4, 8, 12].map(|at| u32_at(&self.buffer, at, self.swapped));
        let nanos_per_fraction: u32 = if self.nanos { 1 } else { 1000 };
        if len > SNAP_LEN || fraction >= 1_000_000_000 / nanos_per_fraction {
            return Err(PcapError::Broken { number: self.frames_read, len, fraction });
        }
        if self.fill(len)? < len {
            return Err(while_trying("read a frame")(ErrorKind::UnexpectedEof.into()));
        }
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction * nanos_per_fraction);
        Ok(Some(PcapFrame { time_ns, original_len, bytes: &self.buffer }))
    }

    /// Reads `len` bytes into the buffer, or none at the end of the file.
    fn fill(&mut self, len: u32) -> Result<u32, PcapError> {
        self.buffer.clear();
        // `take`, not a buffer of that length: a corrupt file must not allocate much memory.
        let read = self.input.by_ref().take(len.into()).read_to_end(&mut self.buffer);
        match read.map_err(while_trying("read a frame"))? as u32 {
            read if read == len || read == 0 => Ok(read),
            _ => Err(while_trying("read a frame")(ErrorKind::UnexpectedEof.into())),
        }
    }
}

fn while_trying(action: &'static str) -> impl Fn(io::Error) -> PcapError {
    move |source| PcapError::Io { action, source }
}

fn u32_at(bytes: &[u8], at: usize, swapped: bool) -> u32 {
    let number = u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if swapped { number.swap_bytes() } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME_NS: u64 = 1_700_000_000_123_456_789;

    fn file(frames: &[&[u8]]) -> Vec<u8> {
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        for frame in frames {
            writer.write(TIME_NS, frame).unwrap();
        }
        writer.finish().unwrap()
    }

    /// Reads the only frame of a file.
    fn read_one(file: &[u8]) -> Result<(u64, Vec<u8>), PcapError> {
        let mut reader = PcapReader::new(file)?;
        let frame = reader.next_frame()?.expect("a frame");
        Ok((frame.time_ns, frame.bytes.to_vec()))
    }

    /// The file with all numbers of its headers in the other byte order.
    fn swapped(file: &[u8]) -> Vec<u8> {
        let mut file = file.to_vec();
        for (start, width) in [(0, 4), (4, 2), (6, 2), (16, 4), (20, 4), (24, 4), (28, 4), (32, 4), (36, 4)] {
            file[start..start + width].reverse();
        }
        file
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_bytes_are_the_formats() {
        let file = file(&[b"abc"]);
        let expected = [
            0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0,
            0, // header
            0x00, 0xf1, 0x53, 0x65, 0x15, 0xcd, 0x5b, 0x07, 3, 0, 0, 0, 3, 0, 0, 0, b'a', b'b', b'c',
        ];
        assert_eq!(file, expected);
    }

    #[test]
    fn frames_read_back_in_order() {
        let file = file(&[b"first", b"", &[7; 1514]]);
        let mut reader = PcapReader::new(&file[..]).unwrap();
        for expected in [&b"first"[..], b"", &[7; 1514]] {
            let original_len = expected.len() as u32;
            let frame = PcapFrame { time_ns: TIME_NS, original_len, bytes: expected };
            assert_eq!(reader.next_frame().unwrap(), Some(frame));
        }
        assert_eq!(reader.next_frame().unwrap(), None);
    }

    #[test]
    fn both_byte_orders_and_both_units_are_read() {
        let nanos = file(&[b"abc"]);
        assert_eq!(read_one(&swapped(&nanos)).unwrap(), (TIME_NS, b"abc".to_vec()));
        let mut micros = nanos;
        micros[0..4].copy_from_slice(&MAGIC_MICROS.to_ne_bytes());
        micros[28..32].copy_from_slice(&123_456u32.to_ne_bytes());
        let expected = (TIME_NS - 789, b"abc".to_vec());
        assert_eq!(read_one(&micros).unwrap(), expected);
        assert_eq!(read_one(&swapped(&micros)).unwrap(), expected);
    }

    #[test]
    fn a_file_cut_within_a_frame_is_an_error() {
        let whole = file(&[b"abc"]);
        for len in (25..whole.len()).chain([0, 23]) {
            let error = read_one(&whole[..len]).unwrap_err();
            let PcapError::Io { source, .. } = error else { panic!("{error}") };
            assert_eq!(source.kind(), ErrorKind::UnexpectedEof, "cut at {len}");
        }
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        let good = file(&[b"abc"]);
        let with = |at: usize, number: u32| {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&number.to_ne_bytes());
            read_one(&bad).unwrap_err().to_string()
        };
        assert_eq!(
            with(0, MAGIC_PCAPNG),
            "this is not a pcap file: it starts with 0x0a0d0d0a, which is pcapng: convert it with editcap -F nsecpcap"
        );
        assert_eq!(with(0, 1), "this is not a pcap file: it starts with 0x00000001");
        assert_eq!(with(20, 113), "the pcap file holds frames of link type 113; only Ethernet (1) is read");
        assert_eq!(
            with(32, 262_145),
            "the pcap file is corrupt at frame 1: length 262145 bytes and 123456789 in the second"
        );
        assert!(with(28, 1_000_000_000).contains("1000000000 in the second"));
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        assert_eq!(
            writer.write(1 << 63, &[]).unwrap_err().to_string(),
            "a frame of 0 bytes at 9223372036854775808 ns does not fit a pcap file: at most 262144 bytes, until 2106"
        );
        assert!(writer.write(0, &vec![0; 262_145]).is_err());
    }

    #[test]
    fn a_failing_output_is_told_with_its_cause() {
        let mut full = [0; 10];
        let error = PcapWriter::new(&mut full[..]).unwrap_err();
        assert_eq!(error.to_string(), "cannot write the header of a pcap file");
        assert!(std::error::Error::source(&error).is_some());
    }
}
