//! The record of a simulation: its parameters and its end.

use std::path::Path;

use measure::{Machine, Origin, Run, Trial};
use model::{Calibration, ConfigError, PairTraits};
use traffic::{RxLayer, RxSpec, TxSpec};

use crate::{
    commands::report::read_run,
    failure::{Failure, Status, in_words},
    pipeline::{Ending, Pipeline, WriteText},
    start::opening,
};

/// The machine of a measured run.
pub(super) fn calibrated(path: &Path) -> Result<Calibration, Failure> {
    model::calibrate(&read_run(path)?, traits_of).map_err(|error| {
        Failure::new(Status::Refused, format!("{}: {}", path.display(), in_words(&error)))
            .hint("use a run of linerate bench in which the receiver loses packets, which shows its limit")
    })
}

/// What the model needs to know about a trial's engines; other programs' engines are sockets.
fn traits_of(trial: &Trial) -> PairTraits {
    let reads = trial.rx.engine.parse::<RxSpec>().map_or(RxLayer::Socket, |engine| engine.facts().reads);
    PairTraits {
        path: match reads {
            RxLayer::Socket | RxLayer::Copies | RxLayer::Stream => model::Path::Kernel,
            RxLayer::XdpSocket => model::Path::AfXdp,
            RxLayer::XdpProgram | RxLayer::Card => model::Path::XdpDrop,
        },
        frame_ring: reads == RxLayer::Copies,
        page_per_frame: trial.tx.engine.parse().is_ok_and(|engine: TxSpec| engine.facts().page_per_frame),
    }
}

/// A model's run is complete before its first event.
pub(super) fn finish(run: &Run, pipeline: Pipeline, text: Option<&WriteText<'_>>) -> Result<bool, Failure> {
    pipeline.begin(&run.start)?;
    pipeline.trials(run)?;
    pipeline.conclude(run, Ending { text, ..Ending::default() })
}

/// A model's record names no machine but the simulated one.
pub(super) fn modelled(command: &str, settings: &[String]) -> measure::Start {
    let mut start = opening(command, Origin::Model, &serde_json::json!({ "set": settings }));
    start.machine = Machine::default();
    start
}

pub(super) fn split(setting: &str) -> Result<(&str, &str), Failure> {
    setting.split_once('=').ok_or_else(|| {
        Failure::new(Status::Usage, format!("'{setting}' is not a setting")).hint("write --set NAME=VALUE")
    })
}

pub(super) fn refuse(error: &ConfigError) -> Failure {
    Failure::new(Status::Usage, in_words(error)).hint("linerate model --list shows presets and parameters")
}
