//! Notifications to the service manager that started this process (`sd_notify(3)`); without one, no effect.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use sys::child::{RELOAD_REFUSED, RELOADED};

/// The service manager of the environment.
pub(crate) struct ServiceManager {
    /// Interval of watchdog notifications; `None` without a watchdog.
    period: Option<Duration>,
    told: Option<Instant>,
}

impl ServiceManager {
    /// As `NOTIFY_SOCKET` and `WATCHDOG_USEC` name it.
    pub(crate) fn of_environment() -> Self {
        // Half of the watchdog's timeout, as sd_watchdog_enabled(3) recommends.
        Self { period: sd_notify::watchdog_enabled().map(|limit| limit / 2), told: None }
    }

    /// Reports that the service is up.
    pub(crate) fn ready(&self, status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Reports that the service reloads its files; [`reloaded`](Self::reloaded) ends that state.
    pub(crate) fn reloading(&self) {
        let since = NotifyState::monotonic_usec_now();
        tell(&[Some(NotifyState::Reloading), since.ok()].into_iter().flatten().collect::<Vec<_>>());
    }

    /// Reports the outcome of a reload, which ends the state of [`reloading`](Self::reloading).
    pub(crate) fn reloaded(&self, is_taken: bool, status: &str) {
        let outcome = NotifyState::Custom(if is_taken { RELOADED } else { RELOAD_REFUSED });
        tell(&[outcome, NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Reports that the service is stopping.
    pub(crate) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Reports that the service is alive. May be called at any rate: it notifies twice per watchdog timeout.
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
