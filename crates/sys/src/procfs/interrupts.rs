//! `/proc/interrupts` and `/proc/softirqs`: interrupts of each CPU by source. Formats: `show_interrupts`
//! in `kernel/irq/proc.c` and `show_softirqs` in `fs/proc/softirqs.c`.

use super::line::{ParseError, lines};

/// One line of `/proc/interrupts`: counts since boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interrupt {
    /// The number, or the kernel's short name if no device owns it: `LOC`, `RES`, `CAL`, ….
    pub irq: String,
    /// The driver's name for it (often interface and queue), or the kernel's description.
    pub name: String,
    /// Counts by CPU number, ascending.
    pub by_cpu: Vec<(u32, u64)>,
}

/// How often each CPU ran the softirq that receives packets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Softirqs {
    /// `NET_RX` by CPU number, ascending.
    pub net_rx: Vec<(u32, u64)>,
}

/// Reads `/proc/interrupts`: a line of CPUs, then a line for each source with a count for each CPU.
///
/// Lines with fewer counts than CPUs (`ERR`, `MIS`) are machine-wide and left out.
pub fn parse_interrupts(text: &str) -> Result<Vec<Interrupt>, ParseError> {
    let mut lines = lines(text);
    let cpus = match lines.next() {
        Some((line, bad)) => cpu_numbers(line).ok_or_else(|| bad("a list of CPUs"))?,
        None => return Ok(Vec::new()),
    };
    let mut interrupts = Vec::new();
    for (line, bad) in lines {
        let (irq, rest) = line.split_once(':').ok_or_else(|| bad("a source and its counts"))?;
        let mut words = rest.split_ascii_whitespace();
        let counts: Vec<u64> = words.by_ref().take(cpus.len()).map_while(|word| word.parse().ok()).collect();
        if counts.len() < cpus.len() {
            continue;
        }
        let words: Vec<&str> = words.collect();
        let irq = irq.trim().to_owned();
        // A device's line begins with its controller and its number there; the rest is the driver's name.
        let is_device = irq.bytes().all(|byte| byte.is_ascii_digit());
        let name =
            if is_device { words.last().copied().unwrap_or_default().to_owned() } else { words.join(" ") };
        interrupts.push(Interrupt { irq, name, by_cpu: cpus.iter().copied().zip(counts).collect() });
    }
    Ok(interrupts)
}

/// Reads `/proc/softirqs`: a line of CPUs, then a line for each kind with a count for each possible CPU.
pub fn parse_softirqs(text: &str) -> Result<Softirqs, ParseError> {
    let mut lines = lines(text);
    let cpus = match lines.next() {
        Some((line, bad)) => cpu_numbers(line).ok_or_else(|| bad("a list of CPUs"))?,
        None => return Ok(Softirqs::default()),
    };
    for (line, bad) in lines {
        let Some(counts) = line.trim_start().strip_prefix("NET_RX:") else { continue };
        let counts: Result<Vec<u64>, _> = counts.split_ascii_whitespace().map(str::parse).collect();
        let counts = counts.map_err(|_| bad("a list of counts"))?;
        return Ok(Softirqs { net_rx: cpus.into_iter().zip(counts).collect() });
    }
    Ok(Softirqs::default())
}

fn cpu_numbers(line: &str) -> Option<Vec<u32>> {
    line.split_ascii_whitespace().map(|word| word.strip_prefix("CPU")?.parse().ok()).collect()
}
