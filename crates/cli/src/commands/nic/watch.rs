//! `linerate nic watch`: rates by queue, live.

use std::fmt::Write;

use nic::{Rates, Sample};

use super::card::{open, pause, refused};
use crate::{args::WatchArgs, failure::Failure, output::print_line, screen::Screen};

pub(crate) fn run(args: &WatchArgs) -> Result<bool, Failure> {
    let mut card = open(&args.interface)?;
    let mut last = Sample::take(&mut card).map_err(|error| refused(&error))?;
    let mut screen = if args.json_stream { None } else { Some(Screen::new()?) };
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) && pause(args.interval) {
        let now = Sample::take(&mut card).map_err(|error| refused(&error))?;
        let rates = now.since(&last);
        match &mut screen {
            Some(screen) => screen.draw(&view(&args.interface, &rates))?,
            None => print_line(&serde_json::to_string(&rates).unwrap_or_default())?,
        }
        last = now;
        looks += 1;
    }
    Ok(true)
}

/// One screen of text.
fn view(interface: &str, rates: &Rates) -> String {
    let mut text = String::new();
    write_view(interface, rates, &mut text).expect("a String takes everything");
    text
}

fn write_view(interface: &str, rates: &Rates, text: &mut String) -> std::fmt::Result {
    writeln!(
        text,
        "{interface}: {} received, {} sent, {} missed, {} dropped",
        pps(rates.rx_pps),
        pps(rates.tx_pps),
        pps(rates.missed_pps),
        pps(rates.drop_pps)
    )?;
    writeln!(text, "\nqueue        packets       Mb/s  interrupts  packets/irq      drops  CPU")?;
    let dash = || "-".to_owned();
    for queue in &rates.queues {
        writeln!(
            text,
            "rx-{:<5} {:>12} {:>10.1} {:>11} {:>12} {:>10}  {}",
            queue.queue,
            pps(queue.rx_pps),
            queue.rx_bytes_per_s * 8.0 / 1e6,
            queue.interrupts_per_s.map_or_else(dash, |rate| format!("{rate:.0}/s")),
            queue.packets_per_interrupt.map_or_else(dash, |packets| format!("{packets:.1}")),
            pps(queue.drop_pps),
            queue.cpu.map_or_else(dash, |cpu| cpu.to_string()),
        )?;
    }
    if rates.queues.is_empty() {
        writeln!(text, "(the driver does not count by queue)")?;
    }
    writeln!(text, "\nCPU    softirq    irq   idle  packets in softirq  packets/poll  cut short")?;
    for cpu in &rates.cpus {
        writeln!(
            text,
            "{:<5} {:>7.0}% {:>5.0}% {:>5.0}% {:>19} {:>13} {:>8.0}/s",
            cpu.cpu,
            cpu.softirq * 100.0,
            cpu.irq * 100.0,
            cpu.idle * 100.0,
            pps(cpu.packets_per_s),
            cpu.packets_per_round.map_or_else(dash, |packets| format!("{packets:.1}")),
            cpu.squeezed_per_s
        )?;
    }
    const TOLD: usize = 12;
    writeln!(text)?;
    for (name, by) in rates.moved.iter().take(TOLD) {
        writeln!(text, "{name} +{by}")?;
    }
    Ok(())
}

fn pps(rate: f64) -> String {
    match rate {
        _ if rate >= 1e6 => format!("{:.3} Mpps", rate / 1e6),
        _ if rate >= 1e3 => format!("{:.1} kpps", rate / 1e3),
        _ => format!("{rate:.0} pps"),
    }
}
