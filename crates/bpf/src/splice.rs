//! Inserts a function that was compiled at run time into an object.
//!
//! The last function of an object's section `.text` has a body that is replaced; its calls stay unchanged.
//! ELF as in `elf(5)`: little-endian, 64 bits, as clang writes it for BPF.

/// One instruction, as the kernel takes it (`struct bpf_insn`).
pub type Instruction = [u8; 8];

const SECTIONS_AT: usize = 0x28;
const SECTION_COUNT_AT: usize = 0x3c;
const NAMES_AT: usize = 0x3e;
const SECTION_LEN: usize = 64;
const SYMBOL_LEN: usize = 24;
const KIND_SYMBOLS: u32 = 2;
const SYMBOL_FUNCTION: u8 = 2;

/// The object with `code` for the last function in `.text`.
///
/// # Panics
/// When the object has no such function: it is this crate's own.
pub(crate) fn with_function(object: &[u8], code: &[Instruction]) -> Vec<u8> {
    let mut elf = Elf(object.to_vec());
    let (text, header) = elf.section(".text").expect("the object has a section .text");
    let symbol = elf.last_function_of(text).expect("the section .text has a function");
    let (start, before) = (elf.number(header + 0x18), elf.number(symbol + 8));
    let (offset, len) = (elf.0.len().next_multiple_of(8), code.len() * 8);
    elf.0.resize(offset, 0);
    elf.0.extend_from_within(start..start + before);
    elf.0.extend(code.iter().flatten());
    elf.put(header + 0x18, offset);
    elf.put(header + 0x20, before + len);
    elf.put(symbol + 16, len);
    elf.0
}

struct Elf(Vec<u8>);

impl Elf {
    /// Number and header of a section.
    fn section(&self, name: &str) -> Option<(usize, usize)> {
        let names = self.header(self.half(NAMES_AT));
        let names = self.number(names + 0x18);
        (0..self.half(SECTION_COUNT_AT)).map(|section| (section, self.header(section))).find(|(_, header)| {
            let at = names + self.word(*header) as usize;
            self.0[at..].starts_with(name.as_bytes()) && self.0[at + name.len()] == 0
        })
    }

    /// Where the symbol of a section's last function is.
    fn last_function_of(&self, section: usize) -> Option<usize> {
        let symbols = (0..self.half(SECTION_COUNT_AT))
            .map(|section| self.header(section))
            .find(|header| self.word(header + 4) == KIND_SYMBOLS)?;
        let (start, len) = (self.number(symbols + 0x18), self.number(symbols + 0x20));
        (start..start + len)
            .step_by(SYMBOL_LEN)
            .filter(|at| self.0[at + 4] & 0xf == SYMBOL_FUNCTION && self.half(at + 6) == section)
            .max_by_key(|at| self.number(at + 8))
    }

    fn header(&self, section: usize) -> usize {
        self.number(SECTIONS_AT) + section * SECTION_LEN
    }

    fn half(&self, at: usize) -> usize {
        u16::from_le_bytes([self.0[at], self.0[at + 1]]).into()
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn number(&self, at: usize) -> usize {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes")) as usize
    }

    fn put(&mut self, at: usize, number: usize) {
        self.0[at..at + 8].copy_from_slice(&(number as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::object;

    #[test]
    fn the_functions_code_and_size_change_and_nothing_else() {
        let object: &[u8] = object!("divert");
        let code: Vec<Instruction> = (0..5).map(|_| [0x95, 0, 0, 0, 0, 0, 0, 0]).collect();
        let spliced = with_function(object, &code);
        let before = {
            let elf = Elf(object.to_vec());
            let (_, header) = elf.section(".text").unwrap();
            let (at, len) = (elf.number(header + 0x18), elf.number(header + 0x20));
            object[at..at + len].to_vec()
        };
        let elf = Elf(spliced.clone());
        let (text, header) = elf.section(".text").unwrap();
        let function = elf.last_function_of(text).unwrap();
        let (at, kept) = (elf.number(header + 0x18), elf.number(function + 8));
        assert_eq!(spliced[at..], [&before[..kept], code.as_flattened()].concat());
        assert_eq!((elf.number(header + 0x20), elf.number(function + 16)), (kept + 40, 40));
        // Two instructions: the body that is never run.
        assert_eq!(before.len(), kept + 16);
        // Offset and size of the section, size of the symbol: a few bytes each.
        let changed = object.iter().zip(&spliced).filter(|(before, after)| before != after).count();
        assert!((2..=24).contains(&changed), "{changed} bytes");
    }
}
