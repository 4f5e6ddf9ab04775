//! The running kernel's own types (BTF): names of enumerations' values, arguments of trace points, functions.
//!
//! Format: <https://docs.kernel.org/bpf/btf.html>.

use std::{fs, io};

/// Where the kernel shows its types, since Linux 5.4 with `CONFIG_DEBUG_INFO_BTF`.
const PATH: &str = "/sys/kernel/btf/vmlinux";

/// The types of a kernel.
#[derive(Debug)]
pub struct KernelTypes {
    bytes: Vec<u8>,
    /// The offset of each type; type n is at index n − 1.
    types: Vec<usize>,
    strings: usize,
}

mod kind {
    pub(super) const PTR: u32 = 2;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
}

impl KernelTypes {
    /// Reads the running kernel's.
    ///
    /// # Errors
    /// `NotFound` on a kernel without BTF; `InvalidData` for an unknown format.
    pub fn read() -> io::Result<Self> {
        Self::parse(fs::read(PATH)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Types from their bytes.
    pub fn parse(bytes: Vec<u8>) -> Option<Self> {
        const MAGIC: u32 = 0xeb9f;
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if word(0)? & 0xffff != MAGIC {
            return None;
        }
        let header = word(4)? as usize;
        let begin = header.checked_add(word(8)? as usize)?;
        let end = begin.checked_add(word(12)? as usize)?;
        let strings = header.checked_add(word(16)? as usize)?;
        let mut types = Vec::new();
        let mut at = begin;
        while at < end {
            types.push(at);
            let info = word(at + 4)?;
            let members = (info & 0xffff) as usize;
            at += 12
                + match info >> 24 & 0x1f {
                    1 | 14 | 17 => 4,                // INT, VAR, DECL_TAG
                    3 => 12,                         // ARRAY
                    4 | 5 | 15 | 19 => 12 * members, // STRUCT, UNION, DATASEC, ENUM64
                    6 | 13 => 8 * members,           // ENUM, FUNC_PROTO
                    2 | 7..=12 | 16 | 18 => 0,
                    _ => return None,
                };
        }
        Some(Self { bytes, types, strings })
    }

    /// The values of an enumeration with their names, in order; none if the kernel has no such type.
    pub fn enumeration(&self, name: &str) -> Vec<(u32, String)> {
        let Some(at) = self.find(kind::ENUM, name) else { return Vec::new() };
        let members = (self.word(at + 4).unwrap_or(0) & 0xffff) as usize;
        let member = |index: usize| {
            let member = at + 12 + index * 8;
            Some((self.word(member + 4)?, self.text(self.word(member)?)?.to_owned()))
        };
        (0..members).filter_map(member).collect()
    }

    /// The number of arguments that a trace point passes to programs; `None` if it does not exist.
    pub fn trace_point_arguments(&self, name: &str) -> Option<usize> {
        let typedef = self.find(kind::TYPEDEF, &format!("btf_trace_{name}"))?;
        let pointer = self.nth(self.word(typedef + 8)?, kind::PTR)?;
        let prototype = self.nth(self.word(pointer + 8)?, kind::FUNC_PROTO)?;
        // The first parameter is the trace point's own.
        ((self.word(prototype + 4)? & 0xffff) as usize).checked_sub(1)
    }

    /// The number of a function, by which programs call it; `None` if it does not exist.
    pub fn function(&self, name: &str) -> Option<u32> {
        let at = self.find(kind::FUNC, name)?;
        self.types.binary_search(&at).ok().map(|place| place as u32 + 1)
    }

    fn find(&self, kind: u32, name: &str) -> Option<usize> {
        self.types.iter().copied().find(|&at| {
            self.kind(at) == Some(kind) && self.word(at).and_then(|offset| self.text(offset)) == Some(name)
        })
    }

    /// The offset of type `number`, if it has that kind.
    fn nth(&self, number: u32, kind: u32) -> Option<usize> {
        let at = *self.types.get(number.checked_sub(1)? as usize)?;
        (self.kind(at)? == kind).then_some(at)
    }

    fn kind(&self, at: usize) -> Option<u32> {
        Some(self.word(at + 4)? >> 24 & 0x1f)
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes.get(at..at + 4)?.try_into().ok()?))
    }

    fn text(&self, offset: u32) -> Option<&str> {
        let text = self.bytes.get(self.strings.checked_add(offset as usize)?..)?;
        std::str::from_utf8(&text[..text.iter().position(|byte| *byte == 0)?]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An enumeration `e` { A = 1, B = 7 }, a trace point `t` of two arguments, and a function `f`.
    fn types() -> Vec<u8> {
        let strings = b"\0e\0A\0B\0btf_trace_t\0f\0";
        let words: Vec<u32> = [
            &[1, 6 << 24 | 2, 4, 3, 1, 5, 7][..],    // 1: enum e
            &[7, 8 << 24, 3],                        // 2: typedef btf_trace_t → 3
            &[0, 2 << 24, 4],                        // 3: pointer → 4
            &[0, 13 << 24 | 3, 0, 0, 0, 0, 0, 0, 0], // 4: prototype of three
            &[19, 12 << 24, 4],                      // 5: function f of that prototype
        ]
        .concat();
        let length = words.len() as u32 * 4;
        let header = [0xeb9f | 1 << 16, 24, 0, length, length, strings.len() as u32];
        let words = header.into_iter().chain(words).flat_map(u32::to_ne_bytes);
        words.chain(*strings).collect()
    }

    #[test]
    fn values_and_arguments_are_found_by_name() {
        let types = KernelTypes::parse(types()).unwrap();
        assert_eq!(types.enumeration("e"), [(1, "A".to_owned()), (7, "B".to_owned())]);
        assert_eq!(types.enumeration("f"), []);
        assert_eq!(types.trace_point_arguments("t"), Some(2));
        assert_eq!(types.trace_point_arguments("u"), None);
        assert_eq!((types.function("f"), types.function("e")), (Some(5), None));
    }

    #[test]
    fn bytes_that_are_no_types_are_refused_or_empty_and_never_a_panic() {
        let whole = types();
        for cut in 0..whole.len() {
            if let Some(types) = KernelTypes::parse(whole[..cut].to_vec()) {
                types.enumeration("e");
                types.trace_point_arguments("t");
            }
        }
        assert!(KernelTypes::parse(vec![0; 64]).is_none());
    }

    #[test]
    fn this_kernel_names_its_drop_reasons() {
        let Ok(types) = KernelTypes::read() else {
            return testing::skip("this kernel shows no types");
        };
        let reasons = types.enumeration("skb_drop_reason");
        assert!(reasons.iter().any(|(_, name)| name == "SKB_DROP_REASON_NO_SOCKET"), "{reasons:?}");
        assert!(types.trace_point_arguments("kfree_skb").is_some_and(|arguments| arguments >= 2));
    }
}
