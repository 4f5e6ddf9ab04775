//! `linerate nic show`: one page about a card.

use std::io::{self, Write};

use nic::{Counters, NicError, Page, Table, kinds, moved, read_counters};
use serde::Serialize;

use super::card::{open, pause, refused};
use crate::{
    args::ShowArgs,
    failure::Failure,
    output::{self, printed},
};

/// A page, and the counters that moved while it was read.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    page: Page,
    /// Seconds between the two readings of the counters.
    watched_s: f64,
    /// Counters that grew in between, and their growth.
    moved: Counters,
}

pub(crate) fn run(args: &ShowArgs) -> Result<bool, Failure> {
    let mut card = open(&args.interface)?;
    let mut read = || -> Result<Shown, NicError> {
        let page = Page::read(&mut card)?;
        pause(args.interval);
        let later = read_counters(&mut card)?;
        let moved = moved(&page.counters, &later);
        Ok(Shown { page, watched_s: args.interval.as_secs_f64(), moved })
    };
    let shown = read().map_err(|error| refused(&error))?;
    let mut out = io::stdout().lock();
    printed(if args.json { write_json(&shown, &mut out) } else { write_text(&shown, &mut out) })?;
    Ok(true)
}

fn write_json(shown: &Shown, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, shown)?;
    writeln!(out)
}

/// Features that affect packet rates; the others are in the JSON.
const TOLD_FEATURES: [&str; 12] = [
    "rx-gro",
    "rx-gro-hw",
    "rx-lro",
    "rx-hashing",
    "rx-checksum",
    "rx-ntuple-filter",
    "tx-tcp-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "tx-checksum-ip-generic",
    "tx-scatter-gather",
    "hw-tc-offload",
];

fn write_text(shown: &Shown, out: &mut impl Write) -> io::Result<()> {
    let page = &shown.page;
    write_head(page, out)?;
    for kind in kinds() {
        write_kind(page, kind, out)?;
    }
    if let Some(table) = &page.table {
        write_table(table, out)?;
    }
    write_queues(page, out)?;
    let programs: Vec<String> = page.xdp_programs.iter().map(u32::to_string).collect();
    let programs =
        if programs.is_empty() { "none".into() } else { format!("program {}", programs.join(", ")) };
    line(out, "XDP", &programs)?;
    let moved: Vec<String> = shown.moved.iter().map(|(name, by)| format!("{name} +{by}")).collect();
    let moved = if moved.is_empty() { "none".into() } else { moved.join("  ") };
    line(out, &format!("moved in {} s", shown.watched_s), &moved)
}

fn line(out: &mut impl Write, name: &str, text: &str) -> io::Result<()> {
    const INDENT: usize = 18;
    // Wrapped only between entries.
    let room = output::width().saturating_sub(INDENT);
    let mut width = 0;
    write!(out, "  {name:<15} ")?;
    for entry in text.split("  ").filter(|entry| !entry.is_empty()) {
        let length = entry.chars().count() + 2;
        if width > 0 && width + length > room {
            write!(out, "\n{:INDENT$}", "")?;
            width = 0;
        }
        write!(out, "{}{entry}", if width > 0 { "  " } else { "" })?;
        width += length;
    }
    writeln!(out)
}

fn write_head(page: &Page, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{} (interface {}, {})",
        page.interface,
        page.index,
        page.mac.as_deref().unwrap_or("no MAC")
    )?;
    let driver = &page.driver;
    let driver_words = [
        ("", &driver.name),
        ("version ", &driver.version),
        ("firmware ", &driver.firmware),
        ("at ", &driver.bus),
    ];
    let known = driver_words.into_iter().filter(|(_, value)| !value.is_empty());
    let mut words: Vec<String> = known.map(|(before, value)| format!("{before}{value}")).collect();
    words.extend(page.numa_node.map(|node| format!("NUMA node {node}")));
    if !words.is_empty() {
        line(out, "driver", &words.join(", "))?;
    }
    if let Some(pcie) = &page.pcie {
        let now = format!("{} x{}", pcie.current_link_speed, pcie.current_link_width);
        let best = format!("{} x{}", pcie.max_link_speed, pcie.max_link_width);
        let note = if now == best { "its maximum".into() } else { format!("of {best}") };
        line(out, "PCIe", &format!("{now} ({note})"))?;
    }
    let link = &page.link;
    let state = match (link.up, link.operational) {
        (_, true) => "up",
        (true, false) => "up, no carrier",
        (false, _) => "down",
    };
    let mut words = vec![state.to_owned()];
    words.extend(link.speed_bps.map(|speed| format!("{} Mb/s", speed / 1_000_000)));
    words.extend(link.full_duplex.map(|full| if full { "full duplex" } else { "half duplex" }.into()));
    words.extend(link.autoneg.map(|on| if on { "negotiated" } else { "fixed" }.into()));
    words.push(format!("MTU {}", link.mtu_bytes));
    words.push(format!("{} RX and {} TX queues", link.rx_queues, link.tx_queues));
    line(out, "link", &words.join(", "))
}

fn write_kind(page: &Page, kind: &str, out: &mut impl Write) -> io::Result<()> {
    // The head shows the link's own settings, queues show their interrupts, the table follows below.
    if matches!(kind, "link" | "irq") {
        return Ok(());
    }
    if let Some(why) = page.settings.absent.get(kind) {
        return line(out, kind, why);
    }
    let entry = |(name, value): (&String, &String)| {
        let key = name.strip_prefix(kind)?.strip_prefix('.')?;
        let told = match kind {
            "feature" => TOLD_FEATURES.contains(&key),
            "rss" => key != "table",
            // Queues with default settings are not shown.
            "rps" | "rfs" | "xps" | "xps-queues" => value != "0" && value != "none",
            "napi" => match key.split_once('.') {
                Some((_, own)) => page.setting(&format!("napi.{own}")).unwrap_or("0") != value,
                None => true,
            },
            _ => true,
        };
        let limit = page.limit(name).map(|limit| format!(" of {limit}")).unwrap_or_default();
        let key = key.strip_prefix("net.").unwrap_or(key);
        told.then(|| format!("{key} {value}{limit}"))
    };
    let entries: Vec<String> = page.settings.settings.iter().filter_map(entry).collect();
    if kind == "driver" && entries.is_empty() {
        return Ok(());
    }
    let none = if kind == "rule" || kind == "context" { "none" } else { "off (default)" };
    line(out, kind, if entries.is_empty() { none.into() } else { entries.join("  ") }.as_str())
}

fn write_table(table: &Table, out: &mut impl Write) -> io::Result<()> {
    const MOST_RANGES: usize = 16;
    let ranges = if table.ranges.len() > MOST_RANGES {
        "round robin".to_owned()
    } else {
        let range = |(first, last, queue): &(usize, usize, u32)| format!("{first}-{last}: {queue}");
        table.ranges.iter().map(range).collect::<Vec<_>>().join("  ")
    };
    line(out, "rss table", &format!("{} buckets  {ranges}", table.buckets))?;
    for (queue, buckets) in table.buckets_per_queue.iter().enumerate() {
        let share = *buckets as f64 / table.buckets.max(1) as f64;
        let bar = "#".repeat((share * 40.0).round() as usize);
        writeln!(out, "{:18}queue {queue:<3} {buckets:>5} {:>4.0}% {bar}", "", share * 100.0)?;
    }
    Ok(())
}

fn write_queues(page: &Page, out: &mut impl Write) -> io::Result<()> {
    let counts = &page.counts;
    for (receives, side) in [(true, &counts.rx), (false, &counts.tx)] {
        let name = if receives { "rx" } else { "tx" };
        let interrupts = page.queues.iter().filter(|queue| queue.receives == receives);
        let mut numbers: Vec<u32> = side.keys().copied().chain(interrupts.map(|queue| queue.queue)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for queue in numbers {
            let interrupt = page.queues.iter().find(|one| one.receives == receives && one.queue == queue);
            let mut words = Vec::new();
            if let Some(interrupt) = interrupt {
                let list = |cpus: &[u32]| nic::cpu_list(cpus);
                words.push(format!("irq {} ({})", interrupt.number, interrupt.name));
                words.push(format!(
                    "CPU {} of {}",
                    list(&interrupt.cpus_effective),
                    list(&interrupt.cpus_asked)
                ));
                words.extend(interrupt.napi.map(|napi| format!("NAPI {napi}")));
                words.extend(interrupt.thread.map(|thread| format!("thread {thread}")));
            }
            if let Some(count) = side.get(&queue) {
                words.push(format!("{} packets, {} dropped", count.packets, count.drops));
            }
            line(out, &format!("queue {name}-{queue}"), &words.join("  "))?;
        }
    }
    Ok(())
}
