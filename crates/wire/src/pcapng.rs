//! pcapng files of Ethernet frames with a comment each (draft-ietf-opsawg-pcapng): one section, one interface, times in
//! nanoseconds, this machine's byte order.

use std::io::{self, Write};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_RESOLUTION: u16 = 9;
/// 10^-9 seconds.
const NANOSECONDS: u8 = 9;

/// Writes frames to a pcapng file.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    output: W,
    block: Vec<u8>,
}

impl<W: Write> PcapngWriter<W> {
    /// Starts a file; a buffered output is faster.
    ///
    /// # Errors
    /// When the headers cannot be written.
    pub fn new(output: W) -> io::Result<Self> {
        let mut writer = Self { output, block: Vec::new() };
        writer.block(SECTION, |block| {
            block.extend(BYTE_ORDER.to_ne_bytes());
            block.extend([1u16, 0].map(u16::to_ne_bytes).as_flattened());
            block.extend((-1i64).to_ne_bytes()); // its length is not known
        })?;
        writer.block(INTERFACE, |block| {
            block.extend([ETHERNET, 0].map(u16::to_ne_bytes).as_flattened());
            block.extend(0u32.to_ne_bytes()); // frames of any length
            option(block, OPTION_RESOLUTION, &[NANOSECONDS]);
            option(block, OPTION_END, &[]);
        })?;
        Ok(writer)
    }

    /// Adds a frame of `original_len` bytes, of which `bytes` were captured, so many nanoseconds after 1970.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, time_ns: u64, original_len: u32, bytes: &[u8], comment: &str) -> io::Result<()> {
        self.block(ENHANCED_PACKET, |block| {
            let fields = [0, (time_ns >> 32) as u32, time_ns as u32, bytes.len() as u32, original_len];
            block.extend(fields.map(u32::to_ne_bytes).as_flattened());
            padded(block, bytes);
            if !comment.is_empty() {
                // A length has 16 bits; a cut within a letter would be no UTF-8.
                let end = (0..=comment.len().min(usize::from(u16::MAX)))
                    .rev()
                    .find(|end| comment.is_char_boundary(*end));
                option(block, OPTION_COMMENT, &comment.as_bytes()[..end.unwrap_or(0)]);
                option(block, OPTION_END, &[]);
            }
        })
    }

    /// The output; what is in it are whole blocks.
    pub fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    /// A block: its kind, its length before and behind what `fill` adds.
    fn block(&mut self, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.block.clear();
        self.block.extend(kind.to_ne_bytes());
        self.block.extend([0; 4]);
        fill(&mut self.block);
        let len = (self.block.len() as u32 + 4).to_ne_bytes();
        self.block[4..8].copy_from_slice(&len);
        self.block.extend(len);
        self.output.write_all(&self.block)
    }
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    block.extend(code.to_ne_bytes());
    block.extend((value.len() as u16).to_ne_bytes());
    padded(block, value);
}

fn padded(block: &mut Vec<u8>, bytes: &[u8]) {
    block.extend(bytes);
    block.resize(block.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind and content of each block; both lengths agree.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let word = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().unwrap());
        let mut found = Vec::new();
        while !file.is_empty() {
            let len = word(&file[4..]) as usize;
            assert!(len.is_multiple_of(4) && word(&file[len - 4..]) as usize == len);
            found.push((word(file), file[8..len - 4].to_vec()));
            file = &file[len..];
        }
        found
    }

    #[test]
    fn a_file_is_a_section_an_interface_and_packets_with_comments() {
        let mut writer = PcapngWriter::new(Vec::new()).unwrap();
        writer.write(0x1_0000_0002, 60, &[7; 5], "rule 1").unwrap();
        writer.write(3, 4, &[8; 4], "").unwrap();
        let blocks = blocks(writer.output_mut());
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, ENHANCED_PACKET, ENHANCED_PACKET]);
        assert_eq!(blocks[0].1[..8], [BYTE_ORDER.to_ne_bytes(), [1, 0, 0, 0]].concat());
        assert_eq!(blocks[1].1[8..13], [&9u16.to_ne_bytes()[..], &1u16.to_ne_bytes(), &[9]].concat());
        let packet = &blocks[2].1;
        let fields = [0u32, 1, 2, 5, 60].map(u32::to_ne_bytes);
        assert_eq!(packet[..20], *fields.as_flattened());
        assert_eq!(packet[20..28], [7, 7, 7, 7, 7, 0, 0, 0]);
        assert_eq!(packet[28..32], [1u16.to_ne_bytes(), 6u16.to_ne_bytes()].concat());
        assert_eq!(&packet[32..40], b"rule 1\0\0");
        assert_eq!(packet[40..], [0; 4]);
        assert_eq!(blocks[3].1.len(), 24);
    }

    #[test]
    fn a_comment_of_any_length_fits() {
        let mut writer = PcapngWriter::new(Vec::new()).unwrap();
        writer.write(0, 1, &[1], &"ä".repeat(40_000)).unwrap();
        let blocks = blocks(writer.output_mut());
        let len = u16::from_ne_bytes(blocks[2].1[26..28].try_into().unwrap());
        assert_eq!(len, u16::MAX - 1, "whole letters");
    }
}
