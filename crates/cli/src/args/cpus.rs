//! CPUs as `0,2-3`.

use crate::failure::{Failure, Status};

/// CPUs as `0,2-3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuList(pub(crate) Vec<u32>);

impl CpuList {
    /// Why this process cannot use these CPUs.
    pub(crate) fn problem(&self, allowed: &[u32]) -> Option<Failure> {
        let absent = self.0.iter().find(|cpu| !allowed.contains(cpu))?;
        let first_and_last = allowed.first().zip(allowed.last());
        let range = first_and_last.map(|(first, last)| format!("{first} to {last}")).unwrap_or_default();
        Some(
            Failure::new(
                Status::Refused,
                format!("CPU {absent} does not exist, or this process may not use it"),
            )
            .hint(format!("this process may use CPUs {range}")),
        )
    }
}

pub(super) fn parse_cpus(text: &str) -> Result<CpuList, String> {
    let wrong = || format!("'{text}' is not a list of CPUs: write for example 0,2-3");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| wrong())?;
        let last: u32 = last.parse().map_err(|_| wrong())?;
        if first > last || last > 65_535 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_numbers_and_ranges() {
        assert_eq!(parse_cpus("0,2-3").unwrap(), CpuList(vec![0, 2, 3]));
        for wrong in ["", "a", "3-1", "1-", "99999999"] {
            assert!(parse_cpus(wrong).unwrap_err().contains("write for example"), "{wrong}");
        }
    }
}
