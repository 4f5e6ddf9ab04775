//! `--work`: the time per packet that the simulated application of a receiver takes.

use std::time::Duration;

use traffic::RxSpec;

use crate::failure::{Failure, Status};

/// A stopping receiver first reads what has arrived, which must not take minutes.
const AT_MOST: Duration = Duration::from_millis(1);

/// Nanoseconds per packet for receivers with these engines.
pub(crate) fn work_ns<'e>(
    asked: Option<Duration>,
    engines: impl IntoIterator<Item = &'e RxSpec>,
) -> Result<u32, Failure> {
    let Some(work) = asked else { return Ok(0) };
    if work > AT_MOST {
        return Err(Failure::new(Status::Usage, "--work must be at most 1ms per packet"));
    }
    let ns = work.as_nanos() as u32;
    for engine in engines {
        let most = engine.facts().work_at_most_ns;
        if most == 0 {
            let name = engine.name();
            return Err(Failure::new(
                Status::Usage,
                format!("--work works per packet, but {name} receives a stream"),
            ));
        }
        if u64::from(ns) > most {
            let (most, name) = (most / 1000, engine.name());
            return Err(Failure::new(
                Status::Usage,
                format!("--work must be at most {most}us for {name}, which runs it in the kernel"),
            )
            .hint(format!("try --work {most}us, or an engine other than {name}")));
        }
    }
    Ok(ns)
}
