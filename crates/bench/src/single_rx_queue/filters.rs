//! Ways to drop a flood, each undone when its value is dropped. With a queue of choice, the card leads the flood there
//! meanwhile, whatever drops it.

use std::{
    collections::BTreeMap,
    error::Error,
    io::Write,
    net::{Ipv4Addr, SocketAddrV4},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bpf::{DropFlood, Mode};
use divert::{BEAT, Card, Diversion, DivertPlan, Fate, FilterAt, Rule, RuleVerdict, Steer, Steered};
use lab::{Lab, Side};
use ledger::Place;
use measure::LedgerLine;

use super::{
    diverted::DivertedQueues,
    error::SingleRxQueueError,
    load::FloodFilter,
    plan::{FLOOD_STREAM, PORT, SingleRxQueuePlan, VALID_STREAM},
};

/// A filter at work.
pub(super) struct Filter {
    at: At,
    /// The card's part; a diversion has its own.
    _steered: Option<Steered>,
}

/// What drops the flood.
enum At {
    Service,
    OnSocket,
    Nft(NftTable),
    XdpDrop(Box<DropFlood>),
    Divert(FloodFilter, Box<Diversion>, Instant),
}

impl Filter {
    /// Starts it; the error says why it is unavailable.
    pub(super) fn start(which: FloodFilter, plan: &SingleRxQueuePlan, lab: &Lab) -> Result<Self, String> {
        let mut steered = match plan.queue {
            Some(_) if !which.is_diversion() => steer(plan, lab)?,
            _ => None,
        };
        let at = At::start(which, plan, lab)?;
        if let Some(steered) = &mut steered {
            // As a diversion does: cards may lose their table when a program is attached.
            let repaired = lab.rx().run(|| steered.repair()).map_err(|error| words(&error))?;
            repaired.map_err(|error| words(&error))?;
        }
        Ok(Self { at, _steered: steered })
    }

    pub(super) fn which(&self) -> FloodFilter {
        match &self.at {
            At::Service => FloodFilter::Service,
            At::OnSocket => FloodFilter::SocketFilter,
            At::Nft(_) => FloodFilter::Nft,
            At::XdpDrop(_) => FloodFilter::XdpDrop,
            At::Divert(which, ..) => *which,
        }
    }

    /// Waits, and keeps a diversion alive meanwhile.
    pub(super) fn beat_for(&mut self, time: Duration) -> Result<(), SingleRxQueueError> {
        let until = Instant::now() + time;
        loop {
            if let At::Divert(_, diversion, last) = &mut self.at
                && last.elapsed() >= BEAT
            {
                diversion.beat()?;
                *last = Instant::now();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(BEAT / 10));
        }
    }

    /// Packets of the flood that it has dropped so far; `served` of them came to the service.
    pub(super) fn filtered(&self, lab: &Lab, served: u64) -> Result<u64, SingleRxQueueError> {
        let counter = |source: Box<dyn Error + Send + Sync>| SingleRxQueueError::Counter {
            filter: self.which(),
            source,
        };
        match &self.at {
            At::Service => Ok(served),
            At::OnSocket => {
                // A filter's refusals are errors of UDP; so is a full buffer, which is counted again by name.
                let counters = lab.rx().net_counters()?;
                let value = |name| counters.value(name).unwrap_or(0);
                Ok(value("UdpInErrors") - value("UdpRcvbufErrors"))
            }
            At::Nft(table) => table.count(lab.rx(), "flood").map_err(|error| counter(error.into())),
            At::XdpDrop(program) => program.dropped().map_err(|error| counter(error.into())),
            At::Divert(_, diversion, _) => Ok(diversion.status()?.ledger.of(Fate::Dropped)),
        }
    }

    /// Packets to the flooded port from elsewhere that have reached it so far; `None` if it does not count them.
    pub(super) fn valid(&self, lab: &Lab) -> Result<Option<u64>, SingleRxQueueError> {
        let counter = |source: Box<dyn Error + Send + Sync>| SingleRxQueueError::Counter {
            filter: self.which(),
            source,
        };
        match &self.at {
            At::Service | At::OnSocket => Ok(None),
            At::Nft(table) => table.count(lab.rx(), "valid").map(Some).map_err(|error| counter(error.into())),
            At::XdpDrop(program) => program.passed().map(Some).map_err(|error| counter(error.into())),
            At::Divert(_, diversion, _) => {
                let rule = diversion.status()?.rules.into_iter().nth(VALID_RULE);
                Ok(rule.map(|rule| rule.handed_over_packets.unwrap_or(rule.packets)))
            }
        }
    }

    /// Whether a program in XDP decides about packets.
    pub(super) fn is_in_xdp(&self) -> bool {
        matches!(self.at, At::XdpDrop(_) | At::Divert(..))
    }

    /// The places under which other counters report the packets that the filter dropped or lost.
    pub(super) fn seen_as(&self) -> &'static [Place] {
        match &self.at {
            At::Service | At::Nft(_) => &[],
            At::OnSocket => &[Place::SocketFilter],
            At::XdpDrop(_) => &[Place::XdpDrop],
            At::Divert(..) => &[Place::XdpDrop, Place::XdpRedirect],
        }
    }

    /// The diversion; `None` if the filter is not one.
    pub(super) fn diverted(&self) -> Result<Option<DivertedQueues>, SingleRxQueueError> {
        let At::Divert(_, diversion, _) = &self.at else { return Ok(None) };
        let status = diversion.status()?;
        let steering = status.steering.unwrap_or_default();
        Ok(Some(DivertedQueues {
            queues: status.queues.iter().map(|queue| queue.queue).collect(),
            copy_mode: status.queues.iter().find_map(|queue| queue.copy_mode()).map(str::to_owned),
            other_queues_ns: status.other_queues_ns,
            card_rules: steering.rules,
            selected: steering.program.into_iter().map(|left| left.packets).collect(),
        }))
    }

    /// The ledger's lines of the packets that it `filtered`, at this place, and of those that were lost in it.
    pub(super) fn lines(&self, place: &str, filtered: u64) -> Result<Vec<LedgerLine>, SingleRxQueueError> {
        let source = match &self.at {
            At::Service => return Ok(Vec::new()),
            At::OnSocket => "Udp InErrors − RcvbufErrors: the socket's filter",
            At::Nft(_) => "nft counter flood",
            At::XdpDrop(_) => "the XDP program's count",
            At::Divert(_, diversion, _) => {
                let ledger = diversion.status()?.ledger;
                let of = |fate: Fate| {
                    ledger.lines.iter().filter(move |entry| entry.fate == fate).map(|entry| &entry.line)
                };
                let sources: Vec<String> =
                    of(Fate::Dropped).map(|line| format!("diversion: {}", line.place)).collect();
                let dropped = LedgerLine::new(place, filtered, &sources.join(" + "));
                let lost = of(Fate::Lost).cloned();
                return Ok(std::iter::once(dropped).chain(lost).collect());
            }
        };
        Ok(vec![LedgerLine::new(place, filtered, source)])
    }

    /// Packets of both kinds that were lost in it, by place, as far as it counts them.
    pub(super) fn lost(&self) -> Result<BTreeMap<String, u64>, SingleRxQueueError> {
        let At::Divert(_, diversion, _) = &self.at else { return Ok(BTreeMap::new()) };
        let lines = diversion.status()?.ledger.lines.into_iter();
        Ok(lines
            .filter(|it| it.fate == Fate::Lost)
            .map(|it| (it.line.place.to_string(), it.line.packets))
            .collect())
    }
}

impl At {
    fn start(which: FloodFilter, plan: &SingleRxQueuePlan, lab: &Lab) -> Result<Self, String> {
        let flooder = lab.tx().ipv4()[1];
        let side = lab.rx();
        match which {
            FloodFilter::Service => Ok(Self::Service),
            FloodFilter::SocketFilter => Ok(Self::OnSocket),
            FloodFilter::Nft => NftTable::add(side, flooder).map(Self::Nft),
            FloodFilter::XdpDrop => {
                let flood = SocketAddrV4::new(flooder, PORT);
                let attach = || DropFlood::attach(side.index(), Mode::Native, flood);
                let attached = side.run(attach).map_err(|error| words(&error))?;
                attached.map(Box::new).map(Self::XdpDrop).map_err(|error| words(&error))
            }
            FloodFilter::DivertXdp | FloodFilter::DivertUser => {
                let plan = divert_plan(which, plan, lab)?;
                let started = side.run(|| Diversion::start(&plan)).map_err(|error| words(&error))?;
                let diversion = started.map_err(|error| words(&error))?;
                Ok(Self::Divert(which, Box::new(diversion), Instant::now()))
            }
        }
    }
}

/// The rule of a diversion that matches valid packets; the first one matches the flood.
const VALID_RULE: usize = 1;

/// An error with its causes.
fn words(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", words(cause)),
        None => error.to_string(),
    }
}

/// The card's part of a diversion, without one.
fn steer(plan: &SingleRxQueuePlan, lab: &Lab) -> Result<Option<Steered>, String> {
    let plan = divert_plan(FloodFilter::DivertXdp, plan, lab)?;
    let interface = &plan.interface;
    let steered = plan.steering.as_ref().map(|steering| lab.rx().run(|| steering.apply(interface)));
    let steered = steered.transpose().map_err(|error| words(&error))?;
    steered.transpose().map_err(|error| words(&error))
}

fn divert_plan(which: FloodFilter, plan: &SingleRxQueuePlan, lab: &Lab) -> Result<DivertPlan, String> {
    let side = lab.rx();
    let queues = match plan.queue.or(plan.flooded_queue()) {
        Some(queue) => vec![queue],
        None => (0..side.rx_queues().map_err(|error| error.to_string())?).collect(),
    };
    let place = if which == FloodFilter::DivertUser { FilterAt::User } else { FilterAt::Xdp };
    let (flood, valid) = match plan.queue {
        // One flow each, which a card without rules can steer, too.
        Some(_) => (one_flow(lab, FLOOD_STREAM), one_flow(lab, VALID_STREAM)),
        None => {
            let valid = format!("udp and dst port {PORT}");
            (format!("{valid} and src host {}", lab.tx().ipv4()[1]), valid)
        }
    };
    let rule = |verdict, text: &str| -> Result<Rule, String> {
        Ok(Rule::new(verdict, text.parse().map_err(|error| words(&error))?))
    };
    let cpus = |queues: usize| plan.filter_cpu().map_or_else(Vec::new, |cpu| vec![cpu; queues]);
    let asked = DivertPlan {
        cpus: cpus(queues.len()),
        rules: vec![rule(RuleVerdict::Drop, &flood)?, rule(RuleVerdict::Pass, &valid)?],
        ..DivertPlan::bare(side.interface(), queues, place)
    };
    if plan.queue.is_none() {
        return Ok(asked);
    }
    let interface = asked.interface.clone();
    let card = side.run(|| Card::read(&interface)).map_err(|error| words(&error))?;
    let card = card.map_err(|error| words(&error))?;
    Ok(asked.steered(&card, Steer::ToQueues, plan.state.clone()))
}

/// An expression of the packets of one sender.
fn one_flow(lab: &Lab, stream: u16) -> String {
    let [src, dst] = SingleRxQueuePlan::flow(lab, stream);
    format!(
        "ip and udp and src host {} and src port {} and dst host {} and dst port {}",
        src.ip(),
        src.port(),
        dst.ip(),
        dst.port()
    )
}

/// A table of nftables in the receiving namespace, which disappears with the namespace.
pub(super) struct NftTable {
    namespace: sys::netns::NetNs,
}

impl NftTable {
    fn add(side: &Side, flooder: Ipv4Addr) -> Result<Self, String> {
        let rules = format!(
            "table netdev linerate {{
                counter flood {{ }}
                counter valid {{ }}
                chain ingress {{
                    type filter hook ingress device \"{}\" priority 0; policy accept;
                    ip saddr {flooder} udp dport {PORT} counter name flood drop
                    udp dport {PORT} counter name valid
                }}
            }}",
            side.interface()
        );
        let namespace = side.namespace().try_clone().map_err(|error| error.to_string())?;
        side.run(|| nft(&["-f", "-"], &rules)).map_err(|error| error.to_string())??;
        Ok(Self { namespace })
    }

    fn count(&self, side: &Side, counter: &str) -> Result<u64, String> {
        let list = || nft(&["list", "counter", "netdev", "linerate", counter], "");
        let text = side.run(list).map_err(|error| error.to_string())??;
        let words: Vec<&str> = text.split_whitespace().collect();
        let after = words.iter().position(|word| *word == "packets").and_then(|at| words.get(at + 1));
        after
            .and_then(|packets| packets.parse().ok())
            .ok_or_else(|| format!("unexpected output of nft: {text:?}"))
    }
}

impl Drop for NftTable {
    fn drop(&mut self) {
        // The lab's namespace ends with the run in any case.
        let _gone_either_way = self.namespace.run(|| nft(&["delete", "table", "netdev", "linerate"], ""));
    }
}

/// Runs `nft` in this thread's namespace; its output, or its error message.
fn nft(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start nft: {error}"))?;
    let fed = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|error| format!("cannot wait for nft: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match fed {
        Some(Err(error)) if output.status.success() => Err(format!("cannot write to nft: {error}")),
        _ if output.status.success() => Ok(text(&output.stdout)),
        _ => Err(format!("nft failed: {}", text(&output.stderr))),
    }
}
