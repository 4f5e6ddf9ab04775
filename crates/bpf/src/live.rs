//! What runs of live frames have in common.

use crate::error::{BpfError, EINTR, EINVAL, ENOSPC};

/// The shortest time between the starts of two runs of live frames, in nanoseconds.
///
/// Each run has a pool of pages with a number of its own, of which there are 65,533 for all pools of the machine
/// (`MEM_ID_MAX`, net/core/xdp.c). A pool with frames in flight keeps its number for a second: at this distance
/// one caller leaves two thirds of the numbers to others.
pub const LIVE_RUN_GAP_NS: u64 = 50_000;

/// Whether a run merely ended early: a signal arrived, or the machine had no number for the run's pages.
/// The remaining frames can be made or re-injected later.
pub(crate) fn ended_early(error: &BpfError) -> bool {
    matches!(error.os_error(), Some(EINTR | ENOSPC))
}

/// The error of a kernel without live frames; callers pass only frames that a kernel can take.
pub(crate) fn in_words(error: BpfError) -> BpfError {
    match error.os_error() {
        Some(EINVAL) => BpfError::Unsupported {
            feature: "re-injecting packets as XDP live frames".into(),
            on: "here (since Linux 5.18)".into(),
            source: error.into(),
        },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::error::EPERM;

    fn failed(errno: i32) -> BpfError {
        BpfError::ProgramRun { program: "inject", source: io::Error::from_raw_os_error(errno).into() }
    }

    #[test]
    fn a_kernel_without_live_frames_is_told_as_such() {
        let words = "re-injecting packets as XDP live frames is not supported here (since Linux 5.18)";
        assert_eq!(in_words(failed(EINVAL)).to_string(), words);
        assert_eq!(in_words(failed(EPERM)).to_string(), "cannot run the BPF program 'inject'");
    }

    #[test]
    fn signals_and_missing_numbers_end_a_run_early_and_all_else_fails_it() {
        for (errno, is_early) in [(EINTR, true), (ENOSPC, true), (EINVAL, false), (EPERM, false)] {
            assert_eq!(ended_early(&failed(errno)), is_early, "{errno}");
        }
    }
}
