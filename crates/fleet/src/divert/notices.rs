//! What `linerate divert` reports to the agent that runs it, by the protocol of `sd_notify(3)`.

use std::{
    fs, io,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sys::child::{RELOAD_REFUSED, RELOADED};

/// A reported state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    /// It diverts.
    Up,
    /// It has read its rules again.
    Reloaded,
    /// It kept its former rules, for this reason.
    ReloadRefused(String),
}

/// The socket that a diversion reports to.
pub(super) struct Notices {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Notices {
    /// A socket in a folder that no other user can enter; one that a killed agent left is replaced.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("notify");
        fs::remove_file(&path).ok();
        Ok(Self { socket: UnixDatagram::bind(&path)?, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next state that is reported until a time.
    pub(super) fn next(&self, until: Instant) -> io::Result<Option<Notice>> {
        let mut text = [0; 8192];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.socket.recv(&mut text) {
                Ok(length) => {
                    if let Some(notice) = notice(&String::from_utf8_lossy(&text[..length])) {
                        return Ok(Some(notice));
                    }
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

/// One datagram: `NAME=VALUE` in each line.
fn notice(text: &str) -> Option<Notice> {
    let has = |line: &str| text.lines().any(|other| other == line);
    let status = || text.lines().find_map(|line| line.strip_prefix("STATUS=")).unwrap_or_default().to_owned();
    match () {
        () if has(RELOADED) => Some(Notice::Reloaded),
        () if has(RELOAD_REFUSED) => Some(Notice::ReloadRefused(status())),
        () if has("READY=1") => Some(Notice::Up),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_reports_one_state_or_none() {
        assert_eq!(notice("READY=1\nSTATUS=diverting queue 3"), Some(Notice::Up));
        assert_eq!(notice(&format!("{RELOADED}\nREADY=1\nSTATUS=x")), Some(Notice::Reloaded));
        let refused = format!("{RELOAD_REFUSED}\nREADY=1\nSTATUS=line 3: unknown word");
        assert_eq!(notice(&refused), Some(Notice::ReloadRefused("line 3: unknown word".into())));
        for other in ["RELOADING=1\nMONOTONIC_USEC=1", "WATCHDOG=1", "STOPPING=1", ""] {
            assert_eq!(notice(other), None);
        }
    }

    #[test]
    fn a_notice_arrives_and_silence_ends_at_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let notices = Notices::open(folder.path()).unwrap();
        let from = UnixDatagram::unbound().unwrap();
        from.send_to(b"WATCHDOG=1", notices.path()).unwrap();
        from.send_to(b"READY=1", notices.path()).unwrap();
        let soon = || Instant::now() + Duration::from_millis(200);
        assert_eq!(notices.next(soon()).unwrap(), Some(Notice::Up));
        assert_eq!(notices.next(soon()).unwrap(), None);
    }
}
