//! A proxy between clients and nats-server that loses, repeats and delays whole messages. Everything else of the protocol
//! passes: a lost line of control would break the connection, which the tests of a killed server show.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// Shares of messages, and how long the delayed ones wait; later messages of the connection wait behind them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) lost: f64,
    pub(crate) repeated: f64,
    pub(crate) delayed: f64,
    pub(crate) most_delay_ms: u64,
}

/// Messages by what happened to them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) held: AtomicU64,
}

pub(crate) struct Proxy {
    port: u16,
    faults: Arc<Mutex<Faults>>,
    /// Messages to this subject wait while it is set.
    held: Arc<Mutex<Option<String>>>,
    pub(crate) counts: Arc<Counts>,
}

impl Proxy {
    /// In front of the server at a port of loopback; without faults yet.
    pub(crate) fn start(server: u16, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (faults, counts) = (Arc::new(Mutex::new(Faults::default())), Arc::new(Counts::default()));
        let held: Arc<Mutex<Option<String>>> = Arc::default();
        let (shared, counted, subject) = (faults.clone(), counts.clone(), held.clone());
        thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed);
            for client in listener.incoming().map_while(Result::ok) {
                // While the server is away, so is the proxy.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let shared = (shared.clone(), subject.clone(), counted.clone());
                    let random = random.fork();
                    thread::spawn(move || {
                        pass(&from, &to, random, (&shared.0, &shared.1, &shared.2)).ok();
                        from.shutdown(Shutdown::Both).ok();
                        to.shutdown(Shutdown::Both).ok();
                    });
                }
            }
        });
        Self { port, faults, held, counts }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Holds messages to a subject back, and everything behind them; `None` lets them go.
    pub(crate) fn hold(&self, subject: Option<&str>) {
        *self.held.lock().unwrap() = subject.map(str::to_owned);
    }

    /// From now on.
    pub(crate) fn set(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }
}

fn pass(
    from: &TcpStream,
    mut to: &TcpStream,
    mut random: fastrand::Rng,
    (faults, held, counts): (&Mutex<Faults>, &Mutex<Option<String>>, &Counts),
) -> io::Result<()> {
    to.set_nodelay(true)?;
    let mut from = BufReader::new(from);
    while let Some((frame, is_message)) = read_frame(&mut from)? {
        if !is_message {
            to.write_all(&frame)?;
            continue;
        }
        let is_held = || held.lock().unwrap().as_ref().is_some_and(|subject| is_to(&frame, subject));
        if is_held() {
            counts.held.fetch_add(1, Relaxed);
        }
        while is_held() {
            thread::sleep(Duration::from_millis(5));
        }
        let faults = *faults.lock().unwrap();
        if random.f64() < faults.delayed {
            counts.delayed.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_millis(random.u64(0..=faults.most_delay_ms)));
        }
        let times = match random.f64() {
            draw if draw < faults.lost => {
                counts.lost.fetch_add(1, Relaxed);
                0
            }
            draw if draw < faults.lost + faults.repeated => {
                counts.repeated.fetch_add(1, Relaxed);
                2
            }
            _ => {
                counts.passed.fetch_add(1, Relaxed);
                1
            }
        };
        for _ in 0..times {
            to.write_all(&frame)?;
        }
    }
    Ok(())
}

/// Whether a message is sent to a subject: the second word of its line.
fn is_to(frame: &[u8], subject: &str) -> bool {
    frame.split(|byte| byte.is_ascii_whitespace()).nth(1) == Some(subject.as_bytes())
}

/// One line of the client protocol, with its payload if it is a message (docs.nats.io, "Client Protocol"): the last word of
/// each of the four kinds is the number of bytes that follow.
fn read_frame(from: &mut impl BufRead) -> io::Result<Option<(Vec<u8>, bool)>> {
    let mut frame = Vec::new();
    if from.read_until(b'\n', &mut frame)? == 0 {
        return Ok(None);
    }
    let line = String::from_utf8_lossy(&frame).into_owned();
    let mut words = line.split_ascii_whitespace();
    if !matches!(words.next(), Some("PUB" | "HPUB" | "MSG" | "HMSG")) {
        return Ok(Some((frame, false)));
    }
    let length: usize = words.last().and_then(|word| word.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let header = frame.len();
    frame.resize(header + length + 2, 0);
    from.read_exact(&mut frame[header..])?;
    Ok(Some((frame, true)))
}

#[test]
fn a_frame_is_a_line_or_a_message_with_its_payload() {
    let mut bytes: &[u8] =
        b"PING\r\nPUB a.b 4\r\nP\r\nQ\r\nHMSG a 1 r 2 5\r\nhhbbb\r\nMSG a 1 0\r\n\r\n+OK\r\n";
    let mut frames = Vec::new();
    while let Some((frame, is_message)) = read_frame(&mut bytes).unwrap() {
        frames.push((String::from_utf8(frame).unwrap(), is_message));
    }
    let seen: Vec<(&str, bool)> = frames.iter().map(|(frame, is)| (frame.as_str(), *is)).collect();
    let message = |text| (text, true);
    assert_eq!(
        seen,
        [
            ("PING\r\n", false),
            message("PUB a.b 4\r\nP\r\nQ\r\n"),
            message("HMSG a 1 r 2 5\r\nhhbbb\r\n"),
            message("MSG a 1 0\r\n\r\n"),
            ("+OK\r\n", false)
        ]
    );
}
