//! This host's clock for comparisons in sessions, and the state that PTP's daemon reports.

use std::path::{Path, PathBuf};

use session::{HostClock, KeptClock};
use sys::{
    clock,
    ptp::{self, Following, PTP4L_SOCKET, PortState, PtpClock},
};

/// The clock that stamps probe packets.
#[derive(Debug, Clone)]
pub(crate) struct MachineClock {
    /// The default socket of linuxptp's daemon.
    ptp4l: Option<PathBuf>,
}

impl MachineClock {
    /// With the daemon behind this socket, or behind the default one if that exists.
    pub(crate) fn kept_by(ptp4l: Option<&Path>) -> Self {
        let usual = || Some(PathBuf::from(PTP4L_SOCKET)).filter(|socket| socket.exists());
        Self { ptp4l: ptp4l.map(Path::to_owned).or_else(usual) }
    }
}

impl HostClock for MachineClock {
    fn now_ns(&self) -> u64 {
        clock::monotonic_ns()
    }

    fn wall_ahead_ns(&self) -> u64 {
        clock::wall_offset().ahead_ns
    }

    fn kept(&self) -> Option<KeptClock> {
        let following = ptp::following(self.ptp4l.as_deref()?).ok()?;
        kept(&following, &ptp::clocks(), clock::wall_offset())
    }
}

/// Offset of the wall clock from the clock that PTP follows, and its largest error: the paths of PTP's messages may be
/// asymmetric, up to their mean delay, and the offset of a card's clock is as accurate as its reading. `None` if the
/// daemon does not follow steadily, or the clock that it controls is unknown.
pub(crate) fn ahead_of_reference(following: &Following, cards: &[PtpClock]) -> Option<(i64, u64)> {
    let &Following { ahead_ns, path_delay_ns, is_card, .. } = following;
    let (card_ahead_ns, seen_within_ns) = match (is_card, cards) {
        (false, _) => (0, 0),
        (true, [card]) => (card.ahead_ns, card.within_ns.div_ceil(2)),
        (true, _) => return None,
    };
    Some((ahead_ns.saturating_sub(card_ahead_ns), path_delay_ns.saturating_add(seen_within_ns)))
}

/// A clock that follows steadily, or the grandmaster.
fn kept(following: &Following, cards: &[PtpClock], wall: clock::WallOffset) -> Option<KeptClock> {
    let is_reference = following.port == PortState::Master && following.steps == 0;
    let follows = following.port == PortState::Slave && following.steps > 0;
    if !is_reference && !follows {
        return None;
    }
    let own = Following { ahead_ns: 0, path_delay_ns: 0, ..*following };
    let (ahead_ns, bound_ns) = ahead_of_reference(if is_reference { &own } else { following }, cards)?;
    Some(KeptClock {
        reference: following.reference?.to_string(),
        ahead_ns,
        // The daemon is about to correct the last offset: the clock may be anywhere within it.
        bound_ns: bound_ns.saturating_add(ahead_ns.unsigned_abs()).saturating_add(wall.within_ns),
        wall_ahead_ns: wall.ahead_ns,
    })
}

#[cfg(test)]
mod tests {
    use sys::ptp::ClockIdentity;

    use super::*;

    #[test]
    fn only_a_clock_that_follows_steadily_or_is_the_grandmaster_is_used() {
        let slave = Following {
            steps: 1,
            ahead_ns: -200,
            path_delay_ns: 900,
            is_card: false,
            port: PortState::Slave,
            reference: Some(ClockIdentity([1; 8])),
        };
        let wall = clock::WallOffset { ahead_ns: 77, within_ns: 30 };
        let both = |following: Following| {
            kept(&following, &[], wall).map(|kept| (kept.ahead_ns, kept.bound_ns, kept.wall_ahead_ns))
        };
        assert_eq!(both(slave), Some((-200, 1130, 77)));
        assert_eq!(both(Following { steps: 0, port: PortState::Master, ..slave }), Some((0, 30, 77)));
        for not in [
            Following { port: PortState::Other, ..slave },
            Following { steps: 0, ..slave },
            Following { port: PortState::Master, ..slave },
            Following { reference: None, ..slave },
            Following { is_card: true, ..slave },
        ] {
            assert_eq!(both(not), None, "{not:?}");
        }
        let card = PtpClock { device: "/dev/ptp0".into(), name: "igb".into(), ahead_ns: 50, within_ns: 21 };
        let on_card = kept(&Following { is_card: true, ..slave }, &[card], wall).unwrap();
        assert_eq!((on_card.ahead_ns, on_card.bound_ns), (-250, 250 + 911 + 30));
    }
}
