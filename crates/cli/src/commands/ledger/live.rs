//! A live machine's ledger as a snapshot for the live views, with its metrics.

use measure::Place as LedgerPlace;
use report::{LedgerDocument, words};
use view::{Cpu, Family, History, Phase, Place, Rate, Snapshot, Table, Traffic, Waterfall};

/// The views' content: rates of the last interval, packets since the start.
pub(super) fn snapshot(last: &LedgerDocument, total: &LedgerDocument, history: &mut History) -> Snapshot {
    history.names = vec!["received".into(), "sent".into(), "lost".into()];
    history.add(total.duration_s, vec![last.rx_pps, last.tx_pps, last.lost_pps]);
    let rate = |name: &str, pps| Rate { name: name.into(), pps: Some(pps), note: String::new() };
    let knows_no_flow = total.flow.is_none();
    let rates = match knows_no_flow {
        true => vec![rate("received", last.rx_pps), rate("sent", last.tx_pps), rate("lost", last.lost_pps)],
        false => vec![rate("lost", last.lost_pps)],
    };
    Snapshot {
        command: "ledger".into(),
        interfaces: total.interface.iter().cloned().collect(),
        title: title(total),
        phase: Phase::Running,
        elapsed_s: total.duration_s,
        verdict: verdict(last, total),
        traffic: Some(Traffic { rates, history: history.clone(), receipt: cost(last) }),
        waterfall: Some(waterfall(last, total)),
        cpus: last
            .cpus
            .iter()
            .map(|cpu| Cpu {
                cpu: cpu.cpu,
                busy: 1.0 - cpu.idle_ratio,
                softirq: cpu.softirq_ratio,
                pps: None,
            })
            .collect(),
        tables: tables(total),
        families: families(total),
        ..Snapshot::default()
    }
}

fn title(total: &LedgerDocument) -> String {
    let name = total.interface.as_deref().map_or("all interfaces", |_| "");
    let drivers = total.drivers.join(", ");
    let flow = total.flow.as_ref().map(|flow| format!("'{flow}'")).unwrap_or_default();
    let parts = [name, &drivers, &flow];
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("  ")
}

fn verdict(last: &LedgerDocument, total: &LedgerDocument) -> String {
    if total.lost_packets == 0 {
        return "Nothing lost.".into();
    }
    let most = last.lines.iter().filter(|line| line.is_loss()).max_by(|a, b| a.pps.total_cmp(&b.pps));
    match most.filter(|line| line.pps > 0.0) {
        Some(line) => format!("{} lost/s, most at: {}.", words::count(last.lost_pps as u64), line.line.place),
        None => format!(
            "Nothing lost in the last interval; {} lost since the start.",
            words::count(total.lost_packets)
        ),
    }
}

fn cost(last: &LedgerDocument) -> String {
    let cost = &last.cost;
    format!(
        "watching costs {:.2} % of a CPU here and {:.2} % in the kernel",
        cost.process_cpu_ratio * 100.0,
        cost.program_cpu_ratio * 100.0
    )
}

fn waterfall(last: &LedgerDocument, total: &LedgerDocument) -> Waterfall {
    let places = total.lines.iter().map(|rate| {
        let now = last.lines.iter().find(|other| other.line.place == rate.line.place);
        Place {
            name: rate.line.place.to_string(),
            packets: rate.line.packets,
            pps: now.map(|now| now.pps),
            source: rate.line.source.clone(),
            remedy: rate.line.remedy.clone().unwrap_or_default(),
            is_loss: rate.is_loss(),
        }
    });
    Waterfall {
        of: total.interface.clone().unwrap_or_else(|| "all interfaces".into()),
        from: ("in and out".into(), total.rx_packets + total.tx_packets),
        places: places.collect(),
        to: None,
        to_unknown: "what applications read is not counted".into(),
        residual: i64::try_from(total.cost.events_lost).unwrap_or(i64::MAX),
        provisional: false,
    }
}

fn tables(total: &LedgerDocument) -> Vec<Table> {
    let mut tables = Vec::new();
    let mut table = |title: &str, columns: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let columns = columns.iter().map(|column| (*column).to_owned()).collect();
            tables.push(Table { title: title.into(), columns, rows });
        }
    };
    let reasons = total.reasons.iter().flatten().map(|reason| {
        let whose = match (&reason.process, &reason.flow) {
            (Some(process), _) => process.clone(),
            (None, flow) => flow.clone().unwrap_or_default(),
        };
        vec![words::count(reason.packets), reason.reason.clone(), reason.function.clone(), whose]
    });
    table("drop reasons", &["packets", "reason", "function", "process"], reasons.collect());
    let sockets = total.sockets.iter().map(|socket| {
        let process = socket.process.clone().unwrap_or_default();
        vec![
            socket.port.to_string(),
            words::count(socket.unread_bytes),
            words::count(socket.dropped),
            process,
        ]
    });
    table("sockets not read in time", &["UDP port", "unread bytes", "dropped", "process"], sockets.collect());
    let unknown = total.unknown_counters.iter();
    let unknown = unknown
        .map(|one| vec![words::count(one.grown_by), one.interface.clone(), one.counter.clone()])
        .collect();
    table("counters of unknown meaning", &["growth", "interface", "counter"], unknown);
    tables
}

fn families(total: &LedgerDocument) -> Vec<Family> {
    let mut lost = Family::counter("lost_packets", "Packets lost by place; see docs/ledger.md.");
    let of_place = |id: &str| {
        let lines =
            total.lines.iter().filter(|rate| rate.line.place.known().is_some_and(|known| known.id() == id));
        lines.map(|rate| rate.line.packets).sum::<u64>()
    };
    for place in LedgerPlace::ALL {
        lost = lost.with(&[("place", place.id())], of_place(place.id()) as f64);
    }
    for rate in total.lines.iter().filter(|rate| rate.line.place.known().is_none()) {
        lost = lost.with(&[("place", rate.line.place.as_str())], rate.line.packets as f64);
    }
    let mut dropped =
        Family::counter("dropped_packets", "Packets that the kernel dropped, by its reason and function.");
    for reason in total.reasons.iter().flatten() {
        dropped = dropped
            .with(&[("reason", &reason.reason), ("function", &reason.function)], reason.packets as f64);
    }
    let seconds = |ratio: f64| ratio * total.duration_s;
    let mut cpus = Family::counter("cpu_seconds", "Time of each CPU by what it did.");
    for cpu in &total.cpus {
        let modes = [
            ("user", cpu.user_ratio),
            ("system", cpu.system_ratio),
            ("irq", cpu.irq_ratio),
            ("softirq", cpu.softirq_ratio),
            ("steal", cpu.steal_ratio),
            ("idle", cpu.idle_ratio),
        ];
        let number = cpu.cpu.to_string();
        for (mode, ratio) in modes {
            cpus = cpus.with(&[("cpu", &number), ("mode", mode)], seconds(ratio));
        }
    }
    let counter = |name: &str, help: &str, value: f64| Family::counter(name, help).with(&[], value);
    vec![
        lost,
        dropped,
        counter("received_packets", "Frames that the interfaces received.", total.rx_packets as f64),
        counter("sent_packets", "Frames that the interfaces sent.", total.tx_packets as f64),
        counter(
            "ledger_events_lost",
            "Drops missing from the reasons' counts.",
            total.cost.events_lost as f64,
        ),
        cpus,
        counter(
            "ledger_process_cpu_seconds",
            "CPU time of the watching process.",
            seconds(total.cost.process_cpu_ratio),
        ),
        counter(
            "ledger_program_cpu_seconds",
            "CPU time of the program in the kernel.",
            seconds(total.cost.program_cpu_ratio),
        ),
    ]
}
