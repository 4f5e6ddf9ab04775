//! `channels.*`: how many queues there are. A card that has `combined` ones pairs a receive with a transmit queue.

use sys::ethtool::RssChange;

use super::{
    group::GroupKind,
    kind::{Kind, Wrong},
};
use crate::{Card, NicError};

pub(super) const CHANNELS: Channels =
    Channels(GroupKind { prefix: "channels", group: &sys::ethtool::CHANNELS, interrupts_the_link: true });

#[derive(Debug)]
pub(super) struct Channels(GroupKind);

impl Kind for Channels {
    fn prefix(&self) -> &'static str {
        self.0.prefix()
    }

    fn interrupts_the_link(&self) -> bool {
        self.0.interrupts_the_link()
    }

    fn read(&self, card: &mut Card) -> Result<Vec<(String, String)>, NicError> {
        let mut values = self.0.read(card)?;
        // A kind of queue whose maximum is 0 cannot be changed.
        values.retain(|(key, _)| key != "other");
        Ok(values)
    }

    fn resolve(&self, card: &mut Card, key: &str, value: &str) -> Result<String, Wrong> {
        let resolved = self.0.resolve(card, key, value)?;
        if resolved == "0" && key == "combined" {
            return Err(Wrong::Expected("a number of at least 1".into()));
        }
        Ok(resolved)
    }

    fn write(&self, card: &mut Card, changes: &[(&str, &str)]) -> Result<(), NicError> {
        let refused = match self.0.write(card, changes) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // The kernel refuses fewer queues while a user's table names more of them: reset it to
        // the kernel's default, which follows the number of queues. The wanted table is set afterwards.
        let name = card.name().to_owned();
        let reset = RssChange { table: Some(&[]), ..RssChange::default() };
        match card.ethtool.set_rss(&name, 0, &reset) {
            Ok(()) => self.0.write(card, changes),
            Err(_) => Err(refused),
        }
    }
}
