//! The interface's part of busy polling: interrupts stay off between polls while a socket polls.
//!
//! Restored when the last port of the interface is dropped, and by a second process when this one is killed
//! ([`sys::sysfs::ForNow`]).

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex, Weak},
};

use sys::{
    netns::NetNs,
    sysfs::{ForNow, Sysfs},
};

use crate::PortError;

/// The values that the kernel's documentation of busy polling advises (`Documentation/networking/napi.rst`): this many polls without
/// packets leave interrupts off, and a timer polls after this many nanoseconds without a poll of a socket.
const SETTINGS: [(&str, u32); 2] = [("napi_defer_hard_irqs", 2), ("gro_flush_timeout", 200_000)];

/// Interfaces whose settings this process keeps, by device and inode of the first setting's file.
static KEPT: Mutex<Vec<(FileKey, Weak<ForNow>)>> = Mutex::new(Vec::new());
type FileKey = (u64, u64);

/// The settings, until the last of these is dropped.
pub(super) struct Polled {
    /// Always present, except during drop.
    settings: Option<Arc<ForNow>>,
}

impl Polled {
    /// Sets up the interface of this name in the calling thread's namespace.
    pub(super) fn set_up(interface: &str) -> Result<Self, PortError> {
        let refused = |setting: &'static str| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::WouldBlock => {
                    PortError::NapiInUse { interface: interface.into(), setting, source }
                }
                _ => PortError::Napi { interface: interface.into(), setting, source },
            }
        };
        let first = SETTINGS[0].0;
        let sysfs = NetNs::current().and_then(|here| Sysfs::of(&here)).map_err(refused(first))?;
        let mut changes: Vec<(File, String)> = Vec::new();
        for (setting, value) in SETTINGS {
            let file = sysfs.open(&format!("class/net/{interface}/{setting}")).map_err(refused(setting))?;
            changes.push((file, value.to_string()));
        }
        let about = changes[0].0.metadata().map_err(refused(first))?;
        let key = (about.dev(), about.ino());
        let mut kept = KEPT.lock().expect("no holder of the list panics");
        kept.retain(|(_, settings)| settings.strong_count() > 0);
        if let Some(settings) =
            kept.iter().find(|(other, _)| *other == key).and_then(|(_, found)| found.upgrade())
        {
            return Ok(Self { settings: Some(settings) });
        }
        let settings = ForNow::set(changes).map_err(|(at, source)| refused(SETTINGS[at].0)(source))?;
        let settings = Arc::new(settings);
        kept.push((key, Arc::downgrade(&settings)));
        Ok(Self { settings: Some(settings) })
    }
}

impl Drop for Polled {
    /// With the list locked: the next port to open finds the settings either held or restored.
    fn drop(&mut self) {
        let _kept = KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.settings.take();
    }
}
