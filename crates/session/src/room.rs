//! Connections and streams in use, and each address's share of them.
//!
//! No address may have more than half of what the others leave: whatever one takes, the next still finds room.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv6Addr, Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
};

/// Connections served at once.
pub(crate) const MOST_CONNECTIONS: usize = 64;
/// Streams: 1 to this. Stream 0 is for payloads too short to carry a tag.
pub(crate) const MOST_STREAMS: u16 = 255;

/// All connections and streams of a receiver.
#[derive(Default)]
pub(crate) struct Room {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// In the order of arrival.
    connections: Vec<Connection>,
    streams: BTreeMap<u16, Holder>,
    next: u64,
    senders: u32,
    /// Counts the senders that joined; a trial during which it grew was not alone.
    joined: u32,
}

struct Connection {
    number: u64,
    holder: Holder,
    /// For closing the connection.
    stream: TcpStream,
    is_sender: bool,
}

/// The owner of connections and streams: an IPv4 or link-local address, or the /64 network of an IPv6 host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Holder(IpAddr);

/// A place for a connection; freed when dropped.
pub(crate) struct Admitted {
    room: Arc<Room>,
    number: u64,
    holder: Holder,
}

/// A sender's streams; freed when dropped.
pub(crate) struct Seat<'r> {
    room: &'r Room,
    pub(crate) streams: Vec<u16>,
    joined_at: u32,
    met: u32,
}

impl Holder {
    fn of(peer: IpAddr) -> Self {
        match peer.to_canonical() {
            // An IPv6 host chooses its address within the /64; link-local hosts all share one /64.
            IpAddr::V6(v6) if !v6.is_unicast_link_local() && !v6.is_loopback() => {
                Self(Ipv6Addr::from_bits(v6.to_bits() & u128::MAX << 64).into())
            }
            other => Self(other),
        }
    }
}

/// The share of `most` that an address may have while others hold this many.
fn share(most: usize, of_others: usize) -> usize {
    most.saturating_sub(of_others).div_ceil(2)
}

impl Room {
    /// Takes a place for a connection. If none is free, the oldest connection without an offer is closed.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr, stream: &TcpStream) -> Result<Admitted, String> {
        let holder = Holder::of(peer);
        let stream =
            stream.try_clone().map_err(|error| format!("no room for another connection: {error}"))?;
        let mut inside = self.inside();
        let own = inside.connections.iter().filter(|connection| connection.holder == holder).count();
        let others = inside.connections.len() - own;
        if own >= share(MOST_CONNECTIONS, others) {
            let may_go =
                |connection: &Connection| !connection.is_sender && (own == 0 || connection.holder == holder);
            let Some(oldest) = inside.connections.iter().position(may_go) else {
                let peer = peer.to_canonical();
                return Err(format!("too many connections: {own} from {peer} and {others} from others"));
            };
            let gone = inside.connections.remove(oldest);
            gone.stream.shutdown(Shutdown::Both).ok();
        }
        let number = inside.next;
        inside.next += 1;
        inside.connections.push(Connection { number, holder, stream, is_sender: false });
        drop(inside);
        Ok(Admitted { room: self.clone(), number, holder })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("no holder panics")
    }
}

impl Admitted {
    /// Takes this many random streams for this connection; stream 0 for payloads that carry no tag.
    pub(crate) fn seat(&self, wanted: u16, is_tagged: bool) -> Result<Seat<'_>, String> {
        let mut inside = self.room.inside();
        let streams: Vec<u16> = if is_tagged {
            let is_own = |holder: &&Holder| **holder == self.holder;
            let tagged =
                || inside.streams.iter().filter(|(stream, _)| **stream != 0).map(|(_, holder)| holder);
            let own = tagged().filter(is_own).count();
            let others = tagged().count() - own;
            let share = share(MOST_STREAMS.into(), others);
            if own + usize::from(wanted) > share {
                return Err(format!(
                    "{wanted} more streams are too many: an address may have {share} while others have {others}; this one has {own}"
                ));
            }
            let order = RandomState::new();
            let mut free: Vec<u16> =
                (1..=MOST_STREAMS).filter(|stream| !inside.streams.contains_key(stream)).collect();
            free.sort_by_cached_key(|stream| order.hash_one(stream));
            free.truncate(wanted.into());
            free
        } else if inside.streams.contains_key(&0) {
            return Err(
                "another sender uses payloads below 18 bytes, which cannot be distinguished: use a larger payload".into()
            );
        } else {
            vec![0]
        };
        inside.streams.extend(streams.iter().map(|stream| (*stream, self.holder)));
        let number = self.number;
        if let Some(connection) = inside.connections.iter_mut().find(|connection| connection.number == number)
        {
            connection.is_sender = true;
        }
        inside.senders += 1;
        inside.joined += 1;
        let (joined_at, met) = (inside.joined, inside.senders);
        drop(inside);
        Ok(Seat { room: &self.room, streams, joined_at, met })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.room.inside().connections.retain(|connection| connection.number != self.number);
    }
}

impl Seat<'_> {
    /// Senders that were present at some time since this one joined, including itself.
    pub(crate) fn company(&self) -> u32 {
        self.met + (self.room.inside().joined - self.joined_at)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut inside = self.room.inside();
        for stream in &self.streams {
            inside.streams.remove(stream);
        }
        inside.senders -= 1;
    }
}

#[cfg(test)]
mod tests;
