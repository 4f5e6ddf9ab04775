//! TCP streams of equal messages, for the lab: a packet is then a message.

use std::time::Duration;

use port::{FileChoice, PortError, TcpRx, TcpRxOptions, TcpSend, TcpTx, TcpTxOptions};
use serde::{Deserialize, Serialize};
use sys::clock;

use crate::{
    emit::{Emit, Emitted},
    engine::{
        RxEngine, RxFacts, RxLayer, RxOptions, RxSpec, RxWorkers, TxEngine, TxFacts, TxOptions, TxSpec,
    },
    error::EngineError,
    plan::{RxTraffic, TxTraffic},
    publish::{RxPublished, RxSnapshot},
    received::RxResult,
    receiver::{Receiver, RxContext},
    registry::{Engine, EngineSide, Switch},
    sender::Sender,
    worker::{Meter, Placement, WorkerContext},
};

pub(super) const ENGINE: Engine = Engine {
    name: "tcp",
    tx: Some(EngineSide {
        about: "TCP streams of equal messages, in the lab",
        switches: &[
            Switch { name: "file", about: "read messages from a file, then write them" },
            Switch { name: "sendfile", about: "send messages from a file (sendfile)" },
            Switch { name: "splice", about: "send messages from a file through a pipe (splice)" },
            Switch { name: "zerocopy", about: "send messages without a copy (MSG_ZEROCOPY)" },
        ],
        is_exclusive: true,
        ladder: &[],
        ladder_of_threads: &[],
        with_switches: |on| {
            let send =
                SWITCHES.iter().find(|(name, _)| on.contains(name)).map_or(TcpSend::Copy, |(_, send)| *send);
            TxSpec::of(TcpStreamSend { send, ..TcpStreamSend::default() })
        },
        with_settings: TxSpec::saved::<TcpStreamSend>,
    }),
    rx: Some(EngineSide {
        about: "TCP streams of equal messages, in the lab",
        switches: &[Switch {
            name: "trunc",
            about: "discard bytes of the stream without copying them (MSG_TRUNC)",
        }],
        is_exclusive: false,
        ladder: &["tcp"],
        ladder_of_threads: &["tcp"],
        with_switches: |on| {
            RxSpec::of(TcpStreamReceive { truncate: on.contains(&"trunc"), ..TcpStreamReceive::default() })
        },
        with_settings: RxSpec::saved::<TcpStreamReceive>,
    }),
    // Sockets: the same conditions as for UDP.
    probe: |_| Vec::new(),
};

const SWITCHES: [(&str, TcpSend); 4] = [
    ("file", TcpSend::ReadWrite),
    ("sendfile", TcpSend::SendFile),
    ("splice", TcpSend::Splice),
    ("zerocopy", TcpSend::ZeroCopy),
];

/// Bytes per message of a stream, by default.
const MESSAGE_BYTES: u32 = 65_536;

/// Settings of sending streams.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
struct TcpStreamSend {
    /// How messages are passed to the kernel.
    send: TcpSend,
    /// The file that messages come from.
    #[serde(skip_serializing_if = "FileChoice::is_default")]
    source: FileChoice,
    /// Bytes per message.
    message_bytes: u32,
    /// `SO_SNDBUF` in bytes, `None` for the system's own tuning.
    send_buffer_bytes: Option<usize>,
}

/// Settings of receivers of streams.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
struct TcpStreamReceive {
    /// Discard bytes of the stream without copying them (`MSG_TRUNC`).
    truncate: bool,
    /// Bytes per message.
    message_bytes: u32,
    /// `SO_RCVBUF` in bytes, `None` for the system's own tuning.
    receive_buffer_bytes: Option<usize>,
}

impl Default for TcpStreamSend {
    fn default() -> Self {
        Self {
            send: TcpSend::Copy,
            source: FileChoice::default(),
            message_bytes: MESSAGE_BYTES,
            send_buffer_bytes: None,
        }
    }
}

impl Default for TcpStreamReceive {
    fn default() -> Self {
        Self { truncate: false, message_bytes: MESSAGE_BYTES, receive_buffer_bytes: None }
    }
}

impl TxEngine for TcpStreamSend {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        SWITCHES.iter().filter(|(_, send)| *send == self.send).map(|(name, _)| *name).collect()
    }

    fn configured(&self, options: &TxOptions) -> Self {
        Self {
            message_bytes: options.message_bytes.unwrap_or(self.message_bytes),
            send_buffer_bytes: options.send_buffer_bytes.or(self.send_buffer_bytes),
            source: options.source.clone().unwrap_or_else(|| self.source.clone()),
            ..*self
        }
    }

    fn options(&self) -> &'static [&'static str] {
        &["send-size", "send-buffer", "file", "file-cache"]
    }

    fn facts(&self) -> TxFacts {
        TxFacts { message_bytes: Some(self.message_bytes), ..TxFacts::default() }
    }

    fn open(&self, plan: &TxTraffic, placement: &Placement) -> Result<Sender, EngineError> {
        let streams = placement.inside(|| {
            let open = |worker: &crate::plan::TxWorkerPlan| {
                let options = TcpTxOptions {
                    peer: worker.target,
                    local: worker.local,
                    send: self.send,
                    source: self.source.clone(),
                    message_bytes: self.message_bytes as usize,
                    send_buffer_bytes: self.send_buffer_bytes,
                };
                Ok(Messages::new(TcpTx::open(&options)?, self.message_bytes))
            };
            plan.workers.iter().map(open).collect::<Result<Vec<_>, EngineError>>()
        })?;
        Sender::over(plan, streams, placement)
    }
}

/// A stream of messages of one size.
pub(crate) struct Messages {
    port: TcpTx,
    message_bytes: u64,
}

impl Messages {
    pub(crate) fn new(port: TcpTx, message_bytes: u32) -> Self {
        Self { port, message_bytes: message_bytes.into() }
    }
}

impl Emit for Messages {
    fn batch_size(&self) -> usize {
        // One clock read per group of small messages, and no long wait for large ones.
        if self.message_bytes < 4096 { 64 } else { 4 }
    }

    fn emit(&mut self, messages: usize, _: u64) -> Result<Emitted, PortError> {
        let sent = self.port.send(messages)?;
        Ok(Emitted { sent, payload_bytes: sent.filled as u64 * self.message_bytes })
    }
}

impl RxEngine for TcpStreamReceive {
    const NAME: &'static str = ENGINE.name;

    fn switches(&self) -> Vec<&'static str> {
        self.truncate.then_some("trunc").into_iter().collect()
    }

    fn configured(&self, options: &RxOptions) -> Self {
        Self {
            message_bytes: options.message_bytes.unwrap_or(self.message_bytes),
            receive_buffer_bytes: options.receive_buffer_bytes.or(self.receive_buffer_bytes),
            ..*self
        }
    }

    fn options(&self) -> &'static [&'static str] {
        &["send-size", "receive-buffer"]
    }

    fn facts(&self) -> RxFacts {
        RxFacts {
            reads: RxLayer::Stream,
            needs_interface: false,
            workers: RxWorkers::Asked,
            joins_datagrams: false,
            brings_ring: false,
            chooses_port: true,
            reflects: false,
            work_at_most_ns: 0,
            stamps: &[],
            own_loss: None,
        }
    }

    fn open(&self, plan: &RxTraffic, context: &RxContext<'_>) -> Result<Receiver, EngineError> {
        let ports = context.placement.inside(|| {
            let first = TcpRx::open(&TcpRxOptions {
                local: plan.local,
                truncate: self.truncate,
                message_bytes: self.message_bytes as usize,
                receive_buffer_bytes: self.receive_buffer_bytes,
            })?;
            let mut ports = vec![first];
            for _ in 1..plan.workers {
                ports.push(ports[0].share()?);
            }
            Ok(ports)
        })?;
        let local = ports[0].local_address()?;
        Receiver::of_workers(ports, (context, local), false, |mut port, context, output| {
            take_streams(&mut port, context, &output.published)
        })
    }
}

/// A receiver without data wakes up this often to check for a stop.
const STREAM_WAIT: Duration = Duration::from_millis(20);

/// Reads streams until it must stop and nothing is left to read.
pub(crate) fn take_streams(port: &mut TcpRx, context: &WorkerContext, published: &RxPublished) -> RxResult {
    let mut meter = Meter::start();
    let mut total = RxSnapshot::default();
    let (mut first_ns, mut last_ns) = (None, None);
    let error = loop {
        let is_over = context.should_stop();
        let wait = if is_over { Duration::ZERO } else { STREAM_WAIT };
        match port.receive(wait) {
            Ok(0) if is_over => break None,
            Ok(0) => continue,
            Ok(_) => {}
            Err(error) => break Some(error.into()),
        }
        let now = clock::monotonic_ns();
        first_ns.get_or_insert(now);
        last_ns = Some(now);
        total.packets = port.received_messages();
        total.payload_bytes = port.received_bytes();
        published.store(&total);
    };
    let (losses, statistics) = (Vec::new(), Vec::new());
    RxResult { tally: total, first_ns, last_ns, losses, ring: None, cost: meter.read(), statistics, error }
}
