//! The common part of channels, rings, coalescing and pause: a group of the kernel's numbered parameters.

use sys::ethtool::{Group, Parameter, Values};

use super::kind::{Kind, Wrong, number};
use crate::{
    Card, NicError,
    setting::{on_off, switch},
};

/// A group of parameters with its own name.
#[derive(Debug)]
pub(super) struct GroupKind {
    pub(super) prefix: &'static str,
    pub(super) group: &'static Group,
    pub(super) interrupts_the_link: bool,
}

impl GroupKind {
    fn values(&self, card: &mut Card) -> Result<Values, NicError> {
        let index = card.index();
        match &mut card.netlink {
            Some(netlink) => Ok(netlink.read(self.group, index)?),
            None => Err(no_netlink()),
        }
    }

    fn parameter(&self, key: &str) -> Option<&'static Parameter> {
        self.group.parameter(key).filter(|parameter| parameter.writable)
    }
}

fn no_netlink() -> NicError {
    sys::NetlinkError::Unsupported { family: "ethtool", since: "5.6" }.into()
}

impl Kind for GroupKind {
    fn prefix(&self) -> &'static str {
        self.prefix
    }

    fn interrupts_the_link(&self) -> bool {
        self.interrupts_the_link
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        let values = self.values(card)?;
        let writable = values.into_iter().filter_map(|(name, value)| Some((self.parameter(name)?, value)));
        Ok(writable
            .map(|(parameter, value)| {
                let text = if parameter.is_switch() { on_off(value != 0).into() } else { value.to_string() };
                (parameter.name.to_owned(), text)
            })
            .collect())
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        let parameter = self.parameter(key).ok_or(Wrong::NoSuchKey)?;
        let values = self.values(card).map_err(Wrong::Unreadable)?;
        if !values.iter().any(|(name, _)| *name == key) {
            return Err(Wrong::NoSuchKey);
        }
        if parameter.is_switch() {
            let on = switch(value).ok_or_else(|| Wrong::Expected("on or off".into()))?;
            return Ok(on_off(on).into());
        }
        let limit = values.iter().find(|(name, _)| name.strip_suffix("-max") == Some(key));
        match (value, limit) {
            ("max", Some((_, limit))) => Ok(limit.to_string()),
            _ => number(value, Some(limit.map_or(u32::MAX, |(_, limit)| *limit).into())),
        }
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        let value = |text: &str| match switch(text) {
            Some(on) if text.parse::<u32>().is_err() => u32::from(on),
            _ => text.parse().unwrap_or(0),
        };
        let values: Vec<(&str, u32)> = changes.iter().map(|(key, text)| (*key, value(text))).collect();
        let index = card.index();
        let netlink = card.netlink.as_mut().ok_or_else(no_netlink)?;
        Ok(netlink.write(self.group, index, &values)?)
    }
}
