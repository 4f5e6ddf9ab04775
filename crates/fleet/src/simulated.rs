//! Agents that send no packets: thousands of them on one server show what coordination costs. They connect, subscribe, answer,
//! keep clocks and store results as real ones; their part of a trial is a wait.

use std::{
    sync::{
        Mutex,
        mpsc::{Receiver, TryRecvError},
    },
    time::Duration,
};

use measure::{Cost, Endpoint, Interval, Ledger, Receipt, Trial};
use sys::clock;
use tokio::{sync::mpsc::UnboundedSender, time::sleep};
use trial::{HostPlan, Report};

use crate::{
    job::{JobEvent, Order},
    message::{Attempt, Measured, Part, Prepare},
};

/// How often a simulated part of a trial looks at its orders.
const LOOK: Duration = Duration::from_millis(100);

/// The last attempt whose senders have ended, which ends its receivers.
static ENDED: Mutex<Option<Attempt>> = Mutex::new(None);

/// An agent's part of a trial without packets; `senders` have sent what was due, and nothing was lost.
pub(crate) async fn take_part(prepare: Prepare, orders: Receiver<Order>, events: UnboundedSender<JobEvent>) {
    let of = prepare.of.clone();
    let measured = match prepare.part {
        Part::Send { plan } => {
            events.send(JobEvent::Prepared(of.clone(), Ok(None))).ok();
            send(&plan, orders).await
        }
        Part::Receive { .. } => {
            let address = ([127, 0, 0, 1], 9).into();
            events.send(JobEvent::Prepared(of.clone(), Ok(Some(address)))).ok();
            receive(&of, orders).await
        }
    };
    if let Some(measured) = measured {
        if matches!(measured, Measured::Sent { .. }) {
            ENDED.lock().expect("no holder panics").replace(of.clone());
        }
        events.send(JobEvent::Finished(of, measured)).ok();
    }
}

async fn send(plan: &HostPlan, orders: Receiver<Order>) -> Option<Measured> {
    let at_ns = loop {
        match orders.try_recv() {
            Ok(Order::Start { at_ns }) => break at_ns,
            Ok(Order::Stop { reason }) => return Some(Measured::Failed { reason }),
            Ok(Order::Renew(_)) => {}
            Err(TryRecvError::Empty) => sleep(LOOK).await,
            Err(TryRecvError::Disconnected) => return None,
        }
    };
    sleep(Duration::from_nanos(at_ns.saturating_sub(clock::monotonic_ns()))).await;
    let began_ns = clock::monotonic_ns();
    let traffic = &plan.sender.traffic;
    let duration_ns = traffic.limit.duration_ns.unwrap_or(0);
    sleep(Duration::from_nanos(duration_ns)).await;
    let duration_s = duration_ns as f64 / 1e9;
    let rate_pps = traffic.rate_pps.unwrap_or(0.0);
    let sent = (rate_pps * duration_s) as u64;
    let interval_s = plan.interval_ns as f64 / 1e9;
    let interval = |number: u32| Interval {
        trial: 0,
        end_s: f64::from(number) * interval_s,
        length_s: interval_s,
        sent: Some((rate_pps * interval_s) as u64),
        delivered: Some((rate_pps * interval_s) as u64),
        payload_bytes: (rate_pps * interval_s) as u64 * u64::from(plan.payload_bytes),
        rx_dropped: Some(0),
    };
    let trial = Trial {
        tx: plan.endpoint.clone(),
        asked_pps: traffic.rate_pps,
        frame_size_bytes: plan.frame_size_bytes,
        payload_bytes: plan.payload_bytes,
        duration_s,
        sent,
        sent_pps: rate_pps,
        delivered: sent,
        delivered_pps: rate_pps,
        ledger: Ledger::close(sent, sent, Vec::new()),
        receipt: Receipt {
            kept_up: true,
            scheduled: sent,
            handed: sent,
            delivered: sent,
            ..Receipt::default()
        },
        ..Trial::default()
    };
    let intervals = (1..=(duration_s / interval_s) as u32).map(interval).collect();
    Some(Measured::Sent { trial: Box::new(trial), intervals, began_ns, cut_short: None })
}

async fn receive(of: &Attempt, orders: Receiver<Order>) -> Option<Measured> {
    while ENDED.lock().expect("no holder panics").as_ref() != Some(of) {
        match orders.try_recv() {
            Ok(Order::Stop { reason }) => return Some(Measured::Failed { reason }),
            Err(TryRecvError::Disconnected) => return None,
            _ => sleep(LOOK).await,
        }
    }
    let report = Report {
        delivered: 0,
        lines: Vec::new(),
        rx: Endpoint::default(),
        cost: Cost::default(),
        cpus: Vec::new(),
        senders: 1,
        profile: None,
        wire: None,
        clocks: None,
    };
    Some(Measured::Received { report: Box::new(report), cut_short: None })
}
