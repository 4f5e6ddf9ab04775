//! `/proc/net/softnet_stat`: counters of each CPU's network softirq. Columns: `softnet_seq_show` in
//! `net/core/net-procfs.c`.

use super::line::{ParseError, lines};

/// The counters of one CPU since boot; the kernel counts in 32 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoftnetStat {
    /// The CPU's number.
    pub cpu: u32,
    /// Packets processed from the backlog or by NAPI.
    pub processed: u32,
    /// Packets dropped because the backlog was full (`net.core.netdev_max_backlog`).
    pub dropped: u32,
    /// Rounds that ended with work left: out of budget or time (`net.core.netdev_budget`, `_usecs`).
    pub time_squeeze: u32,
    /// Inter-processor interrupts that requested packet processing (RPS).
    pub received_rps: u32,
    /// Packets dropped by the flow limit.
    pub flow_limit: u32,
    /// Packets waiting now (since Linux 5.10; 0 before).
    pub backlog: u32,
}

/// Reads `softnet_stat`: a line of hexadecimal columns for each CPU that is online.
pub fn parse_softnet_stat(text: &str) -> Result<Vec<SoftnetStat>, ParseError> {
    let mut cpus: Vec<SoftnetStat> = Vec::new();
    for (line, bad) in lines(text) {
        let columns: Result<Vec<u32>, _> =
            line.split_ascii_whitespace().map(|word| u32::from_str_radix(word, 16)).collect();
        let columns = columns.map_err(|_| bad("a list of hexadecimal numbers"))?;
        let [processed, dropped, time_squeeze, ..] = columns[..] else {
            return Err(bad("at least three numbers"));
        };
        let column = |index: usize| columns.get(index).copied();
        cpus.push(SoftnetStat {
            // Kernels before 5.10 do not show the CPU number; there the line number is used.
            cpu: column(12).unwrap_or(cpus.len() as u32),
            processed,
            dropped,
            time_squeeze,
            received_rps: column(9).unwrap_or(0),
            flow_limit: column(10).unwrap_or(0),
            backlog: column(11).unwrap_or(0),
        });
    }
    Ok(cpus)
}
