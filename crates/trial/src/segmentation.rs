//! Whether a card segments UDP messages (`tx-udp-segmentation`) as it says: probed with a few datagrams, before the trial that
//! relies on it. A card or an emulator that breaks it loses nearly every packet, and each looks like a broken frame.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use lab::{Lab, LabError, Side};
use sys::udp::{SendBatch, SocketOptions, UdpSocket as Segmenting};

use crate::{
    error::{BrokenSegmentation, TrialError},
    plan::{Pair, TrialPlan, any_like},
};

/// The feature's name, as `ethtool -k` has it.
const FEATURE: &str = "tx-udp-segmentation";
/// Datagrams of a message.
const DATAGRAMS: usize = 8;
/// Messages that may get lost before the card is blamed.
const TRIES: u8 = 3;
/// Longer than a message takes to arrive, on a busy machine too.
const PATIENCE: Duration = Duration::from_millis(300);
/// A card may need seconds to be ready, and the first datagram looks for its neighbour.
const FIRST: Duration = Duration::from_secs(3);

/// Probes the sending card of a lab if the pair relies on it. Embedded pairs have no card.
///
/// # Errors
/// [`TrialError::Segmentation`] when it breaks messages; sockets that cannot be opened.
pub(crate) fn probe(lab: &Lab, plan: &TrialPlan, pair: &Pair) -> Result<(), TrialError> {
    let (tx, rx) = (lab.tx(), lab.rx());
    if !pair.tx.facts().hands_over_many || tx.is_taken() || rx.is_taken() || tx.driver()? == "veth" {
        return Ok(());
    }
    if !tx.features()?.iter().any(|feature| feature.name == FEATURE && feature.active) {
        return Ok(());
    }
    let interface = || tx.interface().to_owned();
    let failed = |source| TrialError::Probe { interface: interface(), source };
    let target = address(rx, plan.ipv6);
    let any = any_like(target);
    let arriving = rx.run(|| UdpSocket::bind((any, 0)))?.map_err(failed)?;
    let to = SocketAddr::new(target, arriving.local_addr().map_err(failed)?.port());
    let bytes = plan.payload_bytes.max(1) as usize;
    let sending = |segment_bytes| -> Result<io::Result<Segmenting>, LabError> {
        let options = SocketOptions { segment_bytes, ..SocketOptions::default() };
        tx.run(|| {
            let socket = Segmenting::bind(SocketAddr::new(any, 0), &options)?;
            socket.connect(to).map(|()| socket)
        })
    };
    let (single, whole) = (sending(None)?.map_err(failed)?, sending(Some(bytes as u16))?.map_err(failed)?);
    let mut intact = 0;
    for number in 0..TRIES {
        let singly = arrived(&single, &arriving, Sent { number: 2 * number, segments: 1, bytes });
        if singly.map_err(failed)? < DATAGRAMS {
            // The path loses packets of any kind, which the trial will show.
            continue;
        }
        let sent = Sent { number: 2 * number + 1, segments: DATAGRAMS, bytes };
        let together = arrived(&whole, &arriving, sent).map_err(failed)?;
        if together == DATAGRAMS {
            return Ok(());
        }
        intact = intact.max(together + 1);
    }
    match intact {
        0 => Ok(()),
        more => Err(BrokenSegmentation { interface: interface(), sent: DATAGRAMS, intact: more - 1 }.into()),
    }
}

fn address(side: &Side, ipv6: bool) -> IpAddr {
    if ipv6 { side.ipv6()[0].into() } else { side.ipv4()[0].into() }
}

/// [`DATAGRAMS`] datagrams, in messages of `segments`.
#[derive(Debug, Clone, Copy)]
struct Sent {
    number: u8,
    segments: usize,
    bytes: usize,
}

impl Sent {
    /// The payload of a datagram: its last byte is its own, as far as it has one.
    fn payload(self, datagram: usize) -> Vec<u8> {
        let mut payload: Vec<u8> =
            (0..self.bytes).map(|at| (at as u8).wrapping_mul(7) ^ self.number).collect();
        if let Some(last) = payload.last_mut() {
            *last = self.number.wrapping_mul(DATAGRAMS as u8).wrapping_add(datagram as u8);
        }
        payload
    }
}

/// How many datagrams arrived as they were sent.
fn arrived(from: &Segmenting, at: &UdpSocket, sent: Sent) -> io::Result<usize> {
    let mut batch = SendBatch::new(DATAGRAMS / sent.segments, sent.segments, sent.bytes);
    let mut missing: Vec<Vec<u8>> = (0..DATAGRAMS).map(|datagram| sent.payload(datagram)).collect();
    for (slot, payload) in missing.iter().enumerate() {
        batch.slot_mut(slot).copy_from_slice(payload);
    }
    let mut done = 0;
    while done < DATAGRAMS {
        done += batch.send(from, done, DATAGRAMS)?;
    }
    let patience = if sent.number == 0 { FIRST } else { PATIENCE };
    let since = Instant::now();
    // Longer than any datagram of the probe, so that one that is too long is seen.
    let mut buffer = vec![0; 65_536];
    while let (false, Some(left)) = (missing.is_empty(), patience.checked_sub(since.elapsed())) {
        at.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match at.recv(&mut buffer) {
            Ok(length) => {
                if let Some(found) = missing.iter().position(|payload| **payload == buffer[..length]) {
                    missing.swap_remove(found);
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(DATAGRAMS - missing.len())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn datagrams_of_messages_arrive_intact_on_loopback() {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let at = UdpSocket::bind(here).unwrap();
        for (number, segments, bytes) in
            [(0, 1, 18), (1, DATAGRAMS, 18), (2, DATAGRAMS, 1), (3, DATAGRAMS, 1400)]
        {
            let segment_bytes = (segments > 1).then_some(bytes as u16);
            let options = SocketOptions { segment_bytes, ..SocketOptions::default() };
            let from = Segmenting::bind(here, &options).unwrap();
            from.connect(at.local_addr().unwrap()).unwrap();
            assert_eq!(arrived(&from, &at, Sent { number, segments, bytes }).unwrap(), DATAGRAMS);
        }
    }

    #[test]
    fn a_datagram_of_other_bytes_or_length_is_not_intact() {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let at = UdpSocket::bind(here).unwrap();
        let from = Segmenting::bind(here, &SocketOptions::default()).unwrap();
        from.connect(at.local_addr().unwrap()).unwrap();
        let sent = Sent { number: 1, segments: DATAGRAMS, bytes: 20 };
        // Without UDP_SEGMENT the message is one long datagram, as from a card that does not segment it.
        assert_eq!(arrived(&from, &at, sent).unwrap(), 0);
        assert_ne!(sent.payload(0), sent.payload(1));
        assert_ne!(sent.payload(0), Sent { number: 2, ..sent }.payload(0));
    }
}
