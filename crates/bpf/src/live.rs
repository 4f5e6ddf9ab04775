//! What runs of live frames have in common.

use crate::error::{BpfError, EINTR, ENOSPC};

/// How far apart runs of live frames should begin, in nanoseconds.
///
/// Each run has a pool of pages with a number of its own, of which there are 65,533 for all pools of the machine
/// (`MEM_ID_MAX`, net/core/xdp.c). A pool with frames still under way keeps its number for a second: at this distance
/// one caller leaves two thirds of them to others.
pub const LIVE_RUN_GAP_NS: u64 = 50_000;

/// Whether a run only came to its end too early: a signal came, or the machine had no number for the run's pages.
/// What was not made or given back then can be later.
pub(crate) fn ended_early(error: &BpfError) -> bool {
    matches!(error.os_error(), Some(EINTR | ENOSPC))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::error::{EINVAL, EPERM};

    #[test]
    fn signals_and_missing_numbers_end_a_run_early_and_all_else_fails_it() {
        for (errno, is_early) in [(EINTR, true), (ENOSPC, true), (EINVAL, false), (EPERM, false)] {
            let source = io::Error::from_raw_os_error(errno).into();
            assert_eq!(ended_early(&BpfError::Run { program: "send", source }), is_early, "{errno}");
        }
    }
}
