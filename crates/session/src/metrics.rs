//! One page of metrics over HTTP, for Prometheus to fetch: whatever was published last, whoever asks.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use thiserror::Error;

use crate::{deadline::Within, lines::MOST_LINE_BYTES};

/// The media type of the OpenMetrics text format.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// For a visitor's request and its answer together.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves `GET /metrics` until it is dropped.
pub struct MetricsPage {
    address: SocketAddr,
    page: Arc<Mutex<String>>,
    stop: Arc<AtomicBool>,
}

/// The address cannot be served at.
#[derive(Debug, Error)]
#[error("cannot serve metrics at {address}")]
pub struct MetricsError {
    /// The address.
    pub address: SocketAddr,
    /// The kernel's reason.
    pub source: io::Error,
}

impl MetricsPage {
    /// Listens on TCP `address`; the page is empty until [`MetricsPage::publish`].
    ///
    /// # Errors
    /// [`MetricsError`] when the address cannot be used.
    pub fn open(address: SocketAddr) -> Result<Self, MetricsError> {
        let cannot = |source| MetricsError { address, source };
        let listener = TcpListener::bind(address).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let page = Arc::new(Mutex::new(String::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (shown, stopping) = (Arc::clone(&page), Arc::clone(&stop));
        thread::Builder::new()
            .name("metrics".into())
            .spawn(move || {
                for visitor in listener.incoming() {
                    if stopping.load(Relaxed) {
                        return;
                    }
                    let text = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    // A visitor that hangs or leaves costs its own connection, and others two seconds.
                    visitor.and_then(|visitor| answer(&visitor, &text)).ok();
                }
            })
            .map_err(cannot)?;
        Ok(Self { address, page, stop })
    }

    /// Replaces the page by `text`, in the OpenMetrics text format (which ends with `# EOF`).
    pub fn publish(&self, text: String) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// Where it is; the port is the kernel's choice when 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsPage {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // Wakes the server, which then sees `stop`. Nobody waits for it: a visitor may be slow.
        TcpStream::connect_timeout(&self.address, PATIENCE).ok();
    }
}

fn answer(visitor: &TcpStream, page: &str) -> io::Result<()> {
    let mut visitor = Within::of(visitor, PATIENCE);
    let mut lines = BufReader::new((&mut visitor).take(MOST_LINE_BYTES as u64)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // The rest of the head is read so that closing does not reset the connection under the answer.
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let mut words = request.split(' ');
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics" | "/")) => ("200 OK", page),
        (Some("GET"), Some(_)) => ("404 Not Found", "the metrics are at /metrics\n"),
        _ => ("405 Method Not Allowed", "only GET is answered\n"),
    };
    let kind = if status == "200 OK" { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    let length = body.len();
    write!(
        visitor,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Instant};

    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_last_published_page_is_served_and_nothing_else() {
        let page = MetricsPage::open("127.0.0.1:0".parse().unwrap()).unwrap();
        page.publish("old\n# EOF\n".into());
        page.publish("linerate_lost_packets_total 3\n# EOF\n".into());
        let answer = ask(page.address(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Length: 36\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nlinerate_lost_packets_total 3\n# EOF\n"), "{answer}");
        assert!(ask(page.address(), "GET /secret HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(page.address(), "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(page.address(), "nonsense\r\n\r\n").starts_with("HTTP/1.1 405"));
    }

    #[test]
    fn a_slow_visitor_gets_two_seconds_and_nobody_waits_for_it_at_the_end() {
        let page = MetricsPage::open("127.0.0.1:0".parse().unwrap()).unwrap();
        page.publish("# EOF\n".into());
        let mut slow = TcpStream::connect(page.address()).unwrap();
        let mut dripping = slow.try_clone().unwrap();
        let (stop, stopped) = mpsc::channel::<()>();
        // Byte by byte, for as long as it is let.
        let drip = thread::spawn(move || {
            let tick = Duration::from_millis(100);
            while stopped.recv_timeout(tick).is_err_and(|error| error == mpsc::RecvTimeoutError::Timeout)
                && dripping.write_all(b"x").is_ok()
            {}
        });
        slow.set_read_timeout(Some(5 * PATIENCE)).unwrap();
        let ended = slow.read_to_end(&mut Vec::new());
        let is_late = ended.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        drop(stop);
        drip.join().unwrap();
        assert!(!is_late, "it was served for five times as long");
        assert!(ask(page.address(), "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        let _silent = TcpStream::connect(page.address()).unwrap();
        let since = Instant::now();
        drop(page);
        assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());
    }

    #[test]
    fn an_address_in_use_is_refused_in_words() {
        let page = MetricsPage::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let refused = MetricsPage::open(page.address()).err().unwrap();
        assert_eq!(refused.to_string(), format!("cannot serve metrics at {}", page.address()));
    }
}
