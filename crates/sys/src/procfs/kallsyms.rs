//! `/proc/kallsyms`: which function of the kernel an address lies in.

/// The kernel's functions by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Functions {
    /// Begin and name, sorted.
    by_address: Vec<(u64, Box<str>)>,
}

impl Functions {
    /// The function that `address` lies in; `None` where the kernel hides its addresses.
    pub fn at(&self, address: u64) -> Option<&str> {
        let next = self.by_address.partition_point(|(begin, _)| *begin <= address);
        self.by_address.get(next.checked_sub(1)?).map(|(_, name)| &**name)
    }
}

/// Reads `/proc/kallsyms`: address, type and name on each line. Lines that are otherwise, data, and addresses that are
/// hidden (0) are left out.
pub fn parse_kallsyms(text: &str) -> Functions {
    let function = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
        let kind = words.next()?;
        let name = words.next()?;
        matches!(kind, "t" | "T" | "w" | "W").then(|| (address, name.into()))
    };
    let mut by_address: Vec<(u64, Box<str>)> = text.lines().filter_map(function).collect();
    by_address.sort_by_key(|(address, _)| *address);
    Functions { by_address }
}
