//! `linerate bench apu4d4`: the document's rows beside this machine's.

use std::io::{self, Write};

use bench::{APU4D4, Apu4d4Error, Apu4d4Plan, Apu4d4Row, run_apu4d4};
use measure::{End, Origin, Run, SCHEMA};
use sys::signal;

use crate::{
    args::Apu4d4Args,
    commands::nic::session_failure,
    failure::{Failure, Status},
    output::{self, Form, Save, printed, state_folder},
    start::opening,
};

pub(super) fn run(args: &Apu4d4Args) -> Result<bool, Failure> {
    if args.duration.is_zero() {
        return Err(
            Failure::new(Status::Usage, "a row of no time measures nothing").hint("try --duration 3s")
        );
    }
    let plan = Apu4d4Plan {
        rx_interface: args.rx_interface.clone(),
        tx_interface: args.tx_interface.clone(),
        row_ns: args.duration.as_nanos() as u64,
        state: state_folder(),
    };
    if args.output.dry_run {
        return output::print_plan(&(&plan, APU4D4));
    }
    let save = Save::prepare(&args.output, "bench")?;
    let form = args.output.form();
    let mut start = opening("bench apu4d4", Origin::Hosts, &plan);
    start.machine.interfaces =
        bench::named_interfaces(&[(&plan.rx_interface, "rx"), (&plan.tx_interface, "tx")]);
    if form == Form::JsonStream {
        output::print_event(report::Event::start(&start))?;
    }
    let mut rows: Vec<Apu4d4Row> = Vec::new();
    let mut broken_output = None;
    let outcome = run_apu4d4(&plan, |row| {
        if form == Form::Text {
            let mut out = io::stdout().lock();
            let head = if rows.is_empty() { write_head(&mut out) } else { Ok(()) };
            broken_output = printed(head.and_then(|()| write_row(row, rows.first(), &mut out))).err();
        }
        rows.push(row.clone());
        broken_output.is_none() && signal::caught() == 0
    });
    let mut end = End { points: rows.iter().map(Apu4d4Row::point).collect(), ..End::default() };
    if rows.len() < APU4D4.len() {
        end.notes.push(format!("cut short after {} of {} rows", rows.len(), APU4D4.len()));
    }
    let run = Run { schema: SCHEMA.into(), start, intervals: Vec::new(), end };
    if form != Form::Text {
        output::print_run(&run, form)?;
    }
    output::save_run(&run, save)?;
    if let Some(failure) = broken_output {
        return Err(failure);
    }
    outcome.map_err(|error| explain(&error))?;
    Ok(run.end.points.len() == APU4D4.len())
}

fn explain(error: &Apu4d4Error) -> Failure {
    match error {
        Apu4d4Error::Session(error) => session_failure(error).hint(
            "two queues, a table and moderation are needed; linerate lab vm --pair igb has a card with them",
        ),
        _ => Failure::of(Status::Refused, error)
            .hint("linerate lab vm --pair igb has two interfaces for this: pair1a and pair1b"),
    }
}

fn write_head(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "The apu4d4 document's figures (kpps, i211 at 1 Gb/s, 4 x 1 GHz) beside this machine's")?;
    writeln!(
        out,
        "{:<38} {:>9} {:>7} {:>9} {:>8} {:>6} {:>6} {:>12}  {:>5} {:>5} {:>7}  by queue",
        "row",
        "published",
        "of 1st",
        "delivered",
        "sent",
        "of 1st",
        "lost",
        "interrupts/s",
        "user",
        "sys",
        "softirq"
    )
}

fn write_row(row: &Apu4d4Row, first: Option<&Apu4d4Row>, out: &mut impl Write) -> io::Result<()> {
    let (least, most) = row.step.published_kpps;
    let published = if least == most { format!("{least}") } else { format!("{least}-{most}") };
    let (ratio, published_ratio) = row.ratio_to(first.unwrap_or(row));
    let busy = |part: fn(&measure::CpuShare) -> f64| row.cpus.iter().map(part).sum::<f64>() * 100.0;
    let shares: Vec<String> = row.queue_shares.iter().map(|share| format!("{:.0}%", share * 100.0)).collect();
    writeln!(
        out,
        "{:<38} {:>9} {:>7.2} {:>9.1} {:>8.1} {:>6.2} {:>5.1}% {:>12.0}  {:>4.0}% {:>4.0}% {:>6.0}%  {}",
        row.step.name,
        published,
        published_ratio,
        row.delivered_pps / 1000.0,
        row.sent_pps / 1000.0,
        ratio,
        (1.0 - row.delivered_pps / row.sent_pps.max(1.0)) * 100.0,
        row.interrupts_per_s,
        busy(|cpu| cpu.user_ratio),
        busy(|cpu| cpu.system_ratio),
        busy(|cpu| cpu.softirq_ratio),
        shares.join(" ")
    )
}
