//! The web page of a running command: `GET /` with the token, server-sent events or polling behind it, and `/metrics`.
//!
//! Plain HTTP/1.1 over threads: a browser that is slow, stalled or gone costs its own connection, and never the run.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use socket2::SockRef;
use thiserror::Error;

use crate::{
    hub::{Bystander, Hub, Published},
    metrics::{Form, metrics},
    page::page,
    snapshot::Snapshot,
    token::{is_same, token},
};

/// For a request's head.
const PATIENCE: Duration = Duration::from_secs(2);
/// A browser that takes nothing for so long is dropped.
const STALLED: Duration = Duration::from_secs(2);
/// Time between two events of a stream.
const STEP: Duration = Duration::from_millis(200);
/// A stream without news says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// At the end, browsers have so long to take the last snapshot.
const LAST: Duration = Duration::from_millis(300);
/// Bytes of a request's head.
const MOST_HEAD_BYTES: u64 = 16 << 10;
/// Bytes on their way to a browser: what it has not taken is old soon.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Where a server listens and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebPlan {
    /// The address; port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// Connections at once; others get status 503.
    pub clients: u32,
    /// Only `/metrics`, without a token.
    pub metrics_only: bool,
}

/// A server that is up until it is dropped.
pub struct Web {
    address: SocketAddr,
    served: Arc<Served>,
}

/// The address cannot be served at.
#[derive(Debug, Error)]
#[error("cannot serve {what} at {address}")]
pub struct WebError {
    what: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// The kernel's reason.
    pub source: io::Error,
}

struct Served {
    hub: Arc<Hub>,
    plan: WebPlan,
    token: String,
    stop: AtomicBool,
    /// Connections of this server that are open.
    open: AtomicU32,
}

/// A snapshot with its number, as browsers get it.
#[derive(Serialize)]
struct Numbered<'s> {
    number: u64,
    #[serde(flatten)]
    snapshot: &'s Snapshot,
}

impl Web {
    /// Listens, and serves what the hub has.
    ///
    /// # Errors
    /// [`WebError`] when the address cannot be used.
    pub fn open(plan: WebPlan, hub: &Arc<Hub>) -> Result<Self, WebError> {
        let what = if plan.metrics_only { "metrics" } else { "the page" };
        let cannot = |source| WebError { what, address: plan.address, source };
        let token = token().map_err(cannot)?;
        let listener = TcpListener::bind(plan.address).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let (stop, open) = (AtomicBool::new(false), AtomicU32::new(0));
        let served = Arc::new(Served { hub: Arc::clone(hub), plan, token, stop, open });
        let shared = Arc::clone(&served);
        thread::Builder::new()
            .name("web".into())
            .spawn(move || listen(&listener, &shared))
            .map_err(cannot)?;
        Ok(Self { address, served })
    }

    /// Where it is; the kernel chooses the port for 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to open in a browser, with the secret; or the address of the metrics.
    #[must_use]
    pub fn url(&self) -> String {
        match self.served.plan.metrics_only {
            true => format!("http://{}/metrics", self.address),
            false => format!("http://{}/?token={}", self.address, self.served.token),
        }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.served.stop.store(true, Relaxed);
        // Wakes the listener, which then sees `stop`.
        let mut at = self.address;
        if at.ip().is_unspecified() {
            at.set_ip(if at.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        TcpStream::connect_timeout(&at, LAST).ok();
        let until = Instant::now() + LAST;
        while self.served.open.load(Relaxed) > 0 && Instant::now() < until {
            thread::sleep(LAST / 30);
        }
    }
}

fn listen(listener: &TcpListener, served: &Arc<Served>) {
    let mut bystander = Bystander::new(&served.hub);
    for visitor in listener.incoming() {
        if served.stop.load(Relaxed) {
            return;
        }
        bystander.step_aside(&served.hub.newest().snapshot.worker_cpus);
        let Ok(visitor) = visitor else { continue };
        let place = Place::take(served);
        if place.number > served.plan.clients {
            refuse(visitor).ok();
            continue;
        }
        // The thread inherits where this one may run.
        let visit = move || {
            let mut bystander = Bystander::new(&place.served.hub);
            answer(visitor, &place.served, &mut bystander).ok();
        };
        thread::Builder::new().name("web-client".into()).spawn(visit).ok();
    }
}

/// A connection among those that are served at once.
struct Place {
    served: Arc<Served>,
    number: u32,
}

impl Place {
    fn take(served: &Arc<Served>) -> Self {
        served.hub.clients().fetch_add(1, Relaxed);
        Self { served: Arc::clone(served), number: served.open.fetch_add(1, Relaxed) + 1 }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.served.hub.clients().fetch_sub(1, Relaxed);
        self.served.open.fetch_sub(1, Relaxed);
    }
}

/// Too many look already.
fn refuse(mut visitor: TcpStream) -> io::Result<()> {
    const SHORT: Duration = Duration::from_millis(50);
    visitor.set_read_timeout(Some(SHORT))?;
    visitor.set_write_timeout(Some(SHORT))?;
    // Unread bytes would reset the connection under the answer; how many there are does not matter.
    let _read = visitor.read(&mut [0; 4096]).unwrap_or(0);
    reply(&mut visitor, "503 Service Unavailable", "text/plain; charset=utf-8", "too many look already\n")
}

/// A request as far as it matters.
struct Request {
    is_get: bool,
    path: String,
    token: String,
    accept: String,
}

fn read_request(visitor: &TcpStream) -> io::Result<Request> {
    visitor.set_read_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut lines = BufReader::new(visitor.take(MOST_HEAD_BYTES)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let mut accept = String::new();
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("accept")
        {
            accept = value.trim().to_ascii_lowercase();
        }
    }
    let mut words = first.split(' ');
    let is_get = words.next() == Some("GET");
    let target = words.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let token = query.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default();
    Ok(Request { is_get, path: path.to_owned(), token: token.to_owned(), accept })
}

fn answer(mut visitor: TcpStream, served: &Served, bystander: &mut Bystander<'_>) -> io::Result<()> {
    let request = read_request(&visitor)?;
    visitor.set_write_timeout(Some(STALLED))?;
    SockRef::from(&visitor).set_send_buffer_size(SEND_BUFFER_BYTES).ok();
    const WORDS: &str = "text/plain; charset=utf-8";
    let is_known = served.plan.metrics_only || is_same(&request.token, &served.token);
    let metrics_only = served.plan.metrics_only;
    match request.path.as_str() {
        _ if !request.is_get => {
            reply(&mut visitor, "405 Method Not Allowed", WORDS, "only GET is answered\n")
        }
        _ if !is_known => reply(
            &mut visitor,
            "403 Forbidden",
            WORDS,
            "the address that linerate printed has a token; use all of it\n",
        ),
        "/metrics" => metrics_page(&mut visitor, served, &request),
        "/" if metrics_only => metrics_page(&mut visitor, served, &request),
        "/" => {
            let nonce = token()?;
            reply_page(&mut visitor, &nonce)
        }
        "/snapshot" if !metrics_only => {
            let newest = served.hub.newest();
            reply(&mut visitor, "200 OK", "application/json", &document(&newest, served))
        }
        "/events" if !metrics_only => stream(&mut visitor, served, bystander),
        _ if metrics_only => reply(&mut visitor, "404 Not Found", WORDS, "the metrics are at /metrics\n"),
        _ => reply(&mut visitor, "404 Not Found", WORDS, "there are /, /events, /snapshot and /metrics\n"),
    }
}

fn metrics_page(visitor: &mut TcpStream, served: &Served, request: &Request) -> io::Result<()> {
    let form = Form::accepted(&request.accept);
    let newest = served.hub.newest();
    reply(visitor, "200 OK", form.content_type(), &metrics(&newest.snapshot, form))
}

/// Server-sent events: the newest snapshot whenever there is one and the last was taken.
fn stream(visitor: &mut TcpStream, served: &Served, bystander: &mut Bystander<'_>) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
                X-Accel-Buffering: no\r\nConnection: close\r\n\r\nretry: 1000\n\n";
    visitor.write_all(head.as_bytes())?;
    let mut sent = 0;
    loop {
        let newest = wait(served, sent);
        bystander.step_aside(&newest.snapshot.worker_cpus);
        if newest.number > sent {
            if sent > 0 {
                served.hub.note_missed(newest.number - sent - 1);
            }
            sent = newest.number;
            let event = format!("id: {sent}\ndata: {}\n\n", document(&newest, served));
            visitor.write_all(event.as_bytes())?;
        } else {
            visitor.write_all(b": waiting\n\n")?;
        }
        let is_last = served.hub.newest().number <= sent;
        if is_last && (served.hub.has_ended() || served.stop.load(Relaxed)) {
            return visitor.write_all(b"event: end\ndata: {}\n\n");
        }
        thread::sleep(STEP);
    }
}

/// The next snapshot, or the newest after a heartbeat or when the server ends.
fn wait(served: &Served, after: u64) -> Arc<Published> {
    let until = Instant::now() + HEARTBEAT;
    loop {
        let newest = served.hub.wait(after, LAST / 3);
        if newest.number > after || served.stop.load(Relaxed) || Instant::now() >= until {
            return newest;
        }
    }
}

fn document(published: &Published, served: &Served) -> String {
    let mut snapshot = published.aged();
    snapshot.own = crate::snapshot::Own { published: published.number, ..served.hub.own() };
    serde_json::to_string(&Numbered { number: published.number, snapshot: &snapshot })
        .expect("a snapshot is JSON")
}

fn reply(visitor: &mut TcpStream, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    visitor.write_all(head.as_bytes())?;
    visitor.write_all(body.as_bytes())
}

fn reply_page(visitor: &mut TcpStream, nonce: &str) -> io::Result<()> {
    let body = page(nonce);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    visitor.write_all(head.as_bytes())?;
    visitor.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests;
