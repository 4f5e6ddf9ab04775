//! Queueing disciplines and their drops.

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

/// Length of `struct tcmsg`: family and padding, interface, handle, parent, info.
const HEADER: usize = 20;
/// `TC_H_ROOT` of `linux/pkt_sched.h`.
const ROOT: u32 = u32::MAX;

impl RouteSocket {
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
    fn loopback_does_without() {
        let mut route = RouteSocket::open().unwrap();
        let loopback = route.link_by_name("lo").unwrap().index;
        assert!(route.root_qdisc(loopback).unwrap().is_none_or(|qdisc| qdisc.kind == "noqueue"));
    }
}
