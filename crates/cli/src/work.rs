//! `--work`: what a packet costs the application that a receiver stands for.

use std::time::Duration;

use traffic::RxSpec;

use crate::failure::{Failure, Status};

/// A receiver that stops reads what has arrived first, which must not take minutes.
const AT_MOST: Duration = Duration::from_millis(1);

/// Nanoseconds per packet for receivers of these engines.
pub(crate) fn work_ns<'e>(
    asked: Option<Duration>,
    engines: impl IntoIterator<Item = &'e RxSpec>,
) -> Result<u32, Failure> {
    let Some(work) = asked else { return Ok(0) };
    if work > AT_MOST {
        return Err(Failure::new(Status::Usage, "--work is 1ms a packet at most"));
    }
    let ns = work.as_nanos() as u32;
    for engine in engines {
        let most = engine.facts().work_at_most_ns;
        if most == 0 {
            let name = engine.name();
            return Err(Failure::new(
                Status::Usage,
                format!("--work is for packets, and {name} has streams"),
            ));
        }
        if u64::from(ns) > most {
            let most = most / 1000;
            return Err(Failure::new(
                Status::Usage,
                format!("a program in the kernel works for {most}us at most"),
            )
            .hint(format!("try --work {most}us, or another engine than {}", engine.name())));
        }
    }
    Ok(ns)
}
