//! Queueing disciplines: setting them, and their drops. Formats: `linux/pkt_sched.h`.

use crate::netlink::{Attributes, NetlinkError, Request, field};

use super::RouteSocket;

/// A queueing discipline at the root of an interface. Its drops include those of its classes and children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// `fq_codel`, `mq`, `pfifo_fast`, `noqueue`, …
    pub kind: String,
    /// Buffers dropped since it was created; the kernel counts in 32 bits.
    pub drops: u32,
    /// Buffers waiting.
    pub queued: u32,
}

/// A queueing discipline to be set, with the kernel's own limits where none is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewQdisc {
    /// Three bands by priority; the default of most kernels.
    PfifoFast,
    /// Fair queueing with pacing.
    Fq,
    /// Fair queueing with controlled delay.
    FqCodel,
    /// Random early detection: from 30,000 bytes of queue on some, from 90,000 on all packets are dropped.
    Red,
    /// A token bucket.
    Tbf {
        /// Bytes a second.
        bytes_per_s: u64,
    },
}

/// Length of `struct tcmsg`: family and padding, interface, handle, parent, info.
const HEADER: usize = 20;
/// `TC_H_ROOT` of `linux/pkt_sched.h`.
const ROOT: u32 = u32::MAX;

/// RED's mean packet in bytes, from which its average decays while the queue is empty.
const RED_MEAN_BYTES: f64 = 1000.0;
/// RED's averages lose this power of two with each packet: 1/512 (Floyd and Jacobson, 1993).
const RED_WEIGHT_LOG: u8 = 9;
/// RED's queue in bytes: where dropping begins, where it is certain, and the limit.
const RED_BYTES: [u32; 3] = [30_000, 90_000, 400_000];
/// 60,000 bytes between both thresholds and a probability of 1/50 at the upper one: 60,000 * 50 is close to 2^22.
const RED_PROBABILITY_LOG: u8 = 22;
/// Link speed for which RED's average decays, in bits a second: one that cards of this kind have.
const RED_LINK_BPS: f64 = 1e9;

impl NewQdisc {
    /// The kernel's name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::PfifoFast => "pfifo_fast",
            Self::Fq => "fq",
            Self::FqCodel => "fq_codel",
            Self::Red => "red",
            Self::Tbf { .. } => "tbf",
        }
    }

    fn options(&self, request: &mut Request) {
        match self {
            Self::PfifoFast | Self::Fq | Self::FqCodel => {}
            Self::Red => request.nested(libc::TCA_OPTIONS, |options| {
                const TCA_RED_PARMS: u16 = 1;
                const TCA_RED_STAB: u16 = 2;
                let (cell_log, decay) = red_decay();
                // struct tc_red_qopt: limit, thresholds, logarithms of weight, probability and cell, flags.
                let [least, most, limit] = RED_BYTES;
                let mut parameters: Vec<u8> =
                    [limit, least, most].iter().flat_map(|number| number.to_ne_bytes()).collect();
                parameters.extend([RED_WEIGHT_LOG, RED_PROBABILITY_LOG, cell_log, 0]);
                options.attribute(TCA_RED_PARMS, &parameters);
                options.attribute(TCA_RED_STAB, &decay);
            }),
            Self::Tbf { bytes_per_s } => request.nested(libc::TCA_OPTIONS, |options| {
                const TCA_TBF_PARMS: u16 = 1;
                const TCA_TBF_RATE64: u16 = 4;
                const TCA_TBF_BURST: u16 = 6;
                const LINK_LAYER_ETHERNET: u8 = 1;
                // A hundredth of a second may leave at once, at least a few large packets; twenty times that may wait.
                let burst = u32::try_from(bytes_per_s / 100).unwrap_or(u32::MAX / 20).max(20_000);
                let limit = burst.saturating_mul(20);
                // struct tc_ratespec: cell logarithm, link layer, overhead, alignment, minimum, rate.
                let spec = |bytes_per_s: u32| {
                    let mut bytes = vec![0, LINK_LAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
                    bytes.extend(bytes_per_s.to_ne_bytes());
                    bytes
                };
                let small = u32::try_from(*bytes_per_s).unwrap_or(u32::MAX);
                // struct tc_tbf_qopt: rate, peak rate, limit, buffer, MTU; the attributes below overrule rate and buffer.
                let mut parameters = [spec(small), spec(0)].concat();
                parameters.extend([limit, 0, 0].iter().flat_map(|number: &u32| number.to_ne_bytes()));
                options.attribute(TCA_TBF_PARMS, &parameters);
                if u64::from(small) != *bytes_per_s {
                    options.attribute(TCA_TBF_RATE64, &bytes_per_s.to_ne_bytes());
                }
                options.u32(TCA_TBF_BURST, burst);
            }),
        }
    }
}

/// How often RED halves its average after an idle time: the logarithm of a cell's microseconds, and the halvings by cell.
fn red_decay() -> (u8, [u8; 256]) {
    const MOST_HALVINGS: f64 = 31.0;
    let packet_us = RED_MEAN_BYTES * 8e6 / RED_LINK_BPS;
    let per_packet = -(1.0 - 1.0 / f64::from(1 << RED_WEIGHT_LOG)).log2();
    let per_us = per_packet / packet_us;
    // The table ends where the average has decayed to zero.
    let cell_log = (0..31).find(|log| per_us * f64::from(1u32 << log) * 255.0 >= MOST_HALVINGS).unwrap_or(31);
    let mut decay = [0; 256];
    for (cell, halvings) in decay.iter_mut().enumerate() {
        *halvings = (per_us * cell as f64 * f64::from(1u32 << cell_log)).min(MOST_HALVINGS) as u8;
    }
    (cell_log, decay)
}

impl RouteSocket {
    /// Sets the root queueing discipline of a link; it lasts until the link moves to another namespace or is deleted.
    ///
    /// # Errors
    /// `NotFound`: the kernel has none of this kind, or must not load its module for this process.
    pub fn set_root_qdisc(&mut self, index: u32, new: &NewQdisc) -> Result<(), NetlinkError> {
        let mut header = [0; HEADER];
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        header[12..16].copy_from_slice(&ROOT.to_ne_bytes());
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let mut request = Request::new(libc::RTM_NEWQDISC, flags, &header);
        request.string(libc::TCA_KIND, new.kind());
        new.options(&mut request);
        let asked = self.socket.ask(request, |_| ());
        asked.map_err(|refusal| refusal.of("set", format!("queueing discipline {}", new.kind())))
    }

    /// The root queueing discipline of a link; `None` if it has none.
    pub fn root_qdisc(&mut self, index: u32) -> Result<Option<Qdisc>, NetlinkError> {
        let request = Request::new(libc::RTM_GETQDISC, libc::NLM_F_DUMP, &[0; HEADER]);
        let mut found = None;
        let asked =
            self.socket.ask(request, |body| found = found.take().or_else(|| Qdisc::at_root(body, index)));
        asked.map_err(|refusal| refusal.of("list", "the queueing disciplines"))?;
        Ok(found)
    }
}

impl Qdisc {
    fn at_root(body: &[u8], index: u32) -> Option<Self> {
        const TCA_STATS2: u16 = 7;
        const TCA_STATS_QUEUE: u16 = 3;
        if u32::from_ne_bytes(field(body, 4)?) != index || u32::from_ne_bytes(field(body, 12)?) != ROOT {
            return None;
        }
        let attributes = Attributes(body.get(HEADER..)?);
        // struct gnet_stats_queue: packets waiting, bytes waiting, drops, requeues, overlimits.
        let queue = attributes.find(TCA_STATS2).and_then(|stats| Attributes(stats).find(TCA_STATS_QUEUE));
        let number = |at| queue.and_then(|queue| field(queue, at)).map_or(0, u32::from_ne_bytes);
        Some(Self { kind: attributes.text(libc::TCA_KIND)?, drops: number(8), queued: number(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + payload.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(index: u32, parent: u32) -> Vec<u8> {
        let words = [0, index, 0x10000, parent, 0u32];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let queue: Vec<u8> = [3u32, 300, 42, 0, 7].iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(attribute(1, b"tbf\0"));
        bytes.extend(attribute(7, &attribute(3, &queue)));
        bytes
    }

    #[test]
    fn only_the_root_of_the_interface_is_taken() {
        let root = Qdisc { kind: "tbf".into(), drops: 42, queued: 3 };
        assert_eq!(Qdisc::at_root(&message(5, ROOT), 5), Some(root));
        assert_eq!(Qdisc::at_root(&message(6, ROOT), 5), None);
        assert_eq!(
            Qdisc::at_root(&message(5, 0x10000), 5),
            None,
            "a child's drops are included in the root's"
        );
        assert_eq!(Qdisc::at_root(&[0; 4], 5), None);
    }

    #[test]
    fn red_s_average_is_gone_at_the_end_of_its_table() {
        let (cell_log, decay) = red_decay();
        assert_eq!((decay[0], decay[255]), (0, 31));
        assert!(decay.windows(2).all(|pair| pair[0] <= pair[1]), "{decay:?}");
        // An idle time of 512 packets of 8 us leaves 1/e of the average: between one and two halvings.
        let cell = (512 * 8) >> cell_log;
        assert_eq!(decay[cell], 1, "cell {cell}");
    }

    #[test]
    fn each_kind_that_this_kernel_has_is_set() {
        let Ok(namespace) = crate::netns::NetNs::create() else {
            return testing::skip("a namespace needs CAP_SYS_ADMIN");
        };
        let set = namespace.run(|| {
            let mut route = RouteSocket::open().unwrap();
            let loopback = route.link_by_name("lo").unwrap().index;
            let kinds = [
                NewQdisc::PfifoFast,
                NewQdisc::Fq,
                NewQdisc::FqCodel,
                NewQdisc::Red,
                NewQdisc::Tbf { bytes_per_s: 12_500_000 },
                NewQdisc::Tbf { bytes_per_s: 12_500_000_000 },
            ];
            let set = |kind: &NewQdisc| match route.set_root_qdisc(loopback, kind) {
                Ok(()) => {
                    assert_eq!(route.root_qdisc(loopback).unwrap().unwrap().kind, kind.kind());
                    true
                }
                Err(NetlinkError::Refused { source, .. }) => {
                    assert_eq!(source.kind(), std::io::ErrorKind::NotFound, "{source}: {kind:?}");
                    false
                }
                Err(error) => panic!("{error}"),
            };
            kinds.iter().map(set).collect::<Vec<_>>()
        });
        assert!(set.unwrap()[0], "every kernel has pfifo_fast");
    }

    #[test]
    fn loopback_does_without() {
        let mut route = RouteSocket::open().unwrap();
        let loopback = route.link_by_name("lo").unwrap().index;
        assert!(route.root_qdisc(loopback).unwrap().is_none_or(|qdisc| qdisc.kind == "noqueue"));
    }
}
