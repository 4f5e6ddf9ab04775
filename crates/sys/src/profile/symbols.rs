//! Addresses as function names: the kernel's from `/proc/kallsyms`, this program's from its own file.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use object::{Object, ObjectSymbol, SymbolKind};

/// The kernel's functions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelSymbols {
    functions: Functions,
    /// The end of the kernel's own code; after it come modules and BPF programs.
    text_end: u64,
}

/// This program's functions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnSymbols {
    functions: Functions,
    /// Where the program's file is mapped.
    base: u64,
    /// One behind its last byte.
    end: u64,
}

/// Names by address, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Functions(Vec<(u64, Box<str>)>);

/// A function of a module or a BPF program is at most this long.
const LONGEST_FUNCTION: u64 = 1 << 18;

impl KernelSymbols {
    /// Whether the kernel shows its symbol addresses to this process; cheap.
    ///
    /// # Errors
    /// When `/proc/kallsyms` cannot be read.
    pub fn are_shown() -> io::Result<bool> {
        let mut begin = [0; 4096];
        let length = fs::File::open("/proc/kallsyms")?.read(&mut begin)?;
        Ok(Self::parse(&String::from_utf8_lossy(&begin[..length])).is_some())
    }

    /// Reads the kernel's table; `None` when the kernel hides the addresses (`kernel.kptr_restrict`, no CAP_SYSLOG).
    ///
    /// # Errors
    /// When `/proc/kallsyms` cannot be read.
    pub fn read() -> io::Result<Option<Self>> {
        Ok(Self::parse(&fs::read_to_string("/proc/kallsyms")?))
    }

    /// The table of another kernel, from its `/proc/kallsyms`; `None` if the addresses are hidden.
    pub fn of_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut functions = Vec::new();
        let mut text_end = 0;
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if name == "_etext" {
                text_end = address;
            } else if matches!(kind, "t" | "T" | "w" | "W") && address != 0 {
                functions.push((address, name.into()));
            }
        }
        (!functions.is_empty()).then(|| Self { functions: Functions::sorted(functions), text_end })
    }

    /// The function that an address lies in; `None` in a BPF program without a name.
    pub fn name(&self, address: u64) -> Option<&str> {
        let (start, name) = self.functions.at(address)?;
        let same_part = (start < self.text_end) == (address < self.text_end);
        (same_part && (address < self.text_end || address - start < LONGEST_FUNCTION)).then_some(name)
    }
}

impl OwnSymbols {
    /// Reads the running program's file and where it is mapped. A stripped program has no names.
    ///
    /// # Errors
    /// When `/proc/self` cannot be read.
    pub fn read() -> io::Result<Self> {
        let path = fs::read_link("/proc/self/exe")?;
        let maps = fs::read_to_string("/proc/self/maps")?;
        let (base, end) = mapped(&maps, &path.to_string_lossy()).unwrap_or_default();
        Self::of_file("/proc/self/exe".as_ref(), base, end)
    }

    /// The functions of a program's file that is mapped from `base` to before `end`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn of_file(path: &Path, base: u64, end: u64) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        let functions = object::File::parse(&*bytes).map(|file| {
            let symbols = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
            let named = symbols.filter_map(|symbol| {
                let name = rustc_demangle::demangle(symbol.name().ok()?);
                Some((symbol.address(), format!("{name:#}").into_boxed_str()))
            });
            named.collect()
        });
        Ok(Self { functions: Functions::sorted(functions.unwrap_or_default()), base, end })
    }

    /// The function that an address lies in; `None` outside the program, in a library or the vDSO.
    pub fn name(&self, address: u64) -> Option<&str> {
        if address < self.base || address >= self.end {
            return None;
        }
        self.functions.at(address - self.base).map(|(_, name)| name)
    }
}

impl Functions {
    fn sorted(mut functions: Vec<(u64, Box<str>)>) -> Self {
        // Of several names for one address the first in the table is used.
        functions.sort_by_key(|(address, _)| *address);
        functions.dedup_by_key(|(address, _)| *address);
        Self(functions)
    }

    /// The last function that begins at or before an address.
    fn at(&self, address: u64) -> Option<(u64, &str)> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        after.checked_sub(1).map(|index| (self.0[index].0, &*self.0[index].1))
    }
}

/// From the first to behind the last byte of a file in `/proc/self/maps`; linkers map a file from its beginning on.
fn mapped(maps: &str, path: &str) -> Option<(u64, u64)> {
    let mut range: Option<(u64, u64)> = None;
    for line in maps.lines().filter(|line| line.ends_with(path)) {
        let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        range = Some(range.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_that_begins_before_it() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t udp_rcv\nffffffff81000100 t alias\n\
                    ffffffff81000200 D data\nffffffff81001000 T _etext\n\
                    ffffffffc0000000 t bpf_prog_1_count\t[bpf]\n";
        let symbols = KernelSymbols::parse(text).unwrap();
        assert_eq!(symbols.name(0xffff_ffff_8100_0100), Some("udp_rcv"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0fff), Some("udp_rcv"));
        assert_eq!(symbols.name(0xffff_ffff_8100_1000), None, "behind the kernel's code");
        assert_eq!(symbols.name(0xffff_ffff_c000_0010), Some("bpf_prog_1_count"));
        assert_eq!(symbols.name(0xffff_ffff_d000_0000), None, "too far behind");
        assert_eq!(symbols.name(1), None);
    }

    #[test]
    fn lines_of_other_forms_are_left_out() {
        let symbols = KernelSymbols::parse(
            "0 t hidden\nffff0020 T late\nffff0010 t early\t[module]\nffff0018\n\nodd é\n",
        );
        let symbols = symbols.unwrap();
        assert_eq!((symbols.name(0xffff_0011), symbols.name(0xffff_0020)), (Some("early"), Some("late")));
    }

    #[test]
    fn hidden_addresses_are_no_table() {
        assert_eq!(KernelSymbols::parse("0000000000000000 T _text\n0000000000000000 T udp_rcv\n"), None);
    }

    #[test]
    fn a_file_is_mapped_from_its_first_to_its_last_line() {
        let maps =
            "1000-2000 r--p 0 00:00 1 /bin/x\n2000-5000 r-xp 1000 00:00 1 /bin/x\n7000-8000 rw-p 0 00:00 0\n";
        assert_eq!(mapped(maps, "/bin/x"), Some((0x1000, 0x5000)));
        assert_eq!(mapped(maps, "/bin/y"), None);
    }

    #[test]
    fn this_test_finds_its_own_name() {
        let symbols = OwnSymbols::read().unwrap();
        let here = this_test_finds_its_own_name as fn() as usize as u64;
        assert!(symbols.name(here).unwrap().contains("this_test_finds_its_own_name"));
        assert_eq!(symbols.name(symbols.end), None);
    }
}
