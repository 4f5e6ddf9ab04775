//! Native or generic XDP.

use std::fmt;

/// Where in the kernel an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// In the driver, before the kernel makes a socket buffer.
    #[default]
    Native,
    /// After the driver, on every interface, slower.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}
