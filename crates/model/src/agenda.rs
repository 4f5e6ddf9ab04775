//! What happens when: events ordered by (time, sequence), so that ties never depend on a hash or a heap.

/// Something that is due at a time; the number is the port, queue or CPU it concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The last bit of a frame has come in on a port.
    Arrive(u16),
    /// A port's frame has crossed the bus.
    Stored(u16),
    /// A queue's fetched descriptors are on the card.
    Fetched(u16),
    /// A queue's finished descriptors request the bus.
    WriteBack(u16),
    /// A queue's finished descriptors are visible in memory.
    Written(u16),
    /// A queue's interrupt moderation lets the interrupt fire.
    Moderated(u16),
    /// A CPU has finished what it was doing.
    Done(u16),
}

/// The events to come.
///
/// Each source has at most a few events, so there are tens, not millions, for any simulated time. A
/// sorted list beats a heap there (`cargo bench -p linerate-model`), because most events are due soon and
/// are inserted after comparing a few neighbours.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// time (64 bits), sequence (48), kind (4), number (12), the earliest last: one comparison orders two.
    events: Vec<u128>,
    sequence: u64,
}

impl Agenda {
    #[inline]
    pub(crate) fn push(&mut self, at_ps: u64, event: Event) {
        self.sequence += 1;
        let key = u128::from(at_ps) << 64 | u128::from(self.sequence) << 16 | u128::from(event.code());
        let mut place = self.events.len();
        self.events.push(key);
        while place > 0 && self.events[place - 1] < key {
            self.events[place] = self.events[place - 1];
            place -= 1;
        }
        self.events[place] = key;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        let key = self.events.pop()?;
        Some(((key >> 64) as u64, Event::from_code(key as u16)))
    }
}

impl Event {
    #[inline]
    fn code(self) -> u16 {
        let (kind, number) = match self {
            Self::Arrive(n) => (0, n),
            Self::Stored(n) => (1, n),
            Self::Fetched(n) => (2, n),
            Self::WriteBack(n) => (3, n),
            Self::Written(n) => (4, n),
            Self::Moderated(n) => (5, n),
            Self::Done(n) => (6, n),
        };
        debug_assert!(number < 1 << 12, "numbers of ports, queues and CPUs fit 12 bits");
        kind << 12 | number
    }

    #[inline]
    fn from_code(code: u16) -> Self {
        let number = code & 0xfff;
        match code >> 12 {
            0 => Self::Arrive(number),
            1 => Self::Stored(number),
            2 => Self::Fetched(number),
            3 => Self::WriteBack(number),
            4 => Self::Written(number),
            5 => Self::Moderated(number),
            _ => Self::Done(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_come_in_the_order_they_were_made() {
        let mut agenda = Agenda::default();
        agenda.push(5, Event::Done(4095));
        agenda.push(3, Event::Written(1));
        agenda.push(5, Event::Arrive(0));
        agenda.push(3, Event::Fetched(9));
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
        let expected =
            [(3, Event::Written(1)), (3, Event::Fetched(9)), (5, Event::Done(4095)), (5, Event::Arrive(0))];
        assert_eq!(order, expected);
    }
}
