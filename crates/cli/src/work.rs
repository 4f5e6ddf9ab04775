//! `--work`: what a packet costs the application that a receiver stands for.

use std::time::Duration;

use engine::{PROGRAM_WORK_AT_MOST_NS, RxEngine};

use crate::failure::{Failure, Status};

/// Receivers that are asked to end look at what has arrived, and that shall not take minutes.
const AT_MOST: Duration = Duration::from_millis(1);

/// Nanoseconds a packet for receivers of these engines.
pub(crate) fn work_ns<'e>(
    asked: Option<Duration>,
    engines: impl IntoIterator<Item = &'e RxEngine>,
) -> Result<u32, Failure> {
    let Some(work) = asked else { return Ok(0) };
    if work > AT_MOST {
        return Err(Failure::new(Status::Usage, "--work is 1ms a packet at most"));
    }
    let ns = work.as_nanos() as u32;
    for engine in engines {
        match engine {
            RxEngine::Tcp(_) => {
                return Err(Failure::new(Status::Usage, "--work is for packets, and tcp has streams"));
            }
            RxEngine::Xdp(_) if ns > PROGRAM_WORK_AT_MOST_NS => {
                return Err(Failure::new(Status::Usage, "a program in the kernel works for 10us at most")
                    .hint("try --work 10us, or another engine than xdp"));
            }
            _ => {}
        }
    }
    Ok(ns)
}
