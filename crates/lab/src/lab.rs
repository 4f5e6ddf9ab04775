//! Creating a lab.

use std::os::fd::AsFd;
use std::time::Duration;

use sys::rtnetlink::{VethEnd, VethPair};

use crate::error::{LabError, SideName};
use crate::plan::LabPlan;
use crate::side::Side;

/// A veth pair between two network namespaces; it ends when this value, the threads that entered it and the
/// sockets opened in it are gone. Or two real interfaces in such namespaces, which return unchanged.
#[derive(Debug)]
pub struct Lab {
    tx: Side,
    rx: Side,
}

impl Lab {
    /// How long the kernel may take to start queues and addresses; on an idle machine it takes microseconds.
    const READY_AT_MOST: Duration = Duration::from_secs(30);

    /// Creates the lab; on return, packets can be sent in both directions and none has been sent.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN; see [`gain_access`](crate::gain_access).
    pub fn create(plan: &LabPlan) -> Result<Self, LabError> {
        let problems = plan.problems();
        if !problems.is_empty() {
            return Err(LabError::Plan { problems });
        }
        let mut lab = Self { tx: Side::prepare(SideName::Tx, plan)?, rx: Side::prepare(SideName::Rx, plan)? };
        match &plan.interfaces {
            Some(interfaces) => {
                // Both are checked before either is changed.
                let tx = lab.tx.find(&interfaces.tx, plan)?;
                let rx = lab.rx.find(&interfaces.rx, plan)?;
                let taken = interfaces.taken;
                if taken.tx {
                    lab.tx.leave(tx)?
                } else {
                    lab.tx.borrow(tx)?
                }
                if taken.rx { lab.rx.leave(rx)? } else { lab.rx.borrow(rx)? }
            }
            None => lab.tx.netlink(|route| {
                route.create_veth(&VethPair {
                    near: VethEnd { name: lab.tx.interface(), mac: lab.tx.mac() },
                    far: VethEnd { name: lab.rx.interface(), mac: lab.rx.mac() },
                    far_namespace: lab.rx.namespace().as_fd(),
                    queues: plan.queues,
                    mtu: plan.mtu,
                })
            })?,
        }
        lab.rx.bring_up(plan)?;
        lab.tx.bring_up(plan)?;
        lab.tx.introduce(&lab.rx)?;
        lab.rx.introduce(&lab.tx)?;
        // A card taken from its driver has no link before its ring exists, and neither has the other end of its cable.
        if !(lab.tx.is_taken() || lab.rx.is_taken()) {
            lab.wait_until_ready()?;
        }
        if plan.threaded_napi {
            lab.rx.thread_napi(&plan.napi_cpus, plan.napi_first)?;
        }
        Ok(lab)
    }

    /// Waits until both sides can carry packets, which takes seconds after a restart of a card.
    pub fn wait_until_ready(&self) -> Result<(), LabError> {
        self.tx.wait_until_ready(Self::READY_AT_MOST)?;
        self.rx.wait_until_ready(Self::READY_AT_MOST)
    }

    /// The sending side.
    pub fn tx(&self) -> &Side {
        &self.tx
    }

    /// The receiving side.
    pub fn rx(&self) -> &Side {
        &self.rx
    }
}
