//! `linerate bench apu4d4`: docs/apu4d4.md's rows beside this machine's.

use std::{
    io::{self, Write},
    time::Instant,
};

use bench::{APU4D4, Apu4d4Error, Apu4d4Plan, Apu4d4Row, run_apu4d4};
use measure::{End, Origin, PairSummary, Run, SCHEMA, Trial};
use sys::signal;

use crate::{
    args::Apu4d4Args,
    commands::nic::session_failure,
    failure::{Failure, Status},
    output::{Form, printed, state_folder},
    pipeline::{Ending, Pipeline},
    start::opening,
};

pub(super) fn run(args: &Apu4d4Args) -> Result<bool, Failure> {
    if args.duration.is_zero() {
        return Err(Failure::new(Status::Usage, "--duration must be above zero").hint("try --duration 3s"));
    }
    let plan = Apu4d4Plan {
        rx_interface: args.rx_interface.clone(),
        tx_interface: args.tx_interface.clone(),
        row_ns: args.duration.as_nanos() as u64,
        state: state_folder(),
    };
    let asked = (&plan, APU4D4);
    let Some(pipeline) = Pipeline::open(&args.output, "bench", &asked)? else { return Ok(true) };
    let form = pipeline.form();
    let mut start = opening("bench apu4d4", Origin::Hosts, &plan);
    start.machine.interfaces =
        bench::named_interfaces(&[(&plan.rx_interface, "rx"), (&plan.tx_interface, "tx")]);
    pipeline.begin(&start)?;
    let mut rows: Vec<Apu4d4Row> = Vec::new();
    let mut trials: Vec<Trial> = Vec::new();
    let mut broken_output = None;
    let began = Instant::now();
    let mut live = pipeline.live(&start)?;
    let outcome = run_apu4d4(&plan, |row, trial| {
        live.row(row.step.name, trial, (rows.len() as u32, APU4D4.len() as u32));
        if form == Form::Text {
            let mut out = io::stdout().lock();
            let head = if rows.is_empty() { write_head(&mut out) } else { Ok(()) };
            broken_output = printed(head.and_then(|()| write_row(row, rows.first(), &mut out))).err();
        }
        rows.push(row.clone());
        trials.push(trial.clone());
        broken_output.is_none() && signal::caught() == 0
    });
    live.end();
    let mut end = End {
        duration_s: began.elapsed().as_secs_f64(),
        interrupted: rows.len() < APU4D4.len(),
        points: rows.iter().map(Apu4d4Row::point).collect(),
        pairs: PairSummary::of(&trials),
        trials,
        figures: bench::apu4d4_figures(&rows),
        ..End::default()
    };
    if rows.len() < APU4D4.len() {
        end.interrupted = true;
        end.notes.push(format!("cut short after {} of {} rows", rows.len(), APU4D4.len()));
    }
    let run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end };
    let failure = broken_output.or(outcome.err().map(|error| explain(&error)));
    // Each row was printed when it was measured.
    pipeline.conclude(&run, Ending { failure, text: Some(&write_figures), ..Ending::default() })
}

fn explain(error: &Apu4d4Error) -> Failure {
    match error {
        Apu4d4Error::Session(error) => session_failure(error).hint(
            "this needs two queues, an RSS table and interrupt moderation; linerate lab vm --pair igb has them",
        ),
        _ => Failure::of(Status::Refused, error)
            .hint("linerate lab vm --pair igb has a pair for this: pair1a and pair1b"),
    }
}

fn write_head(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "The apu4d4 document's figures (kpps, i211 at 1 Gb/s, 4 x 1 GHz) beside this machine's")?;
    writeln!(
        out,
        "{:<38} {:>9} {:>7} {:>9} {:>8} {:>6} {:>6} {:>12} {:>9}  {:>5} {:>5} {:>7}  by queue",
        "row",
        "published",
        "of 1st",
        "delivered",
        "sent",
        "of 1st",
        "lost",
        "interrupts/s",
        "a packet",
        "user",
        "sys",
        "softirq"
    )
}

/// What the document reports besides rates.
fn write_figures(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:<42} {:>9} {:>9}  unit      at", "beside the rates", "published", "here")?;
    for figure in run.end.figures.iter().filter(|figure| figure.measured.is_some()) {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        writeln!(
            out,
            "{:<42} {:>9} {:>9}  {:<9} {}",
            figure.figure,
            number(figure.reference()),
            number(figure.measured),
            figure.unit,
            figure.measured_at
        )?;
    }
    Ok(())
}

fn write_row(row: &Apu4d4Row, first: Option<&Apu4d4Row>, out: &mut impl Write) -> io::Result<()> {
    let (least, most) = row.step.published_kpps();
    let published = if least == most { format!("{least}") } else { format!("{least}-{most}") };
    let (ratio, published_ratio) = row.ratio_to(first.unwrap_or(row));
    let busy = |part: fn(&measure::CpuShare) -> f64| row.cpus.iter().map(part).sum::<f64>() * 100.0;
    let shares: Vec<String> = row.queue_shares.iter().map(|share| format!("{:.0}%", share * 100.0)).collect();
    writeln!(
        out,
        "{:<38} {:>9} {:>7.2} {:>9.1} {:>8.1} {:>6.2} {:>5.1}% {:>12.0} {:>9.3}  {:>4.0}% {:>4.0}% {:>6.0}%  {}",
        row.step.name,
        published,
        published_ratio,
        row.delivered_pps / 1000.0,
        row.sent_pps / 1000.0,
        ratio,
        (1.0 - row.delivered_pps / row.sent_pps.max(1.0)) * 100.0,
        row.interrupts_per_s,
        row.interrupts_per_packet(),
        busy(|cpu| cpu.user_ratio),
        busy(|cpu| cpu.system_ratio),
        busy(|cpu| cpu.softirq_ratio),
        shares.join(" ")
    )
}
