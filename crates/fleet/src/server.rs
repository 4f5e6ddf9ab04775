//! nats-server: found in PATH or where `get-server` puts it, installed by Go's module or Debian's package, and started on
//! loopback for a trial fleet.

use std::{
    fs, io,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sys::child::{Ties, tie};
use thiserror::Error;

/// The version that tests run with, beside Debian's.
const MODULE: &str = "github.com/nats-io/nats-server/v2@v2.12.1";
const NAME: &str = "nats-server";
/// A server starts in less, on a busy machine too.
const READY_AT_MOST: Duration = Duration::from_secs(30);

/// Why there is no server.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Not installed.
    #[error("nats-server is not installed")]
    NotFound,
    /// An installation that failed.
    #[error("cannot install nats-server: {0}")]
    NotInstalled(String),
    /// Files or processes.
    #[error("cannot {what}")]
    Io {
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It does not start.
    #[error("nats-server does not start: {0}")]
    NotStarted(String),
}

/// The server's program: in PATH, or in `folder`, where [`get_server`] puts it.
pub fn find_server(folder: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([folder.to_owned(), "/usr/sbin".into()]);
    folders.map(|folder| folder.join(NAME)).find(|file| file.is_file())
}

/// Installs the server: with Go into `folder`, else as Debian's package. `say` gets each step.
///
/// # Errors
/// [`ServerError`].
pub fn get_server(folder: &Path, say: impl Fn(&str)) -> Result<PathBuf, ServerError> {
    if let Some(found) = find_server(folder) {
        return Ok(found);
    }
    let runs = |program: &str| {
        let tried = Command::new(program).arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok()
    };
    let mut why = Vec::new();
    if runs("go") {
        fs::create_dir_all(folder)
            .map_err(|source| ServerError::Io { what: "make a folder for nats-server", source })?;
        say(&format!("go install {MODULE}"));
        let installed = Command::new("go").args(["install", MODULE]).env("GOBIN", folder).output();
        match installed {
            Ok(output) if output.status.success() => {}
            Ok(output) => why.push(format!("go: {}", last_line(&output.stderr))),
            Err(error) => why.push(format!("go: {error}")),
        }
    } else {
        why.push("there is no Go".into());
    }
    if find_server(folder).is_none() && runs("apt-get") {
        say("apt-get install nats-server");
        let installed =
            Command::new("apt-get").args(["install", "-y", "--no-install-recommends", NAME]).output();
        match installed {
            Ok(output) if output.status.success() => {}
            Ok(output) => why.push(format!("apt-get: {}", last_line(&output.stderr))),
            Err(error) => why.push(format!("apt-get: {error}")),
        }
    }
    find_server(folder).ok_or_else(|| ServerError::NotInstalled(why.join("; ")))
}

fn last_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).trim().lines().last().unwrap_or_default().to_owned()
}

/// A running server on loopback; it ends with this value, and with the thread that started it.
#[derive(Debug)]
pub struct NatsServer {
    child: Child,
    address: SocketAddr,
}

impl NatsServer {
    /// Starts the server with its files in `folder`, on a port of loopback; 0 is any free one.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(program: &Path, folder: &Path, port: u16) -> Result<Self, ServerError> {
        let failed = |what| move |source| ServerError::Io { what, source };
        let store = folder.join("jetstream");
        fs::create_dir_all(&store).map_err(failed("make a folder for the server"))?;
        let port = if port == 0 { -1 } else { i32::from(port) };
        let log = folder.join("nats.log");
        let config = format!(
            "listen: \"127.0.0.1:{port}\"\nserver_name: linerate\nlog_file: \"{}\"\njetstream {{ store_dir: \"{}\" }}\n",
            log.display(),
            store.display()
        );
        let file = folder.join("nats.conf");
        fs::write(&file, config).map_err(failed("write the server's configuration"))?;
        let mut command = Command::new(program);
        command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C is this program's to handle.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        tie(&mut command, Ties::default());
        let mut child = command.spawn().map_err(failed("start nats-server"))?;
        match Self::wait(&mut child, &log) {
            Ok(address) => Ok(Self { child, address }),
            Err(error) => {
                child.kill().ok();
                child.wait().ok();
                Err(error)
            }
        }
    }

    /// Until it answers at the port that its log names.
    fn wait(child: &mut Child, log: &Path) -> Result<SocketAddr, ServerError> {
        let until = Instant::now() + READY_AT_MOST;
        loop {
            let text = fs::read_to_string(log).unwrap_or_default();
            let said = |line: &str| {
                let (_, address) = line.split_once("Listening for client connections on ")?;
                address.trim().parse::<SocketAddr>().ok()
            };
            if text.contains("Server is ready")
                && let Some(address) = text.lines().find_map(said)
                && greets(address)
            {
                return Ok(address);
            }
            let ended = child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > until {
                let mut words = text;
                if let Some(mut stderr) = child.stderr.take().filter(|_| ended.is_some()) {
                    io::Read::read_to_string(&mut stderr, &mut words).ok();
                }
                return Err(ServerError::NotStarted(last_line(words.as_bytes())));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// A NATS server speaks first.
fn greets(address: SocketAddr) -> bool {
    let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO")
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
