//! A row's two ends: on one side the valid packets, the flood, a flow beside and the transfer's writer; on the other the filter,
//! the services, and the transfer's reader. The ledger covers the valid packets, the flood and the flow beside together.
//!
//! sent = received by the services + dropped by the filter + lost on the way + unexplained. The filter's own counters report
//! its drops; all other places are a lab's. Packets of the transfer are not in it. On a veth none is lost, as fewer are in
//! flight than a ring has slots; a card's counters do not distinguish them, so that their drops become a negative
//! `unexplained`.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use lab::Lab;
use ledger::Received;
use measure::{Cost, Endpoint, Ledger, LedgerLine, LossPlace, QueueUse};
use serde_json::json;
use traffic::{Sender, TxSnapshot};
use trial::{
    CounterWatch, Ends, Growth, InFlight, Locations, Look, Outcome, RxOutcome, TrialSettings, TxOutcome,
    tx_endpoint,
};

use super::{
    beside::{Beside, OtherFlows},
    diverted::DivertedQueues,
    error::SingleRxQueueError,
    filters::Filter,
    load::FloodLoad,
    plan::{FLOOD_BATCH, FLOOD_STREAM, SingleRxQueuePlan, VALID_STREAM},
    service::{Service, Transfer},
    spread::Spread,
};

/// The parts of a row.
#[derive(Clone, Copy)]
pub(super) struct FloodSetup<'p> {
    pub(super) plan: &'p SingleRxQueuePlan,
    pub(super) lab: &'p Lab,
    pub(super) load: FloodLoad,
    pub(super) asked_pps: Option<f64>,
}

/// The results of a row in addition to its trial, from the time in which valid packets were sent.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) flood_pps: f64,
    pub(super) filtered_pps: f64,
    pub(super) valid_sent: u64,
    pub(super) valid_arrived: Option<u64>,
    pub(super) valid_delivered: u64,
    pub(super) lost: BTreeMap<String, u64>,
    pub(super) diverted: Option<DivertedQueues>,
    pub(super) transfer_bps: f64,
    pub(super) others: Option<OtherFlows>,
}

/// Both ends of a row.
pub(super) struct FloodEnds<'p> {
    setup: FloodSetup<'p>,
    figures: &'p mut Figures,
    valid: Option<Sender>,
    flood: Option<Sender>,
    beside: Option<Beside>,
    spread: Option<Spread>,
    transfer: Transfer,
    service: Service,
    filter: Filter,
    counters: Option<CounterWatch>,
    /// The filter's drops when the counters were read.
    filtered_before: u64,
    window: Option<(Instant, Counts)>,
    /// Whether the interface counts a frame as dropped that the sender (of valid packets, of the flood) sends later. The flow
    /// beside has the sender of valid packets.
    retries: [bool; 2],
    refused: u64,
    sent: Option<TxOutcome>,
}

/// The counters behind the rates of a row.
#[derive(Clone, Copy)]
struct Counts {
    flooded: u64,
    filtered: u64,
    transferred_bytes: u64,
}

/// The first packets find cold caches, and the transfer starts slowly.
const WARM_UP: Duration = Duration::from_millis(300);
/// Time between two readings; a diversion must hear from its process ten times a second.
const TICK: Duration = Duration::from_millis(10);
/// The drain ends when nothing has moved for so long.
const QUIET: Duration = Duration::from_millis(500);
/// The place of the filter's drops.
pub(super) const FILTERED: &str = "dropped by the filter";

impl<'p> FloodEnds<'p> {
    /// Starts the service and the transfer, and prepares the senders.
    pub(super) fn prepare(
        setup: FloodSetup<'p>,
        filter: Filter,
        figures: &'p mut Figures,
    ) -> Result<Self, SingleRxQueueError> {
        let FloodSetup { plan, lab, load, asked_pps } = setup;
        // Cards restart when a program is attached.
        lab.wait_until_ready()?;
        let service = Service::start(lab.rx(), plan, filter.which(), lab.tx().ipv4()[1])?;
        let spread = Spread::read(plan, lab)?;
        let transfer = Transfer::start(lab, plan, spread.as_ref())?;
        let beside = spread.as_ref().map(|spread| Beside::prepare(plan, lab, spread)).transpose()?;
        let stream = |stream| (stream, SingleRxQueuePlan::flow(lab, stream));
        let valid = plan.sender(lab, stream(VALID_STREAM), Some(plan.valid_pps), Some(plan.row_ns));
        let retries = [&valid.engine, &plan.tx].map(|engine| engine.facts().retries_interface_drops);
        let valid = valid.prepare(&plan.sending(lab, VALID_STREAM)?)?;
        let flood = match load {
            FloodLoad::None => None,
            FloodLoad::Full | FloodLoad::TenTimes | FloodLoad::WithoutLoss => {
                let flood = plan.sender(lab, stream(FLOOD_STREAM), asked_pps, None);
                Some(flood.prepare(&plan.sending(lab, FLOOD_STREAM)?)?)
            }
        };
        Ok(Self {
            setup,
            figures,
            valid: Some(valid),
            flood,
            beside,
            spread,
            transfer,
            service,
            filter,
            counters: None,
            filtered_before: 0,
            window: None,
            retries,
            refused: 0,
            sent: None,
        })
    }

    fn valid(&self) -> &Sender {
        self.valid.as_ref().expect("it sends until end_sending")
    }

    fn counters(&self) -> &CounterWatch {
        self.counters.as_ref().expect("read_counters comes first")
    }

    /// Packets of all senders so far.
    fn snapshot(&self) -> TxSnapshot {
        let beside = self.beside.as_ref().and_then(|beside| beside.sender.as_ref());
        let senders = [self.valid.as_ref(), self.flood.as_ref(), beside].into_iter().flatten();
        senders.map(Sender::snapshot).fold(TxSnapshot::default(), TxSnapshot::plus)
    }

    /// Packets that the services got.
    fn served(&self) -> u64 {
        let beside = self.beside.as_ref().map_or(0, |beside| beside.service.valid());
        self.service.valid() + self.service.flood() + beside
    }

    fn filtered(&self) -> Result<u64, SingleRxQueueError> {
        self.filter.filtered(self.setup.lab, self.service.flood())
    }

    fn counts(&self) -> Result<Counts, SingleRxQueueError> {
        Ok(Counts {
            flooded: self.flood.as_ref().map_or(0, |flood| flood.snapshot().packets),
            filtered: self.filtered()?,
            transferred_bytes: self.transfer.received_bytes(),
        })
    }

    /// All places where packets of the senders were lost, the filter last.
    fn lines(&self, growth: &Growth) -> Result<Vec<LedgerLine>, SingleRxQueueError> {
        let received = Received {
            delivered: self.served(),
            is_udp: true,
            is_xdp: self.filter.is_in_xdp(),
            ..Received::default()
        };
        let mut lines = self.counters().lines(growth, self.refused, None, &received);
        // The interface counts the filter's drops, too.
        let seen_twice = self.filter.seen_as();
        lines.retain(|line| !matches!(line.place, LossPlace::At(place) if seen_twice.contains(&place)));
        lines.extend(self.filter.lines(FILTERED, self.filtered()? - self.filtered_before)?);
        Ok(lines)
    }

    fn asked_pps(&self) -> Option<f64> {
        let FloodSetup { plan, load, asked_pps, .. } = self.setup;
        let without_flood = plan.valid_pps * if self.beside.is_some() { 2.0 } else { 1.0 };
        match load {
            FloodLoad::None => Some(without_flood),
            FloodLoad::Full | FloodLoad::TenTimes | FloodLoad::WithoutLoss => {
                asked_pps.map(|pps| pps + without_flood)
            }
        }
    }

    fn settings(&self) -> TrialSettings {
        let plan = self.setup.plan;
        let frame_size_bytes = wire::FrameSize::MIN.bytes();
        let cpus: Vec<u32> = plan.cpus.tx.iter().copied().take(1).collect();
        let senders =
            1 + usize::from(self.setup.load != FloodLoad::None) + usize::from(self.beside.is_some());
        TrialSettings {
            trial: 1,
            tx: tx_endpoint(&plan.tx, senders, &cpus, FLOOD_BATCH, senders),
            frame_size_bytes,
            payload_bytes: frame_size_bytes - 46,
            asked_pps: self.asked_pps(),
        }
    }

    /// The flows beside, with what the card counted by queue.
    fn others(&self, queues: Option<&QueueUse>) -> Option<OtherFlows> {
        let (beside, spread) = (self.beside.as_ref()?, self.spread.as_ref()?);
        let transfer_queue = self.transfer.queue()?;
        let counted: Vec<u64> = queues.map_or_else(Vec::new, |queues| {
            let packets = |number| queues.rx.iter().find(|of| of.queue == number).map_or(0, |of| of.packets);
            let most = queues.rx.iter().map(|of| of.queue + 1).max().unwrap_or(0);
            (0..most).map(packets).collect()
        });
        let of_beside = counted.get(beside.queue as usize).copied();
        Some(OtherFlows {
            beside_queue: beside.queue,
            beside_sent: beside.sent,
            beside_delivered: beside.service.valid(),
            beside_counted: of_beside.filter(|_| spread.is_apart(transfer_queue)),
            transfer_queue,
            packets_by_queue: counted,
        })
    }

    fn endpoint(&self) -> Endpoint {
        let which = self.filter.which();
        Endpoint {
            engine: "udp".into(),
            label: "udp".into(),
            threads: 1,
            cpus: self.setup.plan.service_cpu(which).into_iter().collect(),
            options: [("filter".to_owned(), json!(which.to_string()))].into(),
        }
    }
}

impl Ends for FloodEnds<'_> {
    type Error = SingleRxQueueError;
    type Seen = (u64, u64);

    const LOOK: Duration = TICK;
    const LONGEST_DRAIN: Duration = Duration::from_secs(10);

    fn read_counters(&mut self) -> Result<(), SingleRxQueueError> {
        let at = Locations::of(self.setup.lab)?;
        // Without the kernel's drop reasons: naming millions of drops a second would slow down the filters that drop buffers.
        self.counters = Some(CounterWatch::start(at, None)?);
        self.filtered_before = self.filtered()?;
        Ok(())
    }

    fn warm_up(&mut self) -> Result<(), SingleRxQueueError> {
        if let Some(flood) = &self.flood {
            flood.begin();
        }
        self.filter.beat_for(WARM_UP)
    }

    fn begin(&mut self) -> Result<u64, SingleRxQueueError> {
        self.window = Some((Instant::now(), self.counts()?));
        if let Some(sender) = self.beside.as_ref().and_then(|beside| beside.sender.as_ref()) {
            sender.begin();
        }
        Ok(self.valid().begin())
    }

    fn look(&mut self) -> Result<Look, SingleRxQueueError> {
        self.filter.beat_for(Duration::ZERO)?;
        let sent = self.snapshot();
        Ok(Look {
            sent: sent.packets,
            delivered: Some(self.served()),
            payload_bytes: sent.payload_bytes,
            ..Look::default()
        })
    }

    fn is_finished(&self) -> bool {
        self.valid().is_finished()
    }

    fn has_lost_receiver(&self) -> bool {
        let services =
            std::iter::once(&self.service).chain(self.beside.as_ref().map(|beside| &beside.service));
        services.into_iter().any(Service::is_finished)
    }

    fn stop(&mut self) {
        self.valid().stop();
        if let Some(sender) = self.beside.as_ref().and_then(|beside| beside.sender.as_ref()) {
            sender.stop();
        }
    }

    fn end_sending(&mut self) -> Result<(), SingleRxQueueError> {
        let (began, before) = self.window.take().expect("begin comes first");
        let (elapsed_s, after) = (began.elapsed().as_secs_f64(), self.counts()?);
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / elapsed_s;
        self.figures.flood_pps = rate(before.flooded, after.flooded);
        self.figures.filtered_pps = rate(before.filtered, after.filtered);
        self.figures.transfer_bps = rate(before.transferred_bytes, after.transferred_bytes) * 8.0;
        let mut results = self.valid.take().expect("it sends until here").join();
        self.figures.valid_sent = results.iter().map(|result| result.tally.packets).sum();
        let mut turned_away = [results.iter().map(|result| result.tally.turned_away).sum(), 0];
        if let Some(flood) = self.flood.take() {
            flood.stop();
            while !flood.is_finished() {
                self.filter.beat_for(TICK)?;
            }
            let flood = flood.join();
            turned_away[1] = flood.iter().map(|result| result.tally.turned_away).sum();
            results.extend(flood);
        }
        if let Some(beside) = &mut self.beside
            && let Some(sender) = beside.sender.take()
        {
            while !sender.is_finished() {
                self.filter.beat_for(TICK)?;
            }
            let sent = sender.join();
            beside.sent = sent.iter().map(|result| result.tally.packets).sum();
            turned_away[0] += sent.iter().map(|result| result.tally.turned_away).sum::<u64>();
            results.extend(sent);
        }
        let refused = self.retries.into_iter().zip(turned_away).filter(|(retries, _)| *retries);
        self.refused = refused.map(|(_, turned_away)| turned_away).sum();
        self.sent = Some(TxOutcome::of(results));
        Ok(())
    }

    fn delivered(&mut self) -> Result<u64, SingleRxQueueError> {
        Ok(self.served())
    }

    /// The transfer does not count: it goes on.
    fn in_flight(&mut self) -> Result<InFlight<(u64, u64)>, SingleRxQueueError> {
        self.filter.beat_for(Duration::ZERO)?;
        let sent = self.sent.as_ref().map_or(0, |sent| sent.tally.packets);
        let lines = self.lines(&self.counters().growth()?)?;
        let delivered = self.served();
        let is_complete = Ledger::close(sent, delivered, lines).is_closed();
        Ok(InFlight { is_complete, quiet: QUIET, seen: (delivered, self.filtered()?) })
    }

    fn close(&mut self) -> Result<Outcome<SingleRxQueueError>, SingleRxQueueError> {
        let queues = self.counters().queues();
        let growth = self.counters().growth()?;
        let delivered = self.served();
        let lines = self.lines(&growth)?;
        let full = growth.rx.protocols.value("UdpRcvbufErrors").unwrap_or(0);
        let mut lost = self.filter.lost()?;
        lost.insert("receive buffer of the service full".into(), full);
        lost.retain(|_, packets| *packets > 0);
        self.figures.lost = lost;
        self.figures.diverted = self.filter.diverted()?;
        self.figures.valid_arrived = self.filter.valid(self.setup.lab)?;
        self.figures.valid_delivered = self.service.valid();
        self.figures.others = self.others(queues.as_ref());
        let (settings, endpoint) = (self.settings(), self.endpoint());
        let mut tx = self.sent.take().expect("end_sending comes first");
        let error = tx.error.take().map(SingleRxQueueError::from);
        let error = error.or_else(|| self.service.error());
        let error = error.or_else(|| self.beside.as_ref().and_then(|beside| beside.service.error()));
        let rx = RxOutcome { delivered, cost: Cost::default(), lines, queues, ..RxOutcome::of(endpoint) };
        Ok(Outcome { settings, tx, rx, error })
    }
}
