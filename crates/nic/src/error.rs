//! Errors of reading and changing a card.

use std::{io, path::PathBuf};

use sys::{NetlinkError, ethtool::EthtoolError};
use thiserror::Error;

/// Why a card could not be read or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NicError {
    /// By netlink.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// By ioctl.
    #[error(transparent)]
    Ethtool(#[from] EthtoolError),
    /// In a kernel file.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// `/sys` shows another network namespace's interfaces.
    #[error("/sys does not show {interface}: it belongs to another network namespace")]
    ForeignSysfs {
        /// The interface's name.
        interface: String,
    },
    /// No setting has this name.
    #[error("unknown setting '{name}'")]
    NoSuchSetting {
        /// What was written.
        name: String,
    },
    /// A setting that this interface does not have.
    #[error("{interface} has no setting {name} that can be changed")]
    Absent {
        /// The setting.
        name: String,
        /// The interface's name.
        interface: String,
    },
    /// An invalid value for this setting.
    #[error("{name} cannot be '{value}': write {expected}")]
    BadValue {
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// What to write instead.
        expected: String,
    },
    /// Neither a plan nor a setting.
    #[error("'{text}' is not a setting: write KIND.NAME=VALUE, for example ring.rx=512")]
    NotASetting {
        /// What was written.
        text: String,
    },
    /// A plan that is not TOML.
    #[error("the plan is not valid TOML")]
    NotAPlan {
        /// The cause.
        source: Box<toml::de::Error>,
    },
    /// A value of a plan that is neither text, number nor switch.
    #[error("{name} in the plan must be text, a number, a boolean or a table of settings")]
    NotAPlanValue {
        /// The setting.
        name: String,
    },
    /// The kernel or the driver refused a change.
    #[error("cannot set {name} of {interface} to {value}")]
    Refused {
        /// The setting.
        name: String,
        /// The interface's name.
        interface: String,
        /// The value.
        value: String,
        /// The cause.
        source: Box<NicError>,
    },
}

impl NicError {
    /// The kernel's error.
    pub fn os_error(&self) -> Option<i32> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<io::Error>() {
                return io.raw_os_error();
            }
            cause = error.source();
        }
        None
    }

    /// Whether the driver does not support it at all.
    pub fn is_unsupported(&self) -> bool {
        const ENOSYS: i32 = 38;
        const EOPNOTSUPP: i32 = 95;
        matches!(self.os_error(), Some(ENOSYS | EOPNOTSUPP))
    }
}
