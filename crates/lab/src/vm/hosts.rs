//! Two machines with real drivers whose cards are wired to each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cables::{Monitors, Seat};
use super::error::VmError;
use super::plan::{NicModel, VmPlan, VmPlanError};
use super::run::{Vm, VmOutcome, VmStatus, VmStreams};

/// Two machines that can be started together. Their cards are `wire1` and so on, with the addresses `198.18.N.1` in the first
/// one and `198.18.N.2` in the second. The first one's script starts once the second one's listens on a TCP port, or has had ten
/// seconds to. `cable N off` and `cable N on` in either
/// one pull and plug in a cable at both ends.
#[derive(Debug)]
pub struct VmHosts {
    vm: Vm,
    cables: Vec<NicModel>,
}

/// What one of two machines runs.
pub struct VmHost<'h> {
    /// Its script.
    pub script: &'h str,
    /// Where its output goes.
    pub streams: VmStreams<'h>,
}

impl VmHosts {
    /// The most cables between two machines.
    pub const MAX_CABLES: usize = 8;

    /// How long the second machine may take to end, once the first one's script has.
    const END_WITHIN: Duration = Duration::from_secs(30);

    /// As [`Vm::prepare`]: two machines of this plan, with a cable for each of `cables`.
    ///
    /// # Errors
    /// Those of [`Vm::prepare`].
    pub fn prepare(plan: &VmPlan, cables: &[NicModel]) -> Result<Self, VmError> {
        if !(1..=Self::MAX_CABLES).contains(&cables.len()) {
            return Err(VmError::Plan { problems: vec![VmPlanError::Cables { cables: cables.len() }] });
        }
        Ok(Self { vm: Vm::prepare(plan)?, cables: cables.to_vec() })
    }

    /// Runs a script in each machine. When the first one's has ended, what the second one runs at that moment gets SIGTERM, and
    /// has half a minute to end its script. A machine that ends early does not end the other.
    ///
    /// # Errors
    /// Those of [`Vm::run`].
    pub fn run(
        &self,
        hosts: [VmHost<'_>; 2],
        go_on: impl Fn() -> bool + Sync,
    ) -> Result<[VmStatus; 2], VmError> {
        let monitors = Monitors::default();
        let (never, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let seats = Seat::two(&self.cables, &monitors, [&never, &is_over]);
        let [first_seat, second_seat] = seats.map_err(|source| VmError::Cable { source })?;
        let [first, second] = hosts;
        thread::scope(|scope| {
            let (go_on, is_over) = (&go_on, &is_over);
            let second = scope.spawn(move || {
                let mut end_by = None;
                let may_go_on = || {
                    let now = Instant::now();
                    if is_over.load(Ordering::Relaxed) {
                        end_by = end_by.or(Some(now + Self::END_WITHIN));
                    }
                    go_on() && end_by.is_none_or(|end| now < end)
                };
                let seat = second_seat;
                self.vm.run_at(Some(&seat), second.script, second.streams, may_go_on)
            });
            let first = {
                // Gone with the machine: frames to it end nowhere then, and do not wait.
                let seat = first_seat;
                self.vm.run_at(Some(&seat), first.script, first.streams, go_on)
            };
            is_over.store(true, Ordering::Relaxed);
            let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok([first?, second?])
        })
    }

    /// Runs scripts and keeps what they write.
    ///
    /// # Errors
    /// Those of [`Vm::run`].
    pub fn outcomes(&self, scripts: [&str; 2]) -> Result<[VmOutcome; 2], VmError> {
        let mut written = [const { [const { Vec::new() }; 2] }; 2];
        let [[out_a, err_a], [out_b, err_b]] = &mut written;
        let [script_a, script_b] = scripts;
        let statuses = self.run(
            [
                VmHost { script: script_a, streams: VmStreams { stdout: out_a, stderr: err_a } },
                VmHost { script: script_b, streams: VmStreams { stdout: out_b, stderr: err_b } },
            ],
            || true,
        )?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let [a, b] = statuses;
        let [written_a, written_b] = written;
        let outcome = |status, [stdout, stderr]: [Vec<u8>; 2]| VmOutcome {
            status,
            stdout: text(stdout),
            stderr: text(stderr),
        };
        Ok([outcome(a, written_a), outcome(b, written_b)])
    }
}
