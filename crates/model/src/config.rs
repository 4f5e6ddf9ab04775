//! The configuration of a simulation as plain data: checked as a whole, changed by name.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::parameter::{ConfigError, Parameter, Problems};
use crate::stages::{
    app::{self, App},
    buffers::{self, Buffers},
    bus::{self, Bus},
    memory::{self, Memory},
    moderation::{self, Moderation},
    packet_buffer::{self, PacketBuffer},
    poll::{self, Poll},
    ring::{self, Ring},
    rss::{self, Rss},
    socket::{self, Socket},
    stack::{self, Stack},
    traffic::{self, Traffic},
};

/// Everything that a simulation needs: one section per stage, in the order in which a frame meets them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Duration and seed.
    pub run: RunLength,
    /// What arrives.
    pub traffic: Traffic,
    /// Queues and the hash that chooses among them.
    pub rss: Rss,
    /// The card's memory.
    pub packet_buffer: PacketBuffer,
    /// The bus between card and memory.
    pub bus: Bus,
    /// Main memory, which card and CPUs share.
    pub memory: Memory,
    /// The descriptor rings.
    pub ring: Ring,
    /// When a queue interrupts.
    pub moderation: Moderation,
    /// The driver's work.
    pub poll: Poll,
    /// Where buffers come from.
    pub buffers: Buffers,
    /// The path after the driver.
    pub stack: Stack,
    /// Where frames wait for the program.
    pub socket: Socket,
    /// The reading program.
    pub app: App,
}

/// How long a simulation runs, and what it keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunLength {
    /// Simulated time during which frames arrive, in microseconds.
    pub duration_us: f64,
    /// Time at the start that rates and means exclude, in microseconds.
    pub warmup_us: f64,
    /// Seed of the random generator.
    pub seed: u64,
    /// Samples of the time series.
    pub samples: u32,
    /// Bus transactions are recorded for this long from the start, in microseconds.
    pub trace_us: f64,
}

impl Default for RunLength {
    fn default() -> Self {
        Self { duration_us: 100_000.0, warmup_us: 10_000.0, seed: 1, samples: 100, trace_us: 0.0 }
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter::new("run.duration_us", "us", "simulated time during which frames arrive").short("duration-us"),
    Parameter::new("run.warmup_us", "us", "time at the start that rates and means exclude"),
    Parameter::new("run.seed", "", "seed of the random generator").short("seed"),
    Parameter::new("run.samples", "samples", "samples of the time series"),
    Parameter::new("run.trace_us", "us", "bus transactions are recorded for this long from the start"),
];

impl Parameter {
    /// The value in a configuration.
    pub fn value(&self, config: &Config) -> Value {
        let (section, field) = self.name.split_once('.').unwrap_or((self.name, ""));
        serde_json::to_value(config).map(|json| json[section][field].clone()).unwrap_or(Value::Null)
    }
}

/// Every parameter, in the order a frame meets the stages.
pub fn parameters() -> impl Iterator<Item = &'static Parameter> {
    [
        PARAMETERS,
        traffic::PARAMETERS,
        rss::PARAMETERS,
        packet_buffer::PARAMETERS,
        bus::PARAMETERS,
        memory::PARAMETERS,
        ring::PARAMETERS,
        moderation::PARAMETERS,
        poll::PARAMETERS,
        buffers::PARAMETERS,
        stack::PARAMETERS,
        socket::PARAMETERS,
        app::PARAMETERS,
    ]
    .into_iter()
    .flatten()
}

impl Config {
    /// Checks everything.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with every problem, not only the first.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut problems = Problems::default();
        self.run.check(&mut problems);
        self.traffic.check(&mut problems);
        self.rss.check(&mut problems);
        self.packet_buffer.check(self.traffic.largest_frame(), &mut problems);
        self.bus.check(&mut problems);
        self.memory.check(&mut problems);
        self.ring.check(&mut problems);
        self.moderation.check(&mut problems);
        self.poll.check(&mut problems);
        self.buffers.check(self.ring.descriptors, &mut problems);
        self.stack.check(&mut problems);
        self.socket.check(&mut problems);
        self.app.check(&mut problems);
        self.check_together(&mut problems);
        problems.into_result()
    }

    /// Values that each stage accepts, but not in this combination.
    fn check_together(&self, problems: &mut Problems) {
        use crate::stages::{buffers::BufferPolicy, bus::BusKind, ring::RingKind, stack::Path};
        let af_xdp = self.stack.path == Path::AfXdp;
        if self.ring.kind == RingKind::Backlog && self.bus.kind != BusKind::None {
            problems.add("ring.kind", "a backlog has no card behind a bus: set bus.kind to none");
        }
        if self.ring.kind == RingKind::Backlog && !self.ring.drop_when_empty {
            problems
                .add("ring.drop_when_empty", "a full backlog drops: set it to true with ring.kind backlog");
        }
        if self.buffers.policy == BufferPolicy::FillRing && !af_xdp {
            problems.add(
                "buffers.policy",
                "only a program behind stack.path af-xdp returns buffers by fill ring",
            );
        }
        if af_xdp && self.app.threads == 0 {
            problems.add("app.threads", "stack.path af-xdp needs a thread that reads");
        }
        let (after, tail, ring) = (self.poll.refill_after, self.ring.tail_batch, self.ring.descriptors);
        if after > 0 && after.saturating_add(tail) > ring {
            problems.add(
                "poll.refill_after",
                format!(
                    "refilling after {after} frames and moving the tail by {tail} needs a ring of at least {}, \
                     not {ring}: the card would run dry before the driver refills",
                    u64::from(after) + u64::from(tail)
                ),
            );
        }
        if u64::from(self.traffic.ports) * u64::from(self.rss.queues) > 4000 {
            problems.add("rss.queues", "more than 4000 queues over all ports");
        }
    }

    /// Sets a parameter by its dotted or short name from text: `ring=64`,
    /// `buffers.policy=recycle`, `rate=null`.
    ///
    /// # Errors
    /// [`ConfigError::UnknownParameter`] or [`ConfigError::WrongValue`].
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let parameter = find_parameter(name)?;
        let path: Vec<&str> = parameter.name.split('.').collect();
        *self = set_in(self, &path, &parameter.in_its_unit(text))?;
        Ok(())
    }
}

/// The same value with one field changed, from text.
pub(crate) fn set_in<T: Serialize + DeserializeOwned>(
    whole: &T,
    path: &[&str],
    text: &str,
) -> Result<T, ConfigError> {
    let wrong = |error: serde_json::Error| ConfigError::WrongValue {
        name: path.join("."),
        value: text.into(),
        reason: reason(&error.to_string()),
    };
    let mut json = serde_json::to_value(whole).map_err(wrong)?;
    let slot = path.iter().fold(&mut json, |value, field| &mut value[*field]);
    // numbers and null are parsed as JSON; words stay text
    *slot = match serde_json::from_str(text) {
        Ok(value) if !slot.is_string() => value,
        _ => Value::String(text.into()),
    };
    serde_json::from_value(json).map_err(wrong)
}

/// Serde describes wrong values in terms of Rust.
fn reason(said: &str) -> String {
    match said.rsplit_once("expected ") {
        Some((_, kind)) if kind.starts_with(['u', 'i']) && kind[1..].parse::<u8>().is_ok() => {
            "not a whole number".into()
        }
        Some((_, "f64")) => "not a number".into(),
        Some((_, "a boolean")) => "must be true or false".into(),
        _ => said.into(),
    }
}

impl RunLength {
    fn check(&self, problems: &mut Problems) {
        problems.duration_us("run.duration_us", self.duration_us);
        problems.duration_us("run.warmup_us", self.warmup_us);
        problems.duration_us("run.trace_us", self.trace_us);
        problems.range("run.samples", self.samples, 1, 100_000);
        if self.warmup_us >= self.duration_us {
            let (warmup, duration) = (self.warmup_us, self.duration_us);
            problems
                .add("run.warmup_us", format!("a warm-up of {warmup} us leaves no time of {duration} us"));
        }
    }
}

/// The parameter with this dotted or short name.
pub(crate) fn find_parameter(name: &str) -> Result<&'static Parameter, ConfigError> {
    let written = name.trim().trim_start_matches("--");
    parameters()
        .find(|p| p.name == written || (!p.short.is_empty() && p.short == written.replace('_', "-")))
        .ok_or_else(|| {
            let similar = parameters()
                .flat_map(|p| [p.name, p.short])
                .filter(|known| known.len() > 2 && (known.contains(written) || written.contains(known)))
                .min_by_key(|known| known.len());
            ConfigError::UnknownParameter { name: name.into(), similar }
        })
}

#[cfg(test)]
mod tests;
