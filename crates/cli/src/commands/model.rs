//! `linerate model` and `linerate bench rdr`: the simulated receive path.

mod fleet;
mod record;

use std::{
    io::{self, Write},
    num::NonZero,
    path::Path,
    sync::Mutex,
    thread,
};

use measure::Run;
use model::{BusTrace, Rdr, Scenario, Sweep};

use crate::{
    args::{ModelArgs, ModelCommand, PolicyArg, RdrArgs},
    failure::{Failure, Status, in_words},
    output::printed,
    pipeline::Pipeline,
};
use record::{calibrated, finish, modelled, refuse, split};

pub(crate) fn run(args: &ModelArgs) -> Result<bool, Failure> {
    match &args.command {
        Some(ModelCommand::Plan(plan)) => return fleet::run(plan),
        Some(ModelCommand::Rdr(rdr)) => return run_rdr(rdr),
        None => {}
    }
    if args.list {
        return list();
    }
    if let Some(path) = &args.from {
        return predict(args, path);
    }
    Pipeline::refuse_views(&args.output)?;
    let mut scenario = Scenario::preset(&args.preset).map_err(|error| refuse(&error))?;
    for setting in &args.set {
        let (name, value) = split(setting)?;
        scenario.set(name, value).map_err(|error| refuse(&error))?;
    }
    let sweeps: Vec<Sweep> = args
        .sweep
        .iter()
        .map(|text| Sweep::parse(text))
        .collect::<Result<_, _>>()
        .map_err(|error| refuse(&error))?;
    let points = scenario.sweep(&sweeps).map_err(|error| refuse(&error))?;
    let Some(pipeline) = Pipeline::open(&args.output, "model", &points)? else { return Ok(true) };
    let results = in_parallel(points, |point| point.compute(&args.preset));
    let results = results.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| refuse(&error))?;
    let start = modelled("model", &args.set);
    finish(&scenario.assemble(start, results), pipeline, None)
}

/// The RDR paper's experiment: every point, with the published figures beside the model's.
pub(crate) fn run_rdr(args: &RdrArgs) -> Result<bool, Failure> {
    Pipeline::refuse_views(&args.output)?;
    if let Some(calls) = args.calls {
        return run_calls(model::Calls { calls, voice_bytes: args.voice_bytes }, args);
    }
    let defaults = Rdr::default();
    let rdr = Rdr {
        payloads: if args.payload.is_empty() { defaults.payloads } else { args.payload.clone() },
        ports: if args.ports.is_empty() { defaults.ports } else { args.ports.clone() },
        policies: if args.policy.is_empty() {
            defaults.policies
        } else {
            args.policy.iter().map(|policy| (*policy).into()).collect()
        },
    };
    let usage = |error: model::RdrError| Failure::new(Status::Usage, in_words(&error));
    let points = rdr.points().map_err(usage)?;
    let Some(pipeline) = Pipeline::open(&args.output, "rdr", &points)? else { return Ok(true) };
    let results = in_parallel(points, |point| point.compute());
    let results = results.into_iter().collect::<Result<Vec<_>, _>>().map_err(usage)?;
    let figures = model::rdr_figures().map_err(usage)?;
    let policies = vec![model::BufferPolicy::Realloc, model::BufferPolicy::Recycle];
    let traces: Vec<BusTrace> =
        in_parallel(policies, BusTrace::simulate).into_iter().collect::<Result<_, _>>().map_err(usage)?;
    let functions = model::rdr_functions().map_err(usage)?;
    let run = Rdr::assemble(modelled("bench", &[]), results, &figures, &traces, &functions);
    finish(&run, pipeline, Some(&|run, out| write_rdr(run, &figures, &traces[0], out)))
}

/// Telephone calls on the paper's machine, with both drivers.
fn run_calls(calls: model::Calls, args: &RdrArgs) -> Result<bool, Failure> {
    let usage = |error: model::RdrError| Failure::new(Status::Usage, in_words(&error));
    calls.check().map_err(usage)?;
    let Some(pipeline) = Pipeline::open(&args.output, "rdr", &calls)? else { return Ok(true) };
    let run = calls.run(modelled("model", &[])).map_err(usage)?;
    finish(&run, pipeline, Some(&|run, out| write_calls(run, calls, out)))
}

fn write_calls(run: &Run, calls: model::Calls, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{} calls, 50 packets/s each of {} bytes of voice: {:.0} kpps on one port of the RDR paper's machine (model)",
        calls.calls,
        calls.voice_bytes,
        calls.offered_pps() / 1e3
    )?;
    writeln!(
        out,
        "{:<8} {:>14} {:>10} {:>8} {:>24}",
        "driver", "received kpps", "lost kpps", "lost", "most calls carried"
    )?;
    for point in &run.end.points {
        let number =
            |name: &str| point.values.get(name).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
        writeln!(
            out,
            "{:<8} {:>14.1} {:>10.1} {:>7.2}% {:>24}",
            point.values.get("policy").and_then(|policy| policy.as_str()).unwrap_or("-"),
            number("received_pps") / 1e3,
            number("lost_pps") / 1e3,
            number("loss_ratio") * 100.0,
            format!("{:.0} of {:.0} on the link", number("most_calls"), number("calls_at_line_rate"))
        )?;
    }
    writeln!(
        out,
        "most calls carried: fewer than one packet in a thousand lost; calls begin independently of each other"
    )?;
    for note in &run.end.notes {
        writeln!(out, "! {note}")?;
    }
    Ok(())
}

fn write_rdr(run: &Run, figures: &[model::Figure], trace: &BusTrace, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "Receive descriptor recycling (Walravens and Gaidioz): the paper's figures beside the model's"
    )?;
    writeln!(
        out,
        "{:<58} {:>10} {:>10} {:>10} {:>8}  {:<14}  where",
        "figure", "published", "derived", "model", "off by", "verdict"
    )?;
    for figure in figures {
        let value = plain(figure.paper.value);
        let [published, derived] =
            if figure.is_derived() { ["-".to_owned(), value] } else { [value, "-".to_owned()] };
        writeln!(
            out,
            "{:<58} {published:>10} {derived:>10} {:>10} {:>7.1}%  {:<14}  {}",
            format!("{} [{}]", figure.paper.figure, figure.paper.unit),
            plain(figure.model),
            figure.deviation() * 100.0,
            figure.verdict(),
            figure.paper.place
        )?;
    }
    writeln!(
        out,
        "derived: computed from the paper's slope (0.004 Gb/s per byte) and -40 %; given, fitted: a parameter of the model"
    )?;
    writeln!(out, "\nThroughput against payload, Mb/s of frames a port (Figures 3, 4 and 9)")?;
    writeln!(
        out,
        "{:<8} {:>5} {:>13} {:>7} {:>7} {:>8} {:>9} {:>7} {:>11}",
        "policy", "ports", "payload bytes", "theory", "sent", "received", "derived", "bus", "lost kpps"
    )?;
    for point in &run.end.points {
        let number =
            |name: &str| point.values.get(name).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
        let megabits = |name: &str| number(name) / 1e6;
        writeln!(
            out,
            "{:<8} {:>5} {:>13} {:>7.1} {:>7.1} {:>8.1} {:>9.1} {:>7.1} {:>11.1}",
            point.values.get("policy").and_then(|policy| policy.as_str()).unwrap_or("-"),
            number("ports"),
            number("payload_bytes"),
            megabits("theory_bps"),
            megabits("sent_bps"),
            megabits("received_bps"),
            megabits("derived_received_bps"),
            megabits("bus_limit_bps"),
            number("lost_pps") / 1e3
        )?;
    }
    writeln!(out, "\nThe bus over time (Figures 5 and 7), a character = 250 clocks")?;
    for line in trace.axis(80, 250.0) {
        writeln!(out, "{line}")?;
    }
    writeln!(
        out,
        "The packet buffer, tenths of 48 KB, F full; a character = 1250 clocks; STOP# {} times in {:.0} clocks",
        trace.stops(),
        trace.length_clk
    )?;
    for line in trace.level_axis(80, 1250.0) {
        writeln!(out, "{line}")?;
    }
    for note in &run.end.notes {
        writeln!(out, "! {note}")?;
    }
    Ok(())
}

/// Predicts rate and loss for the machine of a measured run.
fn predict(args: &ModelArgs, path: &Path) -> Result<bool, Failure> {
    let calibration = calibrated(path)?;
    let asked = serde_json::json!({
        "calibration": calibration, "loads": args.load, "loss_ratio": args.loss_ratio, "set": args.set
    });
    let Some(pipeline) = Pipeline::open(&args.output, "model", &asked)? else { return Ok(true) };
    let run = model::predict(&calibration, &args.load, args.loss_ratio, modelled("model", &args.set))
        .map_err(|error| refuse(&error))?;
    finish(&run, pipeline, None)
}

fn list() -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    let written = (|| -> io::Result<()> {
        writeln!(out, "presets:")?;
        for (name, about) in Scenario::presets() {
            writeln!(out, "  {name:<16} {about}")?;
        }
        writeln!(out, "parameters of the receive path (--set NAME=VALUE, --sweep NAME=A,B):")?;
        for parameter in model::parameters() {
            writeln!(out, "  {:<28} {:<10} {}", parameter.name, parameter.unit, parameter.meaning)?;
        }
        Ok(())
    })();
    printed(written)?;
    Ok(true)
}

fn plain(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// Computes independent points on all CPUs, in order.
fn in_parallel<P: Send, R: Send>(points: Vec<P>, compute: impl Fn(P) -> R + Sync) -> Vec<R> {
    let count = points.len();
    let waiting = Mutex::new(points.into_iter().enumerate());
    let done: Mutex<Vec<Option<R>>> = Mutex::new((0..count).map(|_| None).collect());
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(count.max(1));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no holder panics").next();
                    let Some((at, point)) = next else { return };
                    let result = compute(point);
                    done.lock().expect("no holder panics")[at] = Some(result);
                }
            });
        }
    });
    done.into_inner()
        .expect("no holder panics")
        .into_iter()
        .map(|result| result.expect("every point was computed"))
        .collect()
}

impl From<PolicyArg> for model::BufferPolicy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Realloc => Self::Realloc,
            PolicyArg::Recycle => Self::Recycle,
        }
    }
}
