//! `linerate bench rdr`: the RDR paper's experiment, by the model, or on a card (`--real`).

use std::{
    ffi::OsString,
    io::{self, Write},
};

use bench::{BenchPlan, ETHERNET_BYTES, RdrPlan, SweepPlan, rdr_point, run_rdr};
use clap::Parser;
use lab::Access;
use measure::Run;
use serde_json::Value;
use traffic::Buffers;
use trial::Diagnosis;
use wire::Rate;

use super::{
    experiment::{Experiment, first_lab, origin},
    plan::plan,
};
use crate::{
    access::gain_access,
    args::{BenchRdrArgs, Cli, Command, RealRdrArgs},
    failure::{Failure, Status, unprofiled},
    output,
    start::opening,
};

/// The paper's payloads, from the smallest frame to the largest.
const PAYLOADS: [u32; 4] = [46, 100, 500, 1500];
/// The default of e1000 is 256; with 0 it copies no frame.
const COPYBREAKS: [u32; 2] = [0, 256];
/// QEMU, which emulates cards.
const EMULATOR: u16 = 0x1af4;

pub(super) fn run(args: &BenchRdrArgs) -> Result<bool, Failure> {
    if !args.real.real {
        return crate::commands::model::run_rdr(&args.model);
    }
    let access = gain_access()?;
    let plan = real_plan(args, access)?;
    let output = &args.model.output;
    if output.dry_run {
        return output::print_plan(&plan);
    }
    Diagnosis::start().map_err(|error| unprofiled(&error))?;
    let lab = &first_lab(&plan.sweep.points);
    let start = opening("bench rdr", origin(lab), &plan);
    let trace = args.real.trace.as_deref();
    let experiment = Experiment { trace, text: Some(&write), ..Experiment::new(start, lab, access) };
    experiment.run(output, None, |start, _, progress| run_rdr(&plan, start, progress))
}

/// A receiver of the experiment.
enum Receiver {
    /// The engine pci.
    Ring(Buffers),
    /// The kernel's driver and a UDP socket.
    Kernel { copybreak: u32 },
}

impl Receiver {
    fn name(&self) -> String {
        match self {
            Self::Ring(buffers) => format!("pci {}", buffers.name()),
            Self::Kernel { copybreak } => format!("kernel, copybreak {copybreak}"),
        }
    }

    fn words(&self, real: &RealRdrArgs) -> Vec<OsString> {
        let ring_slots = real.ring_slots;
        let words = match self {
            Self::Ring(buffers) => vec![
                "--rx=pci".into(),
                "--take-device".into(),
                format!("--ring-slots={ring_slots}"),
                format!("--buffers={}", buffers.name()),
            ],
            Self::Kernel { copybreak } => vec![
                "--rx=udp".into(),
                "--profile".into(),
                format!("--rx-ring={ring_slots}"),
                format!("--copybreak={copybreak}"),
            ],
        };
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        if let (Self::Ring(_), Some(file)) = (self, &real.trace) {
            words.extend(["--trace".into(), file.into()]);
        }
        words
    }
}

/// The given values, or the defaults.
fn or<T: Clone>(given: &[T], default: &[T]) -> Vec<T> {
    if given.is_empty() { default.to_vec() } else { given.to_vec() }
}

fn real_plan(args: &BenchRdrArgs, access: Access) -> Result<RdrPlan, Failure> {
    let real = &args.real;
    let payloads = or(&args.model.payload, &PAYLOADS);
    if let Some(wrong) = payloads.iter().find(|payload| !(46..=1500).contains(*payload)) {
        return Err(Failure::new(
            Status::Usage,
            format!("a frame's payload must be 46 to 1500 bytes, not {wrong}"),
        ));
    }
    let rates = or(&real.rate, &[Rate::Pps(5e3), Rate::Pps(10e3), Rate::Max]);
    let rings = or(&real.buffers, &Buffers::ALL).into_iter().map(Receiver::Ring);
    let kernels =
        or(&real.copybreak, &COPYBREAKS).into_iter().map(|copybreak| Receiver::Kernel { copybreak });
    let receivers: Vec<Receiver> = rings.chain(kernels).collect();
    let mut points = Vec::new();
    for receiver in &receivers {
        for payload in &payloads {
            for rate in &rates {
                let point = point(receiver, *payload, *rate, (real, access))?;
                points.push(rdr_point(&receiver.name(), *payload, &rate.to_string(), point));
            }
        }
    }
    let rx = real.rx_interface.as_deref().unwrap_or_default();
    let is_emulated = sys::pci::Card::of_interface(rx).is_ok_and(|card| card.subsystem_vendor == EMULATOR);
    Ok(RdrPlan { sweep: SweepPlan { points, trials: real.trials, seed: 1 }, is_emulated })
}

/// One setting, as the command line of `linerate bench` that measures it.
fn point(
    receiver: &Receiver,
    payload: u32,
    rate: Rate,
    (real, access): (&RealRdrArgs, Access),
) -> Result<BenchPlan, Failure> {
    let (Some(tx), Some(rx)) = (&real.tx_interface, &real.rx_interface) else {
        return Err(Failure::new(Status::Usage, "--real needs --tx-interface and --rx-interface"));
    };
    let mut words: Vec<OsString> = ["linerate", "bench", "--tx=pktgen"].map(OsString::from).into();
    let settings = [
        format!("--tx-interface={tx}"),
        format!("--rx-interface={rx}"),
        format!("--frame-size={}", payload + ETHERNET_BYTES),
        format!("--rate={rate}"),
        format!("--duration={}us", real.duration.as_micros()),
    ];
    words.extend(settings.map(OsString::from));
    words.extend(receiver.words(real));
    let cli = Cli::try_parse_from(&words).map_err(|error| crate::usage::failure(&error))?;
    match &cli.command {
        Command::Bench(bench) => plan(&bench.asked(), access),
        _ => Err(Failure::new(Status::Internal, "a point of the experiment is not a run of bench")),
    }
}

fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Receive descriptor recycling on a card: floods of kernel pktgen")?;
    writeln!(
        out,
        "{:<7} {:>7} {:<22} {:>9} {:>9} {:>7} {:>7} {:>8} {:>9} {:>7} {:>8} {:>11}",
        "load",
        "payload",
        "receiver",
        "sent kpps",
        "received",
        "lost %",
        "missed %",
        "/realloc",
        "refill ns",
        "alloc %",
        "driver %",
        "unexplained"
    )?;
    let mut points: Vec<_> = run.end.points.iter().map(|point| &point.values).collect();
    let text = |values: &std::collections::BTreeMap<String, Value>, name: &str| {
        values.get(name).and_then(Value::as_str).unwrap_or("-").to_owned()
    };
    let number = |values: &std::collections::BTreeMap<String, Value>, name: &str| {
        values.get(name).and_then(Value::as_f64)
    };
    points.sort_by(|a, b| {
        let rate = |values| {
            text(values, "offered").parse::<Rate>().map_or(f64::MAX, |rate| match rate {
                Rate::Pps(pps) => pps,
                _ => f64::MAX,
            })
        };
        let payload = |values| number(values, "payload_bytes").unwrap_or(0.0);
        rate(a).total_cmp(&rate(b)).then(payload(a).total_cmp(&payload(b)))
    });
    for values in points {
        let shown = |name: &str, factor: f64, digits: usize| {
            number(values, name).map_or_else(|| "-".into(), |value| format!("{:.digits$}", value * factor))
        };
        writeln!(
            out,
            "{:<7} {:>7} {:<22} {:>9} {:>9} {:>7} {:>7} {:>8} {:>9} {:>7} {:>8} {:>11}",
            text(values, "offered"),
            shown("payload_bytes", 1.0, 0),
            text(values, "receiver"),
            shown("sent_pps", 1e-3, 2),
            shown("delivered_pps", 1e-3, 2),
            shown("loss_ratio", 1e2, 1),
            shown("missed_ratio", 1e2, 1),
            shown("delivered_of_realloc", 1.0, 2),
            shown("refill_ns", 1.0, 0),
            shown("allocation_ratio", 1e2, 1),
            shown("driver_ratio", 1e2, 1),
            shown("unexplained", 1.0, 0),
        )?;
    }
    writeln!(
        out,
        "missed: the card had no descriptor or its buffer was full (MPC, rx_missed_errors). refill: returning a descriptor, \
         sampled. alloc, driver: shares of the time that receiving took, sampled by a timer."
    )?;
    for skipped in &run.end.skipped {
        writeln!(out, "skipped: {}: {}", skipped.engine, skipped.reason)?;
    }
    for note in &run.end.notes {
        writeln!(out, "! {note}")?;
    }
    Ok(())
}
