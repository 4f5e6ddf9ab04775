//! `linerate model plan`: what a flood needs.

use std::{
    io::{self, Write},
    path::Path,
};

use model::{Bottleneck, Fleet, FleetPlan, Scenario};

use super::record::{calibrated, finish, modelled, refuse, split};
use crate::{
    args::PlanArgs,
    failure::{Failure, Status},
    pipeline::Pipeline,
};

/// Bounds of a queue's rate on one CPU: from an interpreter in an emulated machine to a program that reads no packet.
const PLAUSIBLE_QUEUE_PPS: std::ops::RangeInclusive<u64> = 100..=500_000_000;

/// Plans a fleet.
pub(super) fn run(args: &PlanArgs) -> Result<bool, Failure> {
    let mut fleet = Fleet::default();
    let frame = args.frame_size.unwrap_or(wire::FrameSize::MIN);
    fleet.frame_bytes = frame.bytes();
    if let Some(flood) = args.flood {
        let pps = flood.to_pps(frame, None).map_err(|error| Failure::new(Status::Usage, error))?;
        fleet.flood_pps = pps.ok_or_else(|| {
            Failure::new(Status::Usage, "the rate of a flood cannot be max").hint("try 300Mpps")
        })?;
    }
    if let Some(path) = &args.from {
        fleet.queue_pps = measured_queue_pps(path)?;
    }
    if let Some(preset) = &args.preset {
        fleet.queue_pps = modelled_queue_pps(preset)?;
    }
    for setting in &args.set {
        let (name, value) = split(setting)?;
        fleet.set(name, value).map_err(|error| refuse(&error))?;
    }
    fleet.validate().map_err(|error| refuse(&error))?;
    let Some(pipeline) = Pipeline::open(&args.output, "plan", &fleet)? else { return Ok(true) };
    let plan = fleet.plan().map_err(|error| refuse(&error))?;
    let run = plan.run(&fleet, modelled("model", &args.set));
    finish(&run, pipeline, Some(&|_, out| write(&fleet, &plan, out)))
}

/// The rate of a run's fastest receiver on one CPU. A program in XDP on the sender's CPU does not show it.
fn measured_queue_pps(path: &Path) -> Result<f64, Failure> {
    let calibration = calibrated(path)?;
    let mut fastest = None;
    for pair in calibration.pairs.iter().filter(|pair| pair.reader_ns.is_some()) {
        let machine = pair.machine().map_err(|error| refuse(&error))?;
        let pps = model::queue_capacity_pps(&machine).map_err(|error| refuse(&error))?;
        fastest = fastest.max(Some(pps as u64));
    }
    if let Some(pps) = fastest.filter(|pps| !PLAUSIBLE_QUEUE_PPS.contains(pps)) {
        return Err(Failure::new(
            Status::Refused,
            format!(
                "{}: its costs give an impossible rate of {pps} packets per second per queue",
                path.display()
            ),
        )
        .hint("use another run, or set a queue's rate: --set queue_pps=10000000"));
    }
    fastest.map(|pps| pps as f64).ok_or_else(|| {
        Failure::new(
            Status::Refused,
            format!("{}: no receiver of that run shows a queue's rate", path.display()),
        )
        .hint("use a run of linerate bench with --rx udp, packet or xsk, or to xdp with --threaded-napi")
    })
}

fn modelled_queue_pps(preset: &str) -> Result<f64, Failure> {
    match Scenario::preset(preset).map_err(|error| refuse(&error))? {
        Scenario::Receive(machine) => model::queue_capacity_pps(&machine).map_err(|error| refuse(&error)),
        Scenario::Transmit(_) => {
            Err(Failure::new(Status::Usage, format!("the preset '{preset}' has no receive queue"))
                .hint("linerate model --list shows presets and parameters"))
        }
    }
}

fn write(fleet: &Fleet, plan: &FleetPlan, out: &mut dyn Write) -> io::Result<()> {
    let mpps = |pps: f64| format!("{:.3} Mpps", pps / 1e6);
    writeln!(
        out,
        "{} of {}-byte frames in {} flows, to machines with {} queues of {} each on {} cores",
        mpps(fleet.flood_pps),
        fleet.frame_bytes,
        fleet.flows,
        fleet.queues,
        mpps(fleet.queue_pps),
        fleet.cores
    )?;
    match (plan.machines, plan.queues, plan.cores) {
        (Some(machines), Some(queues), Some(cores)) => {
            let verb = if fleet.machines.is_some() { "judged" } else { "needed" };
            writeln!(
                out,
                "{verb}: {machines} machines, {queues} queues, {cores} cores; {} machines if flows spread evenly",
                plan.machines_if_even
            )?;
        }
        _ => writeln!(out, "no number of machines is enough")?,
    }
    writeln!(out, "first bottleneck: {}", words(plan.bottleneck))?;
    if plan.machines.is_some() {
        writeln!(
            out,
            "some core or machine is overloaded in {:.1} % of {} fresh flow sets (95 %: +- {:.1})",
            plan.overload_probability * 100.0,
            fleet.flow_sets,
            plan.overload_probability_half_width * 100.0
        )?;
        writeln!(
            out,
            "busiest machine {:.2} and busiest core {:.2} times the mean",
            plan.worst_machine_ratio, plan.worst_core_ratio
        )?;
    }
    writeln!(out, "\n{:<40} {:>14}", "what one machine can take", "")?;
    for limit in &plan.limits {
        writeln!(out, "{:<40} {:>14}", words(limit.what), mpps(limit.pps))?;
    }
    if !plan.curve.is_empty() {
        writeln!(out, "\n{:>10} {:>14}", "machines", "overloaded")?;
    }
    for point in &plan.curve {
        writeln!(out, "{:>10} {:>12.1} %", point.machines, point.overload_probability * 100.0)?;
    }
    for note in &plan.notes {
        writeln!(out, "! {note}")?;
    }
    Ok(())
}

fn words(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::Core => "cores, each with the queues it serves",
        Bottleneck::Link => "links",
        Bottleneck::Bus => "PCI Express",
        Bottleneck::HeavyFlow => "one flow, which stays on one core",
    }
}
