//! `linerate nic watch`: rates by queue, live.

use std::fmt::Write;

use ::view::{Cpu, Family, History, Phase, Queue, Rate, Snapshot, Table, Traffic};
use nic::{Rates, Sample};

use super::card::{open, pause, refused};
use crate::{
    args::WatchArgs,
    failure::Failure,
    live::Views,
    output::{Form, print_line},
    screen::Screen,
};

pub(crate) fn run(args: &WatchArgs) -> Result<bool, Failure> {
    let mut card = open(&args.interface)?;
    let mut last = Sample::take(&mut card).map_err(|error| refused(&error))?;
    let form = if args.json_stream { Form::JsonStream } else { Form::Text };
    let mut views = Views::open(&args.view, form)?;
    let run = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut history = History::default();
    let mut elapsed_s = 0.0;
    let is_drawn = !args.json_stream && !args.view.plain && !views.has_screen();
    let mut screen = is_drawn.then(Screen::new).transpose()?;
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) && pause(args.interval) {
        let now = Sample::take(&mut card).map_err(|error| refused(&error))?;
        let rates = now.since(&last);
        if views.is_watched() {
            elapsed_s += rates.length_s;
            let now = snapshot(&args.interface, &rates, elapsed_s, &mut history);
            views.publish(Snapshot { run: run.clone(), ..now });
        }
        match &mut screen {
            Some(screen) => screen.draw(&view(&args.interface, &rates))?,
            None if args.json_stream => print_line(&serde_json::to_string(&rates).unwrap_or_default())?,
            None if args.view.plain => print_line(&view(&args.interface, &rates))?,
            None => {}
        }
        last = now;
        looks += 1;
    }
    Ok(true)
}

/// The snapshot for the live views.
fn snapshot(interface: &str, rates: &Rates, elapsed_s: f64, history: &mut History) -> Snapshot {
    history.names = vec!["received".into(), "sent".into()];
    history.add(elapsed_s, vec![rates.rx_pps, rates.tx_pps]);
    let rate = |name: &str, pps| Rate { name: name.into(), pps: Some(pps), note: String::new() };
    let moved = rates.moved.iter().map(|(name, by)| vec![report::words::count(*by), name.clone()]);
    let mut packets = Family::gauge("queue_packets_per_second", "Packets per second by receive queue.");
    let mut drops = Family::gauge("queue_dropped_packets_per_second", "Packets dropped per second by queue.");
    for queue in &rates.queues {
        let number = queue.queue.to_string();
        packets = packets.with(&[("queue", &number)], queue.rx_pps);
        drops = drops.with(&[("queue", &number)], queue.drop_pps);
    }
    Snapshot {
        command: "nic watch".into(),
        interfaces: vec![interface.to_owned()],
        phase: Phase::Running,
        elapsed_s,
        traffic: Some(Traffic {
            rates: vec![
                rate("received", rates.rx_pps),
                rate("sent", rates.tx_pps),
                rate("missed", rates.missed_pps),
                rate("dropped", rates.drop_pps),
            ],
            receipt: String::new(),
            history: history.clone(),
        }),
        queues: rates
            .queues
            .iter()
            .map(|queue| Queue {
                name: format!("rx-{}", queue.queue),
                pps: queue.rx_pps,
                drop_pps: queue.drop_pps,
                interrupts_per_s: queue.interrupts_per_s,
                cpu: queue.cpu,
            })
            .collect(),
        cpus: rates
            .cpus
            .iter()
            .map(|cpu| Cpu {
                cpu: cpu.cpu,
                busy: 1.0 - cpu.idle,
                softirq: cpu.softirq,
                pps: Some(cpu.packets_per_s),
            })
            .collect(),
        tables: vec![Table {
            title: "counters that moved".into(),
            columns: vec!["by".into(), "counter".into()],
            rows: moved.collect(),
        }],
        families: vec![packets, drops],
        ..Snapshot::default()
    }
}

/// One screen of text.
fn view(interface: &str, rates: &Rates) -> String {
    let mut text = String::new();
    write_view(interface, rates, &mut text).expect("writing to a String cannot fail");
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
        writeln!(text, "(the driver has no counters by queue)")?;
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
