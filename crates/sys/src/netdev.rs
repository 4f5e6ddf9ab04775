//! The generic netlink family `netdev`: which NAPI instances an interface has, which threads run them, and how each
//! polls.
//!
//! Format: `linux/netdev.h`, <https://docs.kernel.org/networking/netlink_spec/netdev.html>.

use std::io;

use crate::genl::Family;
use crate::netlink::{Attributes, NetlinkError, Request};

/// A socket of the family in the namespace of the thread that opened it; from there any thread may use it.
#[derive(Debug)]
pub struct NetdevSocket {
    family: Family,
}

/// One NAPI instance: it polls a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Napi {
    /// Its number, unique on this machine.
    pub id: u32,
    /// The interrupt that starts it.
    pub interrupt: Option<u32>,
    /// The kernel thread that runs it, when it is threaded.
    pub thread: Option<u32>,
    /// How it polls.
    pub polling: NapiPolling,
}

/// How a NAPI instance polls; `None` means not reported by this kernel, or not changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NapiPolling {
    /// Empty polls before its interrupt is enabled again (since Linux 6.13).
    pub defer_hard_irqs: Option<u32>,
    /// Nanoseconds that GRO may hold packets, and until the next poll without an interrupt (since Linux 6.13).
    pub gro_flush_timeout_ns: Option<u64>,
    /// Nanoseconds that its interrupt stays off while an application polls (since Linux 6.13).
    pub irq_suspend_timeout_ns: Option<u64>,
    /// Whether a thread runs it: 0 no, 1 yes, 2 one that never sleeps (since Linux 6.17).
    pub threaded: Option<u32>,
}

/// One queue of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Its number among those of its direction.
    pub id: u32,
    /// Whether it receives.
    pub receives: bool,
    /// The NAPI instance that polls it.
    pub napi: Option<u32>,
}

/// The driver's counters of one queue; `None` if not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Its number among those of its direction.
    pub id: u32,
    /// Whether it receives.
    pub receives: bool,
    /// Packets since the interface was created.
    pub packets: Option<u64>,
    /// Bytes since then.
    pub bytes: Option<u64>,
    /// Packets that the card dropped.
    pub drops: Option<u64>,
}

impl NetdevSocket {
    const FAMILY: &str = "netdev";
    /// The first kernel that lists NAPI instances.
    const SINCE: &str = "6.8";

    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, NetlinkError> {
        Family::open(Self::FAMILY, Self::SINCE).map(|family| Self { family })
    }

    /// Whether an interface's driver passes the card's timestamps to XDP programs; `None` if the kernel does not
    /// say (since Linux 6.6).
    pub fn hands_stamps_to_xdp(&mut self, interface: u32) -> Result<Option<bool>, NetlinkError> {
        const DEV_GET: u8 = 1;
        const IFINDEX: u16 = 1;
        const XDP_RX_METADATA_FEATURES: u16 = 5;
        const TIMESTAMP: u64 = 1;
        let mut request = self.family.request(DEV_GET, 0);
        request.u32(IFINDEX, interface);
        let mut features = None;
        self.family.ask(request, |attributes| features = attributes.uint(XDP_RX_METADATA_FEATURES)).map_err(
            |refusal| refusal.of("read the XDP features of", format!("interface number {interface}")),
        )?;
        Ok(features.map(|features| features & TIMESTAMP != 0))
    }

    /// The queues of an interface, receive queues first (since Linux 6.8).
    pub fn queues(&mut self, interface: u32) -> Result<Vec<Queue>, NetlinkError> {
        const QUEUE_GET: u8 = 10;
        const IFINDEX: u16 = 2;
        let mut request = self.family.request(QUEUE_GET, libc::NLM_F_DUMP);
        request.u32(IFINDEX, interface);
        let mut queues = Vec::new();
        self.family
            .ask(request, |attributes| queues.extend(Queue::parse(attributes.0)))
            .map_err(|refusal| refusal.of("list the queues of", format!("interface number {interface}")))?;
        queues.sort_by_key(|queue| (!queue.receives, queue.id));
        Ok(queues)
    }

    /// The driver's counters of each queue (since Linux 6.10); empty if it has none.
    pub fn queue_stats(&mut self, interface: u32) -> Result<Vec<QueueStats>, NetlinkError> {
        const QSTATS_GET: u8 = 12;
        const IFINDEX: u16 = 1;
        const SCOPE: u16 = 4;
        const BY_QUEUE: u32 = 1;
        let mut request = self.family.request(QSTATS_GET, libc::NLM_F_DUMP);
        request.u32(IFINDEX, interface);
        request.u32(SCOPE, BY_QUEUE);
        let mut all = Vec::new();
        self.family
            .ask(request, |attributes| all.extend(QueueStats::parse(attributes.0)))
            .map_err(|refusal| refusal.of("count per queue of", format!("interface number {interface}")))?;
        Ok(all)
    }

    /// Whether this kernel lists NAPI instances, and with them the threads that poll them (since Linux 6.8).
    pub fn kernel_lists_napis() -> bool {
        const LOOPBACK: u32 = 1;
        Self::open().is_ok_and(|mut netdev| netdev.napis(LOOPBACK).is_ok())
    }

    /// The NAPI instances of an interface in the order of their creation, which is that of the queues.
    pub fn napis(&mut self, interface: u32) -> Result<Vec<Napi>, NetlinkError> {
        const NAPI_GET: u8 = 11;
        const IFINDEX: u16 = 1;
        let mut request = self.family.request(NAPI_GET, libc::NLM_F_DUMP);
        request.u32(IFINDEX, interface);
        let mut napis = Vec::new();
        match self.family.ask(request, |attributes| napis.extend(Napi::parse(attributes.0))) {
            Ok(()) => {}
            Err(refusal) if refusal.source.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return Err(NetlinkError::Unsupported { family: Self::FAMILY, since: Self::SINCE });
            }
            Err(refusal) => {
                return Err(refusal.of("list the NAPI instances of", format!("interface number {interface}")));
            }
        }
        napis.sort_by_key(|napi| napi.id);
        Ok(napis)
    }

    /// Changes how a NAPI instance polls (since Linux 6.13). Needs CAP_NET_ADMIN.
    pub fn set_napi(&mut self, napi: u32, polling: &NapiPolling) -> Result<(), NetlinkError> {
        let mut request = self.family.request(NAPI_SET, 0);
        polling.append(napi, &mut request);
        self.family
            .ask(request, |_| ())
            .map_err(|refusal| refusal.of("change the polling of", format!("NAPI instance {napi}")))
    }
}

const NAPI_SET: u8 = 14;

/// `NETDEV_A_NAPI_*` in `linux/netdev.h`.
mod napi {
    pub(super) const ID: u16 = 2;
    pub(super) const IRQ: u16 = 3;
    pub(super) const PID: u16 = 4;
    pub(super) const DEFER_HARD_IRQS: u16 = 5;
    pub(super) const GRO_FLUSH_TIMEOUT: u16 = 6;
    pub(super) const IRQ_SUSPEND_TIMEOUT: u16 = 7;
    pub(super) const THREADED: u16 = 8;
}

impl Queue {
    /// Parses a message of an answer; `None` when it names no queue.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let attributes = Attributes(body);
        const ID: u16 = 1;
        const TYPE: u16 = 3;
        const NAPI_ID: u16 = 4;
        let receives = attributes.u32(TYPE)? == 0;
        Some(Self { id: attributes.u32(ID)?, receives, napi: attributes.u32(NAPI_ID) })
    }
}

impl QueueStats {
    /// Parses a message of an answer; `None` when it names no queue.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let attributes = Attributes(body);
        const QUEUE_TYPE: u16 = 2;
        const QUEUE_ID: u16 = 3;
        let receives = attributes.u32(QUEUE_TYPE)? == 0;
        // RX_PACKETS, RX_BYTES, TX_PACKETS, TX_BYTES; RX_HW_DROPS, TX_HW_DROPS.
        let (packets, bytes, drops) = if receives { (8, 9, 13) } else { (10, 11, 20) };
        Some(Self {
            id: attributes.u32(QUEUE_ID)?,
            receives,
            packets: attributes.uint(packets),
            bytes: attributes.uint(bytes),
            drops: attributes.uint(drops),
        })
    }
}

impl NapiPolling {
    fn parse(attributes: Attributes<'_>) -> Self {
        Self {
            defer_hard_irqs: attributes.u32(napi::DEFER_HARD_IRQS),
            gro_flush_timeout_ns: attributes.uint(napi::GRO_FLUSH_TIMEOUT),
            irq_suspend_timeout_ns: attributes.uint(napi::IRQ_SUSPEND_TIMEOUT),
            threaded: attributes.u32(napi::THREADED),
        }
    }

    fn append(&self, napi: u32, request: &mut Request) {
        request.u32(napi::ID, napi);
        for (kind, value) in [(napi::DEFER_HARD_IRQS, self.defer_hard_irqs), (napi::THREADED, self.threaded)]
        {
            value.into_iter().for_each(|value| request.u32(kind, value));
        }
        for (kind, value) in [
            (napi::GRO_FLUSH_TIMEOUT, self.gro_flush_timeout_ns),
            (napi::IRQ_SUSPEND_TIMEOUT, self.irq_suspend_timeout_ns),
        ] {
            value.into_iter().for_each(|value| request.attribute(kind, &value.to_ne_bytes()));
        }
    }
}

impl Napi {
    /// Parses a message of an answer; `None` when it names no instance.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let attributes = Attributes(body);
        Some(Self {
            id: attributes.u32(napi::ID)?,
            interrupt: attributes.u32(napi::IRQ),
            thread: attributes.u32(napi::PID),
            polling: NapiPolling::parse(attributes),
        })
    }

    /// Pins the thread of this instance to one CPU. Needs CAP_SYS_NICE over the whole machine, which root in a
    /// user namespace does not have.
    ///
    /// `NotFound` when the instance is not threaded, or its thread is hidden by a PID namespace.
    pub fn pin(&self, cpu: u32) -> io::Result<()> {
        let thread = self.thread.ok_or(io::ErrorKind::NotFound)?;
        let set = one_cpu(cpu)?;
        // SAFETY: the set is live and as large as the length says; the kernel only reads it.
        let pinned =
            unsafe { libc::sched_setaffinity(thread as i32, size_of_val(&set), (&raw const set).cast()) };
        if pinned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A CPU set as the kernel reads it: bit n of the array is CPU n.
fn one_cpu(cpu: u32) -> io::Result<[usize; 16]> {
    let mut set = [0; 16];
    let bits = usize::BITS;
    *set.get_mut((cpu / bits) as usize).ok_or(io::ErrorKind::InvalidInput)? = 1 << (cpu % bits);
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_one_bit_of_the_set() {
        assert_eq!(one_cpu(0).unwrap()[0], 1);
        assert_eq!(one_cpu(65).unwrap()[..2], [0, 2]);
        assert_eq!(one_cpu(1023).unwrap()[15], 1 << 63);
        assert_eq!(one_cpu(1024).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_napi_is_read_with_and_without_thread() {
        let attribute = |kind: u16, value: u32| {
            let mut bytes = 8u16.to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value.to_ne_bytes());
            bytes
        };
        let softirq = [attribute(1, 7), attribute(2, 8193)].concat();
        let polling = NapiPolling::default();
        let napi = Napi { id: 8193, interrupt: None, thread: None, polling };
        assert_eq!(Napi::parse(&softirq), Some(napi));
        let threaded = [softirq, attribute(3, 47), attribute(4, 1234)].concat();
        let napi = Napi { id: 8193, interrupt: Some(47), thread: Some(1234), polling };
        assert_eq!(Napi::parse(&threaded), Some(napi));
        assert_eq!(Napi::parse(&[]), None);
    }

    #[test]
    fn a_change_of_polling_reads_back_and_says_only_what_it_changes() {
        let polling = NapiPolling {
            defer_hard_irqs: Some(100),
            gro_flush_timeout_ns: Some(50_000),
            irq_suspend_timeout_ns: Some(20_000_000),
            threaded: Some(1),
        };
        let mut request = Request::new(0, 0, &[]);
        polling.append(8193, &mut request);
        let read = Napi::parse(request.body()).unwrap();
        assert_eq!((read.id, read.polling), (8193, polling));
        let mut request = Request::new(0, 0, &[]);
        let one = NapiPolling { gro_flush_timeout_ns: Some(7), ..NapiPolling::default() };
        one.append(1, &mut request);
        let words = [8u16, 2, 1, 0, 12, 6, 7, 0, 0, 0];
        assert_eq!(
            request.body(),
            words.map(u16::to_ne_bytes).concat(),
            "NETDEV_A_NAPI_ID, _GRO_FLUSH_TIMEOUT"
        );
    }

    #[test]
    fn the_kernel_is_asked_for_the_family_by_name() {
        let opened = NetdevSocket::open();
        assert!(matches!(opened, Ok(_) | Err(NetlinkError::Unsupported { .. })), "{opened:?}");
    }
}
