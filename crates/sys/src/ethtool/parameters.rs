//! Groups of numbered parameters that ethtool reads and writes by netlink: channels, rings, coalescing, pause.
//!
//! A group is a table: names as `ethtool` prints them, and the attribute of each. Numbers and widths are those of
//! `linux/ethtool_netlink.h`; formats: <https://docs.kernel.org/networking/ethtool-netlink.html>.

use crate::netlink::{Attributes, Request, field};

/// A group of parameters with the commands that read and write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The group's name in text: `channels`, `ring sizes`, …
    pub name: &'static str,
    /// Its parameters, in the kernel's order.
    pub parameters: &'static [Parameter],
    pub(super) get: u8,
    pub(super) set: u8,
}

/// One parameter of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// The name, ethtool's if it has one; names of limits contain `max`.
    pub name: &'static str,
    /// Whether it can be written; limits cannot.
    pub writable: bool,
    attribute: u16,
    width: Width,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Byte,
    Word,
}

/// The values of a group: those that the driver supports, in the kernel's order.
pub type Values = Vec<(&'static str, u32)>;

impl Parameter {
    /// Whether it is a switch, not a number.
    pub fn is_switch(&self) -> bool {
        self.width == Width::Byte
    }
}

impl Group {
    /// The parameter of this name.
    pub fn parameter(&self, name: &str) -> Option<&'static Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// Parses an answer; unsupported and malformed parameters are left out.
    pub fn parse(&self, body: &[u8]) -> Values {
        let attributes = Attributes(body);
        let value = |parameter: &Parameter| {
            let payload = attributes.find(parameter.attribute)?;
            let value = match parameter.width {
                Width::Byte => (*payload.first()?).into(),
                Width::Word => u32::from_ne_bytes(field(payload, 0)?),
            };
            Some((parameter.name, value))
        };
        self.parameters.iter().filter_map(value).collect()
    }

    /// Appends a value; names of other groups and limits are ignored.
    pub(super) fn append(&self, request: &mut Request, name: &str, value: u32) {
        let Some(parameter) = self.parameter(name).filter(|parameter| parameter.writable) else { return };
        match parameter.width {
            Width::Byte => request.attribute(parameter.attribute, &[u8::from(value != 0)]),
            Width::Word => request.u32(parameter.attribute, value),
        }
    }
}

const fn word(name: &'static str, attribute: u16) -> Parameter {
    Parameter { name, writable: true, attribute, width: Width::Word }
}

const fn byte(name: &'static str, attribute: u16) -> Parameter {
    Parameter { name, writable: true, attribute, width: Width::Byte }
}

const fn limit(name: &'static str, attribute: u16) -> Parameter {
    Parameter { name, writable: false, attribute, width: Width::Word }
}

/// Queues of each kind (`ethtool -l`, `-L`).
pub const CHANNELS: Group = Group {
    name: "channels",
    get: 17,
    set: 18,
    parameters: &[
        limit("rx-max", 2),
        limit("tx-max", 3),
        limit("other-max", 4),
        limit("combined-max", 5),
        word("rx", 6),
        word("tx", 7),
        word("other", 8),
        word("combined", 9),
    ],
};

/// Descriptors of each ring (`ethtool -g`, `-G`).
pub const RINGS: Group = Group {
    name: "ring sizes",
    get: 15,
    set: 16,
    parameters: &[
        limit("rx-max", 2),
        limit("rx-mini-max", 3),
        limit("rx-jumbo-max", 4),
        limit("tx-max", 5),
        word("rx", 6),
        word("rx-mini", 7),
        word("rx-jumbo", 8),
        word("tx", 9),
        word("rx-buf-len", 10),
        word("cqe-size", 12),
        byte("tx-push", 13),
        byte("rx-push", 14),
    ],
};

/// Interrupt moderation (`ethtool -c`, `-C`): microseconds and frames.
pub const COALESCING: Group = Group {
    name: "coalescing",
    get: 19,
    set: 20,
    parameters: &[
        word("rx-usecs", 2),
        word("rx-frames", 3),
        word("rx-usecs-irq", 4),
        word("rx-frames-irq", 5),
        word("tx-usecs", 6),
        word("tx-frames", 7),
        word("tx-usecs-irq", 8),
        word("tx-frames-irq", 9),
        word("stats-block-usecs", 10),
        byte("adaptive-rx", 11),
        byte("adaptive-tx", 12),
        word("pkt-rate-low", 13),
        word("rx-usecs-low", 14),
        word("rx-frames-low", 15),
        word("tx-usecs-low", 16),
        word("tx-frames-low", 17),
        word("pkt-rate-high", 18),
        word("rx-usecs-high", 19),
        word("rx-frames-high", 20),
        word("tx-usecs-high", 21),
        word("tx-frames-high", 22),
        word("sample-interval", 23),
        byte("cqe-mode-tx", 24),
        byte("cqe-mode-rx", 25),
        word("tx-aggr-max-bytes", 26),
        word("tx-aggr-max-frames", 27),
        word("tx-aggr-time-usecs", 28),
    ],
};

/// Flow control by pause frames (`ethtool -a`, `-A`).
pub const PAUSE: Group = Group {
    name: "pause",
    get: 21,
    set: 22,
    parameters: &[byte("autoneg", 2), byte("rx", 3), byte("tx", 4)],
};
