//! Sets of CPUs as in the kernel's files: as list (`0,2-3`) and as mask (`00000000,0000000d`).

/// CPUs of a list; `None` when it is not a list. An empty text means no CPUs.
pub fn from_list(text: &str) -> Option<Vec<u32>> {
    let text = text.trim();
    if text.is_empty() || text == "none" {
        return Some(Vec::new());
    }
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last >= MOST_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// More than any kernel configuration supports.
const MOST_CPUS: u32 = 8192;

/// CPUs as a list; `none` for an empty set.
pub fn to_list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let texts: Vec<String> = ranges.iter().map(text).collect();
    if texts.is_empty() { "none".into() } else { texts.join(",") }
}

/// CPUs of a mask: words of 32 bits in hex, the highest first.
pub(crate) fn from_mask(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for (index, word) in text.trim().split(',').rev().enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        let first = u32::try_from(index).ok().filter(|index| *index < MOST_CPUS / 32)? * 32;
        cpus.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| first + bit));
    }
    Some(cpus)
}

/// CPUs as a mask.
pub(crate) fn to_mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |most| most / 32 + 1);
    let word = |index: u32| {
        let bits =
            cpus.iter().filter(|cpu| **cpu / 32 == index).fold(0u32, |word, cpu| word | 1 << (cpu % 32));
        format!("{bits:08x}")
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_say_the_same() {
        for (list, mask) in [("0", "00000001"), ("0,2-3", "0000000d"), ("1,33-34", "00000006,00000002")] {
            let cpus = from_list(list).unwrap();
            assert_eq!((to_list(&cpus).as_str(), to_mask(&cpus).as_str()), (list, mask));
            assert_eq!(from_mask(mask), Some(cpus));
        }
        assert_eq!((from_list("none"), to_list(&[])), (Some(vec![]), "none".into()));
        assert_eq!(from_mask("0"), Some(vec![]));
        for wrong in ["a", "3-1", "1-", "9000"] {
            assert_eq!(from_list(wrong), None, "{wrong}");
        }
    }
}
