//! State of the clock that linuxptp's daemon `ptp4l` disciplines, queried on its socket by PTP's management messages
//! (IEEE 1588-2008, 15).

use std::{
    fmt, fs, io,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// The default socket of `ptp4l` (`uds_address`).
pub const PTP4L_SOCKET: &str = "/var/run/ptp4l";

/// The offset of a clock under `ptp4l` from its master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Following {
    /// Steps to the grandmaster; 0: it is the grandmaster.
    pub steps: u16,
    /// Our clock's lead at the last message, in nanoseconds.
    pub ahead_ns: i64,
    /// The mean path delay of messages: the largest error of `ahead_ns` if the two directions differ.
    pub path_delay_ns: u64,
    /// The clock is a card's, which something else must synchronise with the wall clock.
    pub is_card: bool,
    /// What its port does.
    pub port: PortState,
    /// The clock that all follow; `None` where the daemon does not name it.
    pub reference: Option<ClockIdentity>,
}

/// A clock's name (IEEE 1588-2008, 7.5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockIdentity(pub [u8; 8]);

/// What a port does (8.2.5.3.1): only a clock that follows steadily is kept, or the one that all follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    /// Others follow it.
    Master,
    /// It follows another clock.
    Slave,
    /// It is starting, listening, not calibrated yet, or broken.
    Other,
}

impl fmt::Display for ClockIdentity {
    /// As linuxptp writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}.{d:02x}{e:02x}.{g:02x}{h:02x}{i:02x}")
    }
}

/// Management message: header, target, and request (13.3, 15.4).
const HEADER_BYTES: usize = 48;
const TLV_BYTES: usize = 6;
const MANAGEMENT: u8 = 0x0d;
const VERSION: u8 = 2;
const RESPONSE: u8 = 2;
const TLV_MANAGEMENT: u16 = 1;
const CURRENT_DATA_SET: u16 = 0x2001;
const PARENT_DATA_SET: u16 = 0x2002;
const PORT_DATA_SET: u16 = 0x2004;
/// Of linuxptp's own: where the port is, and how its packets are stamped.
const PORT_PROPERTIES: u16 = 0xc004;
const CURRENT_BYTES: usize = 18;
/// After the port's identity (10) and its state (1).
const STAMPING_AT: usize = 11;
const STAMPED_BY_SOFTWARE: u8 = 0;
/// After the port's identity.
const STATE_AT: usize = 10;
const MASTER: u8 = 6;
const SLAVE: u8 = 9;
/// After the parent's identity and statistics, and the reference's quality (15.5.3.5.1).
const REFERENCE_AT: usize = 24;

/// Queries the daemon at this socket; it answers for domain 0.
///
/// # Errors
/// When no daemon runs, access is denied, or it does not answer at once.
pub fn following(socket: &Path) -> io::Result<Following> {
    let asking = Asking::of(socket)?;
    let current = asking.ask(CURRENT_DATA_SET)?;
    let following = read_current(&current).ok_or(io::ErrorKind::InvalidData)?;
    // An older daemon does not know this request: then it is unknown whether it disciplines the wall clock itself.
    let properties = asking.ask(PORT_PROPERTIES).unwrap_or_default();
    let port = asking.ask(PORT_DATA_SET).unwrap_or_default();
    let parent = asking.ask(PARENT_DATA_SET).unwrap_or_default();
    Ok(Following {
        is_card: properties.get(STAMPING_AT) != Some(&STAMPED_BY_SOFTWARE),
        port: match port.get(STATE_AT) {
            Some(&MASTER) => PortState::Master,
            Some(&SLAVE) => PortState::Slave,
            _ => PortState::Other,
        },
        reference: parent.get(REFERENCE_AT..).and_then(|rest| rest.first_chunk()).copied().map(ClockIdentity),
        ..following
    })
}

/// A socket to receive answers; its file is removed with it.
struct Asking {
    socket: UnixDatagram,
    file: PathBuf,
}

impl Asking {
    const AT_MOST: Duration = Duration::from_millis(300);

    fn of(daemon: &Path) -> io::Result<Self> {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let name = format!("linerate-ptp-{}-{}", process::id(), ASKED.fetch_add(1, Relaxed));
        let file = std::env::temp_dir().join(name);
        let asking = Self { socket: UnixDatagram::bind(&file)?, file };
        asking.socket.connect(daemon)?;
        asking.socket.set_write_timeout(Some(Self::AT_MOST))?;
        Ok(asking)
    }

    /// The answer to a request.
    fn ask(&self, id: u16) -> io::Result<Vec<u8>> {
        self.socket.send(&question(id))?;
        let deadline = Instant::now() + Self::AT_MOST;
        let mut message = [0; 1500];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let len = self.socket.recv(&mut message)?;
            if let Some(answer) = answer(&message[..len], id) {
                return Ok(answer.into());
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        fs::remove_file(&self.file).ok();
    }
}

/// GET for all ports of the daemon.
fn question(id: u16) -> [u8; HEADER_BYTES + TLV_BYTES] {
    let mut message = [0; HEADER_BYTES + TLV_BYTES];
    message[0] = MANAGEMENT;
    message[1] = VERSION;
    message[2..4].copy_from_slice(&((HEADER_BYTES + TLV_BYTES) as u16).to_be_bytes());
    message[32] = 4; // controlField of management messages
    message[33] = 0x7f; // no interval
    message[34..44].fill(0xff); // every port
    let tlv = &mut message[HEADER_BYTES..];
    tlv[..2].copy_from_slice(&TLV_MANAGEMENT.to_be_bytes());
    tlv[2..4].copy_from_slice(&2u16.to_be_bytes());
    tlv[4..].copy_from_slice(&id.to_be_bytes());
    message
}

/// The data of an answer to this request.
fn answer(message: &[u8], id: u16) -> Option<&[u8]> {
    let half = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    let is_answer = message.first()? & 0xf == MANAGEMENT
        && message.get(46)? & 0xf == RESPONSE
        && half(HEADER_BYTES)? == TLV_MANAGEMENT
        && half(HEADER_BYTES + 4)? == id;
    let data = usize::from(half(HEADER_BYTES + 2)?).checked_sub(2)?;
    message.get(HEADER_BYTES + TLV_BYTES..)?.get(..data).filter(|_| is_answer)
}

/// stepsRemoved, offsetFromMaster and meanPathDelay, these in 2^-16 ns (15.5.3.4.1).
fn read_current(data: &[u8]) -> Option<Following> {
    let data: &[u8; CURRENT_BYTES] = data.first_chunk()?;
    let scaled = |at: usize| i64::from_be_bytes(std::array::from_fn(|byte| data[at + byte])) >> 16;
    Some(Following {
        steps: u16::from_be_bytes([data[0], data[1]]),
        ahead_ns: scaled(2),
        path_delay_ns: scaled(10).unsigned_abs(),
        is_card: false,
        port: PortState::Other,
        reference: None,
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// What ptp4l 3.1.1 answered.
    const CURRENT: [u8; CURRENT_BYTES] =
        [0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 0, 0, 0, 9, 0x7b, 0, 0];

    const FOLLOWING: Following = Following {
        steps: 1,
        ahead_ns: -253,
        path_delay_ns: 2427,
        is_card: false,
        port: PortState::Other,
        reference: None,
    };

    fn answered(id: u16, data: &[u8]) -> Vec<u8> {
        let mut message = question(id).to_vec();
        message[46] = RESPONSE;
        message[50..52].copy_from_slice(&(data.len() as u16 + 2).to_be_bytes());
        message.extend(data);
        message
    }

    #[test]
    fn offset_and_delay_are_read() {
        let expected = FOLLOWING;
        let message = answered(CURRENT_DATA_SET, &CURRENT);
        assert_eq!(read_current(answer(&message, CURRENT_DATA_SET).unwrap()), Some(expected));
        assert_eq!(answer(&message, PORT_PROPERTIES), None);
        assert_eq!(answer(&question(CURRENT_DATA_SET), CURRENT_DATA_SET), None, "a request is not an answer");
        for len in 0..message.len() {
            let cut = answer(&message[..len], CURRENT_DATA_SET).and_then(read_current);
            assert_eq!(cut, None, "cut to {len}");
        }
    }

    #[test]
    fn a_daemon_is_asked_and_one_that_is_not_there_is_not() {
        let file = testing::own_folder().join("ptp4l");
        let daemon = UnixDatagram::bind(&file).unwrap();
        let serve = move || {
            let mut message = [0; 100];
            let mut port = [0; 26];
            port[STATE_AT] = SLAVE;
            let mut parent = [0; 32];
            parent[REFERENCE_AT..].copy_from_slice(&[0, 27, 33, 255, 254, 1, 2, 171]);
            for (id, data) in [
                (CURRENT_DATA_SET, &CURRENT[..]),
                (PORT_PROPERTIES, &[0; 13]),
                (PORT_DATA_SET, &port),
                (PARENT_DATA_SET, &parent),
            ] {
                let (len, from) = daemon.recv_from(&mut message).unwrap();
                assert_eq!(message[..len], question(id));
                let path = from.as_pathname().unwrap();
                daemon.send_to(&answered(0x2000, &[1, 2]), path).unwrap();
                daemon.send_to(&answered(id, data), path).unwrap();
            }
        };
        let server = thread::spawn(serve);
        let reference = ClockIdentity([0, 27, 33, 255, 254, 1, 2, 171]);
        let expected = Following { port: PortState::Slave, reference: Some(reference), ..FOLLOWING };
        assert_eq!(following(&file).unwrap(), expected);
        assert_eq!(reference.to_string(), "001b21.fffe.0102ab");
        server.join().unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(following(&file).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
