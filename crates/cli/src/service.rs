//! Reports to the service manager that started this process (`sd_notify(3)`); without one, nothing happens.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The service manager of the environment.
pub(crate) struct ServiceManager {
    /// How often it is to hear that all is well; `None` without a watchdog.
    period: Option<Duration>,
    told: Option<Instant>,
}

impl ServiceManager {
    /// As `NOTIFY_SOCKET` and `WATCHDOG_USEC` name it.
    pub(crate) fn of_environment() -> Self {
        // Half of the time after which it acts, as sd_watchdog_enabled(3) recommends.
        Self { period: sd_notify::watchdog_enabled().map(|limit| limit / 2), told: None }
    }

    /// The service does its work, or has read its files again.
    pub(crate) fn ready(&self, status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The service reads its files again; [`ready`](Self::ready) ends that.
    pub(crate) fn reloading(&self) {
        let since = NotifyState::monotonic_usec_now();
        tell(&[Some(NotifyState::Reloading), since.ok()].into_iter().flatten().collect::<Vec<_>>());
    }

    /// The service ends.
    pub(crate) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// The service is well. Call it as often as you like: it passes that on twice in the watchdog's time.
    pub(crate) fn alive(&mut self) {
        let Some(period) = self.period else { return };
        if self.told.is_none_or(|told| told.elapsed() >= period) {
            self.told = Some(Instant::now());
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// A manager that does not listen must not end its service.
fn tell(states: &[NotifyState<'_>]) {
    sd_notify::notify(states).ok();
}
