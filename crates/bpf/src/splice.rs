//! Inserts a function that was compiled at run time into an object.
//!
//! The section `.text` of an object holds one function, a placeholder; its calls stay unchanged.
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

/// The object with `code` for the function in `.text`.
///
/// # Panics
/// When the object has no such function: it is this crate's own.
pub(crate) fn with_function(object: &[u8], code: &[Instruction]) -> Vec<u8> {
    let mut elf = Elf(object.to_vec());
    let (text, header) = elf.section(".text").expect("the object has a section .text");
    let (offset, len) = (elf.0.len().next_multiple_of(8), code.len() * 8);
    elf.0.resize(offset, 0);
    elf.0.extend(code.iter().flatten());
    elf.put(header + 0x18, offset);
    elf.put(header + 0x20, len);
    let symbol = elf.function_of(text).expect("the section .text has a function");
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

    /// Where the symbol of a section's function is.
    fn function_of(&self, section: usize) -> Option<usize> {
        let symbols = (0..self.half(SECTION_COUNT_AT))
            .map(|section| self.header(section))
            .find(|header| self.word(header + 4) == KIND_SYMBOLS)?;
        let (start, len) = (self.number(symbols + 0x18), self.number(symbols + 0x20));
        (start..start + len)
            .step_by(SYMBOL_LEN)
            .find(|at| self.0[at + 4] & 0xf == SYMBOL_FUNCTION && self.half(at + 6) == section)
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
        let elf = Elf(spliced.clone());
        let (text, header) = elf.section(".text").unwrap();
        let at = elf.number(header + 0x18);
        assert_eq!(&spliced[at..], code.as_flattened());
        assert_eq!((elf.number(header + 0x20), elf.number(elf.function_of(text).unwrap() + 16)), (40, 40));
        // Offset and size of the section, size of the symbol: a few bytes each.
        let changed = object.iter().zip(&spliced).filter(|(before, after)| before != after).count();
        assert!((2..=24).contains(&changed), "{changed} bytes");
    }
}
