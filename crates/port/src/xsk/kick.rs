//! Calls to the kernel until it has taken the packets of a TX ring that it copies.

use std::{io, mem};

use crate::PortError;

/// How many packets the kernel copies in one call (`TX_BATCH_SIZE` and `max_tx_budget` of net/xdp).
const TAKEN_PER_CALL: u32 = 32;

/// What a call to the kernel came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kick {
    /// It did all that it can do now.
    Done,
    /// It asks to be called again.
    Again,
}

impl Kick {
    /// What the kernel cannot do now it does at the next call; every other error is the call's.
    pub(super) fn of(called: io::Result<()>) -> io::Result<Self> {
        let Err(error) = called else { return Ok(Self::Done) };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(Self::Again),
            Some(libc::EBUSY | libc::ENOBUFS) => Ok(Self::Done),
            _ => Err(error),
        }
    }
}

/// Calls `kick` while packets wait and calls help; returns how many of `waiting` packets are left. `kick` calls the kernel
/// once, and says what came of it and how many packets are in the ring.
///
/// Kernels before Linux 6.17 move the ring's consumer index only after the last packet that they saw in the ring, so that
/// the calls up to there seem to take nothing. As many calls are made as would take all of them.
pub(super) fn push_through(
    mut waiting: u32,
    mut kick: impl FnMut() -> Result<(Kick, u32), PortError>,
) -> Result<u32, PortError> {
    let mut in_vain = 0;
    while waiting > 0 {
        let (kicked, left) = kick()?;
        let before = mem::replace(&mut waiting, left);
        if waiting < before {
            in_vain = 0;
            continue;
        }
        in_vain += 1;
        if kicked == Kick::Done || in_vain > waiting.div_ceil(TAKEN_PER_CALL) {
            break;
        }
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Pushes a batch through a kernel that takes 32 packets a call, at most `budget` in all, and shows each call's or
    /// only the whole batch's; returns what it took, what is left to our knowledge, and the number of calls.
    fn pushed(batch: u32, budget: u32, shows_each_call: bool) -> (u32, u32, u32) {
        let (taken, calls) = (Cell::new(0), Cell::new(0));
        let kick = || {
            calls.set(calls.get() + 1);
            taken.set((taken.get() + TAKEN_PER_CALL).min(batch).min(budget));
            let is_done = taken.get() == batch;
            let left = if shows_each_call || is_done { batch - taken.get() } else { batch };
            Ok((if is_done { Kick::Done } else { Kick::Again }, left))
        };
        let left = push_through(batch, kick).unwrap();
        (taken.get(), left, calls.get())
    }

    #[test]
    fn a_batch_goes_through_whole_also_where_the_kernel_shows_it_at_its_end_only() {
        for shows_each_call in [false, true] {
            for batch in [1_u32, 32, 33, 256, 2048] {
                let calls = batch.div_ceil(TAKEN_PER_CALL);
                assert_eq!(pushed(batch, batch, shows_each_call), (batch, 0, calls), "{shows_each_call}");
            }
        }
        assert_eq!(pushed(0, 0, true), (0, 0, 0));
    }

    #[test]
    fn a_kernel_that_takes_nothing_more_is_left_alone() {
        assert_eq!(pushed(256, 100, true), (100, 156, 4 + 6));
        assert_eq!(pushed(256, 100, false), (100, 256, 9));
        let done_at_once = push_through(256, || Ok((Kick::Done, 256))).unwrap();
        assert_eq!(done_at_once, 256);
    }
}
