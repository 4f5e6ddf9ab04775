//! The stages after a ladder: the search for each receiver's highest rate without loss, and the best pairs on all CPUs.

use bench::{BenchPlan, ScalePlan, ScaleStep, ScaledReceiver, short_goal};
use traffic::{RingOptions, RxOptions, RxSpec};
use trial::{CpuPlan, place};
use wire::Rate;

use super::plan::{cpu_order, interfaces_of};
use crate::{
    args::{BenchArgs, StageArgs},
    failure::{Failure, Status},
};

/// The switch of engines that gives each thread a socket of its own.
const SOCKET_PER_THREAD: &str = "reuseport";

/// Adds the default stages to the plan of a ladder over everything, and the scaling that `--scale` requests.
pub(super) fn plan(args: &BenchArgs, plan: &mut BenchPlan) -> Result<(), Failure> {
    let StageArgs { scale, no_scale, no_lossless } = args.stages;
    if scale && args.load.rate != Rate::Max {
        return Err(Failure::new(Status::Usage, "--scale measures the highest rates and cannot hold --rate")
            .hint("omit one of them"));
    }
    let is_whole = asks_for_everything(args);
    if is_whole && !no_lossless {
        plan.lossless = Some(short_goal());
    }
    if scale || is_whole && !no_scale {
        plan.scale = scaling(args, plan);
    }
    Ok(())
}

fn asks_for_everything(args: &BenchArgs) -> bool {
    let BenchArgs { paths, sockets, load, .. } = args;
    let is_one_thread = paths.threads == 1 && paths.rx_threads.is_none_or(|threads| threads == 1);
    let is_placed = sockets.tx_cpus.is_none() && sockets.rx_cpus.is_none() && !sockets.no_pin;
    paths.tx.is_empty()
        && paths.rx.is_empty()
        && is_one_thread
        && is_placed
        && load.rate == Rate::Max
        && args.sweep.sweep.is_empty()
        && args.stats.is_none()
        && !args.profile
}

/// `None` on a machine with one CPU, or without a receiver that can use more.
fn scaling(args: &BenchArgs, plan: &BenchPlan) -> Option<ScalePlan> {
    let order = cpu_order(&interfaces_of(&args.lab));
    let options = RxOptions {
        receive_buffer_bytes: args.sockets.receive_buffer,
        busy_poll_micros: args.sockets.busy_poll,
        message_bytes: None,
        rings: RingOptions::default(),
    };
    let mut receivers: Vec<ScaledReceiver> = Vec::new();
    for pair in plan.pairs.iter().filter(|pair| !pair.is_stream()) {
        let rx = with_socket_per_thread(&pair.rx, &options);
        if !receivers.iter().any(|known| known.ladder == pair.rx || known.rx == rx) {
            receivers.push(ScaledReceiver { ladder: pair.rx.clone(), rx });
        }
    }
    let cpus =
        |threads| if args.sockets.no_pin { CpuPlan::default() } else { place(&order, threads, threads) };
    let steps = ScalePlan::threads_up_to(order.len());
    let steps: Vec<ScaleStep> =
        steps.into_iter().map(|threads| ScaleStep { threads, cpus: cpus(threads) }).collect();
    (steps.len() > 1 && !receivers.is_empty()).then_some(ScalePlan { steps, receivers })
}

fn with_socket_per_thread(rx: &RxSpec, options: &RxOptions) -> RxSpec {
    rx.with_switch(SOCKET_PER_THREAD).map_or_else(|_| rx.clone(), |rx| rx.configured(options))
}
